/* SPDX-License-Identifier: Apache-2.0 */
/* Independent tasks on several threads. Results are merged in order as far as
 * they are useful, so they do not depend on the number of threads
 * (docs/theory/optimal.md, "Threads"). */
#ifndef LHI_SCHEDULE_SOLVER_STATE_BATCH_H
#define LHI_SCHEDULE_SOLVER_STATE_BATCH_H

#include "schedule/solver/state/solver.h"

/* One task with its limits and status. */
typedef struct lhi_batch_task {
    uint64_t ticks; /* input: work limit */
    atomic_bool end;
    lhi_budget budget;
    bool ends_batch; /* set by the task: later tasks are useless */
    lh_status status;
    lh_error err;
} lhi_batch_task;

/* A batch of tasks with its callbacks. */
typedef struct lhi_batch {
    lhi_solver *r;
    void *context;
    uint32_t n;
    lhi_batch_task *pieces;
    /* Runs task i within its budget, on any thread; not called for tasks that
     * are no longer useful. */
    lh_status (*work)(void *context, uint32_t i, lhi_batch_task *piece);
    /* Merges task i's result, in order, on the calling thread while others may
     * still run; *last: later tasks are useless. */
    lh_status (*take)(void *context, uint32_t i, const lhi_batch_task *piece,
                      bool *last, lh_error *err);
    uint32_t n_taken;
    bool over;
    lh_status status;
    lh_error *err;
} lhi_batch;

/* Runs a batch of tasks on at most `threads` threads. The work of merged tasks
 * is added to the solver's budget. */
lh_status lhi_batch_run(lhi_batch *batch, uint32_t threads, lh_error *err);

#endif
