/* SPDX-License-Identifier: Apache-2.0 */
/* Layout neighbourhood: layouts that differ in few dimensions. Degrees adjust
 * to each other so that the GPU count stays the same. */
#ifndef LHI_PLANNER_SEARCH_NEIGHBOURHOOD_H
#define LHI_PLANNER_SEARCH_NEIGHBOURHOOD_H

#include "planner/search/lower_bound.h"
#include "planner/search/unexplored.h"

/* Receives a layout and a lower bound over all its partitions and schedules. */
typedef lh_status lhi_neighbour_visitor(void *context, const lhi_config *config,
                                        const lhi_lower_bound *floor,
                                        lh_error *err);

/* Cache of bounds, so that each is computed once however often a layout is a
 * neighbour; for one space and its bounds, which must outlive it. */
typedef struct lhi_bound_cache lhi_bound_cache;
/* Creates an empty cache for lower bounds by configuration and search tree
 * level. */
lh_status lhi_bound_cache_make(lhi_bound_cache **out, lh_error *err);
/* Frees a cache of lower bounds; NULL is allowed. */
void lhi_bound_cache_free(lhi_bound_cache *bounded);

/* A neighbourhood query. */
typedef struct lhi_neighbourhood {
    const lhi_space *space;
    lhi_bound_inputs *floors;
    lhi_bound_cache *bounded;
    lhi_config from;
    uint32_t most_changes;
    /* Required value; LHI_N_DIMENSIONS: any. */
    lhi_dimension dimension;
    uint64_t value;
    int64_t limit_ns; /* only layouts with lower bounds */
    uint64_t work;    /* work done, added: search_budget.h */
    lhi_neighbour_visitor *visit;
    bool (*is_late)(void *context); /* ends the visits; NULL: never */
    void *context;
} lhi_neighbourhood;

/* Calls back for each complete layout that differs from the centre,
 * nearby->from, in few dimensions and has a low enough bound. Visits them in
 * the search space's order. */
lh_status lhi_neighbourhood_visit(lhi_neighbourhood *nearby, lh_error *err);

#endif
