/* SPDX-License-Identifier: Apache-2.0 */
/* Search result: the best layout, and why the others lost. */
#include "base/format_units.h"
#include "base/integer_math.h"
#include "planner/layout/equivalence.h"
#include "planner/layout/target.h"
#include "planner/search/cost.h"
#include "planner/search/infeasible_key.h"
#include "planner/search/memory_needs.h"
#include "planner/search/objective.h"
#include "planner/search/plan_search.h"
#include "planner/search/unequal_bound.h"

#include <inttypes.h>
#include <longhaul/experimental/methods.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values printed as 0.0 % are omitted. */
static const double MIN_PRINTED_SHARE = 0.0005;

/* Name of the bound of built layouts; lower_bound.c has all other names. */
#define OWN_PIPELINE "pipeline"

/* Checks whether some layout was rejected because it needs more memory than the
 * GPUs have. */
static bool lacks_memory(const lhi_layout_search *s)
{
    bool lacks = s->lacks_memory;
    for (uint32_t i = 0; i < s->n && !lacks; i++)
        lacks = s->candidates[i].missing > 0;
    return lacks;
}

/* Returns the advice ", or fix less of layout" if the job fixes a value in
 * `layout`, else "". */
static const char *get_layout_advice(const lh_job *job)
{
    const lh_layout *l = &job->layout;
    const bool given = l->tensor || l->context || l->expert || l->pipeline ||
                       l->data || l->micro_batch || l->chunks_per_device ||
                       l->chunk_layers;
    return given ? ", or fix less of layout" : "";
}

/* Formats general advice to fit in memory: more GPUs or, where the job fixes
 * them, other settings. */
static void format_memory_advice(const lh_job *job,
                                 char text[LHI_MEMORY_NEEDS_TEXT])
{
    const lh_training *t = &job->training;
    snprintf(text, LHI_MEMORY_NEEDS_TEXT,
             "use more GPUs, or GPUs with more memory%s%s%s",
             t->zero_given && t->zero < 3 && job->n_gpus > 1
                 ? ", or a higher training.zero"
                 : "",
             t->recompute_given && t->recompute != LH_RECOMPUTE_FULL
                 ? ", or training.recompute: full"
                 : "",
             get_layout_advice(job));
}

/* Formats the changes that make the job fit in memory or, if there are none,
 * general advice. Only the plan's own search looks for such changes. */
static lh_status format_memory_remedy(const lhi_layout_search *s,
                                      char text[LHI_MEMORY_NEEDS_TEXT],
                                      lh_error *err)
{
    lh_memory_needs needs = {0};
    if (s->unexplored && !s->cancelled)
        LHI_TRY(lhi_find_memory_needs(s, &needs, err));
    if (s->options.memory_needs)
        *s->options.memory_needs = needs;
    lhi_format_memory_needs(s->job, &needs, text);
    const size_t len = strlen(text);
    if (len)
        snprintf(text + len, LHI_MEMORY_NEEDS_TEXT - len, "%s",
                 get_layout_advice(s->job));
    else
        format_memory_advice(s->job, text);
    return LH_OK;
}

/* Fails with LH_EINFEASIBLE: no layout fits in memory; the message has the
 * changes that would make one fit. */
static lh_status fail_memory(const lhi_layout_search *s, lh_error *err)
{
    char text[LHI_MEMORY_NEEDS_TEXT];
    LHI_TRY(format_memory_remedy(s, text, err));
    return lhi_fail(err, LH_EINFEASIBLE, "%s: no layout fits in memory; %s",
                    s->job->name, text);
}

/* Fails with LH_EINFEASIBLE: layouts fit in memory but no schedule works on
 * them; the message has layout `c`'s reason. */
static lh_status fail_schedules(const lhi_layout_search *s,
                                const lhi_candidate *c, lh_error *err)
{
    const lh_layout *l = &c->config.layout;
    char text[LHI_MEMORY_NEEDS_TEXT] = "";
    if (c->choice.status == LH_CHOICE_MEMORY)
        LHI_TRY(format_memory_remedy(s, text, err));
    return lhi_fail(err, LH_EINFEASIBLE,
                    "%s: no schedule works with the layouts that fit "
                    "(tensor %" PRIu32 ", pipeline %" PRIu32 ", data %" PRIu32
                    ", micro_batch %" PRIu32 "): %s%s%s",
                    s->job->name, l->tensor, l->pipeline, l->data,
                    l->micro_batch, c->choice.why, *text ? "; " : "", text);
}

