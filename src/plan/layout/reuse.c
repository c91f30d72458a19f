/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout/reuse.h"

#include <stdlib.h>

/* Cache of chunk costs. Successive partitions differ by a layer or two, so each
 * chunk has few sizes and first layers. The table index uses the low bits of
 * both; a new entry replaces the old one. */
enum {
    CHUNKS = 64,
    BEGINNINGS = 8,
    SIZES = 4,
    PLACES = CHUNKS * BEGINNINGS * SIZES,
};

/* A cached chunk cost. */
typedef struct entry {
    uint32_t chunk, first, layers; /* 0 layers: empty */
    lh_cost cost;
} entry;

/* Cache for one layout. */
struct lhi_known {
    lhi_arena *mem;
    bool placed;
    lhi_places places;
    entry entries[PLACES];
};

lh_status lhi_known_make(lhi_known **out, lh_error *err)
{
    lhi_known *known = calloc(1, sizeof *known);
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

void lhi_known_free(lhi_known *known)
{
    if (!known)
        return;
    lhi_arena_free(known->mem);
    free(known);
}

lh_status lhi_known_places(lhi_known *known, const lh_job *job,
                           const lh_layout *layout, lhi_places *out,
                           lh_error *err)
{
    if (!known->placed)
        LHI_TRY(lhi_layout_place(job, layout, known->mem, &known->places, err));
    known->placed = true;
    *out = known->places;
    return LH_OK;
}

static uint32_t place_of(uint32_t chunk, uint32_t first, uint32_t layers)
{
    return (chunk % CHUNKS * BEGINNINGS + first % BEGINNINGS) * SIZES +
           layers % SIZES;
}

bool lhi_known_cost(const lhi_known *known, uint32_t chunk, uint32_t first,
                    uint32_t layers, lh_cost *out)
{
    const entry *e = &known->entries[place_of(chunk, first, layers)];
    if (!layers || e->chunk != chunk || e->first != first ||
        e->layers != layers)
        return false;
    *out = e->cost;
    return true;
}

void lhi_known_keep(lhi_known *known, uint32_t chunk, uint32_t first,
                    uint32_t layers, const lh_cost *cost)
{
    known->entries[place_of(chunk, first, layers)] =
        (entry){chunk, first, layers, *cost};
}
