/* SPDX-License-Identifier: Apache-2.0 */
/* Destroy and repair on random pipelines: removes the ends of schedules and
 * inserts them again.
 * - Results are valid, take the stated time, and are not worse than the input.
 * - The same seed gives the same orders.
 * - A run stops at its target, and soon after its ticks are spent.
 * - Schedules with fewer microbatches help; those with as many or more are
 *   ignored.
 *
 *     test_destroy_repair [CASES [FIRST]] */
#include "cases.h"
#include "hold_orders.h"
#include "trains.h"

#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/solver/improve/destroy_repair.h"
#include "schedule/solver/improve/reduction.h"

#include <stdlib.h>

enum { MORE = 3 }; /* additional microbatches in larger pipelines */

static uint32_t n_cases = 400, first_case;
static uint32_t n_made, n_better, n_differ;

/* A repairer with its job shop and the current orders. */
typedef struct maker {
    const lh_pipeline *p;
    lhi_arena *mem;
    const lhi_shop *shop;
    uint64_t seed;
    lhi_repairer *repairer;
    lhi_machine_orders *orders;
    int64_t time;
    lhi_engine by; /* engine that found it */
    uint64_t used; /* ticks in the last call */
} maker;

/* Creates the repairer. Returns false if insertion does not apply to the job
 * shop. */
static bool begin(maker *k)
{
    lh_error err = {0};
    k->repairer = NULL;
    k->time = -1;
    k->by = LHI_ENGINE_NONE;
    CHECK_OK(lhi_machine_orders_make(k->shop, k->mem, &k->orders, &err), err);
    CHECK_OK(lhi_repairer_make(k->shop, k->seed, k->mem, &k->repairer, &err),
             err);
    return k->repairer && !test_state.bad;
}

static void go_on(maker *k, const lhi_repair_options *how, uint64_t effort)
{
    lh_solve_options o = {.effort = effort};
    lhi_budget budget = {0};
    lh_error err = {0};
    const int64_t before = k->time;
    lhi_budget_begin(&budget, &o);
    k->by = LHI_ENGINE_NONE;
    CHECK_OK(lhi_repairer_run(k->repairer, k->orders, &k->time, &k->by, how,
                              &budget, &err),
             err);
    k->used = budget.used;
    CHECK(before < 0 || k->time <= before);
    CHECK((k->by != LHI_ENGINE_NONE) == (k->time != before));
}

static bool make(maker *k, const lhi_repair_options *how)
{
    if (begin(k))
        go_on(k, how, 0);
    return k->repairer && !test_state.bad;
}

static bool same(const maker *a, const maker *b)
{
    return a->time == b->time && a->used == b->used && a->by == b->by &&
           same_orders(a->orders, b->orders);
}

/* --- consecutive calls -------------------------------------------------- */

/* Checks that the run kept to its ticks, with a tolerance for a few schedules
 * and the improvement of one. */
static bool in_time(const maker *k, uint64_t ticks)
{
    const uint64_t few = 4 * (uint64_t)k->shop->n_ops;
    CHECK_MSG(k->used <= ticks + few, "%" PRIu64 " ticks, not %" PRIu64,
              k->used, ticks);
    return k->used <= ticks + few;
}

/* Continues from a quickly built schedule. The result must not be worse, and
 * must be the same for the same seed. */
static void goes_on(const maker *a, const lhi_repair_options *how)
{
    const lhi_repair_options quick = {.ticks = 1};
    maker both[2] = {*a, *a};
    for (int i = 0; i < 2; i++) {
        maker *b = &both[i];
        CHECK(make(b, how) && same(a, b));
        CHECK(make(b, &quick));
        in_time(b, quick.ticks);
        lhi_machine_orders *given = b->orders;
        CHECK(begin(b));
        lhi_machine_orders_copy(b->orders, given);
        b->time = lhi_machine_orders_evaluate(b->orders);
        const int64_t before = b->time;
        go_on(b, how, 0);
        CHECK(b->used >= how->ticks);
        in_time(b, how->ticks);
        hold_orders(b->p, b->orders, b->time);
        n_better += b->time < before;
        CHECK(b->time < before || same_orders(b->orders, given));
    }
    CHECK(same(&both[0], &both[1]));
}

