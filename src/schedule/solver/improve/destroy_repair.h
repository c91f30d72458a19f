/* SPDX-License-Identifier: Apache-2.0 */
/* Destroy and repair, a large neighbourhood for insertion: removes a schedule's
 * last (or first) microbatches and inserts them again (docs/theory/optimal.md,
 * "Insertion"). */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_DESTROY_REPAIR_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_DESTROY_REPAIR_H

#include "schedule/solver/improve/insertion.h"
#include "schedule/solver/state/solver.h"

/* Creates a destroy-and-repair engine in `mem`, which it also uses as scratch,
 * so parallel engines need separate arenas. *out is NULL if insertion does not
 * apply to the job shop. */
lh_status lhi_repairer_make(const lhi_shop *shop, uint64_t seed, lhi_arena *mem,
                            lhi_repairer **out, lh_error *err);

/* Options for one run. */
typedef struct lhi_repair_options {
    const lhi_reduction *reduction; /* initial schedules; may be NULL */
    uint64_t ticks;                 /* to spend, approximate */
    int64_t target;                 /* stop at this objective */
    uint64_t seed;                  /* for justification */
} lhi_repair_options;

/* Improves `orders` by destroy and repair: keeps a part of the schedule and
 * builds the rest again by insertion. *time: their objective as last evaluated
 * (< 0: no orders yet), updated on improvement; *by: the engine that found it.
 * */
lh_status lhi_repairer_run(lhi_repairer *repairer, lhi_machine_orders *orders,
                           int64_t *time, lhi_engine *by,
                           const lhi_repair_options *how, lhi_budget *budget,
                           lh_error *err);

#endif
