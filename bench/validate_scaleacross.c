/* SPDX-License-Identifier: Apache-2.0 */
/* Computes figures of ScaleAcross Explorer (2026) from jobs and compares them
 * with the paper.
 *
 *     validate-scaleacross [--check PAGE | --write PAGE | --job TOPOLOGY]
 *                          [--pipeline-out] [--quick] [FOLDER]
 *
 * FOLDER contains scaleacross/findings.csv (default bench/data). Every figure
 * is a ratio between iteration times of job files that the planner or the
 * simulator reads. --job prints the job of a topology in table 3, A1 to B4,
 * with data parallelism between the buildings or, with --pipeline-out,
 * pipelines. --quick skips the figures that search for layouts, which take
 * minutes. --write writes the results to PAGE
 * (docs/papers/scaleacross-figures.md), between lines that begin with "<!--
 * validate-scaleacross"; --check fails if the numbers in PAGE differ. */
#define _POSIX_C_SOURCE 200809L
#include "page_section.h"
#include "scaleacross.h"
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 128, FIRST_SEARCHED = 23 };

/* Checks whether a row's value comes from a search. */
static bool is_searched(const char *key)
{
    return atoi(key) >= FIRST_SEARCHED || strstr(key, " best microbatches");
}

/* Computed values by key. */
typedef struct computed {
    uint32_t n;
    char keys[MOST_VALUES][64];
    double values[MOST_VALUES];
} computed;

static void store_value(void *to, const char *key, double value)
{
    computed *all = to;

    if (all->n == MOST_VALUES)
        return;
    snprintf(all->keys[all->n], sizeof all->keys[0], "%s", key);
    all->values[all->n++] = value;
}

static bool find_value(const computed *all, const char *key, double *out)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (strcmp(all->keys[i], key) == 0) {
            *out = all->values[i];
            return true;
        }
    fprintf(stderr, "validate-scaleacross: nothing computes '%s'\n", key);
    return false;
}

/* The paper's finding: a number, a range, or the larger of two. */
typedef struct finding {
    bool has_low, has_high;
    double low, high;
} finding;

static finding finding_of(const table *t, uint32_t row)
{
    return (finding){.has_low = *table_text(t, row, "low") != '\0',
                     .has_high = *table_text(t, row, "high") != '\0',
                     .low = table_number(t, row, "low"),
                     .high = table_number(t, row, "high")};
}

/* Tolerance: ratios with three decimals resolve no smaller difference. */
static const double tolerance = 0.0005;

static bool agrees(const finding *f, double value)
{
    if (f->has_low && f->has_high)
        return value >= f->low - tolerance && value <= f->high + tolerance;
    return f->has_low ? value > f->low + tolerance
                      : value < f->high - tolerance;
}

static void format_finding(const finding *f, char *text, size_t room)
{
    if (f->has_low && f->has_high && f->low == f->high)
        snprintf(text, room, "%.3f", f->low);
    else if (f->has_low && f->has_high)
        snprintf(text, room, "%.3f to %.3f", f->low, f->high);
    else
        snprintf(text, room, "%s %.2f", f->has_low ? "above" : "below",
                 f->has_low ? f->low : f->high);
}

/* Formats the error against the nearest published value; for a direction,
 * whether it matches. */
static void format_error(const finding *f, double value, char *text,
                         size_t room)
{
    double nearest = value;

    if (f->has_low && f->has_high) {
        nearest = fmin(fmax(value, f->low), f->high);
        snprintf(text, room, "%+.1f %%", 100 * (value / nearest - 1));
    } else {
        snprintf(text, room, agrees(f, value) ? "as there" : "not as there");
    }
}

/* Counts of findings by kind and of matches; for numbers also the mean error.
 */
typedef struct tally {
    uint32_t directions, right, numbers, within;
    double off;
} tally;

static void count(const finding *f, double value, tally *t)
{
    double nearest = fmin(fmax(value, f->low), f->high);

    if (!f->has_low || !f->has_high) {
        t->directions++;
        t->right += agrees(f, value);
        return;
    }
    t->numbers++;
    t->off += fabs(value / nearest - 1);
    t->within += fabs(value / nearest - 1) <= 0.05;
}

