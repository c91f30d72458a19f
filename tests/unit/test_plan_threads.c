/* SPDX-License-Identifier: Apache-2.0 */
/* A plan does not depend on the number of threads; when memory runs out, no
 * thread continues with less. */
#include "fail_alloc.h"
#include "jobs.h"
#include "plans.h"
#include "sanitized.h"

#include <longhaul/experimental/plan.h>
#include <pthread.h>
#include <stdlib.h>

/* Dense and MoE layers alternate. */
#define EXPERTS                                                                \
    "model: {layers: 8, hidden: 1024, ffn: 2048, heads: 8, kv_heads: 8,\n"     \
    "        vocab: 1000, experts: 8, experts_per_token: 2,\n"                 \
    "        expert_ffn: 512}\n"

static lh_job *with_experts(void)
{
    return job_with(JOB_A100S, "  datacenters: [{name: west, nodes: 2}, "
                               "{name: east, nodes: 1}]\n" EXPERTS
                               "training: {global_batch: 24, sequence: 2048}\n"
                               "layout: {tensor: 1, context: 1}\n");
}

static lh_job *dense(void)
{
    return job_with(JOB_A100S, "training: {global_batch: 8, sequence: 4096, "
                               "recompute: none, zero: 1}\n"
                               "layout: {tensor: 2, context: 1}\n");
}

/* GPUs with two speeds: layers in proportion. */
static lh_job *mixed(void)
{
    return job_with(JOB_A100S,
                    "  datacenters: [{name: west, nodes: 1}, "
                    "{name: east, nodes: 1, gpu: h100-sxm}]\n"
                    "training: {global_batch: 8, sequence: 4096, zero: 1, "
                    "recompute: full}\n"
                    "layout: {context: 1, micro_batch: 1}\n");
}

/* --- the same plan -------------------------------------------------------- */

static char *text_with(const lh_job *job, const lh_plan_options *like,
                       uint32_t threads)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    char *text = NULL;
    lh_plan_options o = *like;
    o.size = sizeof o;
    o.threads = threads;
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    if (plan)
        CHECK_OK(lh_plan_format(plan, &text, NULL, &err), err);
    lh_plan_free(plan);
    return text;
}

static void same_with(lh_job *job, const lh_plan_options *options)
{
    static const uint32_t threads[] = {3, 2, 8};
    char *first = job ? text_with(job, options, 1) : NULL;
    for (int i = 0; i < OF_CASES(3) && first; i++) {
        char *text = text_with(job, options, threads[i]);
        CHECK_MSG(text && strcmp(text, first) == 0,
                  "%u threads make another plan than one",
                  (unsigned)threads[i]);
        lh_text_free(text);
    }
    lh_text_free(first);
    lh_job_free(job);
}

static void dense_model(void)
{
    same_with(dense(),
              &(lh_plan_options){.layout_effort = 100000, .effort = 20000});
}

static void model_with_experts(void)
{
    same_with(with_experts(),
              &(lh_plan_options){.no_optimal = true, .layout_effort = 100000});
}

static void gpus_of_two_speeds(void)
{
    same_with(mixed(),
              &(lh_plan_options){.quick = true, .layout_effort = 100000});
}

static void where_effort_ends_the_search(void)
{
    same_with(with_experts(), &(lh_plan_options){.no_optimal = true,
                                                 .partition = LH_PARTITION_EVEN,
                                                 .layout_effort = 50000});
}

static void cheapest(void)
{
    same_with(dense(), &(lh_plan_options){.quick = true,
                                          .layout_effort = 100000,
                                          .objective = LH_PLAN_CHEAPEST,
                                          .usd_per_gpu_hour = 2,
                                          .usd_per_gb = 0.1});
}

static void front(void)
{
    same_with(dense(), &(lh_plan_options){.quick = true,
                                          .layout_effort = 100000,
                                          .pareto_front = true,
                                          .usd_per_gpu_hour = 2});
}

static void every_partition(void)
{
    same_with(job_with(JOB_SMALL, "layout: {micro_batch: 1}\n"),
              &(lh_plan_options){.no_optimal = true,
                                 .partition = LH_PARTITION_EXACT});
}

