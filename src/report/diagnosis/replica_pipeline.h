/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a recording's replica into a scheduling problem. */
#ifndef LHI_REPORT_DIAGNOSIS_REPLICA_PIPELINE_H
#define LHI_REPORT_DIAGNOSIS_REPLICA_PIPELINE_H

#include "report/diagnosis/recording.h"

#include <longhaul/experimental/diagnose.h>

/* A chunk's mean pass times in ns. */
typedef struct lhi_chunk_times {
    double f, b, d, w;
    uint32_t stage;
} lhi_chunk_times;

/* Computes each chunk's mean pass times for a replica, or over all (LH_NONE),
 * in the arena. NULL: allocation failure. */
lhi_chunk_times *lhi_chunk_times_compute(const lh_recording *recording,
                                         uint32_t replica, lhi_arena *arena);

/* Deviations from the recording. */
typedef struct lhi_replica_changes {
    bool has_links;        /* links with mean transfer times */
    uint32_t split_factor; /* parts into which each microbatch is split; 0: 1 */
    const int64_t *memory_limits; /* per-stage memory limits; NULL: none */
} lhi_replica_changes;

/* Builds the replica's pipeline with mean times, changed as `how` says; memory
 * is counted in microbatches. LH_EUNSUPPORTED: the recording is not one
 * pipeline. */
lh_status lhi_replica_pipeline_build(const lh_recording *recording,
                                     uint32_t replica,
                                     const lhi_replica_changes *how,
                                     lh_pipeline **out, lh_error *err);
/* Builds the schedule that the replica executed in the first step. */
lh_status lhi_replica_schedule_build(const lh_recording *recording,
                                     uint32_t replica, lh_schedule **out,
                                     lh_error *err);

/* Builds a replica's pipeline as lh_recording_linked_pipeline() does, but
 * messages take no time; *schedule (unless NULL) is its recorded order. */
lh_status lhi_recording_pipeline(const lh_recording *recording,
                                 uint32_t replica, lh_pipeline **pipeline,
                                 lh_schedule **schedule, lh_error *err);

#endif
