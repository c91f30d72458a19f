/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules by name, and the best schedule overall. */
#include "test.h"
#include "uniform.h"

#include <longhaul/check.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/pipeline.h>
#include <longhaul/scheduler.h>
#include <stdlib.h>

static lh_pipeline *wave(const char *limit, uint32_t n)
{
    char text[512];
    lh_pipeline *p = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\n"
             "time_unit: ms\n"
             "microbatches: %u\n"
             "devices: 4\n"
             "backward: split\n"
             "uniform: {placement: wave, chunks_per_device: 2, F: 38, D: 48,\n"
             "          W: 20, memory: {F: 2, D: 0, W: -2}}\n"
             "datacenters: {count: 2, latency: 38, transfer: 0}\n%s",
             n, limit);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    return p;
}

static void check_best(const lh_pipeline *p, const lh_scheduler_result *best,
                       int64_t ms)
{
    lh_verdict *v = NULL;
    lh_error err = {0};
    CHECK_OK(lh_check(p, best->schedule, &v, &err), err);
    CHECK(v && lh_verdict_valid(v));
    CHECK_INT(v ? lh_verdict_makespan(v) : -1, ms * 1000000);
    CHECK(best->bound_ns <= ms * 1000000);
    CHECK(best->why[0]);
    lh_verdict_free(v);
}

static void names(void)
{
    lh_error err = {0};
    uint32_t n = lh_n_schedulers();
    CHECK_INT(n, lh_n_methods() + 1);
    CHECK_STR(lh_scheduler_name(n - 1), "auto");
    CHECK_STR(lh_scheduler_name(n - 2), "optimal");
    for (uint32_t i = 0; i < n; i++) {
        CHECK_INT(lh_scheduler_check_name(lh_scheduler_name(i), NULL), LH_OK);
        CHECK(lh_scheduler_about(i)[0]);
        for (uint32_t k = 0; k < i; k++)
            CHECK(strcmp(lh_scheduler_name(i), lh_scheduler_name(k)) != 0);
    }
    CHECK_INT(lh_scheduler_check_name("best", &err), LH_EINVAL);
    CHECK_HAS(err.text, "unknown method 'best'");
    CHECK_HAS(err.text, ", optimal");
}

/* 4 devices x 8 microbatches: no method reaches the optimum, 1135. */
static void searching_wins(void)
{
    lh_pipeline *p = wave("memory_limit: 16\n", 8);
    lh_scheduler_result best;
    lh_error err = {0};
    CHECK_OK(lh_scheduler_run("auto", p, NULL, &best, &err), err);
    if (!test_state.bad) {
        CHECK_STR(best.method, "optimal");
        check_best(p, &best, 1135);
        CHECK_INT(best.bound_ns, 1135000000);
    }
    lh_scheduler_result_fini(&best);
    CHECK_OK(lh_scheduler_run("optimal", p, NULL, &best, &err), err);
    CHECK_STR(best.method, "optimal");
    check_best(p, &best, 1135);
    lh_scheduler_result_fini(&best);
    lh_scheduler_options o = {.size = sizeof o, .effort = 1};
    CHECK_OK(lh_scheduler_run("auto", p, &o, &best, &err), err);
    CHECK(strcmp(best.method, "auto") != 0);
    lh_scheduler_result_fini(&best);
    CHECK_OK(lh_scheduler_run("zb-v", p, NULL, &best, &err), err);
    CHECK_STR(best.method, "zb-v");
    CHECK(best.bound_ns > 0);
    lh_scheduler_result_fini(&best);
    lh_pipeline_free(p);
}

/* Half and three eighths of 1F1B's memory: "auto" finds the optimum. Between
 * them it is at least as fast as with less memory. */
