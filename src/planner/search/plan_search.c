/* SPDX-License-Identifier: Apache-2.0 */
/* The search over layouts: branch and bound with even chunks, then moved layers
 * for the promising ones, then elastic plans. */
#include "planner/search/plan_search.h"

#include "base/integer_math.h"
#include "planner/elastic/pipeline.h"
#include "planner/layout/choice.h"
#include "planner/layout/equivalence.h"
#include "planner/search/cost.h"
#include "planner/search/elastic_search.h"
#include "planner/search/local_search.h"
#include "planner/search/objective.h"
#include "planner/search/parallel_for.h"
#include "planner/search/refine.h"
#include "planner/search/search_budget.h"
#include "planner/search/two_directions.h"
#include "planner/search/unequal_bound.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FRONT_SEARCHES = 3 /* work each: the plan's divided by FRONT_SEARCHES */
};

/* --- elastic plans -------------------------------------------------------- */

/* Checks whether the layout search must stop, by its deadline or on request;
 * never before it has a plan. `works`: there is one. Callback for the elastic
 * search. */
static bool is_stopped(void *context, bool works)
{
    lhi_layout_search *s = context;
    return lhi_layout_search_should_stop(s, s->n, works);
}

/* Finds the best elastic plan and its variants without one feature each, for
 * the plan's table. `drawn`: searches only the degrees that are best under
 * other schedules, because layouts were drawn at random. */
static lh_status search_elastic(lhi_layout_search *s, bool drawn, lh_error *err)
{
    lhi_elastic_result best;
    LHI_TRY(lhi_elastic_search(s, !drawn, &best, err));
    if (!best.schedule && s->options.elastic_as_published)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "the job has no feasible layout for PipeMesh's "
                        "planner, which requires several replicas, and "
                        "schedule: elastic or none");
    if (!best.schedule)
        return LH_OK;
    s->elastic.published = s->options.elastic_as_published;
    s->elastic.stopped = is_stopped;
    s->elastic.context = s;
    LHI_TRY(lhi_elastic_choices_make(s->job, &best, s->mem, &s->elastic, err));
    for (uint32_t i = 0; i < s->elastic.n_rows; i++)
        LHI_TRY(lhi_elastic_choice_finish(s, &s->elastic.rows[i], err));
    for (uint32_t i = 0; s->front && i < s->elastic.n_rows; i++)
        LHI_TRY(lhi_pareto_front_add(s->front, &s->elastic.rows[i], err));
    return LH_OK;
}

/* Searches for the fastest plan with the options of `like`; *first: its best
 * candidate, whose cost prunes the following search for the cheapest plan. */
static lh_status find_start(const lhi_layout_search *like, lhi_candidate *first,
                            lh_error *err)
{
    lhi_layout_search s = {.job = like->job,
                           .options = like->options,
                           .mem = like->mem,
                           .front = like->front,
                           .workers = like->workers,
                           .cancelled = like->cancelled,
                           .evaluation_cache = like->evaluation_cache,
                           .sharing = like->sharing};
    s.options.objective = LH_PLAN_FASTEST;
    lh_status status = lhi_layout_search_branch_and_bound(&s, err);
    s.options.objective = like->options.objective;
    const lhi_candidate *best =
        status == LH_OK ? lhi_layout_search_find_best(&s) : NULL;
    if (best)
        *first = *best;
    free(s.candidates);
    return status;
}

/* Builds the layout and partition of `row`, and evaluates every schedule
 * method, into *out. */
static lh_status evaluate_layout(lhi_layout_search *s, const lh_choice *row,
                                 lhi_candidate *out, lh_error *err)
{
    *out = (lhi_candidate){.config = lhi_config_from_choice(row)};
    LHI_TRY(lhi_candidate_compute_bound(s, out, err));
    return out->bound_ns < INT64_MAX ? lhi_candidate_evaluate(s, out, err)
                                     : LH_OK;
}

/* Share of the work for the cheapest that first searches for the fastest. */
enum { FIRST = 4 };

/* Reduces the work and time in the options to the part for one of two
 * successive searches: the first for the fastest plan (`first`), or the second
 * for the cheapest. */