static void under_jitter(void)
{
    const lh_jitter jitter = {
        .size = sizeof jitter, .latency = 0.5, .samples = 5};
    same_with(job_with(JOB_SMALL, "layout: {micro_batch: 1}\n"),
              &(lh_plan_options){.no_optimal = true,
                                 .layout_effort = 100000,
                                 .jitter = &jitter});
}

static void with_other_links(void)
{
    const lh_link_change slower = {LH_ALL_LINKS, LH_ALL_LINKS, LH_LINK_LATENCY,
                                   true, 20};
    const lh_plan_whatif_question question = {"latency=x20", 1, &slower};
    same_with(dense(), &(lh_plan_options){.quick = true,
                                          .layout_effort = 100000,
                                          .n_questions = 1,
                                          .questions = &question,
                                          .sensitivity = true,
                                          .tolerance = 0.5,
                                          .range = 4});
}

/* --- callbacks ------------------------------------------------------------ */

/* Threads seen by the callbacks. */
typedef struct caller {
    pthread_t thread;
    uint32_t calls, elsewhere;
} caller;

static bool note_call(void *context)
{
    caller *c = context;
    c->calls++;
    c->elsewhere += !pthread_equal(c->thread, pthread_self());
    return false;
}

static bool progress(void *context, uint32_t done, uint32_t total,
                     int64_t best_ns)
{
    (void)done, (void)total, (void)best_ns;
    return note_call(context);
}

static bool watch(void *context, const lh_plan_progress *now)
{
    (void)now;
    return note_call(context);
}

static void progress_is_told_on_the_callers_thread(void)
{
    caller c = {.thread = pthread_self()};
    lh_job *job = dense();
    char *text = text_with(job,
                           &(lh_plan_options){.layout_effort = 100000,
                                              .effort = 1000,
                                              .progress = progress,
                                              .layout_progress = watch,
                                              .context = &c},
                           4);
    CHECK(c.calls > 10);
    CHECK_INT(c.elsewhere, 0);
    lh_text_free(text);
    lh_job_free(job);
}

/* --- out of memory -------------------------------------------------------- */

static void no_memory_with(lh_job *job, const lh_plan_options *options)
{
    bool failed = job != NULL;
    for (int64_t n = 0; failed; n += 1 + n / OF_CASES(20)) {
        lh_plan *plan = NULL;
        lh_error err = {0};
        fail_alloc_hit = false;
        fail_alloc_after = n;
        lh_status status = lh_plan_make(job, options, &plan, &err);
        fail_alloc_after = -1;
        failed = fail_alloc_hit;
        CHECK_INT(status, failed ? LH_ENOMEM : LH_OK);
        CHECK((status == LH_OK) == (plan != NULL));
        lh_plan_free(plan);
    }
    lh_job_free(job);
}

static void no_memory_on_any_thread(void)
{
    no_memory_with(job_with(JOB_SMALL, "layout: {micro_batch: 1}\n"),
                   &(lh_plan_options){.size = sizeof(lh_plan_options),
                                      .threads = 3,
                                      .effort = 1000});
}

static void no_memory_for_a_front(void)
{
    no_memory_with(job_with(JOB_SMALL, "layout: {micro_batch: 1}\n"),
                   &(lh_plan_options){.size = sizeof(lh_plan_options),
                                      .threads = 3,
                                      .quick = true,
                                      .layout_effort = 100000,
                                      .pareto_front = true,
                                      .usd_per_gpu_hour = 2});
}

int main(void)
{
    RUN(dense_model);
    RUN(model_with_experts);
    RUN(gpus_of_two_speeds);
    RUN(where_effort_ends_the_search);
    RUN(cheapest);
    RUN(front);
    RUN(every_partition);
    RUN(under_jitter);
    RUN(with_other_links);
    RUN(progress_is_told_on_the_callers_thread);
    RUN(no_memory_on_any_thread);
    RUN(no_memory_for_a_front);
    return test_summary();
}
