/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"
#include "planner/explain/break_even.h"
#include "planner/explain/breakdown.h"
#include "planner/explain/curves.h"
#include "planner/explain/flag_advice.h"
#include "planner/explain/link_advice.h"
#include "planner/explain/rank_memory.h"
#include "planner/explain/unmeasured.h"
#include "planner/explain/whatif.h"
#include "planner/idle.h"
#include "planner/layout/choice.h"
#include "planner/layout/layer_partition.h"
#include "planner/layout/outside_space.h"
#include "planner/layout/target.h"
#include "planner/margin.h"
#include "planner/plan_internal.h"
#include "planner/search/cost.h"
#include "planner/search/pareto_front.h"
#include "planner/search/plan_search.h"
#include "planner/search/refine.h"
#include "planner/search/robust.h"
#include "planner/search/search_budget.h"
#include "planner/search/two_directions.h"
#include "planner/search/unequal_bound.h"
#include "planner/site_tensors.h"
#include "planner/ties.h"
#include "planner/unequal.h"
#include "planner/validated_runs.h"

#include "base/fail.h"
#include "format/job/job_values.h"
#include "format/job/parse.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const lhi_choice_status_names[] = {"ok", "bounded", "memory",
                                               "failed", NULL};

const char *lh_choice_status_name(lh_choice_status status)
{
    return (unsigned)status < 4 ? lhi_choice_status_names[status] : "unknown";
}

const char *const lhi_plan_by_names[] = {"mean", "p95", NULL};

const char *lh_plan_statistic_name(lh_plan_statistic by)
{
    return (unsigned)by < 2 ? lhi_plan_by_names[by] : "unknown";
}

double lhi_choice_gap(const lh_choice *choice)
{
    int64_t bound =
        choice->lower_bound_ns - choice->optimizer_ns - choice->overhead_ns;
    if (bound <= 0 || choice->makespan_ns <= bound)
        return 0;
    return (double)(choice->makespan_ns - bound) / (double)bound;
}

void lhi_plan_hash(const char *text, size_t len, char out[LHI_HASH_TEXT])
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
    snprintf(out, LHI_HASH_TEXT, "fnv1a64:%016" PRIx64, hash);
}

/* Copies the job's cost-model constants, if it has its own, to the plan's job,
 * which is parsed from text without them. */
static lh_status keep_constants(const lh_job *job, lhi_plan *plan,
                                lh_error *err)
{
    if (!job->constants)
        return LH_OK;
    lh_cost_constants *own = LHI_NEW(plan->mem, lh_cost_constants, 1);
    if (!own)
        return lhi_fail_nomem(err);
    *own = *job->constants;
    plan->job->constants = own;
    return LH_OK;
}

/* Copies the job into the plan by writing and parsing its canonical text; the
 * text's hash identifies the input. */
static lh_status copy_job(const lh_job *job, const lh_plan_options *options,
                          lhi_plan *plan, lh_error *err)
{
    char *text, hash[LHI_HASH_TEXT];
    size_t len;
    lh_job *priced = LHI_NEW(plan->mem, lh_job, 1);
    if (!priced)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_pricing_override_job(job, options, plan->mem, priced, err));
    if (options->target != LH_TARGET_ANY)
        priced->target = options->target;
    lhi_framework_apply_target(priced);
    LHI_TRY(lh_job_format(priced, &text, &len, err));
    lh_status status =
        lh_job_parse(text, len, job->name, NULL, &plan->job, err);
    lh_text_free(text);
    LHI_TRY(status);
    LHI_TRY(lh_job_format(plan->job, &text, &len, err)); /* text as written */
    lhi_plan_hash(text, len, hash);
    lh_text_free(text);
    LHI_TRY(keep_constants(job, plan, err));
    plan->plan.job = plan->job;
    plan->plan.name = lhi_arena_strdup(plan->mem, job->name);
    plan->plan.version = lhi_arena_strdup(plan->mem, lh_version());
    plan->plan.input_hash = lhi_arena_strdup(plan->mem, hash);
    if (!plan->plan.name || !plan->plan.version || !plan->plan.input_hash)
        return lhi_fail_nomem(err);
    return LH_OK;
}

/* Replaces the plan by the one that is best under jitter (random delays and
 * speeds), within the search's time limit. */
