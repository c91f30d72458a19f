/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans with every allocation failing in turn. */
#include "fail_alloc.h"
#include "test.h"

#include <longhaul/elastic.h>

static const lh_elastic_op ops[] = {{40, 1}, {20, 1}, {60, 3}};
static const lh_elastic_case given = {.size = sizeof given,
                                      .stages = 2,
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
        status = lh_elastic_pipeline(&given, plan, 1, 1, &p, &err);
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
    /* Without what a first search of the paper's planner may leave out. */
    setting.given.microbatches = 2;
    FAIL_EACH_ALLOC({
        lh_elastic_best *best = NULL;
        status = lh_elastic_search_events(1, &setting, 14000, &best, &err);
        CHECK((status == LH_OK) == (best != NULL));
        lh_elastic_best_free(best);
    });
}

int main(void)
{
    RUN(plans);
    RUN(pipelines);
    RUN(files);
    RUN(searches);
    return test_summary();
}
