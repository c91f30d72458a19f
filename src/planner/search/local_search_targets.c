/* SPDX-License-Identifier: Apache-2.0 */
/* Local-search targets and their best results. */
#include "planner/search/local_search_internal.h"

#include "base/integer_math.h"
#include "planner/layout/choice.h"
#include "planner/search/objective.h"

#include <stdlib.h>
#include <string.h>

void *lhi_local_search_grow_list(void *list, uint32_t n, uint32_t *room,
                                 size_t each)
{
    if (n < *room)
        return list;
    uint32_t more = *room ? 2 * *room : 64;
    void *all = realloc(list, more * each);
    *room = all ? more : *room;
    return all;
}

/* Adds a target, the best plan with one value of a dimension, unless it exists.
 */
static lh_status add_target(lhi_local_search *d, lhi_dimension dimension,
                            uint64_t value, lh_error *err)
{
    for (uint32_t i = 0; i < d->n_targets; i++)
        if (d->targets[i].dimension == dimension &&
            d->targets[i].value == value)
            return LH_OK;
    lhi_local_search_target *all = lhi_local_search_grow_list(
        d->targets, d->n_targets, &d->room, sizeof *all);
    if (!all)
        return lhi_fail_nomem(err);
    d->targets = all;
    d->targets[d->n_targets++] =
        (lhi_local_search_target){.dimension = dimension,
                                  .value = value,
                                  .best = INT64_MAX,
                                  .at = LHI_NO_CANDIDATE};
    return LH_OK;
}

/* Enumerates the values that a level decides. */
typedef struct value_enumeration {
    lhi_local_search *d;
    lhi_level level;
    bool first;
} value_enumeration;

/* Adds a target (best plan with one dimension value) for each value that
 * `config` decides, and for those of its children. Subtrees hardly differ, so
 * only the first is followed. Visitor callback. */
static lh_status add_values(void *context, const lhi_config *config,
                            lh_error *err)
{
    value_enumeration *v = context;
    for (int i = 0; i < LHI_N_DIMENSIONS; i++) {
        lhi_dimension dimension = (lhi_dimension)i;
        if (lhi_dimension_level(dimension) == v->level &&
            dimension != LHI_DIMENSION_SITES)
            LHI_TRY(add_target(v->d, dimension,
                               lhi_dimension_value(dimension, config), err));
    }
    /* The subtrees hardly differ, so only the first is followed. */
    value_enumeration below = {v->d, (lhi_level)(v->level + 1), true};
    bool go_on = v->level < LHI_LEVEL_COMPLETE &&
                 (v->first || v->level == LHI_LEVEL_PLACED);
    v->first = false;
    return go_on ? lhi_space_children(&v->d->space, v->level, config, NULL,
                                      add_values, &below, err)
                 : LH_OK;
}

lh_status lhi_local_search_make_targets(lhi_local_search *d, lh_error *err)
{
    const lhi_layout_search *s = d->s;
    const lhi_config none = {0};
    value_enumeration all = {d, LHI_LEVEL_GROUP, true};
    LHI_TRY(add_target(d, LHI_N_DIMENSIONS, 0, err));
    LHI_TRY(lhi_space_children(&d->space, LHI_LEVEL_NONE, &none, NULL,
                               add_values, &all, err));
    for (uint32_t i = 0; i < s->n; i++)
        for (int k = 0; k < LHI_N_DIMENSIONS; k++) {
            lhi_dimension dimension = (lhi_dimension)k;
            if (lhi_candidate_is_feasible(&s->candidates[i]) &&
                dimension != LHI_DIMENSION_SCHEDULE)
                LHI_TRY(add_target(
                    d, dimension,
                    lhi_dimension_value(dimension, &s->candidates[i].config),
                    err));
        }
    for (uint32_t m = 0; m < lhi_n_methods; m++)
        if (lhi_method_is_considered(s->job, &s->options, 0, &lhi_methods[m]))
            LHI_TRY(add_target(d, LHI_DIMENSION_SCHEDULE, m, err));
    return LH_OK;
}