static void ends_early(const maker *a, const lhi_repair_options *how)
{
    maker b = *a;
    lhi_repair_options easy = *how;
    easy.target = a->time;
    CHECK(make(&b, &easy) && b.time == a->time && b.used <= a->used);
    go_on(&b, &easy, 0);
    CHECK_INT(b.used, 0);
    easy.target = a->time + a->time / 8;
    CHECK(make(&b, &easy) && b.time <= easy.target);
    easy.target = INT64_MAX;
    CHECK(make(&b, &easy) && b.time >= 0);
    in_time(&b, 0);
    CHECK(begin(&b));
    go_on(&b, how, how->ticks / 2);
    in_time(&b, how->ticks / 2);
}

/* --- fewer microbatches ------------------------------------------------- */

/* Returns a malloc'd array with the operation starts of a schedule that has
 * `n_microbatches`. It has no spare capacity at the end, so that overruns are
 * detected. */
static int64_t *starts_of(const maker *k, uint32_t n_microbatches,
                          uint32_t parts, uint64_t ticks)
{
    lh_pipeline part = *k->p;
    lh_error err = {0};
    lhi_shop *shop = NULL;
    int64_t *start = NULL;
    maker few = *k;
    const lhi_repair_options how = {.ticks = ticks};
    part.n_microbatches = n_microbatches;
    CHECK_OK(lhi_shop_make(&part, parts, false, LH_SOLVE_OBJECTIVE_MAKESPAN,
                           k->mem, &shop, &err),
             err);
    few.p = &part;
    few.shop = shop;
    CHECK(make(&few, &how));
    if (!test_state.bad)
        start = malloc(shop->n_ops * sizeof *start);
    CHECK(start != NULL);
    for (uint32_t o = 0; start && o < shop->n_ops; o++)
        start[o] = few.orders->end[o] - shop->time[o];
    return start;
}

/* Offers schedules with fewer and with more microbatches than this job shop
 * has; those with more must not change the result. */
static void takes_fewer(const maker *a, uint32_t parts, rng *r)
{
    const uint32_t n = a->shop->n_microbatches;
    lhi_reduction fewer = {.n = n + MORE};
    lhi_repair_options how = {.reduction = &fewer,
                              .ticks = a->shop->n_ops * 10};
    maker with = *a, without = *a, both = *a;
    fewer.problems = calloc(fewer.n, sizeof *fewer.problems);
    CHECK(fewer.problems != NULL);
    for (uint32_t m = 1; m < n && !test_state.bad; m++)
        if (rng_chance(r, 40))
            fewer.problems[m].start = starts_of(a, m, parts, a->shop->n_ops);
    if (!test_state.bad && make(&with, &how)) {
        in_time(&with, how.ticks);
        hold_orders(a->p, with.orders, with.time);
    }
    for (uint32_t m = n; m < fewer.n && !test_state.bad; m++)
        fewer.problems[m].start = starts_of(a, m, parts, a->shop->n_ops);
    CHECK(!test_state.bad && make(&both, &how) && same(&with, &both));
    how.reduction = NULL;
    CHECK(!test_state.bad && make(&without, &how));
    n_differ += !same(&with, &without);
    for (uint32_t m = 0; fewer.problems && m < fewer.n; m++)
        free(fewer.problems[m].start);
    free(fewer.problems);
}

/* --- cases -------------------------------------------------------------- */

