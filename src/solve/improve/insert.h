/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules made microbatch by microbatch: each goes all its way through the
 * gaps that those before it left (docs/theory/optimal.md, "Insertion"). */
#ifndef LHI_INSERT_H
#define LHI_INSERT_H

#include "solve/model/words.h"

typedef struct lhi_inserter lhi_inserter;

/* `mirrored`: from the last microbatch to the first, against time. *out is NULL
 * for a shop with several chunks on a device, where a machine follows another,
 * where memory is more than a matter of W before F, or whose times are near
 * what 64 bits can hold. Lives in `mem`. */
lh_status lhi_inserter_make(const lhi_shop *shop, bool mirrored, uint64_t seed,
                            lhi_arena *mem, lhi_inserter **out, lh_error *err);

typedef struct lhi_insert {
    /* All schedules begin with the first (mirrored: the last) n_kept of a
     * schedule of n_microbatches, as it has them: start[] of the operations of
     * its shop, which is this one but for the number of microbatches. NULL:
     * with nothing. */
    const int64_t *start;
    uint32_t n_microbatches, n_kept;
    uint64_t ticks; /* to spend, about */
    int64_t target; /* stop at this objective */
} lhi_insert;

/* Anneals once, from hot to cold: one schedule at least unless the budget is
 * spent, and 200 at most. Leaves the best orders found in `best` if they beat
 * *best_time (below 0: any do), which is then theirs. */
void lhi_inserter_run(lhi_inserter *inserter, const lhi_insert *how,
                      lhi_words *best, int64_t *best_time, lhi_budget *budget);
/* By operation, when it ends by the slots of the last schedule that was made,
 * which is no earlier than its orders let it end; `mirrored`: against time. */
const int64_t *lhi_inserter_ends(const lhi_inserter *inserter);

#endif
