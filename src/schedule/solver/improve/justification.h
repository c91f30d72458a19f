/* SPDX-License-Identifier: Apache-2.0 */
/* Forward-backward improvement: schedules dispatched alternately from both
 * ends, each by due dates from the previous one (docs/theory/optimal.md, "Both
 * ends"). */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_JUSTIFICATION_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_JUSTIFICATION_H

#include "schedule/solver/model/machine_orders.h"

typedef struct lhi_justifier lhi_justifier;

/* Creates a justification engine (repeated list scheduling with due dates from
 * the opposite direction) in `mem`. *out is NULL if a machine follows the
 * order of another, which is unknown when building from the end. */
lh_status lhi_justifier_make(const lhi_shop *shop, lhi_arena *mem,
                             lhi_justifier **out, lh_error *err);

/* Options for one run. */
typedef struct lhi_justification_options {
    uint64_t seed;
    uint64_t ticks;   /* to spend */
    int64_t target;   /* stop at this objective */
    bool unperturbed; /* no perturbation; stop without improvement */
} lhi_justification_options;

/* Improves `best` by justification (repeated list scheduling with due dates
 * from the opposite direction). `best` must be feasible and evaluated, and is
 * again on return. Updates *best_time on improvement. */
lh_status lhi_justifier_run(lhi_justifier *j, lhi_machine_orders *best,
                            int64_t *best_time,
                            const lhi_justification_options *how,
                            lhi_budget *budget, lh_error *err);

/* Improves `best`, with objective *best_time, as lhi_justifier_run() does, but
 * without perturbation, until a round does not improve it or its objective is
 * at most `target`. A NULL justifier does nothing. */
lh_status lhi_justifier_run_unperturbed(lhi_justifier *j,
                                        lhi_machine_orders *best,
                                        int64_t *best_time, uint64_t seed,
                                        int64_t target, lhi_budget *budget,
                                        lh_error *err);

#endif
