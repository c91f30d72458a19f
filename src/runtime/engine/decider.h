/* SPDX-License-Identifier: Apache-2.0 */
/* Decides online whether a run switches to another schedule. A monitor updates
 * its estimate from each iteration and reports changes as notices. At most one
 * proposal is open at a time. All calls belong to one thread except those below
 * the line. */
#ifndef LHI_RUNTIME_ENGINE_DECIDER_H
#define LHI_RUNTIME_ENGINE_DECIDER_H

#include "resilience/adapt/slow_hosts.h"
#include "runtime/engine/calibration.h"
#include "runtime/engine/iteration_observation.h"

typedef struct lhi_decider lhi_decider;

/* Creates the decision maker for schedule switches (lh_adapt) with the job's
 * adaptation options and, as normal times, those of `pipeline`. Release it with
 * lh_adapt_free(). */
lh_status lhi_job_make_adapt(const lhi_job *job, const lh_pipeline *pipeline,
                             lh_adapt **out, lh_error *err);

/* Creates a run's decider, which decides during the run whether to switch
 * schedules: monitor, decision maker and, if enabled, the search for
 * migrations. */
lh_status lhi_decider_make(const lhi_job *job, lhi_decider **out,
                           lh_error *err);
/* Frees the decider; NULL is allowed. */
void lhi_decider_free(lhi_decider *deciding);

/* Feeds a finished iteration to monitor and decision maker. `whole`: its
 * duration. `clocks`: clock number per device; NULL: one clock; used in the
 * first call only. Skips the first iteration of a run that can be calibrated, a
 * warm-up, and calibrates by the second one. Failures in the monitor or the
 * decision become a remark and do not end the run. Returns LH_ENOMEM only. */
lh_status lhi_decider_add_iteration(lhi_decider *deciding,
                                    const lh_observation *seen,
                                    const lhi_measured_iteration *whole,
                                    const uint32_t *clocks, lh_error *err);

/* Returns the localiser of slow hosts; NULL: hosts stay. */
const lhi_slow_hosts *lhi_decider_slow_hosts(const lhi_decider *deciding);

/* Returns the processor time in ns that the run has spent on schedule
 * decisions. */
int64_t lhi_decider_cpu_ns(const lhi_decider *deciding);

/* --- callable from the rank's thread at any time --- */

/* Returns a new proposal for rank 0 to send to all ranks, once; NULL: none.
 * Borrowed until the ranks' answer is recorded. */
const lh_reschedule *lhi_decider_take_proposal(lhi_decider *deciding);
/* Records the ranks' answer to the proposal. `followed`: they use it from
 * `step` on; otherwise they refused it. */
void lhi_decider_record_verdict(lhi_decider *deciding, uint64_t step,
                                bool followed);

/* Returns the predicted duration in ns of iteration `step`, which is about to
 * start, from calibrated times and the running schedule; 0: not calibrated yet.
 * */
int64_t lhi_decider_predict(lhi_decider *deciding, uint64_t step);

/* Copies notice number i (of an event or a decision) to *out; false: there are
 * fewer. */
bool lhi_decider_get_notice(lhi_decider *deciding, uint32_t i,
                            lhi_adapt_notice *out);
/* Moves the pending remark, a message for the user, into `text` (`room` bytes);
 * false: there is none. */
bool lhi_decider_take_remark(lhi_decider *deciding, char *text, size_t room);

#endif
