/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/neighbourhood.h"

#include "planner/layout/choice.h"
#include "planner/layout/equivalence.h"
#include "planner/search/search_budget.h"

#include <stdlib.h>

/* --- cached bounds -------------------------------------------------------- */

enum { INITIAL_CAPACITY = 1 << 10, MAX_CAPACITY = 1 << 17 };

/* A cached bound. */
typedef struct bound {
    lhi_config config;
    lhi_level level; /* LHI_LEVEL_NONE: empty */
    bool refused;    /* no such layout */
    lhi_lower_bound floor;
} bound;

/* Cache of bounds: a hash table. */
struct lhi_bound_cache {
    bound *all;
    uint32_t n, room;
};

lh_status lhi_bound_cache_make(lhi_bound_cache **out, lh_error *err)
{
    lhi_bound_cache *b = calloc(1, sizeof *b);
    if (!b)
        return lhi_fail_nomem(err);
    b->all = calloc(INITIAL_CAPACITY, sizeof *b->all);
    if (!b->all) {
        free(b);
        return lhi_fail_nomem(err);
    }
    b->room = INITIAL_CAPACITY;
    *out = b;
    return LH_OK;
}

void lhi_bound_cache_free(lhi_bound_cache *bounded)
{
    if (!bounded)
        return;
    free(bounded->all);
    free(bounded);
}

/* Returns a configuration's cache entry. */
static bound *bound_of(const lhi_bound_cache *b, lhi_level level,
                       const lhi_config *config)
{
    const lh_layout *l = &config->layout;
    const uint64_t all[] = {level,
                            l->tensor,
                            l->context,
                            l->expert,
                            lh_layout_expert_tensor(l),
                            l->pipeline,
                            l->data,
                            l->micro_batch,
                            l->chunks_per_device,
                            config->zero,
                            (uint64_t)l->outermost,
                            (uint64_t)l->rank_order,
                            (uint64_t)l->sharding,
                            (uint64_t)config->placement,
                            (uint64_t)config->recompute};
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        hash = (hash ^ all[i]) * UINT64_C(1099511628211);
    uint32_t at = (uint32_t)(hash >> 32) & (b->room - 1);
    while (b->all[at].level != LHI_LEVEL_NONE &&
           (b->all[at].level != level ||
            !lhi_configs_are_equal(&b->all[at].config, config)))
        at = (at + 1) & (b->room - 1);
    return &b->all[at];
}

/* Ensures capacity; without memory, or at the maximum size, nothing more is
 * cached. */
static bool ensure_capacity(lhi_bound_cache *b)
{
    if (2 * b->n < b->room)
        return true;
    lhi_bound_cache more = {NULL, b->n, 2 * b->room};
    if (b->room < MAX_CAPACITY)
        more.all = calloc(more.room, sizeof *more.all);
    if (!more.all)
        return false;
    for (uint32_t i = 0; i < b->room; i++)
        if (b->all[i].level != LHI_LEVEL_NONE)
            *bound_of(&more, b->all[i].level, &b->all[i].config) = b->all[i];
    free(b->all);
    *b = more;
    return true;
}

/* Computes a bound, or finds it in the cache. */
static lh_status find_bound(lhi_neighbourhood *n, lhi_level level,
                            const lhi_config *config, bound *out, lh_error *err)
{
    lh_error why = {0};
    const bound *known = bound_of(n->bounded, level, config);
    if (known->level != LHI_LEVEL_NONE) {
        *out = *known;
        return LH_OK;
    }
    *out = (bound){.config = *config, .level = level};
    lh_status status =
        lhi_bound_inputs_compute(n->floors, level, config, &out->floor, &why);
    out->refused = status != LH_OK && lhi_layout_is_infeasible(status);
    if (status != LH_OK && !out->refused) {
        if (err)
            *err = why;
        return status;
    }
    if (ensure_capacity(n->bounded)) {
        *bound_of(n->bounded, level, config) = *out;
        n->bounded->n++;
    }
    return LH_OK;
}

/* --- traversal ------------------------------------------------------------ */

/* A node of the space on the path to neighbours. */
typedef struct step {
    lhi_neighbourhood *nearby;
    lhi_level level; /* level of the visited children */
    uint32_t changes;
} traversal;

/* Checks whether tensor x context groups have equal sizes. */
static bool is_same_group(const lh_layout *a, const lh_layout *b)
{
    return lhi_group_size(a) == lhi_group_size(b);
}

/* Counts the changed degrees. If a stage has other GPUs, or each replica
 * another batch, pipeline or data follow. */
static uint32_t changes_of_degrees(const lh_layout *a, const lh_layout *b)
{
    bool pipeline = a->pipeline != b->pipeline, data = a->data != b->data;
    if (is_same_group(a, b))
        return pipeline || data;
    return pipeline && data;
}

