/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts with two directions (placement BD), for jobs whose schedule requires
 * them. They have one chunk per device and direction, with the layers divided
 * evenly or as the job requires (docs/theory/two-directions.md). */
#include "planner/search/two_directions.h"

#include "base/integer_math.h"
#include "base/sort.h"
#include "model/shape.h"
#include "planner/layout/target.h"
#include "planner/search/objective.h"
#include "planner/search/search_budget.h"

#include <math.h>
#include <stdlib.h>

/* Share of the work of the search over the other layouts. */
enum { WORK_DIVISOR = 8 };

/* A layout, and the work bound on its iteration time. */
typedef struct open_layout {
    lhi_config config;
    int64_t ns;
} open_layout;

/* Search state. */
typedef struct direction_search {
    lhi_layout_search *s;
    lhi_space space;
    lhi_level level; /* of the configurations that the visitor receives */
    lhi_bound_inputs *inputs;
    /* the group for which passes_ns holds */
    lhi_config group;
    int64_t passes_ns;  /* least time of all passes of one microbatch */
    int64_t useless_ns; /* from the other searches */
    open_layout *all;
    uint32_t n, room;
} direction_search;

bool lhi_two_directions_are_searched(const lh_job *job,
                                     const lh_plan_options *options)
{
    return lhi_schedule_requires_two_directions(job) &&
           job->target == LH_TARGET_ANY && job->layout.chunks_per_device <= 1 &&
           options->objective == LH_PLAN_FASTEST && !options->pareto_front &&
           !options->jitter && !options->elastic_as_published &&
           options->partition != LH_PARTITION_MONTE_CARLO;
}

/* Returns the time from which a layout is useless, in ns. */
static int64_t get_useless_ns(const lhi_layout_search *s)
{
    const lhi_candidate *best = lhi_layout_search_find_best(s);
    return lhi_layout_search_useless_ns(s, best ? best->choice.iteration_ns
                                                : INT64_MAX);
}

/* Computes d->passes_ns, the least F, D and W time of the model for one
 * microbatch over all datacenters, unless d->group has it. */
static lh_status compute_passes(direction_search *d, const lhi_config *config,
                                lh_error *err)
{
    const lh_layout *l = &config->layout, *k = &d->group.layout;
    if (k->tensor == l->tensor && k->context == l->context &&
        k->expert == l->expert && k->expert_tensor == l->expert_tensor &&
        k->micro_batch == l->micro_batch)
        return LH_OK;
    d->passes_ns = INT64_MAX;
    for (uint32_t i = 0; i < d->s->job->n_datacenters; i++) {
        int64_t ns;
        LHI_TRY(
            lhi_bound_inputs_compute_passes(d->inputs, config, i, &ns, err));
        d->passes_ns = lhi_min_int64(d->passes_ns, ns);
    }
    d->group = *config;
    return LH_OK;
}

/* Returns the work bound on the iteration time in ns: all passes, evenly over
 * all stages. */
static int64_t compute_work_bound(const direction_search *d,
                                  const lhi_config *config)
{
    const double ns =
        (double)d->passes_ns * config->microbatches / config->layout.pipeline;
    return ns < 0x1p60 ? (int64_t)ns + lhi_find_iteration_overhead_ns(d->s->job)
                       : INT64_MAX;
}

/* Records that layouts with the values that `config` has decided on `level`
 * take at least `ns`, for the comparison of dimensions. */
static lh_status note_bound(const lhi_layout_search *s, lhi_level level,
                            const lhi_config *config, int64_t ns, lh_error *err)
{
    return s->unexplored && ns < INT64_MAX
               ? lhi_unexplored_add_bound(s->unexplored, level, config, ns, err)
               : LH_OK;
}

/* Appends the layout with two directions below `config`, which has decided all
 * else, to the list; skips it if plans do not support it. */
static lh_status add_layout(direction_search *d, const lhi_config *config,
                            lh_error *err)
{
    open_layout open = {*config, compute_work_bound(d, config)};
    open.config.layout.chunks_per_device = 1;
    open.config.placement = LH_PLACEMENT_BD;
    open.config.layers = lhi_layers_requested(d->s->job, &open.config.layout);
    const lh_job as_configured = lhi_config_job(d->s->job, &open.config);
    if (lhi_two_directions_check(&as_configured, &open.config, NULL) != LH_OK)
        return LH_OK;
    if (d->n == d->room) {
        const uint32_t room = d->room ? 2 * d->room : 16;
        open_layout *more = realloc(d->all, room * sizeof *more);
        if (!more)
            return lhi_fail_nomem(err);
        d->all = more;
        d->room = room;
    }
    d->all[d->n++] = open;
    return LH_OK;
}

/* Visits a configuration on d->level of the search tree: lists the layouts with
 * two directions below it. Skips those that their work bound excludes. Visitor
 * callback. */
