/* SPDX-License-Identifier: Apache-2.0 */
/* The engine with every allocation failing in turn, in all ranks from then
 * on: plans are refused, runs end. */
#include "fail_alloc.h"
#include "test.h"

#include <longhaul/engine.h>
#include <longhaul/methods.h>

static const char text[] =
    "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 3\ndevices: 2\n"
    "uniform: {placement: wave, F: 1, D: 1, W: 1}\n"
    "datacenters: {count: 2, latency: 5, transfer: 2}\n";

static lh_pipeline *pipeline;
static lh_schedule *schedule;

static void plans(void)
{
    for (int receives = 0; receives < 3; receives++) {
        lh_exec_options o = {.size = sizeof o,
                             .receives = (lh_receives)receives};
        lh_error err = {0};
        FAIL_EACH_ALLOC({
            lh_exec *x = NULL;
            status = lh_exec_make(pipeline, schedule, &o, &x, &err);
            CHECK((status == LH_OK) == (x != NULL));
            lh_exec_free(x);
        });
    }
}

static void runs(void)
{
    for (int receives = 0; receives < 2; receives++) {
        lh_exec_options o = {.size = sizeof o,
                             .receives = (lh_receives)receives};
        lh_exec *x = NULL;
        lh_error err = {0};
        CHECK_OK(lh_exec_make(pipeline, schedule, &o, &x, &err), err);
        int64_t n = 0;
        do {
            lh_train_options with = {.size = sizeof with, .steps = 2};
            lh_train_result *r = NULL;
            fail_alloc_hit = false;
            fail_alloc_after = n++;
            lh_status status = lh_train_timed(pipeline, x, &with, &r, &err);
            fail_alloc_after = -1;
            CHECK((status == LH_OK) == (r != NULL));
            CHECK(fail_alloc_hit || status == LH_OK);
            CHECK(status == LH_OK || err.text[0]);
            lh_train_result_free(r);
        } while (fail_alloc_hit && n < 5000);
        CHECK(n > 20 && n < 5000);
        lh_exec_free(x);
    }
}

int main(void)
{
    lh_error err;
    if (lh_pipeline_parse(text, strlen(text), "test", &pipeline, &err) !=
            LH_OK ||
        lh_method_run("zb-v", pipeline, NULL, &schedule, NULL, &err) != LH_OK)
        return 1;
    RUN(plans);
    RUN(runs);
    lh_schedule_free(schedule);
    lh_pipeline_free(pipeline);
    return test_summary();
}
