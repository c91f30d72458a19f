/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts near to one: with other values in a few dimensions, where degrees
 * follow each other so that as many GPUs are in use. */
#ifndef LHI_NEARBY_H
#define LHI_NEARBY_H

#include "plan/search/floor.h"
#include "plan/search/unseen.h"

/* A layout, and a bound on all its partitions and schedules. */
typedef lh_status lhi_nearby_visit(void *context, const lhi_config *config,
                                   const lhi_floor *floor, lh_error *err);

/* The bounds of what was come by, so that they are found once, however often
 * it is near to something; of one space with its floors, which outlive it. */
typedef struct lhi_bounded lhi_bounded;
lh_status lhi_bounded_make(lhi_bounded **out, lh_error *err);
void lhi_bounded_free(lhi_bounded *bounded); /* NULL is fine */

typedef struct lhi_nearby {
    const lhi_space *space;
    lhi_floors *floors;
    lhi_bounded *bounded;
    lhi_config from;
    uint32_t most_changes;
    /* What all of them have; LHI_N_DIMENSIONS: whatever it is. */
    lhi_dimension dimension;
    uint64_t value;
    int64_t below_ns; /* those whose bounds are below this alone */
    uint64_t work;    /* what it took, added: search_limits.h */
    lhi_nearby_visit *visit;
    void *context;
} lhi_nearby;

/* Calls back for each, in the order of the space. */
lh_status lhi_nearby_find(lhi_nearby *nearby, lh_error *err);

#endif
