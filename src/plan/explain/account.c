/* SPDX-License-Identifier: Apache-2.0 */
/* Breaks down an iteration's time: removes one cause after the other and
 * measures the saving. Each step starts from the previous pipeline, so the
 * parts add up to the iteration. If two causes overlap, the time counts for the
 * one removed last. */
#include "plan/explain/account.h"

#include "pipe/pipeline_own.h"
#include "plan/search/candidate.h"

#include <longhaul/methods.h>
#include <longhaul/simulate.h>
#include <stdlib.h>

/* Time breakdown state. */
typedef struct accountant {
    const lh_job *job;
    const lh_plan_options *options;
    lhi_arena *mem;
    const lh_plan *plan;
    lh_pipeline *free_of; /* the plan's pipeline without the removed causes */
    const lh_schedule *schedule;
    lh_schedule *own; /* NULL: the plan's schedule is in use */
    int64_t now_ns;   /* makespan with the causes removed so far */
} accountant;

/* Replaces a->free_of by the pipeline of *changed, a description of a->free_of
 * with one cause removed. */
static lh_status replace(accountant *a, const lh_pipeline_desc *changed,
                         lh_error *err)
{
    lh_pipeline *less;
    LHI_TRY(lh_pipeline_make(changed, &less, err));
    lh_pipeline_free(a->free_of);
    a->free_of = less;
    return LH_OK;
}

/* Removes the memory limits. */
static lh_status free_memory(accountant *a, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(a->free_of, &desc, err));
    desc.memory_limits = NULL;
    return replace(a, &desc, err);
}

/* Removes the data-parallel communication. */
static lh_status free_data(accountant *a, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(a->free_of, &desc, err));
    lh_chunk *chunks = LHI_NEW(a->mem, lh_chunk, desc.n_chunks);
    lh_dp_op *ops = LHI_NEW(a->mem, lh_dp_op, desc.n_dp_ops);
    if (!chunks || !ops)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < desc.n_chunks; c++) {
        chunks[c] = desc.chunks[c];
        chunks[c].all_gather_ns = chunks[c].reduce_scatter_ns = 0;
        chunks[c].dp_latency_ns = 0;
    }
    for (uint32_t i = 0; i < desc.n_dp_ops; i++) {
        ops[i] = desc.dp_ops[i];
        ops[i].transfer_ns = 0;
    }
    desc.chunks = chunks;
    desc.dp_ops = ops;
    return replace(a, &desc, err);
}

/* Removes the latency and transfer time of all messages. */
static lh_status free_messages(accountant *a, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(a->free_of, &desc, err));
    lh_link *links = LHI_NEW(a->mem, lh_link, desc.n_links);
    if (!links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < desc.n_links; i++) {
        links[i] = desc.links[i];
        links[i].latency_ns = links[i].transfer_ns = 0;
    }
    desc.links = links;
    return replace(a, &desc, err);
}

/* Removes the offloading time. */
static lh_status free_offload(accountant *a, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(a->free_of, &desc, err));
    lh_chunk *chunks = LHI_NEW(a->mem, lh_chunk, desc.n_chunks);
    if (!chunks)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < desc.n_chunks; c++) {
        chunks[c] = desc.chunks[c];
        chunks[c].offload_ns = 0;
    }
    desc.chunks = chunks;
    return replace(a, &desc, err);
}

/* Measures the time saved by the last removal under the current schedule. */
static lh_status saved(accountant *a, int64_t *ns, lh_error *err)
{
    lh_evaluator *evaluator;
    int64_t after_ns;
    LHI_TRY(lh_evaluator_make(a->free_of, NULL, &evaluator, err));
    lh_status status = lh_evaluator_run(evaluator, a->schedule, &after_ns, err);
    lh_evaluator_free(evaluator);
    LHI_TRY(status);
    *ns = after_ns < a->now_ns ? a->now_ns - after_ns : 0;
    a->now_ns -= *ns;
    return LH_OK;
}

/* Measures the time lost to memory limits: the best method's schedule without
 * limits replaces the plan's. Skips elastic plans, because their memory
 * determines the whole plan. */
