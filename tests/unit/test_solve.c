/* SPDX-License-Identifier: Apache-2.0 */
/* The solver: known optima, and its other guarantees. */
#include "optima.h"
#include "solve_check.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/simulate.h>
#include <time.h>

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

static void regular_ud_pipelines(void)
{
    for (size_t i = 0; i < COUNT(solve_ud_rows); i++)
        solve_row_check(&solve_ud_rows[i], 2000000);
}

static void small_waves_and_loops(void)
{
    for (size_t i = 0; i < COUNT(solve_small_rows); i++)
        solve_row_check(&solve_small_rows[i], 2000000);
}

static void known_optima(void)
{
    for (size_t i = 0; i < N_OPTIMA; i++) {
        char path[512];
        lh_error err = {0};
        lh_pipeline *p = NULL;
        lh_solution s = {0};
        lh_solve_options o = {.size = sizeof o, .effort = 2000000};
        snprintf(path, sizeof path, "%s/optima/%s.json", TEST_DATA,
                 optima[i].name);
        CHECK_OK(lh_pipeline_read(path, &p, &err), err);
        if (!p)
            continue;
        CHECK_OK(lh_solve(p, &o, &s, &err), err);
        solve_check(p, &s);
        CHECK_INT(s.status, LH_SOLVE_OPTIMAL);
        CHECK_INT(s.makespan_ns, optima[i].ms * 1000000);
        lh_solution_fini(&s);
        lh_pipeline_free(p);
    }
}

static int64_t makespan_by(const lh_pipeline *p, const char *method)
{
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    int64_t ns = INT64_MAX;
    if (lh_method_run(method, p, NULL, &s, NULL, NULL) == LH_OK &&
        lh_simulate(p, s, NULL, &t, NULL) == LH_OK)
        ns = lh_timeline_makespan(t);
    lh_timeline_free(t);
    lh_schedule_free(s);
    return ns;
}

static const solve_row hard = {"wave", 8, 32, 16, 86, 2, .25, .25, 0};

static void never_worse_than_any_generator(void)
{
    for (uint64_t effort = 1; effort < 100000; effort *= 300) {
        lh_pipeline *p = solve_row_make(&hard);
        lh_solve_options o = {.size = sizeof o, .effort = effort};
        lh_solution s = {0};
        lh_error err = {0};
        o.memory = 1 << 20;
        CHECK_OK(lh_solve(p, &o, &s, &err), err);
        solve_check(p, &s);
        CHECK(s.makespan_ns <= makespan_by(p, "auto"));
        lh_solution_fini(&s);
        lh_pipeline_free(p);
    }
}

