/* SPDX-License-Identifier: Apache-2.0 */
#include "base/integer_math.h"
#include "base/options.h"
#include "planner/layout/choice.h"
#include "report/comparison/compare_internal.h"

#include <longhaul/scheduler.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PLACEMENTS = 4,
    MAX_BASES = MAX_PLACEMENTS + 1, /* and a plan's elastic pipeline */
};

static const char *const by_names[] = {"predicted", "mean", "p95"};

uint32_t lh_n_compare_criteria(void)
{
    return sizeof by_names / sizeof *by_names;
}

const char *lh_compare_criterion_name(lh_compare_criterion by)
{
    return (uint32_t)by < lh_n_compare_criteria() ? by_names[by] : NULL;
}

/* A comparison under construction, with all the memory that it owns. */
typedef struct comparison_state {
    lh_comparison shown; /* first: the caller's pointer is to this */
    lhi_arena *mem;
    lh_compare_options how;
    lh_compare_base *bases;
    lh_contender *contenders;
    lh_outcome *outcomes;
    lh_pipeline *own[MAX_BASES];
    lh_compare_rejected_placement left_out[MAX_PLACEMENTS];
    const lh_plan *plan; /* NULL: the comparison is between pipelines */
    uint32_t plans;      /* own pipeline's index */
} comparison_state;

void lh_comparison_free(lh_comparison *comparison)
{
    comparison_state *x = (comparison_state *)comparison;
    if (!x)
        return;
    for (uint32_t i = 0; i < MAX_BASES; i++)
        lh_pipeline_free(x->own[i]);
    lhi_arena_free(x->mem); /* frees x itself, too */
}

const lh_outcome *lh_comparison_at(const lh_comparison *x, uint32_t latency,
                                   uint32_t transfer, uint32_t contender)
{
    size_t point = (size_t)transfer * x->n_latencies + latency;
    return &x->outcomes[point * x->n_contenders + contender];
}

/* Checks whether outcome `a` ranks before `b`: successful ones before failures,
 * those within memory before others, then by shorter time. */
static bool is_better(const lh_outcome *a, const lh_outcome *b)
{
    if (a->ns < 0 || b->ns < 0)
        return a->ns >= 0 && b->ns < 0;
    if (a->fits != b->fits)
        return a->fits;
    return a->ns < b->ns;
}

void lh_comparison_rank(const lh_comparison *x, uint32_t latency,
                        uint32_t transfer, uint32_t *ranking)
{
    for (uint32_t i = 0; i < x->n_contenders; i++) {
        const lh_outcome *mine = lh_comparison_at(x, latency, transfer, i);
        uint32_t at = i; /* insertion sort: equals keep their order */
        for (; at > 0 && is_better(mine, lh_comparison_at(x, latency, transfer,
                                                          ranking[at - 1]));
             at--)
            ranking[at] = ranking[at - 1];
        ranking[at] = i;
    }
}

/* --- contenders ---------------------------------------------------------- */

/* Validates the options and allocates an empty comparison for `n_bases` bases
 * (pipelines to compare); the caller frees it. LH_EINVAL: mean and p95 need
 * jitter. */
static lh_status begin_comparison(const lh_compare_options *options,
                                  uint32_t n_bases, comparison_state **out,
                                  lh_error *err)
{
    lh_compare_options how;
    LHI_TRY(LHI_OPTIONS_COPY(lh_compare_options, &how, options, err));
    if (!lh_compare_criterion_name(how.by) ||
        (how.by != LH_COMPARE_BY_PREDICTED && !how.jitter))
        return lhi_fail(err, LH_EINVAL,
                        "lh_compare_options.by: only LH_COMPARE_BY_PREDICTED "
                        "is possible without jitter");
    for (uint32_t i = 0; i < how.n_methods; i++)
        LHI_TRY(lh_scheduler_check_name(how.methods[i], err));
    lhi_arena *mem = lhi_arena_make(0);
    comparison_state *x = mem ? LHI_NEW(mem, comparison_state, 1) : NULL;
    lh_compare_base *bases = x ? LHI_NEW(mem, lh_compare_base, n_bases) : NULL;
    if (!bases) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    x->mem = mem;
    x->how = how;
    x->bases = bases;
    *out = x;
    return LH_OK;
}

