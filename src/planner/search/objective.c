/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/objective.h"

#include "base/format_units.h"
#include "base/integer_math.h"
#include "base/sort.h"

#include "format/job/job_values.h"
#include "model/shape.h"
#include "planner/search/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Nanoseconds per hour. */
#define HOUR_NS 3.6e12
#define HURDLE 0.02
/* Objective value from which plans are beyond the limit: the bits of infinity,
 * above those of every cost. */
#define FIRST_LATE INT64_C(0x7ff0000000000000)

/* Converts a cost in USD to an integer with the same order: the bits of a
 * non-negative IEEE 754 number. */
static int64_t convert_to_ordered_integer(double usd)
{
    int64_t bits;
    if (!(usd > 0))
        return 0;
    memcpy(&bits, &usd, sizeof bits);
    return bits;
}

bool lhi_objective_is_late(const lh_plan_options *options, int64_t iteration_ns)
{
    return options->objective == LH_PLAN_CHEAPEST &&
           options->max_iteration_ns > 0 &&
           iteration_ns > options->max_iteration_ns;
}

int64_t lhi_objective_value_at(const lh_plan_options *options,
                               const lh_choice *choice, int64_t iteration_ns)
{
    const lh_plan_cost *c = choice->cost;
    if (options->objective != LH_PLAN_CHEAPEST)
        return iteration_ns;
    if (!c)
        return INT64_MAX;
    if (lhi_objective_is_late(options, iteration_ns)) /* beyond all costs */
        return FIRST_LATE +
               lhi_min_int64(iteration_ns, INT64_MAX - FIRST_LATE - 1);
    return convert_to_ordered_integer(
        c->usd_per_hour * ((double)iteration_ns / HOUR_NS) + c->between_usd);
}

int64_t lhi_objective_value(const lh_plan_options *options,
                            const lh_choice *choice)
{
    return lhi_objective_value_at(options, choice, choice->iteration_ns);
}

/* Returns the quantity that the objective minimises: iteration time in ns, or
 * cost in USD. */
static double get_amount(const lh_plan_options *options, const lh_choice *c)
{
    double ns = (double)c->iteration_ns;
    if (options->objective != LH_PLAN_CHEAPEST || !c->cost)
        return ns;
    return c->cost->usd_per_hour * (ns / HOUR_NS) + c->cost->between_usd;
}

double lhi_compute_relative_gap(const lh_plan_options *options,
                                const lh_choice *choice, const lh_choice *best)
{
    double least = get_amount(options, best);
    return least > 0 ? get_amount(options, choice) / least - 1 : 0;
}

double lhi_compute_bound_gap(const lh_plan_options *options,
                             const lh_plan *plan)
{
    const double least = options->objective == LH_PLAN_CHEAPEST
                             ? plan->search_bound_usd
                             : (double)plan->search_bound_ns;
    return least > 0 ? get_amount(options, &plan->best) / least - 1 : INFINITY;
}

double lhi_compute_percent_gap(const lh_plan_options *options,
                               const lh_choice *choice, const lh_choice *best)
{
    return lhi_drop_negative_zero(
        100 * lhi_compute_relative_gap(options, choice, best), 1);
}

/* --- lists ---------------------------------------------------------------- */

/* Orders plan candidates by status, then by objective value; infeasible ones by
 * lower bound. */
static int compare_choices(const lh_plan_options *options, const lh_choice *x,
                           const lh_choice *y)
{
    if (x->status != y->status)
        return x->status < y->status ? -1 : 1;
    bool ok = x->status == LH_CHOICE_OK;
    int64_t m = ok ? lhi_objective_value(options, x) : x->lower_bound_ns;
    int64_t n = ok ? lhi_objective_value(options, y) : y->lower_bound_ns;
    return (m > n) - (m < n);
}

/* Orders plan candidates by iteration time. */
static int compare_times(const void *a, const void *b)
{
    return compare_choices(&(lh_plan_options){.objective = LH_PLAN_FASTEST}, a,
                           b);
}

/* Orders plan candidates by cost. */
static int compare_costs(const void *a, const void *b)
{
    return compare_choices(&(lh_plan_options){.objective = LH_PLAN_CHEAPEST}, a,
                           b);
}

