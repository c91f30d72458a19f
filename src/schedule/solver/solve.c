/* SPDX-License-Identifier: Apache-2.0 */
/* Runs lh_solve(): the best generated schedule, bounds, dispatching, and the
 * portfolio loop. */
#include "base/fail.h"
#include "base/options.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/solver/bound/closed_forms.h"
#include "schedule/solver/improve/dispatch.h"
#include "schedule/solver/improve/justification.h"
#include "schedule/solver/improve/multilevel.h"
#include "schedule/solver/improve/parallel_beams.h"
#include "schedule/solver/improve/parallel_insertion.h"
#include "schedule/solver/improve/reduction.h"
#include "schedule/solver/improve/rule_tuning.h"
#include "schedule/solver/portfolio.h"
#include "schedule/solver/relaxation.h"

#include <inttypes.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/schedule.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- constructive heuristics ---------------------------------------------- */

/* Improves r->found, which is feasible, by justification (list scheduling
 * backward and forward in time); offers the result to the solver. `by`: the
 * engine that found r->found. */
static lh_status justify(lhi_solver *r, lhi_engine by, lh_error *err)
{
    int64_t time = lhi_machine_orders_evaluate(r->found), before = time;
    if (time < 0)
        return LH_OK;
    LHI_TRY(lhi_justifier_run_unperturbed(
        r->justifier, r->found, &time, r->o.seed,
        lhi_shop_get_deadline(r->shop, r->low_units), &r->budget, err));
    return lhi_solver_offer_orders(
        r, r->found, time < before ? LHI_ENGINE_JUSTIFICATION : by, err);
}

/* Improves the methods' best schedule, or the caller's initial one, by
 * justification (list scheduling backward and forward in time) for a short
 * time. */
static lh_status justify_best(lhi_solver *r, lh_error *err)
{
    if (!r->has_orders || !r->justifier || lhi_solver_is_done(r))
        return LH_OK;
    lhi_machine_orders_copy(r->found, r->best);
    int64_t time = lhi_machine_orders_evaluate(r->found), before = time;
    lhi_justification_options how = {
        .seed = r->o.seed,
        .ticks = 20 * (uint64_t)(r->shop->n_ops / 4 + 1),
        .target = lhi_shop_get_deadline(r->shop, r->low_units)};
    if (time < 0)
        return LH_OK;
    LHI_TRY(lhi_justifier_run(r->justifier, r->found, &time, &how, &r->budget,
                              err));
    return time < before ? lhi_solver_offer_orders(
                               r, r->found, LHI_ENGINE_JUSTIFICATION, err)
                         : LH_OK;
}

/* Checks whether lower bounds should be computed before schedules are improved.
 * Lattices for one chunk per device and few passes take no longer than
 * improving a schedule, and often prove that nothing can be improved. */
static bool should_bound_first(const lhi_solver *r)
{
    return !r->is_reduced && r->shop->n_ops <= LHI_SOLVER_LARGE_OPERATIONS &&
           lhi_shop_has_single_chunks(r->shop);
}

/* Builds schedules by dispatching in due-date order, and offers them to the
 * solver. The due dates are the latest ends for several deadlines from the
 * lower bound up. */
static lh_status run_dispatch(lhi_solver *r, lh_error *err)
{
    if (!lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_DISPATCHING))
        return LH_OK;
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_DISPATCHING);
    lhi_solver_report(r, "dispatching");
    for (int64_t slack = 0; slack <= 16 && !lhi_solver_is_done(r);
         slack = slack ? 2 * slack : 1) {
        int64_t units = r->low_units + r->low_units * slack / 256;
        bool ok = false;
        if (r->best_ns >= 0 &&
            units >= lhi_solver_convert_to_units(r, r->best_ns))
            break;
        bool open = lhi_windows_set(
            r->windows, lhi_shop_get_deadline(r->shop, units), &r->budget);
        if (!open && units >= r->low_units)
            lhi_solver_raise_bound(r, units + 1,
                                   lhi_windows_get_engine_name(r));
        if (!open)
            continue;
        LHI_TRY(lhi_dispatch_by_due_date(r->found, r->windows->e, &ok, r->mem,
                                         err));
        lhi_budget_spend(&r->budget, r->shop->n_ops / 4 + 1);
        if (ok)
            LHI_TRY(justify(r, LHI_ENGINE_DISPATCHING, err));
    }
    lhi_budget_restore_engine(&r->budget, before);
    return LH_OK;
}

