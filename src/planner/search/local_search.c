/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/local_search_internal.h"

#include "base/sort.h"
#include "planner/layout/layer_partition.h"
#include "planner/search/objective.h"

#include <stdlib.h>

enum {
    MAX_BUILT = 64,             /* neighbours to build, least bounds first */
    MAX_QUICK_EVALUATIONS = 20, /* of them, with a quick evaluation */
    MAX_FULL_EVALUATIONS = 4,   /* of them, under every method */
    MAX_SLOW_EVALUATIONS = 4,   /* under a slow method */
    MAX_ROUNDS = 6,             /* per local search */
    MAX_RESTARTS = 3,           /* restarts over all targets */
    MAX_STARTS = 5,             /* other bests to start from as well */
    MOVED_OF_EACH = 3,
    MAX_MOVED = 24,           /* others whose layers are moved at the end */
    MAX_NEIGHBOURS = 1 << 16, /* one layout's neighbours */
    PASSES = 60000,           /* scheduled while moving layers, each way */
    PASSES_PER_WORK = 3,      /* budget while moving layers, per work unit */
    SLOW_FACTOR = 20,         /* this many times as long as another method */
};

/* Thresholds relative to the best: CLOSE_RATIO is evaluated under every method,
 * NEAR_RATIO in two dimensions at once. */
static const double CLOSE_RATIO = 1.03, NEAR_RATIO = 1.05, BEHIND_RATIO = 1.15,
                    WIDE_RATIO = 1.3, FAR_RATIO = 2;
/* Results within this factor of the best were searched as thoroughly as the
 * best. */
static const double SETTLED_RATIO = 1.1;

/* --- neighbourhood ------------------------------------------------------- */

/* Appends a neighbouring layout `config` with its bound `floor` to the lists,
 * unless MAX_NEIGHBOURS are listed. Callback for the neighbourhood. */
static lh_status collect_neighbour(void *context, const lhi_config *config,
                                   const lhi_lower_bound *floor, lh_error *err)
{
    lhi_local_search *d = context;
    if (d->n_near == MAX_NEIGHBOURS)
        return LH_OK;
    lhi_local_search_found *found = lhi_local_search_grow_list(
        d->found, d->n_found, &d->found_room, sizeof *found);
    if (!found)
        return lhi_fail_nomem(err);
    d->found = found;
    lhi_local_search_neighbour *all = lhi_local_search_grow_list(
        d->neighbours, d->n_near, &d->near_room, sizeof *all);
    if (!all)
        return lhi_fail_nomem(err);
    d->neighbours = all;
    d->neighbours[d->n_near++] =
        (lhi_local_search_neighbour){floor->ns, d->n_found, LHI_NO_CANDIDATE};
    d->found[d->n_found++] = (lhi_local_search_found){*config, *floor};
    return LH_OK;
}

/* Checks whether the processor time that the search may use is over. */
static bool is_late(void *context)
{
    const lhi_local_search *d = context;
    return lhi_layout_search_is_late(d->s);
}

/* Builds the neighbouring layouts with the least bounds. Keeps those whose own
 * bound can improve target `t` (best plan with one dimension value), sorted by
 * bound. `changes`: number of dimensions in which they may differ. */
static lh_status build_neighbours(lhi_local_search *d,
                                  const lhi_local_search_target *t,
                                  uint32_t changes, lh_error *err)
{
    uint32_t n = d->n_near, kept = 0, built = 0;
    lhi_sort(d->neighbours, n, sizeof *d->neighbours,
             lhi_local_search_compare_neighbours);
    for (uint32_t i = 0; i < n && built < MAX_BUILT * changes && !is_late(d);
         i++) {
        lhi_local_search_neighbour *o = &d->neighbours[i];
        bool made;
        LHI_TRY(lhi_local_search_find_candidate(
            d, o, lhi_local_search_limit(d, t), &made, err));
        built += made;
        o->key = d->s->candidates[o->at].bound_ns;
        if (o->key < lhi_local_search_limit(d, t))
            d->neighbours[kept++] = *o;
    }
    d->n_near = kept;
    lhi_sort(d->neighbours, kept, sizeof *d->neighbours,
             lhi_local_search_compare_neighbours);
    return LH_OK;
}

