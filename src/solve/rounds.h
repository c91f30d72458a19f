/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of searches and improvements at the same time. */
#ifndef LHI_ROUNDS_H
#define LHI_ROUNDS_H

#include "solve/state/solver.h"

/* Until the gap is closed or the budget spent. Needs a schedule. */
lh_status lhi_close_gap(lhi_solver *r, lh_error *err);
/* A search has a Boolean for every pair of passes that is open; for thousands
 * of microbatches that can be more than there is room for. How many searches
 * there is room for, but no more than `most`. */
lh_status lhi_count_searches(const lhi_solver *r, uint32_t most, uint32_t *out,
                             lh_error *err);
/* A search for a schedule of at most so many units, or an answer at once. */
lh_status lhi_begin_search(lhi_solver *r, int64_t units, lhi_search **out,
                           lhi_answer *answer, lh_error *err);

#endif