/* Tunes a dispatching rule's parameters for `ticks` of work, and offers the
 * best schedule to the solver. */
static lh_status run_tuning(lhi_solver *r, uint64_t ticks, lh_error *err)
{
    lhi_tuning_options how = {.seed = r->o.seed,
                              .ticks = ticks,
                              .target =
                                  lhi_shop_get_deadline(r->shop, r->low_units)};
    int64_t time = -1;
    if (!lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_TUNING))
        return LH_OK;
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_TUNING);
    lhi_solver_report(r, "tuning");
    LHI_TRY(
        lhi_rule_tuning_run(r->found, &time, &how, &r->budget, r->mem, err));
    lhi_budget_restore_engine(&r->budget, before);
    return time >= 0 ? justify(r, LHI_ENGINE_TUNING, err) : LH_OK;
}

/* Returns the work for multilevel tuning: a few schedules of the whole pipeline
 * at least, and thousands of the coarsest one. */
static uint64_t get_multilevel_ticks(const lhi_solver *r)
{
    const uint64_t most = 400 * (uint64_t)r->shop->n_ops + 4000000;
    const uint64_t share = lhi_budget_get_remaining(&r->budget, UINT64_MAX) / 4;
    return most < share ? most : share;
}

/* Searches for any schedule, or a proof that there is none, if no method found
 * one. */
static lh_status find_any_schedule(lhi_solver *r, lh_error *err)
{
    int64_t units = r->shop->horizon / r->shop->scale + 1;
    lhi_search *search;
    lhi_answer answer;
    uint32_t n;
    lhi_solver_report(r, "searching for any schedule");
    LHI_TRY(lhi_portfolio_count_searches(r, 1, &n, err));
    if (r->budget.stop || n == 0 ||
        !lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_SEARCH))
        return LH_OK;
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_SEARCH);
    LHI_TRY(lhi_portfolio_start_search(r, units, &search, &answer, err));
    lh_status status = LH_OK;
    if (search)
        status = lhi_search_run(search, UINT64_MAX / 2, r->o.memory / 2,
                                &r->budget, r->found, &answer, err);
    lhi_budget_restore_engine(&r->budget, before);
    lhi_search_free(search);
    if (status != LH_OK)
        return status;
    if (answer == LHI_FOUND)
        return lhi_solver_offer_orders(r, r->found, LHI_ENGINE_SEARCH, err);
    if (answer == LHI_REFUTED && !r->shop->restricted) {
        r->infeasible = true;
        snprintf(r->why, sizeof r->why,
                 "every set of orders within the memory limits "
                 "deadlocks");
    }
    return LH_OK;
}

/* --- driver --------------------------------------------------------------- */

/* Builds the job shop, the machine orders and the solver's improvement engines;
 * r->shop stays NULL if the pipeline is unsupported. */
static lh_status make_shop(lhi_solver *r, lh_error *err)
{
    lh_error why = {0};
    lhi_shop *shop = NULL;
    lh_status status = lhi_shop_make(r->p, r->o.sub_blocks, r->o.fifo,
                                     r->o.objective, r->mem, &shop, &why);
    if (status == LH_EUNSUPPORTED)
        return LH_OK; /* generators and closed forms remain */
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    if (r->o.host_copy_ns > 0 && lh_pipeline_has_host(r->p))
        lhi_shop_add_host_copies(shop, r->o.host_copy_ns);
    LHI_TRY(lhi_machine_orders_make(shop, r->mem, &r->best, err));
    LHI_TRY(lhi_machine_orders_make(shop, r->mem, &r->scratch, err));
    LHI_TRY(lhi_machine_orders_make(shop, r->mem, &r->found, err));
    LHI_TRY(lhi_justifier_make(shop, r->mem, &r->justifier, err));
    r->shop = shop;
    if (r->is_reduced)
        lhi_reduction_raise_tails(r);
    return LH_OK;
}

