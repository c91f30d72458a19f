/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that were found under some links, which may be good under others: each
 * search is short, and what one of them finds another may have missed. */
#ifndef LHI_FOUND_PLANS_H
#define LHI_FOUND_PLANS_H

#include "base/arena.h"

#include <longhaul/plan.h>

typedef struct lhi_found_plans {
    uint32_t n, room;
    lh_plan *all; /* job, best, pipeline and schedule of each; no two alike */
} lhi_found_plans;

void lhi_found_plans_fini(lhi_found_plans *known); /* {0} is fine */

/* Takes over the pipeline and the schedule, on failure too; the job, and what
 * the choice points to, have to live as long. */
lh_status lhi_found_plans_add(lhi_found_plans *known, const lh_plan *plan,
                              lh_error *err);

/* The plan's layout with its schedule, order for order, where the job's links
 * are those of `job`. */
lh_status lhi_plan_kept(const lh_plan *plan, const lh_job *job, lhi_arena *mem,
                        lh_choice *kept, lh_error *err);

/* *best becomes what one of them comes to with the links of `job`, if that is
 * better; of all, unless options->progress() stops it. */
lh_status lhi_found_plans_better(const lhi_found_plans *known,
                                 const lh_plan_options *options,
                                 const lh_job *job, lhi_arena *mem,
                                 lh_choice *best, lh_error *err);

#endif
