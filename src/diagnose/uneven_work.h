/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches that take differently long, each as much so on all ranks and
 * forward as backward: their work differs, as that of sequences of unequal
 * length does, and no rank is slow. */
#ifndef LHI_UNEVEN_WORK_H
#define LHI_UNEVEN_WORK_H

#include "diagnose/recording.h"

typedef struct lhi_uneven_step {
    bool is_uneven;
    /* What the passes of a rank's microbatches take, over their mean: standard
     * deviation, and that of the longest. Of the rank in the middle. */
    double spread, longest;
} lhi_uneven_step;

/* In the arena one for each step of the recording. */
lh_status lhi_uneven_find(const lh_recording *recording, lhi_arena *arena,
                          lhi_uneven_step **out, lh_error *err);

#endif
