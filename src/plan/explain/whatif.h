/* SPDX-License-Identifier: Apache-2.0 */
/* A plan where the links are others. */
#ifndef LHI_WHATIF_H
#define LHI_WHATIF_H

#include "base/arena.h"

#include <longhaul/plan.h>

/* Refuses options->questions that cannot be asked of the job. */
lh_status lhi_plan_check_questions(const lh_job *job,
                                   const lh_plan_options *options,
                                   lh_error *err);

/* The plan's layout with its schedule, order for order, where the job's links
 * are those of `job`. */
lh_status lhi_plan_kept(const lh_plan *plan, const lh_job *job, lhi_arena *mem,
                        lh_choice *kept, lh_error *err);

/* The best plan of a job, by a search that has one of so many parts of the
 * plan's work. */
lh_status lhi_plan_search_again(const lh_job *job,
                                const lh_plan_options *options, uint32_t parts,
                                lhi_arena *mem, lh_choice *best, lh_error *err);

/* What job->target rules out, if it is better than the plan. */
lh_status lhi_plan_without_target(const lh_plan_options *options,
                                  lhi_arena *mem, lh_plan *plan, lh_error *err);

/* Answers options->questions for a plan that is complete but for them. */
lh_status lhi_plan_answer(const lh_plan_options *options, lhi_arena *mem,
                          lh_plan *plan, lh_error *err);

#endif
