/* SPDX-License-Identifier: Apache-2.0 */
/* Switches schedules during a run. In one step rank 0 proposes the schedule for
 * the next one. While that step's passes run, a thread on each rank:
 *
 * 1. receives the proposal, lowers it and checks it for deadlock;
 * 2. makes everything that the rank needs for it;
 * 3. votes; rank 0's thread collects the votes.
 *
 * Between the two steps all ranks switch, or none: only a pointer is exchanged
 * then. The thread frees the replaced program. Messages: docs/formats/wire.md.
 */
#ifndef LHI_RUNTIME_ENGINE_RESCHEDULE_H
#define LHI_RUNTIME_ENGINE_RESCHEDULE_H

#include "runtime/engine/job.h"
#include "runtime/engine/migration_target.h"
#include "runtime/engine/rank_program.h"

typedef struct lhi_rescheduler lhi_rescheduler;

/* Makes the rescheduler, which switches schedules during a run, and starts its
 * thread. `rank`: options of the rank's programs, with the initial plan as
 * `exec`. */
lh_status lhi_rescheduler_make(const lhi_job *job, const lhi_rank_options *rank,
                               lhi_rescheduler **out, lh_error *err);
/* Ends the rescheduler's thread; after a failure, call it once all ranks are
 * notified. */
void lhi_rescheduler_stop(lhi_rescheduler *r);
/* Frees the rescheduler; NULL is fine. After a failure, close the endpoint
 * first. */
void lhi_rescheduler_free(lhi_rescheduler *r);

/* Opens a proposal for `step`; none may be open. `what`: rank 0's proposal,
 * NULL on other ranks. Its schedule is borrowed until the proposal is closed.
 */
lh_status lhi_rescheduler_open(lhi_rescheduler *r, uint64_t step,
                               const lh_reschedule *what, lh_error *err);
/* Checks whether a proposal (of another schedule or a migration) is open: not
 * yet accepted or dropped. NULL: false. */
bool lhi_rescheduler_is_open(lhi_rescheduler *r);
/* Waits for this rank's vote, on rank 0 for all votes. *agrees: this rank
 * accepts or, on rank 0, all accept. LH_ECANCELED: the run is stopping. */
lh_status lhi_rescheduler_await(lhi_rescheduler *r, bool *agrees,
                                lh_error *err);
/* Statistics of a migration. */
typedef struct lhi_migration_stats {
    uint64_t bytes; /* sent between ranks */
    int64_t ns;
} lhi_migration_stats;

/* Closes the proposal after lhi_rescheduler_await(). `go`, which requires this
 * rank's acceptance: replaces the caller's rank program *shift and frees the
 * old one later. Otherwise frees the proposed program. A drop after all ranks
 * accepted is not listed among the switches. `moved`: migration statistics on
 * rank 0; else NULL. */
void lhi_rescheduler_close(lhi_rescheduler *r, bool go,
                           const lhi_migration_stats *moved,
                           lhi_rank_program **shift);

/* Returns the program that this rank will run if the open proposal is accepted;
 * borrowed. */
const lhi_rank_program *lhi_rescheduler_next_program(lhi_rescheduler *r);
/* Checks whether the proposal migrates hosts or layers. If so, the training
 * state must be migrated before the close to the migration target, if any; the
 * caller owns the target after an accepted close. */
bool lhi_rescheduler_migrates(lhi_rescheduler *r);
/* Returns the migration target (new device and training) of the open proposal;
 * NULL: the rank keeps its device. */
lhi_migration_target *lhi_rescheduler_migration_target(lhi_rescheduler *r);

/* Returns rank 0's list of accepted and refused proposals so far, *n of them;
 * borrowed. */
const lhi_switch *lhi_rescheduler_switches(const lhi_rescheduler *r,
                                           uint32_t *n);
/* Converts a switch to the public struct, which borrows its texts. */
lh_switch lhi_switch_to_public(const lhi_switch *row);
/* Converts a migration `row` to the public struct, which borrows its texts;
 * `assignment`: parsed from the row's text. */
lh_migration lhi_moved_to_public(const lhi_switch *row,
                                 const lhi_rank_assignment *assignment);
/* Converts an adaptation notice to the public struct, which borrows its texts.
 */
lh_adapt_event lhi_notice_to_public(const lhi_adapt_notice *row);

#endif
