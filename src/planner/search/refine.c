/* SPDX-License-Identifier: Apache-2.0 */
/* Optimises schedules. The search over layouts only uses methods that produce a
 * schedule at once. Here the winner, and layouts that could still beat it, get
 * time for the schedule solver; limits count work, so that plans are the same
 * on every machine. */
#include "planner/search/refine_internal.h"

#include "planner/layout/equivalence.h"
#include "planner/layout/target.h"
#include "planner/search/cost.h"
#include "planner/search/objective.h"
#include "planner/search/plan_search.h"
#include "planner/search/search_budget.h"
#include "schedule/solver/bound/closed_forms.h"

#include <inttypes.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/simulate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ALTERNATIVES = 3,       /* each with a share; the winner has the rest */
    WORK_DIVISOR = 6,           /* an alternative's work: 1/WORK_DIVISOR */
    HEADS = 3,                  /* times as much: the best with other values */
    MAX_CLOSE = 48,             /* other nearby results, */
    CLOSE_DIVISOR = 20,         /* each with 1/CLOSE_DIVISOR of the work, */
    MAX_CLOSEST = 6,            /* and the best of these again, with a share */
    MAX_SMALL = 64,             /* results with few passes, */
    SMALL_PASSES = 64,          /* at most this many */
    MOST_OPS = 200000,          /* passes: beyond this only the methods run */
    MAX_TABLE_BYTES = 256 << 20 /* bytes for the solver's tables */
};

/* The solver's progress callback: calls the caller's progress callback.
 * Returns true to stop. */
static bool watch_progress(void *context, const lh_solve_progress *now)
{
    lhi_refinement *r = context;
    (void)now;
    if (r->options->progress)
        r->stopped = r->options->progress(
            r->options->context, r->plan->n_layouts, r->plan->n_layouts,
            r->plan->best.iteration_ns);
    return r->stopped;
}

/* Checks whether plan candidate `c` is an elastic plan (microbatch groups with
 * partial sharding): its sharding depends on its pass order, so no other order
 * is searched. */
static bool is_elastic(const lh_choice *c)
{
    return c->elastic != NULL; /* plain groups are an order like others */
}

/* Returns the F, D and W pass count of one iteration, to estimate solver work.
 */
static uint64_t count_passes(const lh_pipeline *p)
{
    return (uint64_t)lh_pipeline_n_chunks(p) * lh_pipeline_n_microbatches(p) *
           3;
}

/* --- one layout ---------------------------------------------------------- */

/* Runs the solver for optimal schedules on a pipeline with work limit `effort`,
 * into *out. Messages on a link are first in, first out, as in networks. Adds
 * the work done to r->spent. */
static lh_status run_solver(lhi_refinement *r, const lh_pipeline *p,
                            uint64_t effort, lh_solution *out, lh_error *err)
{
    lh_solve_options o = {.size = sizeof o,
                          .effort = effort ? effort : 1,
                          .memory = MAX_TABLE_BYTES,
                          .sub_blocks = r->options->sub_blocks,
                          .fifo = true,
                          .progress = watch_progress,
                          .context = r};
    LHI_TRY(lh_solve(p, &o, out, err));
    r->spent += out->effort;
    return LH_OK;
}

lh_status lhi_choice_measure(const lh_pipeline *p, const lh_schedule *schedule,
                             lh_choice *c, lh_error *err)
{
    lh_timeline *t = NULL;
    lh_sim_options fifo = {.size = sizeof fifo, .fifo = true};
    LHI_TRY(lh_simulate(p, schedule, &fifo, &t, err));
    lhi_choice_memory(c, p, schedule);
    int64_t before_ns = c->iteration_ns;
    c->makespan_ns = lh_timeline_makespan(t);
    c->bubble_ratio = lh_timeline_bubble_ratio(t);
    c->iteration_ns = c->makespan_ns + c->optimizer_ns + c->overhead_ns;
    c->tokens_per_s *= (double)before_ns / (double)c->iteration_ns;
    c->mfu *= (double)before_ns / (double)c->iteration_ns;
    lh_timeline_free(t);
    return LH_OK;
}