void lhi_sort_choices(const lh_plan_options *options, lh_choice *list,
                      uint32_t n)
{
    if (n && (options->objective != LH_PLAN_CHEAPEST ||
              options->max_iteration_ns > 0))
        lhi_sort(list, n, sizeof *list, compare_times);
    if (!n || options->objective != LH_PLAN_CHEAPEST)
        return;
    uint32_t in_time = 0; /* those beyond the limit stay in order of time */
    while (in_time < n && list[in_time].status == LH_CHOICE_OK &&
           !lhi_objective_is_late(options, list[in_time].iteration_ns))
        in_time++;
    if (!(options->max_iteration_ns > 0))
        in_time = n;
    if (in_time)
        lhi_sort(list, in_time, sizeof *list, compare_costs);
}

/* --- bounds --------------------------------------------------------------- */

/* Computes a lower bound on an iteration's GPU cost in USD, from `floor`, the
 * bound on the time. GPUs not decided on `level` (depth in the search tree)
 * have the lowest price. */
static double compute_gpu_cost_bound(const lhi_cost_objective *g,
                                     lhi_level level, const lhi_config *config,
                                     const lhi_lower_bound *floor)
{
    const lh_layout *l = &config->layout;
    uint32_t group = lhi_group_size(l);
    uint64_t gpus = (uint64_t)group * l->pipeline * l->data;
    /* While degrees are open, the bound covers all passes on all GPUs; fewer
     * GPUs take longer, with the same total. */
    if (level < LHI_LEVEL_DEGREES)
        gpus = g->job->n_gpus / group * group;
    return (double)gpus * (double)floor->ns * g->usd_per_ns;
}

/* Decides values of a placed configuration that are open on `level`, so that
 * its traffic is the least: one chunk per device, because more chunks send more
 * messages; ZeRO 1, because every other stage and every elastic plan sends at
 * least one gather and one reduction, or two reductions as hybrid shards. */
static void choose_least_traffic(const lhi_cost_objective *g, lhi_level level,
                                 lhi_config *config)
{
    config->layout.chunks_per_device = 1;
    config->placement = LH_PLACEMENT_UD;
    config->layers = NULL;
    if (level >= LHI_LEVEL_STATE)
        return;
    config->zero_given = true;
    config->zero = 1;
    config->layout.sharding =
        g->gathers_are_less ? LH_SHARDING_FULL : LH_SHARDING_HYBRID;
}

double lhi_cost_objective_bound(lhi_cost_objective *g, lhi_level level,
                                const lhi_config *config,
                                const lhi_lower_bound *floor)
{
    lhi_layout_price price;
    lhi_config least = *config;
    const bool complete = level >= LHI_LEVEL_COMPLETE;
    if (!(g->usd_per_ns > 0))
        return 0;
    if (level < LHI_LEVEL_PLACED)
        return compute_gpu_cost_bound(g, level, config, floor);
    if (!complete)
        choose_least_traffic(g, level, &least);
    lh_status status =
        lhi_pricing_compute_bound(g->job, &least, complete, &price, NULL);
    if (status == LH_ENOMEM)
        g->no_memory = true;
    if (status != LH_OK)
        return compute_gpu_cost_bound(g, level, config, floor);
    /* Keeps rounding below the exact bound. */
    return lhi_pricing_iteration_usd(&price, (double)floor->ns) *
           (complete ? 1 - 1e-12 : 1 - 1e-9);
}

/* Returns a penalty, as a share of the cost, by which layouts with many passes
 * per GPU are explored later; 0 before `level` decides the degrees. Few GPUs
 * mean many microbatches, whose evaluation takes long. Pruning is unaffected.
 */
static double compute_order_penalty(lhi_level level, const lhi_config *config)
{
    if (level < LHI_LEVEL_DEGREES)
        return 0;
    uint64_t passes = (uint64_t)config->microbatches * config->layout.pipeline;
    double doublings = 0;
    for (; passes > 64; passes /= 2)
        doublings++;
    return HURDLE * doublings;
}

