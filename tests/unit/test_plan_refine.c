/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with searched schedules: never slower than the methods', reproducible,
 * and with a consistent bound. */
#include "jobs.h"
#include "planner/search/search_budget.h"
#include "plans.h"
#include "sanitized.h"

#include <inttypes.h>
#include <longhaul/check.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/scheduler.h>
#include <math.h>
#include <stdlib.h>

/* Effort for jobs whose fastest schedule is one of the methods'. */
enum { LITTLE = 40000 };

static lh_job *job_of(const char *schedule)
{
    return job_with(
        JOB_A100S,
        "  links: [{between: [west, east], latency_ms: 20, gbps: 20}]\n"
        "training: {global_batch: 96, sequence: 4096, zero: 1}\n"
        "layout: {tensor: 2, pipeline: 8, data: 1, micro_batch: 4%s%s}\n",
        schedule ? ", schedule: " : "", schedule ? schedule : "");
}

static lh_plan *make(const lh_job *job, bool no_optimal, uint64_t effort)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_plan_options o = {
        .size = sizeof o, .no_optimal = no_optimal, .effort = effort};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    return plan;
}

static void check_plan(const lh_plan *p)
{
    const lh_choice *b = &p->best;
    lh_verdict *v = NULL;
    lh_error err = {0};
    CHECK(b->lower_bound_ns <= b->iteration_ns);
    CHECK_INT(b->iteration_ns,
              b->makespan_ns + b->optimizer_ns + b->overhead_ns);
    CHECK_STR(p->methods[0].layout.schedule, b->layout.schedule);
    CHECK_INT(p->methods[0].iteration_ns, b->iteration_ns);
    for (uint32_t i = 1; i < p->n_methods; i++)
        CHECK(p->methods[i].status != LH_CHOICE_OK ||
              p->methods[i].iteration_ns >= b->iteration_ns);
    for (uint32_t i = 0; i < p->n_alternatives; i++)
        CHECK(p->alternatives[i].status != LH_CHOICE_OK ||
              p->alternatives[i].iteration_ns >= b->iteration_ns);
    CHECK_OK(lh_check(p->pipeline, p->schedule, &v, &err), err);
    CHECK(v && lh_verdict_valid(v));
    CHECK(v && lh_verdict_makespan(v) == b->makespan_ns);
    CHECK_INT(lh_schedule_n_link_orders(p->schedule), 0);
    lh_verdict_free(v);
}

static void check_text(const lh_plan *p, const char *part)
{
    char *text = NULL;
    lh_plan_free(plan_again(p, &text));
    CHECK_HAS(text, part);
    lh_text_free(text);
}

/* Checks that a gap that contradicts the bound is rejected in the text of a
 * plan, which is changed. */
static void check_wrong_gap(char *text)
{
    lh_plan *other = NULL;
    lh_error err = {0};
    char *at = text ? strstr(text, "\"gap\": ") : NULL;
    CHECK(at);
    if (!at)
        return;
    at[7] = '9';
    CHECK_INT(lh_plan_parse(text, strlen(text), "p", &other, &err), LH_EINPUT);
    CHECK_HAS(err.text, "schedule.gap: does not match lower_bound_ns");
}

static void finds_faster_schedules(void)
{
    lh_job *job = job_of(NULL);
    lh_plan *plain = make(job, true, LITTLE), *plan = make(job, false, LITTLE);
    lh_plan *again = make(job, false, LITTLE);
    check_plan(plain);
    check_plan(plan);
    CHECK(plan->best.iteration_ns <= plain->best.iteration_ns);
    CHECK(plan->best.lower_bound_ns >= plain->best.lower_bound_ns ||
          plan->best.iteration_ns < plain->best.iteration_ns);
    CHECK_HAS(plan->best.why,
              "no schedule of this layout and layer partition is");
    char *a = NULL, *b = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_format(plan, &a, NULL, &err), err);
    CHECK_OK(lh_plan_format(again, &b, NULL, &err), err);
    CHECK_STR(a, b);
    check_wrong_gap(b);
    lh_text_free(a);
    lh_text_free(b);
    check_text(plan, plan->best.iteration_ns == plan->best.lower_bound_ns
                         ? "\"status\": \"optimal\",\n  \"gap\": 0.0"
                         : "\"status\": \"feasible\",\n  \"gap\": ");
    lh_plan_free(plain);
    lh_plan_free(plan);
    lh_plan_free(again);
    lh_job_free(job);
}

