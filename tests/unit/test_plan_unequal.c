/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with unequal microbatches, against brute force over the replicas and
 * sizes of small jobs. */
#include "jobs.h"
#include "plans.h"

#include "planner/layout/layout.h"
#include "planner/search/plan_search.h"
#include "planner/search/unequal_bound.h"

#include <longhaul/experimental/plan.h>
#include <string.h>

/* A small model on two datacenters whose GPUs differ by a factor `speed`, with
 * a slow link; `layout`: the job's layout. */
static lh_job *job_of_layers(unsigned layers, unsigned batch, double speed,
                             double gbps, const char *layout)
{
    return job_with(
        JOB_TWO_SITES,
        "  gpus_per_node: 2\n"
        "  datacenters:\n"
        "   - {name: west, nodes: 1, gpu: {tflops: 100, memory_gib: 40, "
        "memory_gbps: 1500, efficiency: 0.5}}\n"
        "   - {name: east, nodes: 1, gpu: {tflops: %g, memory_gib: 80, "
        "memory_gbps: 3000, efficiency: 0.5}}\n"
        "  links: [{between: [west, east], latency_ms: 20, gbps: %g}]\n"
        "model: {layers: %u, hidden: 2048, ffn: 5504, heads: 16, "
        "vocab: 32000}\n"
        "training: {global_batch: %u, sequence: 2048, zero: 1, "
        "recompute: none}\nlayout: %s\n",
        100 * speed, gbps, layers, batch, layout);
}

