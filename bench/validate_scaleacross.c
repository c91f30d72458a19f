/* SPDX-License-Identifier: Apache-2.0 */
/* Computes ScaleAcross Explorer's figures (2026) from jobs and compares them
 * with the paper.
 *
 *     validate-scaleacross [--check PAGE | --write PAGE | --job TOPOLOGY]
 *                          [--pipeline-out] [--only PART] [FOLDER]
 *
 * FOLDER contains scaleacross/findings.csv (default bench/data). Every figure
 * is a ratio between iteration times of job files that the planner or the
 * simulator reads. --job prints the job of a topology in table 3, A1 to B4,
 * with data parallelism between the buildings or, with --pipeline-out,
 * pipelines. --only computes one part of the page: figures, short (100,000 GPUs
 * with short sequences), searches (for layouts, which take minutes) or sampling
 * (Monte Carlo beside hill climbing); with --write the other parts stay as they
 * are. --write writes
 * the results to PAGE (docs/papers/scaleacross-figures.md), between lines that
 * begin with "<!-- validate-scaleacross"; --check fails if the numbers in PAGE
 * differ. */
#define _POSIX_C_SOURCE 200809L
#include "page_section.h"
#include "paper_score.h"
#include "scaleacross.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 256, FIRST_SEARCHED = 23 };

/* Parts of the page; all but the last have a table of claims. */
typedef enum part { FIGURES, SHORT, SEARCHES, SAMPLING, N_PARTS } part;

static const char *const part_names[] = {"figures", "short", "searches",
                                         "sampling"};

