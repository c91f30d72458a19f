/* SPDX-License-Identifier: Apache-2.0 */
/* Searches of jobs whose degrees, sites and microbatch sizes are fixed. */
#ifndef LHI_PLANNER_FIXED_LAYOUTS_H
#define LHI_PLANNER_FIXED_LAYOUTS_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

enum { LHI_MAX_FIXED_LAYOUTS = 24 }; /* searched, for one plan */

/* Searches the dimensions that each of the n <= LHI_MAX_FIXED_LAYOUTS jobs
 * leaves open: first quickly, then the best ones with more work. The jobs are
 * copies of the plan's job. A better result replaces the plan. Results are in
 * `mem`. */
lh_status lhi_plan_search_fixed(const lh_plan_options *options,
                                const lh_job *jobs, uint32_t n, lhi_arena *mem,
                                lh_plan *plan, lh_error *err);

#endif
