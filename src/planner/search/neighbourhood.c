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

/* Returns the cache entry for a configuration's lower bound on `level` (depth
 * in the search tree), or the empty entry where it belongs. */
static bound *find_entry(const lhi_bound_cache *b, lhi_level level,
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
                            (uint64_t)l->packing,
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

/* Ensures capacity for one more bound in the cache. Returns false without
 * memory or at the maximum size; then nothing more is cached. */
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
            *find_entry(&more, b->all[i].level, &b->all[i].config) = b->all[i];
    free(b->all);
    *b = more;
    return true;
}

/* Looks up a configuration's lower bound on `level` (depth in the search tree)
 * in the cache, or computes and caches it; *out is a copy. */
static lh_status find_bound(lhi_neighbourhood *n, lhi_level level,
                            const lhi_config *config, bound *out, lh_error *err)
{
    lh_error why = {0};
    const bound *known = find_entry(n->bounded, level, config);
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
        *find_entry(n->bounded, level, config) = *out;
        n->bounded->n++;
    }
    return LH_OK;
}

/* --- traversal ------------------------------------------------------------ */

/* A node of the space on the path to neighbours. */
typedef struct traversal {
    lhi_neighbourhood *nearby;
    lhi_level level; /* level of the visited children */
    uint32_t changes;
} traversal;

/* Checks whether two layouts have equal numbers of GPUs per pipeline rank
 * (tensor x context). */
static bool is_same_group(const lh_layout *a, const lh_layout *b)
{
    return lhi_group_size(a) == lhi_group_size(b);
}

/* Counts, for the distance between layouts, changes to pipeline and data
 * degree: 0 or 1. If tensor x context differs too, one of them must follow and
 * does not count. */
static uint32_t count_degree_changes(const lh_layout *a, const lh_layout *b)
{
    bool pipeline = a->pipeline != b->pipeline, data = a->data != b->data;
    if (is_same_group(a, b))
        return pipeline || data;
    return pipeline && data;
}

/* Counts, for the distance between layouts, the change of placement (outermost
 * parallelism, rank order, packing, sites): 0 or 1. It is 0 if the degrees rule
 * out equal placements. */
static uint32_t count_placement_changes(const lh_layout *a, const lh_layout *b)
{
    if (!is_same_group(a, b) || a->pipeline != b->pipeline ||
        a->data != b->data)
        return 0; /* no placement in common */
    return a->outermost != b->outermost || a->rank_order != b->rank_order ||
           a->packing != b->packing || !lhi_sites_are_equal(a->sites, b->sites);
}

/* Counts, for the distance between configurations, the changes of ZeRO stage
 * and sharding: 0 to 2. A sharding change that follows from another change does
 * not count. */
static uint32_t count_state_changes(const lhi_config *a, const lhi_config *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    bool follows =
        x->outermost != y->outermost || (x->data > 1) != (y->data > 1);
    return (a->zero != b->zero) +
           (x->sharding != y->sharding && !follows ? 1u : 0);
}

/* Counts, for the distance between configurations, changes to chunks per device
 * or chunk placement: 0 or 1. It does not count if the pipeline degree changes
 * and the total number of chunks stays. */
static uint32_t count_chunk_changes(const lhi_config *a, const lhi_config *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    if (x->chunks_per_device == y->chunks_per_device)
        return a->placement != b->placement;
    return x->pipeline == y->pipeline || x->pipeline * x->chunks_per_device !=
                                             y->pipeline * y->chunks_per_device;
}

/* Counts, for the distance between layouts, the change of microbatch size: 0 or
 * 1. It does not count if the tokens per GPU stay equal. */
static uint32_t count_batch_changes(const lh_layout *a, const lh_layout *b)
{
    return (uint64_t)a->micro_batch * lhi_group_size(b) !=
               (uint64_t)b->micro_batch * lhi_group_size(a) &&
           a->micro_batch != b->micro_batch;
}

/* Counts, for the distance between two configurations, the changes in those
 * values that are decided on `level` (depth in the search tree). */
static uint32_t count_changes(lhi_level level, const lhi_config *a,
                              const lhi_config *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    switch (level) {
    case LHI_LEVEL_GROUP:
        return (uint32_t)(x->tensor != y->tensor) + (x->context != y->context) +
               (x->expert != y->expert) + count_batch_changes(x, y);
    case LHI_LEVEL_WORK:
        return a->recompute != b->recompute;
    case LHI_LEVEL_DEGREES:
        return count_degree_changes(x, y);
    case LHI_LEVEL_PLACED:
        return count_placement_changes(x, y);
    case LHI_LEVEL_STATE:
        return count_state_changes(a, b);
    default:
        return count_chunk_changes(a, b);
    }
}

/* Checks whether a configuration has the dimension value that the neighbourhood
 * requires; true if that dimension is decided on another level than `level`
 * (depth in the search tree). */
static bool has_value(const lhi_neighbourhood *n, lhi_level level,
                      const lhi_config *config)
{
    return n->dimension >= LHI_N_DIMENSIONS ||
           lhi_dimension_level(n->dimension) != level ||
           lhi_dimension_value(n->dimension, config) == n->value;
}

/* Returns 1 if `level` decides the dimension whose value the search requires
 * and the configuration's value differs from the centre's; such a change does
 * not count for the distance. Else 0. */
static uint32_t count_required_changes(const lhi_neighbourhood *n,
                                       lhi_level level,
                                       const lhi_config *config)
{
    return n->dimension < LHI_N_DIMENSIONS &&
           lhi_dimension_level(n->dimension) == level &&
           lhi_dimension_value(n->dimension, &n->from) !=
               lhi_dimension_value(n->dimension, config);
}

/* Checks whether a configuration has a placement in the second direction, other
 * than the centre's. Only the direction may then differ from the centre:
 * otherwise both directions would halve the other neighbours. */
static bool is_turned(const lhi_neighbourhood *n, lhi_level level,
                      const lhi_config *config)
{
    return level == LHI_LEVEL_PLACED && config->reversed &&
           n->dimension != LHI_DIMENSION_SITES &&
           !lhi_sites_are_equal(config->layout.sites, n->from.layout.sites);
}

/* Visits a configuration whose changes and bound are below the neighbourhood's
 * limits: calls back for a complete one, else continues with its children. */
static lh_status visit_node(void *context, const lhi_config *config,
                            lh_error *err)
{
    const traversal *s = context;
    lhi_neighbourhood *n = s->nearby;
    bound found;
    uint32_t changes = s->changes + count_changes(s->level, &n->from, config);
    uint32_t free = count_required_changes(n, s->level, config);
    changes -= free < changes ? free : changes;
    const bool turned = is_turned(n, s->level, config);
    if (turned && s->changes > 0)
        return LH_OK;
    if (changes > n->most_changes || !has_value(n, s->level, config) ||
        (n->is_late && n->is_late(n->context)))
        return LH_OK;
    LHI_TRY(find_bound(n, s->level, config, &found, err));
    n->work += lhi_estimate_bound_work(s->level, n->space->job->n_datacenters);
    if (found.refused || found.floor.kind == LHI_BOUND_MEMORY ||
        found.floor.ns >= n->limit_ns)
        return LH_OK;
    if (s->level == LHI_LEVEL_COMPLETE)
        return n->visit(n->context, config, &found.floor, err);
    traversal next = {n, (lhi_level)(s->level + 1),
                      turned ? n->most_changes : changes};
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
