/* SPDX-License-Identifier: Apache-2.0 */
/* The generators on random pipelines. Schedules pass the verifier, are not
 * below the bounds, are reproducible, and never beat the best among all orders
 * where these are few enough to enumerate.
 *
 *     test_methods [CASES [FIRST]] */
#include "cases.h"
#include "naive_sim.h"
#include "random_pipeline.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/solver/bound/closed_forms.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/check.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>
#include <stdlib.h>

static uint32_t n_cases = OF_CASES(1500), first_case;

enum { MAX_METHODS = 32 };

static char *csv_of(const lh_schedule *s)
{
    char *text = NULL;
    lh_error err = {0};
    CHECK_OK(lh_schedule_format(s, &text, NULL, &err), err);
    return text;
}

/* --- schedules by each method --------------------------------------------- */

static void judge(const lh_pipeline *p, const lh_schedule *s)
{
    lh_verdict *v = NULL;
    lh_timeline *t = NULL;
    lh_bound bound = {0};
    lh_error err = {0};
    CHECK_OK(lh_check(p, s, &v, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
    if (v && t) {
        CHECK_MSG(lh_verdict_valid(v), "%s", lh_verdict_violation(v, 0));
        CHECK_INT(lh_verdict_makespan(v), lh_timeline_makespan(t));
        CHECK_MSG(bound.ns <= lh_timeline_makespan(t),
                  "bound %" PRId64 " (%s) above the makespan %" PRId64,
                  bound.ns, bound.text, lh_timeline_makespan(t));
        naive_result *n = naive_simulate(p, s, NULL);
        CHECK(!n->deadlock);
        CHECK_INT(lh_timeline_makespan(t), n->makespan_ns);
        naive_free(n);
    }
    lh_timeline_free(t);
    lh_verdict_free(v);
}

static void reads_back(const lh_schedule *s, const char *csv)
{
    lh_schedule *again = NULL;
    lh_error err = {0};
    CHECK_OK(lh_schedule_parse(csv, strlen(csv), "csv", &again, &err), err);
    if (again && lh_schedule_n_link_orders(s) == 0) {
        char *text = csv_of(again);
        CHECK_STR(text, csv);
        lh_text_free(text);
    }
    lh_schedule_free(again);
}

/* With undivided W passes the schedule may exceed a memory limit, but must have
 * no other violation. */
static void make_whole(const lh_pipeline *p, const lh_schedule *s)
{
    lh_schedule *whole = NULL;
    lh_verdict *v = NULL;
    lh_error err = {0};
    CHECK_OK(lh_schedule_merge_parts(p, s, &whole, &err), err);
    if (!whole)
        return;
    for (uint32_t d = 0; d < lh_schedule_n_devices(whole); d++) {
        uint32_t count;
        const lh_pass *order = lh_schedule_order(whole, d, &count);
        for (uint32_t i = 0; i < count; i++)
            CHECK(order[i].n_parts == 1);
    }
    CHECK_OK(lh_check(p, whole, &v, &err), err);
    for (uint32_t i = 0; v && i < lh_verdict_n_violations(v, NULL); i++)
        CHECK_HAS(lh_verdict_violation(v, i), " allowed");
    lh_verdict_free(v);
    lh_schedule_free(whole);
}

static bool unlimited(const lh_pipeline *p)
{
    for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++)
        if (lh_pipeline_memory_limit(p, d) != LH_NO_LIMIT)
            return false;
    return true;
}

/* Runs a method and checks its schedule. Returns the makespan, or -1 if the
 * method rejects the pipeline. */
static int64_t try_method(const lh_pipeline *p, const char *name,
                          const lh_method_options *o, uint32_t *n_made)
{
    lh_schedule *s = NULL, *again = NULL;
    const char *chosen = NULL;
    lh_error err = {0};
    lh_status status = lh_method_run(name, p, o, &s, &chosen, &err);
    CHECK_INT(lh_method_run(name, p, o, &again, NULL, &err), status);
    if (status != LH_OK) {
        CHECK_MSG(status == LH_EUNSUPPORTED ||
                      (status == LH_EINFEASIBLE && !unlimited(p)),
                  "%s refuses: %s", name, err.text);
        CHECK(err.text[0]);
        return -1;
    }
    char *csv = csv_of(s), *csv_again = csv_of(again);
    CHECK_STR(csv_again, csv);
    CHECK(chosen != NULL);
    if (chosen && strcmp(name, "auto") != 0)
        CHECK_STR(chosen, name);
    judge(p, s);
    reads_back(s, csv);
    make_whole(p, s);
    lh_timeline *t = NULL;
    int64_t ns = -1;
    if (lh_simulate(p, s, NULL, &t, &err) == LH_OK)
        ns = lh_timeline_makespan(t);
    ++*n_made;
    lh_text_free(csv);
    lh_text_free(csv_again);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_schedule_free(again);
    return ns;
}

/* A given bound saves time and does not change the result. */
static void try_bound(const lh_pipeline *p, const char *name,
                      const lh_method_options *o)
{
    lh_bound bound = {0};
    lh_error err = {0};
    CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
    char *csv[2] = {NULL, NULL};
    const char *by[2] = {"none", "none"};
    for (int i = 0; i < 2; i++) {
        lh_method_options all = *o;
        lh_schedule *s = NULL;
        all.bound_ns = i == 0 ? 0 : bound.ns;
        if (lh_method_run(name, p, &all, &s, &by[i], &err) == LH_OK)
            csv[i] = csv_of(s);
        lh_schedule_free(s);
    }
    CHECK_STR(by[1], by[0]);
    CHECK_STR(csv[1] ? csv[1] : "none", csv[0] ? csv[0] : "none");
    lh_text_free(csv[0]);
    lh_text_free(csv[1]);
}

/* Makes a pipeline with two directions, or with sliced sequences, which few
 * methods support. */
static lh_pipeline *two_way_or_sliced_pipeline(rng *r)
{
    const bool sliced = rng_chance(r, 40);
    const uint32_t slices = 2 + rng_below(r, 2);
    const uint32_t devices = 2 * (1 + rng_below(r, 2));
    char more[40] = "";
    if (sliced)
        snprintf(more, sizeof more, "slices: {count: %" PRIu32 "}\n", slices);
    else if (rng_chance(r, 50))
        snprintf(more, sizeof more, "overlap: {F+B: 0.%" PRIu32 "}\n",
                 5 + rng_below(r, 5));
    return uniform_make(
        (uniform){.placement = sliced ? "ud" : "bd",
                  .devices = devices,
                  .microbatches = sliced ? slices * (1 + rng_below(r, 4))
                                         : devices + rng_below(r, 4),
                  .f = 1 + rng_below(r, 9),
                  .d = 1 + rng_below(r, 9),
                  .w = rng_below(r, 9),
                  .datacenters = 2,
                  .latency = rng_below(r, 20),
                  .transfer = rng_below(r, 9),
                  .more = more});
}

static lh_method_options some_options(rng *r)
{
    lh_method_options o = {.size = sizeof o};
    if (rng_chance(r, 50))
        o.sub_blocks = 1 + rng_below(r, 5);
    o.slack_initial = rng_chance(r, 30);
    return o;
}

/* Checks that `auto` is as good as the best method that fits. */
static void compare_auto(const int64_t *ns, uint32_t n)
{
    int64_t best = -1, own = -1;
    for (uint32_t m = 0; m < n; m++) {
        if (strcmp(lh_method_name(m), "auto") == 0)
            own = ns[m];
        else if (ns[m] >= 0 && (best < 0 || ns[m] < best))
            best = ns[m];
    }
    if (best < 0)
        CHECK_INT(own, -1);
    else
        CHECK_MSG(own >= 0 && own <= best,
                  "auto takes %" PRId64 ", the best is %" PRId64, own, best);
}

static void methods_are_sound(void)
{
    uint32_t n = lh_n_methods(), n_made[MAX_METHODS] = {0};
    CHECK(n <= MAX_METHODS);
    for (uint32_t i = first_case; i < first_case + n_cases; i++) {
        rng r = {i};
        random_shape shape = {.regular = rng_chance(&r, 80)};
        if (i % 50 == 0) {
            shape.max_devices = 9;
            shape.max_microbatches = 24;
        }
        lh_pipeline *p = i % 10 == 3 ? two_way_or_sliced_pipeline(&r)
                                     : random_pipeline(&r, &shape);
        lh_method_options o = some_options(&r);
        int64_t ns[MAX_METHODS];
        bool before = test_state.bad;
        test_state.bad = false;
        for (uint32_t m = 0; m < n; m++) {
            bool good = !test_state.bad;
            ns[m] = try_method(p, lh_method_name(m), &o, &n_made[m]);
            if (good && test_state.bad)
                fprintf(stderr, "by %s:\n", lh_method_name(m));
        }
        compare_auto(ns, n);
        try_bound(p, "look-ahead", &o);
        try_bound(p, "auto", &o);
        if (test_state.bad) {
            fprintf(stderr,
                    "case %" PRIu32 ": %" PRIu32 " sub-blocks, initial %d\n", i,
                    o.sub_blocks, o.slack_initial);
            if (!before)
                print_case(p, NULL);
        }
        test_state.bad |= before;
        lh_pipeline_free(p);
    }
    /* Every method must have produced schedules. */
    for (uint32_t m = 0; m < n; m++)
        CHECK_MSG(n_cases < 500 || n_made[m] > n_cases / 100,
                  "%s made only %" PRIu32 " schedules", lh_method_name(m),
                  n_made[m]);
}

/* --- enumeration ---------------------------------------------------------- */

enum { MAX_ORDERS = 1700, MAX_LENGTH = 24, MAX_PRODUCT = 20000 };

/* All orders for one device's passes that keep F, D, W (or F, B) in sequence
 * for each chunk and microbatch. */
typedef struct orders {
    uint32_t n, length;
    lh_pass (*all)[MAX_LENGTH];
    bool too_many;
} orders;

/* The pass sequence for one chunk and microbatch; `done`: passes in the order
 * so far. */
typedef struct chain {
    uint32_t chunk, microbatch, done;
} chain;

static void extend(orders *o, chain *chains, uint32_t n_chains, bool joint,
                   lh_pass *prefix, uint32_t length)
{
    bool ended = true;
    for (uint32_t i = 0; i < n_chains && !o->too_many; i++) {
        chain *c = &chains[i];
        uint32_t steps = joint ? 2 : 3;
        if (c->done == steps)
            continue;
        ended = false;
        if (length == MAX_LENGTH) {
            o->too_many = true;
            return;
        }
        uint8_t kind = c->done == 0   ? LH_F
                       : joint        ? LH_B
                       : c->done == 1 ? LH_D
                                      : LH_W;
        prefix[length] = (lh_pass){.chunk = c->chunk,
                                   .microbatch = c->microbatch,
                                   .n_parts = 1,
                                   .kind = kind};
        c->done++;
        extend(o, chains, n_chains, joint, prefix, length + 1);
        c->done--;
    }
    if (!ended || o->too_many)
        return;
    if (o->n == MAX_ORDERS) {
        o->too_many = true;
        return;
    }
    memcpy(o->all[o->n++], prefix, length * sizeof *prefix);
    o->length = length;
}

static orders orders_of(const lh_pipeline *p, uint32_t device)
{
    orders o = {.all = calloc(MAX_ORDERS, sizeof *o.all)};
    lh_pass prefix[MAX_LENGTH];
    chain chains[MAX_LENGTH];
    uint32_t n = 0;
    if (!o.all)
        exit(1);
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(p); c++)
        for (uint32_t m = 0; m < lh_pipeline_n_microbatches(p); m++)
            if (lh_pipeline_chunk(p, c)->device == device && n < MAX_LENGTH)
                chains[n++] = (chain){c, m, 0};
    extend(&o, chains, n, lhi_pipeline_is_joint(p), prefix, 0);
    return o;
}