static void try_case(uint64_t seed)
{
    static const random_shape shape = {
        .max_devices = 6, .max_microbatches = 14, .max_chunks = 1};
    rng r = {seed};
    lh_pipeline *p = random_pipeline(&r, &shape);
    lh_error err = {0};
    lhi_shop *shop = NULL;
    const uint32_t parts = 1 + rng_below(&r, 3);
    maker a = {.p = p, .mem = lhi_arena_make(0), .seed = rng_next(&r)};
    CHECK(a.mem != NULL);
    lh_status status = lhi_shop_make(
        p, parts, false, LH_SOLVE_OBJECTIVE_MAKESPAN, a.mem, &shop, &err);
    a.shop = shop;
    if (status == LH_OK && is_possible(shop) && begin(&a)) {
        const lhi_repair_options how = {.ticks = shop->n_ops * 10, .seed = 3};
        n_made++;
        go_on(&a, &how, 0);
        CHECK(a.used >= how.ticks);
        in_time(&a, how.ticks);
        hold_orders(p, a.orders, a.time);
        ends_early(&a, &how);
        if (seed % 2)
            goes_on(&a, &how);
        else
            takes_fewer(&a, parts, &r);
    }
    if (test_state.bad) {
        fprintf(stderr, "case %" PRIu64 "\n", seed);
        print_case(p, NULL);
    }
    lhi_arena_free(a.mem);
    lh_pipeline_free(p);
}

static void random_pipelines(void)
{
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++)
        try_case(first_case + i);
    CHECK_MSG(n_made * 10 >= n_cases && n_better * 20 >= n_cases &&
                  n_differ * 20 >= n_cases,
              "of %u pipelines %u were for insertion, %u got better and %u "
              "other for what fewer microbatches brought",
              n_cases, n_made, n_better, n_differ);
}

/* --- hand-made cases ---------------------------------------------------- */

static int64_t ms_of(const maker *k)
{
    return k->time * k->shop->unit_ns / 1000000;
}

static bool board(maker *k, uint32_t n_microbatches)
{
    lh_error err = {0};
    lhi_shop *shop = NULL;
    *k = (maker){.p = trains_make(n_microbatches), .mem = lhi_arena_make(0)};
    CHECK_OK(lhi_shop_make(k->p, 1, false, LH_SOLVE_OBJECTIVE_MAKESPAN, k->mem,
                           &shop, &err),
             err);
    k->shop = shop;
    return !test_state.bad;
}

static void leave(maker *k)
{
    lhi_arena_free(k->mem);
    lh_pipeline_free((lh_pipeline *)k->p);
}

static void trains_meet(void)
{
    maker a;
    if (board(&a, 64)) {
        const lhi_repair_options how = {
            .ticks = 600000,
            .target = TRAINS_GOOD_MS * INT64_C(1000000) / a.shop->unit_ns};
        for (a.seed = 0; a.seed < 6 && make(&a, &how); a.seed++) {
            hold_orders(a.p, a.orders, a.time);
            CHECK_MSG(a.time <= how.target && ms_of(&a) >= TRAINS_LEAST_MS,
                      "%" PRId64 " ms", ms_of(&a));
        }
    }
    leave(&a);
}

/* Returns the sum over 16 seeds, in ms. */
static int64_t sum_of(maker *k, const lhi_repair_options *how)
{
    int64_t sum = 0;
    for (k->seed = 0; k->seed < 16 && make(k, how); k->seed++)
        sum += ms_of(k);
    return sum;
}

/* A schedule for 20 microbatches from a long search provides a good prefix for
 * 24. */
static void fewer_help(void)
{
    maker a;
    lhi_reduced_problem rungs[24] = {0};
    const lhi_reduction fewer = {.n = 24, .problems = rungs};
    lhi_repair_options how = {.ticks = 2000};
    if (board(&a, 24)) {
        int64_t without = sum_of(&a, &how);
        rungs[20].start = starts_of(&a, 20, 1, 400000);
        how.reduction = &fewer;
        int64_t with = sum_of(&a, &how);
        CHECK_MSG(with < without, "%" PRId64 " ms, and %" PRId64 " without",
                  with, without);
        free(rungs[20].start);
    }
    leave(&a);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(random_pipelines);
    RUN(trains_meet);
    RUN(fewer_help);
    return test_summary();
}