/* Checks that the static memory fits on every device; otherwise marks the
 * problem infeasible and records the reason. */
static bool does_static_memory_fit(lhi_solver *r)
{
    for (uint32_t d = 0; d < r->p->n_devices; d++) {
        int64_t held = 0;
        for (uint32_t c = 0; c < r->p->n_chunks; c++)
            if (r->p->chunks[c].device == d)
                held += r->p->chunks[c].mem_static;
        if (held <= r->p->memory_limits[d])
            continue;
        r->infeasible = true;
        snprintf(r->why, sizeof r->why,
                 "device %" PRIu32 " holds more than its memory limit before "
                 "any pass",
                 d);
        return false;
    }
    return true;
}

/* Runs all engines of the solver on the job shop, in order: bounds,
 * improvements, portfolio. */
static lh_status solve_job_shop(lhi_solver *r, lh_error *err)
{
    uint32_t impossible;
    lhi_solver_report(r, "bounds");
    if (r->shop->restricted)
        LHI_TRY(lhi_relaxation_raise_bound(r, err));
    if (lhi_solver_is_done(r) && r->best_ns >= 0)
        return LH_OK;
    LHI_TRY(lhi_windows_make(r->shop, r->o.memory / 2, &r->budget, r->mem,
                             &r->windows, &impossible, err));
    if (impossible != NONE) {
        r->infeasible = true;
        snprintf(r->why, sizeof r->why,
                 "no order of the passes of device %" PRIu32
                 " satisfies its memory limit",
                 impossible);
        return LH_OK;
    }
    if (r->best_ns < 0)
        LHI_TRY(find_any_schedule(r, err));
    if (r->best_ns < 0 || lhi_solver_is_done(r))
        return LH_OK;
    const bool tunes = !r->windows->complete && r->n_workers == 0;
    const bool multilevel = tunes && lhi_multilevel_is_applicable(r);
    if (tunes && !(multilevel && r->shop->n_ops > LHI_SOLVER_LARGE_OPERATIONS))
        LHI_TRY(run_tuning(r, 200 * (uint64_t)r->shop->n_ops, err));
    LHI_TRY(lhi_solver_bound_by_windows(r, err));
    if (multilevel && !lhi_solver_is_done(r))
        LHI_TRY(lhi_multilevel_run(r, get_multilevel_ticks(r), err));
    if (should_bound_first(r))
        LHI_TRY(justify_best(r, err));
    /* Dispatching is cheaper than shaving and often meets the bound. */
    LHI_TRY(run_dispatch(r, err));
    const int64_t low = r->low_units;
    LHI_TRY(lhi_solver_bound_by_shaving(r, err));
    if (r->is_reduced && !lhi_solver_is_done(r))
        LHI_TRY(
            lhi_reduction_extend_schedules(r, r->budget.limits.ticks / 3, err));
    if (r->low_units > low)
        LHI_TRY(run_dispatch(r, err));
    /* Reduced problems are solved for their bounds and patterns. */
    LHI_TRY(lhi_parallel_insertion_run(
        r, (r->is_reduced ? 80 : 120) * (uint64_t)r->shop->n_ops, err));
    /* Long enough for a good start with many passes, and short compared with a
     * search for few. */
    uint64_t begin = r->budget.used, n = r->shop->n_ops, most = n * n / 4;
    for (uint32_t w = 16; w <= 128 && r->budget.used - begin < most; w *= 2)
        if (!r->is_reduced ||
            w * n * r->shop->n_machines < r->budget.limits.ticks)
            LHI_TRY(lhi_parallel_beams_run(r, w, err));
    return lhi_portfolio_run(r, err);
}

/* Solves the pipeline r->p with the solver's options, budget and arena, by all
 * engines; the result is in *r. */
