/* SPDX-License-Identifier: Apache-2.0 */
/* Internal local-search state, shared by local_search.c,
 * local_search_transfer.c and local_search_targets.c. */
#ifndef LHI_DIVES_OWN_H
#define LHI_DIVES_OWN_H

#include "plan/search/dives.h"
#include "plan/search/nearby.h"
#include "plan/search/search_limits.h"

#define LHI_NO_CANDIDATE INT32_MAX
/* Parts of the work budget; the last is for the overall best, after all
 * targets. */
#define LHI_DIVE_PARTS 6

/* A target: one value of a dimension; LHI_N_DIMENSIONS: any value. */
typedef struct lhi_dive_target {
    lhi_dimension dimension;
    uint64_t value;
    int64_t best; /* by the plan's objective; INT64_MAX: none works */
    uint32_t at;  /* the candidate, or the one whose layout `row` has */
    lh_choice row;
    bool settled; /* since it was found */
} lhi_dive_target;

/* A neighbour with its lower bound. */
typedef struct lhi_dive_found {
    lhi_config config;
    lhi_floor floor;
} lhi_dive_found;

/* A neighbour; small, because many are sorted. */
typedef struct lhi_dive_near {
    int64_t key;    /* sort key */
    uint32_t found; /* index in `found` */
    uint32_t at;    /* candidate */
} lhi_dive_near;

/* Local search state. */
typedef struct lhi_diver {
    lhi_layout_search *s;
    lhi_space space;
    lhi_floors *floors;
    lhi_bounded *bounded; /* bounds of neighbours */
    lhi_search_limits limits;
    uint64_t work;
    uint32_t parts;           /* parts of LHI_LOCAL_SEARCH_PARTS to use */
    lhi_dive_target *targets; /* the first: the overall best */
    uint32_t n_targets, room;
    lhi_dive_found *found; /* neighbours, in the space's order */
    uint32_t n_found, found_room;
    lhi_dive_near *near; /* neighbours that remain, best first */
    uint32_t n_near, near_room;
    uint32_t *known; /* hash table by configuration: candidate + 1 */
    uint32_t known_room;
    uint32_t first; /* first candidate added by the local search */
    bool *moved;    /* per candidate, same capacity */
} lhi_diver;

/* Creates the targets: the overall best, and one per dimension value that the
 * job leaves open or a candidate has. */
lh_status lhi_dive_targets_make(lhi_diver *d, lh_error *err);

/* Checks whether the bound closes a target: no plan with its value beats the
 * overall best, nor the best known with another value than that. */
bool lhi_dive_is_closed(const lhi_diver *d, const lhi_dive_target *t);
/* Checks whether the work budget is used up. */
bool lhi_dive_spent(const lhi_diver *d);
/* Returns a candidate's value; INT64_MAX: it does not work. */
int64_t lhi_dive_value(const lhi_diver *d, uint32_t candidate);
/* Returns the time from which candidates are useless for the target; INT64_MAX:
 * no limit. */
int64_t lhi_dive_limit(const lhi_diver *d, const lhi_dive_target *t);
/* Updates the targets after a candidate has changed. */
void lhi_dive_note(lhi_diver *d, uint32_t candidate);
/* The same for one row of it. */
void lhi_dive_note_row(lhi_diver *d, uint32_t candidate, const lh_choice *row);
/* Checks whether a configuration has the target's value; `method`: index in
 * lhi_methods. */
bool lhi_dive_is_of(const lhi_dive_target *t, const lhi_config *config,
                    uint64_t method);
int lhi_dive_compare_near(const void *a, const void *b); /* compares keys */

/* Gives a candidate the layers of `from` if that improves it and may make it
 * the target's best. */
lh_status lhi_dive_lend(lhi_diver *d, const lhi_dive_target *t, uint32_t at,
                        const lhi_config *from, lh_error *err);
/* Tries the partitions of the best and nearly best candidates on all that may
 * beat the overall best. *better: one does. */
lh_status lhi_dive_lend_to_all(lhi_diver *d, bool *better, lh_error *err);

/* Returns `list` with capacity for one more than its `n` entries of `each`
 * bytes; NULL: no memory, and `list` stays valid. */
void *lhi_dive_grown(void *list, uint32_t n, uint32_t *room, size_t each);

#endif