/* A job's own schedule is kept; "optimal" is a valid one. */
static void keeps_what_is_asked_for(void)
{
    lh_job *job = job_of("1f1b");
    lh_plan *plan = make(job, false, LITTLE);
    CHECK_STR(plan->best.layout.schedule, "1f1b");
    lh_plan_free(plan);
    lh_job_free(job);
    job = job_of("optimal");
    plan = make(job, false, LITTLE);
    check_plan(plan);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* Plans an input file, with these degrees given unless they are NULL. */
static lh_plan *plan_file_with(const char *path, const lh_layout *degrees,
                               const lh_plan_options *options)
{
    lh_plan *plan = NULL;
    lh_job *job = NULL;
    lh_error err = {0};
    CHECK_OK(lh_job_read(path, &job, &err), err);
    if (job && degrees) {
        job->layout.tensor = degrees->tensor;
        job->layout.context = degrees->context;
        if (job->model->experts > 0)
            job->layout.expert = degrees->expert;
        job->layout.pipeline = degrees->pipeline;
        job->layout.data = degrees->data;
        job->layout.micro_batch = degrees->micro_batch;
    }
    if (job)
        CHECK_OK(lh_plan_make(job, options, &plan, &err), err);
    lh_job_free(job);
    return plan;
}

static lh_plan *plan_file(const char *path, const lh_layout *degrees)
{
    const lh_plan_options o = {.size = sizeof o};
    return plan_file_with(path, degrees, &o);
}

/* The plan's own degrees lead to one that is as fast. In the first job the
 * methods on the best layout are 10 % slower than the solver. In the second the
 * head's datacenter matters. In the others the partition with the fastest
 * method has a slower schedule than others, and the one with the fastest
 * schedule has a bound 0.5 % below it. */
static void own_degrees_have_the_same_partition(void)
{
    static const char *const paths[] = {
        TEST_DATA "/planner/one-site-8-gpus.json",
        TEST_DATA "/planner/three-sites-6-gpus.yaml",
        TEST_DATA "/planner/two-sites-12-gpus.json",
        TEST_DATA "/planner/two-sites-50ms.json",
        TEST_DATA "/planner/four-sites-experts.json",
        TEST_DATA "/planner/four-sites-lossy.json",
        TEST_DATA "/planner/two-sites-70-nodes.json"};
    for (size_t i = 0; i < (FEW_CASES ? 2 : sizeof paths / sizeof *paths);
         i++) {
        lh_plan *open = plan_file(paths[i], NULL);
        lh_plan *fixed = open ? plan_file(paths[i], &open->best.layout) : NULL;
        CHECK(fixed);
        if (fixed) {
            const double a = (double)open->best.iteration_ns;
            const double b = (double)fixed->best.iteration_ns;
            CHECK_MSG(fabs(a / b - 1) <= 0.002,
                      "%s: %.6f s, %.6f s with its degrees", paths[i], a / 1e9,
                      b / 1e9);
            check_plan(open);
            check_plan(fixed);
            CHECK(i > 0 || lh_scheduler_is_search(fixed->best.layout.schedule));
        }
        lh_plan_free(open);
        lh_plan_free(fixed);
    }
}

/* An alternative's degrees lead to no faster plan: the partition of each close
 * alternative is climbed from as many starts as if it were the only one, and
 * the neighbours of an alternative 0.03 % behind are solved as the plan's. */
static void alternatives_are_climbed(void)
{
    static const struct {
        const char *path;
        lh_layout degrees;
    } cases[] = {{TEST_DATA "/planner/one-site-49-nodes.yaml",
                  {.tensor = 1,
                   .context = 2,
                   .pipeline = 3,
                   .data = 8,
                   .micro_batch = 1}},
                 {TEST_DATA "/planner/two-sites-56-gpus.yaml",
                  {.tensor = 1,
                   .context = 8,
                   .pipeline = 7,
                   .data = 1,
                   .micro_batch = 1}}};
    for (size_t i = 0; i < (FEW_CASES ? 1 : 2); i++) {
        lh_plan *open = plan_file(cases[i].path, NULL);
        lh_plan *fixed = plan_file(cases[i].path, &cases[i].degrees);
        CHECK(open && fixed);
        if (open && fixed)
            CHECK_MSG((double)open->best.iteration_ns <=
                          1.002 * (double)fixed->best.iteration_ns,
                      "%s: %.6f s, %.6f s with the degrees", cases[i].path,
                      (double)open->best.iteration_ns / 1e9,
                      (double)fixed->best.iteration_ns / 1e9);
        lh_plan_free(open);
        lh_plan_free(fixed);
    }
}

/* If the layout with the least bound is slow under a slow method, other layouts
 * are tried: here those with two chunks per rank, of which the one with 10
 * ranks leaves a node idle. */
static void other_layouts_are_tried_under_slow_methods(void)
{
    static const char path[] = TEST_DATA "/planner/two-sites-22-gpus.yaml";
    const lh_layout degrees = {.pipeline = 10};
    lh_plan *open = plan_file(path, NULL);
    lh_plan *fixed = plan_file(path, &degrees);
    CHECK(open && fixed);
    if (open && fixed)
        CHECK_MSG((double)open->best.iteration_ns <=
                      1.002 * (double)fixed->best.iteration_ns,
                  "%.6f s, %.6f s with 10 ranks",
                  (double)open->best.iteration_ns / 1e9,
                  (double)fixed->best.iteration_ns / 1e9);
    lh_plan_free(open);
    lh_plan_free(fixed);
}

/* Twice the bandwidth of the first link does not lead to a slower plan. */
static void more_bandwidth_is_not_slower(void)
{
    static const char path[] = TEST_DATA "/planner/four-sites-5-gpus.json";
    lh_plan *open = plan_file(path, NULL), *wider = NULL;
    lh_job *job = NULL;
    lh_error err = {0};
    CHECK_OK(lh_job_read(path, &job, &err), err);
    if (job) {
        const uint32_t n = job->n_datacenters;
        lh_wan *wans = (lh_wan *)job->wans;
        wans[1].bytes_per_s *= 2;
        wans[n].bytes_per_s *= 2;
        CHECK_OK(lh_plan_make(job, NULL, &wider, &err), err);
    }
    CHECK(open && wider);
    if (open && wider)
        CHECK((double)wider->best.iteration_ns <=
              1.002 * (double)open->best.iteration_ns);
    lh_plan_free(open);
    lh_plan_free(wider);
    lh_job_free(job);
}

/* With equal GPUs and no traffic between sites the cheapest partition is the
 * fastest one. */
static void searches_partitions_for_cost(void)
{
    const lh_layout degrees = {
        .tensor = 1, .context = 2, .pipeline = 3, .data = 1, .micro_batch = 1};
    lh_plan_options o = {.size = sizeof o,
                         .objective = LH_PLAN_CHEAPEST,
                         .usd_per_gpu_hour = 2,
                         .usd_per_gb = 0.02};
    lh_plan *plan = plan_file_with(TEST_DATA "/planner/two-sites-12-gpus.json",
                                   &degrees, &o);
    CHECK(plan);
    if (plan) {
        char part[80];
        const double gap = plan->best.cost->usd / plan->search_bound_usd - 1;
        CHECK_MSG(plan->best.iteration_ns < 938000000, "%" PRId64 " ns",
                  plan->best.iteration_ns);
        snprintf(part, sizeof part, "at most %.1f %% cheaper", 100 * gap);
        CHECK_HAS(plan->best.why, part);
    }
    lh_plan_free(plan);
}

/* The work for layouts is 75 units per unit of effort. At the default effort of
 * 400,000 it doubles after a gain alone; a larger effort's additional work
 * needs none. */
static void work_above_the_default_needs_no_gain(void)
{
    const uint64_t whole = 75 * UINT64_C(400000);
    const lh_plan_options plain = {.size = sizeof plain};
    const lh_plan_options less = {.size = sizeof less, .effort = 100000};
    const lh_plan_options more = {.size = sizeof more, .effort = 1600000};
    CHECK(lhi_may_double_work(&plain, whole - 1, true));
    CHECK(!lhi_may_double_work(&plain, whole, true));
    CHECK(!lhi_may_double_work(&plain, 1, false));
    CHECK(lhi_may_double_work(&less, whole / 4 - 1, true));
    CHECK(!lhi_may_double_work(&less, 1, false));
    CHECK(lhi_may_double_work(&more, 4 * whole - 1, true));
    CHECK(lhi_may_double_work(&more, 3 * whole - 1, false));
    CHECK(!lhi_may_double_work(&more, 3 * whole, false));
    CHECK_INT(lhi_scale_by_effort(&plain, 100000), 100000);
    CHECK_INT(lhi_scale_by_effort(&less, 100000), 100000);
    CHECK_INT(lhi_scale_by_effort(&more, 100000), 400000);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "regressions") == 0) { /* minutes */
        RUN(alternatives_are_climbed);
        RUN(more_bandwidth_is_not_slower);
        RUN(searches_partitions_for_cost);
        return test_summary();
    }
    RUN(work_above_the_default_needs_no_gain);
    RUN(finds_faster_schedules);
    RUN(keeps_what_is_asked_for);
    RUN(own_degrees_have_the_same_partition);
    RUN(other_layouts_are_tried_under_slow_methods);
    return test_summary();
}
