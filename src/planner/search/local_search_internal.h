/* SPDX-License-Identifier: Apache-2.0 */
/* Internal local-search state, shared by local_search.c,
 * local_search_candidates.c, local_search_transfer.c and
 * local_search_targets.c. */
#ifndef LHI_PLANNER_SEARCH_LOCAL_SEARCH_INTERNAL_H
#define LHI_PLANNER_SEARCH_LOCAL_SEARCH_INTERNAL_H

#include "planner/search/local_search.h"
#include "planner/search/neighbourhood.h"
#include "planner/search/search_budget.h"

/* As a candidate's index: none. */
#define LHI_NO_CANDIDATE INT32_MAX
/* Parts of the work budget; the last is for the overall best, after all
 * targets. */
#define LHI_LOCAL_SEARCH_PARTS 6

/* A target: one value of a dimension; LHI_N_DIMENSIONS: any value. */
typedef struct lhi_local_search_target {
    lhi_dimension dimension;
    uint64_t value;
    int64_t best; /* by the plan's objective; INT64_MAX: none works */
    uint32_t at;  /* the candidate, or the one whose layout `row` has */
    lh_choice row;
    bool settled; /* since it was found */
} lhi_local_search_target;

/* A neighbour with its lower bound. */
typedef struct lhi_local_search_found {
    lhi_config config;
    lhi_lower_bound floor;
} lhi_local_search_found;

/* A neighbour; small, because many are sorted. */
typedef struct lhi_local_search_neighbour {
    int64_t key;    /* sort key */
    uint32_t found; /* index in `found` */
    uint32_t at;    /* candidate */
} lhi_local_search_neighbour;

/* Local search state. */
typedef struct lhi_local_search {
    lhi_layout_search *s;
    lhi_space space;
    lhi_bound_inputs *floors;
    lhi_bound_cache *bound_cache; /* bounds of neighbours */
    lhi_search_limits limits;
    uint64_t work;
    uint32_t parts; /* parts of LHI_LOCAL_SEARCH_PARTS to use */
    lhi_local_search_target *targets; /* the first: the overall best */
    uint32_t n_targets, room;
    lhi_local_search_found *found; /* neighbours, in the space's order */
    uint32_t n_found, found_room;
    lhi_local_search_neighbour
        *neighbours; /* neighbours that remain, best first */
    uint32_t n_near, near_room;
    uint32_t *known; /* hash table by configuration: candidate + 1 */
    uint32_t known_room;
    uint32_t first; /* first candidate added by the local search */
    bool *moved;    /* per candidate, same capacity */
} lhi_local_search;

/* Ensures capacity for `more` further candidates, also in the hash table. */
lh_status lhi_local_search_ensure_capacity(lhi_local_search *d, uint32_t more,
                                           lh_error *err);
/* Finds the candidate of neighbouring layout `n`, or adds one with its bound
 * (*made: added). A new one whose bound is not below `limit_ns` gets rebalanced
 * layers. Call lhi_local_search_ensure_capacity() first. */
lh_status lhi_local_search_find_candidate(lhi_local_search *d,
                                          lhi_local_search_neighbour *n,
                                          int64_t limit_ns, bool *made,
                                          lh_error *err);

/* Creates the local search's targets: the overall best, and one per dimension
 * value that the job leaves open or a candidate has. */
lh_status lhi_local_search_make_targets(lhi_local_search *d, lh_error *err);

/* Checks whether target `t` (best plan with one dimension value) needs no
 * search: its bound shows that no plan with its value beats the overall best
 * and the best with any other value of the dimension. */
bool lhi_local_search_is_closed(const lhi_local_search *d,
                                const lhi_local_search_target *t);
/* Checks whether the local search has used up its limit of work or time. */
bool lhi_local_search_is_out_of_budget(const lhi_local_search *d);
/* Returns candidate `at`'s objective value; INT64_MAX: it does not work. */
int64_t lhi_local_search_value(const lhi_local_search *d, uint32_t candidate);
/* Returns the iteration time, in ns, from which a result cannot improve target
 * `t` (best plan with one dimension value) or, if only the best plan is
 * required, the overall best. INT64_MAX if the objective is cost,
 * to which time bounds do not apply. */
int64_t lhi_local_search_limit(const lhi_local_search *d,
                               const lhi_local_search_target *t);
/* Compares candidate `at`'s result with every target (best plan with one
 * dimension value). Stores it in each target whose dimension value the
 * candidate has and whose best plan it beats. */
void lhi_local_search_update_targets(lhi_local_search *d, uint32_t candidate);
/* Compares `row`, one result of candidate `at`, with every target (best plan
 * with one dimension value). Stores it in each target whose dimension value it
 * has and whose best plan it beats. */
void lhi_local_search_update_targets_by_row(lhi_local_search *d,
                                            uint32_t candidate,
                                            const lh_choice *row);
/* Checks whether a configuration, scheduled by `method` (index in lhi_methods),
 * has the dimension value for which target `t` seeks the best plan. */
bool lhi_local_search_has_value(const lhi_local_search_target *t,
                                const lhi_config *config, uint64_t method);
/* Orders neighbouring layouts by their sort key `key`, ascending, for
 * qsort(). */
int lhi_local_search_compare_neighbours(const void *a, const void *b);

/* Evaluates candidate `at` with `from`'s layer partition, if its bound allows a
 * new best of target `t` (best plan with one dimension value). Stores the
 * result if it is better. */
lh_status lhi_local_search_transfer_partition(lhi_local_search *d,
                                              const lhi_local_search_target *t,
                                              uint32_t at,
                                              const lhi_config *from,
                                              lh_error *err);
/* Evaluates the best plans' layer partitions by dimension value on all
 * candidates that may beat the overall best with them. *better: one does. */
lh_status lhi_local_search_transfer_to_all(lhi_local_search *d, bool *better,
                                           lh_error *err);

/* Grows `list`, which has `n` entries with `each` bytes, to a capacity for at
 * least n + 1 and updates *room, its capacity. Returns the new list; NULL: no
 * memory, and `list` stays valid. */
void *lhi_local_search_grow_list(void *list, uint32_t n, uint32_t *room,
                                 size_t each);

#endif
