/* SPDX-License-Identifier: Apache-2.0 */
/* A large neighbourhood for insertion: a schedule's last microbatches are taken
 * out and inserted again, or its first ones (docs/theory/optimal.md,
 * "Insertion"). */
#ifndef LHI_REGROW_H
#define LHI_REGROW_H

#include "solve/improve/insert.h"
#include "solve/state/solver.h"

/* *out is NULL for a shop that insertion is not for. Lives in `mem`, and works
 * in it: one that runs beside others needs one of its own. */
lh_status lhi_regrower_make(const lhi_shop *shop, uint64_t seed, lhi_arena *mem,
                            lhi_regrower **out, lh_error *err);

typedef struct lhi_regrow {
    const lhi_fewer *fewer; /* schedules to begin with; may be NULL */
    uint64_t ticks;         /* to spend, or a few more */
    int64_t target;         /* stop at this objective */
    uint64_t seed;          /* of justification */
} lhi_regrow;

/* Leaves the best orders found in `words` if they beat *time, which is its own,
 * as it was last timed (below 0: it has no orders yet). *by is then what found
 * them. */
lh_status lhi_regrow_run(lhi_regrower *regrower, lhi_words *words,
                         int64_t *time, lhi_engine *by, const lhi_regrow *how,
                         lhi_budget *budget, lh_error *err);

#endif