lh_status lhi_refinement_improve(lhi_refinement *r, const lh_pipeline *p,
                                 uint64_t effort, lh_choice *c,
                                 lh_schedule **schedule, char *why, size_t room,
                                 lh_error *err)
{
    lh_solution s = {0};
    int64_t after_ns = c->optimizer_ns + c->overhead_ns;
    if (c->iteration_ns <= c->lower_bound_ns || count_passes(p) > MOST_OPS ||
        lh_pipeline_offloads(p) || /* not supported by the solver */
        r->job->layout.slices || c->placement == LH_PLACEMENT_BD ||
        !lhi_target_accepts_any_order(r->job->target, c->layout.pipeline))
        return LH_OK;
    LHI_TRY(run_solver(r, p, effort, &s, err));
    if (s.bound_ns + after_ns > c->lower_bound_ns) {
        c->lower_bound_ns = s.bound_ns + after_ns;
        r->changed = true;
        snprintf(why, room, "%s", s.why);
    }
    lh_status status = LH_OK;
    lh_choice found = *c;
    if (s.schedule && s.makespan_ns < c->makespan_ns)
        status = lhi_choice_measure(p, s.schedule, &found, err);
    /* The solver assumes early receives; without them its schedule may be
     * slower. */
    if (status == LH_OK && found.makespan_ns < c->makespan_ns) {
        *c = found;
        c->layout.schedule = LH_OPTIMAL;
        r->changed = true;
        c->why = "";
        *schedule = s.schedule;
        s.schedule = NULL;
        status = lhi_pricing_set_choice(r->job, r->mem, c, err);
    }
    lh_solution_fini(&s);
    return status;
}

uint64_t lhi_refinement_effort(const lhi_refinement *r)
{
    return lhi_get_effort(r->options);
}

/* --- the winner ---------------------------------------------------------- */

/* Inserts a result into the plan's list of methods, which is sorted by time,
 * before the first method that is not faster. */
static lh_status add_method(lhi_refinement *r, const lh_choice *row,
                            lh_error *err)
{
    lh_plan *p = r->plan;
    lh_choice *list = LHI_NEW(r->mem, lh_choice, p->n_methods + (size_t)1);
    uint32_t at = 0;
    if (!list)
        return lhi_fail_nomem(err);
    while (at < p->n_methods && p->methods[at].status == LH_CHOICE_OK &&
           p->methods[at].iteration_ns < row->iteration_ns)
        at++;
    memcpy(list, p->methods, at * sizeof *list);
    list[at] = *row;
    memcpy(list + at + 1, p->methods + at, (p->n_methods - at) * sizeof *list);
    p->methods = list;
    p->n_methods++;
    return LH_OK;
}

/* Optimises the schedule of the plan's layout with the solver, with work limit
 * `effort`; why[0..room-1] receives the bound's text. */
static lh_status improve_best(lhi_refinement *r, uint64_t effort, char *why,
                              size_t room, lh_error *err)
{
    lh_plan *p = r->plan;
    lh_schedule *schedule = NULL;
    lh_status status = lhi_refinement_improve(r, p->pipeline, effort, &p->best,
                                              &schedule, why, room, err);
    if (!schedule)
        return status;
    lh_schedule_free((lh_schedule *)p->schedule);
    p->schedule = schedule;
    LHI_TRY(status);
    return add_method(r, &p->best, err);
}

/* --- alternatives -------------------------------------------------------- */

/* Runs every schedule method on the plan's pipeline and lists the results
 * in the plan, fastest first. `like`: plan candidate with the pipeline's
 * layout. */
