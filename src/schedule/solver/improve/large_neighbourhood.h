/* SPDX-License-Identifier: Apache-2.0 */
/* Large-neighbourhood search around the best schedule (docs/theory/optimal.md,
 * "Portfolio"). */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_LARGE_NEIGHBOURHOOD_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_LARGE_NEIGHBOURHOOD_H

#include "schedule/solver/state/solver.h"

enum { LHI_LNS_KINDS = 3 }; /* all devices, three quarters, half */

/* State kept between calls to lhi_lns_run(). */
typedef struct lhi_lns_state {
    int64_t at;                   /* interval centre, 1/1024 of the makespan */
    int64_t share[LHI_LNS_KINDS]; /* interval length, 1/1024 of it */
    int64_t step;                 /* requested improvement, units */
    uint32_t n_subproblems,
        n_failed;                  /* subproblems; failures since a success */
    lhi_machine_orders *now;       /* current schedule: initially the best */
    lhi_machine_orders *perturbed; /* `now` with perturbed times */
    int64_t best_ns;               /* incumbent that `now` was copied from */
    lhi_random random;
} lhi_lns_state;

/* Improves the incumbent by large-neighbourhood search in `room` bytes:
 * searches that may change it in a time interval only, on all or some devices.
 * When no improvement is left, continues from schedules that are slightly
 * longer. */
lh_status lhi_lns_run(lhi_solver *r, lhi_lns_state *state, uint64_t ticks,
                      size_t room, lh_error *err);

#endif
