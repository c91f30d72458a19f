/* SPDX-License-Identifier: Apache-2.0 */
/* Large Waves whose optima only multilevel tuning finds. The optima equal the
 * bound that test_kind_lattice.c derives for the last device. */
#include "solve_check.h"

static void large_waves(void)
{
    static const solve_row rows[] = {
        {"wave", 16, 32, 32, 48, 2, .25, .25, 3878},
        {"wave", 32, 64, 64, 48, 2, .25, .25, 7718},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        solve_row_check(&rows[i], 40000000);
}

int main(void)
{
    RUN(large_waves);
    return test_summary();
}
