/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 of a run that adapts: takes what ranks have seen of an iteration, and
 * a thread of its own makes up its mind (deciding.h). The rank's thread posts
 * the receives and goes on: what comes is looked at by that other thread. */
#ifndef LHI_ADAPTING_H
#define LHI_ADAPTING_H

#include "engine/deciding.h"
#include "engine/shift.h"

typedef struct lhi_adapting lhi_adapting;

/* Starts the thread. */
lh_status lhi_adapting_make(const lhi_job *job, lhi_net *net,
                            const lhi_device *device, lhi_adapting **out,
                            lh_error *err);
/* Before the endpoint is closed; after a failure once all ranks were told. */
void lhi_adapting_stop(lhi_adapting *a);
void lhi_adapting_free(lhi_adapting *a); /* once it is closed; NULL is fine */
lhi_deciding *lhi_adapting_mind(lhi_adapting *a);

/* Of a step that is to begin under `shift`: whether it is to be seen. Then come
 * the messages of all other ranks, this rank's own, and its end. */
bool lhi_adapting_begin(lhi_adapting *a, uint64_t step, const lhi_shift *shift);
/* A rank has said that its message, with so many communications, follows. */
lh_status lhi_adapting_expect(lhi_adapting *a, uint32_t rank, uint32_t n_played,
                              uint64_t tag, lh_error *err);
lh_status lhi_adapting_add_own(lhi_adapting *a, const lhi_rank *rank,
                               const lhi_played *played, uint32_t n_played,
                               lh_error *err);
void lhi_adapting_end(lhi_adapting *a);

/* The number of the clock of this rank's host, which takes files to find. */
uint64_t lhi_clock_number(const lhi_job *job, uint32_t rank);

#endif
