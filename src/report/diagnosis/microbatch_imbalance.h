/* SPDX-License-Identifier: Apache-2.0 */
/* Detects microbatches with uneven durations, each in the same ratio on all
 * ranks, forward and backward. Then their work differs, as with sequences of
 * unequal length, and no rank is slow. */
#ifndef LHI_REPORT_DIAGNOSIS_MICROBATCH_IMBALANCE_H
#define LHI_REPORT_DIAGNOSIS_MICROBATCH_IMBALANCE_H

#include "report/diagnosis/recording.h"

/* Microbatch imbalance in a step. */
typedef struct lhi_imbalance_step {
    bool is_uneven;
    /* Pass times of a rank's microbatches relative to their mean: standard
     * deviation and maximum; both are medians over the ranks. */
    double spread, longest;
} lhi_imbalance_step;

/* Computes the microbatch imbalance of each step of the recording: *out has
 * one entry per step, allocated in the arena. */
lh_status lhi_imbalance_find(const lh_recording *recording, lhi_arena *arena,
                             lhi_imbalance_step **out, lh_error *err);

#endif
