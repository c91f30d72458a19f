/* SPDX-License-Identifier: Apache-2.0 */
/* Every method with each allocation failing in turn. */
#include "fail_alloc.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/methods.h>

static void try_methods(uniform u)
{
    lh_pipeline *p = uniform_make(u);
    lh_method_options options = {.size = sizeof options, .sub_blocks = 3};
    for (uint32_t i = 0; i < lh_n_methods(); i++) {
        const char *name = lh_method_name(i);
        lh_schedule *s = NULL;
        lh_error err = {0};
        if (lh_method_run(name, p, &options, &s, NULL, &err) != LH_OK)
            continue;
        lh_schedule_free(s);
        FAIL_EACH_ALLOC({
            s = NULL;
            status = lh_method_run(name, p, &options, &s, NULL, &err);
            CHECK((status == LH_OK) == (s != NULL));
            lh_schedule_free(s);
        });
    }
    lh_pipeline_free(p);
}

static void on_ud(void)
{
    try_methods((uniform){"ud", 3, 7, 2, 3, 1, 3, 1, 1, 0, NULL});
}

static void on_loop(void)
{
    try_methods((uniform){"loop", 3, 6, 2, 3, 1, 3, 1, 5, 0, NULL});
}

static void on_wave(void)
{
    try_methods((uniform){"wave", 3, 40, 2, 3, 1, 3, 1, 5, 6, NULL});
}

int main(void)
{
    RUN(on_ud);
    RUN(on_loop);
    RUN(on_wave);
    return test_summary();
}
