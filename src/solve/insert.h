/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules made microbatch by microbatch: each goes all its way through the
 * gaps that those before it left (docs/theory/optimal.md, "Insertion"). */
#ifndef LHI_INSERT_H
#define LHI_INSERT_H

#include "solve/words.h"

typedef struct lhi_inserter lhi_inserter;

/* `mirrored`: from the last microbatch to the first, against time. *out is NULL
 * for a shop with several chunks on a device, where a machine follows another,
 * where memory is more than a matter of W before F, or whose times are near what
 * 64 bits can hold. Lives in `mem`. */
lh_status lhi_inserter_make(const lhi_shop *shop, bool mirrored, uint64_t seed,
                            lhi_arena *mem, lhi_inserter **out, lh_error *err);

/* Goes on where the last call ended, for so many ticks or until the objective
 * is no more than `target`. Leaves the best orders found in `best` if they beat
 * *best_time (below 0: any do), which is then theirs. */
void lhi_inserter_run(lhi_inserter *inserter, lhi_words *best,
                      int64_t *best_time, uint64_t ticks, int64_t target,
                      lhi_budget *budget);

#endif
