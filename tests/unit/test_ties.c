/* SPDX-License-Identifier: Apache-2.0 */
/* The order of layouts by published practice: docs/validation.md#ties. */
#include "jobs.h"

#include <longhaul/experimental/job.h>
#include <longhaul/experimental/plan.h>

#include <string.h>

/* Two nodes of 8 GPUs; 8192 tokens per sequence. */
static lh_job *parse_job(void)
{
    static const char text[] = "longhaul: job/1\n"
                               "model: llama3-70b\n"
                               "training: {global_batch: 16, sequence: 8192}\n"
                               "cluster:\n"
                               "  gpu: h100-sxm\n"
                               "  gpus_per_node: 8\n"
                               "  node_link: {gbps: 3600, latency_us: 3}\n"
                               "  fabric: {gbps: 400, latency_us: 8}\n"
                               "  datacenters: [{name: a, nodes: 2}]\n";
    lh_error err;
    lh_job *job = NULL;

    CHECK_INT(lh_job_parse(text, strlen(text), "j.yaml", NULL, &job, &err),
              LH_OK);
    return job;
}

static lh_choice make_choice(uint32_t tensor, uint32_t pipeline,
                             uint32_t chunks, lh_recompute recompute)
{
    return (lh_choice){.layout = {.tensor = tensor,
                                  .context = 1,
                                  .expert = 1,
                                  .expert_tensor = 1,
                                  .pipeline = pipeline,
                                  .data = 16 / tensor / pipeline,
                                  .micro_batch = 1,
                                  .chunks_per_device = chunks},
                       .recompute = recompute};
}

/* Each choice is closer to practice than the next one, by one of the rules. */
static void each_rule_decides_after_the_ones_before(void)
{
    const lh_choice order[] = {
        make_choice(2, 1, 1, LH_RECOMPUTE_NONE),
        make_choice(1, 2, 1, LH_RECOMPUTE_NONE),  /* more stages */
        make_choice(1, 2, 2, LH_RECOMPUTE_NONE),  /* more chunks */
        make_choice(8, 2, 1, LH_RECOMPUTE_NONE),  /* larger product */
        make_choice(1, 1, 1, LH_RECOMPUTE_FULL),  /* full recomputation */
        make_choice(16, 1, 1, LH_RECOMPUTE_NONE), /* larger than a node */
    };
    enum { N = sizeof order / sizeof *order };
    lh_job *job = parse_job();

    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            CHECK_INT(
                lh_choice_is_closer_to_practice(job, &order[i], &order[k]),
                i < k);
    lh_job_free(job);
}

int main(void)
{
    RUN(each_rule_decides_after_the_ones_before);
    return test_summary();
}
