/* SPDX-License-Identifier: Apache-2.0 */
/* What searching for the optimal schedule adds to a plan. */
#ifndef LHI_REFINE_H
#define LHI_REFINE_H

#include "plan/search/unseen.h"

/* Looks for faster schedules, and higher bounds, of the plan's layout and of
 * the close ones among its alternatives, within options->effort; and where
 * `heads` has some (NULL: none), of the best with other values. The plan's
 * pipeline and schedule stay the caller's to free, on failure too; what is
 * listed lives in `mem`. */
lh_status lhi_plan_refine(const lh_job *job, const lh_plan_options *options,
                          const lhi_heads *heads, lhi_arena *mem, lh_plan *plan,
                          lh_error *err);

/* The schedule that was found for an alternative with this pipeline; *out is
 * NULL where none was. */
lh_status lhi_refine_again(const lh_plan_options *options,
                           const lh_pipeline *pipeline, lh_schedule **out,
                           lh_error *err);

#endif
