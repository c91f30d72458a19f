/* SPDX-License-Identifier: Apache-2.0 */
/* Breaks down an iteration's time: removes one cause after the other and
 * measures the saving. Each step starts from the previous pipeline, so the
 * parts add up to the iteration. If two causes overlap, the time counts for the
 * one removed last. */
#include "planner/explain/breakdown.h"

#include "planner/search/candidate.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/pipeline/schedule_internal.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/simulate.h>
#include <stdlib.h>

/* Time breakdown state. */
typedef struct breakdown {
    const lh_job *job;
    const lh_plan_options *options;
    lhi_arena *mem;
    const lh_plan *plan;
    lh_pipeline *reduced; /* the plan's pipeline without the removed causes */
    const lh_schedule *schedule;
    lh_schedule *unlimited_schedule; /* NULL: the plan's schedule is in use */
    int64_t now_ns; /* makespan with the causes removed so far */
} breakdown;

/* Replaces a->reduced (the plan's pipeline after removal of some delay causes)
 * by the pipeline that *changed describes. */
static lh_status replace_reduced(breakdown *a, const lh_pipeline_desc *changed,
                                 lh_error *err)
{
    lh_pipeline *less;
    LHI_TRY(lh_pipeline_make(changed, &less, err));
    lh_pipeline_free(a->reduced);
    a->reduced = less;
    return LH_OK;
}

/* Removes the memory limits from the reduced pipeline (the plan's pipeline
 * without some delay causes). */
static lh_status remove_memory_limits(breakdown *a, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(a->reduced, &desc, err));
    desc.memory_limits = NULL;
    return replace_reduced(a, &desc, err);
}

/* Removes the data-parallel communication from the reduced pipeline (the plan's
 * pipeline without some delay causes). */
static lh_status remove_data_traffic(breakdown *a, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(a->reduced, &desc, err));
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
    desc.dp_links = NULL; /* operations do not queue behind messages */
    desc.chunks = chunks;
    desc.dp_ops = ops;
    return replace_reduced(a, &desc, err);
}

/* Removes the latency and transfer time of all messages from the reduced
 * pipeline (the plan's pipeline without some delay causes). */
static lh_status remove_messages(breakdown *a, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(a->reduced, &desc, err));
    lh_link *links = LHI_NEW(a->mem, lh_link, desc.n_links);
    if (!links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < desc.n_links; i++) {
        links[i] = desc.links[i];
        links[i].latency_ns = links[i].transfer_ns = 0;
    }
    desc.links = links;
    return replace_reduced(a, &desc, err);
}

/* Removes the offloading time from the reduced pipeline (the plan's pipeline
 * without some delay causes). */
static lh_status remove_offload(breakdown *a, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(a->reduced, &desc, err));
    lh_chunk *chunks = LHI_NEW(a->mem, lh_chunk, desc.n_chunks);
    if (!chunks)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < desc.n_chunks; c++) {
        chunks[c] = desc.chunks[c];
        chunks[c].offload_ns = 0;
    }
    desc.chunks = chunks;
    return replace_reduced(a, &desc, err);
}

/* Simulates the current schedule on the reduced pipeline, after one more delay
 * cause was removed. *ns: time saved against the previous simulation. */
static lh_status measure_saving(breakdown *a, int64_t *ns, lh_error *err)
{
    lh_evaluator *evaluator;
    int64_t after_ns;
    LHI_TRY(lh_evaluator_make(a->reduced, NULL, &evaluator, err));
    lh_status status = lh_evaluator_run(evaluator, a->schedule, &after_ns, err);
    lh_evaluator_free(evaluator);
    LHI_TRY(status);
    *ns = after_ns < a->now_ns ? a->now_ns - after_ns : 0;
    a->now_ns -= *ns;
    return LH_OK;
}

/* Measures the time lost to memory limits, in ns: runs the best method's
 * schedule without limits rather than the plan's. Skips elastic plans, because
 * their memory determines the whole plan. */
