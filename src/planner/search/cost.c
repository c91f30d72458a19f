/* SPDX-License-Identifier: Apache-2.0 */
/* Prices nodes per hour and traffic between datacenters per 10^9 bytes. */
#include "planner/search/cost.h"

#include "planner/layout/choice.h"
#include "planner/layout/traffic.h"

#include <inttypes.h>
#include <string.h>

/* Nanoseconds per hour. */
#define HOUR_NS 3.6e12
#define MOST_USD 1e9 /* as in a job's file */

/* --- prices --------------------------------------------------------------- */

bool lhi_pricing_has_prices(const lh_job *job)
{
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        if (!(job->datacenters[i].usd_per_gpu_hour > 0))
            return false;
    return true;
}

lh_status lhi_pricing_override_job(const lh_job *job,
                                   const lh_plan_options *options,
                                   lhi_arena *mem, lh_job *out, lh_error *err)
{
    double hour = options->usd_per_gpu_hour, gb = options->usd_per_gb;
    uint32_t n = job->n_datacenters;
    *out = *job;
    if (!(hour >= 0 && hour <= MOST_USD && gb >= 0 && gb <= MOST_USD))
        return lhi_fail(err, LH_EINVAL,
                        "a price of %g per GPU hour or %g per 10^9 bytes is "
                        "out of range; expected 0 to %g",
                        hour, gb, MOST_USD);
    lh_datacenter *sites = LHI_NEW(mem, lh_datacenter, n);
    lh_wan *wans = LHI_NEW(mem, lh_wan, (size_t)n * n);
    if (!sites || !wans)
        return lhi_fail_nomem(err);
    memcpy(sites, job->datacenters, n * sizeof *sites);
    memcpy(wans, job->wans, (size_t)n * n * sizeof *wans);
    for (uint32_t i = 0; hour > 0 && i < n; i++)
        sites[i].usd_per_gpu_hour = hour;
    for (uint32_t i = 0; gb > 0 && i < n * n; i++)
        if (i / n != i % n)
            wans[i].usd_per_gb = gb;
    out->datacenters = sites;
    out->wans = wans;
    if (gb > 0 && !lhi_pricing_has_prices(out))
        return lhi_fail(err, LH_EINVAL,
                        "a price per byte requires a price per GPU hour; set "
                        "usd_per_gpu_hour in the job's cluster, or one price "
                        "for all GPUs (--gpu-hour)");
    return LH_OK;
}

/* --- layout --------------------------------------------------------------- */

lh_status lhi_pricing_count_nodes(const lh_job *job, const lh_layout *layout,
                                  lhi_arena *mem, uint32_t *nodes,
                                  lh_error *err)
{
    lhi_layout_placement places;
    LHI_TRY(lhi_layout_place(job, layout, mem, &places, err));
    for (uint32_t dc = 0; dc < job->n_datacenters; dc++) {
        const lh_datacenter *site = &job->datacenters[dc];
        uint64_t gpus = 0; /* up to the last one in use */
        for (uint32_t g = 0; g < places.sites->n_groups; g++)
            for (uint32_t s = 0; s < layout->pipeline; s++) {
                const lhi_rank_location *at =
                    &places.ranks[(size_t)g * layout->pipeline + s];
                const uint64_t others = places.sites->groups[g].replicas - 1;
                const lh_layout own =
                    lhi_layout_in_datacenter(layout, at->datacenter);
                const uint64_t end =
                    at->first_gpu + others * at->stride + lhi_group_size(&own);
                if (at->datacenter == dc && end > gpus)
                    gpus = end;
            }
        nodes[dc] =
            (uint32_t)((gpus + site->gpus_per_node - 1) / site->gpus_per_node);
    }
    return LH_OK;
}

/* Computes the price per hour of all GPUs in the nodes that a layout uses, into
 * *out. */
