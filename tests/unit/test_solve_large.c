/* SPDX-License-Identifier: Apache-2.0 */
/* Known optima that take the solver some seconds. */
#include "sanitized.h"
#include "solve_check.h"

/* Checks all rows, or only the first where few cases run. */
static void check_rows(const solve_row *rows, size_t n, uint64_t effort)
{
    for (size_t i = 0; i < n; i += FEW_CASES ? n : 1)
        solve_row_check(&rows[i], effort);
}

#define CHECK_ROWS(rows, effort)                                               \
    check_rows(rows, sizeof(rows) / sizeof *(rows), effort)

static void waves_and_loops(void)
{
    CHECK_ROWS(solve_large_rows, 30000000);
}

static void live_lattices(void)
{
    CHECK_ROWS(solve_live_rows, 4000000);
}

static void many_passes(void)
{
    CHECK_ROWS(solve_many_rows, 3000000);
}

/* Checks that the reported progress never gets worse. */
static bool compare(void *context, const lh_solve_progress *now)
{
    lh_solve_progress *last = context;
    CHECK_MSG(now->bound_ns >= last->bound_ns, "bound %g ms after %g ms",
              (double)now->bound_ns / 1e6, (double)last->bound_ns / 1e6);
    CHECK(last->best_ns < 0 || now->best_ns <= last->best_ns);
    *last = *now;
    return false;
}

static void progress_is_progress(void)
{
    lh_pipeline *p = solve_row_make(&solve_live_rows[0]);
    lh_solve_progress last = {.best_ns = -1};
    lh_solve_options o = {.size = sizeof o,
                          .effort = 3000000,
                          .progress = compare,
                          .context = &last};
    lh_solution s = {0};
    lh_error err = {0};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

static void long_ud_pipelines(void)
{
    CHECK_ROWS(solve_long_ud_rows, 2000000);
}

int main(void)
{
    RUN(long_ud_pipelines);
    RUN(waves_and_loops);
    RUN(live_lattices);
    RUN(many_passes);
    if (!FEW_CASES) /* a row already solved above */
        RUN(progress_is_progress);
    return test_summary();
}