static lh_status run_solver(lhi_solver *r, lh_error *err)
{
    lh_bound bound = {0};
    r->best_ns = -1;
    if (!does_static_memory_fit(r))
        return LH_OK;
    LHI_TRY(lhi_compute_closed_form_bound(r->p, &bound, err));
    if (r->o.objective == LH_SOLVE_OBJECTIVE_MAKESPAN) {
        r->bound_ns = bound.ns;
        r->proven_by = "closed form";
        memcpy(r->why, bound.text, sizeof bound.text);
    }
    LHI_TRY(make_shop(r, err));
    if (r->o.initial_schedule)
        LHI_TRY(lhi_solver_copy_start(r, err));
    /* With many passes, insertion runs first, since all generators take longer;
     * with few passes the generators often suffice. */
    if (r->shop && r->shop->n_ops > LHI_SOLVER_LARGE_OPERATIONS)
        LHI_TRY(
            lhi_parallel_insertion_run(r, 4 * (uint64_t)r->shop->n_ops, err));
    LHI_TRY(lhi_solver_run_methods(r, err));
    if (lhi_solver_is_done(r) || !r->shop)
        return LH_OK;
    if (r->o.objective == LH_SOLVE_OBJECTIVE_MAKESPAN)
        r->low_units = (r->bound_ns + r->shop->unit_ns - 1) / r->shop->unit_ns;
    if (!should_bound_first(r))
        LHI_TRY(justify_best(r, err));
    return lhi_solver_is_done(r) ? LH_OK : solve_job_shop(r, err);
}

/* Copies and checks the caller's options and fills in defaults. */
static lh_status complete_options(const lh_solve_options *given,
                                  lh_solve_options *out, lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_solve_options, out, given, err));
    if (!(out->time_limit_s >= 0) || !(out->gap >= 0))
        return lhi_fail(err, LH_EINVAL,
                        "the time limit and the gap must not be negative");
    if (out->host_copy_ns < 0)
        return lhi_fail(err, LH_EINVAL, "host_copy_ns must not be negative");
    if (out->sub_blocks > LH_MAX_PARTS)
        return lhi_fail(err, LH_EINVAL,
                        "a W can be split into at most %u parts", LH_MAX_PARTS);
    if (out->sub_blocks == 0)
        out->sub_blocks = 1;
    if (out->threads == 0)
        out->threads = 1;
    if (out->memory == 0)
        out->memory = (size_t)1 << 30;
    return LH_OK;
}

/* Copies the statistics of each search engine (calls, effort, improvements)
 * into the solution. */
static void write_engines(const lhi_solver *r, lh_solution *out)
{
    out->n_engines = lh_n_solve_engines();
    for (uint32_t i = 0; i < out->n_engines; i++) {
        const lhi_engine engine = (lhi_engine)(i + 1);
        const lhi_engine_statistics *use = &r->budget.use[engine];
        out->engines[i] = (lh_solve_engine){
            .name = lh_solve_engine_name(i),
            .on = lhi_budget_is_engine_enabled(&r->budget, engine),
            .effort = use->effort,
            .calls = use->calls,
            .improved = use->improved,
            .gained_ns = use->gained_ns};
    }
}

/* Fills in the solution from the solver's state: schedule, lower bound, status
 * and statistics. */
static void write_solution(lhi_solver *r, lh_solution *out)
{
    *out = (lh_solution){.schedule = r->schedule,
                         .makespan_ns = r->best_ns,
                         .bound_ns = r->bound_ns,
                         .effort = r->budget.used,
                         .seconds = lhi_seconds() - r->budget.begin_s,
                         .found_by = r->found_by ? r->found_by : "",
                         .proven_by = r->proven_by ? r->proven_by : ""};
    write_engines(r, out);
    if (r->infeasible)
        out->status = LH_SOLVE_INFEASIBLE;
    else if (r->best_ns < 0)
        out->status = LH_SOLVE_UNKNOWN;
    else
        out->status =
            r->best_ns <= r->bound_ns ? LH_SOLVE_OPTIMAL : LH_SOLVE_FEASIBLE;
    if (strcmp(out->proven_by, "closed form") == 0 || r->infeasible)
        memcpy(out->why, r->why, sizeof out->why);
    else if (strcmp(out->proven_by, "search") == 0 ||
             strcmp(out->proven_by, "shaving") == 0)
        snprintf(out->why, sizeof out->why,
                 "every shorter schedule was refuted by %s", out->proven_by);
    else
        snprintf(
            out->why, sizeof out->why,
            "every shorter schedule leaves some pass an empty time window");
}

