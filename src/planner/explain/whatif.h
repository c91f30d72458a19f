/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with other links. */
#ifndef LHI_PLANNER_EXPLAIN_WHATIF_H
#define LHI_PLANNER_EXPLAIN_WHATIF_H

#include "planner/explain/found_plans.h"

/* Rejects --what-if questions (options->questions) that do not apply to the
 * job. */
lh_status lhi_plan_check_questions(const lh_job *job,
                                   const lh_plan_options *options,
                                   lh_error *err);

/* Finds a job's best plan with 1/`parts` of the plan's search work; one that
 * takes cutoff_ns or longer need not be the best (0: no limit). Adds the result
 * to the pool `known` unless it is NULL. */
lh_status lhi_plan_search_again(const lh_job *job,
                                const lh_plan_options *options, uint32_t parts,
                                int64_t cutoff_ns, lhi_arena *mem,
                                lhi_found_plans *known, lh_choice *best,
                                lh_error *err);

/* Finds a job's best plan with 1/`parts` of the search work of a --what-if
 * question, with pipeline and schedule. One that takes cutoff_ns or longer need
 * not be the best (0: no limit). The caller frees out->pipeline and
 * out->schedule, on failure too. */
lh_status lhi_plan_search_short(const lh_job *job,
                                const lh_plan_options *options, uint32_t parts,
                                int64_t cutoff_ns, lhi_arena *mem, lh_plan *out,
                                lh_error *err);

/* Finds a job's best plan like lhi_plan_search_short(), but also succeeds if no
 * layout works: *out then has no schedule, and *why the reason. out->job is
 * NULL, as the job may be a local copy. The caller frees out->pipeline and
 * out->schedule. */
lh_status lhi_plan_search_possible(const lh_job *job,
                                   const lh_plan_options *options,
                                   uint32_t parts, int64_t cutoff_ns,
                                   lhi_arena *mem, lh_plan *out, lh_error *why,
                                   lh_error *err);

/* Finds the best plan without the restrictions of the target program
 * (job->target), and stores it in plan->unrestricted if it is better than the
 * plan. */
lh_status lhi_plan_without_target(const lh_plan_options *options,
                                  lhi_arena *mem, lh_plan *plan, lh_error *err);

/* Answers options->questions for an otherwise complete plan by a short search
 * each. Each result also competes in the other questions, so that no case
 * is slower than another with worse links. Results join `known` and are in
 * `mem`. */
lh_status lhi_plan_answer_whatif(const lh_plan_options *options, lhi_arena *mem,
                                 lhi_found_plans *known, lh_plan *plan,
                                 lh_error *err);

#endif
