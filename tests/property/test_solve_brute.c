/* SPDX-License-Identifier: Apache-2.0 */
/* The solver versus brute force on tiny pipelines: no schedule is faster than a
 * solution proven optimal, and a pipeline proven infeasible has no schedule.
 *
 *     test_solve_brute [CASES [FIRST]] */
#include "brute.h"
#include "cases.h"
#include "random_pipeline.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/solver/bound/closed_forms.h"
#include "schedule/solver/bound/kind_lattice.h"
#include "schedule/solver/model/machine_orders.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/check.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/solve.h>
#include <stdlib.h>

static uint32_t n_cases = OF_CASES(3000), first_case;

/* Counts of cases by feature and outcome. */
typedef struct tally {
    uint32_t compared, too_many, infeasible, shared, parts, fifo, first_device;
    uint32_t gathers, ordered, two_way, open, headed;
} tally;

static tally seen;

static int64_t objective_of(const lh_pipeline *p, const lh_schedule *s,
                            const lh_solve_options *o)
{
    lh_timeline *t = NULL;
    lh_error err = {0};
    lh_sim_options sim = {.size = sizeof sim, .fifo = o->fifo};
    if (lh_simulate(p, s, &sim, &t, &err) != LH_OK)
        return -1;
    int64_t ns = o->objective == LH_SOLVE_OBJECTIVE_MAKESPAN
                     ? lh_timeline_makespan(t)
                     : lh_timeline_first_device_end(t);
    lh_timeline_free(t);
    return ns;
}

static bool divides(const lh_pipeline *p, uint32_t parts)
{
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(p); c++)
        if (lh_pipeline_chunk(p, c)->w_ns % parts ||
            lh_pipeline_chunk(p, c)->mem_w % parts)
            return false;
    return true;
}

static lh_pipeline *make(rng *r)
{
    random_shape shape = {.max_devices = 3, .max_chunks = 2};
    shape.max_microbatches = 1 + rng_below(r, 4);
    shape.no_data_parallel = rng_chance(r, 60);
    if (rng_chance(r, 40))
        shape.links = LINKS_SHARED;
    lh_pipeline *p = random_pipeline(r, &shape);
    if (!rng_chance(r, 8))
        return p;
    /* Reduces the limits, often below the required memory. */
    int64_t limits[8];
    for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++) {
        limits[d] = lh_pipeline_memory_limit(p, d);
        limits[d] = limits[d] == LH_NO_LIMIT ? 3 : limits[d];
        limits[d] -= rng_below(r, 3);
        limits[d] = limits[d] < 0 ? 0 : limits[d];
    }
    lh_pipeline *less = limited_pipeline(p, limits);
    lh_pipeline_free(p);
    return less;
}

static void check_solution(const lh_pipeline *p, const lh_solve_options *o,
                           const lh_solution *s)
{
    lh_verdict *v = NULL;
    lh_error err = {0};
    lh_bound bound;
    CHECK(s->bound_ns <= s->makespan_ns);
    CHECK_INT(objective_of(p, s->schedule, o), s->makespan_ns);
    CHECK_OK(lh_check(p, s->schedule, &v, &err), err);
    if (v) {
        CHECK(lh_verdict_valid(v));
        if (o->objective == LH_SOLVE_OBJECTIVE_MAKESPAN && !o->fifo)
            CHECK_INT(lh_verdict_makespan(v), s->makespan_ns);
    }
    lh_verdict_free(v);
    CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
    if (o->objective == LH_SOLVE_OBJECTIVE_MAKESPAN)
        CHECK(s->bound_ns >= bound.ns);
    seen.ordered += lh_schedule_n_link_orders(s->schedule) > 0;
}

/* Every operation starts at its head or later, and its tail follows its end. */
static void check_heads(const lh_pipeline *p, const lh_solve_options *o,
                        const lh_solution *s)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_budget budget = {0};
    lhi_shop *shop = NULL;
    lhi_machine_orders *orders = NULL;
    lhi_heads heads = {0};
    lh_error err = {0};
    bool fits = false;
    lhi_budget_begin(&budget, o);
    CHECK_OK(lhi_shop_make(p, o->sub_blocks ? o->sub_blocks : 1, o->fifo,
                           o->objective, mem, &shop, &err),
             err);
    CHECK_OK(lhi_machine_orders_make(shop, mem, &orders, &err), err);
    CHECK_OK(
        lhi_shop_read_orders(shop, s->schedule, orders->order, &fits, &err),
        err);
    const int64_t time = fits ? lhi_machine_orders_evaluate(orders) : -1;
    CHECK_OK(lhi_heads_make(shop, UINT64_MAX / 2, &budget, mem, &heads, &err),
             err);
    for (uint32_t i = 0; time >= 0 && i < shop->n_ops; i++) {
        CHECK(orders->end[i] - shop->time[i] >= heads.head[i]);
        CHECK(orders->end[i] + heads.tail[i] <= time);
    }
    seen.headed += time >= 0;
    lhi_arena_free(mem);
}

