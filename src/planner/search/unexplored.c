/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/unexplored.h"

#include "base/integer_math.h"

#include <stdlib.h>
#include <string.h>

/* Least bound of one value. */
struct lhi_unexplored_bound {
    uint64_t value;
    int64_t ns; /* 0: free */
    uint32_t dimension;
};

static const struct {
    const char *name;
    lhi_level level; /* level that decides it */
} dimensions[LHI_N_DIMENSIONS] = {
    [LHI_DIMENSION_TENSOR] = {"tensor", LHI_LEVEL_GROUP},
    [LHI_DIMENSION_CONTEXT] = {"context", LHI_LEVEL_GROUP},
    [LHI_DIMENSION_EXPERT] = {"expert", LHI_LEVEL_GROUP},
    [LHI_DIMENSION_PIPELINE] = {"pipeline", LHI_LEVEL_DEGREES},
    [LHI_DIMENSION_DATA] = {"data", LHI_LEVEL_DEGREES},
    [LHI_DIMENSION_SITES] = {"sites", LHI_LEVEL_PLACED},
    [LHI_DIMENSION_ZERO] = {"zero", LHI_LEVEL_STATE},
    [LHI_DIMENSION_SHARDING] = {"sharding", LHI_LEVEL_STATE},
    [LHI_DIMENSION_MICRO_BATCH] = {"micro_batch", LHI_LEVEL_GROUP},
    [LHI_DIMENSION_CHUNKS] = {"chunks_per_device", LHI_LEVEL_COMPLETE},
    [LHI_DIMENSION_PLACEMENT] = {"placement", LHI_LEVEL_COMPLETE},
    [LHI_DIMENSION_RECOMPUTE] = {"recompute", LHI_LEVEL_WORK},
    [LHI_DIMENSION_SCHEDULE] = {"schedule", LHI_LEVEL_COMPLETE + 1},
};

const char *lhi_dimension_name(lhi_dimension dimension)
{
    return (unsigned)dimension < LHI_N_DIMENSIONS ? dimensions[dimension].name
                                                  : "unknown";
}

lhi_level lhi_dimension_level(lhi_dimension dimension)
{
    return dimensions[dimension].level;
}

/* Adds a number to an FNV hash; returns the new hash. */
static uint64_t add_to_hash(uint64_t hash, uint64_t number)
{
    return (hash ^ number) * UINT64_C(1099511628211);
}

/* Returns a hash of the placement in datacenters. */
static uint64_t hash_sites(const lh_layout *l)
{
    uint64_t hash = add_to_hash(UINT64_C(14695981039346656037), l->outermost);
    hash = add_to_hash(hash, l->rank_order);
    hash = add_to_hash(hash, l->packing);
    for (uint32_t g = 0; l->sites && g < l->sites->n_groups; g++) {
        const lh_site_group *group = &l->sites->groups[g];
        if (l->group_micro_batches)
            hash = add_to_hash(hash, l->group_micro_batches[g]);
        hash = add_to_hash(add_to_hash(hash, group->replicas), group->n_parts);
        for (uint32_t i = 0; i < group->n_parts; i++)
            hash = add_to_hash(
                add_to_hash(add_to_hash(hash, group->parts[i].datacenter),
                            group->parts[i].stages),
                lh_layout_site_tensor(l, group->parts[i].datacenter));
    }
    return hash;
}

uint64_t lhi_dimension_value(lhi_dimension dimension, const lhi_config *config)
{
    const lh_layout *l = &config->layout;
    switch (dimension) {
    case LHI_DIMENSION_TENSOR:
        return l->tensor;
    case LHI_DIMENSION_CONTEXT:
        return l->context;
    case LHI_DIMENSION_EXPERT:
        return l->expert;
    case LHI_DIMENSION_PIPELINE:
        return l->pipeline;
    case LHI_DIMENSION_DATA:
        return l->data;
    case LHI_DIMENSION_SITES:
        return hash_sites(l);
    case LHI_DIMENSION_ZERO:
        return config->zero;
    case LHI_DIMENSION_SHARDING:
        return l->sharding;
    case LHI_DIMENSION_MICRO_BATCH:
        return l->micro_batch;
    case LHI_DIMENSION_CHUNKS:
        return l->chunks_per_device;
    case LHI_DIMENSION_PLACEMENT:
        return config->placement;
    case LHI_DIMENSION_RECOMPUTE:
        return config->recompute;
    default:
        return 0;
    }
}

