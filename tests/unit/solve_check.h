/* SPDX-License-Identifier: Apache-2.0 */
/* Solves one row and verifies the result with code independent of the solver.
 */
#ifndef TEST_SOLVE_CHECK_H
#define TEST_SOLVE_CHECK_H

#include "solve_rows.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/check.h>
#include <longhaul/experimental/solve.h>

/* Creates the row's pipeline. */
static inline lh_pipeline *solve_row_make(const solve_row *r)
{
    return uniform_make((uniform){.placement = r->placement,
                                  .devices = r->devices,
                                  .microbatches = r->microbatches,
                                  .f = 38,
                                  .d = r->d_ms,
                                  .w = 20,
                                  .datacenters = r->datacenters,
                                  .latency = r->latency * 38,
                                  .transfer = r->transfer * 38,
                                  .memory = r->memory});
}

/* Checks that the schedule is valid and has the solution's makespan. */
static inline void solve_check(const lh_pipeline *p, const lh_solution *s)
{
    lh_error err = {0};
    lh_verdict *v = NULL;
    CHECK(s->schedule != NULL);
    if (!s->schedule)
        return;
    CHECK_OK(lh_check(p, s->schedule, &v, &err), err);
    if (v) {
        CHECK_MSG(lh_verdict_valid(v), "invalid: %s",
                  lh_verdict_violation(v, 0));
        CHECK_INT(lh_verdict_makespan(v), s->makespan_ns);
    }
    lh_verdict_free(v);
    CHECK(s->bound_ns <= s->makespan_ns);
}

/* Checks that the row is solved to optimality within this effort. */
static inline void solve_row_check(const solve_row *r, uint64_t effort)
{
    lh_pipeline *p = solve_row_make(r);
    lh_solve_options o = {.size = sizeof o, .effort = effort};
    lh_solution s = {0};
    lh_error err = {0};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    solve_check(p, &s);
    CHECK_STR(lh_solve_status_name(s.status), "optimal");
    CHECK_INT(s.makespan_ns, (int64_t)(r->optimum_ms * 1e6 + .5));
    CHECK_INT(s.bound_ns, (int64_t)(r->optimum_ms * 1e6 + .5));
    if (test_state.bad)
        fprintf(stderr, "row %s %u x %u, memory %u, %u datacenters, %g, %g\n",
                r->placement, r->devices, r->microbatches, r->memory,
                r->datacenters, r->latency, r->transfer);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

#endif
