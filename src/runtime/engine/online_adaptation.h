/* SPDX-License-Identifier: Apache-2.0 */
/* Online adaptation on rank 0. The rank's thread posts receives for the
 * observations of all ranks and continues. A second thread waits for them,
 * merges them and runs the decider (decider.h). */
#ifndef LHI_RUNTIME_ENGINE_ONLINE_ADAPTATION_H
#define LHI_RUNTIME_ENGINE_ONLINE_ADAPTATION_H

#include "runtime/engine/decider.h"
#include "runtime/engine/hop_times.h"
#include "runtime/engine/rank_program.h"

typedef struct lhi_adaptation lhi_adaptation;

/* Creates rank 0's online adaptation, which observes iterations and decides
 * whether to switch schedules, and starts its thread. */
lh_status lhi_adaptation_make(const lhi_job *job, lhi_net *net,
                              const lhi_device *device, lhi_adaptation **out,
                              lh_error *err);
/* Ends the adaptation thread. To be called before the endpoint is closed; after
 * a failure, once all ranks are notified. */
void lhi_adaptation_stop(lhi_adaptation *a);
/* Frees the adaptation once the endpoint is closed; NULL is allowed. */
void lhi_adaptation_free(lhi_adaptation *a);
/* Returns the decider that the online adaptation uses (monitor and schedule
 * decisions); borrowed. */
lhi_decider *lhi_adaptation_decider(lhi_adaptation *a);

/* Decides whether a step about to start with rank program `shift` is observed:
 * not while the queue is full or the processor-time budget is spent. If true,
 * the caller adds all ranks' measurements and then calls
 * lhi_adaptation_end_iteration(). */
bool lhi_adaptation_begin_iteration(lhi_adaptation *a, uint64_t step,
                                    const lhi_rank_program *shift);
/* Posts the receive for a rank that announced an observation with n_executed
 * collectives. */
lh_status lhi_adaptation_expect_rank(lhi_adaptation *a, uint32_t rank,
                                     uint32_t n_executed, uint64_t tag,
                                     lh_error *err);
/* Adds this rank's own observation, with the hops of `training` (NULL: none),
 * with n_executed collectives, to the current iteration. */
lh_status lhi_adaptation_add_local(lhi_adaptation *a, const lhi_rank *rank,
                                   const lhi_training *training,
                                   const lhi_collective_record *executed,
                                   uint32_t n_executed, lh_error *err);
/* Completes the current iteration's observation, which took `ns`, and wakes the
 * adaptation thread, which evaluates it. */
void lhi_adaptation_end_iteration(lhi_adaptation *a, int64_t ns);

/* Returns the processor time in ns that all ranks have spent on observations
 * and the monitor, without decisions and the transport. Every rank is assumed
 * to spend as much as this one. */
int64_t lhi_adaptation_cpu_ns(lhi_adaptation *a);

/* Returns a number for the clock that rank `rank` reads; ranks with equal
 * numbers share a clock. In launched jobs it is derived from the host's boot
 * identity. */
uint64_t lhi_host_clock_id(const lhi_job *job, uint32_t rank);

#endif
