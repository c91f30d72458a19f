/* SPDX-License-Identifier: Apache-2.0 */
/* Journal of the schedule switches and adaptation notices of a run that may
 * restart. Rank 0 appends to it; it is a file in memory, which outlives ranks
 * that are killed at any time. */
#ifndef LHI_RUNTIME_ENGINE_RUN_JOURNAL_H
#define LHI_RUNTIME_ENGINE_RUN_JOURNAL_H

#include "base/text.h"
#include "runtime/engine/control_messages.h"
#include "runtime/engine/execution_plan.h"

/* Makes an empty journal, shared with processes that are forked afterwards.
 * *out: its file descriptor, which the caller closes. */
lh_status lhi_journal_make(int *out, lh_error *err);

/* Appends a proposal of rank 0 and the ranks' answer, `row`, to the journal. */
lh_status lhi_journal_add_switch(int journal, const lhi_switch *row,
                                 lh_error *err);
/* Appends a notice (monitor event or adaptation decision) to the journal. */
lh_status lhi_journal_add_notice(int journal, const lhi_adapt_notice *row,
                                 lh_error *err);
/* Records in the journal that an attempt begins at `step`: removes an
 * unfinished entry, and drops the entries of the iterations to be repeated. If
 * the iteration before `step` did not run under `initial`, appends a switch
 * back to it, *back, and sets *switches. */
lh_status lhi_journal_begin_attempt(int journal, uint64_t step,
                                    const lh_exec *initial, lhi_switch *back,
                                    bool *switches, lh_error *err);

/* The journal's entries without the dropped ones, encoded as in the outcome
 * (lhi_outcome). Release both texts. */
typedef struct lhi_journal_entries {
    uint32_t n_switches, n_notices;
    lhi_text switches, notices;
} lhi_journal_entries;
/* Reads the journal's entries, without those of iterations that a later attempt
 * repeats. */
lh_status lhi_journal_read(int journal, lhi_journal_entries *out,
                           lh_error *err);

#endif