static lh_status price_gpus(const lh_job *job, const lh_layout *layout,
                            lhi_arena *mem, lhi_layout_price *out,
                            lh_error *err)
{
    uint32_t nodes[LH_MAX_DATACENTERS];
    LHI_TRY(lhi_pricing_count_nodes(job, layout, mem, nodes, err));
    for (uint32_t dc = 0; dc < job->n_datacenters; dc++) {
        const lh_datacenter *site = &job->datacenters[dc];
        const uint32_t gpus = nodes[dc] * site->gpus_per_node;
        out->gpus += gpus;
        out->usd_per_hour += (double)gpus * site->usd_per_gpu_hour;
    }
    return LH_OK;
}

/* Computes the price of an iteration's traffic between datacenters, into *out.
 * `scale` multiplies the data- and expert-parallel traffic: 1, or 0 to leave it
 * out. */
static lh_status price_bytes(const lh_job *job, const lhi_config *config,
                             double scale, lhi_arena *mem,
                             lhi_layout_price *out, lh_error *err)
{
    const lhi_traffic *traffic;
    uint32_t n;
    LHI_TRY(lhi_traffic_of(job, config, mem, &traffic, &n, err));
    for (uint32_t i = 0; i < n; i++) {
        const lhi_traffic *t = &traffic[i];
        double gb =
            ((double)t->message_bytes * (double)t->messages +
             scale * ((double)t->expert_bytes + (double)t->data_bytes)) /
            1e9;
        out->between_gb += gb;
        out->between_usd +=
            gb *
            job->wans[(size_t)t->from * job->n_datacenters + t->to].usd_per_gb;
    }
    return LH_OK;
}

/* Checks whether all stages have their replicas in the same datacenters, so
 * that every layer partition sends the same data- and expert-parallel traffic
 * between them; answer in *equal. */
static lh_status compare_stages(const lh_job *job, const lh_layout *layout,
                                lhi_arena *mem, bool *equal, lh_error *err)
{
    lhi_layout_placement places;
    LHI_TRY(lhi_layout_place(job, layout, mem, &places, err));
    const lhi_stage_placement *first = &places.stages[0];
    *equal = true;
    for (uint32_t s = 1; s < layout->pipeline && *equal; s++) {
        const lhi_stage_placement *stage = &places.stages[s];
        *equal = stage->n_sites == first->n_sites;
        for (uint32_t i = 0; i < first->n_sites && *equal; i++)
            *equal = stage->sites[i].datacenter == first->sites[i].datacenter &&
                     stage->sites[i].replicas == first->sites[i].replicas;
    }
    return LH_OK;
}

/* Computes a layout's price, into *out: GPUs per hour and traffic per
 * iteration. Without its `partition` of layers, leaves out data and expert
 * parallelism traffic that depends on it. */
static lh_status compute_price(const lh_job *job, const lhi_config *config,
                               bool partition, lhi_layout_price *out,
                               lh_error *err)
{
    lhi_arena *scratch = lhi_arena_make(0);
    const bool remote = job->n_datacenters > 1;
    bool whole = true;
    if (!scratch)
        return lhi_fail_nomem(err);
    *out = (lhi_layout_price){0};
    lh_status status = price_gpus(job, &config->layout, scratch, out, err);
    if (status == LH_OK && remote && !partition)
        status = compare_stages(job, &config->layout, scratch, &whole, err);
    if (status == LH_OK && remote)
        status = price_bytes(job, config, whole ? 1 : 0, scratch, out, err);
    lhi_arena_free(scratch);
    return status;
}

lh_status lhi_pricing_compute(const lh_job *job, const lhi_config *config,
                              lhi_layout_price *out, lh_error *err)
{
    return compute_price(job, config, true, out, err);
}

lh_status lhi_pricing_compute_bound(const lh_job *job, const lhi_config *config,
                                    bool partition, lhi_layout_price *out,
                                    lh_error *err)
{
    return compute_price(job, config, partition, out, err);
}

double lhi_pricing_iteration_usd(const lhi_layout_price *price,
                                 double iteration_ns)
{
    return price->usd_per_hour * (iteration_ns / HOUR_NS) + price->between_usd;
}

/* --- choices -------------------------------------------------------------- */

