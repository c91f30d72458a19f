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
    return test_summary();
}
