/* SPDX-License-Identifier: Apache-2.0 */
/* Known optima that take the solver some seconds. */
#include "solve_check.h"

static void waves_and_loops(void)
{
    for (size_t i = 0; i < sizeof solve_large_rows / sizeof *solve_large_rows;
         i++)
        solve_row_check(&solve_large_rows[i], 30000000);
}

static void live_lattices(void)
{
    for (size_t i = 0; i < sizeof solve_live_rows / sizeof *solve_live_rows;
         i++)
        solve_row_check(&solve_live_rows[i], 4000000);
}

static void many_passes(void)
{
    for (size_t i = 0; i < sizeof solve_many_rows / sizeof *solve_many_rows;
         i++)
        solve_row_check(&solve_many_rows[i], 3000000);
}

/* What a caller is told only gets better. */
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
    for (size_t i = 0;
         i < sizeof solve_long_ud_rows / sizeof *solve_long_ud_rows; i++)
        solve_row_check(&solve_long_ud_rows[i], 2000000);
}

int main(void)
{
    RUN(long_ud_pipelines);
    RUN(waves_and_loops);
    RUN(live_lattices);
    RUN(many_passes);
    RUN(progress_is_progress);
    return test_summary();
}
