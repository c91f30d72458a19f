/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/explain/found_plans.h"

#include "base/fail.h"
#include "planner/layout/choice.h"
#include "planner/layout/equivalence.h"
#include "planner/layout/link_override.h"
#include "planner/search/objective.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>
#include <stdlib.h>
#include <string.h>

/* Sets a plan candidate's makespan and the optimizer and overhead time after it
 * (after_ns), both in ns, and scales tokens/s and MFU to the new iteration
 * time. */
static void set_makespan(lh_choice *c, int64_t makespan_ns, int64_t after_ns)
{
    double before = (double)c->iteration_ns;
    c->makespan_ns = makespan_ns;
    c->overhead_ns = after_ns - c->optimizer_ns;
    c->iteration_ns = makespan_ns + after_ns;
    if (c->iteration_ns <= 0)
        return;
    c->tokens_per_s *= before / (double)c->iteration_ns;
    c->mfu *= before / (double)c->iteration_ns;
}

/* Simulates the plan's schedule on pipeline `p`. *kept: the plan's layout with
 * the new times; after_ns: optimizer and overhead time after the pipeline. */
static lh_status run_schedule(const lh_plan *plan, const lh_pipeline *p,
                              int64_t after_ns, lh_choice *kept, lh_error *err)
{
    lh_evaluator *evaluator;
    lh_bound bound;
    int64_t ns;
    LHI_TRY(lhi_compute_closed_form_bound(p, &bound, err));
    LHI_TRY(lh_evaluator_make(p, NULL, &evaluator, err));
    lh_status status = lh_evaluator_run(evaluator, plan->schedule, &ns, err);
    lh_evaluator_free(evaluator);
    LHI_TRY(status);
    set_makespan(kept, ns, after_ns);
    kept->bubble_ratio = lhi_choice_bubble_ratio(p, plan->schedule, ns);
    kept->lower_bound_ns = bound.ns + after_ns;
    return LH_OK;
}

lh_status lhi_plan_evaluate_on_job(const lh_plan *plan, const lh_job *job,
                                   lhi_arena *mem, lh_choice *kept,
                                   lh_error *err)
{
    lh_pipeline *p;
    int64_t after_ns;
    *kept = plan->best;
    kept->why = "";
    kept->jitter = NULL;
    LHI_TRY(lhi_pipeline_override_links(
        plan->job, job, &plan->best, plan->pipeline, mem, &p, &after_ns, err));
    lh_status status = run_schedule(plan, p, after_ns, kept, err);
    lh_pipeline_free(p);
    return status;
}

void lhi_found_plans_truncate(lhi_found_plans *known, uint32_t n)
{
    for (; known->n > n; known->n--) {
        const lh_plan *last = &known->all[known->n - 1];
        lh_pipeline_free((lh_pipeline *)last->pipeline);
        lh_schedule_free((lh_schedule *)last->schedule);
    }
}

void lhi_found_plans_fini(lhi_found_plans *known)
{
    lhi_found_plans_truncate(known, 0);
    free(known->all);
    *known = (lhi_found_plans){0};
}

/* Grows the pool's array by at least one entry. */
static lh_status grow_pool(lhi_found_plans *known, lh_error *err)
{
    uint32_t room = known->room ? 2 * known->room : 8;
    lh_plan *more;
    if (known->n < known->room)
        return LH_OK;
    more = realloc(known->all, room * sizeof *more);
    if (!more)
        return lhi_fail_nomem(err);
    known->all = more;
    known->room = room;
    return LH_OK;
}

/* Checks whether two schedules have the same pass order on `device`. */
static bool is_same_order(const lh_schedule *a, const lh_schedule *b,
                          uint32_t device)
{
    uint32_t n, m;
    const lh_pass *x = lh_schedule_order(a, device, &n);
    const lh_pass *y = lh_schedule_order(b, device, &m);
    for (uint32_t i = 0; i < n && n == m; i++)
        if (x[i].chunk != y[i].chunk || x[i].microbatch != y[i].microbatch ||
            x[i].part != y[i].part || x[i].n_parts != y[i].n_parts ||
            x[i].kind != y[i].kind)
            return false;
    return n == m;
}

/* Checks whether two plans are identical, so equally fast with any links.
 * Elastic plans count as different. */
static bool is_same(const lh_plan *a, const lh_plan *b)
{
    const lh_schedule *x = a->schedule, *y = b->schedule;
    uint32_t devices = lh_schedule_n_devices(x);
    if (a->best.elastic || b->best.elastic ||
        !lhi_choices_share_pipeline(&a->best, &b->best) ||
        devices != lh_schedule_n_devices(y) || lh_schedule_n_link_orders(x) ||
        lh_schedule_n_link_orders(y))
        return false;
    for (uint32_t d = 0; d < devices; d++)
        if (!is_same_order(x, y, d))
            return false;
    return true;
}