/* Fails with LH_EINFEASIBLE: no layout that the Monte Carlo search sampled is
 * feasible; the message has the first reason. */
static lh_status fail_monte_carlo(const lhi_layout_search *s, lh_error *err)
{
    const char *why = s->first_refusal.text;
    return lhi_fail(err, LH_EINFEASIBLE,
                    "%s: none of the sampled layouts is feasible%s%s; use more "
                    "samples, or another seed",
                    s->job->name, *why ? ", e.g.: " : "", why);
}

/* Returns a simulated layout with the reason why no schedule works on it, if
 * possible one whose schedule needs too much memory; NULL: there is none. */
static const lhi_candidate *find_layout_with_reason(const lhi_layout_search *s)
{
    const lhi_candidate *first = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        const lhi_candidate *c = &s->candidates[i];
        if (!c->simulated || !c->choice.why[0])
            continue;
        if (c->choice.status == LH_CHOICE_MEMORY)
            return c;
        first = first ? first : c;
    }
    return first;
}

/* Checks whether the job requires a mixed placement (`layout.outermost: mixed`,
 * replicas that span different datacenters), and no layout could be placed in
 * this way. */
static bool lacks_mixed_placement(const lhi_layout_search *s)
{
    const lh_layout *l = &s->job->layout;
    return l->outermost == LH_OUTERMOST_MIXED && !l->sites && s->n == 0 &&
           s->first_refusal.text[0];
}

/* Fails with LH_EINFEASIBLE: `layout.outermost: mixed` (replicas that span
 * different datacenters) has no feasible placement. */
static lh_status fail_mixed(const lhi_layout_search *s, lh_error *err)
{
    return lhi_fail(
        err, LH_EINFEASIBLE,
        "%s: layout.outermost: mixed requires a replica that spans "
        "datacenters, and another that uses different ones; with %" PRIu32
        " datacenter%s, no layout that fits in memory can be placed in this "
        "way; remove layout.outermost, or set layout.sites",
        s->job->name, s->job->n_datacenters,
        s->job->n_datacenters == 1 ? "" : "s");
}

/* Checks whether some layout works without the target framework's rules
 * (job->target). *found: one does, and *at is the best of them. */
static lh_status find_without_target(const lhi_layout_search *s, lhi_config *at,
                                     bool *found, lh_error *err)
{
    lh_job job = *s->job;
    job.target = LH_TARGET_ANY;
    return lhi_layout_search_has_any(s, &job, at, found, err);
}

/* Fails with the target framework's rule if a layout works without it, even if
 * memory pruned other layouts. Returns LH_OK if the target is not the reason.
 */
static lh_status fail_target(lhi_layout_search *s, lh_error *err)
{
    const lh_target target = s->job->target;
    lhi_config config;
    bool found;
    lh_error why = {0};
    lh_status status = LH_OK;
    char advice[LHI_MEMORY_NEEDS_TEXT] = "";
    if (target == LH_TARGET_ANY)
        return LH_OK;
    LHI_TRY(find_without_target(s, &config, &found, err));
    for (int k = LHI_LEVEL_GROUP;
         found && status == LH_OK && k <= LHI_LEVEL_COMPLETE; k++)
        status = lhi_target_check(target, s->job, (lhi_level)k, &config, &why);
    if (status == LH_OK)
        return LH_OK;
    if (lacks_memory(s))
        format_memory_advice(s->job, advice);
    const lh_layout *l = &config.layout;
    return lhi_fail(err, LH_EINFEASIBLE,
                    "%s: no layout%s is supported by %s; the best of the "
                    "others (tensor %" PRIu32 ", pipeline %" PRIu32
                    ", data %" PRIu32 "): %s%s%s",
                    s->job->name, s->lacks_memory ? " that fits in memory" : "",
                    lhi_target_display_name(target), l->tensor, l->pipeline,
                    l->data, why.text, *advice ? "; or " : "", advice);
}

/* Checks whether every layout has more chunks than layers: the fixed chunks per
 * device times the fixed stages (else 1) exceed the layers. */
static bool has_too_many_chunks(const lh_job *job)
{
    const lh_layout *l = &job->layout;
    const uint64_t stages = l->pipeline ? l->pipeline : 1;
    return !l->chunk_layers &&
           stages * l->chunks_per_device > job->model->layers;
}