/* Returns the best objective value of the targets for `dimension` whose value
 * differs from the overall best plan's; INT64_MAX: there is none. */
static int64_t find_best_other(const lhi_local_search *d,
                               lhi_dimension dimension)
{
    int64_t best = INT64_MAX;
    const lhi_config top = lhi_config_from_choice(&d->targets[0].row);
    for (uint32_t i = 1; i < d->n_targets; i++) {
        const lhi_local_search_target *t = &d->targets[i];
        if (t->dimension == dimension &&
            t->value != lhi_dimension_value(dimension, &top))
            best = lhi_min_int64(best, t->best);
    }
    return best;
}

bool lhi_local_search_is_closed(const lhi_local_search *d,
                                const lhi_local_search_target *t)
{
    const lhi_layout_search *s = d->s;
    if (!s->unexplored || s->options.objective != LH_PLAN_FASTEST ||
        t->dimension >= LHI_DIMENSION_SCHEDULE)
        return false;
    return lhi_unexplored_bound_with_value(s->unexplored, t->dimension,
                                           t->value) >=
           lhi_max_int64(d->targets[0].best, find_best_other(d, t->dimension));
}

/* --- results -------------------------------------------------------------- */

bool lhi_local_search_is_out_of_budget(const lhi_local_search *d)
{
    return lhi_search_limits_are_reached(&d->limits, d->work, d->parts,
                                         LHI_LOCAL_SEARCH_PARTS) ||
           lhi_layout_search_should_stop(d->s, d->s->n, true);
}

int64_t lhi_local_search_value(const lhi_local_search *d, uint32_t at)
{
    const lhi_candidate *c = &d->s->candidates[at];
    return lhi_candidate_is_feasible(c)
               ? lhi_objective_value(&d->s->options, &c->choice)
               : INT64_MAX;
}

int64_t lhi_local_search_limit(const lhi_local_search *d,
                               const lhi_local_search_target *t)
{
    const lhi_layout_search *s = d->s;
    if (s->options.objective != LH_PLAN_FASTEST)
        return INT64_MAX;
    return s->best_only ? lhi_layout_search_useless_ns(
                              s, lhi_min_int64(t->best, d->targets[0].best))
                        : t->best;
}

/* Returns the index in lhi_methods of the method `name`. */
static uint64_t find_method_number(const char *name)
{
    for (uint32_t m = 0; m < lhi_n_methods; m++)
        if (strcmp(lhi_methods[m].name, name) == 0)
            return m;
    return UINT64_MAX;
}

bool lhi_local_search_has_value(const lhi_local_search_target *t,
                                const lhi_config *config, uint64_t method)
{
    if (t->dimension == LHI_DIMENSION_SCHEDULE)
        return t->value == method;
    return t->dimension >= LHI_N_DIMENSIONS ||
           lhi_dimension_value(t->dimension, config) == t->value;
}

void lhi_local_search_update_targets_by_row(lhi_local_search *d, uint32_t at,
                                            const lh_choice *row)
{
    if (row->status != LH_CHOICE_OK)
        return;
    int64_t value = lhi_objective_value(&d->s->options, row);
    lhi_config config = lhi_config_from_choice(row);
    uint64_t method = find_method_number(row->layout.schedule);
    for (uint32_t i = 0; i < d->n_targets; i++) {
        lhi_local_search_target *t = &d->targets[i];
        if (value < t->best && lhi_local_search_has_value(t, &config, method)) {
            t->best = value;
            t->at = at;
            t->row = *row;
            t->settled = false;
        }
    }
}

void lhi_local_search_update_targets(lhi_local_search *d, uint32_t at)
{
    const lhi_candidate *c = &d->s->candidates[at];
    if (lhi_candidate_is_feasible(c))
        lhi_local_search_update_targets_by_row(d, at, &c->choice);
}

int lhi_local_search_compare_neighbours(const void *a, const void *b)
{
    const lhi_local_search_neighbour *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}