static lh_job *job_of(unsigned batch, double speed, double gbps,
                      const char *layout)
{
    return job_of_layers(4, batch, speed, gbps, layout);
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

/* Keys of every layout of the brute force: with ZeRO 1 and one chunk per
 * device, only the schedule is open. */
#define FIXED "tensor: 1, context: 1, chunks_per_device: 1, sharding: full"

/* Returns the best iteration of all unequal layouts, by planning each;
 * INT64_MAX: none. */
static int64_t find_by_brute_force(unsigned batch, double speed, double gbps)
{
    enum { MOST = 6 };
    int64_t best = INT64_MAX;
    for (unsigned pp = 1; pp <= 2; pp++)
        for (unsigned r = 1; r * pp <= 2; r++)
            for (unsigned q = 1; q * pp <= 2; q++)
                for (unsigned a = 1; a <= MOST; a++)
                    for (unsigned b = 1; b <= MOST; b++) {
                        char layout[300];
                        if (a == b || batch % (r * a + q * b) != 0)
                            continue;
                        snprintf(layout, sizeof layout,
                                 "{" FIXED ", pipeline: %u, sites: "
                                 "[{replicas: %u, micro_batch: %u, pipeline: "
                                 "[west]}, {replicas: %u, micro_batch: %u, "
                                 "pipeline: [east]}]}",
                                 pp, r, a, q, b);
                        lh_plan *p =
                            plan_it(job_of(batch, speed, gbps, layout));
                        if (p && p->best.iteration_ns < best)
                            best = p->best.iteration_ns;
                        lh_plan_free(p);
                    }
    return best;
}

/* The search finds the best unequal plan where it is faster than equal
 * microbatches; bounds hold. */
static void search_equals_brute_force(void)
{
    enum { BATCH = 960 };
    const double speed = 3, gbps = 5;
    const int64_t brute = find_by_brute_force(BATCH, speed, gbps);
    lh_job *job = job_of(BATCH, speed, gbps, "{" FIXED "}");
    int64_t bound = 0;
    lh_error err = {0};
    CHECK(lhi_unequal_is_searched(job, &usual));
    CHECK_OK(lhi_unequal_compute_bound(job, &bound, &err), err);
    CHECK(bound > 0 && bound <= brute);
    lh_plan *plan = plan_it(job);
    CHECK(plan->best.layout.group_micro_batches != NULL);
    CHECK(plan->best.iteration_ns <= brute + brute / 500);
    CHECK(plan->best.iteration_ns >= brute - brute / 500);
    CHECK(plan->search_bound_ns <= plan->best.iteration_ns);
    lh_plan_free(plan);
}

/* Three replicas on the slower GPUs are found, not only powers of two: with
 * two, no sizes divide the batch as well. */
static void replicas_need_not_be_a_power_of_two(void)
{
    lh_job *job = job_with(
        JOB_TWO_SITES,
        "  gpus_per_node: 2\n"
        "  datacenters:\n"
        "   - {name: west, nodes: 1, gpus_per_node: 3, gpu: {tflops: 100, "
        "memory_gib: 40, memory_gbps: 1500, efficiency: 0.5}}\n"
        "   - {name: east, nodes: 1, gpu: {tflops: 200, memory_gib: 80, "
        "memory_gbps: 3000, efficiency: 0.5}}\n"
        "  links: [{between: [west, east], latency_ms: 20, gbps: 5}]\n"
        "model: {layers: 4, hidden: 2048, ffn: 5504, heads: 16, "
        "vocab: 32000}\n"
        "training: {global_batch: 896, sequence: 2048, zero: 1, "
        "recompute: none}\nlayout: {" FIXED ", pipeline: 1}\n");
    lh_plan *plan = plan_it(job);
    const lh_layout *l = &plan->best.layout;
    CHECK(l->group_micro_batches && l->sites->n_groups == 2);
    if (l->group_micro_batches) {
        CHECK_INT(l->sites->groups[0].replicas, 3);
        CHECK_INT(l->sites->groups[1].replicas, 2);
    }
    lh_plan_free(plan);
}

/* Asks to stop as soon as there is a plan. Progress callback. */
static bool stop_with_plan(void *context, uint32_t done, uint32_t total,
                           int64_t best_ns)
{
    (void)context, (void)done, (void)total;
    return best_ns >= 0;
}

/* The bounds of a plan and of its alternatives cover unequal microbatches, also
 * if the search is stopped. */
static void bounds_cover_unequal_plans(void)
{
    for (int stops = 0; stops < 2; stops++) {
        lh_job *job = job_of(960, 3, 5, "{" FIXED "}");
        lh_plan_options options = usual;
        lh_plan *plan = NULL;
        lh_error err = {0};
        int64_t bound = 0;
        if (stops)
            options.progress = stop_with_plan;
        CHECK_OK(lhi_unequal_compute_bound(job, &bound, &err), err);
        CHECK_OK(lh_plan_make(job, &options, &plan, &err), err);
        CHECK(plan->search_bound_ns <= bound);
        for (uint32_t i = 0; i < plan->n_dimension_alternatives; i++)
            CHECK(plan->dimension_alternatives[i].bound_ns <= bound);
        lh_plan_free(plan);
        lh_job_free(job);
    }
}

/* Datacenters with a slow link between different GPUs: unequal microbatches
 * win, and the file keeps them. */
static void unequal_plans_win_and_are_kept(void)
{
    lh_plan *plan = plan_it(job_of(960, 3, 5, "{context: 1}"));
    const lh_layout *l = &plan->best.layout;
    CHECK(l->group_micro_batches != NULL);
    if (l->group_micro_batches) {
        uint64_t all = 0;
        for (uint32_t g = 0; g < l->sites->n_groups; g++) {
            CHECK(l->group_micro_batches[g] <= l->micro_batch);
            all += (uint64_t)l->sites->groups[g].replicas *
                   l->group_micro_batches[g];
        }
        CHECK(all * plan->best.microbatches == 960);
        CHECK(plan->n_alternatives > 0 &&
              plan->alternatives[0].iteration_ns > plan->best.iteration_ns);
        lh_plan *again = plan_again(plan, NULL);
        CHECK(again && again->best.layout.group_micro_batches &&
              again->best.layout.group_micro_batches[1] ==
                  l->group_micro_batches[1]);
        lh_plan_free(again);
    }
    lh_plan_free(plan);
}

/* Exchanges the sizes, each of one digit, of the first two groups in a plan's
 * text. Returns false if there are none. */
static bool exchange_sizes(char *text)
{
    static const char key[] = "\"micro_batch\": ";
    char *first = strstr(text, "\"sites\"");
    first = first ? strstr(first, key) : NULL;
    char *second = first ? strstr(first + 1, key) : NULL;
    if (!second)
        return false;
    first += strlen(key);
    second += strlen(key);
    const char size = *first;
    *first = *second;
    *second = size;
    return size != *first;
}

/* A file whose sizes were exchanged has the same batch, but another pipeline.
 */
static void exchanged_sizes_are_refused(void)
{
    static const char *const layouts[] = {
        "{" FIXED ", pipeline: 2}",
        "{" FIXED ", pipeline: 2, sites: [{replicas: 1, micro_batch: 1, "
        "pipeline: [west]}, {replicas: 1, micro_batch: 3, pipeline: [east]}]}"};
    static const char *const says[] = {
        "set micro_batch in layout.sites in the job and plan again",
        "the job's layout.sites has micro_batch 1 in group 0"};
    for (int i = 0; i < 2; i++) {
        lh_plan *plan = plan_it(job_of(960, 3, 5, layouts[i]));
        char *text = NULL;
        lh_error err = {0};
        CHECK(plan->best.layout.group_micro_batches != NULL);
        CHECK_OK(lh_plan_format(plan, &text, NULL, &err), err);
        if (text) {
            CHECK(exchange_sizes(text));
            plan_refused(text, says[i]);
        }
        lh_text_free(text);
        lh_plan_free(plan);
    }
}

/* Equal sizes in every group are the layout's micro_batch. */
static void equal_sizes_are_no_special_case(void)
{
    lh_plan *with = plan_it(job_of(
        32, 3, 10,
        "{tensor: 1, context: 1, pipeline: 2, sites: [{replicas: 1, "
        "micro_batch: 2, pipeline: [west]}, {replicas: 1, micro_batch: 2, "
        "pipeline: [east]}]}"));
    lh_plan *without = plan_it(job_of(
        32, 3, 10,
        "{tensor: 1, context: 1, pipeline: 2, micro_batch: 2, sites: "
        "[{replicas: 1, pipeline: [west]}, {replicas: 1, pipeline: [east]}]}"));
    CHECK(!with->best.layout.group_micro_batches);
    CHECK(with->best.iteration_ns == without->best.iteration_ns);
    CHECK(with->best.peak_memory_bytes == without->best.peak_memory_bytes);
    lh_plan_free(with);
    lh_plan_free(without);
}

/* Builds the pipeline of a job with one microbatch size, or `sizes`, per
 * datacenter. */
static lh_pipeline *build(const lh_job *job, uint32_t micro_batch,
                          const uint32_t *sizes)
{
    static const lh_site_stages parts[] = {{0, 2}, {1, 2}};
    static const lh_site_group groups[] = {{1, 1, &parts[0]},
                                           {1, 1, &parts[1]}};
    static const lh_sites both = {2, groups};
    const lh_layout layout = {.tensor = 1,
                              .context = 1,
                              .expert = 1,
                              .pipeline = 2,
                              .data = 2,
                              .micro_batch = micro_batch,
                              .chunks_per_device = 1,
                              .outermost = LH_OUTERMOST_DATA,
                              .sites = &both,
                              .group_micro_batches = sizes};
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_pipeline(job, &layout, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE,
                              &p, NULL, &err),
             err);
    return p;
}

