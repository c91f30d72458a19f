/* SPDX-License-Identifier: Apache-2.0 */
/* Heads and tails of operations for any order of the machines
 * (docs/theory/optimal.md, "Heads and tails"). */
#ifndef LHI_SCHEDULE_SOLVER_BOUND_HEADS_H
#define LHI_SCHEDULE_SOLVER_BOUND_HEADS_H

#include "schedule/solver/model/budget.h"
#include "schedule/solver/model/job_shop.h"

/* Lower limits that hold in every schedule, in job-shop time. */
typedef struct lhi_heads {
    int64_t *head; /* per operation: earliest start */
    int64_t *tail; /* per operation: least time from its end to the end of the
                    * objective; < 0: it may end later than the objective */
} lhi_heads;

/* Computes heads and tails in `mem`, for any deadline: from precedence arcs,
 * and from the operations of the same machine that must precede or follow an
 * operation. Stops after `ticks` of work; they are then weaker, but valid. */
lh_status lhi_heads_make(const lhi_shop *shop, uint64_t ticks,
                         lhi_budget *budget, lhi_arena *mem, lhi_heads *out,
                         lh_error *err);

#endif