/* Returns the part of a row. */
static part part_of(const char *key)
{
    if (strstr(key, " short "))
        return SHORT;
    return atoi(key) >= FIRST_SEARCHED || strstr(key, " best microbatches")
               ? SEARCHES
               : FIGURES;
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

/* Reads a row's published value: a number, a range, or the larger of two. */
static score_row finding_of(const table *t, uint32_t row, double value)
{
    return (score_row){.value = value,
                       .has_low = *table_text(t, row, "low") != '\0',
                       .has_high = *table_text(t, row, "high") != '\0',
                       .low = table_number(t, row, "low"),
                       .high = table_number(t, row, "high"),
                       .is_ratio = true,
                       .is_word = *table_text(t, row, "words") != '\0'};
}

/* Returns how a row's value was computed. */
static const char *run_of(const char *key)
{
    if (part_of(key) == SEARCHES)
        return "job, planned";
    if (part_of(key) == SHORT && atoi(key) >= 18)
        return "packets, simulated";
    return atoi(key) == 17 ? "formula" : "job, simulated";
}

/* Prints the claims of a part for which nothing is computed. */
static void print_missing(score *sum, part which, FILE *to)
{
    static const struct {
        part of;
        score_missing row;
    } missing[] = {
        {FIGURES,
         {"§2.1", "traffic between buildings, of all traffic", "11.3 %",
          "measured in production, whose model and layout are withheld"}},
        {FIGURES,
         {"§2.1",
          "inside a building and between buildings: packets marked; 99th "
          "percentile latency",
          "0.05 and below 0.01 %; 40 and 85 us", "as above"}},
        {FIGURES,
         {"figure 17, §5.1",
          "AllReduce of 2 GB on 16 GPUs: time is not linear in the distance",
          "\"non-monotonic\"",
          "from 100 km on it needs buffers of the library tuned by hand; no "
          "model of these buffers"}},
        {SEARCHES,
         {"§6.2", "Monte Carlo sampling against random sampling and MILP",
          "\"outperforming\"",
          "no MILP here, and no numbers in the paper; see the table of "
          "sampling"}}};

    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (missing[i].of == which)
            score_print_missing(sum, &missing[i].row, to);
}

/* Prints a part's rows. */
static bool print_part(const table *t, const computed *all, part which,
                       FILE *to)
{
    score sum = {0};

    score_print_head(to);
    for (uint32_t i = 0; i < t->n_rows; i++) {
        const char *key = table_text(t, i, "key");
        score_line l = {.claimed = table_text(t, i, "finding"),
                        .run = run_of(key),
                        .digits = 3,
                        .unit = "",
                        .why = table_text(t, i, "why")};
        char where[32];
        double value;

        if (part_of(key) != which)
            continue;
        if (!score_parse(table_text(t, i, "class"), &l.as)) {
            fprintf(stderr,
                    "validate-scaleacross: findings.csv, row '%s': no class "
                    "'%s'\n",
                    key, table_text(t, i, "class"));
            return false;
        }
        if (!find_value(all, key, &value))
            return false;
        snprintf(where, sizeof where, "figure %d, §%s", atoi(key),
                 table_text(t, i, "section"));
        l.where = where;
        l.row = finding_of(t, i, value);
        score_print_line(&sum, &l, to);
    }
    print_missing(&sum, which, to);
    score_print(&sum, "rows", to);
    return true;
}

/* A better search changes ratios of times slightly, and their distances from
 * the paper's numbers by up to two points. */
static const page_tolerance exact = {0.005, 0.005}, searched = {0.005, 2};
/* Half a point of a row that claims at most two. */
static const page_tolerance sampled = {0.005, 0.5};

static bool finish_part(const char *name, const char *page, bool write,
                        page_tolerance give, char *made, bool ok)
{
    ok = ok && page_part(name, page, write, give, made);
    free(made);
    return ok;
}

/* Updates a part that is no table of claims. */
static bool update_table(const char *name, void (*print)(FILE *to),
                         page_tolerance give, const page_arguments *on)
{
    char *made = NULL;
    size_t len = 0;
    FILE *to = on->page ? open_memstream(&made, &len) : stdout;

    if (!to)
        return false;
    print(to);
    if (!on->page)
        return true;
    bool ok = fclose(to) == 0; /* sets `made` */

    return finish_part(name, on->page, on->write, give, made, ok);
}

static bool update_part(const table *t, const computed *all, part which,
                        const char *page, bool write)
{
    char *made = NULL;
    size_t len = 0;
    FILE *to = page ? open_memstream(&made, &len) : stdout;
    bool ok = to && print_part(t, all, which, to);
    char name[40];

    if (!page)
        return ok;
    if (to && fclose(to) != 0)
        ok = false;
    snprintf(name, sizeof name, "validate-scaleacross %s", part_names[which]);
    return finish_part(name, page, write, which == SEARCHES ? searched : exact,
                       made, ok);
}

/* Parsed command line. */
typedef struct arguments {
    page_arguments on;
    const char *job;
    bool pipeline_out;
    bool parts[N_PARTS]; /* computed */
} arguments;

static bool has_part(const char *name)
{
    for (int k = 0; k < N_PARTS; k++)
        if (!strcmp(name, part_names[k]))
            return true;
    return false;
}

static bool read_arguments(int argc, char **argv, arguments *a)
{
    *a = (arguments){.on = {.folder = "bench/data"},
                     .parts = {true, true, true, true}};
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;

        if (!strcmp(argv[i], "--only") && more && has_part(argv[i + 1])) {
            i++;
            for (int k = 0; k < N_PARTS; k++)
                a->parts[k] = !strcmp(argv[i], part_names[k]);
        } else if (!strcmp(argv[i], "--pipeline-out")) {
            a->pipeline_out = true;
        } else if (!strcmp(argv[i], "--job") && more) {
            a->job = argv[++i];
        } else if (!page_argument(argc, argv, &i, &a->on)) {
            fprintf(stderr, "usage: validate-scaleacross [--check PAGE | "
                            "--write PAGE | --job TOPOLOGY] [--pipeline-out] "
                            "[--only figures|short|searches|sampling] "
                            "[FOLDER]\n");
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
    ok = true;
    if (a.parts[FIGURES]) {
        across_figures(store_value, &all);
        ok = update_table("validate-scaleacross readings",
                          across_print_readings, exact, &a.on);
        ok = update_part(&t, &all, FIGURES, a.on.page, a.on.write) && ok;
    }
    if (a.parts[SHORT]) {
        across_short_figures(store_value, &all);
        ok = update_part(&t, &all, SHORT, a.on.page, a.on.write) && ok;
        ok = update_table("validate-scaleacross ranges", across_print_ranges,
                          exact, &a.on) &&
             ok;
        ok = update_table("validate-scaleacross messages",
                          across_print_messages, exact, &a.on) &&
             ok;
    }
    if (a.parts[SEARCHES]) {
        ok = update_table("validate-scaleacross batches", across_print_batches,
                          searched, &a.on) &&
             ok;
        across_searches(store_value, &all);
        ok = update_part(&t, &all, SEARCHES, a.on.page, a.on.write) && ok;
    }
    if (a.parts[SAMPLING])
        ok = update_table("validate-scaleacross sampling",
                          across_print_sampling, sampled, &a.on) &&
             ok;
    table_fini(&t);
    return !ok;
}