/* Returns the lower bound by which the search orders its nodes: the time bound
 * `floor` or, if the objective is cost, the cost bound plus
 * compute_order_penalty(). `level`: depth in the search tree. Objective
 * callback. */
static int64_t bound_cost(void *context, lhi_level level,
                          const lhi_config *config,
                          const lhi_lower_bound *floor)
{
    lhi_cost_objective *g = context;
    if (!g->cost)
        return floor->ns;
    double usd = lhi_cost_objective_bound(g, level, config, floor);
    return convert_to_ordered_integer(
        usd * (1 + compute_order_penalty(level, config)));
}

/* Checks whether the cost bound `least`, or the Pareto front with time bound
 * `floor`, shows that no plan with the values decided on `level` is useful.
 * Objective callback. */
static bool is_plan_useless(void *context, int64_t least, lhi_level level,
                            const lhi_config *config,
                            const lhi_lower_bound *floor)
{
    lhi_cost_objective *g = context;
    (void)least;
    if (g->max_ns > 0 && floor->ns > g->max_ns)
        return true;
    if (!g->front)
        return lhi_cost_objective_bound(g, level, config, floor) >= g->best_usd;
    bool memory = g->even_memory || floor->memory_bytes == INT64_MAX;
    lhi_pareto_point point = {
        floor->ns, memory ? floor->memory_bytes : 0,
        lhi_cost_objective_bound(g, level, config, floor)};
    return lhi_pareto_front_covers(g->front, &point);
}

/* Returns a candidate's objective value (a cost as an ordered integer).
 * Objective callback. */
static int64_t get_value(void *context, const lhi_candidate *c)
{
    const lhi_cost_objective *g = context;
    lh_plan_options options = {.objective =
                                   g->cost ? LH_PLAN_CHEAPEST : LH_PLAN_FASTEST,
                               .max_iteration_ns = g->max_ns};
    return lhi_objective_value(&options, &c->choice);
}

/* Updates the cheapest cost found with a feasible candidate's. Objective
 * callback. */
static lh_status update_cheapest(void *context, const lhi_candidate *c,
                                 lh_error *err)
{
    lhi_cost_objective *g = context;
    (void)err;
    lhi_cost_objective_add(g, &c->choice);
    return LH_OK;
}

void lhi_cost_objective_add(lhi_cost_objective *goal, const lh_choice *choice)
{
    if (choice->cost &&
        !(goal->max_ns > 0 && choice->iteration_ns > goal->max_ns))
        goal->best_usd = fmin(goal->best_usd, choice->cost->usd);
}

/* Lowers the least cost bound of unexplored layouts to that of the layouts with
 * the values decided on `level`, if lower. `floor`: their time bound. Objective
 * callback. */
static void update_unexplored(void *context, lhi_level level,
                              const lhi_config *config,
                              const lhi_lower_bound *floor)
{
    lhi_cost_objective *g = context;
    if (g->cost)
        g->unexplored_usd =
            fmin(g->unexplored_usd,
                 lhi_cost_objective_bound(g, level, config, floor));
}

/* Returns the iteration time in ns at which the cost reaches `usd`, given the
 * fixed cost and the cost per ns. */
static double find_cost_time(double usd, double fixed_usd, double usd_per_ns)
{
    return usd_per_ns > 0 ? fmax((usd - fixed_usd) / usd_per_ns, 0) : 0;
}

/* Returns the iteration time in ns from which a layout's plans are useless: as
 * slow and as expensive as an entry of the Pareto front, or as expensive as the
 * cheapest plan. `level`: depth in the search tree. 0: no such time. Objective
 * callback. */
static int64_t find_useless_ns(void *context, lhi_level level,
                               const lhi_config *config)
{
    lhi_cost_objective *g = context;
    const lhi_lower_bound none = {0}, hour = {.ns = (int64_t)HOUR_NS};
    double fixed = lhi_cost_objective_bound(g, level, config, &none);
    double each =
        (lhi_cost_objective_bound(g, level, config, &hour) - fixed) / HOUR_NS;
    double least =
        g->front ? INFINITY : find_cost_time(g->best_usd, fixed, each);
    for (uint32_t i = 0; g->front && i < g->front->n; i++) {
        lhi_pareto_point here = lhi_pareto_point_of(&g->front->all[i]);
        least = fmin(least, fmax((double)here.iteration_ns,
                                 find_cost_time(here.usd, fixed, each)));
    }
    least *= 1 + 1e-9;
    if (g->max_ns > 0)
        least = fmin(least, (double)g->max_ns);
    return least > 0 && least < 0x1p60 ? (int64_t)least + 1 : 0;
}