lh_status lhi_best_per_value_add(lhi_best_per_value *heads, lhi_arena *mem,
                                 const lhi_best_with_value *head, lh_error *err)
{
    if (heads->n == heads->room) {
        uint32_t room = heads->room ? 2 * heads->room : 64;
        lhi_best_with_value *more = LHI_NEW(mem, lhi_best_with_value, room);
        if (!more)
            return lhi_fail_nomem(err);
        if (heads->n)
            memcpy(more, heads->all, heads->n * sizeof *more);
        heads->all = more;
        heads->room = room;
    }
    heads->all[heads->n++] = *head;
    return LH_OK;
}

bool lhi_dimension_has_effect(const lh_job *job, lhi_dimension dimension,
                              const lhi_config *config)
{
    switch (dimension) {
    case LHI_DIMENSION_ZERO:
        return lhi_zero_matters(job, &config->layout);
    case LHI_DIMENSION_SHARDING:
        return lhi_sharding_matters(job, config);
    default:
        return true;
    }
}

void lhi_unexplored_fini(lhi_unexplored *unexplored)
{
    free(unexplored->table);
    *unexplored = (lhi_unexplored){0};
}

/* Returns the hash-table entry with a dimension value's bound, or the free one
 * where it would be stored; the table must have a free entry. */
static lhi_unexplored_bound *find_entry(const lhi_unexplored *u,
                                        uint32_t dimension, uint64_t value)
{
    uint64_t hash = add_to_hash(
        add_to_hash(UINT64_C(14695981039346656037), dimension), value);
    uint32_t at = (uint32_t)(hash >> 32) & (u->room - 1);
    while (u->table[at].ns != 0 &&
           (u->table[at].dimension != dimension || u->table[at].value != value))
        at = (at + 1) & (u->room - 1);
    return &u->table[at];
}

/* Keeps the hash table at most half full: grows it and inserts its entries
 * again. */
static lh_status ensure_capacity(lhi_unexplored *u, lh_error *err)
{
    if (2 * (u->n + LHI_N_DIMENSIONS) < u->room)
        return LH_OK;
    lhi_unexplored more = *u;
    more.room = u->room ? 2 * u->room : 256;
    more.table = calloc(more.room, sizeof *more.table);
    if (!more.table)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < u->room; i++)
        if (u->table[i].ns != 0)
            *find_entry(&more, u->table[i].dimension, u->table[i].value) =
                u->table[i];
    free(u->table);
    *u = more;
    return LH_OK;
}

lh_status lhi_unexplored_add_bound(lhi_unexplored *unexplored, lhi_level level,
                                   const lhi_config *config, int64_t ns,
                                   lh_error *err)
{
    LHI_TRY(ensure_capacity(unexplored, err));
    ns = lhi_max_int64(ns, 1);
    for (uint32_t d = 0; d < LHI_N_DIMENSIONS; d++) {
        int64_t *open = &unexplored->open_ns[d];
        if (level < dimensions[d].level ||
            !lhi_dimension_has_effect(unexplored->job, (lhi_dimension)d,
                                      config)) {
            *open = *open ? lhi_min_int64(*open, ns) : ns;
            continue;
        }
        uint64_t value = lhi_dimension_value((lhi_dimension)d, config);
        lhi_unexplored_bound *at = find_entry(unexplored, d, value);
        unexplored->n += at->ns == 0;
        *at = (lhi_unexplored_bound){
            value, at->ns ? lhi_min_int64(at->ns, ns) : ns, d};
    }
    return LH_OK;
}

/* Returns the least recorded bound over layouts with this dimension value, or
 * with `other` over layouts with any other value; INT64_MAX: none. */
static int64_t find_least(const lhi_unexplored *u, lhi_dimension dimension,
                          uint64_t value, bool other)
{
    int64_t least = u->open_ns[dimension];
    if (least == 0)
        least = INT64_MAX;
    for (uint32_t i = 0; i < u->room; i++) {
        const lhi_unexplored_bound *e = &u->table[i];
        if (e->ns != 0 && e->dimension == (uint32_t)dimension &&
            (e->value != value) == other)
            least = lhi_min_int64(least, e->ns);
    }
    return least;
}

int64_t lhi_unexplored_bound_other_values(const lhi_unexplored *unexplored,
                                          lhi_dimension dimension,
                                          const lhi_config *config)
{
    return find_least(unexplored, dimension,
                      lhi_dimension_value(dimension, config), true);
}

int64_t lhi_unexplored_bound_with_value(const lhi_unexplored *unexplored,
                                        lhi_dimension dimension, uint64_t value)
{
    return find_least(unexplored, dimension, value, false);
}
