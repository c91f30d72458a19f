/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a replayed step into a trace. */
#ifndef LHI_REPORT_DIAGNOSIS_REPLAY_TRACE_H
#define LHI_REPORT_DIAGNOSIS_REPLAY_TRACE_H

#include "report/diagnosis/replay.h"

#include <longhaul/experimental/trace.h>

/* A replayed step and the replicas to display. */
typedef struct lhi_replayed_step {
    const lhi_recorded_step *step;
    const lhi_scenario *scenario;
    uint32_t n_replicas;
    const uint32_t *replicas; /* the displayed ones, by index */
} lhi_replayed_step;

/* Builds a trace in the arena with the passes of the displayed replicas; each
 * replica appears as a datacenter with a device per stage. The makespan covers
 * all replicas. Replicas run the same passes, so a file cannot hold this
 * trace: lh_trace_copy() would reject it. */
lh_status lhi_replay_trace_make(const lh_recording *recording,
                                const lhi_replayed_step *replayed,
                                lhi_arena *arena, lh_trace *out, lh_error *err);

/* Returns the pass (chunk, microbatch and kind) of operation `i` in a step's
 * operation graph; the operation must be a pass. */
lh_pass lhi_op_graph_pass(const lhi_op_graph *graph, uint32_t i);

#endif