static void share_work(lh_plan_options *o, bool first)
{
    uint64_t all = lhi_compute_layout_work(o), part = all / FIRST;
    o->layout_effort = first ? part + 1 : all - part;
    o->seconds *= (first ? 1.0 : FIRST - 1.0) / FIRST;
}

/* Runs the branch and bound over layouts. `goal`: objective besides time; NULL:
 * none. `known`: a plan whose cost prunes the search for the cheapest plan;
 * NULL: a part of the work searches for it. */
static lh_status run_branch_and_bound(lhi_layout_search *s,
                                      lhi_cost_objective *goal,
                                      const lh_choice *known, lh_error *err)
{
    const lh_plan_options whole = s->options;
    lhi_candidate first = {0};
    if (!goal)
        return lhi_layout_search_branch_and_bound(s, err);
    if (!goal->front) {
        lhi_layout_search one = *s; /* the search itself has not begun */
        share_work(&s->options, true);
        LHI_TRY(known ? evaluate_layout(&one, known, &first, err)
                      : find_start(s, &first, err));
        s->options = whole;
        share_work(&s->options, false);
    }
    lhi_cost_objective_add(goal, &first.choice);
    s->objective = &goal->objective;
    lh_status status = lhi_layout_search_branch_and_bound(s, err);
    s->objective = NULL;
    s->options.layout_effort = whole.layout_effort;
    s->options.seconds = whole.seconds;
    if (status == LH_OK && first.choice.cost) {
        status = lhi_layout_search_add_candidate(s, &first, err);
        s->n_simulated += status == LH_OK;
    }
    return status == LH_OK && goal->no_memory ? lhi_fail_nomem(err) : status;
}

/* Sets the search's objective to `goal` (NULL: time) for elastic plans, with
 * the best plan's cost so far as the limit. */
static void set_objective(lhi_layout_search *s, lhi_cost_objective *goal)
{
    const lhi_candidate *best = lhi_layout_search_find_best(s);
    s->objective = goal ? &goal->objective : NULL;
    if (goal && best && !lhi_elastic_is_required(s->job))
        lhi_cost_objective_add(goal, &best->choice);
}

/* Runs all search steps with the options in `like`, a search not yet started:
 * branch and bound (`known`: see run_branch_and_bound()), moved layers, local
 * search, two directions and elastic plans. Fills `plan`. */
static lh_status search_for(const lhi_layout_search *like,
                            const lh_choice *known, lh_plan *plan,
                            lh_error *err)
{
    lhi_layout_search s = *like;
    const lh_job *job = s.job;
    const lh_plan_options *options = &like->options;
    bool drawn = s.options.partition == LH_PARTITION_MONTE_CARLO;
    bool cheapest = s.options.objective == LH_PLAN_CHEAPEST;
    lhi_cost_objective own = {0}, *goal = cheapest ? &own : NULL;
    const double from_s = lhi_read_processor_seconds();
    s.until_s =
        lhi_compute_search_deadline(options, from_s, LHI_SHARE_WITH_LAYERS);
    if (goal)
        LHI_TRY(lhi_cost_objective_init(job, options, NULL, goal, err));
    lh_status status = drawn ? lhi_layout_search_run_monte_carlo(&s, err)
                             : run_branch_and_bound(&s, goal, known, err);
    if (status == LH_OK && !s.options.quick && !drawn &&
        !s.exact) /* already tried all */
        status = lhi_layout_search_move_layers(&s, err);
    if (status == LH_OK && !s.options.quick && !drawn)
        status = lhi_layout_search_run_local_search(&s, err);
    if (status == LH_OK)
        status = lhi_layout_search_add_two_directions(&s, err);
    set_objective(&s, goal);
    s.until_s =
        lhi_compute_search_deadline(options, from_s, LHI_SHARE_WITH_ELASTIC);
    if (status == LH_OK && !(drawn && lhi_layout_search_find_best(&s)))
        status = search_elastic(&s, drawn, err);
    s.objective = NULL;
    if (goal && status == LH_OK && goal->no_memory)
        status = lhi_fail_nomem(err);
    if (goal && (goal->best_usd < INFINITY || !goal->max_ns))
        s.proven_usd = fmin(goal->unexplored_usd, goal->best_usd);
    if (status == LH_OK)
        status = lhi_layout_search_fill_plan(&s, plan, err);
    plan->objective = options->objective;
    lhi_elastic_choices_fini(&s.elastic);
    free(s.candidates);
    return status;
}

