/* SPDX-License-Identifier: Apache-2.0 */
/* Inserting microbatch after microbatch, from either end, on random pipelines:
 * what comes out can run, keeps the memory limits, takes as long as is said and
 * does not undercut a proven bound; the same seed makes the same orders.
 *
 *     test_insert [CASES [FIRST]]
 */
#include "random_pipeline.h"
#include "test.h"

#include "solve/insert.h"

#include <longhaul/bounds.h>
#include <longhaul/check.h>
#include <stdlib.h>

static uint32_t n_cases = 3000, first_case, n_made;

typedef struct maker {
    lhi_arena *mem;
    const lhi_shop *shop;
    lhi_words *words;
    int64_t time;
} maker;

/* false: this shop is not for insertion. */
static bool make(maker *k, bool mirrored, uint64_t ticks, int64_t target)
{
    lh_error err = {0};
    lh_solve_options none = {0};
    lhi_budget budget = {0};
    lhi_inserter *inserter = NULL;
    lhi_budget_begin(&budget, &none);
    CHECK_OK(lhi_words_make(k->shop, k->mem, &k->words, &err), err);
    CHECK_OK(lhi_inserter_make(k->shop, mirrored, 7, k->mem, &inserter, &err),
             err);
    if (!inserter || test_state.bad)
        return false;
    k->time = -1;
    lhi_inserter_run(inserter, k->words, &k->time, ticks, target, &budget);
    CHECK(k->time >= 0 && budget.used > 0);
    return !test_state.bad;
}

static void hold(const lh_pipeline *p, const maker *k)
{
    const uint32_t *const *orders = (const uint32_t *const *)k->words->order;
    lh_schedule *s = NULL;
    lh_verdict *v = NULL;
    lh_bound bound = {0};
    lh_error err = {0};
    CHECK_INT(lhi_words_time(k->words), k->time);
    CHECK_OK(lh_lower_bound(p, &bound, &err), err);
    CHECK_OK(lhi_shop_schedule(k->shop, orders, true, &s, &err), err);
    CHECK_OK(lh_check(p, s, &v, &err), err);
    CHECK_MSG(lh_verdict_valid(v), "%s", lh_verdict_violation(v, 0));
    int64_t ns = lh_verdict_makespan(v);
    CHECK(ns >= bound.ns);
    CHECK(lhi_shop_deadline(k->shop, ns / k->shop->unit_ns) >= k->time);
    if (k->shop->scale == 1)
        CHECK_INT(k->time * k->shop->unit_ns, ns);
    if (test_state.bad)
        print_case(p, s);
    lh_verdict_free(v);
    lh_schedule_free(s);
}

static bool is_possible(const lhi_shop *s)
{
    for (uint32_t o = 0; o < s->n_ops; o++) {
        const lhi_machine *m =
            &s->machines[s->streams[s->stream_of[o]].machine];
        if (m->memory_limit < s->memory[o])
            return false;
    }
    return true;
}

static bool same(const lhi_words *a, const lhi_words *b)
{
    for (uint32_t m = 0; m < a->shop->n_machines; m++)
        if (memcmp(a->order[m], b->order[m], a->n[m] * sizeof **a->order) != 0)
            return false;
    return true;
}

static void try_case(uint64_t seed)
{
    static const random_shape shape = {.max_devices = 6,
                                       .max_microbatches = 14,
                                       .max_chunks = 2,
                                       .links = LINKS_PRIVATE};
    rng r = {seed};
    lh_pipeline *p = random_pipeline(&r, &shape);
    lh_error err = {0};
    lhi_shop *shop = NULL;
    uint32_t parts = 1 + rng_below(&r, 3);
    maker a = {.mem = lhi_arena_make(0)}, b = {.mem = lhi_arena_make(0)};
    CHECK(a.mem && b.mem);
    lh_status status = lhi_shop_make(p, parts, false, LH_OBJECTIVE_MAKESPAN,
                                     a.mem, &shop, &err);
    a.shop = b.shop = shop;
    bool mirrored = rng_chance(&r, 50);
    uint64_t ticks = status == LH_OK ? shop->n_ops * 5 : 0;
    if (status == LH_OK && is_possible(shop) && make(&a, mirrored, ticks, 0)) {
        n_made++;
        hold(p, &a);
        CHECK(make(&b, mirrored, ticks, 0) && b.time == a.time &&
              same(a.words, b.words));
        /* As good as was asked for is good enough. */
        CHECK(make(&b, mirrored, ticks, a.time + 1) && b.time <= a.time + 1);
    }
    if (test_state.bad)
        fprintf(stderr, "case %" PRIu64 "\n", seed);
    lhi_arena_free(a.mem);
    lhi_arena_free(b.mem);
    lh_pipeline_free(p);
}

static void random_pipelines(void)
{
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++)
        try_case(first_case + i);
    CHECK_MSG(n_made * 10 >= n_cases, "only %u pipelines were for insertion",
              n_made);
}

/* 16 devices, 64 microbatches, room for 8 activations: eight trips of 1396 ms,
 * and 742 ms until the last microbatch has followed the first. What the best
 * generator makes takes 12750 ms. */
static void trains_meet(void)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 64\ndevices: 16\n"
        "uniform: {placement: ud, F: 38, D: 48, W: 20, "
        "memory: {F: 1, W: -1}}\nmemory_limit: 8\n";
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lhi_shop *shop = NULL;
    maker a = {.mem = lhi_arena_make(0)};
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "text", &p, &err), err);
    CHECK_OK(
        lhi_shop_make(p, 1, false, LH_OBJECTIVE_MAKESPAN, a.mem, &shop, &err),
        err);
    a.shop = shop;
    for (int mirrored = 0; mirrored < 2; mirrored++) {
        CHECK(make(&a, mirrored, 2000000, 0));
        hold(p, &a);
        int64_t ms = a.time * shop->unit_ns / 1000000;
        CHECK_MSG(ms >= 8 * 1396 + 742 && ms <= 12404, "%" PRId64 " ms", ms);
    }
    lhi_arena_free(a.mem);
    lh_pipeline_free(p);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_cases = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        first_case = (uint32_t)strtoul(argv[2], NULL, 10);
    RUN(random_pipelines);
    RUN(trains_meet);
    return test_summary();
}
