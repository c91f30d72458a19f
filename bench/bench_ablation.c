/* SPDX-License-Identifier: Apache-2.0 */
/* Measures each engine's contribution in the search for optimal schedules:
 * solves the same pipelines with all engines and with all but one.
 *
 *     bench-ablation [SMALL [LARGE [ENGINES [ROWS [SEED]]]]]
 *
 * Only effort limits the search, so results do not depend on the machine or its
 * load.
 *
 * - SMALL: million effort units (default 6) for irregular pipelines, one per
 *   family in pipelines.h; for CrossPipe's settings with two datacenters; and
 *   for irregular ones with first-in, first-out messages.
 * - LARGE: the same for some larger pipelines (default 16), a third of it for
 *   those with W in parts.
 * - ENGINES: only these, separated by commas; "a+b" disables both at once; ""
 *   means each engine in turn.
 * - ROWS: only pipelines whose name contains this text.
 * - SEED: seed for all runs.
 *
 * An engine that never started on a pipeline is not disabled there. The
 * variants "(seed 1)" and "(seed 2)" are controls: all engines run with
 * different random numbers, so they show the variation due to chance.
 *
 * Prints one JSON object. Per pipeline it lists each engine's [effort, calls,
 * improved, gained in seconds] when all were on. Per engine and pipeline group
 * it lists:
 *
 * - `rows`: pipelines on which the engine was disabled
 * - `with`, `without`: pipelines proven optimal with and without it
 * - `mean`, `worst`, `best`: change in the gap in percent, relative to the
 * bound (above 0: worse without the engine)
 * - `changed`: rows whose gap changed
 * - `effort`: factor by which the effort changed on rows proven both times
 *   (above 1: longer without the engine)
 * - `called`, `improved`, `share`, with all engines on: pipelines that called
 *   the engine, improvements to the best schedule or the bound, and its share
 *   of all effort in percent. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench.h"
#include "pipelines.h"

#include <longhaul/experimental/solve.h>

#include <inttypes.h>
#include <math.h>

enum { GROUPS = 4, CHANCES = 2 };
static const char *const groups[GROUPS] = {"irregular", "crosspipe", "larger",
                                           "fifo"};

/* Pipeline to solve, its group and effort limit. */
typedef struct row {
    uint32_t group;
    char name[96];
    lh_pipeline *pipeline;
    lh_solve_options options;
} row;

/* One run's result. The gap is in percent of the bound; -1: no schedule. */
typedef struct outcome {
    bool proven;
    double gap, effort;
} outcome;

/* Sums over one group of pipelines. */
typedef struct sums {
    uint32_t rows, with, without, changed, both;
    double gap, worst, best, log_effort;
    /* from runs with all engines */
    uint32_t called, improved;
    double effort, all_effort;
} sums;

/* Variant of a run: disabled engines, or a control with another seed. */
typedef struct variant {
    char name[96], without[96];
    uint64_t seed;
    sums of[GROUPS];
} variant;

enum { MOST_VARIANTS = LH_MAX_SOLVE_ENGINES + CHANCES };

/* The whole benchmark's rows, variants and sums. */
typedef struct table {
    const char *which; /* selected rows */
    uint64_t seed;
    uint32_t n_variants;
    variant variants[MOST_VARIANTS];
    bool comma;
} table;

static lh_solution solve(const row *k, const char *without, uint64_t seed)
{
    lh_solve_options o = k->options;
    lh_solution s = {0};
    lh_error err = {0};
    o.disabled_engines = *without ? without : NULL;
    o.seed = seed;
    bench_check_status(lh_solve(k->pipeline, &o, &s, &err), &err);
    return s;
}

static outcome outcome_of(const lh_solution *s)
{
    return (outcome){
        .proven = s->status == LH_SOLVE_OPTIMAL,
        .gap = s->schedule
                   ? 100 * ((double)s->makespan_ns / (double)s->bound_ns - 1)
                   : -1,
        .effort = (double)s->effort};
}

static void compare(table *t, const row *k, variant *v, const outcome *with,
                    const outcome *without)
{
    sums *s = &v->of[k->group];
    const double by = without->gap < 0 ? 100 : without->gap - with->gap;
    s->rows++;
    s->with += with->proven;
    s->without += without->proven;
    s->changed += fabs(by) > 1e-9;
    s->gap += by;
    s->worst = by > s->worst ? by : s->worst;
    s->best = by < s->best ? by : s->best;
    if (with->proven && without->proven) {
        s->both++;
        s->log_effort += log((without->effort + 1) / (with->effort + 1));
    }
    printf("%s\n  {\"row\": \"%s\", \"without\": \"%s\", \"gap\": [%.4f, %.4f]"
           ", \"effort\": [%.0f, %.0f]}",
           t->comma ? "," : "", k->name, v->name, with->gap, without->gap,
           with->effort, without->effort);
    t->comma = true;
    fflush(stdout);
}