/* Checks whether a time is more than FAR_RATIO times the best; such layouts
 * only get a quick evaluation. */
static bool is_far(const lhi_local_search *d, int64_t ns)
{
    return d->s->options.objective == LH_PLAN_FASTEST && ns < INT64_MAX &&
           (double)ns > FAR_RATIO * (double)d->targets[0].best;
}

/* Evaluates candidate `at` with the layer partition of layout `from`, and keeps
 * that partition if the result is better. `closer`: runs every schedule method,
 * otherwise one fast method. */
static lh_status try_layers(lhi_local_search *d, uint32_t at,
                            const lhi_config *from, bool closer, lh_error *err)
{
    lhi_layout_search *s = d->s;
    lhi_candidate *c = &s->candidates[at], other = *c;
    const lh_layout *x = &c->config.layout, *y = &from->layout;
    if (!from->layers || c->config.layers ||
        x->pipeline * x->chunks_per_device !=
            y->pipeline * y->chunks_per_device ||
        !lhi_layer_partition_has_alternatives(s->job, &c->config, &s->options))
        return LH_OK;
    other.config.layers = from->layers;
    other.missing = 0; /* with even chunks */
    LHI_TRY(lhi_candidate_compute_bound(s, &other, err));
    if (other.bound_ns == INT64_MAX)
        return LH_OK;
    LHI_TRY(closer ? lhi_candidate_evaluate(s, &other, err)
                   : lhi_candidate_evaluate_quickly(s, &other, err));
    d->work += lhi_estimate_schedule_work(&other.config, closer);
    if (lhi_candidate_is_feasible(&other) &&
        (!lhi_candidate_is_feasible(c) ||
         lhi_objective_value(&s->options, &other.choice) <
             lhi_objective_value(&s->options, &c->choice)))
        *c = other;
    return LH_OK;
}

/* Evaluates candidate `at` under one fast schedule method, with its own and
 * with `from`'s layer partition, and compares the result with all targets (best
 * plans by dimension value). */
static lh_status evaluate_quickly(lhi_local_search *d, uint32_t at,
                                  const lhi_config *from, lh_error *err)
{
    lhi_candidate *c = &d->s->candidates[at];
    LHI_TRY(lhi_candidate_evaluate_quickly(d->s, c, err));
    d->work += lhi_estimate_schedule_work(&c->config, c->fully_evaluated);
    LHI_TRY(try_layers(d, at, from, false, err));
    lhi_local_search_update_targets(d, at);
    return LH_OK;
}

/* Evaluates candidate `at` under every schedule method, and compares the result
 * with all targets (best plans by dimension value). */
static lh_status evaluate_fully(lhi_local_search *d, uint32_t at, lh_error *err)
{
    lhi_candidate *c = &d->s->candidates[at], before = *c;
    LHI_TRY(lhi_candidate_evaluate(d->s, c, err));
    d->work += lhi_estimate_schedule_work(&c->config, true);
    if (!lhi_candidate_is_feasible(c) && lhi_candidate_is_feasible(&before))
        *c = before;
    lhi_local_search_update_targets(d, at);
    return LH_OK;
}

/* Evaluates `from`'s neighbours with the least bounds, in at most `changes`
 * dimensions: first under one method, then under every method if close to the
 * best of target `t` (best plan with one dimension value). */