lh_status lhi_pricing_set_choice(const lh_job *job, lhi_arena *mem,
                                 lh_choice *choice, lh_error *err)
{
    const lh_plan_cost *was = choice->cost;
    lhi_config config = lhi_config_from_choice(choice);
    lhi_layout_price its;
    choice->cost = NULL;
    if (choice->status != LH_CHOICE_OK || choice->iteration_ns < 0 ||
        !lhi_pricing_has_prices(job))
        return LH_OK;
    lh_plan_cost *cost = LHI_NEW(mem, lh_plan_cost, 1);
    if (!cost)
        return lhi_fail_nomem(err);
    if (was)
        its = (lhi_layout_price){was->gpus, was->usd_per_hour,
                                 was->inter_datacenter_gb, was->between_usd};
    else
        LHI_TRY(lhi_pricing_compute(job, &config, &its, err));
    double tokens =
        (double)job->training.global_batch * (double)job->training.sequence;
    *cost = (lh_plan_cost){.gpus = its.gpus,
                           .usd_per_hour = its.usd_per_hour,
                           .inter_datacenter_gb = its.between_gb,
                           .between_usd = its.between_usd};
    cost->usd = lhi_pricing_iteration_usd(&its, (double)choice->iteration_ns);
    cost->gpus_usd = cost->usd - cost->between_usd;
    cost->usd_per_1e9_tokens = cost->usd / tokens * 1e9;
    choice->cost = cost;
    return LH_OK;
}

/* Sets an iteration's cost in USD of every plan candidate in a list; does
 * nothing if the job has no prices. */
static lh_status fill_list(const lh_job *job, lhi_arena *mem,
                           const lh_choice *list, uint32_t n, lh_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        LHI_TRY(lhi_pricing_set_choice(job, mem, (lh_choice *)&list[i], err));
    return LH_OK;
}

lh_status lhi_pricing_fill_plan(lhi_arena *mem, lh_plan *plan, lh_error *err)
{
    const lh_job *job = plan->job;
    const lh_plan_sensitivity *s = plan->sensitivity;
    if (!lhi_pricing_has_prices(job))
        return LH_OK;
    LHI_TRY(lhi_pricing_set_choice(job, mem, &plan->best, err));
    LHI_TRY(fill_list(job, mem, plan->methods, plan->n_methods, err));
    LHI_TRY(fill_list(job, mem, plan->alternatives, plan->n_alternatives, err));
    for (uint32_t i = 0; i < plan->n_dimension_alternatives; i++)
        LHI_TRY(fill_list(job, mem, &plan->dimension_alternatives[i].choice, 1,
                          err));
    if (plan->margin && plan->margin->best)
        LHI_TRY(fill_list(job, mem, plan->margin->best, 1, err));
    for (uint32_t i = 0; i < plan->n_idle; i++)
        if (plan->idle[i].best)
            LHI_TRY(fill_list(job, mem, plan->idle[i].best, 1, err));
    for (uint32_t i = 0; i < plan->n_answers; i++) {
        LHI_TRY(fill_list(job, mem, &plan->answers[i].kept, 1, err));
        LHI_TRY(fill_list(job, mem, &plan->answers[i].best, 1, err));
    }
    if (!s)
        return LH_OK;
    LHI_TRY(fill_list(job, mem, &s->reference, 1, err));
    for (uint32_t i = 0; i < s->n_ranges; i++)
        for (uint32_t k = 0; k < s->ranges[i].n_break_evens; k++) {
            const lh_plan_break_even *flip = &s->ranges[i].break_evens[k];
            LHI_TRY(fill_list(job, mem, &flip->below, 1, err));
            LHI_TRY(fill_list(job, mem, &flip->above, 1, err));
        }
    return LH_OK;
}

double lh_plan_cost_gap(const lh_plan *plan)
{
    double bound = plan->search_bound_usd;
    if (!(bound > 0) || !plan->best.cost)
        return -1;
    return bound < plan->best.cost->usd ? 1 - bound / plan->best.cost->usd : 0;
}
