/* SPDX-License-Identifier: Apache-2.0 */
/* Other schedules while a run goes on. In one step rank 0 proposes the schedule
 * that the next one is to follow. While the passes of that step run, a thread
 * of each rank gets the proposal, lowers and proves it, makes all that the rank
 * needs for it, and votes; rank 0's gathers the votes. Between the two steps
 * all go on with it, or none: what is left to be done then is to put one
 * pointer in the place of another. What is no longer followed is freed by that
 * thread. Messages: docs/formats/wire.md. */
#ifndef LHI_RESCHEDULE_H
#define LHI_RESCHEDULE_H

#include "engine/seat.h"
#include "engine/shift.h"
#include "engine/steps.h"

typedef struct lhi_rescheduler lhi_rescheduler;

/* `rank`: of the rank's shifts, whose `exec` is the one that it begins with.
 * Starts the thread. */
lh_status lhi_rescheduler_make(const lhi_job *job, const lhi_rank_options *rank,
                               lhi_rescheduler **out, lh_error *err);
/* After a failure, once all ranks have been told: ends the thread. */
void lhi_rescheduler_stop(lhi_rescheduler *r);
/* After a failure the endpoint must be closed before. NULL is fine. */
void lhi_rescheduler_free(lhi_rescheduler *r);

/* Begins with a proposal for `step`; `what` is rank 0's (the schedule is
 * borrowed until the proposal is closed), on others NULL. None may be open. */
lh_status lhi_rescheduler_open(lhi_rescheduler *r, uint64_t step,
                               const lh_reschedule *what, lh_error *err);
bool lhi_rescheduler_is_open(lhi_rescheduler *r); /* NULL: no */
/* Waits until this rank has voted; rank 0: until all have. *agrees: for it;
 * rank 0: all have voted for it. LH_ECANCELED: the run is to end. */
lh_status lhi_rescheduler_await(lhi_rescheduler *r, bool *agrees,
                                lh_error *err);
/* What came of parts of the job that moved. */
typedef struct lhi_moving {
    uint64_t bytes; /* from one rank to another */
    int64_t ns;
} lhi_moving;

/* After that. `go`, to which this rank has agreed: puts the new shift in the
 * place of the one in *shift, which is freed in a while; else what was made for
 * the proposal is, and if all had agreed, it was none. `moved`: rank 0, where
 * parts of the job have; else NULL. */
void lhi_rescheduler_close(lhi_rescheduler *r, bool go, const lhi_moving *moved,
                           lhi_shift **shift);

/* What was made for a proposal that is to be closed with `go`; borrowed. */
const lhi_shift *lhi_rescheduler_next(lhi_rescheduler *r);
/* Whether parts of the job move with it. Then what was trained has to move
 * before it is closed, to the seat, where there is one, which is the caller's
 * once it is. */
bool lhi_rescheduler_moves(lhi_rescheduler *r);
lhi_seat *lhi_rescheduler_seat(lhi_rescheduler *r);

/* Rank 0: all proposals so far that were followed or refused. */
const lhi_switch *lhi_rescheduler_switches(const lhi_rescheduler *r,
                                           uint32_t *n);
lh_switch lhi_switch_shown(const lhi_switch *row);
/* `seats`: of the row's text. */
lh_moved lhi_moved_shown(const lhi_switch *row, const lhi_seats *seats);
lh_notice lhi_notice_shown(const lhi_told *row);

#endif