static lh_status evaluate_neighbours(lhi_local_search *d,
                                     const lhi_local_search_target *t,
                                     const lhi_config *from, uint32_t changes,
                                     lh_error *err)
{
    uint32_t quick_evaluations = 0, closer = 0;
    for (uint32_t i = 0;
         i < d->n_near && quick_evaluations < MAX_QUICK_EVALUATIONS * changes;
         i++) {
        lhi_local_search_neighbour *n = &d->neighbours[i];
        if (t->best < INT64_MAX && (is_far(d, n->key) || is_far(d, t->best)))
            break;
        if (d->s->candidates[n->at].simulated ||
            n->key >= lhi_local_search_limit(d, t))
            continue;
        LHI_TRY(evaluate_quickly(d, n->at, from, err));
        quick_evaluations++;
    }
    for (uint32_t i = 0; i < d->n_near; i++)
        d->neighbours[i].key = lhi_local_search_value(d, d->neighbours[i].at);
    lhi_sort(d->neighbours, d->n_near, sizeof *d->neighbours,
             lhi_local_search_compare_neighbours);
    for (uint32_t i = 0; i < d->n_near && closer < MAX_FULL_EVALUATIONS; i++) {
        lhi_local_search_neighbour *n = &d->neighbours[i];
        if (n->key == INT64_MAX ||
            (double)n->key > CLOSE_RATIO * (double)t->best)
            break;
        if (d->s->candidates[n->at].fully_evaluated)
            continue;
        LHI_TRY(evaluate_fully(d, n->at, err));
        closer++;
    }
    return LH_OK;
}

/* --- under one method ---------------------------------------------------- */

/* Checks whether target `t` (best plan with one dimension value) is for a
 * scheduling method that is slow to run. */
static bool is_slow(const lhi_local_search_target *t)
{
    return lhi_methods[t->value].kind == LHI_METHOD_SLOW;
}

/* Runs the scheduling method of target `t` (best plan under this method) on
 * candidate `at`, with `layers` if not NULL. The result replaces the
 * candidate's if it is better, and updates all targets. */
static lh_status try_method(lhi_local_search *d,
                            const lhi_local_search_target *t, uint32_t at,
                            const uint32_t *layers, lh_error *err)
{
    lhi_layout_search *s = d->s;
    lhi_candidate c = s->candidates[at]; /* replaces the candidate if better */
    lhi_built_layout built;
    lh_error why = {0};
    if (layers) {
        c.config.layers = layers;
        c.fully_evaluated = false; /* with these layers */
    }
    lh_status status = lhi_layout_build(s->job, &c.config, &built, &why);
    if (status != LH_OK && lhi_layout_is_infeasible(status))
        return LH_OK;
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    status = lhi_candidate_compute_bound_built(&c, &built, err);
    lh_choice row = lhi_candidate_make_choice(&c, lhi_methods[t->value].name);
    if (status == LH_OK)
        status =
            lhi_method_evaluate(s->job, &s->options, &built,
                                s->evaluation_cache, s->mem, &row, NULL, err);
    d->work += lhi_estimate_schedule_work(&c.config, false) *
               (is_slow(t) ? SLOW_FACTOR : 1);
    lh_pipeline_free(built.pipeline);
    LHI_TRY(status);
    lhi_candidate *own = &s->candidates[at];
    c.choice = row;
    c.simulated = true;
    if (lhi_candidate_is_feasible(&c) &&
        lhi_objective_value(&s->options, &row) <
            lhi_local_search_value(d, at)) {
        *own = c;
        own->missing = 0;
    }
    lhi_local_search_update_targets_by_row(d, at, &row);
    return LH_OK;
}

/* Runs the scheduling method of target `t` (best plan under this method) on the
 * neighbouring layouts with the best objective values, also with `from`'s
 * layers. */
