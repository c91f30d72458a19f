/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of each value of each dimension: the least bound of what a
 * search did not simulate, so that what is said of other values counts it; and
 * the best that it did. */
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

/* From which level on a configuration has decided it. */
lhi_level lhi_dimension_level(lhi_dimension dimension);

/* Two configurations have equal values if they have the same there; of a
 * schedule, which they leave open, it is always 0. */
uint64_t lhi_dimension_value(lhi_dimension dimension, const lhi_config *config);

/* The best that a search has seen with one value. */
typedef struct lhi_head {
    lhi_dimension dimension; /* LHI_N_DIMENSIONS: any; an elastic plan */
    uint64_t value;          /* of a schedule, the method's number */
    lh_choice choice;
    bool settled; /* nothing near to it is better, as far as was looked */
} lhi_head;

typedef struct lhi_heads {
    uint32_t n, room;
    lhi_head *all; /* in the plan's arena */
} lhi_heads;

lh_status lhi_heads_add(lhi_heads *heads, lhi_arena *mem, const lhi_head *head,
                        lh_error *err);

/* Whether a layout would be another with another value there: sharding is of
 * replicas in several datacenters. */
bool lhi_dimension_matters(const lh_job *job, lhi_dimension dimension,
                           const lhi_config *config);

typedef struct lhi_unseen_least lhi_unseen_least;

typedef struct lhi_unseen {
    lhi_unseen_least *table; /* by dimension and value */
    uint32_t n, room;
    int64_t open_ns[LHI_N_DIMENSIONS]; /* where that is not decided; 0: none */
    lhi_heads heads; /* what was seen, for each value, where dives were made */
} lhi_unseen;

void lhi_unseen_fini(lhi_unseen *unseen); /* {0} is fine */

/* Everything below `config`, which has decided so much, takes `ns` at least. */
lh_status lhi_unseen_note(lhi_unseen *unseen, lhi_level level,
                          const lhi_config *config, int64_t ns, lh_error *err);

/* No layout that was noted has another value than `config` has and takes less;
 * INT64_MAX: there is none. */
int64_t lhi_unseen_other(const lhi_unseen *unseen, lhi_dimension dimension,
                         const lhi_config *config);

/* The same of those that have the value. */
int64_t lhi_unseen_with(const lhi_unseen *unseen, lhi_dimension dimension,
                        uint64_t value);

#endif