/* Fails with LH_EINFEASIBLE and the reason why no layout works, with advice. */
static lh_status fail_infeasible(lhi_layout_search *s, lh_error *err)
{
    const lhi_candidate *c = find_layout_with_reason(s);
    if (c)
        return fail_schedules(s, c, err);
    if (lacks_mixed_placement(s))
        return fail_mixed(s, err);
    if (has_too_many_chunks(s->job))
        return lhi_fail(
            err, LH_EINFEASIBLE,
            "%s: every layout has more chunks than layers: %s has %" PRIu32
            "; change the degrees fixed in layout",
            s->job->name, s->job->model->name, s->job->model->layers);
    if (lacks_memory(s)) {
        LHI_TRY(fail_target(s, err));
        return fail_memory(s, err);
    }
    if (s->options.partition == LH_PARTITION_MONTE_CARLO)
        return fail_monte_carlo(s, err);
    if (s->n == 0 && s->n_dropped && !s->first_refusal.text[0])
        return lhi_fail(err, LH_EINFEASIBLE,
                        "%s: every layout has more than %d microbatches; set "
                        "layout.micro_batch, or use a smaller global batch",
                        s->job->name, LHI_MOST_MICROBATCHES);
    if (s->n == 0 && !s->first_refusal.text[0])
        return lhi_fail(
            err, LH_EINFEASIBLE,
            "%s: no layout evenly divides %" PRIu32 " GPUs and a global "
            "batch of %" PRIu32 "; change the batch or the values fixed in "
            "layout",
            s->job->name, s->job->n_gpus, s->job->training.global_batch);
    return lhi_fail(err, LH_EINFEASIBLE, "%s: no layout works, e.g.: %s",
                    s->job->name, s->first_refusal.text);
}

/* Fails with LH_EINFEASIBLE and the reason why no layout uses more GPUs of a
 * datacenter, as the plan's entry for idle GPUs shows it. */
static lh_status fail_idle(const lhi_layout_search *s, lh_error *err)
{
    return lhi_fail(err, LH_EINFEASIBLE, "%s",
                    !s->complete ? "does not fit: the search found no layout "
                                   "that uses more of its GPUs"
                    : s->lacks_memory
                        ? "does not fit: no layout that uses more of its GPUs "
                          "fits in memory"
                        : "does not fit: no layout that the job allows uses "
                          "more of its GPUs");
}

/* Fails with LH_EINFEASIBLE and the reason why no layout works, with the one
 * job key that prevents all layouts if there is one. */
static lh_status fail_with_key(lhi_layout_search *s, lh_error *err)
{
    if (s->job->min_gpus)
        return fail_idle(s, err);
    char key[LHI_INFEASIBLE_KEY_TEXT] = "";
    lh_error why = {0};
    if (!s->cancelled && s->options.partition != LH_PARTITION_MONTE_CARLO)
        LHI_TRY(lhi_find_infeasible_key(s, key, err));
    lh_status status = fail_infeasible(s, &why);
    return lhi_fail(err, status, "%s%s", why.text, key);
}

/* Begins the reason of an alternative that was not simulated. */
#define NOT_SIMULATED "not simulated when the search ended"
/* Largest possible gain over the plan, in per cent, that is printed for a
 * layout that was not simulated. Layouts this far below the plan are simulated
 * first: a larger gain at the end of the search comes from a loose lower bound.
 */
#define MAX_PRINTED_GAIN_PERCENT 20

/* Checks whether a candidate is still open at the end: neither pruned by its
 * bound nor evaluated under every method. Later results may have pruned it. */
static bool is_open(const lhi_layout_search *s, const lhi_candidate *c)
{
    bool cost = s->options.objective == LH_PLAN_CHEAPEST;
    return c->open && !c->fully_evaluated && (cost || c->bound_ns < s->best_ns);
}

/* Checks whether a candidate's only evaluation was under a single schedule
 * method, and that failed: other methods might work. */
static bool is_refused_once(const lhi_candidate *c)
{
    return c->simulated && !c->fully_evaluated &&
           c->choice.status != LH_CHOICE_OK;
}