/* Checks whether any engine in `list` (comma separated) started. */
static bool has_started(const lh_solution *all, const char *list)
{
    bool begun = false;
    for (uint32_t i = 0; i < all->n_engines; i++) {
        const char *at = strstr(list, all->engines[i].name);
        const size_t n = strlen(all->engines[i].name);
        begun = begun || (at && (at == list || at[-1] == ',') &&
                          (!at[n] || at[n] == ',') && all->engines[i].calls);
    }
    return begun;
}

/* Returns the sums for an engine disabled alone; NULL if it never is. */
static sums *sums_of(table *t, const char *engine, uint32_t group)
{
    for (uint32_t i = 0; i < t->n_variants; i++)
        if (strcmp(t->variants[i].without, engine) == 0)
            return &t->variants[i].of[group];
    return NULL;
}

/* Accumulates the engines' statistics from runs with all engines on. */
static void count_engines(table *t, const row *k, const lh_solution *all)
{
    for (uint32_t i = 0; i < all->n_engines; i++) {
        const lh_solve_engine *e = &all->engines[i];
        sums *s = sums_of(t, e->name, k->group);
        if (!s)
            continue;
        s->called += e->calls > 0;
        s->improved += e->improved;
        s->effort += (double)e->effort;
        s->all_effort += (double)all->effort;
    }
    printf("%s\n  {\"row\": \"%s\", \"group\": \"%s\", \"status\": \"%s\", "
           "\"effort\": %" PRIu64 ", \"engines\": {",
           t->comma ? "," : "", k->name, groups[k->group],
           lh_solve_status_name(all->status), all->effort);
    t->comma = true;
    const char *comma = "";
    for (uint32_t i = 0; i < all->n_engines; i++) {
        const lh_solve_engine *e = &all->engines[i];
        if (e->calls == 0)
            continue;
        printf("%s\"%s\": [%" PRIu64 ", %" PRIu32 ", %" PRIu32 ", %.4f]", comma,
               e->name, e->effort, e->calls, e->improved,
               (double)e->gained_ns / 1e9);
        comma = ", ";
    }
    printf("}}");
}

static void measure(table *t, row *k)
{
    if (strstr(k->name, t->which)) {
        lh_solution all = solve(k, "", t->seed);
        const outcome with = outcome_of(&all);
        count_engines(t, k, &all);
        for (uint32_t i = 0; i < t->n_variants; i++) {
            variant *v = &t->variants[i];
            if (v->without[0] && !has_started(&all, v->without))
                continue;
            lh_solution s = solve(k, v->without, t->seed + v->seed);
            const outcome without = outcome_of(&s);
            compare(t, k, v, &with, &without);
            lh_solution_fini(&s);
        }
        lh_solution_fini(&all);
    }
    lh_pipeline_free(k->pipeline);
}

/* --- pipelines ---------------------------------------------------------- */

static row make_row(uint32_t group, lh_pipeline *pipeline, double millions)
{
    return (row){.group = group,
                 .pipeline = pipeline,
                 .options = {.size = sizeof(lh_solve_options),
                             .effort = (uint64_t)(millions * 1e6)}};
}

static void measure_irregular(table *t, double millions)
{
    for (size_t i = 0; i < bench_n_families; i++) {
        row k = make_row(0, bench_irregular(&bench_families[i], 1000 * i),
                         millions);
        snprintf(k.name, sizeof k.name, "%s", bench_families[i].name);
        measure(t, &k);
    }
}

/* Measures the settings in tables 5 and 6 of Chen et al., arXiv:2507.00217, as
 * in examples/papers/crosspipe_optimal.c. */
static void measure_crosspipe(table *t, double millions)
{
    static const double delays[5][2] = {
        {0, 0}, {.25, .25}, {.25, 2}, {2, .25}, {2, 2}};
    for (unsigned i = 0; i < 30; i++) {
        const unsigned which = i % 3, chunks = 1 + i / 15;
        const bench_point point = {.placement = chunks == 1 ? "ud" : "wave",
                                   .devices = 8,
                                   .microbatches = which == 0 ? 16 : 32,
                                   .datacenters = 2,
                                   .memory = (which == 2 ? 16 : 8) * chunks,
                                   .latency = delays[i / 3 % 5][0],
                                   .transfer = delays[i / 3 % 5][1],
                                   .recomputes = which == 1};
        row k = make_row(1, bench_uniform(&point), millions);
        snprintf(k.name, sizeof k.name, "%s, %g, %g, case %u", point.placement,
                 point.latency, point.transfer, which + 1);
        measure(t, &k);
    }
}