static void little_memory(void)
{
    static const struct {
        int limit, ms;
    } rows[] = {{8, 215}, {7, 239}, {6, 239}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uniform u = {"wave", 8, 32, 2, 2, 2, 0, 0, 0, 0, NULL};
        u.memory = (unsigned)rows[i].limit;
        lh_pipeline *p = uniform_make(u);
        lh_scheduler_result best;
        lh_error err = {0};
        CHECK_OK(lh_scheduler_run("auto", p, NULL, &best, &err), err);
        check_best(p, &best, rows[i].ms);
        lh_scheduler_result_fini(&best);
        lh_pipeline_free(p);
    }
}

/* Rendezvous receives apply to methods and search alike. */
static void judged_as_asked(void)
{
    lh_pipeline *p = wave("memory_limit: 16\n", 8);
    lh_scheduler_options o = {.size = sizeof o};
    lh_scheduler_result best, method;
    lh_error err = {0};
    int64_t best_ns, method_ns;
    lh_evaluator *judge = NULL;
    lh_sim_options sim = {.size = sizeof sim, .receives = LH_RECEIVES_LATE};
    lh_method_options how = {.size = sizeof how, .sim = &sim};
    o.method = &how;
    CHECK_OK(lh_evaluator_make(p, &sim, &judge, &err), err);
    CHECK_OK(lh_scheduler_run("auto", p, &o, &best, &err), err);
    CHECK_OK(lh_evaluator_run(judge, best.schedule, &best_ns, &err), err);
    for (uint32_t i = 0; i + 1 < lh_n_schedulers(); i++) {
        lh_error why;
        if (lh_scheduler_run(lh_scheduler_name(i), p, &o, &method, &why) !=
            LH_OK)
            continue;
        CHECK_OK(lh_evaluator_run(judge, method.schedule, &method_ns, &err),
                 err);
        CHECK(best_ns <= method_ns ||
              strcmp(lh_scheduler_name(i), "optimal") == 0);
        lh_scheduler_result_fini(&method);
    }
    lh_scheduler_result_fini(&best);
    lh_evaluator_free(judge);
    lh_pipeline_free(p);
}

/* One send at a time and rendezvous receives: the methods' orders deadlock, and
 * so does the order found by the search, which does not model queues. A
 * schedule that runs is chosen nevertheless. */
static void what_stops_is_not_the_best(void)
{
    static const char text[] =
        "longhaul: pipeline/1\n"
        "microbatches: 4\n"
        "devices: 2\n"
        "backward: split\n"
        "uniform: {placement: loop, chunks_per_device: 2, F: 1, D: 1, W: 1}\n";
    lh_sim_options sim = {.size = sizeof sim,
                          .receives = LH_RECEIVES_LATE,
                          .override_receives = true,
                          .coupled_queue = 1};
    lh_method_options how = {.size = sizeof how, .sim = &sim};
    lh_scheduler_options o = {.size = sizeof o, .method = &how};
    lh_pipeline *p = NULL;
    lh_evaluator *judge = NULL;
    lh_scheduler_result best = {0}, searched = {0};
    lh_solution found = {0};
    lh_error err = {0};
    int64_t ns = 0;
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    CHECK_OK(lh_evaluator_make(p, &sim, &judge, &err), err);
    CHECK_OK(lh_solve(p, NULL, &found, &err), err);
    CHECK_INT(lh_evaluator_run(judge, found.schedule, &ns, NULL), LH_EDEADLOCK);
    lh_solution_fini(&found);
    CHECK_OK(lh_scheduler_run("optimal", p, &o, &searched, &err), err);
    CHECK_OK(lh_evaluator_run(judge, searched.schedule, &ns, &err), err);
    CHECK_OK(lh_scheduler_run("auto", p, &o, &best, &err), err);
    if (!test_state.bad) {
        CHECK(strcmp(best.method, "optimal") != 0);
        CHECK_OK(lh_evaluator_run(judge, best.schedule, &ns, &err), err);
        CHECK(ns >= best.bound_ns);
    }
    lh_scheduler_result_fini(&best);
    lh_scheduler_result_fini(&searched);
    lh_evaluator_free(judge);
    lh_pipeline_free(p);
}

