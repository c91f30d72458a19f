/* SPDX-License-Identifier: Apache-2.0 */
/* Unexplored layouts: the least bound of unsimulated layouts per dimension
 * value, so that statements on other values include them; and the best
 * simulated ones. */
#ifndef LHI_PLANNER_SEARCH_UNEXPLORED_H
#define LHI_PLANNER_SEARCH_UNEXPLORED_H

#include "base/fail.h"
#include "planner/layout/space.h"

/* Dimensions in the order of a plan's list. */
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

/* Returns a layout dimension's name, such as "micro_batch". */
const char *lhi_dimension_name(lhi_dimension dimension);

/* Returns the level of the search tree that decides a dimension. */
lhi_level lhi_dimension_level(lhi_dimension dimension);

/* Returns a dimension's value as a number, equal for equal values; for the
 * schedule, which configurations leave open, always 0. */
uint64_t lhi_dimension_value(lhi_dimension dimension, const lhi_config *config);

/* The best simulated result with one value. */
typedef struct lhi_best_with_value {
    lhi_dimension dimension; /* LHI_N_DIMENSIONS: any; an elastic plan */
    uint64_t value;          /* for the schedule: the method's index */
    lh_choice choice;
    bool is_local_optimum; /* local optimum of a sufficient local search */
} lhi_best_with_value;

/* A list of best results. */
typedef struct lhi_best_per_value {
    uint32_t n, room;
    lhi_best_with_value *all; /* in the plan's arena */
} lhi_best_per_value;

/* Appends the best result with one dimension value to the list; memory comes
 * from `mem`. */
lh_status lhi_best_per_value_add(lhi_best_per_value *heads, lhi_arena *mem,
                                 const lhi_best_with_value *head,
                                 lh_error *err);

/* Checks whether another value of the dimension makes another layout: the ZeRO
 * stage matters only for replicated state, sharding for replicas in several
 * datacenters. A job may fix any value for a dimension without effect. */
bool lhi_dimension_has_effect(const lh_job *job, lhi_dimension dimension,
                              const lhi_config *config);

typedef struct lhi_unexplored_bound lhi_unexplored_bound;

/* Least bounds of unexplored layouts, and the best results. */
typedef struct lhi_unexplored {
    const lh_job *job;
    lhi_unexplored_bound *table; /* by dimension and value */
    uint32_t n, room;
    /* least bound with the value undecided or without effect; 0: none */
    int64_t open_ns[LHI_N_DIMENSIONS];
    lhi_best_per_value heads; /* best result per value, from the local search */
} lhi_unexplored;

/* Releases the bound table; valid with only `job` set. */
void lhi_unexplored_fini(lhi_unexplored *unexplored);

/* Records that all layouts with the values that `config` has decided on `level`
 * (depth in the search tree) take at least `ns`. Keeps the least such bound per
 * dimension value. */
lh_status lhi_unexplored_add_bound(lhi_unexplored *unexplored, lhi_level level,
                                   const lhi_config *config, int64_t ns,
                                   lh_error *err);

/* Returns the least recorded bound over layouts with another value of the
 * dimension than `config`; INT64_MAX: none. */
int64_t lhi_unexplored_bound_other_values(const lhi_unexplored *unexplored,
                                          lhi_dimension dimension,
                                          const lhi_config *config);

/* Returns the least recorded bound over layouts with this value of the
 * dimension; INT64_MAX: none. */
int64_t lhi_unexplored_bound_with_value(const lhi_unexplored *unexplored,
                                        lhi_dimension dimension,
                                        uint64_t value);

#endif
