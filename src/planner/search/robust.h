/* SPDX-License-Identifier: Apache-2.0 */
/* Plans chosen by their times under jitter. */
#ifndef LHI_PLANNER_SEARCH_ROBUST_H
#define LHI_PLANNER_SEARCH_ROBUST_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Number of alternatives to sample, the best by times and bounds. */
enum { LHI_ROBUST_LAYOUTS = 300 };

/* Checks the jitter settings (random delays) before layouts are searched.
 * LH_EINVAL: invalid. */
lh_status lhi_plan_check_jitter(const lh_jitter *jitter, lh_error *err);

/* Chooses the plan that is best under jitter: samples options->jitter for the
 * plan's schedule, every method on its layout, and all alternatives that may be
 * better by the options' statistic. The caller frees the plan's pipeline and
 * schedule, on failure too; lists are in `mem`. */
lh_status lhi_plan_choose_robust(const lh_job *job,
                                 const lh_plan_options *options, lhi_arena *mem,
                                 lh_plan *plan, lh_error *err);

#endif