static void judge(const lh_pipeline *p, const lh_solve_options *o,
                  const lh_solution *s)
{
    brute_options b = {.below_ns = s->makespan_ns,
                       .fifo = o->fifo,
                       .first_device =
                           o->objective == LH_SOLVE_OBJECTIVE_FIRST_DEVICE,
                       .parts = o->sub_blocks,
                       .most = 60000};
    if (s->status == LH_SOLVE_INFEASIBLE)
        b.below_ns = INT64_MAX;
    brute_answer answer = brute_force(p, &b);
    CHECK_MSG(answer != BRUTE_FASTER, "there is a better schedule");
    seen.too_many += answer == BRUTE_TOO_MANY;
    if (answer != BRUTE_NONE)
        return;
    if (s->status == LH_SOLVE_OPTIMAL) {
        b.below_ns = s->makespan_ns + 1;
        answer = brute_force(p, &b);
        CHECK_MSG(answer != BRUTE_NONE, "there is no schedule that fast");
    }
    seen.compared++;
    seen.infeasible += s->status == LH_SOLVE_INFEASIBLE;
    seen.shared += brute_shared_links(p);
    seen.parts += o->sub_blocks > 1;
    seen.fifo += o->fifo;
    seen.first_device += o->objective == LH_SOLVE_OBJECTIVE_FIRST_DEVICE;
    seen.gathers += lh_pipeline_chunk(p, 0)->all_gather_ns > 0;
}

/* Returns a pipeline with two directions. */
static lh_pipeline *make_two_way(rng *r)
{
    const random_shape shape = {.max_devices = 3,
                                .max_chunks = 2,
                                .max_microbatches = 1 + rng_below(r, 3),
                                .no_data_parallel = true};
    lh_pipeline *p = random_pipeline(r, &shape), *out = NULL;
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_error err = {0};
    CHECK_OK(lh_pipeline_describe(p, &desc, &err), err);
    desc.bidirectional = desc.n_chunks % 2 == 0;
    seen.two_way += desc.bidirectional;
    CHECK_OK(lh_pipeline_make(&desc, &out, &err), err);
    lh_pipeline_free(p);
    return out;
}

static void compare(uint32_t number, bool two_way)
{
    rng r = {number + (two_way ? UINT64_C(7000000000) : 0)};
    lh_pipeline *p = two_way ? make_two_way(&r) : make(&r);
    lh_solve_options o = {.size = sizeof o, .effort = 3000000};
    lh_solution s = {0};
    lh_error err = {0};
    if (rng_chance(&r, 50) && divides(p, 2) && !lhi_pipeline_is_joint(p))
        o.sub_blocks = 2;
    o.fifo = rng_chance(&r, 20) && !brute_shared_links(p);
    if (rng_chance(&r, 15))
        o.objective = LH_SOLVE_OBJECTIVE_FIRST_DEVICE;
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    if (s.schedule) {
        check_solution(p, &o, &s);
        check_heads(p, &o, &s);
    }
    if (s.status == LH_SOLVE_OPTIMAL || s.status == LH_SOLVE_INFEASIBLE)
        judge(p, &o, &s);
    else
        seen.open++;
    if (test_state.bad) {
        fprintf(stderr, "case %u: %s, found by %s, proven by %s\n", number,
                lh_solve_status_name(s.status), s.found_by, s.proven_by);
        print_case(p, s.schedule);
    }
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

static void agrees_with_brute_force(void)
{
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++)
        compare(first_case + i, false);
    for (uint32_t i = 0; i < n_cases / 10 && !test_state.bad; i++)
        compare(first_case + i, true);
    printf("%u compared (%u infeasible, %u with shared links, %u in parts, "
           "%u first in first out, %u first device, %u data parallel, %u with "
           "message orders, %u in two directions), %u too large, %u not "
           "proven, %u schedules with heads and tails\n",
           seen.compared, seen.infeasible, seen.shared, seen.parts, seen.fifo,
           seen.first_device, seen.gathers, seen.ordered, seen.two_way,
           seen.too_many, seen.open, seen.headed);
    CHECK_INT(seen.open, 0);
    CHECK(n_cases < 3000 || seen.compared >= 2000);
}

/* If a W does not divide evenly, proofs by search do not apply, but bounds do:
 * no schedule that runs the parts in order is below them. */