const char *lhi_format_gap(const lh_plan_options *options, const lh_choice *o,
                           const lh_choice *best, lhi_arena *mem)
{
    char text[160];
    const lh_plan_options fastest = {.objective = LH_PLAN_FASTEST};
    double slower = lhi_compute_percent_gap(&fastest, o, best);
    double idle = (double)o->makespan_ns * o->bubble_ratio;
    double best_idle = (double)best->makespan_ns * best->bubble_ratio;
    double work =
        (double)o->makespan_ns - idle - ((double)best->makespan_ns - best_idle);
    if (options->objective == LH_PLAN_CHEAPEST)
        snprintf(text, sizeof text,
                 "%+.1f %% in cost, %+.1f %% in time, on %" PRIu32 " GPUs",
                 lhi_compute_percent_gap(options, o, best), slower,
                 o->cost ? o->cost->gpus : 0);
    else
        snprintf(text, sizeof text,
                 "%+.1f %%: work %+.3f s, waiting %+.3f s per device", slower,
                 lhi_drop_negative_zero(work / 1e9, 3),
                 lhi_drop_negative_zero((idle - best_idle) / 1e9, 3));
    return lhi_arena_strdup(mem, text);
}

/* Formats why a layout that was not simulated is not the best. `can_win`: its
 * lower bound does not exclude it; `bound`: name of the quantity that gives the
 * bound. NULL: out of memory. */
static const char *format_bounded_loss(const lh_plan_options *options,
                                       int64_t bound_ns, const char *bound,
                                       bool can_win, const lh_choice *best,
                                       lhi_arena *mem)
{
    char text[320];
    const bool cost = options->objective == LH_PLAN_CHEAPEST;
    const double ahead =
        100.0 * ((double)best->iteration_ns / (double)bound_ns - 1);
    if (can_win && !cost && ahead > 0 && ahead <= MAX_PRINTED_GAIN_PERCENT)
        snprintf(text, sizeof text,
                 "%s; at most %.1f %% faster by its lower bound: %s",
                 NOT_SIMULATED, ahead, bound);
    else if (can_win)
        snprintf(text, sizeof text,
                 "%s; its lower bound does not rule it out: %s", NOT_SIMULATED,
                 bound);
    else if (cost)
        snprintf(text, sizeof text,
                 "more expensive even by the lower bound of this layer "
                 "partition: %s",
                 bound);
    else
        snprintf(text, sizeof text,
                 "%.1f %% slower even by the lower bound of this layer "
                 "partition: %s",
                 100.0 * ((double)bound_ns / (double)best->iteration_ns - 1),
                 bound);
    return lhi_arena_strdup(mem, text);
}

/* Checks whether the lower bound of alternative `c`, which was not simulated,
 * is better than the plan by the objective; result in *can_win. */
static lh_status compare_bound(const lh_plan_options *options,
                               const lh_choice *c, const lh_plan *plan,
                               bool *can_win, lh_error *err)
{
    const lhi_config config = lhi_config_from_choice(c);
    lhi_layout_price price;
    *can_win = c->lower_bound_ns < plan->best.iteration_ns;
    if (options->objective != LH_PLAN_CHEAPEST)
        return LH_OK;
    LHI_TRY(lhi_pricing_compute_bound(plan->job, &config, true, &price, err));
    *can_win = lhi_pricing_iteration_usd(&price, (double)c->lower_bound_ns) *
                   (1 - 1e-12) <
               plan->best.cost->usd;
    return LH_OK;
}