static lh_status evaluate_neighbours_by_method(lhi_local_search *d,
                                               const lhi_local_search_target *t,
                                               const lhi_config *from,
                                               lh_error *err)
{
    uint32_t most = is_slow(t) ? MAX_SLOW_EVALUATIONS : MAX_QUICK_EVALUATIONS,
             n = 0;
    for (uint32_t i = 0; i < d->n_near; i++) {
        int64_t value = lhi_local_search_value(d, d->neighbours[i].at);
        if (value < INT64_MAX)
            d->neighbours[i].key = value;
    }
    lhi_sort(d->neighbours, d->n_near, sizeof *d->neighbours,
             lhi_local_search_compare_neighbours);
    for (uint32_t i = 0; i < d->n_near && n < most; i++, n++) {
        uint32_t at = d->neighbours[i].at;
        const lh_layout *x = &d->found[d->neighbours[i].found].config.layout,
                        *y = &from->layout;
        LHI_TRY(try_method(d, t, at, NULL, err));
        if (from->layers && x->pipeline * x->chunks_per_device ==
                                y->pipeline * y->chunks_per_device)
            LHI_TRY(try_method(d, t, at, from->layers, err));
    }
    return LH_OK;
}

/* --- one local search ---------------------------------------------------- */

/* Explores the neighbourhood of candidate `from` for target `which` (best plan
 * with one dimension value): all layouts that differ in at most `changes`
 * dimensions. *better: the target has a new best plan. */
static lh_status explore_neighbourhood(lhi_local_search *d, uint32_t which,
                                       uint32_t from, uint32_t changes,
                                       bool *better, lh_error *err)
{
    const lhi_local_search_target *t = &d->targets[which];
    int64_t before = t->best;
    lhi_config anchor = d->s->candidates[from].config;
    lhi_neighbourhood around = {.space = &d->space,
                                .floors = d->floors,
                                .bounded = d->bound_cache,
                                .from = anchor,
                                .most_changes = changes,
                                .dimension = t->dimension,
                                .value = t->value,
                                .limit_ns = lhi_local_search_limit(d, t),
                                .visit = collect_neighbour,
                                .is_late = is_late,
                                .context = d};
    if (from == t->at && t->row.chunk_layers)
        anchor.layers = t->row.chunk_layers;
    LHI_TRY(lhi_local_search_ensure_capacity(d, MAX_BUILT * changes + 1, err));
    d->n_near = d->n_found = 0;
    lh_status status = lhi_neighbourhood_visit(&around, err);
    d->work += around.work;
    if (status == LH_OK)
        status = build_neighbours(d, t, changes, err);
    if (status == LH_OK)
        status = t->dimension == LHI_DIMENSION_SCHEDULE
                     ? evaluate_neighbours_by_method(d, t, &anchor, err)
                     : evaluate_neighbours(d, t, &anchor, changes, err);
    *better = t->best < before;
    return status;
}

/* Checks whether candidate `at` needs no search: only the fastest plan is
 * required, and its bound over all partitions is not below the best time. */
static bool cannot_win(const lhi_local_search *d, uint32_t at)
{
    const lhi_layout_search *s = d->s;
    return s->best_only && s->options.objective == LH_PLAN_FASTEST &&
           s->candidates[at].lower_bound.ns >=
               lhi_layout_search_useless_ns(s, d->targets[0].best);
}

/* Improves the layer partition of the best layout of target `t` (best plan
 * under one scheduling method) with this method, or with a fast method rather
 * than a slow one. */
static lh_status move_by_method(lhi_local_search *d,
                                const lhi_local_search_target *t, lh_error *err)
{
    lhi_layout_search *s = d->s;
    lhi_config config = lhi_config_from_choice(&t->row);
    const uint32_t *given = config.layers;
    const char *method = is_slow(t) ? lhi_method_get_representative()->name
                                    : lhi_methods[t->value].name;
    int64_t ns = INT64_MAX;
    if (!lhi_layer_partition_has_alternatives(s->job, &config, &s->options) ||
        cannot_win(d, t->at))
        return LH_OK;
    for (int k = 0; k < 2; k++) {
        uint64_t left = PASSES;
        LHI_TRY(lhi_layer_partition_search(
            s->job, &s->options, s->evaluation_cache, method, k == 0, false,
            config.layers, &left, s->mem, &config, &ns, err));
        d->work += (PASSES - left) / PASSES_PER_WORK;
    }
    return config.layers == given ? LH_OK
                                  : try_method(d, t, t->at, config.layers, err);
}