static void bounds_hold_for_uneven_parts(void)
{
    uint32_t n_tight = 0, n_seen = 0;
    for (uint32_t i = 0; i < n_cases / 5 && !test_state.bad; i++) {
        rng r = {first_case + i + 1000000};
        lh_pipeline *p = make(&r);
        lh_solve_options o = {.size = sizeof o, .effort = 100000};
        lh_solution s = {0};
        lh_error err = {0};
        o.sub_blocks = 2 + rng_below(&r, 2);
        if (!lhi_pipeline_is_joint(p) && !divides(p, o.sub_blocks)) {
            CHECK_OK(lh_solve(p, &o, &s, &err), err);
            brute_options b = {.below_ns = s.schedule ? s.bound_ns : INT64_MAX,
                               .parts = o.sub_blocks,
                               .most = 60000};
            CHECK_MSG(brute_force(p, &b) != BRUTE_FASTER, "case %u: %s",
                      first_case + i, lh_solve_status_name(s.status));
            if (test_state.bad) {
                fprintf(stderr,
                        "%u parts, found by %s, %" PRId64 " ns proven by %s\n",
                        o.sub_blocks, s.found_by, s.bound_ns, s.proven_by);
                print_case(p, s.schedule);
            }
            n_seen++;
            n_tight += s.status == LH_SOLVE_OPTIMAL;
        }
        lh_solution_fini(&s);
        lh_pipeline_free(p);
    }
    printf("%u with uneven parts, %u of them proven\n", n_seen, n_tight);
    CHECK(n_cases < 3000 || n_seen >= 200);
}

/* Returns the largest bound by lattices of pass kinds, in ns. */
static int64_t bound_by_kinds(const lh_pipeline *p, uint32_t parts)
{
    lhi_arena *mem = lhi_arena_make(0);
    lh_solve_options o = {.size = sizeof o};
    lhi_budget budget = {0};
    lhi_shop *shop = NULL;
    lhi_heads heads = {0};
    lh_error err = {0};
    lhi_budget_begin(&budget, &o);
    CHECK_OK(lhi_shop_make(p, parts, false, o.objective, mem, &shop, &err),
             err);
    CHECK_OK(lhi_heads_make(shop, UINT64_MAX / 2, &budget, mem, &heads, &err),
             err);
    int64_t units = 0;
    for (uint32_t m = 0; m < shop->n_machines; m++)
        for (bool possible = !lhi_kind_lattice_is_applicable(shop, m, 1 << 20);
             !possible;) {
            possible = true;
            CHECK_OK(lhi_kind_lattice_check(shop, &heads, m,
                                            lhi_shop_get_deadline(shop, units),
                                            &budget, mem, &possible, &err),
                     err);
            units += !possible;
        }
    const int64_t bound = units * shop->unit_ns;
    lhi_arena_free(mem);
    return bound;
}

/* No order of any pipeline with equal chunks is faster than the bound by
 * lattices of pass kinds, and some order often attains it. */
static void kinds_bound_all_orders(void)
{
    static const char *const more[] = {"", "backward: joint\n"};
    uint32_t n_tight = 0, n_seen = 0;
    for (uint32_t i = 0; i < n_cases / 10 && !test_state.bad; i++) {
        rng r = {first_case + i + 2000000};
        const bool joint = rng_chance(&r, 30);
        const uint32_t parts = joint || rng_chance(&r, 60) ? 1 : 2;
        lh_pipeline *p =
            uniform_make((uniform){.placement = i % 2 ? "wave" : "loop",
                                   .devices = 2,
                                   .microbatches = 2 + rng_below(&r, 2),
                                   .f = 2. * (1 + rng_below(&r, 5)),
                                   .d = 2. * (1 + rng_below(&r, 5)),
                                   .w = 4. * (1 + rng_below(&r, 3)),
                                   .datacenters = 2,
                                   .latency = rng_below(&r, 6),
                                   .transfer = rng_below(&r, 3),
                                   .memory = 2 + rng_below(&r, 3),
                                   .more = more[joint]});
        brute_options b = {.below_ns = bound_by_kinds(p, parts),
                           .parts = parts,
                           .most = 60000};
        const brute_answer answer = brute_force(p, &b);
        CHECK_MSG(answer != BRUTE_FASTER, "case %u: a schedule below %" PRId64,
                  first_case + i, b.below_ns);
        b.below_ns++;
        n_seen += answer == BRUTE_NONE;
        n_tight += answer == BRUTE_NONE && brute_force(p, &b) == BRUTE_FASTER;
        lh_pipeline_free(p);
    }
    printf("%u bounds by pass kinds, %u attained\n", n_seen, n_tight);
    CHECK(n_tight > 0);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(agrees_with_brute_force);
    RUN(bounds_hold_for_uneven_parts);
    RUN(kinds_bound_all_orders);
    return test_summary();
}
