/* SPDX-License-Identifier: Apache-2.0 */
/* Explains a plan's time and its neighbouring decisions. Each function of this
 * module adds to a finished plan and fills one member of lh_plan:
 *     breakdown.c     components of the iteration time
 *     rank_memory.h   components of the memory
 *     alternatives.c  the best plan that differs in one dimension
 *     link_advice.h   recommended link settings
 *     curves.h        pipelines or replicas across datacenters
 *     whatif.h        the plan, and the best one, with other links
 *     unmeasured.h    times of the layouts that the job's profile measured
 *     break_even.h    change of a link at which another layout becomes best */
#ifndef LHI_PLANNER_EXPLAIN_BREAKDOWN_H
#define LHI_PLANNER_EXPLAIN_BREAKDOWN_H

#include "planner/search/unexplored.h"

/* Fills the plan's time breakdown: the share of the iteration time that each
 * delay cause accounts for. */
lh_status lhi_plan_explain_time(const lh_job *job,
                                const lh_plan_options *options, lhi_arena *mem,
                                lh_plan *plan, lh_error *err);

/* Fills plan->runners, the best alternative for each layout dimension, from
 * plan->methods and plan->alternatives, which must be complete except for the
 * entries of `unexplored`. Simulates alternatives that only have a bound if
 * that decides the result. */
lh_status lhi_plan_find_alternatives(const lh_job *job,
                                     const lh_plan_options *options,
                                     lhi_arena *mem,
                                     const lhi_unexplored *unexplored,
                                     lh_plan *plan, lh_error *err);
/* Checks whether plans have alternatives for a layout dimension of this name.
 */
bool lhi_dimension_is_known(const char *name);

#endif