/* Optimises the plan's and its alternatives' schedules with the solver, within
 * the remaining seconds of the search that began at from_s. `heads`: best plans
 * by dimension value; `tried`: cache of schedule results. */
static lh_status
refine_schedules(const lh_job *job, const lh_plan_options *options,
                 const lhi_best_per_value *heads, double from_s, lhi_arena *mem,
                 lhi_evaluation_cache *tried, lh_plan *plan, lh_error *err)
{
    lhi_deadline end;
    const lh_plan_options in_time = lhi_options_with_deadline(
        options, lhi_compute_search_deadline(options, from_s, 1), &end);
    return lhi_plan_refine(job, &in_time, heads, mem, tried, plan, err);
}

/* Returns the cheapest non-elastic plan candidate on a front; NULL: none. */
static const lh_choice *find_cheapest_on_front(const lhi_pareto_front *front)
{
    const lh_choice *best = NULL;
    for (uint32_t i = 0; i < front->n; i++) {
        const lh_choice *c = &front->all[i];
        if (c->cost && !c->elastic && (!best || c->cost->usd < best->cost->usd))
            best = c;
    }
    return best;
}

/* Searches the plan for the other objective (the cheapest, if the job's is the
 * fastest, or the reverse), and adds its results to the Pareto front. */
static lh_status search_other(const lhi_layout_search *like, lh_error *err)
{
    lh_plan other = {0};
    lhi_layout_search s = *like;
    lh_error why = {0};
    const double from_s = lhi_read_processor_seconds();
    s.unexplored = NULL;
    s.options = lhi_options_for_questions(&like->options);
    s.options.jitter = NULL;
    s.options.objective = like->options.objective == LH_PLAN_FASTEST
                              ? LH_PLAN_CHEAPEST
                              : LH_PLAN_FASTEST;
    lh_status status =
        search_for(&s, find_cheapest_on_front(s.front), &other, &why);
    s.options.partition = LH_PARTITION_EVEN; /* refine schedules alone */
    if (status == LH_OK)
        status = refine_schedules(s.job, &s.options, NULL, from_s, s.mem,
                                  s.evaluation_cache, &other, &why);
    if (status == LH_OK)
        status = lhi_pricing_set_choice(s.job, s.mem, &other.best, &why);
    if (status == LH_OK)
        status = lhi_pareto_front_add(s.front, &other.best, &why);
    lh_pipeline_free((lh_pipeline *)other.pipeline);
    lh_schedule_free((lh_schedule *)other.schedule);
    if (status == LH_OK || status == LH_EINFEASIBLE)
        return LH_OK;
    if (err)
        *err = why;
    return status;
}

/* Continues the branch and bound for the Pareto front, until no unexplored
 * layout can be on the front or the limits are reached. */
static lh_status search_remaining_front(const lhi_layout_search *like,
                                        lh_plan *plan, lh_error *err)
{
    lhi_cost_objective goal = {0};
    lhi_elastic_result best = {0};
    lhi_layout_search s = *like;
    s.unexplored = NULL;
    s.sharing = FRONT_SEARCHES;
    s.options = lhi_options_for_questions(&like->options);
    s.options.jitter = NULL;
    LHI_TRY(lhi_cost_objective_init(s.job, &s.options, s.front, &goal, err));
    lh_status status = run_branch_and_bound(&s, &goal, NULL, err);
    s.objective = &goal.objective;
    if (status == LH_OK)
        status = lhi_elastic_search(&s, true, &best, err);
    if (status == LH_OK && goal.no_memory)
        status = lhi_fail_nomem(err);
    plan->pareto_complete =
        s.complete && (like->options.quick || s.n_elastic_left == 0) &&
        !lhi_differing_is_searched(like->job, &like->options);
    lh_pipeline_free(best.built.pipeline);
    lh_schedule_free(best.schedule);
    free(s.candidates);
    return status;
}

/* --- Pareto front --------------------------------------------------------- */

