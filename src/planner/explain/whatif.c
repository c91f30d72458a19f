/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates a plan with other links: builds the plan's layout with them and
 * runs its schedule again in the same order. For comparison, a search finds the
 * best plan for these links. */
#include "planner/explain/whatif.h"

#include "base/fail.h"
#include "planner/layout/choice.h"
#include "planner/layout/link_override.h"
#include "planner/search/objective.h"
#include "planner/search/plan_search.h"
#include "planner/search/refine.h"
#include "planner/search/search_budget.h"

#include <longhaul/scheduler.h>
#include <string.h>

enum {
    WORK_DIVISOR = 10,  /* work per question: the plan's divided by this */
    MAX_RESCHEDULED = 8 /* alternatives scheduled anew for a question */
};

/* Searches a plan for `job` into *there with 1/`parts` of the plan's work and
 * time; without what-if questions, jitter or Pareto front. Plans of cutoff_ns
 * or longer may be missed. `shared`: cache of schedule results, as for
 * lhi_plan_search(). */
static lh_status search_with_share(const lh_job *job,
                                   const lh_plan_options *options,
                                   uint32_t parts, int64_t cutoff_ns,
                                   lhi_evaluation_cache *shared, lhi_arena *mem,
                                   lh_plan *there, lh_error *err)
{
    lh_plan_options quiet = *options;
    *there = (lh_plan){.job = job};
    quiet.n_questions = 0;
    quiet.sensitivity = false;
    quiet.jitter = NULL;
    quiet.pareto_front = false;
    quiet.top = 1;
    quiet.layout_effort = lhi_compute_layout_work(options) / parts;
    if (!quiet.layout_effort)
        quiet.layout_effort = 1; /* 0 means the default of the effort */
    quiet.seconds /= parts;
    return lhi_plan_search_and_refine(job, &quiet, mem, NULL, cutoff_ns, shared,
                                      there, err);
}

lh_status lhi_plan_search_again(const lh_job *job,
                                const lh_plan_options *options, uint32_t parts,
                                int64_t cutoff_ns, lhi_arena *mem,
                                lhi_found_plans *known, lh_choice *best,
                                lh_error *err)
{
    lh_plan there;
    lh_status status =
        search_with_share(job, options, parts, cutoff_ns,
                          known ? known->evaluations : NULL, mem, &there, err);
    *best = there.best;
    if (status == LH_OK && known)
        return lhi_found_plans_add(known, &there, err);
    lh_pipeline_free((lh_pipeline *)there.pipeline);
    lh_schedule_free((lh_schedule *)there.schedule);
    return status;
}

/* Returns the options with enough search work that, divided by `parts`, it is
 * at least the minimum of a plan search. */
static lh_plan_options ensure_minimum_work(const lh_plan_options *options,
                                           uint32_t parts)
{
    const uint64_t least = parts * LHI_MIN_SEARCH_WORK;
    lh_plan_options own = *options;
    if (!own.layout_effort && lhi_compute_layout_work(&own) < least)
        own.layout_effort = least;
    return own;
}

lh_status lhi_plan_search_short(const lh_job *job,
                                const lh_plan_options *options, uint32_t parts,
                                int64_t cutoff_ns, lhi_arena *mem, lh_plan *out,
                                lh_error *err)
{
    const lh_plan_options own = ensure_minimum_work(options, WORK_DIVISOR);
    return search_with_share(job, &own, WORK_DIVISOR * parts, cutoff_ns, NULL,
                             mem, out, err);
}

lh_status lhi_plan_search_possible(const lh_job *job,
                                   const lh_plan_options *options,
                                   uint32_t parts, int64_t cutoff_ns,
                                   lhi_arena *mem, lh_plan *out, lh_error *why,
                                   lh_error *err)
{
    const lh_status status =
        lhi_plan_search_short(job, options, parts, cutoff_ns, mem, out, why);
    out->job = NULL;
    if (status == LH_OK)
        return LH_OK;
    lh_pipeline_free((lh_pipeline *)out->pipeline);
    lh_schedule_free((lh_schedule *)out->schedule);
    *out = (lh_plan){0};
    if (status == LH_EINFEASIBLE || lhi_layout_is_infeasible(status))
        return LH_OK;
    if (err)
        *err = *why;
    return status;
}