/* Engines that insert whole microbatches on one path through all chunks, or
 * extend schedules of fewer ones; they do not support two directions. */
static const uint64_t engines_of_one_path =
    UINT64_C(1) << LHI_ENGINE_INSERTION | UINT64_C(1) << LHI_ENGINE_MIRROR |
    UINT64_C(1) << LHI_ENGINE_DESTROY_REPAIR |
    UINT64_C(1) << LHI_ENGINE_REDUCTION | UINT64_C(1) << LHI_ENGINE_STRETCHING;

/* Solves a pipeline as if receives were posted early; LH_EUNSUPPORTED: it has
 * features that the solver does not model. */
static lh_status solve_early(const lh_pipeline *pipeline,
                             const lh_solve_options *options, lh_solution *out,
                             lh_error *err)
{
    lhi_solver r = {.p = pipeline, .solve = run_solver};
    LHI_TRY(lhi_pipeline_require_plain_passes(pipeline, "the search", err));
    if (pipeline->bidirectional && pipeline->has_collectives)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the search supports two directions (placement bd) "
                        "only without data-parallel communication; use "
                        "another method, or remove data_parallel");
    if (lhi_pipeline_n_dp_ops(pipeline) > 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the search does not support data-parallel operations "
                        "that passes launch; use another method, or give "
                        "data_parallel as a list of chunks");
    if (pipeline->has_deferred_gathers)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the search supports only all-gathers launched at the "
                        "start; use another method, or give data_parallel "
                        "without prefetch, or a larger one");
    LHI_TRY(complete_options(options, &r.o, err));
    r.n_parallel = r.o.effort > 0 ? LHI_SOLVER_MIN_TASKS : r.o.threads;
    if (r.n_parallel > LHI_SOLVER_MAX_TASKS)
        r.n_parallel = LHI_SOLVER_MAX_TASKS;
    lhi_budget_begin(&r.budget, &r.o);
    LHI_TRY(lhi_engine_parse_disabled(r.o.disabled_engines,
                                      &r.budget.disabled_engines, err));
    if (pipeline->bidirectional)
        r.budget.disabled_engines |= engines_of_one_path;
    r.mem = lhi_arena_make(0);
    if (!r.mem)
        return lhi_fail_nomem(err);
    lh_status status = run_solver(&r, err);
    lhi_parallel_insertion_free_workers(&r);
    lhi_windows_free(r.windows);
    lhi_reduction_free(r.reduction);
    lhi_arena_free(r.mem);
    if (status != LH_OK) {
        lh_schedule_free(r.schedule);
        return status;
    }
    write_solution(&r, out);
    return LH_OK;
}

/* Replaces the solution's bound, which holds for schedules without overlapped
 * pairs, by the closed-form bound of all schedules. */
static lh_status allow_pairs(const lh_pipeline *pipeline, lh_solution *s,
                             lh_error *err)
{
    lh_bound bound = {0};
    LHI_TRY(lhi_compute_closed_form_bound(pipeline, &bound, err));
    if (s->status == LH_SOLVE_INFEASIBLE)
        return LH_OK; /* pairs need as much memory */
    s->bound_ns = bound.ns;
    s->proven_by = "closed form";
    memcpy(s->why, bound.text, sizeof bound.text);
    if (s->status == LH_SOLVE_OPTIMAL && s->makespan_ns > bound.ns)
        s->status = LH_SOLVE_FEASIBLE;
    return LH_OK;
}

/* Builds the pipeline without host memory: with the devices' own limits. */
static lh_status build_without_host(const lh_pipeline *p, lh_pipeline **out,
                                    lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(p, &desc, err));
    int64_t *limits = calloc(p->n_devices, sizeof *limits);
    if (!limits)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < p->n_devices; d++)
        limits[d] = lh_pipeline_device_limit(p, d);
    desc.memory_limits = limits;
    lh_status status = lh_pipeline_make(&desc, out, err);
    free(limits);
    return status;
}

