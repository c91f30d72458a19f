/* SPDX-License-Identifier: Apache-2.0 */
/* Parametrised dispatching rules: stream priority on each device and maximum
 * activations per chunk. */
#ifndef LHI_TUNE_H
#define LHI_TUNE_H

#include "solve/model/words.h"

/* Tuning options. */
typedef struct lhi_tune {
    uint64_t seed;
    uint64_t ticks; /* to spend */
    int64_t target; /* stop at this objective */
} lhi_tune;

/* Tunes the rules. If better than *best_time (< 0: any), stores the orders in
 * `best` and updates *best_time, as from lhi_machine_orders_evaluate(). */
lh_status lhi_words_tune(lhi_words *best, int64_t *best_time,
                         const lhi_tune *how, lhi_budget *budget,
                         lhi_arena *mem, lh_error *err);

#endif
