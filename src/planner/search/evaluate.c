/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates a layout under schedule methods. */
#include "base/exact_equality.h"
#include "base/format_units.h"
#include "planner/layout/target.h"
#include "planner/search/cost.h"
#include "planner/search/objective.h"

#include <inttypes.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/simulate.h>
#include <stdlib.h>
#include <string.h>

lh_choice lhi_candidate_make_choice(const lhi_candidate *c, const char *method)
{
    lh_choice choice = {.status = LH_CHOICE_FAILED,
                        .layout = c->config.layout,
                        .placement = c->config.placement,
                        .recompute = c->config.recompute,
                        .zero = c->config.zero,
                        .microbatches = c->config.microbatches,
                        .chunk_layers = c->config.layers,
                        .iteration_ns = -1,
                        .makespan_ns = -1,
                        .lower_bound_ns = c->bound_ns,
                        .why = ""};
    choice.layout.schedule = method;
    return choice;
}

/* Returns one GPU's peak FLOP/s in a datacenter, in the job's precision.
 */
static double get_peak_flops(const lh_job *job, uint32_t datacenter)
{
    return job->datacenters[datacenter].gpu.flops_per_s;
}

/* Computes the peak FLOP/s over all the layout's GPUs. */
static lh_status sum_peak_flops(const lh_job *job, const lh_layout *l,
                                lhi_arena *mem, double *out, lh_error *err)
{
    bool all_equal = true;
    double sum = 0;
    for (uint32_t i = 1; i < job->n_datacenters; i++)
        all_equal = all_equal && lhi_equals_exactly(get_peak_flops(job, i),
                                                    get_peak_flops(job, 0));
    if (all_equal) {
        *out = get_peak_flops(job, 0) * (double)lh_layout_gpus(l);
        return LH_OK;
    }
    lhi_layout_placement places;
    lhi_mark mark = lhi_arena_mark(mem);
    LHI_TRY(lhi_layout_place(job, l, mem, &places, err));
    for (uint32_t g = 0; g < places.sites->n_groups; g++)
        for (uint32_t s = 0; s < l->pipeline; s++) {
            const uint32_t at =
                places.ranks[(size_t)g * l->pipeline + s].datacenter;
            const lh_layout own = lhi_layout_in_datacenter(l, at);
            sum += (double)places.sites->groups[g].replicas *
                   lhi_group_size(&own) * get_peak_flops(job, at);
        }
    lhi_arena_rewind(mem, mark);
    *out = sum;
    return LH_OK;
}

lh_status lhi_choice_compute_rates(const lh_job *job, lhi_arena *mem,
                                   lh_choice *choice, lh_error *err)
{
    double peak;
    if (choice->status != LH_CHOICE_OK || choice->iteration_ns == 0)
        return LH_OK;
    LHI_TRY(sum_peak_flops(job, &choice->layout, mem, &peak, err));
    double seconds = (double)choice->iteration_ns / 1e9;
    const lh_training *t = &job->training;
    choice->tokens_per_s =
        (double)t->global_batch * (double)t->sequence / seconds;
    choice->mfu = lh_cost_iteration_flops(job) / (seconds * peak);
    return LH_OK;
}

/* Fills a plan candidate's status, times and memory from the result `o` of a
 * schedule method on the built layout. */
static void set_outcome(const lhi_built_layout *built,
                        const lhi_method_outcome *o, lh_choice *choice)
{
    lhi_choice_clear(choice);
    choice->status = o->status;
    choice->why = o->why;
    if (o->status != LH_CHOICE_OK)
        return;
    choice->makespan_ns = o->makespan_ns;
    choice->optimizer_ns = built->optimizer_ns;
    choice->overhead_ns = built->overhead_ns;
    choice->iteration_ns =
        o->makespan_ns + built->optimizer_ns + built->overhead_ns;
    choice->bubble_ratio = o->bubble_ratio;
    choice->peak_memory_bytes = o->peak_memory_bytes;
    choice->memory_limit_bytes = o->memory_limit_bytes;
}

/* Evaluates a method as lhi_method_evaluate() does. With a makespan of
 * useless_ns (0: none) or more, the status may be FAILED. */
static lh_status evaluate_below(const lh_job *job,
                                const lh_plan_options *options,
                                const lhi_built_layout *built,
                                lhi_evaluation_cache *tried, int64_t useless_ns,
                                lhi_arena *mem, lh_choice *choice,
                                lh_schedule **schedule, lh_error *err)
{
    lhi_method_outcome outcome;
    if (schedule)
        *schedule = NULL;
    choice->status = LH_CHOICE_FAILED;
    LHI_TRY(lhi_evaluation_cache_run_method(
        tried, built->pipeline, choice->layout.schedule, options->sub_blocks,
        useless_ns, mem, &outcome, schedule, err));
    set_outcome(built, &outcome, choice);
    return lhi_choice_compute_rates(job, mem, choice, err);
}