/* Checks whether base number `base` is an elastic plan's pipeline, which is
 * valid only with that plan's schedule. */
static bool is_elastic(const comparison_state *x, uint32_t base)
{
    return x->plan && x->plan->best.elastic && base == x->plans;
}

/* Returns the plan's own schedule if base `base` (a compared pipeline) is the
 * plan's pipeline and `method` the plan's method, else NULL: a second search
 * could return another schedule. */
static const lh_schedule *find_plan_schedule(const comparison_state *x,
                                             uint32_t base, const char *method)
{
    if (!x->plan || base != x->plans || x->how.sub_blocks > 1 ||
        strcmp(method, x->plan->best.layout.schedule) != 0)
        return NULL;
    return x->plan->schedule;
}

/* Returns the plan's own schedule if the contender (a pipeline with a method)
 * uses it while delays are unchanged; borrowed. NULL: the contender's method
 * builds a schedule. */
const lh_schedule *lh_comparison_schedule(const lh_comparison *comparison,
                                          uint32_t contender)
{
    const comparison_state *x = (const comparison_state *)comparison;
    const lh_contender *entry = &comparison->contenders[contender];
    return find_plan_schedule(x, entry->base, entry->method);
}

/* Checks whether a method takes part in the comparison: in the options' list,
 * or by default. The default excludes "auto", and searches during a sweep. */
static bool is_selected(const lh_compare_options *how, const char *method)
{
    if (how->n_methods == 0)
        return !lh_method_is_auto(method) &&
               (!lh_scheduler_is_search(method) ||
                !((how->latency && how->latency->n_values) ||
                  (how->transfer && how->transfer->n_values)));
    for (uint32_t i = 0; i < how->n_methods; i++)
        if (strcmp(how->methods[i], method) == 0)
            return true;
    return false;
}

/* Builds the contender list: each base (pipeline) with each method that takes
 * part. */
static lh_status build_contenders(comparison_state *x, lh_error *err)
{
    lh_comparison *s = &x->shown;
    x->contenders =
        LHI_NEW(x->mem, lh_contender, (size_t)s->n_bases * lh_n_schedulers());
    if (!x->contenders)
        return lhi_fail_nomem(err);
    for (uint32_t b = 0; b < s->n_bases; b++)
        for (uint32_t m = 0; m < lh_n_schedulers(); m++) {
            const char *method = lh_scheduler_name(m);
            const char *name = s->n_bases > 1 ? x->bases[b].name : "";
            if (!is_selected(&x->how, method) ||
                (is_elastic(x, b) && !find_plan_schedule(x, b, method)))
                continue;
            char label[96];
            snprintf(label, sizeof label, "%s%s%s", method, *name ? " " : "",
                     name);
            x->contenders[s->n_contenders++] =
                (lh_contender){.method = method,
                               .base = b,
                               .label = lhi_arena_strdup(x->mem, label)};
            if (!x->contenders[s->n_contenders - 1].label)
                return lhi_fail_nomem(err);
        }
    return LH_OK;
}

/* --- evaluation ---------------------------------------------------------- */

/* Sets the lower bound of all outcomes of base `base` to the best one that any
 * of its methods found: a bound on the makespan holds for all schedules,
 * whatever the objective. */
static void share_bounds(const comparison_state *x, uint32_t base,
                         lh_outcome *outcomes)
{
    int64_t bound_ns = 0;
    for (uint32_t i = 0; i < x->shown.n_contenders; i++)
        if (x->contenders[i].base == base && outcomes[i].bound_ns > bound_ns)
            bound_ns = outcomes[i].bound_ns;
    for (uint32_t i = 0; i < x->shown.n_contenders; i++)
        if (x->contenders[i].base == base && outcomes[i].bound_ns > 0)
            outcomes[i].bound_ns = bound_ns;
}