static lh_status choose_robust(const lh_plan_options *options, lhi_plan *plan,
                               lh_error *err)
{
    lhi_deadline end;
    const lh_plan_options in_time = lhi_options_with_deadline(
        options,
        lhi_compute_search_deadline(options, lhi_read_processor_seconds(), 1),
        &end);
    return lhi_plan_choose_robust(plan->job, &in_time, plan->mem, &plan->plan,
                                  err);
}

/* Lists in the plan the values that the job fixes outside the search space:
 * values that the search would not try itself. */
static lh_status find_outside_values(lhi_plan *plan, lh_error *err)
{
    lhi_space space;
    lh_status status = lhi_space_init(plan->job, plan->mem, &space, err);
    if (status == LH_OK)
        status = lhi_space_list_outside_values(
            &space, plan->mem, &plan->plan.outside_search_space, err);
    lhi_space_fini(&space);
    return status;
}

/* Runs all searches for the plan: layouts, unequal microbatches, jitter, memory
 * margin and idle GPUs. Then fills its time breakdown, memory, values outside
 * the search space, and alternatives. */
static lh_status find_plan(const lh_plan_options *options,
                           lhi_evaluation_cache *tried, lhi_plan *plan,
                           lh_error *err)
{
    lhi_unexplored unexplored = {.job = plan->job};
    lh_plan_options all = *options;
    uint32_t top = options->top ? options->top : 10;
    all.top = UINT32_MAX; /* alternatives may be beyond the printed ones */
    lh_status status = lhi_plan_search_within_limits(
        plan->job, &all, plan->mem, &unexplored, tried, &plan->plan, err);
    if (status == LH_OK)
        status = lhi_plan_search_unequal(options, plan->mem, &plan->plan, err);
    if (status == LH_OK)
        status =
            lhi_plan_search_site_tensors(options, plan->mem, &plan->plan, err);
    if (status == LH_OK && options->jitter)
        status = choose_robust(options, plan, err);
    if (status == LH_OK)
        status =
            lhi_plan_search_with_margin(options, plan->mem, &plan->plan, err);
    if (status == LH_OK)
        status = lhi_plan_explain_idle(options, plan->mem, &plan->plan, err);
    if (status == LH_OK)
        status = lhi_plan_explain_time(plan->job, options, plan->mem,
                                       &plan->plan, err);
    if (status == LH_OK)
        status =
            lhi_plan_explain_memory(plan->job, plan->mem, &plan->plan, err);
    if (status == LH_OK)
        status = find_outside_values(plan, err);
    if (status == LH_OK)
        status = lhi_plan_find_alternatives(plan->job, options, plan->mem,
                                            &unexplored, &plan->plan, err);
    lhi_unexplored_fini(&unexplored);
    if (status == LH_OK)
        status =
            lhi_find_accuracy(plan->mem, plan->job, lh_plan_gpus(&plan->plan),
                              &plan->plan.accuracy, err);
    if (status == LH_OK)
        status = lhi_plan_find_ties(plan->mem, &plan->plan, err);
    if (plan->plan.n_alternatives > top)
        plan->plan.n_alternatives = top;
    return status;
}

/* Checks that the target framework supports the job. `implied`:
 * framework.preset chose the target; the error then names that key. */
static lh_status check_target(const lh_job *job, bool implied, lh_error *err)
{
    lh_error cause = {0};
    lh_status status = lhi_target_check_job(job->target, job, &cause);
    if (status == LH_OK)
        return LH_OK;
    if (implied)
        return lhi_fail(err, status,
                        "%s: framework.preset: %s; or set layout.framework: "
                        "any to plan with these settings for no program",
                        job->name, cause.text);
    return lhi_fail(err, status, "%s: layout.framework: %s", job->name,
                    cause.text);
}

/* Checks that the search tries two directions if the job's schedule requires
 * them. */
static lh_status check_directions(const lh_job *job,
                                  const lh_plan_options *options, lh_error *err)
{
    if (!lhi_schedule_requires_two_directions(job) ||
        lhi_two_directions_are_searched(job, options))
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "%s: layout.schedule: '%s' requires two directions "
                    "(placement bd), which plans support only with "
                    "layout.framework: any and for the fastest iteration, "
                    "without jitter, a Pareto front, --elastic published and "
                    "--search monte-carlo; use dualpipev",
                    job->name, job->layout.schedule);
}