lh_status lhi_plan_renew_reasons(const lh_plan_options *options, lhi_arena *mem,
                                 lh_plan *plan, lh_choice *alternatives,
                                 uint32_t n, lh_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        lh_choice *c = &alternatives[i];
        const char *bound = strstr(c->why, ": ");
        bool can_win = false;
        if (c->status == LH_CHOICE_OK) {
            c->why = lhi_format_gap(options, c, &plan->best, mem);
        } else if (c->status == LH_CHOICE_BOUNDED && bound) {
            if (strncmp(c->why, NOT_SIMULATED, strlen(NOT_SIMULATED)) == 0)
                LHI_TRY(compare_bound(options, c, plan, &can_win, err));
            c->why = format_bounded_loss(options, c->lower_bound_ns, bound + 2,
                                         can_win, &plan->best, mem);
        }
        if (!c->why)
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

/* Formats why a candidate is not the best: slower, excluded by its bound, or
 * not simulated. */
static const char *format_loss(lhi_layout_search *s, const lhi_candidate *c,
                               const lh_choice *best)
{
    const lh_choice *o = &c->choice;
    bool simulated = c->simulated && !is_refused_once(c);
    if (simulated && o->status == LH_CHOICE_OK)
        return lhi_format_gap(&s->options, o, best, s->mem);
    if (simulated)
        return o->why;
    return format_bounded_loss(&s->options, c->bound_ns, c->bound_text,
                               is_open(s, c), best, s->mem);
}

/* Checks whether the list of n alternatives already has candidate `c`'s layout
 * with another placement in datacenters and the same iteration time, so that
 * `c` is not listed. */
static bool is_equivalent_listed(const lh_choice *list, uint32_t n,
                                 const lhi_candidate *c)
{
    for (uint32_t i = 0; c->simulated && i < n; i++) {
        if (list[i].iteration_ns != c->choice.iteration_ns)
            continue;
        lhi_config listed = lhi_config_from_choice(&list[i]);
        listed.layout.sites = c->config.layout.sites;
        listed.layout.outermost = c->config.layout.outermost;
        listed.layout.rank_order = c->config.layout.rank_order;
        listed.layout.packing = c->config.layout.packing;
        if (lhi_configs_are_equal(&listed, &c->config))
            return true;
    }
    return false;
}

/* Checks whether candidate `c` is layout `best` with another chunk placement
 * (UD, Loop, Wave): the plan's list of methods shows it already. */
static bool is_listed(const lhi_candidate *best, const lhi_candidate *c)
{
    lhi_config there = best->config;
    there.placement = c->config.placement;
    return c != best && lhi_configs_are_equal(&there, &c->config);
}

/* Lists the plan's alternatives, sorted by the objective, with the reasons
 * why they are not the plan. `best`: the best candidate; `first`: the plan's
 * layout and results, other than `best` only if an elastic plan is better. */
static lh_status list_alternatives(lhi_layout_search *s,
                                   const lhi_candidate *best,
                                   const lh_choice *first, lh_plan *plan,
                                   lh_error *err)
{
    uint32_t top = s->options.top ? s->options.top : 10;
    lh_choice *list = LHI_NEW(s->mem, lh_choice, s->n);
    if (!list)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < s->n; i++) {
        lhi_candidate *c = &s->candidates[i];
        bool won = c == best && first == &best->choice;
        if (won || c->bound_ns == INT64_MAX || is_listed(best, c) ||
            is_equivalent_listed(list, plan->n_alternatives, c) ||
            is_equivalent_listed(first, 1, c))
            continue;
        lh_choice *o = &list[plan->n_alternatives];
        if (c->simulated && !is_refused_once(c)) {
            *o = c->choice;
        } else {
            *o = lhi_candidate_make_choice(c, NULL);
            o->status = LH_CHOICE_BOUNDED;
        }
        o->why = format_loss(s, c, first);
        if (!o->why)
            return lhi_fail_nomem(err);
        plan->n_alternatives++;
    }
    lhi_sort_choices(&s->options, list, plan->n_alternatives);
    if (plan->n_alternatives > top)
        plan->n_alternatives = top;
    plan->alternatives = list;
    return LH_OK;
}

/* Checks whether the plan's current chunk placement `best` is at least as good
 * as `again`, another placement of the same layout. If equal, the placement
 * `found` by the search wins. */
static bool is_current_best(const lhi_layout_search *s, const lh_plan *plan,
                            const lhi_candidate *best,
                            const lhi_candidate *again, lh_placement found)
{
    if (!plan->pipeline)
        return false;
    if (again->choice.status != LH_CHOICE_OK)
        return best->choice.status == LH_CHOICE_OK ||
               again->config.placement != found;
    if (best->choice.status != LH_CHOICE_OK)
        return false;
    int64_t has = lhi_objective_value(&s->options, &best->choice);
    int64_t gets = lhi_objective_value(&s->options, &again->choice);
    return again->config.placement == found ? gets > has : gets >= has;
}

/* Runs every schedule method on the best layout in each possible chunk
 * placement, and lists the results as the plan's methods. Includes slow methods
 * that the search skipped; if one of them is the best, its placement becomes
 * the plan. */