/* Returns the makespan for one combination of orders, or -1 if it deadlocks or
 * does not fit. */
static int64_t evaluate(const lh_pipeline *p, lh_evaluator *e, const orders *o,
                        uint64_t choice)
{
    const lh_pass *rows[8];
    uint32_t counts[8];
    uint32_t n = lh_pipeline_n_devices(p);
    for (uint32_t d = 0; d < n; d++) {
        rows[d] = o[d].all[choice % o[d].n];
        counts[d] = o[d].length;
        choice /= o[d].n;
    }
    lh_schedule *s = NULL;
    lh_error err = {0};
    int64_t ns = -1;
    CHECK_OK(lh_schedule_make(n, rows, counts, 0, NULL, &s, &err), err);
    lh_status status = lh_evaluator_run(e, s, &ns, &err);
    if (status == LH_OK) {
        lh_verdict *v = NULL;
        if (lh_check(p, s, &v, &err) == LH_OK && !lh_verdict_valid(v))
            ns = -1;
        lh_verdict_free(v);
    } else {
        CHECK_INT(status, LH_EDEADLOCK);
        ns = -1;
    }
    lh_schedule_free(s);
    return ns;
}

/* Returns the least makespan; -1: no order runs and fits; -2: too many orders.
 */
static int64_t best_of_all(const lh_pipeline *p)
{
    static const lh_sim_options fifo = {.size = sizeof fifo, .fifo = true};
    orders o[8];
    lh_evaluator *e = NULL;
    lh_error err = {0};
    uint64_t product = 1;
    uint32_t n = lh_pipeline_n_devices(p);
    bool too_many = false;
    for (uint32_t d = 0; d < n; d++) {
        o[d] = orders_of(p, d);
        too_many |= o[d].too_many;
        product *= o[d].too_many ? 1 : o[d].n;
        too_many |= product > MAX_PRODUCT;
        if (too_many)
            product = 0;
    }
    int64_t best = too_many ? -2 : -1;
    CHECK_OK(lh_evaluator_make(p, &fifo, &e, &err), err);
    for (uint64_t i = 0; e && i < product; i++) {
        int64_t ns = evaluate(p, e, o, i);
        if (ns >= 0 && (best < 0 || ns < best))
            best = ns;
    }
    lh_evaluator_free(e);
    for (uint32_t d = 0; d < n; d++)
        free(o[d].all);
    return best;
}