/* Improves candidate `at`'s layer partition by moving layers between chunks,
 * and compares the result with all targets (best plans by dimension value). */
static lh_status move_layers(lhi_local_search *d, uint32_t at, lh_error *err)
{
    uint64_t passes = (uint64_t)2 * PASSES, left = passes;
    d->moved[at] = true;
    if (cannot_win(d, at))
        return LH_OK;
    LHI_TRY(lhi_layout_search_move_layers_of(d->s, at, &left, err));
    d->work += (passes - left) / PASSES_PER_WORK;
    lhi_local_search_update_targets(d, at);
    return LH_OK;
}

/* Improves the layer partition of the best layout of target `which` (best plan
 * with one dimension value), unless that was done before. */
static lh_status move_best(lhi_local_search *d, uint32_t which, lh_error *err)
{
    const lhi_local_search_target *t = &d->targets[which];
    if (t->at == LHI_NO_CANDIDATE)
        return LH_OK;
    if (t->dimension == LHI_DIMENSION_SCHEDULE)
        return move_by_method(d, t, err);
    return d->moved[t->at] ? LH_OK : move_layers(d, t->at, err);
}

/* --- partition transfer --------------------------------------------------- */

/* Tries the layer partition of target `which`'s best layout on its neighbours
 * in one dimension, which were evaluated with other layers before. A target is
 * the best plan with one dimension value. *better: it has a new best. */
static lh_status transfer_layers(lhi_local_search *d, uint32_t which,
                                 bool *better, lh_error *err)
{
    const lhi_local_search_target *t = &d->targets[which];
    const int64_t before = t->best;
    const lhi_config from = lhi_config_from_choice(&t->row);
    const uint32_t chunks =
        from.layout.pipeline * from.layout.chunks_per_device;
    lhi_neighbourhood around = {.space = &d->space,
                                .floors = d->floors,
                                .bounded = d->bound_cache,
                                .from = from,
                                .most_changes = 1,
                                .dimension = t->dimension,
                                .value = t->value,
                                .limit_ns = lhi_local_search_limit(d, t),
                                .visit = collect_neighbour,
                                .is_late = is_late,
                                .context = d};
    *better = false;
    if (!from.layers || t->dimension == LHI_DIMENSION_SCHEDULE ||
        !lhi_layer_partition_has_alternatives(d->s->job, &from, &d->s->options))
        return LH_OK;
    d->n_near = d->n_found = 0;
    LHI_TRY(lhi_neighbourhood_visit(&around, err));
    d->work += around.work;
    lhi_sort(d->neighbours, d->n_near, sizeof *d->neighbours,
             lhi_local_search_compare_neighbours);
    for (uint32_t i = 0, n = 0; i < d->n_near && n < MAX_BUILT &&
                                !lhi_local_search_is_out_of_budget(d);
         i++) {
        lhi_local_search_neighbour *o = &d->neighbours[i];
        const lh_layout *l = &d->found[o->found].config.layout;
        bool made;
        if (l->pipeline * l->chunks_per_device != chunks ||
            o->key >= lhi_local_search_limit(d, t))
            continue;
        LHI_TRY(lhi_local_search_ensure_capacity(d, 1, err));
        LHI_TRY(lhi_local_search_find_candidate(d, o, INT64_MAX, &made, err));
        LHI_TRY(lhi_local_search_transfer_partition(d, t, o->at, &from, err));
        n++;
    }
    *better = t->best < before;
    return LH_OK;
}

/* Repeats transfer_layers() for target `which` (best plan with one dimension
 * value) until its best no longer improves. */
static lh_status transfer_until_settled(lhi_local_search *d, uint32_t which,
                                        lh_error *err)
{
    bool better = d->targets[which].at != LHI_NO_CANDIDATE;
    for (int i = 0;
         i < MAX_ROUNDS && better && !lhi_local_search_is_out_of_budget(d); i++)
        LHI_TRY(transfer_layers(d, which, &better, err));
    return LH_OK;
}