static lh_status list_methods(lhi_layout_search *s, lhi_candidate *best,
                              lh_plan *plan, lh_error *err)
{
    lh_choice *list =
        LHI_NEW(s->mem, lh_choice, 2 * lh_n_methods() + LHI_ELASTIC_ROWS);
    if (!list)
        return lhi_fail_nomem(err);
    const lhi_candidate found = best ? *best : (lhi_candidate){0};
    for (int p = LH_PLACEMENT_UD; best && p <= LH_PLACEMENT_BD; p++) {
        lhi_built_layout built;
        lh_schedule *schedule;
        lhi_candidate again = found;
        bool other = (lh_placement)p != found.config.placement;
        if (other && found.config.layout.chunks_per_device != 2)
            continue;
        if (other && (p == LH_PLACEMENT_UD || p == LH_PLACEMENT_BD ||
                      found.config.layout.pipeline == 1)) /* no other method */
            continue;
        again.config.placement = (lh_placement)p;
        LHI_TRY(lhi_layout_build(s->job, &again.config, &built, err));
        schedule = NULL;
        lh_status status =
            other ? lhi_candidate_compute_bound_built(&again, &built, err)
                  : LH_OK;
        if (status == LH_OK)
            status = lhi_candidate_run_methods(s, &again, &built, &schedule,
                                               list, &plan->n_methods, err);
        if (status == LH_OK &&
            !is_current_best(s, plan, best, &again, found.config.placement)) {
            *best = again;
            lh_pipeline_free((lh_pipeline *)plan->pipeline);
            lh_schedule_free((lh_schedule *)plan->schedule);
            plan->pipeline = built.pipeline;
            plan->schedule = schedule;
            plan->cost_source = lh_cost_source_name(built.source);
        } else {
            lh_schedule_free(schedule);
            lh_pipeline_free(built.pipeline);
        }
        LHI_TRY(status);
    }
    for (uint32_t i = 0; i < s->elastic.n_rows; i++)
        list[plan->n_methods++] = s->elastic.rows[i];
    lhi_sort_choices(&s->options, list, plan->n_methods);
    plan->methods = list;
    return LH_OK;
}

/* Checks whether the plan's table lists only elastic plans: the job requires
 * elastic schedules with ZeRO 2 or 3, or the plan of PipeMesh's planner. */
static bool is_elastic_alone(const lhi_layout_search *s)
{
    return (lhi_elastic_is_required(s->job) || s->elastic.published) &&
           s->elastic.n_rows && s->elastic.rows[0].status == LH_CHOICE_OK;
}

/* Makes the best elastic plan the plan rather than the best other layout, with
 * a text that compares both. */
static lh_status finish_elastic(lhi_layout_search *s, lh_plan *plan,
                                lh_error *err)
{
    const lh_choice *won = &s->elastic.rows[0];
    char standing[LHI_OPTIMALITY_TEXT], why[2 * LHI_ELASTIC_WHY];
    lh_pipeline_free((lh_pipeline *)plan->pipeline);
    lh_schedule_free((lh_schedule *)plan->schedule);
    lhi_elastic_result *best = &s->elastic.results[0];
    plan->pipeline = best->built.pipeline;
    plan->schedule = best->schedule;
    best->built.pipeline = NULL;
    best->schedule = NULL;
    plan->cost_source = lh_cost_source_name(best->built.source);
    const lh_choice other = plan->best;
    plan->best = *won;
    plan->search_bound_ns =
        lhi_min_int64(plan->search_bound_ns, won->iteration_ns);
    double ahead = 100 * lhi_compute_relative_gap(&s->options, &other, won);
    const char *better =
        s->options.objective == LH_PLAN_CHEAPEST ? "cheaper" : "faster";
    lhi_format_plan_optimality(plan, &s->options, standing, sizeof standing);
    if (s->elastic.published)
        snprintf(why, sizeof why, "%s", won->why);
    else if (is_elastic_alone(s))
        snprintf(why, sizeof why, "the fastest elastic plan: %s", won->why);
    else if (other.iteration_ns > 0 && ahead < 100 * MIN_PRINTED_SHARE)
        snprintf(why, sizeof why,
                 "%s; as good as the best non-elastic plan: %s", standing,
                 won->why);
    else if (other.iteration_ns > 0)
        snprintf(why, sizeof why,
                 "%s; %.1f %% %s than the best non-elastic plan: %s", standing,
                 ahead, better, won->why);
    else
        snprintf(why, sizeof why, "%s; no non-elastic plan fits: %s", standing,
                 won->why);
    plan->best.why = lhi_arena_strdup(s->mem, why);
    return plan->best.why ? LH_OK : lhi_fail_nomem(err);
}