static lh_status list_methods(lhi_refinement *r, const lh_choice *like,
                              lh_error *err)
{
    lh_plan *p = r->plan;
    lh_choice *list = LHI_NEW(r->mem, lh_choice, lh_n_methods());
    if (!list)
        return lhi_fail_nomem(err);
    p->methods = list;
    p->n_methods = 0;
    for (uint32_t m = 0; m < lh_n_methods(); m++) {
        lh_method_options how = {.size = sizeof how,
                                 .sub_blocks = r->options->sub_blocks};
        lh_schedule *schedule = NULL;
        lh_error why = {0};
        lh_choice row = *like;
        row.layout.schedule = lh_method_name(m);
        row.why = "";
        if (lh_method_is_auto(row.layout.schedule))
            continue;
        lh_status status = lh_method_run(row.layout.schedule, p->pipeline, &how,
                                         &schedule, NULL, &why);
        if (status == LH_OK)
            status = lhi_choice_measure(p->pipeline, schedule, &row, &why);
        lh_schedule_free(schedule);
        if (status == LH_ENOMEM)
            return lhi_fail_nomem(err);
        if (status != LH_OK) {
            row.status =
                status == LH_EINFEASIBLE ? LH_CHOICE_MEMORY : LH_CHOICE_FAILED;
            lhi_choice_clear(&row);
            row.why = lhi_arena_strdup(r->mem, why.text);
            if (!row.why)
                return lhi_fail_nomem(err);
        }
        uint32_t at = p->n_methods++;
        for (; at > 0 && (list[at - 1].status > row.status ||
                          (list[at - 1].status == row.status &&
                           list[at - 1].iteration_ns > row.iteration_ns));
             at--)
            list[at] = list[at - 1];
        list[at] = row;
    }
    return LH_OK;
}

/* Formats how much worse a plan candidate is than the plan, in percent; in the
 * arena, NULL without memory. */
static const char *format_percent_behind(lhi_refinement *r, const lh_choice *c)
{
    char text[120];
    snprintf(text, sizeof text, "%+.1f %%%s, with its schedule optimised",
             lhi_compute_percent_gap(r->options, c, &r->plan->best),
             r->options->objective == LH_PLAN_CHEAPEST ? " in cost" : "");
    return lhi_arena_strdup(r->mem, text);
}

/* Moves method `method`'s row to the front of the plan's method list, which is
 * sorted by time. */
static void move_first(const lh_plan *p, const char *method)
{
    lh_choice *list = (lh_choice *)p->methods; /* of list_methods() */
    for (uint32_t i = 0; i < p->n_methods; i++) {
        const lh_choice row = list[i];
        if (strcmp(row.layout.schedule, method) != 0)
            continue;
        memmove(list + 1, list, i * sizeof *list);
        list[0] = row;
        return;
    }
}

lh_status lhi_refinement_replace_best(lhi_refinement *r, const lh_choice *won,
                                      lhi_built_layout *built,
                                      lh_schedule *schedule, lh_error *err)
{
    lh_plan *p = r->plan;
    lh_pipeline_free((lh_pipeline *)p->pipeline);
    lh_schedule_free((lh_schedule *)p->schedule);
    p->pipeline = built->pipeline;
    p->schedule = schedule;
    p->cost_source = lh_cost_source_name(built->source);
    p->best = *won;
    LHI_TRY(list_methods(r, won, err));
    if (lh_scheduler_is_search(won->layout.schedule))
        return add_method(r, won, err);
    move_first(p, won->layout.schedule);
    return LH_OK;
}

/* Makes alternative `i`, which is better, the plan, and the plan an
 * alternative. */
static lh_status swap_with_best(lhi_refinement *r, lh_choice *list, uint32_t i,
                                lhi_built_layout *built, lh_schedule *schedule,
                                lh_error *err)
{
    const lh_choice won = list[i];
    list[i] = r->plan->best;
    return lhi_refinement_replace_best(r, &won, built, schedule, err);
}

/* Optimises alternative `i`'s schedule with the solver, with work limit
 * `effort`. *won: it is better than the plan and became the plan.
 * why[0..room-1] receives the bound's text. */
