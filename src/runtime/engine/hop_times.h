/* SPDX-License-Identifier: Apache-2.0 */
/* Times of hosts and of the hops between them in one iteration, from all ranks'
 * observations over real links. */
#ifndef LHI_RUNTIME_ENGINE_HOP_TIMES_H
#define LHI_RUNTIME_ENGINE_HOP_TIMES_H

#include "resilience/adapt/slow_hosts.h"
#include "runtime/engine/calibration.h"
#include "runtime/engine/iteration_observation.h"

typedef struct lhi_hop_times lhi_hop_times;

/* Creates the measurement of hop times (traffic between places) for the hops of
 * `slow`, which must outlive it, and a job's places. Release with
 * lhi_hop_times_free(). */
lh_status lhi_hop_times_make(const lhi_job *job, const lhi_slow_hosts *slow,
                             lhi_hop_times **out, lh_error *err);
void lhi_hop_times_free(lhi_hop_times *times);

/* Sets whole->pass_ns and hop_ns, borrowed until the next call, from the
 * observations `parts` per place and the merged `observation` of step `step`.
 * A data-parallel message's time begins when it is sent and its receive is
 * posted; different hosts' clocks are compared by messages in both directions.
 * Pipeline messages between different clocks have no time. */
void lhi_hop_times_compute(lhi_hop_times *times,
                           const lhi_rank_observation *parts,
                           const lhi_iteration_observation *observation,
                           uint64_t step, lhi_measured_iteration *whole);

#endif