/* Evaluates all contenders at one sweep point: latency number `l`, transfer
 * time number `t`. */
static lh_status evaluate_point(comparison_state *x, uint32_t l, uint32_t t,
                                lh_error *err)
{
    const lh_comparison *s = &x->shown;
    lh_status status = LH_OK;
    size_t point = (size_t)t * s->n_latencies + l;
    for (uint32_t b = 0; status == LH_OK && b < s->n_bases; b++) {
        const lh_pipeline *as_is = x->bases[b].pipeline;
        int64_t forward_ns = lhi_compare_forward_ns(as_is);
        int64_t latency_ns =
            lhi_compare_delay_ns(x->how.latency, l, forward_ns);
        int64_t transfer_ns =
            lhi_compare_delay_ns(x->how.transfer, t, forward_ns);
        lh_pipeline *other = NULL;
        if (latency_ns >= 0 || transfer_ns >= 0)
            status = lhi_compare_build_delayed(as_is, latency_ns, transfer_ns,
                                               &other, err);
        const lh_pipeline *p = other ? other : as_is;
        for (uint32_t i = 0; status == LH_OK && i < s->n_contenders; i++) {
            lh_outcome *o = &x->outcomes[point * s->n_contenders + i];
            if (x->contenders[i].base != b)
                continue;
            lhi_compare_case on = {
                .pipeline = p,
                .schedule_pipeline =
                    x->how.fixed_schedules || is_elastic(x, b) ? as_is : p,
                .after_ns = x->bases[b].after_ns};
            if (on.schedule_pipeline == as_is)
                on.schedule = find_plan_schedule(x, b, x->contenders[i].method);
            if (on.schedule && p == as_is)
                on.bound_ns = x->plan->best.lower_bound_ns - on.after_ns;
            status = lhi_compare_evaluate_method(
                &x->how, x->contenders[i].method, &on, x->mem, o, err);
            o->latency_ns = latency_ns;
            o->transfer_ns = transfer_ns;
        }
        lh_pipeline_free(other);
        share_bounds(x, b, &x->outcomes[point * s->n_contenders]);
    }
    return status;
}

/* Returns the point count on one sweep axis (`delays`); 1 if that axis is not
 * swept. */
static uint32_t count_values(const lh_compare_delays *delays)
{
    return delays && delays->n_values ? delays->n_values : 1;
}

/* Evaluates all contenders at all sweep points (combinations of latency and
 * transfer time). LH_ECANCELED: the progress callback asked to stop. */
static lh_status evaluate_all(comparison_state *x, lh_error *err)
{
    lh_comparison *s = &x->shown;
    s->n_latencies = count_values(x->how.latency);
    s->n_transfers = count_values(x->how.transfer);
    size_t points = (size_t)s->n_latencies * s->n_transfers;
    x->outcomes = LHI_NEW(x->mem, lh_outcome, points * s->n_contenders);
    if (!x->outcomes)
        return lhi_fail_nomem(err);
    s->outcomes = x->outcomes;
    for (uint32_t t = 0; t < s->n_transfers; t++)
        for (uint32_t l = 0; l < s->n_latencies; l++) {
            if (x->how.progress &&
                x->how.progress(x->how.context, t * s->n_latencies + l,
                                (uint32_t)points))
                return lhi_fail(err, LH_ECANCELED, "stopped");
            LHI_TRY(evaluate_point(x, l, t, err));
        }
    return LH_OK;
}

/* Checks whether a contender's method is unsupported on its pipeline at every
 * sweep point. Such contenders are dropped if another pipeline supports the
 * method: most methods support only one of the three placements. */
