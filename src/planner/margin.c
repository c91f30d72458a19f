/* SPDX-License-Identifier: Apache-2.0 */
/* The best plan that leaves more memory free. A short search of the job with a
 * larger memory reserve competes with the plan and its alternatives that leave
 * as much free anyway. */
#include "planner/margin.h"

#include "base/fail.h"
#include "base/integer_math.h"
#include "planner/explain/whatif.h"
#include "planner/layout/choice.h"
#include "planner/search/objective.h"

#include <math.h>
#include <string.h>

/* Returns a GPU's memory margin in bytes: `gib` GiB plus `percent` of its
 * memory. */
static int64_t compute_margin(const lh_plan_margin *margin, const lh_gpu *gpu)
{
    return (int64_t)ceil(margin->gib * 0x1p30 +
                         margin->percent / 100 * (double)gpu->memory_bytes);
}

/* Adds the memory margin to every GPU's reserve in `sites`. Returns the largest
 * margin in bytes. */
static int64_t reserve_margin(const lh_plan_margin *margin, uint32_t n,
                              lh_datacenter *sites)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        lh_gpu *gpu = &sites[i].gpu;
        const int64_t bytes = compute_margin(margin, gpu);
        const int64_t reserve = gpu->memory_bytes - lh_gpu_usable_bytes(gpu);
        gpu->reserve_percent = 0;
        gpu->reserve_gib = (double)(reserve + bytes) / 0x1p30;
        most = lhi_max_int64(most, bytes);
    }
    return most;
}

/* Replaces *best by `choice` if it leaves `margin` bytes free and has a better
 * objective value. */
static void keep_if_better(const lh_plan_options *options,
                           const lh_choice *choice, int64_t margin,
                           const lh_choice **best)
{
    if (choice->status == LH_CHOICE_OK &&
        choice->memory_limit_bytes - choice->peak_memory_bytes >= margin &&
        (!*best || lhi_objective_value(options, choice) <
                       lhi_objective_value(options, *best)))
        *best = choice;
}

/* Searches the best plan for `job`, whose memory reserve includes the margin;
 * *found is NULL if nothing fits. Raises the memory limit of *found by `margin`
 * bytes, back to that without margin. */
static lh_status search_with_margin(const lh_plan_options *options,
                                    const lh_job *job, int64_t margin,
                                    lhi_arena *mem, lh_choice **found,
                                    lh_error *err)
{
    lh_plan there = {0};
    lh_error why = {0};
    *found = NULL;
    const lh_status status =
        lhi_plan_search_short(job, options, 1, mem, &there, &why);
    lh_pipeline_free((lh_pipeline *)there.pipeline);
    lh_schedule_free((lh_schedule *)there.schedule);
    if (status == LH_EINFEASIBLE || lhi_layout_is_infeasible(status))
        return LH_OK;
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    *found = LHI_NEW(mem, lh_choice, 1);
    if (!*found)
        return lhi_fail_nomem(err);
    **found = there.best;
    (*found)->memory_limit_bytes += margin;
    return LH_OK;
}

lh_status lhi_plan_find_margin(const lh_plan_options *options, lhi_arena *mem,
                               lh_plan *plan, lh_error *err)
{
    const uint32_t n = plan->job->n_datacenters;
    if (!(options->margin_percent > 0 || options->margin_gib > 0))
        return LH_OK;
    lh_plan_margin *out = LHI_NEW(mem, lh_plan_margin, 1);
    lh_datacenter *sites = LHI_NEW(mem, lh_datacenter, n);
    lh_choice *best = LHI_NEW(mem, lh_choice, 1), *found;
    if (!out || !sites || !best)
        return lhi_fail_nomem(err);
    *out = (lh_plan_margin){.percent = options->margin_percent,
                            .gib = options->margin_gib};
    memcpy(sites, plan->job->datacenters, n * sizeof *sites);
    const int64_t margin = reserve_margin(out, n, sites);
    lh_job job = *plan->job;
    job.datacenters = sites;
    keep_if_better(options, &plan->best, margin, &out->best);
    if (!out->best) {
        LHI_TRY(search_with_margin(options, &job, margin, mem, &found, err));
        out->best = found;
        for (uint32_t i = 0; i < plan->n_methods; i++)
            keep_if_better(options, &plan->methods[i], margin, &out->best);
        for (uint32_t i = 0; i < plan->n_alternatives; i++)
            keep_if_better(options, &plan->alternatives[i], margin, &out->best);
    }
    if (out->best) {
        *best = *out->best;
        best->why = "";
        out->best = best;
    }
    plan->margin = out;
    return LH_OK;
}
