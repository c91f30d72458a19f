/* SPDX-License-Identifier: Apache-2.0 */
/* Online adaptation on rank 0. The rank's thread posts receives for the
 * observations of all ranks and continues. A second thread waits for them,
 * merges them and runs the decider (decider.h). */
#ifndef LHI_ADAPTING_H
#define LHI_ADAPTING_H

#include "engine/deciding.h"
#include "engine/shift.h"

typedef struct lhi_adapting lhi_adapting;

/* Starts the thread. */
lh_status lhi_adapting_make(const lhi_job *job, lhi_net *net,
                            const lhi_device *device, lhi_adapting **out,
                            lh_error *err);
/* Ends the thread. Call it before the endpoint is closed; after a failure, once
 * all ranks are notified. */
void lhi_adapting_stop(lhi_adapting *a);
void lhi_adapting_free(lhi_adapting *a); /* once the endpoint is closed; NULL is
                                          * fine */
/* Returns the decider; borrowed. */
lhi_deciding *lhi_adapting_mind(lhi_adapting *a);

/* Decides whether a step about to start with the given rank program is
 * observed: false when the queue is full or the processor-time budget is spent.
 * If true, the caller adds the messages of all other ranks and of this rank,
 * then ends the iteration. */
bool lhi_adapting_begin(lhi_adapting *a, uint64_t step, const lhi_shift *shift);
/* Posts the receive for a rank that announced an observation with
 * `n_collectives` collectives. */
lh_status lhi_adapting_expect(lhi_adapting *a, uint32_t rank, uint32_t n_played,
                              uint64_t tag, lh_error *err);
/* Adds this rank's own observation. */
lh_status lhi_adapting_add_own(lhi_adapting *a, const lhi_rank *rank,
                               const lhi_played *played, uint32_t n_played,
                               lh_error *err);
/* Completes the current iteration and wakes the thread. */
void lhi_adapting_end(lhi_adapting *a);

/* Returns an id of the host's clock, equal on ranks that read the same one.
 * Reads files of the host. */
uint64_t lhi_clock_number(const lhi_job *job, uint32_t rank);

#endif