static bool is_never_supported(const lh_comparison *x, uint32_t contender)
{
    for (uint32_t t = 0; t < x->n_transfers; t++)
        for (uint32_t l = 0; l < x->n_latencies; l++)
            if (lh_comparison_at(x, l, t, contender)->status != LH_EUNSUPPORTED)
                return false;
    return true;
}

/* Checks whether a contender's method is supported on any of the compared
 * pipelines at any sweep point. */
static bool is_supported_elsewhere(const comparison_state *x,
                                   uint32_t contender)
{
    for (uint32_t i = 0; i < x->shown.n_contenders; i++)
        if (strcmp(x->contenders[i].method, x->contenders[contender].method) ==
                0 &&
            !is_never_supported(&x->shown, i))
            return true;
    return false;
}

/* Drops the contenders whose method only other pipelines support. */
static lh_status drop_unsupported(comparison_state *x, lh_error *err)
{
    lh_comparison *s = &x->shown;
    bool *out = LHI_NEW(x->mem, bool, s->n_contenders);
    if (!out)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < s->n_contenders; i++)
        out[i] = is_never_supported(s, i) && is_supported_elsewhere(x, i);
    size_t points = (size_t)s->n_latencies * s->n_transfers, kept = 0;
    for (size_t i = 0; i < points * s->n_contenders; i++)
        if (!out[i % s->n_contenders])
            x->outcomes[kept++] = x->outcomes[i];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_contenders; i++)
        if (!out[i])
            x->contenders[n++] = x->contenders[i];
    s->n_contenders = n;
    return LH_OK;
}

/* Evaluates all contenders and drops unsupported ones. On success x becomes
 * *out; on failure x is freed. */
static lh_status run_comparison(comparison_state *x, lh_comparison **out,
                                lh_error *err)
{
    x->shown.bases = x->bases;
    x->shown.left_out = x->left_out;
    lh_status status = build_contenders(x, err);
    x->shown.contenders = x->contenders;
    if (status == LH_OK)
        status = evaluate_all(x, err);
    if (status == LH_OK)
        status = drop_unsupported(x, err);
    if (status != LH_OK) {
        lh_comparison_free(&x->shown);
        return status;
    }
    *out = &x->shown;
    return LH_OK;
}

lh_status lh_compare(uint32_t n_bases, const lh_compare_base *bases,
                     const lh_compare_options *options, lh_comparison **out,
                     lh_error *err)
{
    comparison_state *x = NULL;
    if (n_bases == 0)
        return lhi_fail(err, LH_EINVAL,
                        "a comparison requires at least one pipeline");
    LHI_TRY(begin_comparison(options, n_bases, &x, err));
    for (uint32_t i = 0; i < n_bases; i++) {
        x->bases[i] = bases[i];
        x->bases[i].name = lhi_arena_strdup(x->mem, bases[i].name);
        if (!x->bases[i].name) {
            lh_comparison_free(&x->shown);
            return lhi_fail_nomem(err);
        }
    }
    x->shown.n_bases = n_bases;
    return run_comparison(x, out, err);
}

/* --- a plan's placements ------------------------------------------------- */

/* Adds the plan's pipeline with another placement to the comparison: the plan's
 * own one if it has that placement, else its layout rebuilt with `chunks`
 * chunks per device. All other choices stay, and the layers per chunk too if
 * the chunk count is the same. */
static lh_status add_placement(comparison_state *x, lh_placement placement,
                               uint32_t chunks, lh_error *err)
{
    uint32_t at = x->shown.n_bases;
    const lh_choice *best = &x->plan->best;
    lhi_config config = lhi_config_from_choice(best);
    lhi_built_layout built;
    x->bases[at] =
        (lh_compare_base){.name = lh_placement_name(placement),
                          .pipeline = x->plan->pipeline,
                          .after_ns = best->optimizer_ns + best->overhead_ns};
    if (!best->elastic && placement == best->placement &&
        chunks == config.layout.chunks_per_device) {
        x->plans = x->shown.n_bases++;
        return LH_OK;
    }
    if (chunks != config.layout.chunks_per_device)
        config.layers = NULL;
    config.layout.chunks_per_device = chunks;
    config.placement = placement;
    config.elastic = NULL; /* other schedules shard within their passes */
    LHI_TRY(lhi_layout_build(x->plan->job, &config, &built, err));
    x->bases[at].pipeline = x->own[at] = built.pipeline;
    x->bases[at].after_ns = built.optimizer_ns + built.overhead_ns;
    x->shown.n_bases++;
    return LH_OK;
}