/* Passes take the longest of the datacenters' own sizes, so they are no longer
 * than with the largest size everywhere and no shorter than with the smallest;
 * the fullest datacenter gives the memory. */
static void passes_and_memory_are_each_datacenters(void)
{
    static const uint32_t sizes[] = {1, 3}, turned[] = {3, 1};
    lh_job *job = job_of(48, 3, 10, "{}");
    lh_pipeline *small = build(job, 1, NULL), *large = build(job, 3, NULL),
                *fit = build(job, 3, sizes), *worst = build(job, 3, turned);
    CHECK(lh_pipeline_n_microbatches(fit) == 12);
    for (uint32_t c = 0; c < 2; c++) {
        const lh_chunk *s = lh_pipeline_chunk(small, c),
                       *l = lh_pipeline_chunk(large, c),
                       *f = lh_pipeline_chunk(fit, c),
                       *w = lh_pipeline_chunk(worst, c);
        CHECK(f->f_ns >= s->f_ns && f->f_ns < l->f_ns);
        /* the slow GPUs have the large microbatches */
        CHECK(w->f_ns == l->f_ns && w->mem_f == l->mem_f);
        CHECK(lh_pipeline_memory_limit(worst, c) ==
              lh_gpu_usable_bytes(&job->datacenters[0].gpu));
        /* three times the activations in twice the memory: the fast GPUs */
        CHECK(f->mem_f == l->mem_f);
        CHECK(lh_pipeline_memory_limit(fit, c) ==
              lh_gpu_usable_bytes(&job->datacenters[1].gpu));
    }
    lh_pipeline_free(small);
    lh_pipeline_free(large);
    lh_pipeline_free(fit);
    lh_pipeline_free(worst);
    lh_job_free(job);
}

