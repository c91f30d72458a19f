/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates a plan with other links: builds the plan's layout with them and
 * runs its schedule again in the same order. For comparison, a search finds the
 * best plan for these links. */
#include "planner/explain/whatif.h"

#include "base/fail.h"
#include "planner/layout/link_override.h"
#include "planner/search/objective.h"
#include "planner/search/plan_search.h"
#include "planner/search/search_budget.h"

/* work per question: the plan's divided by WORK_DIVISOR */
enum { WORK_DIVISOR = 10 };

/* Searches with 1/`parts` of the plan's work, without output. */
static lh_status search_with_share(const lh_job *job,
                                   const lh_plan_options *options,
                                   uint32_t parts, lhi_arena *mem,
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
    return lhi_plan_search_and_refine(job, &quiet, mem, NULL, there, err);
}

lh_status lhi_plan_search_again(const lh_job *job,
                                const lh_plan_options *options, uint32_t parts,
                                lhi_arena *mem, lhi_found_plans *known,
                                lh_choice *best, lh_error *err)
{
    lh_plan there;
    lh_status status = search_with_share(job, options, parts, mem, &there, err);
    *best = there.best;
    if (status == LH_OK && known)
        return lhi_found_plans_add(known, &there, err);
    lh_pipeline_free((lh_pipeline *)there.pipeline);
    lh_schedule_free((lh_schedule *)there.schedule);
    return status;
}

/* Returns options whose part of the work is at least any plan's minimum at that
 * effort. */
static lh_plan_options with_minimum_work(const lh_plan_options *options,
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
                                lhi_arena *mem, lh_plan *out, lh_error *err)
{
    const lh_plan_options own = with_minimum_work(options, WORK_DIVISOR);
    return search_with_share(job, &own, WORK_DIVISOR * parts, mem, out, err);
}

/* Searches with a part of the plan's work, but at least any plan's minimum at
 * that effort. */
static lh_status search_changed_job(const lh_job *job,
                                    const lh_plan_options *options,
                                    lhi_arena *mem, lhi_found_plans *known,
                                    lh_choice *best, lh_error *err)
{
    const lh_plan_options own = with_minimum_work(options, WORK_DIVISOR);
    return lhi_plan_search_again(job, &own, WORK_DIVISOR, mem, known, best,
                                 err);
}

/* Computes the answer from this question's own search. */
static lh_status answer(const lh_plan_whatif_question *question,
                        const lh_plan_options *options, lhi_arena *mem,
                        const lh_plan *plan, lhi_found_plans *known,
                        lh_job *job, lh_plan_whatif_answer *out, lh_error *err)
{
    out->text = lhi_arena_strdup(mem, question->text ? question->text : "");
    if (!out->text)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_job_override_links(plan->job, question->changes,
                                   question->n_changes, mem, job, err));
    LHI_TRY(lhi_plan_evaluate_on_job(plan, job, mem, &out->kept, err));
    LHI_TRY(search_changed_job(job, options, mem, known, &out->best, err));
    /* The existing schedule may be better than one found from scratch. */
    if (lhi_objective_value(options, &out->kept) <=
        lhi_objective_value(options, &out->best))
        out->best = out->kept;
    return LH_OK;
}

/* Prefixes an error with the question. */
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

/* Each search is short. Its result also competes in the other questions, so
 * that no case is slower than another with worse links. */
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
        lh_status status = answer(&options->questions[i], options, mem, plan,
                                  known, &jobs[i], &answers[i], err);
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
    LHI_TRY(search_changed_job(&job, options, mem, NULL, best, err));
    if (lhi_objective_value(options, best) <
        lhi_objective_value(options, &plan->best))
        plan->unrestricted = best;
    return LH_OK;
}
