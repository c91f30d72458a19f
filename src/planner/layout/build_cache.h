/* SPDX-License-Identifier: Apache-2.0 */
/* Cache for building one layout with many layer partitions: the placement, and
 * the costs of unchanged chunks. */
#ifndef LHI_PLANNER_LAYOUT_BUILD_CACHE_H
#define LHI_PLANNER_LAYOUT_BUILD_CACHE_H

#include "planner/layout/layout.h"

typedef struct lhi_build_cache lhi_build_cache;

/* The cost of a layer range, which equivalent ranges have, too. */
typedef struct lhi_known_cost {
    lh_cost_layer_range slice;
    lh_cost cost;
} lhi_known_cost;

/* Creates an empty cache of the placement and chunk costs of one layout. */
lh_status lhi_build_cache_make(lhi_build_cache **out, lh_error *err);
/* Frees a cache of placement and chunk costs; NULL is allowed. */
void lhi_build_cache_free(lhi_build_cache *known);

/* Places all ranks like lhi_layout_place(), or returns the cached placement;
 * *out lives as long as the cache. */
lh_status lhi_build_cache_place(lhi_build_cache *known, const lh_job *job,
                                const lh_layout *layout,
                                lhi_layout_placement *out, lh_error *err);

/* Looks up a chunk's cost with `layers` layers from `first`. Returns false if
 * it is not in the cache. */
bool lhi_build_cache_find_cost(const lhi_build_cache *known, uint32_t chunk,
                               uint32_t first, uint32_t layers, lh_cost *out);
/* Stores a chunk's cost with `layers` layers from `first` on in the cache;
 * may replace another entry. */
void lhi_build_cache_add_cost(lhi_build_cache *known, uint32_t chunk,
                              uint32_t first, uint32_t layers,
                              const lh_cost *cost);

/* Returns the costs of layer ranges that differ from each other, the latest
 * ones; *n: their number. */
const lhi_known_cost *lhi_build_cache_get_costs(const lhi_build_cache *known,
                                                uint32_t *n);
/* Stores the cost of a layer range that is equivalent to no stored one; may
 * replace the oldest entry. */
void lhi_build_cache_keep_cost(lhi_build_cache *known,
                               const lh_cost_layer_range *slice,
                               const lh_cost *cost);

/* Builds the pipeline like lhi_layout_build(), with the placement and chunk
 * costs in the cache `known` (NULL: no cache). All calls with one cache must
 * use the same job and layout, except for config->layers. */
lh_status lhi_layout_build_cached(const lh_job *job, const lhi_config *config,
                                  lhi_build_cache *known,
                                  lhi_built_layout *built, lh_error *err);

#endif
