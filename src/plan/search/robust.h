/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that are chosen by what varying delays make of them. */
#ifndef LHI_ROBUST_H
#define LHI_ROBUST_H

#include "base/arena.h"

#include <longhaul/plan.h>

/* So many of a plan's alternatives, the best by their times and bounds, are
 * drawn for. */
enum { LHI_ROBUST_LAYOUTS = 300 };

/* Whether it can be drawn, before layouts are searched. */
lh_status lhi_plan_check_jitter(const lh_jitter *jitter, lh_error *err);

/* Draws options->jitter for the plan's schedule, for every method on its
 * layout, and for all alternatives that could be better by options->by, and
 * puts the best of all in the plan's place. The plan's pipeline and schedule
 * stay the caller's to free, on failure too; what is listed lives in `mem`. */
lh_status lhi_plan_harden(const lh_job *job, const lh_plan_options *options,
                          lhi_arena *mem, lh_plan *plan, lh_error *err);

#endif
