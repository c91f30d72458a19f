/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of methods: entrants, delays, order, and no leaks when memory runs
 * out. */
#include "fail_alloc.h"
#include "jobs.h"
#include "uniform.h"

#include <longhaul/experimental/compare.h>

static lh_pipeline *pipeline_of(const char *placement)
{
    return uniform_make((uniform){.placement = placement,
                                  .devices = 4,
                                  .microbatches = 8,
                                  .f = 2,
                                  .d = 2,
                                  .w = 2,
                                  .datacenters = 2,
                                  .latency = 1,
                                  .transfer = 1});
}

/* 1f1b supports only the first pipeline, zb-v only the second. */
static const char *const three[] = {"1f1b", "zb-h1", "zb-v"};

static void two_bases(void)
{
    lh_pipeline *ud = pipeline_of("ud"), *wave = pipeline_of("wave");
    const lh_compare_base bases[] = {{.name = "ud", .pipeline = ud},
                                     {"wave", wave, 5000000}};
    const double forwards[] = {0, 3};
    lh_compare_options how = {.size = sizeof how,
                              .n_methods = 3,
                              .methods = three,
                              .latency =
                                  &(lh_compare_delays){2, forwards, true}};
    lh_comparison *x = NULL;
    lh_error err = {0};
    CHECK_OK(lh_compare(2, bases, &how, &x, &err), err);
    CHECK_INT(x->n_latencies, 2);
    CHECK_INT(x->n_transfers, 1);
    CHECK_INT(x->n_contenders, 3);
    CHECK_STR(x->contenders[0].label, "1f1b ud");
    CHECK_STR(x->contenders[2].label, "zb-v wave");
    for (uint32_t i = 0; i < x->n_contenders; i++) {
        const lh_outcome *near = lh_comparison_at(x, 0, 0, i);
        const lh_outcome *far = lh_comparison_at(x, 1, 0, i);
        CHECK_INT(near->status, LH_OK);
        CHECK_INT(near->latency_ns, 0);
        /* 3 forward passes, 2 ms each */
        CHECK_INT(far->latency_ns, 3 * 2000000);
        CHECK_INT(far->transfer_ns, -1);
        CHECK(far->ns > near->ns && near->ns >= near->bound_ns);
    }
    CHECK_INT(lh_comparison_at(x, 0, 0, 2)->ns,
              lh_comparison_at(x, 0, 0, 2)->makespan_ns + 5000000);
    uint32_t ranking[3];
    lh_comparison_rank(x, 0, 0, ranking);
    for (uint32_t i = 1; i < 3; i++)
        CHECK(lh_comparison_at(x, 0, 0, ranking[i - 1])->ns <=
              lh_comparison_at(x, 0, 0, ranking[i])->ns);
    lh_comparison_free(x);
    lh_pipeline_free(ud);
    lh_pipeline_free(wave);
}

static void refused(void)
{
    lh_pipeline *ud = pipeline_of("ud");
    const lh_compare_base base = {.name = "ud", .pipeline = ud};
    lh_compare_options how = {.size = sizeof how, .by = LH_COMPARE_BY_MEAN};
    lh_comparison *x = NULL;
    lh_error err = {0};
    CHECK_INT(lh_compare(1, &base, &how, &x, &err), LH_EINVAL);
    CHECK_INT(lh_compare(0, &base, NULL, &x, &err), LH_EINVAL);
    how.by = LH_COMPARE_BY_PREDICTED;
    how.n_methods = 1;
    how.methods = &(const char *){"no such"};
    CHECK_INT(lh_compare(1, &base, &how, &x, &err), LH_EINVAL);
    CHECK(!x);
    /* A method that does not support the only base stays listed, with the
     * reason. */
    how.methods = &three[2];
    CHECK_OK(lh_compare(1, &base, &how, &x, &err), err);
    CHECK_INT(x->n_contenders, 1);
    CHECK_INT(lh_comparison_at(x, 0, 0, 0)->status, LH_EUNSUPPORTED);
    CHECK_INT(lh_comparison_at(x, 0, 0, 0)->ns, -1);
    CHECK(*lh_comparison_at(x, 0, 0, 0)->why);
    lh_comparison_free(x);
    lh_pipeline_free(ud);
}

static void memory(void)
{
    lh_pipeline *ud = pipeline_of("ud");
    const lh_compare_base base = {.name = "ud", .pipeline = ud};
    const double ns[] = {1e6};
    lh_compare_options how = {.size = sizeof how,
                              .n_methods = 3,
                              .methods = three,
                              .transfer = &(lh_compare_delays){1, ns, false}};
    lh_error err = {0};
    FAIL_EACH_ALLOC({
        lh_comparison *x = NULL;
        status = lh_compare(1, &base, &how, &x, &err);
        CHECK((status == LH_OK) == (x != NULL));
        lh_comparison_free(x);
    });
    lh_pipeline_free(ud);
}

static void plan(void)
{
    lh_job *job = job_with(JOB_SMALL, "layout: {pipeline: 2, data: 1}\n");
    lh_plan_options options = {.size = sizeof options, .no_optimal = true};
    lh_plan *made = NULL;
    lh_comparison *x = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &options, &made, &err), err);
    lh_compare_options how = {
        .size = sizeof how, .n_methods = 3, .methods = three};
    CHECK_OK(lh_compare_plan(made, &how, &x, &err), err);
    CHECK(x->iterations);
    CHECK_INT(x->n_bases + x->n_left_out, 3);
    lh_comparison_free(x);
    lh_plan_free(made);
    lh_job_free(job);
}

int main(void)
{
    RUN(two_bases);
    RUN(refused);
    RUN(memory);
    RUN(plan);
    return test_summary();
}