static lh_status improve_other(lhi_refinement *r, lh_choice *list, uint32_t i,
                               uint64_t effort, bool *won, char *why,
                               size_t room, lh_error *err)
{
    lhi_config config = lhi_config_from_choice(&list[i]);
    lhi_built_layout built;
    lh_schedule *schedule = NULL;
    LHI_TRY(lhi_layout_build(r->job, &config, &built, err));
    char its_why[160] = "";
    lh_status status =
        lhi_refinement_improve(r, built.pipeline, effort, &list[i], &schedule,
                               its_why, sizeof its_why, err);
    *won = status == LH_OK && schedule &&
           lhi_objective_value(r->options, &list[i]) <
               lhi_objective_value(r->options, &r->plan->best);
    if (*won) {
        snprintf(why, room, "%s", its_why);
        status = swap_with_best(r, list, i, &built, schedule, err);
    } else {
        lh_schedule_free(schedule);
        lh_pipeline_free(built.pipeline);
    }
    if (status == LH_OK && (schedule || *won)) {
        list[i].why = format_percent_behind(r, &list[i]);
        status = list[i].why ? LH_OK : lhi_fail_nomem(err);
    }
    return status;
}

/* Returns the best result of the plan's methods with the same chunks in another
 * chunk placement (Wave or Loop); NULL: there is none. */
static const lh_choice *find_other_placement(const lh_plan *p)
{
    const lh_choice *best = &p->best;
    for (uint32_t i = 0; i < p->n_methods; i++) {
        const lh_choice *c = &p->methods[i];
        if (c->status == LH_CHOICE_OK && !is_elastic(c) &&
            c->placement != best->placement &&
            c->layout.chunks_per_device == best->layout.chunks_per_device &&
            c->chunk_layers == best->chunk_layers)
            return c;
    }
    return NULL;
}

/* Optimises the schedule of the plan's layout in the other chunk placement
 * (Wave or Loop), and lists it among the methods. why[0..room-1] receives the
 * bound's text. */
static lh_status improve_placement(lhi_refinement *r, char *why, size_t room,
                                   lh_error *err)
{
    lh_plan *p = r->plan;
    const lh_choice *other = find_other_placement(p);
    if (!other || r->stopped ||
        lhi_objective_value_at(r->options, other, other->lower_bound_ns) >=
            lhi_objective_value(r->options, &p->best))
        return LH_OK;
    lh_choice there = *other, before = p->best;
    bool won;
    before.why = "";
    LHI_TRY(improve_other(r, &there, 0, lhi_refinement_effort(r) / WORK_DIVISOR,
                          &won, why, room, err));
    if (won)
        return add_method(r, &before, err);
    return lh_scheduler_is_search(there.layout.schedule)
               ? add_method(r, &there, err)
               : LH_OK;
}

bool lhi_refinement_was_solved(const lhi_refinement *r, const lh_choice *c,
                               uint64_t effort)
{
    for (uint32_t i = 0; i < r->n_looked; i++)
        if (r->at[i].iteration_ns == c->iteration_ns &&
            r->at[i].lower_bound_ns == c->lower_bound_ns &&
            r->at[i].effort >= effort && !r->at[i].gained)
            return true;
    return false;
}

void lhi_refinement_record_solve(lhi_refinement *r, const lh_choice *before,
                                 const lh_choice *c, uint64_t effort)
{
    const bool gained = c->iteration_ns < before->iteration_ns;
    const lh_choice *both[] = {before, c};
    for (int i = 0; i < 2 && r->n_looked < LHI_MAX_SEARCHED_PIPELINES; i++)
        r->at[r->n_looked++] = (lhi_searched_pipeline){
            both[i]->iteration_ns, both[i]->lower_bound_ns, effort,
            gained && i == 0};
}

/* Optimises alternative `i`'s schedule with the solver, with work limit
 * `effort`, and records that it did. why[0..room-1] receives the bound's text.
 */
static lh_status search_other(lhi_refinement *r, lh_choice *list, uint32_t i,
                              uint64_t effort, char *why, size_t room,
                              lh_error *err)
{
    const lh_choice before = list[i];
    bool won;
    LHI_TRY(improve_other(r, list, i, effort, &won, why, room, err));
    lhi_refinement_record_solve(r, &before, won ? &r->plan->best : &list[i],
                                effort);
    return LH_OK;
}

/* Optimises the schedules of the best alternatives whose bound is below the
 * plan's value; no other can become the plan. why[0..room-1] receives the
 * bound's text. */