/* Counts the change of placement between two layouts, 0 or 1; 0 if their
 * degrees rule out equal placements. */
static uint32_t changes_of_places(const lh_layout *a, const lh_layout *b)
{
    if (!is_same_group(a, b) || a->pipeline != b->pipeline ||
        a->data != b->data)
        return 0; /* no placement in common */
    return a->outermost != b->outermost || a->rank_order != b->rank_order ||
           !lhi_sites_are_equal(a->sites, b->sites);
}

/* Counts the changes of ZeRO stage and sharding; not of sharding that follows
 * from another change. */
static uint32_t changes_of_state(const lhi_config *a, const lhi_config *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    bool follows =
        x->outermost != y->outermost || (x->data > 1) != (y->data > 1);
    return (a->zero != b->zero) +
           (x->sharding != y->sharding && !follows ? 1u : 0);
}

/* Counts the changed chunks; the same number on other stages is no separate
 * change. */
static uint32_t changes_of_chunks(const lhi_config *a, const lhi_config *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    if (x->chunks_per_device == y->chunks_per_device)
        return a->placement != b->placement;
    return x->pipeline == y->pipeline || x->pipeline * x->chunks_per_device !=
                                             y->pipeline * y->chunks_per_device;
}

/* Counts the changed batch. If a stage has more GPUs with as many tokens each,
 * the batch follows: the microbatch count is unchanged. */
static uint32_t changes_of_batch(const lh_layout *a, const lh_layout *b)
{
    return (uint64_t)a->micro_batch * lhi_group_size(b) !=
               (uint64_t)b->micro_batch * lhi_group_size(a) &&
           a->micro_batch != b->micro_batch;
}

/* Counts the changes that this level decides. */
static uint32_t changes_at(lhi_level level, const lhi_config *a,
                           const lhi_config *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    switch (level) {
    case LHI_LEVEL_GROUP:
        return (uint32_t)(x->tensor != y->tensor) + (x->context != y->context) +
               (x->expert != y->expert) + changes_of_batch(x, y);
    case LHI_LEVEL_WORK:
        return a->recompute != b->recompute;
    case LHI_LEVEL_DEGREES:
        return changes_of_degrees(x, y);
    case LHI_LEVEL_PLACED:
        return changes_of_places(x, y);
    case LHI_LEVEL_STATE:
        return changes_of_state(a, b);
    default:
        return changes_of_chunks(a, b);
    }
}

/* Checks whether a configuration has the required value. */
static bool has_value(const lhi_neighbourhood *n, lhi_level level,
                      const lhi_config *config)
{
    return n->dimension >= LHI_N_DIMENSIONS ||
           lhi_dimension_level(n->dimension) != level ||
           lhi_dimension_value(n->dimension, config) == n->value;
}

/* Returns 1 if the configuration differs from the centre in the dimension whose
 * value the search requires; this change does not count. */
static uint32_t changes_for_value(const lhi_neighbourhood *n, lhi_level level,
                                  const lhi_config *config)
{
    return n->dimension < LHI_N_DIMENSIONS &&
           lhi_dimension_level(n->dimension) == level &&
           lhi_dimension_value(n->dimension, &n->from) !=
               lhi_dimension_value(n->dimension, config);
}

/* Visits a child if it is near enough and its bound is low enough. */
static lh_status visit_node(void *context, const lhi_config *config,
                            lh_error *err)
{
    const traversal *s = context;
    lhi_neighbourhood *n = s->nearby;
    bound found;
    uint32_t changes = s->changes + changes_at(s->level, &n->from, config);
    uint32_t free = changes_for_value(n, s->level, config);
    changes -= free < changes ? free : changes;
    if (changes > n->most_changes || !has_value(n, s->level, config))
        return LH_OK;
    LHI_TRY(find_bound(n, s->level, config, &found, err));
    n->work += lhi_estimate_bound_work(s->level, n->space->job->n_datacenters);
    if (found.refused || found.floor.kind == LHI_BOUND_MEMORY ||
        found.floor.ns >= n->limit_ns)
        return LH_OK;
    if (s->level == LHI_LEVEL_COMPLETE)
        return n->visit(n->context, config, &found.floor, err);
    traversal next = {n, (lhi_level)(s->level + 1), changes};
    return lhi_space_children(n->space, s->level, config, NULL, visit_node,
                              &next, err);
}

lh_status lhi_neighbourhood_visit(lhi_neighbourhood *nearby, lh_error *err)
{
    const lhi_config none = {0};
    traversal first = {nearby, LHI_LEVEL_GROUP, 0};
    return lhi_space_children(nearby->space, LHI_LEVEL_NONE, &none, NULL,
                              visit_node, &first, err);
}