/* Checks whether the value of target `t` (best plan with one dimension value)
 * is close enough to the overall best to explore neighbours that differ in two
 * dimensions. */
static bool allows_two_dimensions(const lhi_local_search *d,
                                  const lhi_local_search_target *t)
{
    return (double)t->best <= WIDE_RATIO * (double)d->targets[0].best;
}

/* Runs the local search for target `which` (best plan with one dimension value)
 * from its best layout: explores neighbourhoods until nothing improves, then
 * improves and transfers the layers. */
static lh_status run_local_search(lhi_local_search *d, uint32_t which,
                                  lh_error *err)
{
    bool better = true;
    lhi_local_search_target *t = &d->targets[which];
    uint32_t top = d->targets[0].at, changes = 1;
    if (which > 0 && lhi_local_search_is_closed(d, t))
        return LH_OK;
    if (t->settled || (which > 0 && t->best == d->targets[0].best))
        return LH_OK; /* it is the overall best, or as good */
    if (which > 0)
        LHI_TRY(explore_neighbourhood(d, which, top, 1, &better, err));
    if (t->at == LHI_NO_CANDIDATE)
        LHI_TRY(explore_neighbourhood(d, which, top, 2, &better, err));
    for (int i = 0;
         i < MAX_ROUNDS && t->at != LHI_NO_CANDIDATE && !is_far(d, t->best) &&
         !lhi_local_search_is_out_of_budget(d);
         i++) {
        LHI_TRY(explore_neighbourhood(d, which, t->at, changes, &better, err));
        if (!better && changes == 2)
            break;
        if (!better && !allows_two_dimensions(d, t))
            break;
        changes = better ? 1 : 2;
    }
    if (t->at != LHI_NO_CANDIDATE && !is_far(d, t->best) &&
        !lhi_local_search_is_out_of_budget(d)) {
        LHI_TRY(move_best(d, which, err));
        LHI_TRY(transfer_until_settled(d, which, err));
    }
    t->settled = !lhi_local_search_is_out_of_budget(d);
    return LH_OK;
}

/* Improves the layer partitions of the next best candidates with the value of
 * target `which` (best plan with one dimension value): which of them is best
 * shows only after layers were moved. */
static lh_status move_next(lhi_local_search *d, uint32_t which, lh_error *err)
{
    const lhi_layout_search *s = d->s;
    for (int n = 0; n < MOVED_OF_EACH && !lhi_local_search_is_out_of_budget(d);
         n++) {
        const lhi_local_search_target *t = &d->targets[which];
        uint32_t found = LHI_NO_CANDIDATE;
        double most = BEHIND_RATIO * (double)t->best;
        for (uint32_t i = 0; i < s->n; i++)
            if (!d->moved[i] && (double)lhi_local_search_value(d, i) < most &&
                lhi_local_search_has_value(t, &s->candidates[i].config,
                                           UINT64_MAX)) {
                found = i;
                most = (double)lhi_local_search_value(d, i);
            }
        if (found == LHI_NO_CANDIDATE)
            break;
        LHI_TRY(move_layers(d, found, err));
    }
    return LH_OK;
}

/* Returns the index of the target (best plan with one dimension value) with the
 * best objective value among those not marked in `done`; 0: all are. */
static uint32_t find_next_target(const lhi_local_search *d, const bool *done)
{
    uint32_t found = 0;
    for (uint32_t i = 1; i < d->n_targets; i++)
        if (!done[i] && (!found || d->targets[i].best < d->targets[found].best))
            found = i;
    return found;
}

/* Explores for target `which` (best plan with one dimension value) the
 * neighbourhoods of other targets' bests: the path from the overall best may
 * miss the best layout with this value. */