lh_status lhi_method_evaluate(const lh_job *job, const lh_plan_options *options,
                              const lhi_built_layout *built,
                              lhi_evaluation_cache *tried, lhi_arena *mem,
                              lh_choice *choice, lh_schedule **schedule,
                              lh_error *err)
{
    return evaluate_below(job, options, built, tried, 0, mem, choice, schedule,
                          err);
}

bool lhi_method_is_considered(const lh_job *job, const lh_plan_options *options,
                              uint32_t pipeline, const lhi_method *method)
{
    if ((method->chunks == LHI_CHUNK_LAYOUT_SLICED) != (job->layout.slices > 0))
        return false;
    if (lhi_schedule_requested(job) == LHI_REQUEST_METHOD)
        return strcmp(job->layout.schedule, method->name) == 0;
    if (!lhi_target_supports_method(job->target, pipeline, method->name))
        return false;
    if (options->quick && method->kind == LHI_METHOD_SLOW)
        return false;
    return method->kind != LHI_METHOD_META;
}

/* Checks whether running a slow schedule method on a candidate may pay off: its
 * best result would have to gain the few percent that slow methods usually
 * gain, less with more chunks. With few passes slow methods always run. */
static bool is_worth_it(const lhi_layout_search *s, const lhi_candidate *c)
{
    const lh_choice *o = &c->choice;
    const uint64_t passes = 3 * (uint64_t)c->config.layout.pipeline *
                            c->config.layout.chunks_per_device *
                            c->config.microbatches;
    if ((passes <= LHI_FEW_PASSES || c->with_slow_methods) && !s->options.quick)
        return o->status != LH_CHOICE_OK || o->iteration_ns > c->bound_ns;
    int64_t share = 20 * (int64_t)c->config.layout.chunks_per_device;
    return o->status != LH_CHOICE_OK ||
           (o->iteration_ns > c->bound_ns &&
            lhi_objective_value_at(&s->options, o,
                                   o->iteration_ns - o->iteration_ns / share) <
                s->best_value);
}

/* Returns the makespan in ns from which a method's result cannot replace that
 * of the candidate: the method's number (in ties the lower one wins) decides
 * whether an equal one can. 0: none, because all results count. */
static int64_t get_useless_ns(const lhi_layout_search *s,
                              const lhi_candidate *c, const lhi_method *method)
{
    if (s->front || c->choice.status != LH_CHOICE_OK)
        return 0;
    return c->choice.makespan_ns +
           (method < lhi_method_find(c->choice.layout.schedule));
}

/* Schedules a candidate by one method; *row is the result. Stores it in
 * c->choice if it is the fastest so far; ties: the first in the list of
 * methods. `exact`: *row is used even if it is not the fastest. */
static lh_status run_method(lhi_layout_search *s, lhi_candidate *c,
                            const lhi_built_layout *built,
                            const lhi_method *method, bool exact,
                            lh_choice *row, lh_error *err)
{
    lh_choice choice = lhi_candidate_make_choice(c, method->name);
    LHI_TRY(evaluate_below(s->job, &s->options, built, s->evaluation_cache,
                           exact ? 0 : get_useless_ns(s, c, method), s->mem,
                           &choice, NULL, err));
    if (c->choice.status == LH_CHOICE_OK)
        choice.cost = c->choice.cost; /* the layout's cost */
    LHI_TRY(lhi_pricing_set_choice(s->job, s->mem, &choice, err));
    if (s->front)
        LHI_TRY(lhi_pareto_front_add(s->front, &choice, err));
    *row = choice;
    if (choice.status == LH_CHOICE_OK &&
        (c->choice.status != LH_CHOICE_OK ||
         choice.iteration_ns < c->choice.iteration_ns ||
         (choice.iteration_ns == c->choice.iteration_ns &&
          method < lhi_method_find(c->choice.layout.schedule))))
        c->choice = choice;
    if (c->choice.status != LH_CHOICE_OK &&
        (!c->choice.layout.schedule || choice.status == LH_CHOICE_MEMORY))
        c->choice = choice;
    return LH_OK;
}

/* Checks whether the method `elastic` is skipped. With ZeRO 2 and 3 its pass
 * order is an elastic plan, only slower because every pass communicates. It
 * is therefore skipped if the job allows elastic plans. */
static bool is_elastic_plan(const lhi_layout_search *s, const lhi_candidate *c,
                            const lhi_method *method)
{
    return lhi_schedule_requested(s->job) != LHI_REQUEST_METHOD &&
           strcmp(method->name, LHI_ELASTIC) == 0 && c->config.zero >= 2 &&
           lhi_elastic_is_applicable(s->job, &c->config);
}

/* Runs the representative method first, if it is considered: its result, known
 * from quick evaluations as a rule, shows early that others are slower. If it
 * fails, c->choice stays empty. */
