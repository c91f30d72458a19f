/* SPDX-License-Identifier: Apache-2.0 */
/* What-if queries: lines of changes and their effects, also when memory runs
 * out. */
#include "fail_alloc.h"
#include "test.h"

#include "report/whatif/whatif.h"
#include "schedule/pipeline/file/serialize.h"

#include <longhaul/experimental/methods.h>

#include <stdlib.h>
#include <string.h>

/* Two devices and a link each way; by hand: 0F0 until 10, arrives at 17, 1F0
 * until 27, 1B0 until 47, arrives at 54, 0B0 until 74. */
static const char two[] =
    "longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 1\ndevices: 2\n"
    "backward: joint\n"
    "uniform: {placement: ud, chunks_per_device: 1, F: 10, D: 10, W: 10, "
    "memory: {F: 2, D: 0, W: -2}}\n"
    "links:\n"
    "  - {from: 0, to: 1, latency: 4, transfer: 3, name: 'to & fro'}\n"
    "  - {from: 1, to: 0, latency: 4, transfer: 3}\n"
    "memory_limit: 2\n";

/* A pipeline, its schedule and the question about them. */
typedef struct iteration {
    lh_pipeline *pipeline;
    lh_schedule *schedule;
    lhi_whatif_base question;
} iteration;

static void iteration_make(iteration *i, const char *text)
{
    lh_error err;
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "two", &i->pipeline, &err),
             err);
    CHECK_OK(lh_method_run("1f1b", i->pipeline, NULL, &i->schedule, NULL, &err),
             err);
    i->question = (lhi_whatif_base){.pipeline = i->pipeline,
                                    .schedule = i->schedule,
                                    .method = "mine",
                                    .sim = {.size = sizeof i->question.sim}};
}

static void iteration_fini(iteration *i)
{
    lh_schedule_free(i->schedule);
    lh_pipeline_free(i->pipeline);
}

static void changes_by_hand(void)
{
    static const struct {
        const char *line;
        int64_t makespan_ns;
    } cases[] = {
        {"", 74},
        {"latency=x2", 82},
        {"latency=20ns", 106},
        {"latency=0.02us", 106},
        {"latency.to%20%26%20fro=x2", 78},
        {"latency=x3&latency.1-0=x1", 82}, /* 8 more in that direction only */
        {"latency.1-0=x1&latency=x3", 90}, /* the later change applies last */
        {"bandwidth=x0.5", 80},
        {"speed=x2", 44},
        {"speed.1=x0.5", 104},
        {"schedule=gpipe", 74},
        {"receives=late&coupled=1", 74},
        {"limit=none&latency=0", 66},
    };
    iteration two_devices;
    iteration_make(&two_devices, two);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lh_error err;
        lhi_text out = {0};
        char expected[40];
        CHECK_OK(lhi_whatif(&two_devices.question, cases[i].line, &out, &err),
                 err);
        snprintf(expected, sizeof expected, "{\"makespan\":%d,\"fits\":true",
                 (int)cases[i].makespan_ns);
        CHECK_HAS(out.data, expected);
        lhi_text_fini(&out);
    }
    iteration_fini(&two_devices);
}

static void what_a_file_has(void)
{
    iteration two_devices;
    iteration_make(&two_devices, two);
    lh_error err;
    lhi_text out = {0};
    CHECK_OK(lhi_whatif(&two_devices.question,
                        "latency.1-0=x2&bandwidth=x0.5&speed.0=x2&limit=x2&"
                        "microbatches=3&schedule=1f1b&coupled=2",
                        &out, &err),
             err);
    CHECK_HAS(out.data, "\"file\":{\"microbatches\":3,\"chunks\":[[5,5,5],"
                        "[10,10,10]],\"links\":[[4,6],[8,6]],"
                        "\"limits\":[4,4]}");
    CHECK_HAS(out.data, "\"options\":\" --schedule 1f1b --coupled 2\"");
    lhi_text_fini(&out);
    CHECK_OK(lhi_whatif_add_controls(&two_devices.question, &out, &err), err);
    CHECK_HAS(out.data, "{\"name\":\"to & fro\",\"latency\":4,\"transfer\":3}");
    lhi_text_fini(&out);
    CHECK_OK(lhi_whatif_add_row(&two_devices.question, "latency=x2", "1f1b",
                                &out, &err),
             err);
    CHECK_HAS(out.data, "\"method\":\"1f1b\",\"status\":\"ok\","
                        "\"makespan\":82");
    lhi_text_fini(&out);
    CHECK_OK(lhi_whatif_add_row(&two_devices.question, "", "zb-v", &out, &err),
             err);
    CHECK_HAS(out.data, "\"status\":\"unsupported\",\"makespan\":-1");
    lhi_text_fini(&out);
    iteration_fini(&two_devices);
}

static void memory_runs_out(void)
{
    iteration two_devices;
    lh_error err = {0};
    iteration_make(&two_devices, two);
    FAIL_EACH_ALLOC({
        lhi_text out = {0};
        status = lhi_whatif(&two_devices.question, "latency=x2&schedule=1f1b",
                            &out, &err);
        lhi_text_fini(&out);
    });
    FAIL_EACH_ALLOC({
        lhi_text out = {0};
        status = lhi_whatif_add_row(&two_devices.question, "speed=x2", "1f1b",
                                    &out, &err);
        lhi_text_fini(&out);
    });
    lhi_text numbers = {0};
    CHECK_OK(lhi_pipeline_serialize(two_devices.pipeline, &numbers, &err), err);
    FAIL_EACH_ALLOC({
        lh_pipeline *back = NULL;
        status =
            lhi_pipeline_deserialize(numbers.data, numbers.len, &back, &err);
        CHECK((status == LH_OK) == (back != NULL));
        lh_pipeline_free(back);
    });
    lhi_text_fini(&numbers);
    iteration_fini(&two_devices);
}

int main(void)
{
    RUN(changes_by_hand);
    RUN(what_a_file_has);
    RUN(memory_runs_out);
    return test_summary();
}