/* Adds an elastic plan's own pipeline to the comparison, for the plan's
 * schedule only; methods run on the other pipelines. */
static void add_elastic(comparison_state *x)
{
    const lh_choice *best = &x->plan->best;
    if (!best->elastic)
        return;
    x->plans = x->shown.n_bases++;
    x->bases[x->plans] =
        (lh_compare_base){.name = "plan",
                          .pipeline = x->plan->pipeline,
                          .after_ns = best->optimizer_ns + best->overhead_ns};
}

/* Adds a pipeline for each placement that the plan's layout allows; records
 * the reason for each rejected placement. LH_EINFEASIBLE: none is left. */
static lh_status add_placements(comparison_state *x, lh_error *err)
{
    const lh_layout *best = &x->plan->best.layout;
    uint32_t fixed = x->plan->job->layout.chunks_per_device;
    const struct {
        lh_placement placement;
        uint32_t chunks;
    } ways[MAX_PLACEMENTS] = {{LH_PLACEMENT_UD, 1},
                              {LH_PLACEMENT_LOOP, best->chunks_per_device > 2
                                                      ? best->chunks_per_device
                                                      : 2},
                              {LH_PLACEMENT_WAVE, 2},
                              {LH_PLACEMENT_BD, 1}};
    for (uint32_t i = 0; i < MAX_PLACEMENTS; i++) {
        lh_error why = {0};
        if (fixed && fixed != ways[i].chunks)
            continue;
        /* On a single rank a wave equals two chunks in turn. */
        if (best->pipeline == 1 && ways[i].placement == LH_PLACEMENT_WAVE)
            continue;
        /* Two directions are compared if the plan has them. */
        if (ways[i].placement == LH_PLACEMENT_BD &&
            x->plan->best.placement != LH_PLACEMENT_BD)
            continue;
        lh_status status =
            add_placement(x, ways[i].placement, ways[i].chunks, &why);
        if (status == LH_OK)
            continue;
        if (status != LH_EUNSUPPORTED && status != LH_EINFEASIBLE) {
            if (err)
                *err = why;
            return status;
        }
        const char *text = lhi_arena_strdup(x->mem, why.text);
        if (!text)
            return lhi_fail_nomem(err);
        x->left_out[x->shown.n_left_out++] =
            (lh_compare_rejected_placement){ways[i].placement, text};
    }
    add_elastic(x);
    if (x->shown.n_bases == 0)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "no placement of the plan's layout is feasible: %s",
                        x->left_out[0].why);
    return LH_OK;
}

lh_status lh_compare_plan(const lh_plan *plan,
                          const lh_compare_options *options,
                          lh_comparison **out, lh_error *err)
{
    comparison_state *x = NULL;
    lh_jitter jitter;
    LHI_TRY(begin_comparison(options, MAX_BASES, &x, err));
    x->shown.iterations = true;
    x->plan = plan;
    x->plans = LH_NONE;
    lh_status status = LH_OK;
    if (x->how.jitter) {
        status =
            lh_plan_jitter(plan->job, &plan->best, x->how.jitter, &jitter, err);
        x->how.jitter = &jitter;
    }
    if (status == LH_OK)
        status = add_placements(x, err);
    if (status != LH_OK) {
        lh_comparison_free(&x->shown);
        return status;
    }
    return run_comparison(x, out, err);
}