static lh_status restart_from_others(lhi_local_search *d, uint32_t which,
                                     lh_error *err)
{
    const lhi_local_search_target *t = &d->targets[which];
    uint32_t from[MAX_STARTS], n = 0;
    bool better;
    int64_t after = 0;
    LHI_TRY(explore_neighbourhood(d, which, d->targets[0].at, 2, &better, err));
    while (n < MAX_STARTS && !lhi_local_search_is_out_of_budget(d)) {
        const lhi_local_search_target *next = NULL;
        for (uint32_t i = 1; i < d->n_targets; i++) {
            const lhi_local_search_target *o = &d->targets[i];
            bool known = o->at == LHI_NO_CANDIDATE || o->at == t->at ||
                         o->at == d->targets[0].at || o->best < after ||
                         o->dimension == LHI_DIMENSION_SITES;
            for (uint32_t k = 0; k < n && !known; k++)
                known = from[k] == o->at;
            if (!known && (!next || o->best < next->best))
                next = o;
        }
        if (!next)
            break;
        after = next->best;
        from[n++] = next->at;
        LHI_TRY(explore_neighbourhood(d, which, next->at, 1, &better, err));
    }
    return LH_OK;
}

/* Runs the local search for all targets (one per dimension value), best first,
 * and repeats it until the overall best stays. */
static lh_status search_all_targets(lhi_local_search *d, lh_error *err)
{
    for (int i = 0; i < MAX_RESTARTS && !lhi_local_search_is_out_of_budget(d);
         i++) {
        int64_t before = d->targets[0].best;
        bool *done = calloc(d->n_targets, sizeof *done);
        if (!done)
            return lhi_fail_nomem(err);
        lh_status status = run_local_search(d, 0, err);
        uint32_t which;
        while (status == LH_OK && !lhi_local_search_is_out_of_budget(d) &&
               (which = find_next_target(d, done)) > 0) {
            done[which] = true;
            bool again = i == 1 &&
                         allows_two_dimensions(d, &d->targets[which]) &&
                         d->targets[which].best > d->targets[0].best &&
                         !lhi_local_search_is_closed(d, &d->targets[which]);
            if (again)
                status = restart_from_others(d, which, err);
            if (again && status == LH_OK)
                status = move_next(d, which, err);
            if (status != LH_OK)
                break;
            status = run_local_search(d, which, err);
        }
        free(done);
        LHI_TRY(status);
        if (i > 0 && d->targets[0].best == before)
            break;
    }
    return LH_OK;
}

/* Improves the layer partitions of the candidates close to the best, since only
 * then is it known which candidate is best. */
static lh_status move_others(lhi_local_search *d, lh_error *err)
{
    const lhi_layout_search *s = d->s;
    for (int n = 0; n < MAX_MOVED && !lhi_local_search_is_out_of_budget(d);
         n++) {
        uint32_t found = LHI_NO_CANDIDATE;
        double most = NEAR_RATIO * (double)d->targets[0].best;
        for (uint32_t i = 0; i < s->n; i++)
            if (!d->moved[i] && (double)lhi_local_search_value(d, i) < most &&
                lhi_layer_partition_has_alternatives(
                    s->job, &s->candidates[i].config, &s->options)) {
                found = i;
                most = (double)lhi_local_search_value(d, i);
            }
        if (found == LHI_NO_CANDIDATE)
            break;
        LHI_TRY(move_layers(d, found, err));
    }
    return LH_OK;
}

/* Improves the overall best with the last part of the budget: explores its
 * neighbourhood and transfers layer partitions until nothing improves. */
static lh_status finalise_best(lhi_local_search *d, lh_error *err)
{
    bool better = true;
    LHI_TRY(transfer_until_settled(d, 0, err));
    for (int i = 0;
         i < MAX_ROUNDS && better && !lhi_local_search_is_out_of_budget(d);
         i++) {
        const int64_t before = d->targets[0].best;
        LHI_TRY(run_local_search(d, 0, err));
        LHI_TRY(lhi_local_search_transfer_to_all(d, &better, err));
        LHI_TRY(move_others(d, err));
        better = d->targets[0].best < before;
    }
    return LH_OK;
}

/* --- complete search ----------------------------------------------------- */

/* Removes those candidates from the search that the local search added and on
 * which no schedule works, so that no list shows them. */
