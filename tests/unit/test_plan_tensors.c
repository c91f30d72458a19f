/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with different tensor degrees per datacenter, against plans of every
 * pair of degrees and against the pipelines with one degree. */
#include "jobs.h"
#include "plans.h"

#include "planner/layout/layout.h"
#include "planner/search/unequal_bound.h"

#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/size.h>
#include <string.h>

/* A small model on one node of four GPUs and, over a fast link, four nodes of
 * one GPU with a slow network; `layout`: the job's layout. */
static lh_job *job_of(const char *layout)
{
    return job_with(
        JOB_TWO_SITES,
        "  gpu: {tflops: 100, memory_gib: 40, memory_gbps: 1500, "
        "efficiency: 0.5}\n"
        "  fabric: {gbps: 25, latency_us: 20}\n"
        "  datacenters:\n"
        "   - {name: west, nodes: 1, gpus_per_node: 4}\n"
        "   - {name: east, nodes: 4, gpus_per_node: 1}\n"
        "  links: [{between: [west, east], latency_ms: 0.1, gbps: 400}]\n"
        "model: {layers: 12, hidden: 2048, ffn: 5504, heads: 16, "
        "vocab: 32000}\n"
        "training: {global_batch: 8, sequence: 2048, zero: 1, "
        "recompute: none}\nlayout: %s\n",
        layout);
}

static const lh_plan_options usual = {
    .size = sizeof usual, .no_optimal = true, .layout_effort = LITTLE_WORK};

/* Plans a job and frees it. NULL: nothing fits. */
static lh_plan *plan_it(lh_job *job)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_status status = lh_plan_make(job, &usual, &plan, &err);
    CHECK(status == LH_OK || status == LH_EINFEASIBLE);
    lh_job_free(job);
    return plan;
}

/* Keys of every layout of the brute force: the schedule, the layer partition
 * and the packing are open. */
#define FIXED "context: 1, chunks_per_device: 1, micro_batch: 1, data: 1"

/* Formats a layout with `p` and `q` stages of tensor degrees `t` and `u` in
 * west and east; `turned`: east comes first. */
static void format_layout(char text[300], unsigned p, unsigned t, unsigned q,
                          unsigned u, bool turned)
{
    char west[80], east[80];
    snprintf(west, sizeof west, "{datacenter: west, stages: %u, tensor: %u}", p,
             t);
    snprintf(east, sizeof east, "{datacenter: east, stages: %u, tensor: %u}", q,
             u);
    snprintf(text, 300,
             "{" FIXED ", sites: [{replicas: 1, pipeline: [%s, %s]}]}",
             turned ? east : west, turned ? west : east);
}

/* The search is at least as fast as every pair of different degrees that uses
 * all GPUs, and a plan with different degrees is the fastest. The file keeps
 * the degrees; the bound covers the plan. */
static void search_equals_brute_force(void)
{
    int64_t best = INT64_MAX;
    char layout[300];
    for (unsigned t = 1; t <= 4; t *= 2)
        for (unsigned u = 1; u <= 4; u *= 2)
            for (int turned = 0; t != u && turned < 2; turned++) {
                format_layout(layout, 4 / t, t, 4 / u, u, turned == 1);
                lh_plan *p = plan_it(job_of(layout));
                if (p && p->best.iteration_ns < best)
                    best = p->best.iteration_ns;
                lh_plan_free(p);
            }
    lh_plan *uniform = plan_it(job_of("{" FIXED "}"));
    lh_plan *plan = plan_it(job_of("{tensor: per-datacenter, " FIXED "}"));
    const lh_layout *l = &plan->best.layout;
    CHECK(best < uniform->best.iteration_ns);
    CHECK(strstr(plan->best.why, "faster than with one degree") != NULL);
    CHECK(!strstr(uniform->best.why, "per datacenter"));
    CHECK(plan->best.iteration_ns <= best + best / 500);
    CHECK(plan->search_bound_ns <= plan->best.iteration_ns);
    CHECK(l->site_tensors != NULL);
    if (l->site_tensors) {
        CHECK(lh_plan_gpus(plan) == 8);
        lh_plan *again = plan_again(plan, NULL);
        CHECK(again && again->best.layout.site_tensors &&
              again->best.layout.site_tensors[0] == l->site_tensors[0]);
        lh_plan_free(again);
    }
    lh_plan_free(uniform);
    lh_plan_free(plan);
}