static double now_s(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void a_time_limit_holds(void)
{
    lh_pipeline *p = solve_row_make(&hard);
    lh_solve_options o = {.size = sizeof o, .time_limit_s = 0.5};
    lh_solution s = {0};
    lh_error err = {0};
    double begin = now_s();
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    double took = now_s() - begin;
    /* A busy machine may deschedule the process for a while. */
    CHECK_MSG(took < 1.5, "took %g s, not 0.5", took);
    CHECK_INT(s.status, LH_SOLVE_FEASIBLE);
    solve_check(p, &s);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

static void the_same_for_the_same_effort(void)
{
    char *texts[2] = {NULL, NULL};
    lh_pipeline *p = solve_row_make(&solve_large_rows[2]);
    for (uint32_t i = 0; i < 2; i++) {
        lh_solve_options o = {
            .size = sizeof o, .effort = 900000, .threads = 1 + 3 * i};
        lh_solution s = {0};
        lh_error err = {0};
        CHECK_OK(lh_solve(p, &o, &s, &err), err);
        if (s.schedule)
            CHECK_OK(lh_schedule_format(s.schedule, &texts[i], NULL, &err),
                     err);
        lh_solution_fini(&s);
    }
    CHECK_STR(texts[0], texts[1]);
    lh_text_free(texts[0]);
    lh_text_free(texts[1]);
    lh_pipeline_free(p);
}

static bool stop_at_once(void *context, const lh_solve_progress *now)
{
    int *calls = context;
    ++*calls;
    return now->seconds >= 0;
}

static void a_caller_can_stop_it(void)
{
    lh_pipeline *p = solve_row_make(&hard);
    int calls = 0;
    lh_solve_options o = {.size = sizeof o,
                          .progress = stop_at_once,
                          .context = &calls,
                          .effort = 50000000};
    lh_solution s = {0};
    lh_error err = {0};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    CHECK_INT(calls, 1);
    CHECK(s.effort < 5000000);
    solve_check(p, &s);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

static void too_little_memory_is_infeasible(void)
{
    lh_pipeline *p = uniform_make(
        (uniform){"wave", 2, 3, 1, 1, 1, 0, 0, 0, 0, "memory_limit: 1\n"});
    lh_solution s = {0};
    lh_error err = {0};
    CHECK_OK(lh_solve(p, NULL, &s, &err), err);
    CHECK_INT(s.status, LH_SOLVE_INFEASIBLE);
    CHECK_HAS(s.why, "memory limit");
    CHECK(s.schedule == NULL);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

static void it_starts_where_it_is_told(void)
{
    lh_pipeline *p = solve_row_make(&hard);
    lh_solution first = {0}, second = {0};
    lh_error err = {0};
    lh_solve_options o = {.size = sizeof o, .effort = 300000};
    o.memory = 1 << 20;
    CHECK_OK(lh_solve(p, &o, &first, &err), err);
    o.initial_schedule = first.schedule;
    o.effort = 1;
    CHECK_OK(lh_solve(p, &o, &second, &err), err);
    CHECK(second.makespan_ns <= first.makespan_ns);
    solve_check(p, &second);
    lh_solution_fini(&first);
    lh_solution_fini(&second);
    lh_pipeline_free(p);
}

/* If a closed form proves the optimum for whole passes, splitting them gains
 * nothing; otherwise the result must not be below it either. */
static void cut_passes(void)
{
    for (size_t i = 0; i < 10; i++) {
        lh_pipeline *p = solve_row_make(&solve_ud_rows[i]);
        lh_solve_options o = {
            .size = sizeof o, .effort = 2000000, .sub_blocks = 4};
        lh_solution s = {0};
        lh_error err = {0};
        CHECK_OK(lh_solve(p, &o, &s, &err), err);
        solve_check(p, &s);
        CHECK_INT(s.status, LH_SOLVE_OPTIMAL);
        CHECK_INT(s.makespan_ns,
                  (int64_t)(solve_ud_rows[i].optimum_ms * 1e6 + .5));
        lh_solution_fini(&s);
        lh_pipeline_free(p);
    }
}

/* One activation remains if half a W frees everything and the other half
 * nothing: without counting whole W the bound is 1054 ms. */
static void parts_free_no_more_than_whole_passes(void)
{
    lh_pipeline *p = uniform_make((uniform){.placement = "wave",
                                            .devices = 4,
                                            .microbatches = 8,
                                            .f = 38,
                                            .d = 48,
                                            .w = 20,
                                            .datacenters = 2,
                                            .latency = 9.5,
                                            .transfer = 9.5,
                                            .memory = 4});
    lh_solve_options o = {.size = sizeof o, .effort = 300000, .sub_blocks = 2};
    lh_solution s = {0};
    lh_error err = {0};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    solve_check(p, &s);
    CHECK_MSG(s.bound_ns >= 1328000000, "bound %g ms",
              (double)s.bound_ns / 1e6);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

static void a_gap_is_enough(void)
{
    lh_pipeline *p = solve_row_make(&solve_large_rows[0]);
    lh_solve_options o = {.size = sizeof o, .gap = 0.1};
    lh_solution s = {0};
    lh_error err = {0};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    CHECK((double)s.makespan_ns <= 1.1 * (double)s.bound_ns);
    solve_check(p, &s);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

static void bad_options_are_refused(void)
{
    lh_pipeline *p = solve_row_make(&solve_small_rows[0]);
    lh_solution s = {0};
    lh_error err = {0};
    lh_solve_options o = {.size = sizeof o, .gap = -1};
    CHECK_INT(lh_solve(p, &o, &s, &err), LH_EINVAL);
    o = (lh_solve_options){.size = sizeof o, .sub_blocks = 1u << 20};
    CHECK_INT(lh_solve(p, &o, &s, &err), LH_EINVAL);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(known_optima);
    RUN(regular_ud_pipelines);
    RUN(small_waves_and_loops);
    RUN(never_worse_than_any_generator);
    RUN(a_time_limit_holds);
    RUN(the_same_for_the_same_effort);
    RUN(a_caller_can_stop_it);
    RUN(too_little_memory_is_infeasible);
    RUN(it_starts_where_it_is_told);
    RUN(cut_passes);
    RUN(parts_free_no_more_than_whole_passes);
    RUN(a_gap_is_enough);
    RUN(bad_options_are_refused);
    return test_summary();
}
