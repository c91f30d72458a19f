/* SPDX-License-Identifier: Apache-2.0 */
/* Link changes up to which the plan's layout stays the best. */
#ifndef LHI_PLANNER_EXPLAIN_BREAK_EVEN_H
#define LHI_PLANNER_EXPLAIN_BREAK_EVEN_H

#include "planner/explain/found_plans.h"

/* Fills plan->sensitivity: break-even values of link latencies and bandwidths,
 * at which another layout becomes the job's best plan; NULL if the caller's
 * progress() stops the search. The plans in the pool `known` compete with the
 * results of full searches; the pool is unchanged afterwards. */
lh_status lhi_plan_find_break_even(const lh_plan_options *options,
                                   lhi_arena *mem, lhi_found_plans *known,
                                   lh_plan *plan, lh_error *err);

#endif
