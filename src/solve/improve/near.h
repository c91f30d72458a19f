/* SPDX-License-Identifier: Apache-2.0 */
/* Large neighbourhoods of the best schedule (docs/theory/optimal.md,
 * "All together"). */
#ifndef LHI_NEAR_H
#define LHI_NEAR_H

#include "solve/state/solver.h"

enum { LHI_NEAR_KINDS = 3 }; /* all devices, three quarters of them, half */

/* Where lhi_try_near() stands, from one call to the next. */
typedef struct lhi_near {
    int64_t at;                    /* of the makespan, in 1024th */
    int64_t share[LHI_NEAR_KINDS]; /* likewise */
    int64_t step;                  /* units that a schedule is to be shorter */
    uint32_t n_asked, n_vain;      /* questions; since one was */
    lhi_words *now;       /* to begin with: the best, or what was found since */
    lhi_words *elsewhere; /* its times, out of order */
    int64_t best_ns;      /* that was there when `now` was taken from it */
    lhi_random random;
} lhi_near;

/* Improves the best schedule by searches that may change it in a stretch of
 * time only, on all devices or some, in `room` bytes. Where that ends they go
 * on from others that are hardly longer. */
lh_status lhi_try_near(lhi_solver *r, lhi_near *state, uint64_t ticks,
                       size_t room, lh_error *err);

#endif
