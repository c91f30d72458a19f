/* SPDX-License-Identifier: Apache-2.0 */
/* Large-neighbourhood search around the best schedule (docs/theory/optimal.md,
 * "All together"). */
#ifndef LHI_NEAR_H
#define LHI_NEAR_H

#include "solve/state/solver.h"

enum { LHI_NEAR_KINDS = 3 }; /* all devices, three quarters, half */

/* State kept between calls to lhi_lns_run(). */
typedef struct lhi_near {
    int64_t at;                    /* interval centre, 1/1024 of the makespan */
    int64_t share[LHI_NEAR_KINDS]; /* interval length, likewise */
    int64_t step;                  /* requested improvement, units */
    uint32_t n_asked, n_vain;      /* subproblems; failures since a success */
    lhi_words *now;       /* current schedule: initially the best */
    lhi_words *elsewhere; /* `now` with perturbed times */
    int64_t best_ns;      /* incumbent that `now` was copied from */
    lhi_random random;
} lhi_near;

/* Improves the incumbent by searches that may change it in a time interval
 * only, on all or some devices, in `room` bytes. When no improvement is left,
 * continues from schedules that are slightly longer. */
lh_status lhi_try_near(lhi_solver *r, lhi_near *state, uint64_t ticks,
                       size_t room, lh_error *err);

#endif