/* Answers the --what-if questions about other links and, if requested, finds
 * the break-even values of links. */
static lh_status evaluate_links(const lh_plan_options *options,
                                lhi_evaluation_cache *tried, lhi_plan *plan,
                                lh_error *err)
{
    lhi_found_plans known = {.evaluations = tried};
    const lh_plan_options shared = lhi_options_for_questions(options);
    lh_status status =
        lhi_plan_answer_whatif(&shared, plan->mem, &known, &plan->plan, err);
    if (status == LH_OK && options->sensitivity)
        status = lhi_plan_find_break_even(&shared, plan->mem, &known,
                                          &plan->plan, err);
    lhi_found_plans_fini(&known);
    return status;
}

/* Checks the job, searches for the plan, and adds link advice, curves,
 * comparisons, memory margin and prices, as the options request. */
static lh_status fill_plan(const lh_job *job, const lh_plan_options *options,
                           lhi_plan *plan, lh_error *err)
{
    LHI_TRY(lhi_schedule_check(job, err)); /* the copy has other line numbers */
    LHI_TRY(lhi_sharding_check(job, err));
    LHI_TRY(copy_job(job, options, plan, err));
    LHI_TRY(check_target(
        plan->job, job->target_implied && options->target == LH_TARGET_ANY,
        err));
    LHI_TRY(check_directions(plan->job, options, err));
    LHI_TRY(lhi_plan_check_questions(plan->job, options, err));
    lhi_evaluation_cache *tried = NULL; /* shared by the searches */
    LHI_TRY(lhi_evaluation_cache_make(&tried, err));
    lh_status status = find_plan(options, tried, plan, err);
    if (status == LH_OK)
        status = lhi_plan_advise_links(plan->job, plan->mem, &plan->plan, err);
    if (status == LH_OK)
        status = lhi_plan_advise_flags(options, plan->mem, &plan->plan, err);
    if (status == LH_OK && options->curves) {
        const lh_plan_options shared = lhi_options_for_questions(options);
        status = lhi_plan_curves(plan->job, &shared, plan->mem, tried,
                                 &plan->plan, err);
    }
    /* Ownership moves in any case, even if the search failed. */
    plan->pipeline = (lh_pipeline *)plan->plan.pipeline;
    plan->schedule = (lh_schedule *)plan->plan.schedule;
    if (status == LH_OK)
        status = lhi_plan_without_target(options, plan->mem, &plan->plan, err);
    if (status == LH_OK)
        status =
            lhi_plan_compare_measured(options, plan->mem, &plan->plan, err);
    if (status == LH_OK)
        status = lhi_plan_finish_margin(options, plan->mem, &plan->plan, err);
    if (status == LH_OK)
        status = evaluate_links(options, tried, plan, err);
    lhi_evaluation_cache_free(tried);
    if (status == LH_OK)
        status = lhi_pricing_fill_plan(plan->mem, &plan->plan, err);
    if (status == LH_OK && options->pareto_front)
        status = lhi_pareto_front_finish(options->pareto_max_slowdown,
                                         plan->mem, &plan->plan, err);
    return status;
}

/* Makes a job's plan under checked options. */
static lh_status make_plan(const lh_job *job, const lh_plan_options *options,
                           lh_plan **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_plan *plan = mem ? LHI_NEW(mem, lhi_plan, 1) : NULL;
    if (!plan) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    plan->mem = mem;
    lh_error why = {0}; /* impossible layouts leave their reason here */
    lh_status status = fill_plan(job, options, plan, &why);
    if (status != LH_OK) {
        lh_plan_free(&plan->plan);
        if (err)
            *err = why;
        return status;
    }
    *out = &plan->plan;
    return LH_OK;
}

/* Most slices of a sequence that are tried: shorter slices leave GPUs little
 * work per kernel. */
enum { MOST_SLICES = 128 };

/* Reports the best plan so far to the caller. Returns true if it asks to stop
 * the search. */
static bool is_stopped(const lh_plan_options *options, const lh_plan *best)
{
    return options->progress &&
           options->progress(options->context, best->n_layouts, best->n_layouts,
                             best->best.iteration_ns);
}