/* Searches a changed job's best plan into *best, with a tenth of the plan's
 * work, but at least the minimum for the effort level. Plans of cutoff_ns or
 * longer may be missed (0: no limit). The plan joins the pool `known`. */
static lh_status search_changed_job(const lh_job *job,
                                    const lh_plan_options *options,
                                    int64_t cutoff_ns, lhi_arena *mem,
                                    lhi_found_plans *known, lh_choice *best,
                                    lh_error *err)
{
    const lh_plan_options own = ensure_minimum_work(options, WORK_DIVISOR);
    return lhi_plan_search_again(job, &own, WORK_DIVISOR, cutoff_ns, mem, known,
                                 best, err);
}

/* Runs the solver on plan *there's pipeline and replaces the plan's schedule if
 * the solver's is faster. */
static lh_status solve_again(const lh_plan_options *options, lh_plan *there,
                             lh_error *err)
{
    lh_schedule *schedule = NULL;
    lh_choice found = there->best;
    LHI_TRY(
        lhi_plan_refine_alternative(options, there->pipeline, &schedule, err));
    if (!schedule)
        return LH_OK;
    found.layout.schedule = LH_OPTIMAL;
    lh_status status =
        lhi_choice_measure(there->pipeline, schedule, &found, err);
    if (status == LH_OK && found.makespan_ns < there->best.makespan_ns) {
        there->best = found;
        lh_schedule_free((lh_schedule *)there->schedule);
        there->schedule = schedule;
        schedule = NULL;
    }
    lh_schedule_free(schedule);
    return status;
}

/* Schedules the layout and partition of `like` anew on the changed job; a
 * result that is better than *best replaces it and joins the pool `known`. */
static lh_status reschedule_layout(const lh_job *job,
                                   const lh_plan_options *options,
                                   const lh_choice *like, lhi_arena *mem,
                                   lhi_found_plans *known, lh_choice *best,
                                   lh_error *err)
{
    lhi_layout_search s = {.job = job,
                           .options = *options,
                           .mem = mem,
                           .evaluation_cache = known->evaluations};
    lhi_candidate c = {.config = lhi_config_from_choice(like)};
    lhi_built_layout built;
    lh_schedule *schedule = NULL;
    s.best_ns = s.best_value = lhi_objective_value(options, best);
    if (like->status != LH_CHOICE_OK || like->elastic)
        return LH_OK;
    lh_error why = {0};
    lh_status status = lhi_layout_build(job, &c.config, &built, &why);
    if (status != LH_OK && lhi_layout_is_infeasible(status))
        return LH_OK; /* times exceed a pipeline's range */
    if (status != LH_OK && err)
        *err = why;
    LHI_TRY(status);
    status = lhi_candidate_compute_bound_built(&c, &built, err);
    if (status == LH_OK &&
        (options->objective != LH_PLAN_FASTEST || c.bound_ns < s.best_value))
        status = lhi_candidate_run_methods(&s, &c, &built, &schedule, NULL,
                                           NULL, err);
    lh_plan there = {.job = job,
                     .best = c.choice,
                     .pipeline = built.pipeline,
                     .schedule = schedule};
    if (status == LH_OK && schedule && !options->quick &&
        strcmp(like->layout.schedule, LH_OPTIMAL) == 0)
        status = solve_again(options, &there, err);
    if (status == LH_OK && there.schedule &&
        lhi_objective_value(options, &there.best) < s.best_value) {
        *best = there.best;
        return lhi_found_plans_add(known, &there, err);
    }
    lh_schedule_free((lh_schedule *)there.schedule);
    lh_pipeline_free(built.pipeline);
    return status;
}

/* Schedules the plan's layout and its best alternatives anew on the changed
 * job: the question's own search has less work than the plan's, and may miss
 * their partitions. */
static lh_status reschedule_known(const lh_job *job,
                                  const lh_plan_options *options,
                                  const lh_plan *plan, lhi_arena *mem,
                                  lhi_found_plans *known, lh_choice *best,
                                  lh_error *err)
{
    LHI_TRY(
        reschedule_layout(job, options, &plan->best, mem, known, best, err));
    for (uint32_t i = 0; i < plan->n_alternatives && i < MAX_RESCHEDULED; i++)
        LHI_TRY(reschedule_layout(job, options, &plan->alternatives[i], mem,
                                  known, best, err));
    return LH_OK;
}

