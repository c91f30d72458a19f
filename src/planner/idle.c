/* SPDX-License-Identifier: Apache-2.0 */
/* Reasons for idle GPUs: the best plan that uses more of a datacenter's GPUs
 * shows their price. The plan's alternatives compete with a short search of the
 * job with a least GPU count in that datacenter. */
#include "planner/idle.h"

#include "base/fail.h"
#include "planner/explain/whatif.h"
#include "planner/layout/layout.h"
#include "planner/search/objective.h"
#include "planner/search/plan_search.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Datacenters to search for, those with the most idle GPUs. */
enum { MAX_SEARCHED = 4 };

/* Returns how many GPUs of datacenter `dc` a layout uses. */
static uint32_t count_used(const lh_job *job, const lh_layout *l, uint32_t dc)
{
    const lh_layout own = lhi_layout_in_datacenter(l, dc);
    const uint32_t group = lhi_group_size(&own);
    uint32_t used = 0;
    if (job->n_datacenters == 1)
        return group * l->pipeline * l->data;
    for (uint32_t g = 0; l->sites && g < l->sites->n_groups; g++) {
        const lh_site_group *of = &l->sites->groups[g];
        for (uint32_t i = 0; i < of->n_parts; i++)
            if (of->parts[i].datacenter == dc)
                used += group * of->replicas * of->parts[i].stages;
    }
    return used;
}

uint32_t lhi_plan_count_idle(const lh_plan *plan, uint32_t dc)
{
    return plan->job->datacenters[dc].gpus -
           count_used(plan->job, &plan->best.layout, dc);
}

/* Returns one replica's GPUs if some replica of the plan lies in datacenter
 * `dc` alone; 0: none does. */
static uint32_t count_replica_gpus(const lh_plan *plan, uint32_t dc)
{
    const lh_layout *l = &plan->best.layout;
    bool is_alone = plan->job->n_datacenters == 1;
    for (uint32_t g = 0; l->sites && g < l->sites->n_groups; g++)
        is_alone |= l->sites->groups[g].n_parts == 1 &&
                    l->sites->groups[g].parts[0].datacenter == dc;
    return is_alone ? lhi_group_size(l) * l->pipeline : 0;
}

/* Checks whether the idle GPUs of entry `it`'s datacenter suffice for another
 * replica like those in it; true if it has no replica of its own. */
static bool fits_replica(const lh_plan *plan, const lh_plan_idle *it)
{
    return it->gpus >= count_replica_gpus(plan, it->datacenter);
}

/* Returns the best of the plan's alternatives that uses more GPUs of datacenter
 * `dc` than the plan; NULL: none was simulated. */
static const lh_choice *find_alternative(const lh_plan_options *options,
                                         const lh_plan *plan, uint32_t dc)
{
    const uint32_t used = count_used(plan->job, &plan->best.layout, dc);
    const lh_choice *best = NULL;
    for (uint32_t i = 0; i < plan->n_alternatives; i++) {
        const lh_choice *c = &plan->alternatives[i];
        if (c->status == LH_CHOICE_OK &&
            count_used(plan->job, &c->layout, dc) > used &&
            (!best || lhi_objective_value(options, c) <
                          lhi_objective_value(options, best)))
            best = c;
    }
    return best;
}

/* Searches the best plan that uses more GPUs of datacenter `dc` than the plan,
 * with 1/`parts` of a short search's work. Plans of cutoff_ns or longer may be
 * missed (0: none). Without one, there->schedule is NULL and `why` has the
 * reason. The caller frees its pipeline and schedule. */
static lh_status search_with_more(const lh_plan_options *options,
                                  const lh_plan *plan, uint32_t dc,
                                  uint32_t parts, int64_t cutoff_ns,
                                  lhi_arena *mem, lh_plan *there, lh_error *why,
                                  lh_error *err)
{
    lh_job job = *plan->job;
    uint32_t *least = LHI_NEW(mem, uint32_t, job.n_datacenters);
    if (!least)
        return lhi_fail_nomem(err);
    least[dc] = count_used(plan->job, &plan->best.layout, dc) + 1;
    job.min_gpus = least;
    return lhi_plan_search_possible(&job, options, parts, cutoff_ns, mem, there,
                                    why, err);
}

/* Formats into it->why how much slower (or dearer) the best plan that uses more
 * of the idle GPUs is, and whether a lower bound proves that none is better. */
static lh_status format_price(const lh_plan_options *options,
                              const lh_plan *plan, lhi_arena *mem,
                              lh_plan_idle *it, lh_error *err)
{
    char text[320];
    const char *gap = lhi_format_gap(options, it->best, &plan->best, mem);
    lh_choice bound = *it->best;
    bound.iteration_ns = it->bound_ns;
    if (!gap)
        return lhi_fail_nomem(err);
    /* More GPUs of one datacenter may mean fewer of all. */
    char fewer[64] = "";
    const uint64_t all = lh_layout_gpus(&plan->best.layout);
    const uint64_t there = lh_layout_gpus(&it->best->layout);
    if (there < all)
        snprintf(fewer, sizeof fewer, ", with %" PRIu64 " GPUs fewer in total",
                 all - there);
    if (options->objective == LH_PLAN_CHEAPEST ||
        it->bound_ns <= plan->best.iteration_ns)
        snprintf(text, sizeof text, "%s%s; best found", gap, fewer);
    else if (it->bound_ns >= it->best->iteration_ns)
        snprintf(text, sizeof text, "%s%s; proven", gap, fewer);
    else
        snprintf(text, sizeof text, "%s%s; best found, none is below %+.1f %%",
                 gap, fewer,
                 lhi_compute_percent_gap(options, &bound, &plan->best));
    it->why = lhi_arena_strdup(mem, text);
    return it->why ? LH_OK : lhi_fail_nomem(err);
}