/* Reports the progress of the search without copies, whose bound does not hold
 * for schedules with copies. `context`: the caller's options. */
static bool report_without_bound(void *context, const lh_solve_progress *now)
{
    const lh_solve_options *all = context;
    lh_solve_progress valid = *now;
    valid.bound_ns = 0;
    return all->progress(all->context, &valid);
}

/* Adds the time and effort of an earlier search to a solution's statistics. */
static void add_effort(lh_solution *out, const lh_solution *earlier)
{
    out->seconds += earlier->seconds;
    out->effort += earlier->effort;
    for (uint32_t i = 0; i < out->n_engines; i++) {
        out->engines[i].effort += earlier->engines[i].effort;
        out->engines[i].calls += earlier->engines[i].calls;
    }
}

/* Solves a pipeline with host memory, copies to which take time, without an
 * initial schedule. A quarter of the time or effort is for schedules without
 * copies, the best of which is the initial schedule of the search with
 * copies. */
static lh_status solve_with_copies(const lh_pipeline *pipeline,
                                   const lh_solve_options *all,
                                   lh_solution *out, lh_error *err)
{
    lh_solve_options o = *all, given = *all;
    lh_pipeline *own = NULL;
    lh_solution first = {0};
    LHI_TRY(build_without_host(pipeline, &own, err));
    o.time_limit_s /= 4;
    o.effort = (o.effort + 3) / 4;
    if (all->progress) {
        o.progress = report_without_bound;
        o.context = &given;
    }
    lh_status status = solve_early(own, &o, &first, err);
    lh_pipeline_free(own);
    if (status != LH_OK)
        return status;
    o = *all;
    o.time_limit_s *= 0.75;
    o.effort = (3 * o.effort + 3) / 4;
    o.initial_schedule = first.schedule;
    status = solve_early(pipeline, &o, out, err);
    if (status == LH_OK)
        add_effort(out, &first);
    lh_solution_fini(&first);
    return status;
}

/* Solves a pipeline as solve_early() does, also with copies to host memory. The
 * caller's initial schedule replaces the best schedule without copies. */
static lh_status solve_plain(const lh_pipeline *pipeline,
                             const lh_solve_options *options, lh_solution *out,
                             lh_error *err)
{
    return options->host_copy_ns > 0 && lh_pipeline_has_host(pipeline) &&
                   !options->initial_schedule
               ? solve_with_copies(pipeline, options, out, err)
               : solve_early(pipeline, options, out, err);
}

lh_status lh_solve(const lh_pipeline *pipeline, const lh_solve_options *options,
                   lh_solution *out, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_solve_options o;
    lh_pipeline *early = NULL;
    LHI_TRY(LHI_OPTIONS_COPY(lh_solve_options, &o, options, err));
    if (lh_pipeline_receives(pipeline) == LH_RECEIVES_EARLY &&
        pipeline->overlap_f_b == 0)
        return solve_plain(pipeline, &o, out, err);
    LHI_TRY(lh_pipeline_describe(pipeline, &desc, err));
    desc.receives = LH_RECEIVES_EARLY;
    desc.overlap_f_b = 0;
    LHI_TRY(lhi_pipeline_rebuild(pipeline, &desc, &early, err));
    lh_status status = solve_plain(early, &o, out, err);
    lh_pipeline_free(early);
    if (status == LH_OK && pipeline->overlap_f_b > 0) {
        status = allow_pairs(pipeline, out, err);
        if (status != LH_OK)
            lh_solution_fini(out);
    }
    return status;
}

void lh_solution_fini(lh_solution *solution)
{
    if (!solution)
        return;
    lh_schedule_free(solution->schedule);
    solution->schedule = NULL;
}

const char *lh_solve_status_name(lh_solve_status status)
{
    static const char *const texts[] = {"optimal", "feasible", "infeasible",
                                        "unknown"};
    return texts[status];
}
