/* SPDX-License-Identifier: Apache-2.0 */
/* Compares with measured layouts. A profile's times apply only to the layouts
 * it measured; all others are modelled, and may win because the model is
 * optimistic. If the plan's layout is not measured, this reports the times of
 * the measured ones: short searches, each with one profile entry's degrees. */
#include "planner/explain/unmeasured.h"

#include "base/fail.h"
#include "model/profile_lookup.h"
#include "planner/explain/whatif.h"
#include "planner/layout/choice.h"
#include "planner/search/objective.h"

#include <longhaul/experimental/cost.h>
#include <string.h>

/* Sets the degree *open to `value` if it is 0 (not fixed). Returns false if it
 * is fixed to another value. */
static bool set_or_compare(uint32_t *open, uint32_t value)
{
    if (*open && *open != value)
        return false;
    *open = value;
    return true;
}

/* Sets the layout's degrees to a profile entry's; for an entry with whole
 * chunks, also `chunks` per device. Returns false if the job fixes other
 * degrees. */
static bool set_degrees(const lh_profile_entry *e, uint32_t chunks,
                        lh_layout *l)
{
    if (!set_or_compare(&l->tensor, e->tensor) ||
        !set_or_compare(&l->context, e->context) ||
        !set_or_compare(&l->micro_batch, e->micro_batch))
        return false;
    if ((e->kind == LH_PROFILE_MOE_LAYER || e->kind == LH_PROFILE_CHUNK) &&
        !set_or_compare(&l->expert, e->expert))
        return false;
    return e->kind != LH_PROFILE_CHUNK ||
           (set_or_compare(&l->chunks_per_device, chunks) &&
            set_or_compare(&l->pipeline, e->n_chunks / chunks));
}

/* Checks whether two layouts have equal degrees, microbatch size and chunk
 * count; ignores replicas. */
static bool have_same_degrees(const lh_layout *x, const lh_layout *y)
{
    return x->tensor == y->tensor && x->context == y->context &&
           x->expert == y->expert && x->micro_batch == y->micro_batch &&
           x->pipeline == y->pipeline &&
           x->chunks_per_device == y->chunks_per_device;
}

/* Appends a layout to `list` and increments *n, unless the list has one with
 * equal degrees, microbatch size and chunk count. */
static void add_layout(const lh_layout *l, lh_layout *list, uint32_t *n)
{
    for (uint32_t i = 0; i < *n; i++)
        if (have_same_degrees(&list[i], l))
            return;
    list[(*n)++] = *l;
}

/* Counts the layouts that a profile entry may belong to; for an entry with
 * whole chunks, one per possible chunk count. */
static uint32_t count_layouts(const lh_profile_entry *e)
{
    if (e->kind == LH_PROFILE_LAYER || e->kind == LH_PROFILE_MOE_LAYER)
        return 1;
    return e->kind == LH_PROFILE_CHUNK && e->chunk == 0 ? e->n_chunks : 0;
}

/* Lists the layouts allowed by the job whose pass times its profile measured,
 * into *out (n entries in `mem`); *n_entries: profile entries that match the
 * job. */
static lh_status list_layouts(const lh_job *job, lhi_arena *mem,
                              uint32_t *n_entries, lh_layout **out, uint32_t *n,
                              lh_error *err)
{
    const lh_profile *p = job->profile;
    size_t room = 1;
    for (uint32_t i = 0; i < p->n_entries; i++)
        if (lhi_measurement_matches_job(job, &p->entries[i]))
            room += count_layouts(&p->entries[i]);
    *out = LHI_NEW(mem, lh_layout, room);
    if (!*out)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_entries; i++) {
        const lh_profile_entry *e = &p->entries[i];
        if (!lhi_measurement_matches_job(job, e))
            continue;
        ++*n_entries;
        for (uint32_t chunks = 1; chunks <= count_layouts(e); chunks++) {
            lh_layout l = job->layout;
            if ((e->kind != LH_PROFILE_CHUNK || e->n_chunks % chunks == 0) &&
                set_degrees(e, chunks, &l))
                add_layout(&l, *out, n);
        }
    }
    return LH_OK;
}

/* Checks whether a cost source name means profile times, alone or mixed with
 * the model. */
static bool is_measured(const char *source)
{
    return strcmp(source, lh_cost_source_name(LH_COST_PROFILE)) == 0 ||
           strcmp(source, lh_cost_source_name(LH_COST_MIXED)) == 0;
}

/* Searches the best plan with this layout's degrees, with 1/`parts` of the
 * search work of a --what-if question. It replaces *best if its pass times come
 * from the profile and its objective value is better. */
static lh_status evaluate_layout(const lh_plan_options *options,
                                 const lh_plan *plan, const lh_layout *layout,
                                 uint32_t parts, lhi_arena *mem,
                                 lh_choice *best, lh_error *err)
{
    lh_job job = *plan->job;
    lh_plan found = {0};
    lh_error why = {0};
    job.layout = *layout;
    lh_status status =
        lhi_plan_search_short(&job, options, parts, 0, mem, &found, &why);
    if (status == LH_OK && is_measured(found.cost_source) &&
        (best->iteration_ns == 0 || lhi_objective_value(options, &found.best) <
                                        lhi_objective_value(options, best)))
        *best = found.best;
    lh_pipeline_free((lh_pipeline *)found.pipeline);
    lh_schedule_free((lh_schedule *)found.schedule);
    if (status == LH_OK || status == LH_EINFEASIBLE ||
        lhi_layout_is_infeasible(status))
        return LH_OK;
    if (err)
        *err = why;
    return status;
}

lh_status lhi_plan_compare_measured(const lh_plan_options *options,
                                    lhi_arena *mem, lh_plan *plan,
                                    lh_error *err)
{
    const lh_job *job = plan->job;
    lh_layout *layouts;
    uint32_t n = 0;
    if (!job->profile || !job->profile->n_entries ||
        is_measured(plan->cost_source))
        return LH_OK;
    lh_plan_unmeasured *out = LHI_NEW(mem, lh_plan_unmeasured, 1);
    lh_choice *best = LHI_NEW(mem, lh_choice, 1);
    if (!out || !best)
        return lhi_fail_nomem(err);
    LHI_TRY(list_layouts(job, mem, &out->n_entries, &layouts, &n, err));
    for (uint32_t i = 0; i < n; i++)
        LHI_TRY(evaluate_layout(options, plan, &layouts[i], n, mem, best, err));
    if (best->iteration_ns > 0) {
        best->why = "";
        out->fastest = best;
    }
    plan->unmeasured = out;
    return LH_OK;
}