static void remove_infeasible(lhi_local_search *d)
{
    lhi_layout_search *s = d->s;
    uint32_t kept = d->first;
    for (uint32_t i = d->first; i < s->n; i++)
        if (lhi_candidate_is_feasible(&s->candidates[i]))
            s->candidates[kept++] = s->candidates[i];
    s->n = kept;
}

/* Adds to *simulated and *too_large the numbers of candidates from before
 * the local search that are simulated, or do not fit into memory; `sign` -1
 * subtracts them. Called before and after the local search, which changes
 * them. */
static void count_own_candidates(const lhi_local_search *d, int64_t sign,
                                 int64_t *simulated, int64_t *too_large)
{
    for (uint32_t i = 0; i < d->first; i++) {
        const lhi_candidate *c = &d->s->candidates[i];
        *simulated += c->simulated ? sign : 0;
        *too_large += !c->simulated && c->missing > 0 ? sign : 0;
    }
}

/* Adds the best plan with each dimension value to s->unexplored, for the table
 * of alternatives. */
static lh_status list_best_per_value(const lhi_local_search *d, lh_error *err)
{
    const lhi_layout_search *s = d->s;
    for (uint32_t i = 1; s->unexplored && i < d->n_targets; i++) {
        const lhi_local_search_target *t = &d->targets[i];
        bool sure =
            t->settled &&
            (double)t->best <= SETTLED_RATIO * (double)d->targets[0].best;
        lhi_best_with_value head = {t->dimension, t->value, t->row, sure};
        if (t->best < INT64_MAX)
            LHI_TRY(lhi_best_per_value_add(&s->unexplored->heads, s->mem, &head,
                                           err));
    }
    return LH_OK;
}

/* Creates the targets and runs all steps of the local search. */
static lh_status run_steps(lhi_local_search *d, lh_error *err)
{
    lhi_layout_search *s = d->s;
    LHI_TRY(lhi_local_search_ensure_capacity(d, 1, err));
    LHI_TRY(lhi_local_search_make_targets(d, err));
    for (uint32_t i = 0; i < s->n; i++)
        lhi_local_search_update_targets(d, i);
    if (d->targets[0].at == LHI_NO_CANDIDATE)
        return LH_OK;
    d->parts = LHI_LOCAL_SEARCH_PARTS - 1;
    LHI_TRY(search_all_targets(d, err));
    LHI_TRY(move_others(d, err));
    d->parts = LHI_LOCAL_SEARCH_PARTS;
    LHI_TRY(finalise_best(d, err));
    return list_best_per_value(d, err);
}

lh_status lhi_layout_search_run_local_search(lhi_layout_search *s,
                                             lh_error *err)
{
    const lhi_layout_search before = *s;
    lhi_local_search d = {
        .s = s, .limits = lhi_local_search_limits(&s->options), .first = s->n};
    int64_t simulated = 0, too_large = 0;
    count_own_candidates(&d, -1, &simulated, &too_large);
    lh_status status = lhi_space_init(s->job, s->mem, &d.space, err);
    if (status == LH_OK)
        status = lhi_bound_inputs_make(
            s->job, lhi_layer_partition_max_ratio(s->job, &s->options),
            &d.floors, err);
    if (status == LH_OK)
        status = lhi_bound_cache_make(&d.bound_cache, err);
    if (status == LH_OK)
        status = run_steps(&d, err);
    remove_infeasible(&d);
    count_own_candidates(&d, 1, &simulated, &too_large);
    /* The search has already counted the others as unexplored or pruned. */
    s->n_simulated = before.n_simulated + (uint64_t)simulated;
    s->n_memory = before.n_memory + (uint64_t)too_large;
    s->n_unsupported = before.n_unsupported;
    lhi_bound_cache_free(d.bound_cache);
    lhi_bound_inputs_free(d.floors);
    lhi_space_fini(&d.space);
    free(d.targets);
    free(d.found);
    free(d.neighbours);
    free(d.known);
    free(d.moved);
    return status;
}