/* Returns a plan candidate on the Pareto front with a better objective value
 * than the plan; NULL: none. */
static const lh_choice *find_better_on_front(const lhi_layout_search *s,
                                             const lh_plan *plan)
{
    const lh_choice *best = &plan->best;
    for (uint32_t i = 0; i < s->front->n; i++) {
        const lh_choice *c = &s->front->all[i];
        if (lhi_objective_value(&s->options, c) <
            lhi_objective_value(&s->options, best))
            best = c;
    }
    return best == &plan->best ? NULL : best;
}

/* Repeats the search for the layout of `row` only, with pipeline and schedule,
 * into *found. */
static lh_status search_one_layout(const lhi_layout_search *like,
                                   const lh_choice *row, lh_plan *found,
                                   lh_error *err)
{
    lhi_layout_search s = *like;
    lhi_candidate only;
    s.front = NULL;
    s.unexplored = NULL;
    s.complete = true;
    s.best_ns = s.best_value = s.proven_ns = INT64_MAX;
    LHI_TRY(evaluate_layout(&s, row, &only, err));
    LHI_TRY(lhi_layout_search_add_candidate(&s, &only, err));
    s.n_simulated++;
    lh_status status = row->elastic ? search_elastic(&s, true, err) : LH_OK;
    if (status == LH_OK)
        status = lhi_layout_search_fill_plan(&s, found, err);
    lhi_elastic_choices_fini(&s.elastic);
    free(s.candidates);
    return status;
}

/* Makes *found the plan; the previous plan becomes an alternative. */
static lh_status replace_plan(const lhi_layout_search *s, const lh_plan *found,
                              lh_plan *plan, lh_error *err)
{
    lh_choice before = plan->best,
              *list =
                  LHI_NEW(s->mem, lh_choice, plan->n_alternatives + (size_t)1);
    char standing[LHI_OPTIMALITY_TEXT], why[2 * LHI_OPTIMALITY_TEXT];
    char schedule[LHI_SCHEDULE_TEXT];
    if (!list)
        return lhi_fail_nomem(err);
    plan->best = found->best;
    plan->methods = found->methods;
    plan->n_methods = found->n_methods;
    plan->cost_source = found->cost_source;
    plan->search_bound_ns =
        lhi_min_int64(plan->search_bound_ns, found->best.iteration_ns);
    if (found->best.cost)
        plan->search_bound_usd =
            fmin(plan->search_bound_usd, found->best.cost->usd);
    lhi_format_plan_optimality(plan, &s->options, standing, sizeof standing);
    lhi_format_schedule_optimality(
        (double)plan->best.iteration_ns / (double)plan->best.lower_bound_ns - 1,
        schedule, sizeof schedule);
    snprintf(why, sizeof why, "%s; %s", standing, schedule);
    plan->best.why = lhi_arena_strdup(s->mem, why);
    if (!plan->best.why)
        return lhi_fail_nomem(err);
    list[0] = before;
    uint32_t n = 1;
    for (uint32_t i = 0; i < plan->n_alternatives; i++)
        if (!lhi_choices_share_pipeline(&plan->alternatives[i], &plan->best))
            list[n++] = plan->alternatives[i];
    lhi_sort_choices(&s->options, list, n);
    plan->alternatives = list;
    plan->n_alternatives = n;
    return lhi_plan_renew_reasons(&s->options, s->mem, plan, list, n, err);
}

/* Makes *found the plan if it is better by the objective. Frees the pipeline
 * and schedule of the worse one. */
static lh_status replace_if_better(const lhi_layout_search *s,
                                   const lh_plan *found, lh_plan *plan,
                                   lh_error *err)
{
    bool better = lhi_objective_value(&s->options, &found->best) <
                  lhi_objective_value(&s->options, &plan->best);
    lh_status status = better ? replace_plan(s, found, plan, err) : LH_OK;
    better = better && status == LH_OK;
    const lh_pipeline *pipeline = better ? plan->pipeline : found->pipeline;
    const lh_schedule *schedule = better ? plan->schedule : found->schedule;
    if (better) {
        plan->pipeline = found->pipeline;
        plan->schedule = found->schedule;
    }
    lh_pipeline_free((lh_pipeline *)pipeline);
    lh_schedule_free((lh_schedule *)schedule);
    return status;
}

