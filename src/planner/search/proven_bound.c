/* SPDX-License-Identifier: Apache-2.0 */
/* The bound that a branch and bound proves: the least one of the layouts that
 * it pruned, left open or built. */
#include "planner/search/branch_and_bound_internal.h"

#include "planner/layout/layer_partition.h"
#include "planner/search/objective.h"
#include "planner/search/unequal_bound.h"

#include "base/integer_math.h"

enum {
    MAX_PARTITION_BOUNDS = 200 /* layouts with an exact partition bound */
};

lh_status lhi_layout_search_drop(lhi_layout_search *s, lhi_level level,
                                 const lhi_config *config, int64_t ns,
                                 lh_error *err)
{
    if (ns < s->dropped_ns)
        s->dropped_ns = ns;
    return s->unexplored
               ? lhi_unexplored_add_bound(s->unexplored, level, config, ns, err)
               : LH_OK;
}

lh_status lhi_branch_and_bound_count_pruned(lhi_branch_and_bound *b,
                                            const lhi_event *e, lh_error *err)
{
    const lhi_search_node *n = &b->nodes[e->payload];
    if (n->done)
        return LH_OK;
    b->s->pruned[n->floor.kind] += n->n_layouts;
    b->n_open -= n->n_layouts;
    return lhi_layout_search_drop(b->s, n->level, &n->config, n->floor.ns, err);
}

/* Records a layout as unexplored for the cost objective: its other layer
 * partitions may still be better. `ns`: a lower bound on their time; `floor`:
 * bounds of the layout; `level`: depth of `config` in the search tree. */
static void note_open(const lhi_layout_search *s, lhi_level level,
                      const lhi_config *config, const lhi_lower_bound *floor,
                      int64_t ns)
{
    const lhi_objective *o = s->objective;
    lhi_lower_bound least = *floor;
    least.ns = ns;
    if (o && o->add_unexplored && ns < INT64_MAX)
        o->add_unexplored(o->context, level, config, &least);
}

/* Raises the lower bounds of open layouts by the partition bound, which is
 * slower to compute. Always raises the layout with the least bound, until the
 * least bound belongs to a layout that has been raised already, or
 * MAX_PARTITION_BOUNDS layouts have been raised. The other layouts' bounds do
 * not affect the proven bound, which is the least bound. */
static lh_status tighten_bounds(lhi_branch_and_bound *b, lh_error *err)
{
    lhi_layout_search *s = b->s;
    lhi_heap line = {0};
    lhi_event e;
    lh_status status = LH_OK;
    if (!b->floors[0])
        LHI_TRY(lhi_bound_inputs_make(s->job, b->ratio, &b->floors[0], err));
    for (uint32_t i = 0; i < s->n && status == LH_OK; i++) {
        lhi_event first = {.time_ns = s->candidates[i].lower_bound.ns,
                           .payload = i};
        if (first.time_ns < s->best_ns && !lhi_heap_push(&line, first))
            status = lhi_fail_nomem(err);
    }
    for (int n = 0; n < MAX_PARTITION_BOUNDS && status == LH_OK; n++) {
        lhi_lower_bound closer;
        if (!lhi_heap_pop(&line, &e) || e.rank > 0)
            break;
        lhi_candidate *c = &s->candidates[e.payload];
        status = lhi_bound_inputs_compute_tight(b->floors[0], &c->config,
                                                s->best_ns, &closer, err);
        if (status != LH_OK)
            break;
        c->lower_bound.ns = e.time_ns =
            lhi_max_int64(c->lower_bound.ns, closer.ns);
        e.rank = 1;
        if (!lhi_heap_push(&line, e))
            status = lhi_fail_nomem(err);
    }
    lhi_heap_fini(&line);
    return status;
}

lh_status lhi_branch_and_bound_compute_proven(lhi_branch_and_bound *b,
                                              lh_error *err)
{
    lhi_layout_search *s = b->s;
    lhi_event e;
    if (s->complete && !s->objective && !s->options.quick)
        LHI_TRY(tighten_bounds(b, err));
    while (lhi_heap_pop(&b->open, &e)) {
        const lhi_search_node *n = &b->nodes[e.payload];
        if (n->done || lhi_layout_search_is_pruned(s, e.time_ns, n->level,
                                                   &n->config, &n->floor)) {
            LHI_TRY(lhi_branch_and_bound_count_pruned(b, &e, err));
            continue;
        }
        s->n_unexplored += n->n_layouts;
        note_open(s, n->level, &n->config, &n->floor, n->floor.ns);
        LHI_TRY(
            lhi_layout_search_drop(s, n->level, &n->config, n->floor.ns, err));
    }
    s->proven_ns = s->best_ns < s->dropped_ns ? s->best_ns : s->dropped_ns;
    if (b->covers_differing) {
        int64_t differing_ns;
        LHI_TRY(lhi_differing_compute_bound(s->job, &s->options, &differing_ns,
                                            err));
        s->proven_ns = lhi_min_int64(s->proven_ns, differing_ns);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        lhi_candidate *c = &s->candidates[i];
        int64_t ns = c->lower_bound.ns;
        c->open = !s->complete && !c->fully_evaluated &&
                  c->bound_ns < INT64_MAX && lhi_candidate_can_win(s, c);
        if (!lhi_layer_partition_has_alternatives(s->job, &c->config,
                                                  &s->options) &&
            c->bound_ns > ns)
            ns = c->bound_ns;
        if (ns < s->proven_ns)
            s->proven_ns = ns;
        note_open(s, LHI_LEVEL_STATE, &c->config, &c->lower_bound, ns);
        if (s->unexplored &&
            ns < INT64_MAX) /* perhaps only uneven chunks fit */
            LHI_TRY(lhi_unexplored_add_bound(s->unexplored, LHI_LEVEL_COMPLETE,
                                             &c->config, ns, err));
    }
    return LH_OK;
}
