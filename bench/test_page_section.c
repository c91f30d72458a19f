/* SPDX-License-Identifier: Apache-2.0 */
/* A page's numbers and percentages have separate tolerances. */
#include "page_section.h"

#include <stdio.h>

static const char path[] = "test-page-section.md";
static const char page[] = "before\n<!-- part: begin -->\n| 1.034 | -63.5 % |\n"
                           "<!-- part: end -->\nafter\n";

/* Checks a line against the page, within 0.005 of numbers and 2 points. */
static bool agrees(const char *line)
{
    const page_tolerance give = {.number = 0.005, .percent = 2};

    return page_part("part", path, false, give, line);
}

int main(void)
{
    FILE *f = fopen(path, "wb");
    int failed = !f || fputs(page, f) < 0 || fclose(f) != 0;
    static const struct {
        const char *line;
        bool same;
    } lines[] = {
        {"| 1.034 | -63.5 % |\n", true},
        {"| 1.050 | -62.9 % |\n", true},  /* 1.5 % of 1.034 */
        {"| 1.060 | -62.5 % |\n", false}, /* 2.5 % */
        {"| 2.830 | -63.5 % |\n", false}, /* within two, but no percentage */
        {"| 1.034 | -65.4 % |\n", true},  /* 1.9 points */
        {"| 1.034 | -66.0 % |\n", false}, /* 2.5 points */
        {"| 1.034 | -63.5 s |\n", false},
    };

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (agrees(lines[i].line) != lines[i].same) {
            fprintf(stderr, "test-page-section: %s", lines[i].line);
            failed = 1;
        }
    remove(path);
    return failed;
}