/* Replaces the plan by the best plan candidate of the Pareto front if that is
 * better: the front's searches may find more than the first search, which was
 * short. */
static lh_status adopt_best_of_front(const lhi_layout_search *like,
                                     lh_plan *plan, lh_error *err)
{
    const lh_choice *row = find_better_on_front(like, plan);
    lh_plan found = {0};
    if (!row)
        return LH_OK;
    lh_status status = search_one_layout(like, row, &found, err);
    if (status == LH_OK)
        return replace_if_better(like, &found, plan, err);
    lh_pipeline_free((lh_pipeline *)found.pipeline);
    lh_schedule_free((lh_schedule *)found.schedule);
    return status;
}

/* --- plans of the same job with less memory ------------------------------- */

/* Builds the layout of `other`, a plan of the same job with less memory, with
 * the search's job and simulates other's schedule on it, into *choice. The
 * caller frees built->pipeline, on failure too. */
static lh_status simulate_other(const lhi_layout_search *s,
                                const lh_plan *other, lhi_built_layout *built,
                                lh_choice *choice, lh_error *err)
{
    lhi_candidate c = {.config = lhi_config_from_choice(&other->best)};
    *choice = other->best;
    if (choice->elastic) {
        LHI_TRY(lhi_elastic_rebuild(s->job, &c.config, built, err));
        const lhi_elastic_result same = {.config = c.config,
                                         .built = *built,
                                         .schedule =
                                             (lh_schedule *)other->schedule,
                                         .details = choice->elastic};
        LHI_TRY(lhi_elastic_choice_of(&same, choice, err));
        return lhi_elastic_choice_finish(s, choice, err);
    }
    LHI_TRY(lhi_layout_build(s->job, &c.config, built, err));
    LHI_TRY(lhi_candidate_compute_bound_built(&c, built, err));
    choice->lower_bound_ns = c.bound_ns;
    LHI_TRY(lhi_choice_measure(built->pipeline, other->schedule, choice, err));
    return lhi_pricing_set_choice(s->job, s->mem, choice, err);
}

/* Lists `row` as the first of the plan's methods, replacing the row with the
 * same schedule method and chunk placement. Elastic plans replace none: their
 * ablations have the same method. */
static lh_status list_first(lhi_arena *mem, const lh_choice *row, lh_plan *plan,
                            lh_error *err)
{
    lh_choice *list = LHI_NEW(mem, lh_choice, plan->n_methods + (size_t)1);
    uint32_t n = 0;
    if (!list)
        return lhi_fail_nomem(err);
    list[n++] = *row;
    for (uint32_t i = 0; i < plan->n_methods; i++) {
        const lh_choice *m = &plan->methods[i];
        if (row->elastic || m->elastic || m->placement != row->placement ||
            strcmp(m->layout.schedule, row->layout.schedule) != 0)
            list[n++] = *m;
    }
    plan->methods = list;
    plan->n_methods = n;
    return LH_OK;
}

/* Replaces *found's best layout by `other`'s, a plan of the same job with less
 * memory, if that is better. *found then owns other's schedule. */
static lh_status adopt_schedule(const lhi_layout_search *s, lh_plan *other,
                                lh_plan *found, lh_error *err)
{
    lhi_built_layout built = {0};
    lh_choice choice;
    lh_status status = simulate_other(s, other, &built, &choice, err);
    const bool better =
        status == LH_OK && (!found->pipeline ||
                            lhi_objective_value(&s->options, &choice) <
                                lhi_objective_value(&s->options, &found->best));
    if (!better) {
        lh_pipeline_free(built.pipeline);
        return status;
    }
    lh_pipeline_free((lh_pipeline *)found->pipeline);
    lh_schedule_free((lh_schedule *)found->schedule);
    found->pipeline = built.pipeline;
    found->schedule = other->schedule;
    found->cost_source = lh_cost_source_name(built.source);
    other->schedule = NULL;
    choice.why = "";
    found->best = choice;
    return list_first(s->mem, &choice, found, err);
}

