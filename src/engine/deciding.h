/* SPDX-License-Identifier: Apache-2.0 */
/* What a run that adapts makes of iterations: a monitor learns from each, what
 * it notices is told, and it is decided whether to go on by another schedule.
 * One proposal at a time: until it is known what became of it, none is made.
 * All calls are of one thread, but those below the line. */
#ifndef LHI_DECIDING_H
#define LHI_DECIDING_H

#include "engine/sight.h"

typedef struct lhi_deciding lhi_deciding;

/* Who decides in a run, under its own options. */
lh_status lhi_job_adapt(const lhi_job *job, lh_adapt **out, lh_error *err);

lh_status lhi_deciding_make(const lhi_job *job, lhi_deciding **out,
                            lh_error *err);
void lhi_deciding_free(lhi_deciding *deciding); /* NULL is fine */

/* An iteration is over. `clocks`: per device the clock that it reads; NULL:
 * all read one; looked at the first time. What the monitor or the decision
 * cannot make anything of is told as a remark, and ends nothing. LH_ENOMEM. */
lh_status lhi_deciding_add(lhi_deciding *deciding, const lh_seen *seen,
                           const uint32_t *clocks, lh_error *err);

/* Processor time that decisions took so far. */
int64_t lhi_deciding_thought_ns(const lhi_deciding *deciding);

/* --- for the rank's thread, at any time --------------------------------------
 */

/* A decision that no iteration follows so far, and which then is proposed;
 * NULL: there is none. Borrowed until it is answered. */
const lh_reschedule *lhi_deciding_next(lhi_deciding *deciding);
/* What became of it: it counts from `step` on, or is refused. */
void lhi_deciding_answer(lhi_deciding *deciding, uint64_t step, bool followed);

/* The i-th notice so far, copied; false: there are not so many. */
bool lhi_deciding_told(lhi_deciding *deciding, uint32_t i, lhi_told *out);
/* A remark that was not asked for before; false: there is none. */
bool lhi_deciding_remark(lhi_deciding *deciding, char *text, size_t room);

#endif
