/* SPDX-License-Identifier: Apache-2.0 */
/* A replica of a recording as a scheduling problem. */
#ifndef LHI_REPLICA_PIPELINE_H
#define LHI_REPLICA_PIPELINE_H

#include "diagnose/recording.h"

/* Mean times of a chunk's passes in ns. */
typedef struct lhi_chunk_times {
    double f, b, d, w;
    uint32_t stage;
} lhi_chunk_times;

/* Of a replica, or of all (LH_NONE): n_chunks of them, in the arena. NULL: no
 * memory. */
lhi_chunk_times *lhi_chunk_times_of(const lh_recording *recording,
                                    uint32_t replica, lhi_arena *arena);

/* What lhi_replica_pipeline() makes otherwise than the recording has it. */
typedef struct lhi_reshaped {
    bool has_links;      /* messages take what they took on the mean */
    uint32_t split_by;   /* each microbatch as so many, as much shorter; 0: 1 */
    const int64_t *held; /* memory limits of the stages; NULL: none */
} lhi_reshaped;

lh_status lhi_replica_pipeline(const lh_recording *recording, uint32_t replica,
                               const lhi_reshaped *how, lh_pipeline **out,
                               lh_error *err);
/* The order in which the replica ran in the first step. */
lh_status lhi_replica_schedule(const lh_recording *recording, uint32_t replica,
                               lh_schedule **out, lh_error *err);

#endif
