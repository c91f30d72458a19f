/* SPDX-License-Identifier: Apache-2.0 */
/* The best plan that leaves more memory free. A short search of the job with a
 * larger memory reserve competes with the plan and its alternatives that leave
 * as much free anyway. A result that is better than the plan replaces it. */
#include "planner/margin.h"

#include "base/fail.h"
#include "base/integer_math.h"
#include "planner/explain/whatif.h"
#include "planner/search/objective.h"
#include "planner/search/plan_search.h"

#include <math.h>
#include <string.h>

/* Returns a GPU's memory margin in bytes: `gib` GiB plus `percent` of its
 * memory. */
static int64_t compute_margin(const lh_plan_margin *margin, const lh_gpu *gpu)
{
    return (int64_t)ceil(margin->gib * 0x1p30 +
                         margin->percent / 100 * (double)gpu->memory_bytes);
}

/* Adds the plan's memory margin to the reserved memory of every GPU type in
 * sites[0..n-1]. */
static void reserve_margin(const lh_plan_margin *margin, uint32_t n,
                           lh_datacenter *sites)
{
    for (uint32_t i = 0; i < n; i++) {
        lh_gpu *gpu = &sites[i].gpu;
        const int64_t bytes = compute_margin(margin, gpu);
        const int64_t reserve = gpu->memory_bytes - lh_gpu_usable_bytes(gpu);
        gpu->reserve_percent = 0;
        gpu->reserve_gib = (double)(reserve + bytes) / 0x1p30;
    }
}

/* Returns the largest memory margin that applies to any GPU type of the job, in
 * bytes. */
static int64_t compute_largest_margin(const lh_plan_margin *margin,
                                      const lh_job *job)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        most = lhi_max_int64(most,
                             compute_margin(margin, &job->datacenters[i].gpu));
    return most;
}

/* Checks whether a plan candidate is feasible and leaves `margin` bytes free.
 * Always false with unequal microbatches, whose memory is known for one
 * datacenter only: another one may have fewer bytes free. */
static bool leaves_free(const lh_choice *choice, int64_t margin)
{
    return choice->status == LH_CHOICE_OK &&
           !choice->layout.group_micro_batches &&
           choice->memory_limit_bytes - choice->peak_memory_bytes >= margin;
}

/* Replaces *best by plan candidate `choice` if that leaves `margin` bytes free
 * and has a better objective value (time or cost). */
static void keep_if_better(const lh_plan_options *options,
                           const lh_choice *choice, int64_t margin,
                           const lh_choice **best)
{
    if (leaves_free(choice, margin) &&
        (!*best || lhi_objective_value(options, choice) <
                       lhi_objective_value(options, *best)))
        *best = choice;
}

/* Converts memory limit `limit` of a GPU in `sites` (the job's datacenters with
 * the margin reserved) to that GPU's limit in the job, without the margin. */
static int64_t remove_margin(const lh_job *job, const lh_datacenter *sites,
                             int64_t limit)
{
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        if (lh_gpu_usable_bytes(&sites[i].gpu) == limit)
            return lh_gpu_usable_bytes(&job->datacenters[i].gpu);
    return limit;
}

lh_status lhi_plan_search_with_margin(const lh_plan_options *options,
                                      lhi_arena *mem, lh_plan *plan,
                                      lh_error *err)
{
    const uint32_t n = plan->job->n_datacenters;
    if (!(options->margin_percent > 0 || options->margin_gib > 0))
        return LH_OK;
    lh_plan_margin *out = LHI_NEW(mem, lh_plan_margin, 1);
    lh_datacenter *sites = LHI_NEW(mem, lh_datacenter, n);
    lh_choice *found = LHI_NEW(mem, lh_choice, 1);
    if (!out || !sites || !found)
        return lhi_fail_nomem(err);
    *out = (lh_plan_margin){.percent = options->margin_percent,
                            .gib = options->margin_gib};
    plan->margin = out;
    if (leaves_free(&plan->best, compute_largest_margin(out, plan->job)))
        return LH_OK;
    memcpy(sites, plan->job->datacenters, n * sizeof *sites);
    reserve_margin(out, n, sites);
    lh_job job = *plan->job;
    job.datacenters = sites;
    lh_plan there = {0};
    lh_error why = {0};
    LHI_TRY(
        lhi_plan_search_possible(&job, options, 1, 0, mem, &there, &why, err));
    if (!there.schedule)
        return LH_OK;
    *found = there.best;
    found->memory_limit_bytes =
        remove_margin(plan->job, sites, found->memory_limit_bytes);
    found->why = "";
    out->best = found;
    /* Under jitter the plan is not the one with the best time without. */
    lh_status status = LH_OK;
    if (!options->jitter)
        status = lhi_plan_adopt_if_better(plan->job, options, mem, &there, plan,
                                          err);
    lh_pipeline_free((lh_pipeline *)there.pipeline);
    lh_schedule_free((lh_schedule *)there.schedule);
    return status;
}

lh_status lhi_plan_finish_margin(const lh_plan_options *options, lhi_arena *mem,
                                 lh_plan *plan, lh_error *err)
{
    lh_plan_margin *out = (lh_plan_margin *)plan->margin;
    if (!out)
        return LH_OK;
    const int64_t margin = compute_largest_margin(out, plan->job);
    if (leaves_free(&plan->best, margin)) {
        out->best = &plan->best;
    } else {
        for (uint32_t i = 0; i < plan->n_methods; i++)
            keep_if_better(options, &plan->methods[i], margin, &out->best);
        for (uint32_t i = 0; i < plan->n_alternatives; i++)
            keep_if_better(options, &plan->alternatives[i], margin, &out->best);
    }
    if (!out->best)
        return LH_OK;
    lh_choice *best = LHI_NEW(mem, lh_choice, 1);
    if (!best)
        return lhi_fail_nomem(err);
    *best = *out->best;
    best->why = "";
    out->best = best;
    return LH_OK;
}