static void compare_methods(const lh_pipeline *p, int64_t best)
{
    static const lh_sim_options fifo = {.size = sizeof fifo, .fifo = true};
    for (uint32_t m = 0; m < lh_n_methods(); m++) {
        lh_schedule *s = NULL;
        lh_timeline *t = NULL;
        lh_error err = {0};
        const char *name = lh_method_name(m);
        if (lh_method_run(name, p, NULL, &s, NULL, &err) != LH_OK)
            continue;
        CHECK_OK(lh_simulate(p, s, &fifo, &t, &err), err);
        if (t)
            CHECK_MSG(best >= 0 && lh_timeline_makespan(t) >= best,
                      "%s takes %" PRId64 ", the best of all %" PRId64, name,
                      lh_timeline_makespan(t), best);
        lh_timeline_free(t);
        lh_schedule_free(s);
    }
}

static void none_beats_the_best(void)
{
    uint32_t n_tried = 0;
    for (uint32_t i = first_case; i < first_case + n_cases; i++) {
        rng r = {i};
        random_shape shape = {.regular = true,
                              .max_devices = 3,
                              .max_microbatches = 3,
                              .max_chunks = 2};
        lh_pipeline *p = random_pipeline(&r, &shape);
        int64_t best = best_of_all(p);
        lh_bound bound = {0};
        lh_error err = {0};
        bool before = test_state.bad;
        if (best != -2) {
            n_tried++;
            compare_methods(p, best);
            CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
            if (best >= 0)
                CHECK_MSG(bound.ns <= best,
                          "bound %" PRId64 " (%s) above the best %" PRId64,
                          bound.ns, bound.text, best);
        }
        if (test_state.bad && !before) {
            fprintf(stderr, "case %" PRIu32 "\n", i);
            print_case(p, NULL);
        }
        lh_pipeline_free(p);
    }
    CHECK_MSG(n_tried * 4 > n_cases, "only %" PRIu32 " are small enough",
              n_tried);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(methods_are_sound);
    RUN(none_beats_the_best);
    return test_summary();
}