/* Makes the fastest of a job's plans with whole sequences, 2, 4, 8, ... slices.
 * Ends once twice as many slices are slower, or if the caller stops the search;
 * whole sequences do not count, since they have other schedules. If none fits,
 * the error is that of whole sequences. The plan's job has the number of
 * slices.
 */
static lh_status choose_slices(const lh_job *job,
                               const lh_plan_options *options, lh_plan **out,
                               lh_error *err)
{
    lh_job tried = *job;
    lh_plan_options with = *options;
    lh_plan *best = NULL;
    int64_t before_ns = -1; /* with half the slices; -1: none, or whole */
    lh_error why = {0};     /* of the first plan */
    lh_status first = LH_OK;
    const char *method = job->layout.schedule;
    const uint32_t least = method && strcmp(method, "seq1f1b") == 0 ? 2 : 1;
    if (options->objective != LH_PLAN_FASTEST || options->jitter ||
        options->pareto_front)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "%s: layout.slices: auto supports only the fastest "
                        "iteration, without jitter or a Pareto front; give a "
                        "number",
                        job->name);
    LHI_TRY(lhi_schedule_check(job, err));
    for (uint32_t k = least;
         k <= MOST_SLICES && job->training.sequence % k == 0; k *= 2) {
        lh_plan *plan = NULL;
        lh_error now = {0};
        tried.layout.slices = k > 1 ? k : 0;
        lh_status status = make_plan(&tried, &with, &plan, &now);
        if (k == least) {
            first = status;
            why = now;
            with.memory_needs = NULL; /* only those of the first plan */
        }
        if (status != LH_OK && status != LH_EINFEASIBLE &&
            status != LH_EUNSUPPORTED) {
            lh_plan_free(best);
            return lhi_fail(err, status, "%s", now.text);
        }
        if (!plan)
            continue;
        int64_t ns = plan->best.iteration_ns;
        bool slower = best && ns >= best->best.iteration_ns;
        bool ends = before_ns >= 0 && ns >= before_ns;
        before_ns = k > 1 ? ns : -1;
        lh_plan_free(slower ? plan : best);
        best = slower ? best : plan;
        if (ends || is_stopped(options, best))
            break;
    }
    if (!best && first == LH_OK) /* tried none */
        return lhi_fail(err, LH_EINPUT,
                        "%s: layout.slices: auto: no number of slices divides "
                        "the sequence of %" PRIu32 " tokens",
                        job->name, job->training.sequence);
    if (!best)
        return lhi_fail(err, first, "%s", why.text);
    if (options->memory_needs)
        *options->memory_needs = (lh_memory_needs){0};
    *out = best;
    return LH_OK;
}