static lh_status visit(void *context, const lhi_config *config, lh_error *err)
{
    direction_search *d = context;
    const lhi_level level = d->level;
    if (level == LHI_LEVEL_DEGREES) {
        const lh_layout *l = &config->layout;
        if (l->pipeline % 2 != 0 || l->pipeline > d->s->job->model->layers ||
            config->microbatches % 2 != 0)
            return LH_OK;
        LHI_TRY(compute_passes(d, config, err));
        const int64_t ns = compute_work_bound(d, config);
        if (ns >= d->useless_ns) {
            d->s->pruned[LHI_BOUND_WORK]++;
            return note_bound(d->s, level, config, ns, err);
        }
    }
    if (level == LHI_LEVEL_STATE)
        return add_layout(d, config, err);
    d->level = (lhi_level)(level + 1);
    const lh_status status =
        lhi_space_children(&d->space, level, config, NULL, visit, d, err);
    d->level = level;
    return status;
}

/* Orders layouts by their work bounds, then by ZeRO stage. Callback for
 * lhi_sort(), which keeps the order of the others. */
static int compare_layouts(const void *x, const void *y)
{
    const open_layout *a = x, *b = y;
    if (a->ns != b->ns)
        return a->ns < b->ns ? -1 : 1;
    return (a->config.zero > b->config.zero) -
           (a->config.zero < b->config.zero);
}

/* Evaluates one layout and appends it to the candidates; subtracts its work
 * from *work. */
static lh_status evaluate(lhi_layout_search *s, const open_layout *open,
                          uint64_t *work, lh_error *err)
{
    lhi_candidate c = {.config = open->config,
                       .lower_bound = {.ns = open->ns, .kind = LHI_BOUND_WORK},
                       .rebalanced = true};
    uint64_t needs = lhi_estimate_pipeline_work(&c.config);
    LHI_TRY(lhi_candidate_compute_bound(s, &c, err));
    if (c.bound_ns < get_useless_ns(s)) {
        needs += lhi_estimate_schedule_work(&c.config, true);
        LHI_TRY(lhi_candidate_evaluate(s, &c, err));
    }
    *work -= needs < *work ? needs : *work;
    s->proven_ns = lhi_min_int64(s->proven_ns, c.bound_ns);
    if (lhi_candidate_is_feasible(&c))
        s->best_ns = s->best_value =
            lhi_min_int64(s->best_ns, c.choice.iteration_ns);
    if (c.bound_ns < INT64_MAX)
        c.lower_bound.ns = c.bound_ns; /* its only layer partition */
    LHI_TRY(note_bound(s, LHI_LEVEL_COMPLETE, &c.config, c.bound_ns, err));
    return lhi_layout_search_add_candidate(s, &c, err);
}

/* Evaluates the listed layouts, least work bound first, until a bound excludes
 * the others or the work is spent. */
static lh_status evaluate_all(direction_search *d, lh_error *err)
{
    lhi_layout_search *s = d->s;
    uint64_t work = lhi_compute_layout_work(&s->options) / WORK_DIVISOR;
    bool stopped = false;
    for (uint32_t i = 0; i < d->n; i++) {
        const open_layout *open = &d->all[i];
        const bool useless = open->ns >= get_useless_ns(s);
        stopped = stopped || work == 0 ||
                  lhi_layout_search_should_stop(s, d->n, false);
        if (!useless && !stopped) {
            LHI_TRY(evaluate(s, open, &work, err));
            continue;
        }
        s->pruned[LHI_BOUND_WORK] += useless;
        s->n_unexplored += !useless;
        s->proven_ns = lhi_min_int64(s->proven_ns, open->ns);
        LHI_TRY(
            note_bound(s, LHI_LEVEL_COMPLETE, &open->config, open->ns, err));
    }
    return LH_OK;
}

lh_status lhi_layout_search_add_two_directions(lhi_layout_search *s,
                                               lh_error *err)
{
    direction_search d = {
        .s = s, .level = LHI_LEVEL_GROUP, .useless_ns = get_useless_ns(s)};
    const lhi_config none = {0};
    if (!lhi_two_directions_are_searched(s->job, &s->options))
        return LH_OK;
    lh_status status = lhi_space_init(s->job, s->mem, &d.space, err);
    if (status == LH_OK)
        status = lhi_bound_inputs_make(s->job, 1, &d.inputs, err);
    if (status == LH_OK)
        status = lhi_space_children(&d.space, LHI_LEVEL_NONE, &none, NULL,
                                    visit, &d, err);
    if (status == LH_OK) {
        if (d.n > 1)
            lhi_sort(d.all, d.n, sizeof *d.all, compare_layouts);
        status = evaluate_all(&d, err);
    }
    free(d.all);
    lhi_bound_inputs_free(d.inputs);
    lhi_space_fini(&d.space);
    return status;
}
