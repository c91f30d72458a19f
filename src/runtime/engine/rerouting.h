/* SPDX-License-Identifier: Apache-2.0 */
/* Division of a lost rank's microbatches among other ranks, as in ReCycle
 * (arXiv:2405.14009), from the restart after its loss on. All ranks build the
 * same pipeline (schedule/pipeline/reroute.h) and schedule (method auto).
 *
 * A rank adds the gradients of its own and of rerouted microbatches in
 * ascending order, first those of replica 0; then the replicas' sums are added
 * as before. Ranks, shards and data stay the same. */
#ifndef LHI_RUNTIME_ENGINE_REROUTING_H
#define LHI_RUNTIME_ENGINE_REROUTING_H

#include "runtime/engine/job.h"

/* Returns the rank whose host runs a lost rank besides its own: that of the
 * next stage of the replica, or of the previous one; LH_NONE: there is no other
 * stage. */
uint32_t lhi_job_find_sharing_host(const lhi_job *job, uint32_t rank);

/* Reroutes a run whose ranks this process starts, if an event has lost exactly
 * one rank for good; else clears the rerouting. Prints the result. */
lh_status lhi_job_reroute_lost(lhi_job *job, lh_error *err);
/* Reroutes a run that mpirun or srun started, if exactly one rank is replaced;
 * else clears the rerouting. Collective, after all ranks have joined. */
lh_status lhi_job_reroute_replaced(lhi_job *job, lhi_net *net, lh_error *err);
/* Clears the rerouting, if any. */
void lhi_job_clear_rerouting(lhi_job *job);

#endif
