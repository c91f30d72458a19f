/* SPDX-License-Identifier: Apache-2.0 */
/* The lattice of pass kinds refutes deadlines that memory makes impossible, and
 * none that a schedule meets. */
#include "solve_check.h"

#include "base/random.h"
#include "schedule/solver/bound/kind_lattice.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>

enum { MEMORY = 1 << 30 }; /* bytes for tables */

/* A pipeline's job shop with heads and tails. W in parts have equal parts
 * (relaxed). */
typedef struct prepared {
    lhi_arena *mem;
    lhi_shop *shop;
    lhi_heads heads;
    lhi_budget budget;
    lh_solve_options options;
} prepared;

static void prepare(prepared *x, const lh_pipeline *p, uint32_t parts)
{
    lh_error err = {0};
    x->options = (lh_solve_options){.size = sizeof x->options};
    lhi_budget_begin(&x->budget, &x->options);
    x->mem = lhi_arena_make(0);
    CHECK_OK((parts > 1 ? lhi_shop_make_relaxed : lhi_shop_make)(
                 p, parts, false, LH_SOLVE_OBJECTIVE_MAKESPAN, x->mem, &x->shop,
                 &err),
             err);
    CHECK_OK(lhi_heads_make(x->shop, UINT64_MAX / 2, &x->budget, x->mem,
                            &x->heads, &err),
             err);
}

/* Checks whether the lattices of pass kinds leave a makespan of `ns` open on
 * all machines from `first` on. */
static bool is_possible(prepared *x, uint32_t first, int64_t ns)
{
    lh_error err = {0};
    const int64_t deadline =
        lhi_shop_get_deadline(x->shop, ns / x->shop->unit_ns);
    bool possible = true;
    for (uint32_t m = first; m < x->shop->n_machines && possible; m++)
        if (lhi_kind_lattice_is_applicable(x->shop, m, MEMORY))
            CHECK_OK(lhi_kind_lattice_check(x->shop, &x->heads, m, deadline,
                                            &x->budget, x->mem, &possible,
                                            &err),
                     err);
    return possible;
}

/* The last device of a Wave. Before its first D it runs at most the K forwards
 * that fit in memory, and after its last D at most K W. */
static void memory_delays_the_last_device(void)
{
    enum { P = 16, N = 32, K = 32, F = 19, D = 24, W = 10, HOP = 19 };
    const int64_t first_d =
        (P - 1) * F + HOP + (P + 1) * F + HOP + (P - 1) * D + HOP;
    const int64_t after_d = HOP + (P - 1) * D + W;
    const int64_t least = first_d + 2 * N * (F + D + W) - K * (F + W) + after_d;
    prepared x = {0};
    lh_pipeline *p = uniform_make((uniform){.placement = "wave",
                                            .devices = P,
                                            .microbatches = N,
                                            .f = 2 * F,
                                            .d = 2 * D,
                                            .w = 2 * W,
                                            .datacenters = 2,
                                            .latency = HOP / 2.,
                                            .transfer = HOP / 2.,
                                            .memory = K});
    prepare(&x, p, 1);
    CHECK(!is_possible(&x, P - 1, least * 1000000 - 500000));
    CHECK(is_possible(&x, 0, least * 1000000));
    lhi_arena_free(x.mem);
    lh_pipeline_free(p);
}

/* The last device of a Loop. After its last D on the second chunk comes the way
 * back to the first device, and from there around the first chunks. When that D
 * ends, the last device has run all F, so all but K W, and all D on its first
 * chunk but those that the first device can still run with their W. */
static void work_of_the_first_device_delays_the_last(void)
{
    enum { P = 16, N = 32, K = 32, F = 19, D = 24, W = 10, HOP = 19 };
    /* From the end of a D on the last device's first chunk to the start of the
     * first device's D, and to the end if that starts the last j. */
    const int64_t back = HOP + (P - 2) * D;
    const int64_t around = HOP + (P - 1) * D + HOP + D + back + D + W;
    const int64_t later = (around - back + D + W - 1) / (D + W);
    const int64_t least = (P - 1) * F + HOP + 2 * N * F +
                          (2 * N - later + 1) * D + (2 * N - K) * W + around;
    prepared x = {0};
    lh_pipeline *p = uniform_make((uniform){.placement = "loop",
                                            .devices = P,
                                            .microbatches = N,
                                            .f = 2 * F,
                                            .d = 2 * D,
                                            .w = 2 * W,
                                            .datacenters = 2,
                                            .latency = HOP / 2.,
                                            .transfer = HOP / 2.,
                                            .memory = K});
    prepare(&x, p, 1);
    CHECK_INT(x.heads.tail[x.shop->streams[x.shop->d[P - 1]].first + N - 3],
              (back + 3 * (D + W)) * 1000000 / x.shop->unit_ns);
    CHECK_INT(x.heads.tail[x.shop->streams[x.shop->d[2 * P - 1]].first + N - 1],
              around * 1000000 / x.shop->unit_ns);
    CHECK(!is_possible(&x, P - 1, least * 1000000 - 500000));
    lhi_arena_free(x.mem);
    lh_pipeline_free(p);
}

