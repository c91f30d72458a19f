/* SPDX-License-Identifier: Apache-2.0 */
/* Layout neighbourhood: layouts that differ in few dimensions. Degrees adjust
 * to each other so that the GPU count stays the same. */
#ifndef LHI_NEARBY_H
#define LHI_NEARBY_H

#include "plan/search/floor.h"
#include "plan/search/unseen.h"

/* Receives a layout and a lower bound over all its partitions and schedules. */
typedef lh_status lhi_nearby_visit(void *context, const lhi_config *config,
                                   const lhi_floor *floor, lh_error *err);

/* Cache of bounds, so that each is computed once however often a layout is a
 * neighbour; for one space and its bounds, which must outlive it. */
typedef struct lhi_bounded lhi_bounded;
/* Creates an empty cache. */
lh_status lhi_bounded_make(lhi_bounded **out, lh_error *err);
void lhi_bounded_free(lhi_bounded *bounded); /* NULL is allowed */

/* A neighbourhood query. */
typedef struct lhi_nearby {
    const lhi_space *space;
    lhi_floors *floors;
    lhi_bounded *bounded;
    lhi_config from;
    uint32_t most_changes;
    /* Required value; LHI_N_DIMENSIONS: any. */
    lhi_dimension dimension;
    uint64_t value;
    int64_t below_ns; /* only layouts with lower bounds */
    uint64_t work;    /* work done, added: search_budget.h */
    lhi_nearby_visit *visit;
    void *context;
} lhi_nearby;

/* Calls back for each neighbour, in the space's order. */
lh_status lhi_nearby_find(lhi_nearby *nearby, lh_error *err);

#endif