static lh_status improve_others(lhi_refinement *r, char *why, size_t room,
                                lh_error *err)
{
    lh_plan *p = r->plan;
    uint32_t tried = 0;
    lh_choice *list = LHI_NEW(r->mem, lh_choice, p->n_alternatives + (size_t)1);
    if (!list)
        return lhi_fail_nomem(err);
    if (p->n_alternatives)
        memcpy(list, p->alternatives, p->n_alternatives * sizeof *list);
    for (uint32_t i = 0; i < p->n_alternatives && tried < MAX_ALTERNATIVES;
         i++) {
        if (list[i].status != LH_CHOICE_OK || is_elastic(&list[i]) ||
            r->stopped ||
            lhi_objective_value_at(r->options, &list[i],
                                   list[i].lower_bound_ns) >=
                lhi_objective_value(r->options, &p->best))
            continue;
        LHI_TRY(search_other(r, list, i,
                             lhi_refinement_effort(r) / WORK_DIVISOR, why, room,
                             err));
        tried++;
    }
    lhi_sort_choices(r->options, list, p->n_alternatives);
    p->alternatives = list;
    return LH_OK;
}

/* Alternatives within 6 %: the gain by the solver varies more between layouts
 * than the methods' times. */
static const double CLOSE_RATIO = 1.06;

/* Checks whether a plan candidate's lower bound allows it to beat the plan. */
static bool may_win(const lhi_refinement *r, const lh_choice *c)
{
    return lhi_objective_value_at(r->options, c, c->lower_bound_ns) <
           lhi_objective_value(r->options, &r->plan->best);
}

/* Optimises alternative `i`'s schedule, with work limit `effort`, unless the
 * solver already ran on it or on an equal pipeline. *done: it ran now;
 * why[0..room-1] receives the bound's text. */
static lh_status search_alternative(lhi_refinement *r, lh_choice *list,
                                    uint32_t i, uint64_t effort, bool *done,
                                    char *why, size_t room, lh_error *err)
{
    const lh_choice *c = &list[i];
    *done = c->status == LH_CHOICE_OK && !is_elastic(c) && !r->stopped &&
            r->n_looked < LHI_MAX_SEARCHED_PIPELINES &&
            !lhi_refinement_was_solved(r, c, effort);
    if (!*done)
        return LH_OK;
    return search_other(r, list, i, effort, why, room, err);
}

/* Optimises the schedules of at most `most` alternatives within CLOSE_RATIO of
 * the plan, each with work limit `effort`. why[0..room-1] receives the bound's
 * text. */
static lh_status search_close_alternatives(lhi_refinement *r, uint32_t most,
                                           uint64_t effort, char *why,
                                           size_t room, lh_error *err)
{
    lh_plan *p = r->plan;
    lh_choice *list = (lh_choice *)p->alternatives; /* in improve_others() */
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_alternatives && n < most; i++) {
        bool done = false;
        if (list[i].status == LH_CHOICE_OK &&
            lhi_compute_relative_gap(r->options, &list[i], &p->best) <=
                CLOSE_RATIO - 1 &&
            may_win(r, &list[i]))
            LHI_TRY(
                search_alternative(r, list, i, effort, &done, why, room, err));
        n += done;
    }
    lhi_sort_choices(r->options, list, p->n_alternatives);
    return LH_OK;
}

/* Returns the sort key of alternative `c` for the solver: the objective value
 * halfway between its bound and its time. INT64_MAX: it has more than
 * SMALL_PASSES passes, or cannot beat the plan. */
static int64_t rank_small_alternative(const lhi_refinement *r,
                                      const lh_choice *c)
{
    const lhi_config config = lhi_config_from_choice(c);
    const uint64_t passes = 3 * (uint64_t)config.layout.pipeline *
                            config.layout.chunks_per_device *
                            config.microbatches;
    if (c->status != LH_CHOICE_OK || is_elastic(c) || passes > SMALL_PASSES ||
        !may_win(r, c))
        return INT64_MAX;
    return lhi_objective_value_at(
        r->options, c,
        c->lower_bound_ns + (c->iteration_ns - c->lower_bound_ns) / 2);
}

