/* SPDX-License-Identifier: Apache-2.0 */
/* Decides online whether a run switches to another schedule. A monitor updates
 * its estimate from each iteration and reports changes as notices. At most one
 * proposal is open at a time. All calls belong to one thread except those below
 * the line. */
#ifndef LHI_DECIDING_H
#define LHI_DECIDING_H

#include "engine/sight.h"

typedef struct lhi_deciding lhi_deciding;

/* Makes the adaptation with the run's own options. Release it with
 * lh_adapt_free(). */
lh_status lhi_job_adapt(const lhi_job *job, lh_adapt **out, lh_error *err);

/* Makes the decider of a run. */
lh_status lhi_deciding_make(const lhi_job *job, lhi_deciding **out,
                            lh_error *err);
void lhi_deciding_free(lhi_deciding *deciding); /* NULL is fine */

/* Adds a finished iteration. `clocks`: clock id per device; NULL: one clock;
 * used in the first call only. Failures in the monitor or the decision become a
 * remark and do not end the run. Returns LH_ENOMEM only. */
lh_status lhi_deciding_add(lhi_deciding *deciding, const lh_seen *seen,
                           const uint32_t *clocks, lh_error *err);

/* Returns the processor time spent on decisions, in ns. */
int64_t lhi_deciding_thought_ns(const lhi_deciding *deciding);

/* --- callable from the rank's thread at any time --- */

/* Takes a new decision for proposal; NULL: none. Borrowed until its verdict is
 * recorded. */
const lh_reschedule *lhi_deciding_next(lhi_deciding *deciding);
/* Records the verdict: in effect from `step` on, or refused. */
void lhi_deciding_answer(lhi_deciding *deciding, uint64_t step, bool followed);

/* Copies the i-th notice; false: there are fewer. */
bool lhi_deciding_told(lhi_deciding *deciding, uint32_t i, lhi_told *out);
/* Takes the pending remark; false: there is none. */
bool lhi_deciding_remark(lhi_deciding *deciding, char *text, size_t room);

#endif
