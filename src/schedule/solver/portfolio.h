/* SPDX-License-Identifier: Apache-2.0 */
/* Portfolio loop: rounds of parallel searches and improvements. */
#ifndef LHI_SCHEDULE_SOLVER_PORTFOLIO_H
#define LHI_SCHEDULE_SOLVER_PORTFOLIO_H

#include "schedule/solver/state/solver.h"

/* Runs rounds of searches and improvements until the gap between lower bound
 * and incumbent is closed or the budget is spent. Requires a schedule. */
lh_status lhi_portfolio_run(lhi_solver *r, lh_error *err);
/* Computes in *out how many searches fit into memory, at most `most`. A search
 * has one Boolean per open pair of passes, which can exceed memory for
 * thousands of microbatches. */
lh_status lhi_portfolio_count_searches(const lhi_solver *r, uint32_t most,
                                       uint32_t *out, lh_error *err);
/* Starts a search for a schedule of at most `units` (makespan in job-shop
 * units) in *out. If the time windows already refute that, *answer is
 * LHI_REFUTED and *out NULL; *out is also NULL if stopped. */
lh_status lhi_portfolio_start_search(lhi_solver *r, int64_t units,
                                     lhi_search **out, lhi_answer *answer,
                                     lh_error *err);

#endif
