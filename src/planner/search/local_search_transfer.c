/* SPDX-License-Identifier: Apache-2.0 */
/* Partition transfer between layouts. Candidates were evaluated with the layer
 * partitions known at that time; the best current ones may suit them better. */
#include "planner/search/local_search_internal.h"

#include "base/sort.h"
#include "planner/layout/layer_partition.h"
#include "planner/search/objective.h"

#include <string.h>

enum {
    DONORS = 6,         /* candidates whose layers are tried on all others */
    MAX_RECEIVERS = 128 /* of each donor's layers */
};

/* Donors are within 2 % of the best. */
static const double DONOR_RATIO = 1.02;

/* Returns the total chunk count of a layout: pipeline degree times chunks per
 * device. */
static uint32_t count_chunks(const lh_layout *l)
{
    return l->pipeline * l->chunks_per_device;
}

/* Checks whether two configurations, one or both with a layer partition of
 * their own, have the same layer count in every chunk. */
static bool has_same_layers(const lhi_config *a, const lhi_config *b)
{
    const uint32_t n = count_chunks(&a->layout);
    return a->layers && b->layers && count_chunks(&b->layout) == n &&
           memcmp(a->layers, b->layers, n * sizeof *a->layers) == 0;
}

/* Checks whether a candidate with the iteration lower bound bound_ns can
 * become the best plan of target `t`, the best with one value of a dimension.
 * If the target minimises the price, the bound's price includes the traffic of
 * `was`, the candidate with its previous layer partition. */
static bool may_be_best(const lhi_local_search *d,
                        const lhi_local_search_target *t,
                        const lhi_candidate *was, int64_t bound_ns)
{
    const lh_plan_options *o = &d->s->options;
    if (o->objective == LH_PLAN_FASTEST || !lhi_candidate_is_feasible(was))
        return bound_ns < lhi_local_search_limit(d, t);
    return lhi_objective_value_at(o, &was->choice, bound_ns) < t->best;
}

lh_status lhi_local_search_transfer_partition(lhi_local_search *d,
                                              const lhi_local_search_target *t,
                                              uint32_t at,
                                              const lhi_config *from,
                                              lh_error *err)
{
    lhi_layout_search *s = d->s;
    lhi_candidate *c = &s->candidates[at], other = *c;
    if (c->fully_evaluated && has_same_layers(from, &c->config))
        return LH_OK;
    other.config.layers = from->layers;
    other.simulated = other.fully_evaluated = false;
    other.missing = 0; /* from its own pipeline */
    LHI_TRY(lhi_candidate_compute_bound(s, &other, err));
    d->work += lhi_estimate_pipeline_work(&other.config);
    if (other.bound_ns == INT64_MAX || !may_be_best(d, t, c, other.bound_ns))
        return LH_OK;
    LHI_TRY(lhi_candidate_evaluate(s, &other, err));
    d->work += lhi_estimate_schedule_work(&other.config, true);
    if (!lhi_candidate_is_feasible(&other) ||
        lhi_objective_value(&s->options, &other.choice) >=
            lhi_local_search_value(d, at))
        return LH_OK;
    *c = other;
    d->moved[at] = false; /* not from these layers */
    lhi_local_search_update_targets(d, at);
    return LH_OK;
}

/* --- from the best to all others ------------------------------------------ */

/* Finds the layer partitions to transfer (donors): those of the best plans of
 * all targets (dimension values), each partition once. Returns their number. */
static int find_donors(const lhi_local_search *d, lhi_config donors[DONORS])
{
    int n = 0;
    for (; n < DONORS; n++) {
        const lhi_local_search_target *best = NULL;
        for (uint32_t i = 0; i < d->n_targets; i++) {
            const lhi_local_search_target *t = &d->targets[i];
            bool out =
                t->at == LHI_NO_CANDIDATE || !t->row.chunk_layers ||
                (double)t->best > DONOR_RATIO * (double)d->targets[0].best ||
                (best && t->best >= best->best);
            const lhi_config own = lhi_config_from_choice(&t->row);
            for (int k = 0; k < n && !out; k++)
                out = has_same_layers(&donors[k], &own);
            if (!out)
                best = t;
        }
        if (!best)
            break;
        donors[n] = lhi_config_from_choice(&best->row);
    }
    return n;
}

/* Lists the candidates that may beat the overall best with `from`'s layer
 * partition: fastest first, then those without a plan, by bound. */
static lh_status find_receivers(lhi_local_search *d, const lhi_config *from,
                                lh_error *err)
{
    const lhi_layout_search *s = d->s;
    const int64_t limit = lhi_local_search_limit(d, &d->targets[0]);
    d->n_near = d->n_found = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const lhi_candidate *c = &s->candidates[i];
        if (count_chunks(&c->config.layout) != count_chunks(&from->layout) ||
            c->lower_bound.ns >= limit || has_same_layers(from, &c->config) ||
            !lhi_layer_partition_has_alternatives(s->job, &c->config,
                                                  &s->options))
            continue;
        lhi_local_search_neighbour *all = lhi_local_search_grow_list(
            d->neighbours, d->n_near, &d->near_room, sizeof *all);
        if (!all)
            return lhi_fail_nomem(err);
        d->neighbours = all;
        const int64_t value = lhi_local_search_value(d, i);
        d->neighbours[d->n_near++] = (lhi_local_search_neighbour){
            .key =
                value < INT64_MAX ? value : INT64_MAX / 2 + c->lower_bound.ns,
            .at = i};
    }
    lhi_sort(d->neighbours, d->n_near, sizeof *d->neighbours,
             lhi_local_search_compare_neighbours);
    return LH_OK;
}

lh_status lhi_local_search_transfer_to_all(lhi_local_search *d, bool *better,
                                           lh_error *err)
{
    lhi_config donors[DONORS]; /* rows change meanwhile */
    const int64_t before = d->targets[0].best;
    const int n = find_donors(d, donors);
    for (int k = 0; k < n; k++) {
        LHI_TRY(find_receivers(d, &donors[k], err));
        for (uint32_t i = 0; i < d->n_near && i < MAX_RECEIVERS &&
                             !lhi_local_search_is_out_of_budget(d);
             i++)
            LHI_TRY(lhi_local_search_transfer_partition(
                d, &d->targets[0], d->neighbours[i].at, &donors[k], err));
    }
    *better = d->targets[0].best < before;
    return LH_OK;
}