static lh_status run_representative(lhi_layout_search *s, lhi_candidate *c,
                                    const lhi_built_layout *built,
                                    lh_error *err)
{
    const lhi_method *method = lhi_method_get_representative();
    lh_choice row;
    c->choice = lhi_candidate_make_choice(c, NULL);
    if (lhi_method_is_considered(s->job, &s->options, c->config.layout.pipeline,
                                 method))
        LHI_TRY(run_method(s, c, built, method, true, &row, err));
    if (c->choice.status != LH_CHOICE_OK)
        c->choice = lhi_candidate_make_choice(c, NULL);
    return LH_OK;
}

lh_status lhi_candidate_run_methods(lhi_layout_search *s, lhi_candidate *c,
                                    const lhi_built_layout *built,
                                    lh_schedule **best, lh_choice *all,
                                    uint32_t *n_all, lh_error *err)
{
    lh_choice row;
    if (best)
        *best = NULL;
    c->simulated = true;
    if (!all && !s->front)
        LHI_TRY(run_representative(s, c, built, err));
    else
        c->choice = lhi_candidate_make_choice(c, NULL);
    const lhi_method *done = c->choice.status == LH_CHOICE_OK
                                 ? lhi_method_get_representative()
                                 : NULL;
    for (int slow = 0; slow < 2; slow++)
        for (uint32_t m = 0; m < lhi_n_methods; m++) {
            const lhi_method *method = &lhi_methods[m];
            if (method == done ||
                !lhi_method_is_considered(s->job, &s->options,
                                          c->config.layout.pipeline, method) ||
                is_elastic_plan(s, c, method) ||
                (method->kind == LHI_METHOD_SLOW) != (slow == 1) ||
                (slow && !all && !s->exact && !is_worth_it(s, c)))
                continue;
            LHI_TRY(run_method(s, c, built, method, all != NULL, &row, err));
            if (all)
                all[(*n_all)++] = row;
        }
    if (!best || c->choice.status != LH_CHOICE_OK)
        return LH_OK;
    /* Most results are in the evaluation cache, which has no schedules. */
    lhi_method_outcome outcome;
    return lhi_evaluation_cache_run_method(
        NULL, built->pipeline, c->choice.layout.schedule, s->options.sub_blocks,
        0, s->mem, &outcome, best, err);
}

/* Runs one fast schedule method on a candidate, as a quick evaluation. */
static lh_status evaluate_quickly(lhi_layout_search *s, lhi_candidate *c,
                                  const lhi_built_layout *built, lh_error *err)
{
    lh_choice row;
    c->choice = lhi_candidate_make_choice(c, NULL);
    c->simulated = true;
    return run_method(s, c, built, lhi_method_get_representative(), true, &row,
                      err);
}

/* Builds a candidate, runs one or (`all`) every schedule method, and counts it
 * as simulated. */
static lh_status simulate_candidate(lhi_layout_search *s, lhi_candidate *c,
                                    bool all, lh_error *err)
{
    lhi_built_layout built;
    bool before = c->simulated;
    LHI_TRY(lhi_layout_build(s->job, &c->config, &built, err));
    lh_status status =
        all ? lhi_candidate_run_methods(s, c, &built, NULL, NULL, NULL, err)
            : evaluate_quickly(s, c, &built, err);
    c->fully_evaluated = all;
    lh_pipeline_free(built.pipeline);
    s->n_simulated += !before;
    return status;
}

lh_status lhi_candidate_evaluate_quickly(lhi_layout_search *s, lhi_candidate *c,
                                         lh_error *err)
{
    bool all = !lhi_method_is_considered(s->job, &s->options,
                                         c->config.layout.pipeline,
                                         lhi_method_get_representative());
    return simulate_candidate(s, c, all, err);
}

lh_status lhi_candidate_evaluate(lhi_layout_search *s, lhi_candidate *c,
                                 lh_error *err)
{
    return simulate_candidate(s, c, true, err);
}

lh_status lhi_layout_search_add_candidate(lhi_layout_search *s,
                                          const lhi_candidate *c, lh_error *err)
{
    lhi_candidate *more =
        realloc(s->candidates, (s->n + (size_t)1) * sizeof *more);
    if (!more)
        return lhi_fail_nomem(err);
    more[s->n] = *c;
    s->candidates = more;
    s->room = ++s->n;
    return LH_OK;
}

lhi_candidate *lhi_layout_search_find_best(const lhi_layout_search *s)
{
    lhi_candidate *best = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        lhi_candidate *c = &s->candidates[i];
        if (lhi_candidate_is_feasible(c) &&
            (!best || lhi_objective_value(&s->options, &c->choice) <
                          lhi_objective_value(&s->options, &best->choice)))
            best = c;
    }
    return best;
}
