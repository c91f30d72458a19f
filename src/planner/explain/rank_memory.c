/* SPDX-License-Identifier: Apache-2.0 */
/* Breaks down a plan's memory: the cost model's static parts per device; the
 * remainder up to the peak is activations retained for later passes. */
#include "planner/explain/rank_memory.h"

#include "planner/elastic/pipeline.h"
#include "planner/layout/choice.h"
#include "schedule/pipeline/pipeline_internal.h"

bool lhi_rank_compute_peak_memory(const lh_pipeline *pipeline,
                                  const lh_schedule *schedule, uint32_t device,
                                  int64_t *throughout, int64_t *most)
{
    uint32_t n;
    const lh_pass *order = lh_schedule_order(schedule, device, &n);
    int64_t now = 0;
    for (uint32_t c = 0; c < pipeline->n_chunks; c++)
        if (pipeline->chunks[c].device == device)
            now += pipeline->chunks[c].mem_static;
    int64_t highest = now;
    *throughout = now;
    for (uint32_t i = 0; i < n; i++) {
        if (order[i].chunk >= pipeline->n_chunks)
            return false;
        int64_t step = lhi_pass_memory_change(&pipeline->chunks[order[i].chunk],
                                              &order[i]);
        if (step > 0 ? now > INT64_MAX - step : now < INT64_MIN - step)
            return false;
        now += step;
        highest = now > highest ? now : highest;
    }
    *most = highest;
    return true;
}

lh_status lhi_plan_explain_memory(const lh_job *job, lhi_arena *mem,
                                  lh_plan *plan, lh_error *err)
{
    lhi_config config = lhi_config_from_choice(&plan->best);
    uint32_t P = config.layout.pipeline;
    lh_plan_memory *parts = LHI_NEW(mem, lh_plan_memory, P);
    if (!parts)
        return lhi_fail_nomem(err);
    if (plan->best.elastic)
        LHI_TRY(lhi_elastic_memory(job, &config, plan->best.elastic,
                                   plan->pipeline, parts, err));
    else
        LHI_TRY(lhi_layout_memory(job, &config, parts, err));
    for (uint32_t d = 0; d < P; d++) {
        int64_t throughout = 0, most = 0;
        lhi_rank_compute_peak_memory(plan->pipeline, plan->schedule, d,
                                     &throughout, &most);
        parts[d].activations_bytes = most - throughout;
    }
    plan->n_ranks = P;
    plan->rank_memory = parts;
    return LH_OK;
}
