/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/layout/build_cache.h"

#include <stdlib.h>

/* Chunk-cost cache. Successive partitions differ by a layer or two, so each
 * chunk has few sizes and first layers. The table index uses the low bits of
 * both; a new entry replaces the old one. */
enum {
    CHUNKS = 64,
    FIRST_LAYERS = 8,
    SIZES = 4,
    N_ENTRIES = CHUNKS * FIRST_LAYERS * SIZES,
    MAX_DISTINCT = 16, /* costs of ranges that differ from each other */
};

/* A cached chunk cost. */
typedef struct entry {
    uint32_t chunk, first, layers; /* 0 layers: empty */
    lh_cost cost;
} entry;

/* Cache for one layout. */
struct lhi_build_cache {
    lhi_arena *mem;
    bool placed;
    lhi_layout_placement places;
    lhi_known_cost distinct[MAX_DISTINCT];
    uint32_t n_distinct, next;
    entry entries[N_ENTRIES];
};

lh_status lhi_build_cache_make(lhi_build_cache **out, lh_error *err)
{
    lhi_build_cache *known = calloc(1, sizeof *known);
    if (!known)
        return lhi_fail_nomem(err);
    known->mem = lhi_arena_make(0);
    if (!known->mem) {
        free(known);
        return lhi_fail_nomem(err);
    }
    *out = known;
    return LH_OK;
}

void lhi_build_cache_free(lhi_build_cache *known)
{
    if (!known)
        return;
    lhi_arena_free(known->mem);
    free(known);
}

lh_status lhi_build_cache_place(lhi_build_cache *known, const lh_job *job,
                                const lh_layout *layout,
                                lhi_layout_placement *out, lh_error *err)
{
    if (!known->placed)
        LHI_TRY(lhi_layout_place(job, layout, known->mem, &known->places, err));
    known->placed = true;
    *out = known->places;
    return LH_OK;
}

/* Returns the cache index for chunk `chunk`'s cost if its layers are first
 * .. first + layers - 1; others may have the same index. */
static uint32_t compute_entry_index(uint32_t chunk, uint32_t first,
                                    uint32_t layers)
{
    return (chunk % CHUNKS * FIRST_LAYERS + first % FIRST_LAYERS) * SIZES +
           layers % SIZES;
}

bool lhi_build_cache_find_cost(const lhi_build_cache *known, uint32_t chunk,
                               uint32_t first, uint32_t layers, lh_cost *out)
{
    const entry *e = &known->entries[compute_entry_index(chunk, first, layers)];
    if (!layers || e->chunk != chunk || e->first != first ||
        e->layers != layers)
        return false;
    *out = e->cost;
    return true;
}

void lhi_build_cache_add_cost(lhi_build_cache *known, uint32_t chunk,
                              uint32_t first, uint32_t layers,
                              const lh_cost *cost)
{
    known->entries[compute_entry_index(chunk, first, layers)] =
        (entry){chunk, first, layers, *cost};
}

const lhi_known_cost *lhi_build_cache_get_costs(const lhi_build_cache *known,
                                                uint32_t *n)
{
    *n = known->n_distinct;
    return known->distinct;
}

void lhi_build_cache_keep_cost(lhi_build_cache *known,
                               const lh_cost_layer_range *slice,
                               const lh_cost *cost)
{
    known->distinct[known->next] = (lhi_known_cost){*slice, *cost};
    known->next = (known->next + 1) % MAX_DISTINCT;
    known->n_distinct += known->n_distinct < MAX_DISTINCT;
}