static void measure_larger(table *t, double millions)
{
    static const bench_point points[] = {
        {"ud", 16, 64, 2, 8, 0, 0, false},
        {"ud", 32, 128, 2, 16, .25, .25, false},
        {"wave", 16, 32, 2, 32, .25, .25, false},
        {"wave", 8, 64, 2, 16, .25, .25, true},
    };
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        const bench_point *q = &points[i];
        row k = make_row(2, bench_uniform(q), millions);
        snprintf(k.name, sizeof k.name, "%s %u x %u, K = %u", q->placement,
                 q->devices, q->microbatches, q->memory);
        measure(t, &k);
    }
    /* W in parts, and messages in production order. */
    for (uint32_t i = 0; i < 8; i++) {
        const bench_family *f = &bench_families[i < 4 ? 4 : 13];
        row k = make_row(2, bench_irregular(f, 7000 + i), millions / 3);
        k.options.sub_blocks = i % 2 ? 2 : 1;
        k.options.fifo = i / 2 % 2;
        snprintf(k.name, sizeof k.name, "%s, %" PRIu32 "%s%s", f->name, i,
                 i % 2 ? ", W halved" : "",
                 k.options.fifo ? ", first in, first out" : "");
        measure(t, &k);
    }
}

/* With first-in, first-out messages each link follows its devices, and
 * schedules cannot be built backward from the end. */
static void measure_fifo(table *t, double millions)
{
    for (size_t i = 0; i < bench_n_families; i++) {
        const bench_family *f = &bench_families[i];
        if (f->chunks == 1 || f->devices < 6)
            continue;
        row k = make_row(3, bench_irregular(f, 8000 + i), millions);
        k.options.fifo = true;
        snprintf(k.name, sizeof k.name, "FIFO %s", f->name);
        measure(t, &k);
    }
}

/* --- program ------------------------------------------------------------ */

static void print_sums(const table *t)
{
    const char *comma = "";
    printf("\n], \"engines\": [");
    for (uint32_t i = 0; i < t->n_variants; i++)
        for (uint32_t g = 0; g < GROUPS; g++) {
            const sums *s = &t->variants[i].of[g];
            if (s->rows + s->called == 0)
                continue;
            printf("%s\n  {\"engine\": \"%s\", \"group\": \"%s\", \"rows\": "
                   "%" PRIu32 ", \"with\": %" PRIu32 ", \"without\": %" PRIu32
                   ", \"mean\": %.4f, \"worst\": %.4f, \"best\": %.4f, "
                   "\"changed\": %" PRIu32
                   ", \"effort\": %.3f, \"called\": %" PRIu32
                   ", \"improved\": %" PRIu32 ", \"share\": %.2f}",
                   comma, t->variants[i].name, groups[g], s->rows, s->with,
                   s->without, s->rows ? s->gap / s->rows : 0, s->worst,
                   s->best, s->changed,
                   s->both ? exp(s->log_effort / s->both) : 1, s->called,
                   s->improved,
                   s->all_effort > 0 ? 100 * s->effort / s->all_effort : 0);
            comma = ",";
        }
    printf("\n]}\n");
}

static void add_variant(table *t, const char *name, size_t len)
{
    static const char chance[] = "(seed ";
    variant *v = &t->variants[t->n_variants];
    if (t->n_variants == MOST_VARIANTS || len >= sizeof v->name) {
        fprintf(stderr, "bench-ablation: too much to leave out\n");
        exit(2);
    }
    t->n_variants++;
    memcpy(v->name, name, len);
    if (strncmp(v->name, chance, sizeof chance - 1) == 0) {
        v->seed = strtoull(v->name + sizeof chance - 1, NULL, 10);
        return;
    }
    for (size_t i = 0; i < len; i++)
        v->without[i] = name[i] == '+' ? ',' : name[i];
}

static void add_variants(table *t, const char *list)
{
    static const char *const chances[CHANCES] = {"(seed 1)", "(seed 2)"};
    for (const char *at = list; *at; at += *at == ',') {
        const size_t n = strcspn(at, ",");
        add_variant(t, at, n);
        at += n;
    }
    if (*list)
        return;
    for (uint32_t i = 0; i < lh_n_solve_engines(); i++) {
        const char *name = lh_solve_engine_name(i);
        add_variant(t, name, strlen(name));
    }
    for (uint32_t i = 0; i < CHANCES; i++)
        add_variant(t, chances[i], strlen(chances[i]));
}

int main(int argc, char **argv)
{
    static table t;
    const double small = argc > 1 ? strtod(argv[1], NULL) : 6;
    const double large = argc > 2 ? strtod(argv[2], NULL) : 16;
    t.which = argc > 4 ? argv[4] : "";
    t.seed = argc > 5 ? strtoull(argv[5], NULL, 10) : 0;
    if (argc > 6 || !(small > 0) || !(large > 0)) {
        fprintf(stderr,
                "usage: bench-ablation [SMALL [LARGE [ENGINES [ROWS [SEED]]]]]"
                "\n");
        return 2;
    }
    add_variants(&t, argc > 3 ? argv[3] : "");
    bench_begin("ablation");
    printf(", \"small\": %g, \"large\": %g, \"rows\": [", small, large);
    measure_larger(&t, large);
    measure_crosspipe(&t, small);
    measure_irregular(&t, small);
    measure_fifo(&t, small);
    print_sums(&t);
    return 0;
}