static lh_status saved_by_memory(accountant *a, int64_t *ns, lh_error *err)
{
    lhi_layout_search s = {
        .job = a->job, .options = *a->options, .mem = a->mem};
    lhi_candidate c = {.config = lhi_config_of(&a->plan->best)};
    *ns = 0;
    if (a->plan->best.elastic || !a->free_of->has_limits)
        return LH_OK;
    LHI_TRY(free_memory(a, err));
    lhi_built built = {.pipeline = a->free_of};
    LHI_TRY(lhi_candidate_methods(&s, &c, &built, &a->own, NULL, NULL, err));
    if (!a->own || c.choice.makespan_ns >= a->now_ns)
        return LH_OK;
    a->schedule = a->own;
    *ns = a->now_ns - c.choice.makespan_ns;
    a->now_ns -= *ns;
    return LH_OK;
}

/* Measures the passes of the busiest device, and the average over all devices.
 */
static void measure_work(const lh_pipeline *p, lh_plan_account *out,
                         int64_t *most_ns)
{
    int64_t all = 0;
    *most_ns = 0;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        int64_t work = 0;
        for (uint32_t c = 0; c < p->n_chunks; c++)
            if (p->chunks[c].device == d)
                work += (p->chunks[c].f_ns + p->chunks[c].d_ns +
                         p->chunks[c].w_ns) *
                        p->n_microbatches;
        all += work;
        *most_ns = work > *most_ns ? work : *most_ns;
    }
    out->compute_ns = all / p->n_devices;
    out->imbalance_ns = *most_ns - out->compute_ns;
}

/* Moves `ns` per microbatch, scaled to the iteration, from the passes to *to.
 */
static void move_out(const lhi_config *config, int64_t ns, lh_plan_account *out,
                     int64_t *to)
{
    double all = (double)ns * config->microbatches / config->layout.pipeline;
    int64_t moved =
        all < (double)out->compute_ns ? (int64_t)all : out->compute_ns;
    out->compute_ns -= moved;
    *to += moved;
}

/* Measures the parts within passes: tensor, context and expert communication,
 * and the waiting for ZeRO 2 and 3 gathers and reductions. */
static lh_status measure_inside(const accountant *a, lh_plan_account *out,
                                lh_error *err)
{
    lhi_config config = lhi_config_of(&a->plan->best);
    lhi_built built;
    LHI_TRY(lhi_layout_build(a->job, &config, &built, err));
    lh_pipeline_free(built.pipeline);
    move_out(&config, built.inside_ns, out, &out->inside_ns);
    move_out(&config, built.data_ns, out, &out->data_ns);
    return LH_OK;
}

/* Removes all causes in order and fills the breakdown. */
static lh_status take_away(accountant *a, lh_plan_account *out, lh_error *err)
{
    int64_t most_ns;
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(a->plan->pipeline, &desc, err));
    LHI_TRY(lh_pipeline_make(&desc, &a->free_of, err));
    LHI_TRY(saved_by_memory(a, &out->memory_ns, err));
    LHI_TRY(free_data(a, err));
    LHI_TRY(saved(a, &out->data_ns, err));
    LHI_TRY(free_messages(a, err));
    LHI_TRY(saved(a, &out->messages_ns, err));
    if (a->free_of->offloads) {
        LHI_TRY(free_offload(a, err));
        LHI_TRY(saved(a, &out->offload_ns, err));
    }
    measure_work(a->plan->pipeline, out, &most_ns);
    out->bubble_ns = a->now_ns - most_ns;
    return measure_inside(a, out, err);
}

lh_status lhi_plan_account(const lh_job *job, const lh_plan_options *options,
                           lhi_arena *mem, lh_plan *plan, lh_error *err)
{
    accountant a = {.job = job,
                    .options = options,
                    .mem = mem,
                    .plan = plan,
                    .schedule = plan->schedule,
                    .now_ns = plan->best.makespan_ns};
    lh_plan_account *out = LHI_NEW(mem, lh_plan_account, 1);
    if (!out)
        return lhi_fail_nomem(err);
    lh_status status = take_away(&a, out, err);
    lh_schedule_free(a.own);
    lh_pipeline_free(a.free_of);
    out->optimizer_ns = plan->best.optimizer_ns;
    out->overhead_ns = plan->best.overhead_ns;
    plan->account = out;
    return status;
}
