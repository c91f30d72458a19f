/* SPDX-License-Identifier: Apache-2.0 */
/* Insertion heuristic: builds schedules microbatch by microbatch, each on its
 * complete path through the gaps that earlier ones left
 * (docs/theory/optimal.md, "Insertion"). */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_INSERTION_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_INSERTION_H

#include "schedule/solver/model/machine_orders.h"

typedef struct lhi_inserter lhi_inserter;

/* Creates an insertion engine in `mem`. `mirrored`: inserts from the last
 * microbatch to the first, time reversed. *out is NULL if insertion does not
 * apply. Then a device has several chunks, a machine follows another, memory is
 * more than W before F, or times are close to the 64-bit limit. */
lh_status lhi_inserter_make(const lhi_shop *shop, bool mirrored, uint64_t seed,
                            lhi_arena *mem, lhi_inserter **out, lh_error *err);

/* Options for one annealing cycle. */
typedef struct lhi_insertion_options {
    /* All schedules begin with the first (mirrored: the last) n_kept
     * microbatches of a schedule with n_microbatches. start[]: starts of the
     * operations in its job shop, which differs only in the microbatch
     * count. NULL: empty prefix. */
    const int64_t *start;
    uint32_t n_microbatches, n_kept;
    uint64_t ticks; /* to spend, approximate */
    int64_t target; /* stop at this objective */
} lhi_insertion_options;

/* Runs one annealing cycle of insertion: at least one schedule unless the
 * budget is spent, at most 200. If better than *best_time (< 0: any), stores
 * the orders in `best` and updates *best_time. */
void lhi_inserter_run(lhi_inserter *inserter, const lhi_insertion_options *how,
                      lhi_machine_orders *best, int64_t *best_time,
                      lhi_budget *budget);
/* Returns each operation's end as placed in the last schedule, which may be
 * later than its orders allow; mirrored: reversed time. */
const int64_t *lhi_inserter_get_ends(const lhi_inserter *inserter);

#endif