/* Prints the rows whose figures come from a search, or the others. */
static bool print_part(const table *t, const computed *all, bool searched,
                       FILE *to)
{
    tally sum = {0};

    fputs("| figure, section | ratio of iteration times | longhaul | paper | "
          "error | why, as far as known |\n"
          "| --- | --- | --- | --- | --- | --- |\n",
          to);
    for (uint32_t i = 0; i < t->n_rows; i++) {
        const char *key = table_text(t, i, "key");
        finding f = finding_of(t, i);
        char paper[60], error[40];
        double value;

        if (is_searched(key) != searched)
            continue;
        if (!find_value(all, key, &value))
            return false;
        format_finding(&f, paper, sizeof paper);
        format_error(&f, value, error, sizeof error);
        count(&f, value, &sum);
        fprintf(to, "| %d, §%s | %s | %.3f | %s | %s | %s |\n", atoi(key),
                table_text(t, i, "section"), table_text(t, i, "finding"), value,
                paper, error, table_text(t, i, "why"));
    }
    if (sum.directions)
        fprintf(to, "\nDirections: %u of %u as in the paper. ", sum.right,
                sum.directions);
    fprintf(to,
            "%sNumbers: %u of %u within 5 %% of the paper's number or range, "
            "%.1f %% off in the mean.\n",
            sum.directions ? "" : "\n", sum.within, sum.numbers,
            100 * sum.off / fmax(1, sum.numbers));
    return true;
}

static bool update_part(const table *t, const computed *all, bool searched,
                        const char *page, bool write)
{
    char *made = NULL;
    size_t len = 0;
    FILE *to = page ? open_memstream(&made, &len) : stdout;
    bool ok = to && print_part(t, all, searched, to);

    if (!page)
        return ok;
    if (to && fclose(to) != 0)
        ok = false;
    /* A better search changes ratios slightly: tolerate 2 points. */
    ok = ok && page_part(searched ? "validate-scaleacross searches"
                                  : "validate-scaleacross figures",
                         page, write, searched ? 2 : 0.005, made);
    free(made);
    return ok;
}

/* Parsed command line. */
typedef struct arguments {
    page_arguments on;
    const char *job;
    bool quick, pipeline_out;
} arguments;

static bool read_arguments(int argc, char **argv, arguments *a)
{
    *a = (arguments){.on = {.folder = "bench/data"}};
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;

        if (!strcmp(argv[i], "--quick")) {
            a->quick = true;
        } else if (!strcmp(argv[i], "--pipeline-out")) {
            a->pipeline_out = true;
        } else if (!strcmp(argv[i], "--job") && more) {
            a->job = argv[++i];
        } else if (!page_argument(argc, argv, &i, &a->on)) {
            fprintf(stderr, "usage: validate-scaleacross [--check PAGE | "
                            "--write PAGE | --job TOPOLOGY] [--pipeline-out] "
                            "[--quick] [FOLDER]\n");
            return false;
        }
    }
    return true;
}

static int print_job(const arguments *a)
{
    const topology *on = across_topology(a->job);
    crossing c = {.outermost = a->pipeline_out ? PIPELINE_OUT : DATA_OUT,
                  .oversubscription = 3,
                  .latency_us = 50};
    workload w;
    char *text;

    if (!on) {
        fprintf(stderr,
                "validate-scaleacross: no topology '%s'; there are A1 to A4 "
                "and B1 to B4\n",
                a->job);
        return 1;
    }
    w = across_100k(on);
    text = across_job_text(&w, on, &c);
    fputs(text, stdout);
    free(text);
    return 0;
}

int main(int argc, char **argv)
{
    static computed all;
    char folder[512];
    arguments a;
    table t;
    bool ok;

    if (!read_arguments(argc, argv, &a))
        return 2;
    if (a.job)
        return print_job(&a);
    snprintf(folder, sizeof folder, "%s/scaleacross", a.on.folder);
    if (!table_read(folder, "findings.csv", &t))
        return 1;
    across_figures(store_value, &all);
    ok = update_part(&t, &all, false, a.on.page, a.on.write);
    if (!a.quick) {
        across_searches(store_value, &all);
        ok = update_part(&t, &all, true, a.on.page, a.on.write) && ok;
    }
    table_fini(&t);
    return !ok;
}
