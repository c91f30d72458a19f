/* SPDX-License-Identifier: Apache-2.0 */
/* A plan where the links are others. */
#ifndef LHI_WHATIF_H
#define LHI_WHATIF_H

#include "plan/explain/found_plans.h"

/* Refuses options->questions that cannot be asked of the job. */
lh_status lhi_plan_check_questions(const lh_job *job,
                                   const lh_plan_options *options,
                                   lh_error *err);

/* The best plan of a job, by a search that has one of so many parts of the
 * plan's work; it joins `known` (NULL: it does not). */
lh_status lhi_plan_search_again(const lh_job *job,
                                const lh_plan_options *options, uint32_t parts,
                                lhi_arena *mem, lhi_found_plans *known,
                                lh_choice *best, lh_error *err);

/* The same for one of `parts` of the work that a question's search has, and all
 * that it finds; the caller frees out->pipeline and out->schedule, also where
 * it fails. */
lh_status lhi_plan_search_short(const lh_job *job,
                                const lh_plan_options *options, uint32_t parts,
                                lhi_arena *mem, lh_plan *out, lh_error *err);

/* What job->target rules out, if it is better than the plan. */
lh_status lhi_plan_without_target(const lh_plan_options *options,
                                  lhi_arena *mem, lh_plan *plan, lh_error *err);

/* Answers options->questions for a plan that is complete but for them; what is
 * found joins `known`, and lives in `mem`. */
lh_status lhi_plan_answer(const lh_plan_options *options, lhi_arena *mem,
                          lhi_found_plans *known, lh_plan *plan, lh_error *err);

#endif