static void refuses(void)
{
    lh_pipeline *p = wave("memory_limit: 1\n", 8);
    lh_scheduler_result best;
    lh_error err = {0};
    CHECK_INT(lh_scheduler_run("auto", p, NULL, &best, &err), LH_EINFEASIBLE);
    CHECK_INT(lh_scheduler_run("optimal", p, NULL, &best, &err),
              LH_EINFEASIBLE);
    CHECK_HAS(err.text, "infeasible");
    CHECK_INT(lh_scheduler_run("1f1b", p, NULL, &best, &err), LH_EUNSUPPORTED);
    CHECK_INT(lh_scheduler_run("none", p, NULL, &best, &err), LH_EINVAL);
    lh_scheduler_options o = {.size = 1};
    CHECK_INT(lh_scheduler_run("auto", p, &o, &best, &err), LH_EINVAL);
    lh_pipeline_free(p);
}

/* The search does not support data-parallel operations launched by passes. Then
 * auto returns the best method; if no method works, the error gives their
 * reasons. */
static void operations_leave_it_to_the_methods(void)
{
    static const char text[] =
        "longhaul: pipeline/1\n"
        "microbatches: 4\n"
        "devices: 2\n"
        "backward: joint\n"
        "uniform: {placement: loop, chunks_per_device: 2, F: 6, D: 6, W: 6}\n"
        "data_parallel:\n"
        "  operations:\n"
        "    - {chunk: 2, all_gather: 20, launch: 0F0, before: 2F0}\n";
    lh_pipeline *p = NULL;
    lh_scheduler_result best = {0};
    lh_error err = {0};
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    CHECK_INT(lh_scheduler_run("optimal", p, NULL, &best, &err),
              LH_EUNSUPPORTED);
    lh_scheduler_result_fini(&best);
    CHECK_OK(lh_scheduler_run("auto", p, NULL, &best, &err), err);
    CHECK(best.schedule && strcmp(best.method, "optimal") != 0);
    lh_scheduler_result_fini(&best);
    lh_pipeline_free(p);
}

/* The search assumes early receives. With late ones, its schedule is never
 * slower than that of a method, of which some are ranked differently. */
static void searching_never_loses_to_a_method(void)
{
    lh_sim_options late = {.size = sizeof late,
                           .receives = LH_RECEIVES_LATE,
                           .override_receives = true};
    lh_method_options how = {.size = sizeof how, .sim = &late};
    lh_scheduler_options o = {
        .size = sizeof o, .method = &how, .effort = 20000};
    lh_pipeline *p = wave("memory_limit: 16\n", 12);
    int64_t ns[2] = {0};
    for (int i = 0; i < 2; i++) {
        lh_scheduler_result best = {0};
        lh_timeline *t = NULL;
        lh_error err = {0};
        if (i)
            CHECK_OK(lh_method_run("auto", p, &how, &best.schedule, NULL, &err),
                     err);
        else
            CHECK_OK(lh_scheduler_run("optimal", p, &o, &best, &err), err);
        CHECK_OK(lh_simulate(p, best.schedule, &late, &t, &err), err);
        ns[i] = lh_timeline_makespan(t);
        lh_timeline_free(t);
        lh_scheduler_result_fini(&best);
    }
    CHECK_MSG(ns[0] <= ns[1], "optimal: %.1f ms, a method: %.1f ms",
              (double)ns[0] / 1e6, (double)ns[1] / 1e6);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(names);
    RUN(searching_wins);
    RUN(little_memory);
    RUN(judged_as_asked);
    RUN(what_stops_is_not_the_best);
    RUN(refuses);
    RUN(operations_leave_it_to_the_methods);
    RUN(searching_never_loses_to_a_method);
    return test_summary();
}
