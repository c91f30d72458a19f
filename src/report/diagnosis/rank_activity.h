/* SPDX-License-Identifier: Apache-2.0 */
/* Activities of all ranks of a recording, compared. */
#ifndef LHI_REPORT_DIAGNOSIS_RANK_ACTIVITY_H
#define LHI_REPORT_DIAGNOSIS_RANK_ACTIVITY_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/experimental/diagnose.h>

/* One rank's activity over all steps in its traces, in ns. */
typedef struct lhi_activity {
    uint32_t n_steps; /* marked ones */
    lh_activity_source source;
    int64_t start_ns, end_ns; /* a file's first and last activity or mark */
    int64_t span_ns;          /* between them, of all files */
    int64_t compute_ns, communication_ns, copy_ns;
    int64_t overlap_ns; /* compute and communication at once */
    int64_t idle_ns;    /* none of the three */
} lhi_activity;

/* Adds the activity times and the step count of `from`, another file of the
 * same rank, to *to. */
void lhi_activity_add(lhi_activity *to, const lhi_activity *from);

/* A rank's activity with its origin. */
typedef struct lhi_recorded_activity {
    char *file; /* owned */
    uint32_t rank;
    lhi_activity sums;
} lhi_recorded_activity;

/* Computes each rank's activity times per step, and its computation's ratio to
 * the other ranks' median, into *out (n entries in the arena). The ratios are 0
 * if the ranks' times cannot be compared. */
lh_status lhi_rank_activities_compare(const lhi_recorded_activity *list,
                                      uint32_t n, lhi_arena *arena,
                                      const lh_rank_activity **out,
                                      lh_error *err);

#endif
