/* SPDX-License-Identifier: Apache-2.0 */
/* What a search did not simulate: the least bound for each value of each
 * dimension, so that what is said of other values counts it. */
#ifndef LHI_UNSEEN_H
#define LHI_UNSEEN_H

#include "base/fail.h"
#include "plan/layout/space.h"

/* In the order in which plans list them. */
typedef enum lhi_dimension {
    LHI_DIMENSION_TENSOR,
    LHI_DIMENSION_CONTEXT,
    LHI_DIMENSION_EXPERT,
    LHI_DIMENSION_PIPELINE,
    LHI_DIMENSION_DATA,
    LHI_DIMENSION_SITES,
    LHI_DIMENSION_ZERO,
    LHI_DIMENSION_SHARDING,
    LHI_DIMENSION_MICRO_BATCH,
    LHI_DIMENSION_CHUNKS,
    LHI_DIMENSION_PLACEMENT,
    LHI_DIMENSION_RECOMPUTE,
    LHI_DIMENSION_SCHEDULE,
    LHI_N_DIMENSIONS
} lhi_dimension;

const char *lhi_dimension_name(lhi_dimension dimension); /* "micro_batch" */

/* Two configurations have equal values if they have the same there; of a
 * schedule, which they leave open, it is always 0. */
uint64_t lhi_dimension_value(lhi_dimension dimension, const lhi_config *config);

typedef struct lhi_unseen_least lhi_unseen_least;

typedef struct lhi_unseen {
    lhi_unseen_least *table; /* by dimension and value */
    uint32_t n, room;
    int64_t open_ns[LHI_N_DIMENSIONS]; /* where that is not decided; 0: none */
} lhi_unseen;

void lhi_unseen_fini(lhi_unseen *unseen); /* {0} is fine */

/* Everything below `config`, which has decided so much, takes `ns` at least. */
lh_status lhi_unseen_note(lhi_unseen *unseen, lhi_level level,
                          const lhi_config *config, int64_t ns, lh_error *err);

/* No layout that was noted has another value than `config` has and takes less;
 * INT64_MAX: there is none. */
int64_t lhi_unseen_other(const lhi_unseen *unseen, lhi_dimension dimension,
                         const lhi_config *config);

#endif
