/* SPDX-License-Identifier: Apache-2.0 */
/* The solver with each allocation failing in turn. */
#include "fail_alloc.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/solve.h>

static void try_solving(uniform u, uint32_t parts)
{
    lh_pipeline *p = uniform_make(u);
    lh_solve_options o = {
        .size = sizeof o, .effort = 30000, .sub_blocks = parts};
    FAIL_EACH_ALLOC({
        lh_solution s = {0};
        lh_error err = {0};
        status = lh_solve(p, &o, &s, &err);
        CHECK(status == LH_OK || s.schedule == NULL);
        CHECK(status == LH_OK || status == LH_ENOMEM);
        lh_solution_fini(&s);
    });
    lh_pipeline_free(p);
}

static void on_ud(void)
{
    try_solving((uniform){"ud", 3, 5, 2, 3, 1, 3, 1, 3, 2, NULL}, 1);
}

static void on_loop(void)
{
    try_solving((uniform){"loop", 2, 4, 2, 3, 1, 2, 1, 3, 0, NULL}, 2);
}

static void on_wave(void)
{
    try_solving((uniform){"wave", 3, 5, 2, 3, 1, 3, 1, 2, 5, NULL}, 1);
}

int main(void)
{
    RUN(on_ud);
    RUN(on_loop);
    RUN(on_wave);
    return test_summary();
}