static lh_status measure_memory_saving(breakdown *a, int64_t *ns, lh_error *err)
{
    lhi_layout_search s = {
        .job = a->job, .options = *a->options, .mem = a->mem};
    lhi_candidate c = {.config = lhi_config_from_choice(&a->plan->best)};
    *ns = 0;
    if (a->plan->best.elastic || !a->reduced->has_limits)
        return LH_OK;
    LHI_TRY(remove_memory_limits(a, err));
    lhi_built_layout built = {.pipeline = a->reduced};
    LHI_TRY(lhi_candidate_run_methods(&s, &c, &built, &a->unlimited_schedule,
                                      NULL, NULL, err));
    if (!a->unlimited_schedule || c.choice.makespan_ns >= a->now_ns)
        return LH_OK;
    a->schedule = a->unlimited_schedule;
    *ns = a->now_ns - c.choice.makespan_ns;
    a->now_ns -= *ns;
    return LH_OK;
}

/* Computes the mean compute time over all devices and the load imbalance
 * (busiest device above the mean) into *out, in ns; *most_ns: the busiest
 * device's compute time. */
static void measure_work(const lh_pipeline *p, const lh_schedule *schedule,
                         lh_plan_breakdown *out, int64_t *most_ns)
{
    int64_t all = 0;
    *most_ns = 0;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        int64_t work = -lhi_schedule_measure_overlap(schedule, p, d);
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

/* Moves a part of the compute time in *out to another part of the breakdown,
 * *to. `ns`: the part's time for one microbatch, summed over all devices; at
 * most all compute time is moved. */
static void move_to_part(const lhi_config *config, int64_t ns,
                         lh_plan_breakdown *out, int64_t *to)
{
    double all = (double)ns * config->microbatches / config->layout.pipeline;
    int64_t moved =
        all < (double)out->compute_ns ? (int64_t)all : out->compute_ns;
    out->compute_ns -= moved;
    *to += moved;
}

/* Moves the times within passes out of the compute time: tensor, context and
 * expert communication, and the waiting for ZeRO 2 and 3 gathers and
 * reductions. */
static lh_status measure_communication(const breakdown *a,
                                       lh_plan_breakdown *out, lh_error *err)
{
    lhi_config config = lhi_config_from_choice(&a->plan->best);
    lhi_built_layout built;
    LHI_TRY(lhi_layout_build(a->job, &config, &built, err));
    lh_pipeline_free(built.pipeline);
    move_to_part(&config, built.communication_ns, out, &out->intra_layer_ns);
    move_to_part(&config, built.zero_wait_ns, out, &out->data_ns);
    return LH_OK;
}

/* Removes the causes of delay (memory limits, data-parallel communication,
 * messages and others) from the pipeline one after another, and fills the
 * breakdown with the time that each removal saves. */
static lh_status remove_causes(breakdown *a, lh_plan_breakdown *out,
                               lh_error *err)
{
    int64_t most_ns;
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(a->plan->pipeline, &desc, err));
    LHI_TRY(lh_pipeline_make(&desc, &a->reduced, err));
    LHI_TRY(measure_memory_saving(a, &out->memory_stall_ns, err));
    LHI_TRY(remove_data_traffic(a, err));
    LHI_TRY(measure_saving(a, &out->data_ns, err));
    LHI_TRY(remove_messages(a, err));
    LHI_TRY(measure_saving(a, &out->messages_ns, err));
    if (a->reduced->offloads) {
        LHI_TRY(remove_offload(a, err));
        LHI_TRY(measure_saving(a, &out->offload_ns, err));
    }
    measure_work(a->plan->pipeline, a->schedule, out, &most_ns);
    out->bubble_ns = a->now_ns - most_ns;
    return measure_communication(a, out, err);
}

lh_status lhi_plan_explain_time(const lh_job *job,
                                const lh_plan_options *options, lhi_arena *mem,
                                lh_plan *plan, lh_error *err)
{
    breakdown a = {.job = job,
                   .options = options,
                   .mem = mem,
                   .plan = plan,
                   .schedule = plan->schedule,
                   .now_ns = plan->best.makespan_ns};
    lh_plan_breakdown *out = LHI_NEW(mem, lh_plan_breakdown, 1);
    if (!out)
        return lhi_fail_nomem(err);
    lh_status status = remove_causes(&a, out, err);
    lh_schedule_free(a.unlimited_schedule);
    lh_pipeline_free(a.reduced);
    out->optimizer_ns = plan->best.optimizer_ns;
    out->overhead_ns = plan->best.overhead_ns;
    plan->breakdown = out;
    return status;
}