/* Returns `n`, or UINT32_MAX if it is larger. */
static uint32_t clamp_to_uint32(uint64_t n)
{
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* Sets the plan's numbers of layouts: pruned by memory or bounds, simulated,
 * and unexplored. */
static void count_layouts(const lhi_layout_search *s, lh_plan *plan)
{
    uint64_t bounded = 0, left = s->n_unexplored, simulated = s->n_simulated;
    for (int k = 0; k < LHI_N_BOUND_KINDS; k++)
        bounded += s->pruned[k];
    for (uint32_t i = 0; i < s->n; i++) {
        const lhi_candidate *c = &s->candidates[i];
        bool open = is_open(s, c), once = is_refused_once(c);
        if (c->from_local_search)
            continue;
        left += open;
        if (c->simulated)
            simulated -= open || once;
        if (once || (!c->simulated && c->bound_ns < INT64_MAX))
            bounded += !open;
    }
    plan->n_layouts = clamp_to_uint32(s->n_memory + bounded + simulated + left);
    plan->n_unexplored = clamp_to_uint32(left);
    plan->n_memory = clamp_to_uint32(s->n_memory);
    plan->n_bounded = clamp_to_uint32(bounded);
    plan->n_simulated = clamp_to_uint32(simulated);
    plan->n_unsupported = clamp_to_uint32(s->n_unsupported);
    plan->n_dropped = clamp_to_uint32(s->n_dropped);
    plan->n_elastic = clamp_to_uint32(s->n_elastic);
    plan->n_elastic_unexplored = clamp_to_uint32(s->n_elastic_left);
    plan->search_bound_ns = s->proven_ns;
    plan->search_bound_usd = s->proven_usd;
}

void lhi_plan_count_simulated(lh_plan *plan, int64_t bound_ns)
{
    /* A cheaper plan may be slower: whether it was left is unknown here. */
    bool cost = plan->objective == LH_PLAN_CHEAPEST;
    if (plan->n_unexplored > 0 && (cost || bound_ns < plan->best.iteration_ns))
        return;
    lh_plan_pruned *last =
        plan->n_pruned ? (lh_plan_pruned *)&plan->pruned[plan->n_pruned - 1]
                       : NULL;
    if (last && strcmp(last->bound, OWN_PIPELINE) == 0) {
        last->n--;
        plan->n_pruned -= last->n == 0;
    }
    plan->n_bounded--;
    plan->n_simulated++;
}

/* Lists how many layouts each bound kind pruned; layouts pruned by their own
 * pipeline's bound come last. */
static lh_status list_pruned(const lhi_layout_search *s, lh_plan *plan,
                             lh_error *err)
{
    lh_plan_pruned *list =
        LHI_NEW(s->mem, lh_plan_pruned, LHI_N_BOUND_KINDS + 1);
    uint64_t others = plan->n_bounded;
    if (!list)
        return lhi_fail_nomem(err);
    for (int k = 0; k < LHI_N_BOUND_KINDS; k++)
        if (s->pruned[k]) {
            list[plan->n_pruned++] = (lh_plan_pruned){
                lhi_bound_kind_name((lhi_bound_kind)k), s->pruned[k]};
            others -= s->pruned[k] < others ? s->pruned[k] : others;
        }
    if (others)
        list[plan->n_pruned++] = (lh_plan_pruned){OWN_PIPELINE, others};
    plan->pruned = list;
    return LH_OK;
}

/* Capacity for a formatted number of layouts, in bytes. */
enum { LAYOUTS_TEXT = 24 };

/* Formats a number of layouts: "1 layout", "12 layouts". */
static const char *format_layouts(uint32_t n, char text[LAYOUTS_TEXT])
{
    snprintf(text, LAYOUTS_TEXT, "%" PRIu32 " layout%s", n, n == 1 ? "" : "s");
    return text;
}

void lhi_format_plan_optimality(const lh_plan *plan,
                                const lh_plan_options *options, char *text,
                                size_t size)
{
    bool cost = options->objective == LH_PLAN_CHEAPEST;
    const char *best = cost ? "cheapest" : "fastest";
    int64_t bound = plan->search_bound_ns, ns = plan->best.iteration_ns;
    char more[80] = "", in_time[60] = "", left[80];
    char all[LAYOUTS_TEXT], some[LAYOUTS_TEXT];
    const bool unequal =
        plan->job && lhi_unequal_is_searched(plan->job, options);
    format_layouts(plan->n_layouts, all);
    if (options->seconds > 0)
        snprintf(in_time, sizeof in_time, " within the time limit");
    /* Values printed as 0.0 % are rounding. */
    double faster = bound > 0 ? (double)ns / (double)bound - 1 : 0;
    if (faster >= MIN_PRINTED_SHARE && !cost)
        snprintf(more, sizeof more, "; at most %.1f %% faster is possible",
                 100 * faster);
    if (cost && lh_plan_cost_gap(plan) >= MIN_PRINTED_SHARE)
        snprintf(more, sizeof more, "; at most %.1f %% cheaper is possible",
                 100 * lh_plan_cost_gap(plan));
    if (plan->n_elastic_unexplored == 0)
        format_layouts(plan->n_unexplored, left);
    else if (plan->n_unexplored == 0)
        snprintf(left, sizeof left, "elastic plans on %s",
                 format_layouts(plan->n_elastic_unexplored, some));
    else
        snprintf(left, sizeof left, "%s and elastic plans on %" PRIu32,
                 format_layouts(plan->n_unexplored, some),
                 plan->n_elastic_unexplored);
    if (bound == 0)
        snprintf(text, size, "the %s of %s that %s sampled", best, all,
                 plan->n_layouts == 1 ? "was" : "were");
    else if (plan->n_unexplored || plan->n_elastic_unexplored)
        snprintf(text, size, "%s found%s; %s not explored%s",
                 cost ? "cheapest" : "best", in_time, left, more);
    else if (*more)
        snprintf(text, size,
                 "best found, all of %s simulated or pruned with even chunks%s "
                 "with other layer partitions%s pass orders%s",
                 all, more, unequal ? "," : " or",
                 unequal ? " or unequal microbatches" : "");
    else
        snprintf(text, size, "the %s of %s under every schedule", best, all);
}

void lhi_format_schedule_optimality(double gap, char *text, size_t size)
{
    if (gap <= 0)
        snprintf(text, size,
                 "no schedule of this layout and layer partition is faster");
    else if (gap < MIN_PRINTED_SHARE)
        snprintf(
            text, size,
            "no schedule of this layout and layer partition is 0.1 %% faster");
    else
        snprintf(text, size,
                 "no schedule of this layout and layer partition is more than "
                 "%.1f %% faster",
                 100 * gap);
}

lh_status lhi_layout_search_fill_plan(lhi_layout_search *s, lh_plan *plan,
                                      lh_error *err)
{
    lhi_candidate *best =
        is_elastic_alone(s) ? NULL : lhi_layout_search_find_best(s);
    if (!best && !s->elastic.n_rows)
        return fail_with_key(s, err);
    count_layouts(s, plan);
    LHI_TRY(list_pruned(s, plan, err));
    LHI_TRY(list_methods(s, best, plan, err));
    if (!best)
        return finish_elastic(s, plan, err);
    bool elastic = s->elastic.n_rows &&
                   lhi_objective_value(&s->options, &s->elastic.rows[0]) <
                       lhi_objective_value(&s->options, &best->choice);
    LHI_TRY(list_alternatives(
        s, best, elastic ? &s->elastic.rows[0] : &best->choice, plan, err));
    plan->best = best->choice;
    char standing[LHI_OPTIMALITY_TEXT], why[3 * LHI_OPTIMALITY_TEXT];
    double gap = (double)best->choice.iteration_ns /
                     (double)best->choice.lower_bound_ns -
                 1;
    lhi_format_plan_optimality(plan, &s->options, standing, sizeof standing);
    char schedule[LHI_SCHEDULE_TEXT];
    lhi_format_schedule_optimality(gap, schedule, sizeof schedule);
    snprintf(why, sizeof why, "%s; %s (%s)", standing, schedule,
             best->bound_text);
    plan->best.why = lhi_arena_strdup(s->mem, why);
    if (!plan->best.why)
        return lhi_fail_nomem(err);
    return elastic ? finish_elastic(s, plan, err) : LH_OK;
}