/* Optimises the schedules of alternatives with few passes, however far behind
 * the plan: on these pipelines the solver's gain over the methods is largest,
 * and the effort is least. Equal keys are equal pipelines, as a rule; only one
 * of them is solved. why[0..room-1] receives the bound's text. */
static lh_status search_small_alternatives(lhi_refinement *r, uint64_t effort,
                                           char *why, size_t room,
                                           lh_error *err)
{
    lh_plan *p = r->plan;
    lh_choice *list = (lh_choice *)p->alternatives; /* in improve_others() */
    int64_t last = INT64_MIN;
    for (uint32_t n = 0; n < MAX_SMALL; n++) {
        int64_t key = INT64_MAX;
        uint32_t at = 0;
        for (uint32_t i = 0; i < p->n_alternatives; i++) {
            const int64_t its = rank_small_alternative(r, &list[i]);
            if (its > last && its < key) {
                key = its;
                at = i;
            }
        }
        if (key == INT64_MAX)
            break;
        bool done = false;
        LHI_TRY(search_alternative(r, list, at, effort, &done, why, room, err));
        last = key;
    }
    lhi_sort_choices(r->options, list, p->n_alternatives);
    return LH_OK;
}

/* --- best with other values ----------------------------------------------- */

/* Returns the best alternative whose value of dimension `d` differs from the
 * plan's; NULL: none. */
static lh_choice *find_best_other(const lhi_refinement *r, lh_choice *list,
                                  lhi_dimension d)
{
    const lh_plan *p = r->plan;
    lhi_config own = lhi_config_from_choice(&p->best);
    lh_choice *best = NULL;
    for (uint32_t i = 0; i < p->n_alternatives; i++) {
        lhi_config config = lhi_config_from_choice(&list[i]);
        if (list[i].status == LH_CHOICE_OK &&
            lhi_dimension_value(d, &config) != lhi_dimension_value(d, &own) &&
            (!best || lhi_objective_value(r->options, &list[i]) <
                          lhi_objective_value(r->options, best)))
            best = &list[i];
    }
    return best;
}

/* Returns the alternative with the same pipeline as `head`, the best result
 * with one dimension value; NULL: none. */
static lh_choice *find_alternative(const lhi_refinement *r, lh_choice *list,
                                   const lhi_best_with_value *head)
{
    for (uint32_t i = 0; i < r->plan->n_alternatives; i++)
        if (lhi_choices_share_pipeline(&list[i], &head->choice))
            return &list[i];
    return NULL;
}

/* Optimises the best alternative with another value of each dimension, then the
 * best result per dimension value (`heads`) that may beat the plan.
 * why[0..room-1] receives the bound's text. */
static lh_status improve_best_per_value(lhi_refinement *r,
                                        const lhi_best_per_value *heads,
                                        char *why, size_t room, lh_error *err)
{
    lh_plan *p = r->plan;
    lh_choice *list = (lh_choice *)p->alternatives; /* in improve_others() */
    uint64_t each = lhi_refinement_effort(r) / WORK_DIVISOR,
             left = HEADS * lhi_refinement_effort(r);
    for (uint32_t i = 0; i < LHI_N_DIMENSIONS + heads->n && left > each; i++) {
        bool first = i < LHI_N_DIMENSIONS;
        lh_choice *c =
            first
                ? find_best_other(r, list, (lhi_dimension)i)
                : find_alternative(r, list, &heads->all[i - LHI_N_DIMENSIONS]);
        bool done = false;
        if (c && (first || may_win(r, c)))
            LHI_TRY(search_alternative(r, list, (uint32_t)(c - list), each,
                                       &done, why, room, err));
        left -= done ? each : 0;
    }
    lhi_sort_choices(r->options, list, p->n_alternatives);
    return LH_OK;
}

/* Optimises the alternatives close to the plan, then the best ones per
 * dimension value (`heads`), each with a share of the effort. why[0..room-1]
 * receives the bound's text. */
