/* SPDX-License-Identifier: Apache-2.0 */
/* What dives.c, dive_layers.c and dive_targets.c know of dives under way. */
#ifndef LHI_DIVES_OWN_H
#define LHI_DIVES_OWN_H

#include "plan/search/dives.h"
#include "plan/search/nearby.h"
#include "plan/search/search_limits.h"

#define LHI_NO_CANDIDATE INT32_MAX
/* Of their work; the last is for the best of all, when all have dived. */
#define LHI_DIVE_PARTS 6

/* A value of a dimension; LHI_N_DIMENSIONS: whatever it is. */
typedef struct lhi_dive_target {
    lhi_dimension dimension;
    uint64_t value;
    int64_t best; /* by the plan's objective; INT64_MAX: none works */
    uint32_t at;  /* the candidate, or that whose layout `row` has */
    lh_choice row;
    bool settled; /* since it was found */
} lhi_dive_target;

typedef struct lhi_dive_found {
    lhi_config config;
    lhi_floor floor;
} lhi_dive_found;

/* One of them; small, as many are sorted. */
typedef struct lhi_dive_near {
    int64_t key;    /* to be sorted by */
    uint32_t found; /* which */
    uint32_t at;    /* candidate */
} lhi_dive_near;

typedef struct lhi_diver {
    lhi_layout_search *s;
    lhi_space space;
    lhi_floors *floors;
    lhi_bounded *bounded; /* of what is near */
    lhi_search_limits limits;
    uint64_t work;
    uint32_t parts;           /* of LHI_DIVE_PARTS, after which they end */
    lhi_dive_target *targets; /* the first: the best of all */
    uint32_t n_targets, room;
    lhi_dive_found *found; /* what is near, in the order of the space */
    uint32_t n_found, found_room;
    lhi_dive_near *near; /* what is left of it, the best first */
    uint32_t n_near, near_room;
    uint32_t *known; /* candidates + 1, by their configurations */
    uint32_t known_room;
    uint32_t first; /* candidate of the dives */
    bool *moved;    /* of each candidate; as many as there is room for */
} lhi_diver;

/* The first target, and one for each value of each dimension that the job
 * leaves open or a candidate has. */
lh_status lhi_dive_targets_make(lhi_diver *d, lh_error *err);

/* By its bound no plan with the value is better than the best of all, nor than
 * the best that is known with another value than that has. */
bool lhi_dive_is_closed(const lhi_diver *d, const lhi_dive_target *t);
/* They have done what they may. */
bool lhi_dive_spent(const lhi_diver *d);
/* What a candidate comes to; INT64_MAX: it does not work. */
int64_t lhi_dive_value(const lhi_diver *d, uint32_t candidate);
/* What takes as long is of no use to the target; INT64_MAX: all may be. */
int64_t lhi_dive_limit(const lhi_diver *d, const lhi_dive_target *t);
/* The candidate is another: targets whose best it is now have it. */
void lhi_dive_note(lhi_diver *d, uint32_t candidate);
/* The same of one row of it. */
void lhi_dive_note_row(lhi_diver *d, uint32_t candidate, const lh_choice *row);
/* Whether it has the target's value; `method`: its number in lhi_methods. */
bool lhi_dive_is_of(const lhi_dive_target *t, const lhi_config *config,
                    uint64_t method);
int lhi_dive_compare_near(const void *a, const void *b); /* by their keys */

/* A candidate with the layers of `from`, if that is better than what it is and
 * may be the target's best. */
lh_status lhi_dive_lend(lhi_diver *d, const lhi_dive_target *t, uint32_t at,
                        const lhi_config *from, lh_error *err);
/* What may be better than the best of all gets the layers of those that are
 * best, and nearly so. *better: one is. */
lh_status lhi_dive_lend_to_all(lhi_diver *d, bool *better, lh_error *err);

/* `list` with room for one more than its `n` of `each` bytes; NULL: no memory,
 * and it stays. */
void *lhi_dive_grown(void *list, uint32_t n, uint32_t *room, size_t each);

#endif
