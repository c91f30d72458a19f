/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker's passes take, and what they would elsewhere. */
#ifndef LHI_USUAL_PASSES_H
#define LHI_USUAL_PASSES_H

#include "diagnose/recording.h"

typedef struct lhi_usual_passes {
    double *means; /* n_workers * LHI_N_OPS: over all steps */
    double *room;  /* for values of each worker and stage */
} lhi_usual_passes;

lh_status lhi_usual_passes_find(const lh_recording *recording, lhi_arena *arena,
                                lhi_usual_passes *out, lh_error *err);
/* What a kind of passes takes other replicas of the worker's stage: the one in
 * the middle of them. */
int64_t lhi_usual_beside(const lhi_usual_passes *passes,
                         const lh_recording *recording, uint32_t worker,
                         lhi_op_type op);
/* What it usually takes a stage. */
int64_t lhi_usual_of_stage(const lhi_usual_passes *passes,
                           const lh_recording *recording, uint32_t stage,
                           lhi_op_type op);
/* What it takes the other stages: the one in the middle of them. */
int64_t lhi_usual_elsewhere(const lhi_usual_passes *passes,
                            const lh_recording *recording, uint32_t stage,
                            lhi_op_type op);

/* Of values, which are sorted, the one in the middle, of two the lesser: what
 * is usual, and of two the one that shows what can be. 0: there are none. */
double lhi_lower_median(double *values, uint32_t n);

#endif
