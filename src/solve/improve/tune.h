/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules by rules that a few numbers steer: which stream of a device goes
 * first, and how many activations a chunk may hold. */
#ifndef LHI_TUNE_H
#define LHI_TUNE_H

#include "solve/model/words.h"

typedef struct lhi_tune {
    uint64_t seed;
    uint64_t ticks; /* to spend */
    int64_t target; /* stop at this objective */
} lhi_tune;

/* Leaves the best orders found in `best` if they beat *best_time (below 0: any
 * do), which is then theirs, timed by lhi_words_time(). */
lh_status lhi_words_tune(lhi_words *best, int64_t *best_time,
                         const lhi_tune *how, lhi_budget *budget,
                         lhi_arena *mem, lh_error *err);

#endif
