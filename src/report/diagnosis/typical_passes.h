/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's pass times, and its peers' typical times. */
#ifndef LHI_REPORT_DIAGNOSIS_TYPICAL_PASSES_H
#define LHI_REPORT_DIAGNOSIS_TYPICAL_PASSES_H

#include "report/diagnosis/recording.h"

/* All workers' mean pass times. */
typedef struct lhi_typical_passes {
    double *means;   /* n_workers * LHI_N_OPS: means over all steps */
    double *scratch; /* scratch: one value per worker and stage */
} lhi_typical_passes;

/* Computes the mean pass times of each worker (stage of a replica) by kind of
 * pass; allocated in the arena. */
lh_status lhi_typical_passes_compute(const lh_recording *recording,
                                     lhi_arena *arena, lhi_typical_passes *out,
                                     lh_error *err);
/* Returns the median over the other replicas of the worker's stage of their
 * mean times, in ns, for `op` passes. */
int64_t lhi_typical_of_peers(const lhi_typical_passes *passes,
                             const lh_recording *recording, uint32_t worker,
                             lhi_op_type op);
/* Returns the typical time in ns of `op` passes on a stage: the median over
 * replicas of their mean times. */
int64_t lhi_typical_of_stage(const lhi_typical_passes *passes,
                             const lh_recording *recording, uint32_t stage,
                             lhi_op_type op);
/* Returns the median over all stages but `stage` of the typical times, in ns,
 * of `op` passes. */
int64_t lhi_typical_of_other_stages(const lhi_typical_passes *passes,
                                    const lh_recording *recording,
                                    uint32_t stage, lhi_op_type op);

/* Sorts n values and returns their lower median: of two middle values the
 * lesser, because it shows an attainable time; 0 if n is 0. */
double lhi_lower_median(double *values, uint32_t n);

#endif
