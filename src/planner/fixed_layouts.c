/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/fixed_layouts.h"

#include "planner/explain/whatif.h"
#include "planner/search/plan_search.h"

enum { MAX_FULL = 2 }; /* results searched again */

/* A job, and the iteration time of its quick search. */
typedef struct fixed_layout {
    const lh_job *job;
    int64_t ns;
} fixed_layout;

/* Searches the best plan of a job with 1/`parts` of a short search's work, into
 * *there; without a plan, there->schedule is NULL. The caller frees its
 * pipeline and schedule. */
static lh_status search_job(const lh_job *job, const lh_plan_options *options,
                            uint32_t parts, lhi_arena *mem, lh_plan *there,
                            lh_error *err)
{
    lh_error why = {0};
    return lhi_plan_search_possible(job, options, parts, 0, mem, there, &why,
                                    err);
}

/* Frees a search result's pipeline and schedule. */
static void free_result(lh_plan *there)
{
    lh_pipeline_free((lh_pipeline *)there->pipeline);
    lh_schedule_free((lh_schedule *)there->schedule);
}

/* Plans the jobs by quick searches, and lists those with a plan by their
 * iteration time, least first, in found[0..*n_found-1]. */
static lh_status search_quickly(const lh_plan_options *options,
                                const lh_job *jobs, uint32_t n, lhi_arena *mem,
                                fixed_layout *found, uint32_t *n_found,
                                lh_error *err)
{
    lh_plan_options quick = *options;
    quick.quick = true;
    *n_found = 0;
    for (uint32_t i = 0; i < n; i++) {
        lh_plan there = {0};
        LHI_TRY(search_job(&jobs[i], &quick, LHI_MAX_FIXED_LAYOUTS, mem, &there,
                           err));
        if (there.schedule) {
            const int64_t ns = there.best.iteration_ns;
            uint32_t at = (*n_found)++;
            for (; at > 0 && found[at - 1].ns > ns; at--)
                found[at] = found[at - 1];
            found[at] = (fixed_layout){&jobs[i], ns};
        }
        free_result(&there);
    }
    return LH_OK;
}

lh_status lhi_plan_search_fixed(const lh_plan_options *options,
                                const lh_job *jobs, uint32_t n, lhi_arena *mem,
                                lh_plan *plan, lh_error *err)
{
    fixed_layout found[LHI_MAX_FIXED_LAYOUTS];
    uint32_t n_found;
    LHI_TRY(search_quickly(options, jobs, n, mem, found, &n_found, err));
    for (uint32_t i = 0; i < n_found && i < MAX_FULL; i++) {
        lh_plan there = {0};
        lh_status status =
            search_job(found[i].job, options, MAX_FULL, mem, &there, err);
        if (status == LH_OK && there.schedule)
            status = lhi_plan_adopt_if_better(plan->job, options, mem, &there,
                                              plan, err);
        free_result(&there);
        LHI_TRY(status);
    }
    return LH_OK;
}
