/* SPDX-License-Identifier: Apache-2.0 */
/* The least memory and the memory-time curve of tiny pipelines, versus brute
 * force at every limit.
 *
 *     test_tradeoff [CASES [FIRST]] */
#include "brute.h"
#include "cases.h"
#include "random_pipeline.h"
#include "test.h"

#include <longhaul/check.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/tradeoff.h>
#include <stdlib.h>

enum { MOST_LIMIT = 40 };

static uint32_t n_cases = OF_CASES(250), first_case, compared, points, skipped;

static lh_pipeline *within(const lh_pipeline *p, int64_t limit)
{
    int64_t limits[16];
    for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++) {
        limits[d] = lh_pipeline_memory_limit(p, d);
        limits[d] = limits[d] < limit ? limits[d] : limit;
    }
    return limited_pipeline(p, limits);
}

/* Checks by brute force whether a schedule below `below_ns` exists within the
 * limit. */
static brute_answer ask(const lh_pipeline *p, int64_t limit, int64_t below_ns)
{
    lh_pipeline *less = within(p, limit);
    brute_options b = {.below_ns = below_ns, .parts = 1, .most = 60000};
    brute_answer answer = brute_force(less, &b);
    lh_pipeline_free(less);
    return answer;
}

static bool keeps(const lh_pipeline *p, const lh_memory_point *point)
{
    lh_verdict *v = NULL;
    lh_error err = {0};
    lh_pipeline *less = within(p, point->limit);
    CHECK_OK(lh_check(less, point->schedule, &v, &err), err);
    bool ok = v && lh_verdict_valid(v) &&
              lh_verdict_makespan(v) == point->makespan_ns;
    lh_verdict_free(v);
    lh_pipeline_free(less);
    return ok;
}

static void check_least(const lh_pipeline *p, int64_t makespan_ns)
{
    lh_tradeoff_options o = {.size = sizeof o, .makespan_ns = makespan_ns};
    lh_memory_point point;
    lh_error err = {0};
    CHECK_OK(lh_minimise_memory(p, &o, &point, &err), err);
    if (test_state.bad)
        return;
    CHECK(keeps(p, &point));
    CHECK(point.makespan_ns <= makespan_ns);
    CHECK_INT(point.limit, point.limit_bound);
    CHECK(ask(p, point.limit - 1, makespan_ns + 1) != BRUTE_FASTER);
    lh_memory_point_fini(&point);
}

static void check_curve(const lh_pipeline *p, const lh_memory_curve *c)
{
    CHECK(c->complete);
    int64_t from = MOST_LIMIT;
    for (uint32_t i = 0; i < c->n_points; i++) {
        const lh_memory_point *now = &c->points[i];
        CHECK(keeps(p, now));
        CHECK_INT(now->status, LH_SOLVE_OPTIMAL);
        CHECK_INT(now->makespan_ns, now->bound_ns);
        CHECK(i == 0 || (now->limit < c->points[i - 1].limit &&
                         now->makespan_ns > c->points[i - 1].makespan_ns));
        brute_answer faster = ask(p, from, now->makespan_ns);
        CHECK_MSG(faster != BRUTE_FASTER, "something is faster");
        skipped += faster == BRUTE_TOO_MANY;
        compared += faster == BRUTE_NONE;
        from = now->limit - 1;
        points++;
    }
    CHECK(ask(p, from, INT64_MAX) != BRUTE_FASTER);
    CHECK(c->infeasible_below < 0 ||
          ask(p, c->infeasible_below - 1, INT64_MAX) != BRUTE_FASTER);
}

static void compare(uint32_t number)
{
    rng r = {number};
    random_shape shape = {.max_devices = 3, .max_chunks = 2};
    shape.max_microbatches = 1 + rng_below(&r, 4);
    shape.no_limits = rng_chance(&r, 70);
    lh_pipeline *p = random_pipeline(&r, &shape);
    lh_memory_curve curve = {0};
    lh_error err = {0};
    CHECK_OK(lh_memory_curve_make(p, NULL, &curve, &err), err);
    if (!test_state.bad)
        check_curve(p, &curve);
    if (!test_state.bad)
        check_least(p, curve.points[rng_below(&r, curve.n_points)].makespan_ns +
                           rng_below(&r, 2));
    if (test_state.bad) {
        fprintf(stderr, "case %u\n", number);
        print_case(p, NULL);
    }
    lh_memory_curve_fini(&curve);
    lh_pipeline_free(p);
}

static void agrees_with_brute_force(void)
{
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++)
        compare(first_case + i);
    printf("%u points, %u compared, %u too large\n", points, compared, skipped);
    CHECK(n_cases < 250 || compared >= 300);
}

static lh_pipeline *uniform(uint32_t n_microbatches, const int64_t *limits)
{
    lh_chunk chunks[4];
    for (uint32_t c = 0; c < 4; c++)
        chunks[c] = (lh_chunk){.device = c,
                               .f_ns = 10,
                               .d_ns = 12,
                               .w_ns = 6,
                               .mem_f = 1 + (c == 3),
                               .mem_w = -1 - (c == 3)};
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = 4,
                             .n_microbatches = n_microbatches,
                             .n_chunks = 4,
                             .chunks = chunks,
                             .memory_limits = limits};
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_make(&desc, &p, &err), err);
    return p;
}

