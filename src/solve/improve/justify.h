/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules dispatched from both ends in turn, each by what the one before
 * says is due (docs/theory/optimal.md, "Both ends"). */
#ifndef LHI_JUSTIFY_H
#define LHI_JUSTIFY_H

#include "solve/model/words.h"

typedef struct lhi_justifier lhi_justifier;

/* *out is NULL for a shop with machines that follow others: from the end it is
 * not known what they follow. Lives in `mem`. */
lh_status lhi_justifier_make(const lhi_shop *shop, lhi_arena *mem,
                             lhi_justifier **out, lh_error *err);

typedef struct lhi_justify {
    uint64_t seed;
    uint64_t ticks; /* to spend */
    int64_t target; /* stop at this objective */
    bool calm;      /* stop when a round gains nothing; disturbs nothing */
} lhi_justify;

/* Leaves the best orders found in `best`, which must be feasible and timed (and
 * then is again), if they beat *best_time. */
lh_status lhi_justify_run(lhi_justifier *j, lhi_words *best, int64_t *best_time,
                          const lhi_justify *how, lhi_budget *budget,
                          lh_error *err);

/* The same until a round gains nothing, disturbing nothing. A justifier that is
 * NULL leaves all as it is. */
lh_status lhi_justify_calmly(lhi_justifier *j, lhi_words *best,
                             int64_t *best_time, uint64_t seed, int64_t target,
                             lhi_budget *budget, lh_error *err);

#endif