/* No deadline that a schedule meets is refuted: random pipelines with two
 * chunks per device, W in parts, joint backwards. */
static void schedules_stay_possible(void)
{
    lhi_random r = {3};
    for (int i = 0; i < 60; i++) {
        static const char *const more[] = {"", "backward: joint\n"};
        const uint32_t joint = lhi_random_below(&r, 4) == 0;
        const uint32_t parts = joint ? 1 : 1 + lhi_random_below(&r, 2);
        const unsigned n = 2 + 2 * lhi_random_below(&r, 2);
        lh_error err = {0};
        lh_solution s = {0};
        prepared x = {0};
        lh_pipeline *p = uniform_make(
            (uniform){.placement = i % 2 ? "wave" : "loop",
                      .devices = n,
                      .microbatches = n * (1 + lhi_random_below(&r, 2)),
                      .f = 2. * (1 + lhi_random_below(&r, 20)),
                      .d = 2. * (1 + lhi_random_below(&r, 20)),
                      .w = 4. * (1 + lhi_random_below(&r, 10)),
                      .datacenters = 2,
                      .latency = lhi_random_below(&r, 30),
                      .transfer = lhi_random_below(&r, 10),
                      .memory = 2 * n + lhi_random_below(&r, 4),
                      .more = more[joint]});
        lh_solve_options o = {
            .size = sizeof o, .effort = 20000, .sub_blocks = parts};
        CHECK_OK(lh_solve(p, &o, &s, &err), err);
        CHECK(s.schedule);
        prepare(&x, p, parts);
        CHECK(lhi_kind_lattice_is_applicable(x.shop, 0, MEMORY));
        CHECK_MSG(is_possible(&x, 0, s.makespan_ns),
                  "case %d: %lld ns are refuted", i, (long long)s.makespan_ns);
        lhi_arena_free(x.mem);
        lh_solution_fini(&s);
        lh_pipeline_free(p);
    }
}

/* Chunks with other times are not merged. */
static void unequal_chunks_are_left_out(void)
{
    static const char text[] =
        "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 4\ndevices: 1\n"
        "chunks:\n  - {device: 0, F: 1, D: 2, W: 1}\n"
        "  - {device: 0, F: 2, D: 2, W: 1}\n";
    prepared x = {0};
    lh_error err = {0};
    lh_pipeline *p = NULL;
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "unequal", &p, &err), err);
    prepare(&x, p, 1);
    CHECK(!lhi_kind_lattice_is_applicable(x.shop, 0, MEMORY));
    lhi_arena_free(x.mem);
    lh_pipeline_free(p);
}

/* Two layers of (F + 1) (D + 1) states of 8 bytes take at most an eighth of the
 * memory for tables. The larger pipeline needs more than 32 bits
 * can count. */
static void states_beyond_the_memory_are_left_out(void)
{
    enum { N = 10, MORE = 3000 };
    const size_t need = (size_t)8 * 2 * 8 * (2 * N + 1) * (2 * N + 1);
    static const unsigned n[] = {N, MORE};
    for (int i = 0; i < 2; i++) {
        prepared x = {0};
        lh_pipeline *p = uniform_make((uniform){.placement = "wave",
                                                .devices = 1,
                                                .microbatches = n[i],
                                                .f = 2,
                                                .d = 2,
                                                .w = 2,
                                                .memory = 4});
        prepare(&x, p, 1);
        CHECK(lhi_kind_lattice_is_applicable(x.shop, 0, need) == (i == 0));
        CHECK(!lhi_kind_lattice_is_applicable(x.shop, 0, need - 1));
        CHECK(!lhi_kind_lattice_is_applicable(x.shop, 0, 0));
        lhi_arena_free(x.mem);
        lh_pipeline_free(p);
    }
}

/* A lattice that the budget stops refutes nothing, in whichever row it stops:
 * without the last rows no path leads to the last state. */
static void stopped_lattices_refute_nothing(void)
{
    prepared x = {0};
    lh_pipeline *p = uniform_make((uniform){.placement = "wave",
                                            .devices = 1,
                                            .microbatches = 1000,
                                            .f = 2,
                                            .d = 2,
                                            .w = 2,
                                            .more = "backward: joint\n"});
    prepare(&x, p, 1);
    lhi_budget_begin(&x.budget, &x.options);
    CHECK(is_possible(&x, 0, 1000 * 6 * 1000000LL));
    const uint64_t ticks = x.budget.used;
    CHECK(ticks > 8);
    for (uint64_t i = 1; i < 4; i++) {
        x.options.effort = i * ticks / 4;
        lhi_budget_begin(&x.budget, &x.options);
        CHECK(is_possible(&x, 0, 1000 * 6 * 1000000LL));
        CHECK(x.budget.stop);
    }
    lhi_arena_free(x.mem);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(memory_delays_the_last_device);
    RUN(work_of_the_first_device_delays_the_last);
    RUN(schedules_stay_possible);
    RUN(unequal_chunks_are_left_out);
    RUN(states_beyond_the_memory_are_left_out);
    RUN(stopped_lattices_refute_nothing);
    return test_summary();
}
