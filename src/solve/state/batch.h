/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of work that know nothing of each other, on several threads. What they
 * bring is taken in order and as far as it is of use, so it does not matter how
 * many threads there are (docs/theory/optimal.md, "Threads"). */
#ifndef LHI_BATCH_H
#define LHI_BATCH_H

#include "solve/state/solver.h"

typedef struct lhi_piece {
    uint64_t ticks; /* given: what it may spend */
    atomic_bool end;
    lhi_budget budget;
    bool last; /* set by its work: those after it are of no use */
    lh_status status;
    lh_error err;
} lhi_piece;

typedef struct lhi_batch {
    lhi_solver *r;
    void *context;
    uint32_t n;
    lhi_piece *pieces;
    /* Does piece i within its budget, on any thread; not called for pieces that
     * nobody wants any more. */
    lh_status (*work)(void *context, uint32_t i, lhi_piece *piece);
    /* Takes what piece i brought, in order, on the calling thread while others
     * may still be at work; *last: what follows is of no use. */
    lh_status (*take)(void *context, uint32_t i, const lhi_piece *piece,
                      bool *last, lh_error *err);
    uint32_t n_taken;
    bool over;
    lh_status status;
    lh_error *err;
} lhi_batch;

/* On at most `threads` threads. What taken pieces spent is r's. */
lh_status lhi_batch_run(lhi_batch *batch, uint32_t threads, lh_error *err);

#endif