/* Builds a pipeline with two stages in each datacenter; `tensors` NULL: with
 * one tensor degree. */
static lh_pipeline *build(const lh_job *job, uint32_t tensor,
                          const uint32_t *tensors)
{
    static const lh_site_stages parts[] = {{0, 2}, {1, 2}};
    static const lh_site_group group = {1, 2, parts};
    static const lh_sites both = {1, &group};
    const lh_layout layout = {.tensor = tensor,
                              .context = 1,
                              .expert = 1,
                              .pipeline = 4,
                              .data = 1,
                              .micro_batch = 1,
                              .chunks_per_device = 1,
                              .outermost = LH_OUTERMOST_PIPELINE,
                              .sites = &both,
                              .site_tensors = tensors};
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_pipeline(job, &layout, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE,
                              &p, NULL, &err),
             err);
    return p;
}

/* Every stage has the passes and memory of a pipeline with its degree
 * everywhere; a message to another degree has the rate of the fewer GPUs. */
static void stages_are_those_of_their_degree(void)
{
    static const uint32_t tensors[] = {2, 1};
    lh_job *job = job_of("{}");
    lh_pipeline *two = build(job, 2, NULL), *one = build(job, 1, NULL),
                *both = build(job, 1, tensors);
    for (uint32_t c = 0; c < 4; c++) {
        const lh_chunk *want = lh_pipeline_chunk(c < 2 ? two : one, c),
                       *has = lh_pipeline_chunk(both, c);
        CHECK_INT(has->f_ns, want->f_ns);
        CHECK_INT(has->d_ns, want->d_ns);
        CHECK_INT(has->w_ns, want->w_ns);
        CHECK_INT(has->mem_f, want->mem_f);
        CHECK_INT(has->mem_static, want->mem_static);
    }
    CHECK_INT(lh_pipeline_n_links(both), lh_pipeline_n_links(one));
    for (uint32_t i = 0; i < lh_pipeline_n_links(both); i++) {
        const lh_link *has = lh_pipeline_link(both, i);
        const bool in_west = has->from < 2 && has->to < 2;
        const lh_link *want = lh_pipeline_link(in_west ? two : one, i);
        CHECK_INT(has->transfer_ns, want->transfer_ns);
        CHECK_INT(has->latency_ns, want->latency_ns);
    }
    lh_pipeline_free(two);
    lh_pipeline_free(one);
    lh_pipeline_free(both);
    lh_job_free(job);
}

/* Layers of 64 values gain nothing from several GPUs: the plan has one degree,
 * and states that others were tried. */
static void a_search_without_gain_is_stated(void)
{
    lh_plan *plan = plan_it(
        job_with(JOB_TWO_SITES,
                 "  datacenters:\n"
                 "   - {name: west, nodes: 1, gpus_per_node: 2}\n"
                 "   - {name: east, nodes: 2, gpus_per_node: 1}\n"
                 "  links: [{between: [west, east], latency_ms: 0.1, gbps: "
                 "400}]\n"
                 "model: {layers: 4, hidden: 64, ffn: 128, heads: 4, vocab: "
                 "256}\n"
                 "training: {global_batch: 8, sequence: 32, zero: 1}\n"
                 "layout: {tensor: per-datacenter, " FIXED "}\n"));
    CHECK(!plan->best.layout.site_tensors);
    CHECK(strstr(plan->best.why, "tried, not faster than one degree") != NULL);
    lh_plan_free(plan);
}