/* Answers one --what-if question by its own search: the plan kept, and the best
 * plan for the changed job. */
static lh_status answer_question(const lh_plan_whatif_question *question,
                                 const lh_plan_options *options, lhi_arena *mem,
                                 const lh_plan *plan, lhi_found_plans *known,
                                 lh_job *job, lh_plan_whatif_answer *out,
                                 lh_error *err)
{
    out->text = lhi_arena_strdup(mem, question->text ? question->text : "");
    if (!out->text)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_job_override_links(plan->job, question->changes,
                                   question->n_changes, mem, job, err));
    LHI_TRY(lhi_plan_evaluate_on_job(plan, job, mem, &out->kept, err));
    LHI_TRY(search_changed_job(job, options, out->kept.iteration_ns, mem, known,
                               &out->best, err));
    LHI_TRY(reschedule_known(job, options, plan, mem, known, &out->best, err));
    /* The existing schedule may be better than one found from scratch. */
    if (lhi_objective_value(options, &out->kept) <=
        lhi_objective_value(options, &out->best))
        out->best = out->kept;
    return LH_OK;
}

/* Inserts the --what-if question's text before an error's message. */
static void prefix_error(const lh_plan_whatif_question *question, lh_error *err)
{
    lhi_fail_add_context(err, "what if %s",
                         question->text ? question->text : "");
}

lh_status lhi_plan_check_questions(const lh_job *job,
                                   const lh_plan_options *options,
                                   lh_error *err)
{
    lh_status status = LH_OK;
    for (uint32_t i = 0; i < options->n_questions && status == LH_OK; i++) {
        const lh_plan_whatif_question *q = &options->questions[i];
        lhi_arena *mem = lhi_arena_make(0);
        lh_job *changed = mem ? LHI_NEW(mem, lh_job, 1) : NULL;
        status = changed ? lhi_job_override_links(job, q->changes, q->n_changes,
                                                  mem, changed, err)
                         : lhi_fail_nomem(err);
        if (status != LH_OK)
            prefix_error(q, err);
        lhi_arena_free(mem);
    }
    return status;
}

lh_status lhi_plan_answer_whatif(const lh_plan_options *options, lhi_arena *mem,
                                 lhi_found_plans *known, lh_plan *plan,
                                 lh_error *err)
{
    uint32_t n = options->n_questions;
    lh_plan_whatif_answer *answers = LHI_NEW(mem, lh_plan_whatif_answer, n);
    lh_job *jobs = LHI_NEW(mem, lh_job, n);
    if (!answers || !jobs)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        lh_status status =
            answer_question(&options->questions[i], options, mem, plan, known,
                            &jobs[i], &answers[i], err);
        if (status != LH_OK) {
            prefix_error(&options->questions[i], err);
            return status;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        lhi_deadline end;
        const lh_plan_options in_time = lhi_options_with_deadline(
            options,
            lhi_compute_search_deadline(options, lhi_read_processor_seconds(),
                                        1.0 / WORK_DIVISOR),
            &end);
        LHI_TRY(lhi_found_plans_improve(known, &in_time, &jobs[i], mem,
                                        &answers[i].best, err));
        answers[i].best.why = "";
    }
    plan->answers = answers;
    plan->n_answers = n;
    return LH_OK;
}

lh_status lhi_plan_without_target(const lh_plan_options *options,
                                  lhi_arena *mem, lh_plan *plan, lh_error *err)
{
    lh_job job = *plan->job;
    if (job.target == LH_TARGET_ANY)
        return LH_OK;
    lh_choice *best = LHI_NEW(mem, lh_choice, 1);
    if (!best)
        return lhi_fail_nomem(err);
    job.target = LH_TARGET_ANY;
    LHI_TRY(search_changed_job(&job, options, plan->best.iteration_ns, mem,
                               NULL, best, err));
    if (lhi_objective_value(options, best) <
        lhi_objective_value(options, &plan->best))
        plan->unrestricted = best;
    return LH_OK;
}