lh_status lhi_cost_objective_init(const lh_job *job,
                                  const lh_plan_options *options,
                                  const lhi_pareto_front *front,
                                  lhi_cost_objective *out, lh_error *err)
{
    lhi_cost_objective g = {.job = job,
                            .cost = options->objective == LH_PLAN_CHEAPEST,
                            .even_memory = true,
                            .best_usd = INFINITY,
                            .unexplored_usd = INFINITY,
                            .front = front,
                            .max_ns =
                                front || options->objective != LH_PLAN_CHEAPEST
                                    ? 0
                                    : options->max_iteration_ns,
                            .objective = {.context = out,
                                          .bound = bound_cost,
                                          .is_useless = is_plan_useless,
                                          .add_candidate = update_cheapest,
                                          .value = get_value,
                                          .add_unexplored = update_unexplored,
                                          .useless_ns = find_useless_ns}};
    double least = INFINITY;
    lh_cost_options costs = {.size = sizeof costs, .estimate_missing = true};
    LHI_TRY(lhi_complete_cost_options(job, &costs, &costs, err));
    g.gathers_are_less = lhi_precision_bytes(job->training.precision) <=
                         costs.gradient_wire_bytes;
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        least = fmin(least, job->datacenters[i].usd_per_gpu_hour);
        g.even_memory =
            g.even_memory && lh_gpu_usable_bytes(&job->datacenters[i].gpu) ==
                                 lh_gpu_usable_bytes(&job->datacenters[0].gpu);
    }
    g.usd_per_ns = least / HOUR_NS;
    if (g.cost && !(least > 0))
        return lhi_fail(err, LH_EINVAL,
                        "%s: the cheapest plan requires prices; set "
                        "usd_per_gpu_hour (and usd_per_gb) in the job's "
                        "cluster, or one price for all GPUs (--gpu-hour)",
                        job->name);
    if (g.cost && options->jitter)
        return lhi_fail(err, LH_EINVAL,
                        "the objectives cost and times under jitter cannot be "
                        "combined");
    *out = g;
    return LH_OK;
}

int64_t lhi_layout_search_bound(const lhi_layout_search *s, lhi_level level,
                                const lhi_config *config,
                                const lhi_lower_bound *floor)
{
    const lhi_objective *o = s->objective;
    return o ? o->bound(o->context, level, config, floor) : floor->ns;
}

int64_t lhi_layout_search_useless_ns(const lhi_layout_search *s,
                                     int64_t best_ns)
{
    return s->cutoff_ns > 0 ? lhi_min_int64(best_ns, s->cutoff_ns) : best_ns;
}

bool lhi_layout_search_is_pruned(const lhi_layout_search *s, int64_t bound,
                                 lhi_level level, const lhi_config *config,
                                 const lhi_lower_bound *floor)
{
    const lhi_objective *o = s->objective;
    return o ? o->is_useless(o->context, bound, level, config, floor)
             : bound >= lhi_layout_search_useless_ns(s, s->best_ns);
}

lhi_lower_bound lhi_candidate_built_bound(const lhi_candidate *c)
{
    lhi_lower_bound f = c->lower_bound;
    f.ns = c->bound_ns;
    return f;
}

bool lhi_candidate_can_win(const lhi_layout_search *s, const lhi_candidate *c)
{
    lhi_lower_bound own = lhi_candidate_built_bound(c);
    int64_t bound =
        lhi_layout_search_bound(s, LHI_LEVEL_COMPLETE, &c->config, &own);
    return !lhi_layout_search_is_pruned(s, bound, LHI_LEVEL_COMPLETE,
                                        &c->config, &own);
}