/* Equal degrees in every datacenter are the layout's tensor. */
static void equal_degrees_are_no_special_case(void)
{
    char layout[300];
    format_layout(layout, 2, 2, 2, 2, false);
    lh_plan *with = plan_it(job_of(layout));
    lh_plan *without = plan_it(
        job_of("{tensor: 2, " FIXED ", sites: [{replicas: 1, pipeline: "
               "[{datacenter: west, stages: 2}, {datacenter: east, stages: "
               "2}]}]}"));
    CHECK(!with->best.layout.site_tensors);
    CHECK_INT(with->best.iteration_ns, without->best.iteration_ns);
    lh_plan_free(with);
    lh_plan_free(without);
}

/* Exchanges the tensor degrees 2 and 1 of the two parts of the layout that
 * follows `section` in a plan's text. */
static void exchange_degrees(char *text, const char *section)
{
    static const char key[] = "\"tensor\": ";
    char *own = text ? strstr(text, section) : NULL;
    char *sites = own ? strstr(own, "\"sites\"") : NULL;
    char *first = sites ? strstr(sites, key) : NULL;
    char *second = first ? strstr(first + 1, key) : NULL;
    CHECK(second && first[strlen(key)] == '2' && second[strlen(key)] == '1');
    if (second) {
        first[strlen(key)] = '1';
        second[strlen(key)] = '2';
    }
}

/* A file whose degrees were exchanged uses as many GPUs, and is refused: in the
 * layout, and in the job that it is a plan of. */
static void exchanged_degrees_are_refused(void)
{
    static const struct {
        const char *section, *error;
    } edits[] = {
        {"\n \"layout\": ", "idle[0].gpus: is 2, but the layout leaves 0"},
        {"\n \"job\": ", "layout.sites: the job's layout has tensor 1 in "
                         "datacenter west"},
    };
    char layout[300];
    format_layout(layout, 2, 2, 2, 1, false);
    lh_plan *plan = plan_it(job_of(layout));
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        lh_error err = {0};
        char *text = NULL;
        CHECK_OK(lh_plan_format(plan, &text, NULL, &err), err);
        exchange_degrees(text, edits[i].section);
        plan_refused(text, edits[i].error);
        lh_text_free(text);
    }
    lh_plan_free(plan);
}

/* Jobs that the search with different degrees does not support are refused. */
static void the_request_is_refused_where_it_has_no_effect(void)
{
    static const char why[] = "layout.tensor: per-datacenter requires two to "
                              "four datacenters that differ";
    for (int i = 0; i < 2; i++) {
        lh_plan_options options = usual;
        lh_job *job = job_of(i ? "{tensor: per-datacenter, outermost: data}"
                               : "{tensor: per-datacenter, " FIXED "}");
        lh_plan *plan = NULL;
        lh_error err = {0};
        if (!i)
            options.objective = LH_PLAN_CHEAPEST;
        CHECK_INT(lh_plan_make(job, &options, &plan, &err), LH_EUNSUPPORTED);
        CHECK(strstr(err.text, why) != NULL);
        lh_job_free(job);
    }
}

/* A size keeps the request only with both datacenters. */
static void sizes_with_one_datacenter_have_one_degree(void)
{
    static const uint32_t nodes[][2] = {{1, 0}, {1, 3}};
    lh_job *job = job_of("{tensor: per-datacenter, " FIXED "}");
    for (int i = 0; i < 2; i++) {
        lh_job *sized = NULL;
        lh_error err = {0};
        CHECK_OK(lh_size_job(job, nodes[i], &sized, &err), err);
        CHECK(sized && sized->layout.tensor_per_site == (i == 1));
        lh_job_free(sized);
    }
    lh_job_free(job);
}

int main(void)
{
    RUN(sizes_with_one_datacenter_have_one_degree);
    RUN(the_request_is_refused_where_it_has_no_effect);
    RUN(stages_are_those_of_their_degree);
    RUN(search_equals_brute_force);
    RUN(a_search_without_gain_is_stated);
    RUN(equal_degrees_are_no_special_case);
    RUN(exchanged_degrees_are_refused);
    return test_summary();
}