/* Checks whether the pool has a plan that is identical to `plan` by is_same(),
 * so equally fast with any links. */
static bool is_known(const lhi_found_plans *known, const lh_plan *plan)
{
    for (uint32_t i = 0; i < known->n; i++)
        if (is_same(&known->all[i], plan))
            return true;
    return false;
}

lh_status lhi_found_plans_add(lhi_found_plans *known, const lh_plan *plan,
                              lh_error *err)
{
    const bool again = is_known(known, plan);
    lh_status status = again ? LH_OK : grow_pool(known, err);
    if (status == LH_OK && !again) {
        known->all[known->n++] = (lh_plan){.job = plan->job,
                                           .best = plan->best,
                                           .pipeline = plan->pipeline,
                                           .schedule = plan->schedule};
        return LH_OK;
    }
    lh_pipeline_free((lh_pipeline *)plan->pipeline);
    lh_schedule_free((lh_schedule *)plan->schedule);
    return status;
}

lh_status lhi_found_plans_copy_choice(const lh_choice *choice, lhi_arena *mem,
                                      lh_choice *out, lh_error *err)
{
    const lh_layout *l = &choice->layout;
    const size_t n = (size_t)l->pipeline * l->chunks_per_device;
    *out = *choice;
    if (choice->cost) {
        lh_plan_cost *cost = LHI_NEW(mem, lh_plan_cost, 1);
        if (!cost)
            return lhi_fail_nomem(err);
        *cost = *choice->cost;
        out->cost = cost;
    }
    if (choice->chunk_layers) {
        uint32_t *layers = LHI_NEW(mem, uint32_t, n);
        if (!layers)
            return lhi_fail_nomem(err);
        memcpy(layers, choice->chunk_layers, n * sizeof *layers);
        out->chunk_layers = layers;
    }
    if (l->group_micro_batches) {
        const size_t groups = l->sites->n_groups;
        uint32_t *sizes = LHI_NEW(mem, uint32_t, groups);
        if (!sizes)
            return lhi_fail_nomem(err);
        memcpy(sizes, l->group_micro_batches, groups * sizeof *sizes);
        out->layout.group_micro_batches = sizes;
    }
    if (l->site_tensors) {
        uint32_t *tensors = LHI_NEW(mem, uint32_t, LH_MAX_DATACENTERS);
        if (!tensors)
            return lhi_fail_nomem(err);
        for (uint32_t dc = 0; dc < LH_MAX_DATACENTERS; dc++)
            tensors[dc] = l->tensor; /* where the plan has no stages */
        for (uint32_t i = 0; i < l->sites->groups[0].n_parts; i++) {
            const uint32_t dc = l->sites->groups[0].parts[i].datacenter;
            tensors[dc] = l->site_tensors[dc];
        }
        out->layout.site_tensors = tensors;
    }
    return lhi_copy_sites(l->sites, mem, &out->layout.sites, err);
}

lh_status lhi_found_plans_keep(lhi_found_plans *known, lhi_arena *mem,
                               const lh_plan *found, lh_error *err)
{
    lh_plan own = *found;
    const bool kept = found->schedule && !found->best.elastic;
    const lh_status status =
        kept ? lhi_found_plans_copy_choice(&found->best, mem, &own.best, err)
             : LH_OK;
    if (kept && status == LH_OK)
        return lhi_found_plans_add(known, &own, err);
    lh_pipeline_free((lh_pipeline *)found->pipeline);
    lh_schedule_free((lh_schedule *)found->schedule);
    return status;
}

lh_status lhi_found_plans_improve(const lhi_found_plans *known,
                                  const lh_plan_options *options,
                                  const lh_job *job, lhi_arena *mem,
                                  lh_choice *best, lh_error *err)
{
    for (uint32_t i = 0; i < known->n; i++) {
        lh_choice kept;
        if (known->all[i].job == job)
            continue;
        if (options->progress &&
            options->progress(options->context, i, known->n,
                              best->iteration_ns))
            break;
        lh_status status =
            lhi_plan_evaluate_on_job(&known->all[i], job, mem, &kept, err);
        if (status == LH_EUNSUPPORTED) /* times exceed a pipeline's range */
            continue;
        LHI_TRY(status);
        if (lhi_objective_value(options, &kept) <
            lhi_objective_value(options, best))
            *best = kept;
    }
    return LH_OK;
}
