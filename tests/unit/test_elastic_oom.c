/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans with each allocation failing in turn. */
#include "fail_alloc.h"
#include "jobs.h"
#include "planner/elastic/pipeline.h"
#include "plans.h"

#include <longhaul/experimental/elastic.h>
#include <longhaul/experimental/plan.h>
#include <string.h>

static const lh_elastic_op ops[] = {{40, 1}, {20, 1}, {60, 3}};
static const lh_elastic_case given = {.stages = 2,
                                      .replicas = 4,
                                      .chunks = 6,
                                      .microbatches = 5,
                                      .f_ns = 20,
                                      .b_ns = 40,
                                      .dp_ns = 100,
                                      .pp_ns = 1,
                                      .params = 1000};

static void plans(void)
{
    lh_error err = {0};
    FAIL_EACH_ALLOC({
        lh_elastic_plan *plan = NULL;
        status = lh_elastic_plan_queue(&given, 3, &plan, &err);
        CHECK((status == LH_OK) == (plan != NULL));
        lh_elastic_plan_free(plan);
    });
    FAIL_EACH_ALLOC({
        lh_elastic_choice *choice = NULL;
        status = lh_elastic_choose(&given, 3, ops, 14000, LH_ELASTIC_LARGEST,
                                   &choice, &err);
        CHECK((status == LH_OK) == (choice != NULL));
        lh_elastic_choice_free(choice);
    });
}

static void pipelines(void)
{
    lh_error err = {0};
    lh_elastic_plan *plan = NULL;
    CHECK_OK(lh_elastic_plan_queue(&given, 3, &plan, &err), err);
    if (!plan)
        return;
    FAIL_EACH_ALLOC({
        lh_pipeline *p = NULL;
        status = lhi_elastic_pipeline(&given, plan, 1, 1, &p, &err);
        CHECK((status == LH_OK) == (p != NULL));
        lh_pipeline_free(p);
    });
    FAIL_EACH_ALLOC({
        int64_t ns;
        status = lh_elastic_event_time(&given, plan, 1, &ns, &err);
    });
    lh_elastic_plan_free(plan);
}

static void files(void)
{
    static const char text[] =
        "{longhaul: pipeline/1, microbatches: 4, devices: 2, backward: joint, "
        "uniform: {placement: loop, chunks_per_device: 2, F: 6, D: 12, W: 0}, "
        "data_parallel: {elastic: {enqueue: [2, 2], dequeue: [2, 2], transfer: "
        "20, gradients: 1, buckets: {scatter: 2}}}}";
    lh_error err = {0};
    FAIL_EACH_ALLOC({
        lh_pipeline *p = NULL;
        char *again = NULL;
        status = lh_pipeline_parse(text, sizeof text - 1, "t", &p, &err);
        if (status == LH_OK)
            status = lh_pipeline_format(p, &again, NULL, &err);
        lh_text_free(again);
        lh_pipeline_free(p);
    });
}

static void searches(void)
{
    lh_elastic_setting setting = {.given = given, .n_ops = 3, .ops = ops};
    lh_error err = {0};
    /* Without options that the paper's planner may skip in a first search. */
    setting.given.microbatches = 2;
    FAIL_EACH_ALLOC({
        lh_elastic_search_result *best = NULL;
        status = lh_elastic_search_events(1, &setting, 14000, &best, &err);
        CHECK((status == LH_OK) == (best != NULL));
        lh_elastic_search_result_free(best);
    });
}

/* Elastic plans of a job and their alternatives: a spread of allocations,
 * denser at the beginning. */
static void plans_of_jobs(void)
{
    lh_job *job = job_with(
        JOB_SMALL,
        "  gpus_per_node: 2\n"
        "  links: [{between: [west, east], latency_ms: 1, gbps: 10}]\n"
        "model: {layers: 8, hidden: 1024, ffn: 4096, heads: 8, kv_heads: 8,\n"
        "        head_dim: 128, vocab: 100}\n"
        "layout: {tensor: 1, pipeline: 2, data: 2, micro_batch: 1,\n"
        "         outermost: data}\n");
    lh_error err = {0};
    lh_plan_options o = {.size = sizeof o,
                         .layout_effort = LITTLE_WORK / 100,
                         .no_optimal = true};
    if (!job)
        return;
    bool failed = true, elastic = false;
    for (int64_t n = 0; failed; n += 1 + n / 20) {
        lh_plan *plan = NULL;
        fail_alloc_hit = false;
        fail_alloc_after = n;
        lh_status status = lh_plan_make(job, &o, &plan, &err);
        fail_alloc_after = -1;
        failed = fail_alloc_hit;
        CHECK_INT(status, failed ? LH_ENOMEM : LH_OK);
        CHECK((status == LH_OK) == (plan != NULL));
        for (uint32_t i = 0; plan && i < plan->n_methods; i++)
            elastic = elastic || plan->methods[i].elastic;
        lh_plan_free(plan);
    }
    CHECK(elastic);
    lh_job_free(job);
}

int main(void)
{
    RUN(plans);
    RUN(pipelines);
    RUN(files);
    RUN(searches);
    RUN(plans_of_jobs);
    return test_summary();
}
