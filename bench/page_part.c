/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a page that a program writes. */
#define _POSIX_C_SOURCE 200809L
#include "page_part.h"

#include "table.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text between the two lines that begin with the marker. */
static bool find_part(const char *page, const char *marker, const char **from,
                      const char **to)
{
    const char *begin = strstr(page, marker);

    begin = begin ? strchr(begin, '\n') : NULL;
    *to = begin ? strstr(begin, marker) : NULL;
    *from = begin ? begin + 1 : NULL;
    return *to != NULL;
}

static bool near_enough(double a, double b, double give)
{
    return fabs(a - b) <= fmax(give, 0.02 * fmax(fabs(a), fabs(b)));
}

static bool begins_number(const char *at)
{
    return isdigit((unsigned char)*at) ||
           ((*at == '+' || *at == '-') && isdigit((unsigned char)at[1]));
}

/* Equal but for numbers that are near each other. */
static bool texts_agree(const char *a, const char *a_end, const char *b,
                        double give)
{
    while (a < a_end && *b) {
        if (begins_number(a) && begins_number(b)) {
            char *a_next, *b_next;

            if (!near_enough(strtod(a, &a_next), strtod(b, &b_next), give))
                return false;
            a = a_next;
            b = b_next;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return a == a_end && !*b;
}

static bool write_page(const char *path, const char *page, const char *from,
                       const char *to, const char *made)
{
    size_t before = (size_t)(from - page);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(page, 1, before, f) == before &&
              fputs(made, f) >= 0 && fputs(to, f) >= 0;

    if (f && fclose(f) != 0)
        ok = false;
    return ok;
}

bool page_part(const char *program, const char *path, bool write, double give,
               const char *made)
{
    char marker[80];
    char *page = table_text_of(path);
    const char *from, *to;
    bool ok = false;

    if (!page)
        return false;
    snprintf(marker, sizeof marker, "<!-- %s", program);
    if (!find_part(page, marker, &from, &to))
        fprintf(stderr, "%s: %s has no two lines '%s'\n", program, path,
                marker);
    else if (write)
        ok = write_page(path, page, from, to, made);
    else
        ok = texts_agree(from, to, made, give);
    if (!ok && !write)
        fprintf(stderr,
                "%s: %s has other numbers; --write %s puts these "
                "there\n",
                program, path, path);
    free(page);
    return ok;
}

bool page_argument(int argc, char **argv, int *i, page_arguments *a)
{
    const char *word = argv[*i];

    if (*i + 1 < argc &&
        (!strcmp(word, "--check") || !strcmp(word, "--write"))) {
        a->write = !strcmp(word, "--write");
        a->page = argv[++*i];
        return true;
    }
    a->folder = word;
    return word[0] != '-';
}