static lh_status improve_with_heads(lhi_refinement *r,
                                    const lhi_best_per_value *heads, char *why,
                                    size_t room, lh_error *err)
{
    uint64_t effort = lhi_refinement_effort(r);
    LHI_TRY(search_close_alternatives(r, MAX_CLOSE, effort / CLOSE_DIVISOR, why,
                                      room, err));
    LHI_TRY(search_close_alternatives(r, MAX_CLOSEST, effort / WORK_DIVISOR,
                                      why, room, err));
    LHI_TRY(
        search_small_alternatives(r, effort / CLOSE_DIVISOR, why, room, err));
    return improve_best_per_value(r, heads, why, room, err);
}

lh_status lhi_plan_refine_alternative(const lh_plan_options *options,
                                      const lh_pipeline *pipeline,
                                      lh_schedule **out, lh_error *err)
{
    lh_plan_options alone = *options;
    alone.progress = NULL;
    lhi_refinement r = {.options = &alone};
    lh_solution s = {0};
    LHI_TRY(run_solver(&r, pipeline, lhi_refinement_effort(&r) / WORK_DIVISOR,
                       &s, err));
    *out = s.schedule;
    s.schedule = NULL;
    lh_solution_fini(&s);
    return LH_OK;
}

/* --- plan ---------------------------------------------------------------- */

/* Sets the plan's text on its optimality: how good it is among all layouts,
 * then how far its schedule is from the lower bound. `limit`: text on that
 * bound. */
static lh_status format_gap_text(lhi_refinement *r, const char *limit,
                                 lh_error *err)
{
    lh_plan *p = r->plan;
    char standing[LHI_OPTIMALITY_TEXT], text[3 * LHI_OPTIMALITY_TEXT];
    char schedule[LHI_SCHEDULE_TEXT];
    double gap =
        (double)p->best.iteration_ns / (double)p->best.lower_bound_ns - 1;
    lhi_format_plan_optimality(p, r->options, standing, sizeof standing);
    lhi_format_schedule_optimality(gap, schedule, sizeof schedule);
    snprintf(text, sizeof text, "%s; %s (%s)", standing, schedule, limit);
    p->best.why = lhi_arena_strdup(r->mem, text);
    return p->best.why ? LH_OK : lhi_fail_nomem(err);
}

/* Updates the text of each alternative that says how much worse it is than the
 * plan, because the plan may have improved. */
static lh_status compare_again(lhi_refinement *r, lh_error *err)
{
    lh_plan *p = r->plan;
    for (uint32_t i = 0; i < p->n_alternatives; i++) {
        lh_choice *c = (lh_choice *)&p->alternatives[i];
        if (c->status != LH_CHOICE_OK || is_elastic(c))
            continue;
        c->why = lh_scheduler_is_search(c->layout.schedule)
                     ? format_percent_behind(r, c)
                     : lhi_format_gap(r->options, c, &p->best, r->mem);
        if (!c->why)
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

lh_status lhi_refinement_improve_known(lhi_refinement *r,
                                       const lhi_best_per_value *heads,
                                       char *why, size_t room, lh_error *err)
{
    lh_plan *plan = r->plan;
    const uint64_t effort = lhi_refinement_effort(r);
    if (!is_elastic(&plan->best))
        LHI_TRY(
            improve_best(r, effort - MAX_ALTERNATIVES * (effort / WORK_DIVISOR),
                         why, room, err));
    if (!is_elastic(&plan->best))
        LHI_TRY(improve_placement(r, why, room, err));
    LHI_TRY(improve_others(r, why, room, err));
    return heads && heads->n ? improve_with_heads(r, heads, why, room, err)
                             : LH_OK;
}

lh_status lhi_refinement_finish(lhi_refinement *r, const char *why,
                                lh_error *err)
{
    lh_bound bound;
    LHI_TRY(compare_again(r, err));
    if (!r->changed || is_elastic(&r->plan->best))
        return LH_OK;
    LHI_TRY(lhi_pricing_set_choice(r->job, r->mem, &r->plan->best, err));
    LHI_TRY(lhi_compute_closed_form_bound(r->plan->pipeline, &bound, err));
    return format_gap_text(r, why[0] ? why : bound.text, err);
}