/* Fills entry `it` for a datacenter with idle GPUs: searches the best plan
 * that uses more of them with 1/`parts` of a short search's work (0: no
 * search). *adopted: that plan beats the plan and replaced it, so the entry
 * is invalid. */
static lh_status explain_site(const lh_plan_options *options, uint32_t parts,
                              lhi_arena *mem, lh_plan *plan, lh_plan_idle *it,
                              bool *adopted, lh_error *err)
{
    lh_plan there = {0};
    lh_error why = {.text = "no simulated layout uses more of its GPUs"};
    if (!fits_replica(plan, it))
        snprintf(why.text, sizeof why.text,
                 "fewer than the %" PRIu32 " GPUs of another replica",
                 count_replica_gpus(plan, it->datacenter));
    const lh_choice *best = find_alternative(options, plan, it->datacenter);
    const int64_t before = lhi_objective_value(options, &plan->best);
    lh_status status = LH_OK;
    if (parts)
        LHI_TRY(search_with_more(options, plan, it->datacenter, parts,
                                 best ? best->iteration_ns : 0, mem, &there,
                                 &why, err));
    if (there.schedule && !options->jitter)
        status = lhi_plan_adopt_if_better(plan->job, options, mem, &there, plan,
                                          err);
    *adopted = lhi_objective_value(options, &plan->best) != before;
    lh_choice *found = LHI_NEW(mem, lh_choice, 1);
    if (status == LH_OK && !found)
        status = lhi_fail_nomem(err);
    if (status == LH_OK && !*adopted && (there.schedule || best)) {
        *found = there.schedule &&
                         (!best || lhi_objective_value(options, &there.best) <
                                       lhi_objective_value(options, best))
                     ? there.best
                     : *best;
        it->best = found;
        if (there.schedule && there.search_bound_ns > 0)
            it->bound_ns = there.search_bound_ns < found->iteration_ns
                               ? there.search_bound_ns
                               : found->iteration_ns;
        status = format_price(options, plan, mem, it, err);
        found->why = it->why;
    } else if (status == LH_OK) {
        it->why = lhi_arena_strdup(mem, why.text);
        status = it->why ? LH_OK : lhi_fail_nomem(err);
    }
    lh_pipeline_free((lh_pipeline *)there.pipeline);
    lh_schedule_free((lh_schedule *)there.schedule);
    return status;
}

/* Checks whether entry `i` has enough GPUs for a replica, and is among the
 * MAX_SEARCHED such entries with the most idle GPUs. */
static bool is_searched(const lh_plan *plan, const lh_plan_idle *list,
                        uint32_t n, uint32_t i)
{
    uint32_t before = 0;
    for (uint32_t k = 0; k < n; k++)
        before += fits_replica(plan, &list[k]) &&
                  (list[k].gpus > list[i].gpus ||
                   (list[k].gpus == list[i].gpus && k < i));
    return fits_replica(plan, &list[i]) && before < MAX_SEARCHED;
}

/* Fills the plan's entries for all datacenters with idle GPUs. *adopted: a
 * better plan was found and replaced the plan, so the entries are invalid. */
static lh_status explain_all(const lh_plan_options *options, lhi_arena *mem,
                             lh_plan *plan, bool *adopted, lh_error *err)
{
    uint32_t n = 0;
    lh_plan_idle *list = LHI_NEW(mem, lh_plan_idle, plan->job->n_datacenters);
    if (!list)
        return lhi_fail_nomem(err);
    for (uint32_t dc = 0; dc < plan->job->n_datacenters; dc++)
        if (lhi_plan_count_idle(plan, dc) > 0)
            list[n++] = (lh_plan_idle){.datacenter = dc,
                                       .gpus = lhi_plan_count_idle(plan, dc),
                                       .bound_ns = -1,
                                       .why = ""};
    uint32_t parts = 0;
    for (uint32_t i = 0; i < n; i++)
        parts += is_searched(plan, list, n, i);
    *adopted = false;
    for (uint32_t i = 0; i < n && !*adopted; i++)
        LHI_TRY(explain_site(options, is_searched(plan, list, n, i) ? parts : 0,
                             mem, plan, &list[i], adopted, err));
    plan->idle = list;
    plan->n_idle = n;
    return LH_OK;
}

lh_status lhi_plan_explain_idle(const lh_plan_options *options, lhi_arena *mem,
                                lh_plan *plan, lh_error *err)
{
    bool adopted = true;
    if (options->quick || options->elastic_as_published ||
        options->partition == LH_PARTITION_MONTE_CARLO)
        return LH_OK;
    while (adopted) /* each time with a faster plan */
        LHI_TRY(explain_all(options, mem, plan, &adopted, err));
    return LH_OK;
}
