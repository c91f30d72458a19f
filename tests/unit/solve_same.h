/* SPDX-License-Identifier: Apache-2.0 */
/* Equal effort gives equal results for any number of threads. */
#ifndef TEST_SOLVE_SAME_H
#define TEST_SOLVE_SAME_H

#include "solve_check.h"

/* A solution's text, values and effort. */
typedef struct outcome {
    char *text;
    int64_t makespan_ns, bound_ns;
    uint64_t effort;
} outcome;

/* Solves and verifies the solution. */
static inline outcome solve_with(const lh_pipeline *p, uint64_t effort,
                                 uint32_t threads, size_t memory)
{
    lh_solve_options o = {.size = sizeof o,
                          .effort = effort,
                          .threads = threads,
                          .memory = memory};
    lh_solution s = {0};
    lh_error err = {0};
    outcome out = {0};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    solve_check(p, &s);
    if (s.schedule)
        CHECK_OK(lh_schedule_format(s.schedule, &out.text, NULL, &err), err);
    out.makespan_ns = s.makespan_ns;
    out.bound_ns = s.bound_ns;
    out.effort = s.effort;
    lh_solution_fini(&s);
    return out;
}

/* Compares one thread with each of the other thread counts. */
static inline void same_with(const uint32_t *counts, uint32_t n, uniform u,
                             uint64_t effort, size_t memory)
{
    lh_pipeline *p = uniform_make(u);
    outcome first = solve_with(p, effort, 1, memory);
    for (uint32_t i = 0; i < n; i++) {
        outcome other = solve_with(p, effort, counts[i], memory);
        CHECK_STR(other.text, first.text);
        CHECK_INT(other.makespan_ns, first.makespan_ns);
        CHECK_INT(other.bound_ns, first.bound_ns);
        CHECK_INT((int64_t)other.effort, (int64_t)first.effort);
        lh_text_free(other.text);
    }
    lh_text_free(first.text);
    lh_pipeline_free(p);
}

/* Returns a pipeline that is hard to solve. */
static inline uniform hard(uint32_t devices, uint32_t microbatches)
{
    return (uniform){.placement = "ud",
                     .devices = devices,
                     .microbatches = microbatches,
                     .f = 38,
                     .d = 48,
                     .w = 20,
                     .datacenters = 2,
                     .latency = 38,
                     .transfer = 76,
                     .memory = devices / 2};
}

#endif