lh_status lhi_plan_adopt_if_better(const lh_job *job,
                                   const lh_plan_options *options,
                                   lhi_arena *mem, lh_plan *other,
                                   lh_plan *plan, lh_error *err)
{
    const lhi_layout_search s = {.job = job, .options = *options, .mem = mem};
    lh_plan found = {0};
    lh_error why = {0};
    if (lhi_objective_value(options, &other->best) >=
        lhi_objective_value(options, &plan->best))
        return LH_OK;
    lh_status status = search_one_layout(&s, &other->best, &found, &why);
    if (status == LH_OK || status == LH_EINFEASIBLE ||
        lhi_layout_is_infeasible(status)) /* no method works */
        status = adopt_schedule(&s, other, &found, &why);
    if (status == LH_OK)
        return replace_if_better(&s, &found, plan, err);
    lh_pipeline_free((lh_pipeline *)found.pipeline);
    lh_schedule_free((lh_schedule *)found.schedule);
    if (err)
        *err = why;
    return status;
}

/* --- search --------------------------------------------------------------- */

lh_status lhi_plan_search(const lh_job *job, const lh_plan_options *options,
                          lhi_arena *mem, lhi_unexplored *unexplored,
                          int64_t cutoff_ns, lhi_evaluation_cache *shared,
                          lh_plan *plan, lh_error *err)
{
    lhi_evaluation_cache *own = NULL;
    lhi_pareto_front front = {.mem = mem};
    lhi_layout_search s = {
        .job = job,
        .options = *options,
        .mem = mem,
        .unexplored = unexplored,
        .cutoff_ns =
            unexplored || options->objective != LH_PLAN_FASTEST ? 0 : cutoff_ns,
        .best_only = !unexplored && !options->pareto_front,
        .front = options->pareto_front ? &front : NULL};
    LHI_TRY(lhi_workers_make(options->threads, mem, &s.workers, err));
    lh_status status = shared ? LH_OK : lhi_evaluation_cache_make(&own, err);
    s.evaluation_cache = shared ? shared : own;
    if (status == LH_OK)
        status = search_for(&s, NULL, plan, err);
    if (status == LH_OK && s.front && lhi_pricing_has_prices(job))
        status = search_other(&s, err);
    if (status == LH_OK && s.front)
        status = search_remaining_front(&s, plan, err);
    if (status == LH_OK && s.front)
        status = adopt_best_of_front(&s, plan, err);
    lhi_workers_free(s.workers);
    lhi_evaluation_cache_free(own);
    plan->pareto_front = front.all;
    plan->n_pareto = front.n;
    return status;
}

lh_status lhi_plan_search_and_refine(const lh_job *job,
                                     const lh_plan_options *options,
                                     lhi_arena *mem, lhi_unexplored *unexplored,
                                     int64_t cutoff_ns,
                                     lhi_evaluation_cache *shared,
                                     lh_plan *plan, lh_error *err)
{
    lhi_evaluation_cache *own = NULL;
    lh_status status = shared ? LH_OK : lhi_evaluation_cache_make(&own, err);
    lhi_evaluation_cache *tried = shared ? shared : own;
    const double from_s = lhi_read_processor_seconds();
    if (status == LH_OK)
        status = lhi_plan_search(job, options, mem, unexplored, cutoff_ns,
                                 tried, plan, err);
    if (status == LH_OK)
        status = refine_schedules(job, options,
                                  unexplored ? &unexplored->heads : NULL,
                                  from_s, mem, tried, plan, err);
    lhi_evaluation_cache_free(own);
    LHI_TRY(status);
    return lhi_pricing_set_choice(job, mem, &plan->best, err);
}

/* --- searches until a time limit ------------------------------------------ */

enum {
    EFFORT_GROWTH = 4, /* effort of a search relative to the previous one */
    LEAST_DIVISOR = 2  /* a search gets at least 1/LEAST_DIVISOR of the time of
                        * the previous one, or does not begin */
};

/* Effort, about 12 days, above which no search is repeated. */
static const uint64_t MOST_EFFORT = UINT64_C(1) << 40;

/* Gap to the lower bound at which no further search begins. */
static const double CLOSE_GAP = 0.005;

/* Checks whether another search with more effort may improve the plan, and the
 * caller does not ask to stop. */