/* Jobs that fix the microbatch, or with equal GPUs, have equal ones. */
static void some_jobs_have_none(void)
{
    static const char *const layouts[] = {"{micro_batch: 1}", "{data: 2}",
                                          "{outermost: pipeline}"};
    for (int i = 0; i < 3; i++) {
        lh_job *job = job_of(32, 3, 10, layouts[i]);
        CHECK(!lhi_unequal_is_searched(job, &usual));
        lh_job_free(job);
    }
    lh_job *equal = job_two_sites("{}", 32, 40);
    CHECK(!lhi_unequal_is_searched(equal, &usual));
    lh_job_free(equal);
}

/* Calls of progress while estimates are listed. */
typedef struct listing {
    uint32_t total, n, stop_at;
} listing;

static bool count_calls(void *context, uint32_t done, uint32_t total,
                        int64_t best_ns)
{
    listing *l = context;
    (void)done;
    (void)best_ns;
    l->n += total == l->total;
    return total == l->total && l->n >= l->stop_at;
}

/* The listing of estimates reports its progress and ends when it is asked to.
 */
static void listing_stops(void)
{
    static const uint32_t stop_at[] = {1, 3, UINT32_MAX};
    /* No other search has as many layouts as degrees and stages are listed. */
    lh_job *job = job_of_layers(31, 32, 3, 10, "{" FIXED ", schedule: 1f1b}");
    lh_error err = {0};
    for (int i = 0; i < 3; i++) {
        lhi_unequal_times *all;
        uint32_t n;
        lh_plan *plan = NULL;
        lhi_arena *mem = lhi_arena_make(0);
        listing l = {.stop_at = stop_at[i]};
        lh_plan_options o = usual;
        CHECK_OK(lhi_unequal_list_times(job, mem, &all, &n, &err), err);
        l.total = n * job->model->layers;
        o.progress = count_calls;
        o.context = &l;
        CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
        CHECK_INT(l.n, i == 2 ? l.total : stop_at[i]);
        lh_plan_free(plan);
        lhi_arena_free(mem);
    }
    lh_job_free(job);
}

int main(void)
{
    RUN(listing_stops);
    RUN(search_equals_brute_force);
    RUN(replicas_need_not_be_a_power_of_two);
    RUN(bounds_cover_unequal_plans);
    RUN(unequal_plans_win_and_are_kept);
    RUN(exchanged_sizes_are_refused);
    RUN(equal_sizes_are_no_special_case);
    RUN(passes_and_memory_are_each_datacenters);
    RUN(some_jobs_have_none);
    return test_summary();
}
