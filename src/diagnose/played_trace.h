/* SPDX-License-Identifier: Apache-2.0 */
/* A step as it was played again, as a trace. */
#ifndef LHI_PLAYED_TRACE_H
#define LHI_PLAYED_TRACE_H

#include "diagnose/play_again.h"

#include <longhaul/trace.h>

typedef struct lhi_replayed {
    const lhi_recorded_step *step;
    const lhi_scenario *scenario;
    uint32_t n_replicas;
    const uint32_t *replicas; /* those that are shown, by index */
} lhi_replayed;

/* In the arena: passes alone, of the replicas that are shown; each is a site,
 * with a device for each of its stages. The makespan is that of all replicas.
 * Replicas do the same passes, so that this is no trace that a file may hold:
 * lh_trace_copy() would refuse it. */
lh_status lhi_played_trace(const lh_recording *recording,
                           const lhi_replayed *played, lhi_arena *arena,
                           lh_trace *out, lh_error *err);

/* The pass that operation i is. */
lh_pass lhi_pass_of(const lhi_op_graph *graph, uint32_t i);

#endif