static bool may_improve(const lh_plan_options *options, const lh_plan *plan)
{
    return options->partition != LH_PARTITION_MONTE_CARLO &&
           !options->elastic_as_published &&
           lhi_compute_bound_gap(options, plan) > CLOSE_GAP &&
           !(options->progress &&
             options->progress(options->context, plan->n_layouts,
                               plan->n_layouts, plan->best.iteration_ns));
}

/* Swaps the plans and the bounds on unexplored layouts of two searches. */
static void swap_results(lh_plan *a, lhi_unexplored *u, lh_plan *b,
                         lhi_unexplored *v)
{
    const lh_plan plan = *a;
    const lhi_unexplored unexplored = *u;
    *a = *b;
    *u = *v;
    *b = plan;
    *v = unexplored;
}

/* Raises the plan's proven bounds to those of `other`, at most to the plan's
 * own time and cost. */
static void raise_bounds(const lh_plan *other, lh_plan *plan)
{
    if (plan->search_bound_ns > 0)
        plan->search_bound_ns = lhi_min_int64(
            lhi_max_int64(plan->search_bound_ns, other->search_bound_ns),
            plan->best.iteration_ns);
    if (plan->search_bound_usd > 0 && plan->best.cost)
        plan->search_bound_usd =
            fmin(fmax(plan->search_bound_usd, other->search_bound_usd),
                 plan->best.cost->usd);
}

lh_status lhi_plan_merge_repeat(const lh_plan_options *options, lhi_arena *mem,
                                lh_plan *other, lhi_unexplored *left,
                                lh_plan *plan, lhi_unexplored *unexplored,
                                lh_error *err)
{
    char before[LHI_OPTIMALITY_TEXT], after[LHI_OPTIMALITY_TEXT];
    if (lhi_objective_value(options, &other->best) <
        lhi_objective_value(options, &plan->best))
        swap_results(plan, unexplored, other, left);
    lhi_format_plan_optimality(plan, options, before, sizeof before);
    raise_bounds(other, plan);
    lhi_format_plan_optimality(plan, options, after, sizeof after);
    const size_t len = strlen(before);
    const char *why = plan->best.why;
    if (!why || strcmp(before, after) == 0 || strncmp(why, before, len) != 0)
        return LH_OK;
    const size_t room = strlen(after) + strlen(why + len) + 1;
    char *text = LHI_NEW(mem, char, room);
    if (!text)
        return lhi_fail_nomem(err);
    snprintf(text, room, "%s%s", after, why + len);
    plan->best.why = text;
    return LH_OK;
}

lh_status lhi_plan_search_within_limits(const lh_job *job,
                                        const lh_plan_options *options,
                                        lhi_arena *mem,
                                        lhi_unexplored *unexplored,
                                        lhi_evaluation_cache *shared,
                                        lh_plan *plan, lh_error *err)
{
    const lh_plan empty = *plan;
    const double from_s = lhi_read_processor_seconds();
    lh_plan_options now = *options;
    LHI_TRY(lhi_plan_search_and_refine(job, options, mem, unexplored, 0, shared,
                                       plan, err));
    double before_s = from_s;
    while (options->seconds > 0 && may_improve(options, plan)) {
        const double now_s = lhi_read_processor_seconds();
        now.seconds = from_s + options->seconds - now_s;
        if (now.seconds < (now_s - before_s) / LEAST_DIVISOR ||
            lhi_get_effort(&now) > MOST_EFFORT)
            break;
        now.effort = EFFORT_GROWTH * lhi_get_effort(&now);
        before_s = now_s;
        lh_plan next = empty;
        lhi_unexplored left = {.job = unexplored->job};
        lh_status status = lhi_plan_search_and_refine(job, &now, mem, &left, 0,
                                                      shared, &next, err);
        if (status == LH_OK)
            status = lhi_plan_merge_repeat(options, mem, &next, &left, plan,
                                           unexplored, err);
        lh_pipeline_free((lh_pipeline *)next.pipeline);
        lh_schedule_free((lh_schedule *)next.schedule);
        lhi_unexplored_fini(&left);
        LHI_TRY(status);
    }
    return LH_OK;
}