lh_status lh_plan_make(const lh_job *job, const lh_plan_options *options,
                       lh_plan **out, lh_error *err)
{
    lh_plan_options checked;
    lh_jitter jitter;
    LHI_TRY(LHI_OPTIONS_COPY(lh_plan_options, &checked, options, err));
    if (!(checked.max_chunk_ratio > 0))
        checked.max_chunk_ratio = lhi_layer_partition_default_ratio(job);
    if (checked.memory_needs)
        *checked.memory_needs = (lh_memory_needs){0};
    if (checked.jitter) {
        LHI_TRY(LHI_OPTIONS_COPY(lh_jitter, &jitter, checked.jitter, err));
        LHI_TRY(lhi_plan_check_jitter(&jitter, err));
        checked.jitter = &jitter;
    }
    if (!(checked.margin_percent >= 0 && checked.margin_percent < 100 &&
          checked.margin_gib >= 0 && checked.margin_gib <= 1e6) ||
        (checked.margin_percent > 0 && checked.margin_gib > 0))
        return lhi_fail(err, LH_EINVAL,
                        "lh_plan_options: margin_percent is %g and margin_gib "
                        "%g; expected one of them, below 100 %% and 1e6 GiB",
                        checked.margin_percent, checked.margin_gib);
    if (!(checked.seconds >= 0 && checked.seconds <= DBL_MAX))
        return lhi_fail(err, LH_EINVAL,
                        "lh_plan_options.seconds is out of "
                        "range: %g",
                        checked.seconds);
    if (checked.max_iteration_ns < 0 ||
        (checked.max_iteration_ns > 0 && checked.objective != LH_PLAN_CHEAPEST))
        return lhi_fail(err, LH_EINVAL,
                        "lh_plan_options.max_iteration_ns is %" PRId64
                        "; expected 0, or more with LH_PLAN_CHEAPEST",
                        checked.max_iteration_ns);
    if (checked.partition == LH_PARTITION_MONTE_CARLO &&
        (checked.jitter || checked.pareto_front ||
         checked.objective != LH_PLAN_FASTEST))
        return lhi_fail(err, LH_EINVAL,
                        "LH_PARTITION_MONTE_CARLO supports only the objective "
                        "LH_PLAN_FASTEST, and cannot be combined with jitter "
                        "or a Pareto front");
    if (checked.elastic_as_published &&
        (checked.jitter || checked.pareto_front || checked.quick ||
         checked.objective != LH_PLAN_FASTEST || checked.n_questions ||
         checked.sensitivity || checked.curves ||
         checked.partition == LH_PARTITION_MONTE_CARLO))
        return lhi_fail(
            err, LH_EINVAL,
            "lh_plan_options.elastic_as_published cannot be combined with "
            "jitter, "
            "a Pareto front, quick search, what-if questions, curves, another "
            "objective or LH_PARTITION_MONTE_CARLO");
    if (!(checked.pareto_max_slowdown == 0 ||
          (checked.pareto_max_slowdown >= 1 &&
           checked.pareto_max_slowdown <= DBL_MAX)))
        return lhi_fail(err, LH_EINVAL,
                        "lh_plan_options.front_times is %g; expected 0, or at "
                        "least 1",
                        checked.pareto_max_slowdown);
    if (job->layout.chunk_layers &&
        (checked.partition == LH_PARTITION_EXACT ||
         checked.partition == LH_PARTITION_MONTE_CARLO))
        return lhi_fail(err, LH_EINVAL,
                        "layout.layers of the job fixes the partition; there "
                        "is nothing to search");
    if (job->layout.tensor_per_site && !checked.quick &&
        !lhi_site_tensors_are_searched(job, &checked))
        return lhi_fail(
            err, LH_EUNSUPPORTED,
            "%s: layout.tensor: per-datacenter requires two to four "
            "datacenters that differ, pipelines over datacenters "
            "(outermost), a schedule that is not elastic, and the "
            "fastest iteration without jitter, --elastic published "
            "and --search monte-carlo; give a number",
            job->name);
    return job->layout.slices == LHI_SLICES_AUTO
               ? choose_slices(job, &checked, out, err)
               : make_plan(job, &checked, out, err);
}

void lh_plan_free(lh_plan *plan)
{
    if (!plan)
        return;
    lhi_plan *whole = (lhi_plan *)plan;
    lh_schedule_free(whole->schedule);
    lh_pipeline_free(whole->pipeline);
    lh_job_free(whole->job);
    lhi_arena_free(whole->mem);
}

const char *lh_target_display_name(lh_target target)
{
    return lhi_target_display_name(target);
}

const char *lh_target_version(lh_target target)
{
    return lhi_target_version(target);
}

uint32_t lh_plan_gpus(const lh_plan *plan)
{
    return (uint32_t)lh_layout_gpus(&plan->best.layout);
}

int64_t lh_plan_iteration_ns(const lh_plan *plan)
{
    return plan->best.iteration_ns;
}

const lh_pipeline *lh_plan_best_pipeline(const lh_plan *plan)
{
    return plan->pipeline;
}

const lh_schedule *lh_plan_best_schedule(const lh_plan *plan)
{
    return plan->schedule;
}

double lh_plan_gap(const lh_plan *plan)
{
    int64_t bound = plan->search_bound_ns, ns = plan->best.iteration_ns;
    if (bound <= 0)
        return -1;
    return ns > bound ? (double)(ns - bound) / (double)bound : 0;
}

void lh_plan_layers(const lh_plan *plan, uint32_t chunk, uint32_t *first,
                    uint32_t *n_layers)
{
    const lh_layout *l = &plan->best.layout;
    const lhi_config config = {.layout = *l, .layers = plan->best.chunk_layers};
    /* With two directions the model's chunks are followed by their copies. */
    lhi_config_layers(plan->job->model->layers, &config,
                      chunk % (l->pipeline * l->chunks_per_device), first,
                      n_layers);
}