/* Impossible or invalid requests are rejected with a reason. */
static void refuses(void)
{
    lh_pipeline *p = uniform(8, NULL);
    lh_tradeoff_options o = {.size = sizeof o, .makespan_ns = 10};
    lh_memory_point point;
    lh_memory_curve curve;
    lh_error err = {0};
    CHECK_INT(lh_minimise_memory(p, &o, &point, &err), LH_EINFEASIBLE);
    CHECK_HAS(err.text, "no schedule takes at most");
    o.size = 3;
    CHECK_INT(lh_minimise_memory(p, &o, &point, &err), LH_EINVAL);
    o = (lh_tradeoff_options){.size = sizeof o};
    lh_solve_options each = {.size = sizeof each,
                             .objective = LH_SOLVE_OBJECTIVE_FIRST_DEVICE};
    o.solve_options = &each;
    CHECK_INT(lh_memory_curve_make(p, &o, &curve, &err), LH_EINVAL);
    lh_pipeline_free(p);
    int64_t limits[4] = {0, 9, 9, 9};
    p = uniform(8, limits);
    CHECK_INT(lh_memory_curve_make(p, NULL, &curve, &err), LH_EINFEASIBLE);
    CHECK_HAS(err.text, "infeasible: ");
    lh_pipeline_free(p);
}

/* A small number of points is spread over the limits; the devices' own limits
 * still apply. */
static void few_points(void)
{
    int64_t limits[4] = {6, 20, 20, 20};
    lh_pipeline *p = uniform(12, limits);
    lh_tradeoff_options o = {.size = sizeof o, .points = 3};
    lh_memory_curve curve;
    lh_error err = {0};
    CHECK_OK(lh_memory_curve_make(p, &o, &curve, &err), err);
    CHECK(curve.n_points >= 2 && curve.n_points <= 3);
    for (uint32_t i = 0; i < curve.n_points; i++) {
        CHECK(keeps(p, &curve.points[i]));
        CHECK(curve.points[i].limit <= 20);
    }
    CHECK(!curve.complete);
    lh_memory_curve_fini(&curve);
    lh_pipeline_free(p);
}

static bool stop_at_once(void *context, const lh_solve_progress *now)
{
    (void)now;
    ++*(uint32_t *)context;
    return true;
}

/* An interrupted search returns its best result and a lower bound on the limit.
 */
static void stops(void)
{
    lh_pipeline *p = uniform(12, NULL);
    uint32_t calls = 0;
    lh_solve_options each = {.size = sizeof each,
                             .time_limit_s = 1e-9,
                             .progress = stop_at_once,
                             .context = &calls};
    lh_tradeoff_options o = {.size = sizeof o, .solve_options = &each};
    lh_memory_point point;
    lh_error err = {0};
    CHECK_OK(lh_minimise_memory(p, &o, &point, &err), err);
    CHECK(point.limit_bound <= point.limit);
    CHECK(keeps(p, &point));
    lh_memory_point_fini(&point);
    lh_pipeline_free(p);
}

/* The pipeline's microbatch groups are used by the method elastic, a start of
 * the search. A search with no budget after its starts finds the same makespan
 * under a limit that does not bind. */
static void keeps_groups(void)
{
    static const int64_t times[8][2] = {{9, 8}, {2, 5}, {8, 4}, {5, 0},
                                        {1, 6}, {2, 0}, {8, 2}, {3, 2}};
    static const uint32_t enqueue[] = {6, 3, 1}, dequeue[] = {4, 2, 2, 2};
    lh_link links[] = {{0, 1, 5, 1, NULL}, {1, 2, 5, 0, NULL},
                       {2, 3, 5, 0, NULL}, {3, 0, 5, 1, NULL},
                       {1, 0, 5, 1, NULL}, {2, 1, 5, 0, NULL},
                       {3, 2, 5, 1, NULL}, {0, 3, 5, 1, NULL}};
    lh_chunk chunks[8];
    for (uint32_t c = 0; c < 8; c++)
        chunks[c] = (lh_chunk){.device = c % 4,
                               .f_ns = times[c][0],
                               .d_ns = times[c][1],
                               .w_ns = 3,
                               .mem_f = 1,
                               .mem_w = -1,
                               .all_gather_ns = 7,
                               .reduce_scatter_ns = 7};
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = 4,
                             .n_microbatches = 10,
                             .joint = true,
                             .n_chunks = 8,
                             .chunks = chunks,
                             .n_links = 8,
                             .links = links,
                             .n_enqueue = 3,
                             .enqueue = enqueue,
                             .n_dequeue = 4,
                             .dequeue = dequeue};
    lh_solve_options each = {.size = sizeof each, .effort = 1};
    lh_tradeoff_options o = {.size = sizeof o, .solve_options = &each};
    lh_pipeline *p = NULL;
    lh_solution s = {0};
    lh_memory_point point = {0};
    lh_error err = {0};
    CHECK_OK(lh_pipeline_make(&desc, &p, &err), err);
    CHECK_OK(lh_solve(p, &each, &s, &err), err);
    CHECK_OK(lh_minimise_memory(p, &o, &point, &err), err);
    CHECK_INT(point.target_ns, s.makespan_ns);
    lh_solution_fini(&s);
    lh_memory_point_fini(&point);
    lh_pipeline_free(p);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(agrees_with_brute_force);
    RUN(refuses);
    RUN(few_points);
    RUN(keeps_groups);
    RUN(stops);
    return test_summary();
}
