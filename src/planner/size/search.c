/* SPDX-License-Identifier: Apache-2.0 */
/* Search over sizes: docs/theory/sizes.md.
 *
 * 1. If the ranges hold few sizes, all are planned.
 * 2. Otherwise doubling and bisection find the smallest size that meets the
 *    deadline, in proportion over all datacenters and in each datacenter alone:
 *    with more nodes no plan is lost, so that the time only decreases as long
 *    as the search finds the plans. If none meets the deadline, the largest
 *    size and halves of it are planned by a longer search.
 *    With a budget, bisection finds the largest sizes that it pays.
 * 3. Local search then removes nodes, moves them between datacenters, and adds
 *    some, while the cost, the number of GPUs or, with a budget, the time
 *    decreases.
 * 4. fill_result.c plans the best sizes again with a longer search, and these
 *    sizes with lost nodes, which may be better.
 * 5. bound.c computes the bounds on all other sizes. */
#include "planner/size/size_internal.h"

#include "base/fail.h"
#include "base/options.h"
#include "format/job/job_values.h"
#include "planner/search/cost.h"
#include "planner/search/gpu_time_bound.h"

#include <longhaul/experimental/cost.h>

#include <math.h>
#include <string.h>

/* Most sizes in the ranges that are compared before each plan: takes less than
 * a second in all. */
enum { MAX_EXPLORED = 1000000 };

/* --- efforts and estimates ------------------------------------------------ */

/* Checks whether the effort, the number of sizes to plan, is not used up. */
static bool may_plan(const lhi_size_search *s)
{
    return s->n_plans_made < s->most_plans;
}

/* Returns the iteration time of a size at an efficiency far above that of all
 * planned sizes, in seconds. */
static double estimate_least_s(const lhi_size_search *s, const uint32_t *nodes)
{
    return lhi_size_work_bound_s(s, nodes) /
           fmin(1,
                lhi_size_best_efficiency(s, NULL) * LHI_SIZE_EFFICIENCY_MARGIN);
}

/* Checks whether a size would meet the deadline only with an efficiency far
 * above that of all planned sizes. */
static bool is_too_slow(const lhi_size_search *s, const uint32_t *nodes)
{
    return estimate_least_s(s, nodes) > lhi_size_longest_s(s);
}

/* As is_too_slow(), for the budget. */
static bool is_too_expensive(const lhi_size_search *s, const uint32_t *nodes)
{
    return s->options.budget_usd > 0 && lhi_size_price_hour(s, nodes) *
                                                estimate_least_s(s, nodes) *
                                                s->iterations >
                                            s->options.budget_usd * LHI_HOUR_S;
}

/* Checks whether a size (nodes[i] nodes in datacenter i) finishes training
 * before the deadline; plans it if needed. *meets is false also if that is
 * unlikely, or if the effort is used up. */
static lh_status check_deadline(lhi_size_search *s, const uint32_t *nodes,
                                bool *meets, lh_error *err)
{
    const lhi_planned_size *size = lhi_size_find_planned(s, nodes);
    lh_size run;
    *meets = false;
    if (!size && (!may_plan(s) || is_too_slow(s, nodes)))
        return LH_OK;
    LHI_TRY(lhi_size_plan(s, nodes, LHI_SIZE_QUICK, &size, err));
    LHI_TRY(lhi_size_find_best_run(s, size, true, lhi_size_is_faster, meets,
                                   &run, err));
    if (*meets && s->options.deadline_s > 0)
        *meets = run.train_s <= s->options.deadline_s;
    return LH_OK;
}

/* Checks like check_deadline(), but more carefully, for a size on which many
 * others depend: ignores the efficiency of planned sizes, and repeats with the
 * longer search if the quick one misses the deadline. */
static lh_status check_deadline_well(lhi_size_search *s, const uint32_t *nodes,
                                     bool *meets, lh_error *err)
{
    const lhi_planned_size *size = lhi_size_find_planned(s, nodes);
    *meets = false;
    if (lhi_size_work_bound_s(s, nodes) > lhi_size_longest_s(s))
        return LH_OK; /* not even at the GPUs' peak */
    if (!size && may_plan(s))
        LHI_TRY(lhi_size_plan(s, nodes, LHI_SIZE_QUICK, &size, err));
    LHI_TRY(check_deadline(s, nodes, meets, err));
    if (*meets || !size || size->depth != LHI_SIZE_QUICK || !may_plan(s))
        return LH_OK;
    LHI_TRY(lhi_size_plan(s, nodes, LHI_SIZE_FULL, &size, err));
    return check_deadline(s, nodes, meets, err);
}

/* --- all sizes ------------------------------------------------------------ */

/* Advances nodes[] to the next size within the job's ranges, the first
 * datacenter varying fastest; false if it was the last one. */
static bool next_size(const lhi_size_search *s, uint32_t *nodes)
{
    for (uint32_t i = 0; i < s->job->n_datacenters; i++) {
        if (nodes[i] < s->ranges[i].most) {
            nodes[i]++;
            return true;
        }
        nodes[i] = s->ranges[i].least;
    }
    return false;
}

/* Plans every size within the job's ranges whose matrix products, at the GPUs'
 * peak rates, could meet the deadline. */
static lh_status plan_all(lhi_size_search *s, lh_error *err)
{
    uint32_t nodes[LH_MAX_DATACENTERS] = {0};
    const lhi_planned_size *size;
    lhi_size_fill_nodes(s, false, nodes);
    do {
        if (lhi_size_has_nodes(s, nodes) &&
            lhi_size_work_bound_s(s, nodes) <= lhi_size_longest_s(s))
            LHI_TRY(lhi_size_plan(s, nodes, LHI_SIZE_QUICK, &size, err));
    } while (next_size(s, nodes));
    s->result->all_planned = true;
    return LH_OK;
}

/* --- bisection ------------------------------------------------------------ */

/* Computes a size between `low` and `high`, each nodes per datacenter, into
 * nodes[]: at step `at` of `steps`, rounded down in each datacenter. */
static void interpolate(const lhi_size_search *s, const uint32_t *low,
                        const uint32_t *high, uint32_t at, uint32_t steps,
                        uint32_t *nodes)
{
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        nodes[i] = low[i] + (uint32_t)((uint64_t)(high[i] - low[i]) * at /
                                       (steps ? steps : 1));
}

/* Returns the last step between sizes `low` and `high` whose size misses the
 * deadline even at the GPUs' peak rates; 0: none. */
static uint32_t find_too_small(const lhi_size_search *s, const uint32_t *low,
                               const uint32_t *high, uint32_t steps)
{
    uint32_t a = 0, b = steps + 1, middle[LH_MAX_DATACENTERS];
    while (a + 1 < b) {
        const uint32_t at = a + (b - a) / 2;
        interpolate(s, low, high, at, steps, middle);
        *(lhi_size_work_bound_s(s, middle) > lhi_size_longest_s(s) ? &a : &b) =
            at;
    }
    return a;
}

/* Finds steps *a and *b between sizes `low` and `high`: the size at *b meets
 * the deadline, and none that was tried up to *a does. Doubles the step from
 * the smallest possible size; then tries the longer search for the largest size
 * and for halves of the range. *found: there are such steps. */
static lh_status bracket(lhi_size_search *s, const uint32_t *low,
                         const uint32_t *high, uint32_t steps, uint32_t *a,
                         uint32_t *b, bool *found, lh_error *err)
{
    uint32_t middle[LH_MAX_DATACENTERS];
    const uint32_t least = find_too_small(s, low, high, steps);
    *found = false;
    for (*a = least; !*found && *a < steps;) {
        *b = *a < steps / 2 ? 2 * (*a ? *a : 1) : steps;
        interpolate(s, low, high, *b, steps, middle);
        LHI_TRY(check_deadline(s, middle, found, err));
        if (!*found)
            *a = *b;
    }
    if (*found)
        return LH_OK;
    *a = least;
    for (uint32_t at = steps; !*found && at > least; at /= 2) {
        interpolate(s, low, high, at, steps, middle);
        if (lhi_size_has_nodes(s, middle))
            LHI_TRY(check_deadline_well(s, middle, found, err));
        *b = at;
    }
    return LH_OK;
}

/* Finds the smallest size on the line from `low` to `high` (nodes per
 * datacenter) that meets the deadline, by bisection, into nodes[]. *found:
 * there is one. */
static lh_status bisect(lhi_size_search *s, const uint32_t *low,
                        const uint32_t *high, bool *found, uint32_t *nodes,
                        lh_error *err)
{
    uint32_t steps = 0, a = 0, b = 0;
    uint32_t middle[LH_MAX_DATACENTERS];
    bool meets = false;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        if (high[i] - low[i] > steps)
            steps = high[i] - low[i];
    if (lhi_size_has_nodes(s, low))
        LHI_TRY(check_deadline(s, low, &meets, err));
    if (!meets)
        LHI_TRY(bracket(s, low, high, steps, &a, &b, found, err));
    if (!meets && !*found)
        return LH_OK;
    *found = true;
    while (a + 1 < b) {
        const uint32_t at = a + (b - a) / 2;
        interpolate(s, low, high, at, steps, middle);
        meets = false;
        if (lhi_size_has_nodes(s, middle))
            LHI_TRY(check_deadline(s, middle, &meets, err));
        *(meets ? &b : &a) = at;
    }
    interpolate(s, low, high, b, steps, nodes);
    return LH_OK;
}

/* Finds the largest size between `low` and `high` that the budget pays, so that
 * it is planned. */
static lh_status bisect_budget(lhi_size_search *s, const uint32_t *low,
                               const uint32_t *high, lh_error *err)
{
    uint32_t steps = 0, middle[LH_MAX_DATACENTERS];
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        if (high[i] - low[i] > steps)
            steps = high[i] - low[i];
    for (uint32_t a = 0, b = steps + 1, at = steps; a + 1 < b;
         at = a + (b - a) / 2) {
        const lhi_planned_size *size;
        lh_size run;
        bool meets = false;
        interpolate(s, low, high, at, steps, middle);
        size = lhi_size_find_planned(s, middle);
        if (lhi_size_has_nodes(s, middle) &&
            (size || (may_plan(s) && !is_too_expensive(s, middle)))) {
            LHI_TRY(lhi_size_plan(s, middle, LHI_SIZE_QUICK, &size, err));
            LHI_TRY(lhi_size_find_best_run(s, size, true, lhi_size_is_cheaper,
                                           &meets, &run, err));
            meets = meets && run.usd <= s->options.budget_usd;
        }
        *(meets ? &a : &b) = at;
    }
    return LH_OK;
}

/* --- local search --------------------------------------------------------- */

/* Plans size `other`, unless that is hopeless or the effort is used up. If its
 * best run is better than *best by is_better(), it replaces *best, and *moved
 * is set. */
static lh_status try_neighbour(lhi_size_search *s, const uint32_t *other,
                               lhi_size_is_better_fn *is_better, lh_size *best,
                               bool *moved, lh_error *err)
{
    const lhi_planned_size *size = lhi_size_find_planned(s, other);
    lh_size run;
    bool found;
    if (!lhi_size_has_nodes(s, other) ||
        (!size &&
         (!may_plan(s) || is_too_slow(s, other) || is_too_expensive(s, other))))
        return LH_OK;
    if (!size && is_better == lhi_size_is_faster &&
        estimate_least_s(s, other) * s->iterations > best->train_s)
        return LH_OK; /* slower than the best */
    LHI_TRY(lhi_size_plan(s, other, LHI_SIZE_QUICK, &size, err));
    LHI_TRY(
        lhi_size_find_best_run(s, size, false, is_better, &found, &run, err));
    if (found && is_better(&run, best)) {
        *best = run;
        *moved = true;
    }
    return LH_OK;
}

/* Adds `change` to nodes[i], datacenter i's nodes, if the result is within
 * the datacenter's range; false otherwise. */
static bool change_nodes(const lhi_size_search *s, uint32_t *nodes, uint32_t i,
                         int64_t change)
{
    const int64_t n = (int64_t)nodes[i] + change;
    if (n < s->ranges[i].least || n > s->ranges[i].most)
        return false;
    nodes[i] = (uint32_t)n;
    return true;
}

/* Tries all sizes at distance `step` from *best: `step` nodes fewer or more in
 * one datacenter, or moved to another one. The first better one replaces *best,
 * and *moved is set. */
static lh_status try_step(lhi_size_search *s, int64_t step,
                          lhi_size_is_better_fn *is_better, lh_size *best,
                          bool *moved, lh_error *err)
{
    const uint32_t n = s->job->n_datacenters;
    for (uint32_t i = 0; i < n && !*moved; i++)
        for (uint32_t j = 0; j < n && !*moved; j++)
            for (int64_t more = step; more >= 0 && !*moved; more -= step) {
                uint32_t other[LH_MAX_DATACENTERS];
                memcpy(other, best->nodes, sizeof other);
                /* i == j: fewer nodes, or more of them */
                if (i == j ? !change_nodes(s, other, i, more ? -step : step)
                           : !more || !change_nodes(s, other, i, -step) ||
                                 !change_nodes(s, other, j, step))
                    continue;
                LHI_TRY(try_neighbour(s, other, is_better, best, moved, err));
            }
    return LH_OK;
}

/* Doubles the nodes of *best in every datacenter as long as the size becomes
 * better by is_better(): sizes between two powers of two often fit the batch
 * badly. */
static lh_status double_nodes(lhi_size_search *s,
                              lhi_size_is_better_fn *is_better, lh_size *best,
                              lh_error *err)
{
    bool moved = true;
    while (moved && may_plan(s)) {
        uint32_t other[LH_MAX_DATACENTERS];
        moved = false;
        memcpy(other, best->nodes, sizeof other);
        for (uint32_t i = 0; i < s->job->n_datacenters; i++)
            if (!change_nodes(s, other, i, other[i]))
                return LH_OK;
        LHI_TRY(try_neighbour(s, other, is_better, best, &moved, err));
    }
    return LH_OK;
}

/* Improves the best planned size by local search over neighbouring sizes, with
 * steps that decrease from half its nodes to 1. */
static lh_status climb(lhi_size_search *s, lhi_size_is_better_fn *is_better,
                       lh_error *err)
{
    lh_size best;
    bool found;
    LHI_TRY(lhi_size_find_best(s, false, is_better, &found, &best, err));
    if (!found)
        return LH_OK;
    if (is_better != lhi_size_has_fewer_gpus)
        LHI_TRY(double_nodes(s, is_better, &best, err));
    int64_t step = 1;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        while (2 * step <= best.nodes[i] / 2)
            step *= 2;
    while (step > 0 && may_plan(s)) {
        bool moved = false;
        LHI_TRY(try_step(s, step, is_better, &best, &moved, err));
        if (!moved)
            step /= 2;
    }
    return LH_OK;
}

/* Bisects for the deadline or the budget in proportion over all datacenters,
 * then in each alone. */
static lh_status bisect_all(lhi_size_search *s, bool budget, lh_error *err)
{
    const uint32_t n = s->job->n_datacenters;
    uint32_t low[LH_MAX_DATACENTERS], high[LH_MAX_DATACENTERS],
        nodes[LH_MAX_DATACENTERS];
    bool found;
    lhi_size_fill_nodes(s, false, low);
    for (uint32_t i = 0; i <= n; i++) {
        lhi_size_fill_nodes(s, i == 0, high);
        if (i > 0)
            high[i - 1] = s->ranges[i - 1].most;
        LHI_TRY(budget ? bisect_budget(s, low, high, err)
                       : bisect(s, low, high, &found, nodes, err));
        if (n == 1)
            break;
    }
    return LH_OK;
}

/* --- exploration ---------------------------------------------------------- */

/* Returns the efficiency that a size requires to meet the deadline and the
 * budget in less than `best_s` seconds. */
static double compute_required_efficiency(const lhi_size_search *s,
                                          const uint32_t *nodes, double best_s)
{
    const double seconds = lhi_size_work_bound_s(s, nodes) * s->iterations;
    const double usd = lhi_size_price_hour(s, nodes) * seconds / LHI_HOUR_S;
    const double limit_s = s->options.deadline_s > 0
                               ? fmin(s->options.deadline_s, best_s)
                               : best_s;
    return fmax(usd / s->options.budget_usd, seconds / limit_s);
}

/* Finds the size, not planned yet, whose required efficiency is the least
 * relative to that of the planned sizes in the same datacenters, into nodes[].
 * false: none requires less than LHI_SIZE_EFFICIENCY_MARGIN times as much. */
static bool find_most_promising(const lhi_size_search *s, double best_s,
                                uint32_t *nodes)
{
    const double highest = lhi_size_best_efficiency(s, NULL);
    double least = LHI_SIZE_EFFICIENCY_MARGIN;
    uint32_t other[LH_MAX_DATACENTERS] = {0};
    bool found = false;
    lhi_size_fill_nodes(s, false, other);
    do {
        const double required =
            lhi_size_has_nodes(s, other)
                ? compute_required_efficiency(s, other, best_s)
                : INFINITY;
        if (required >= fmin(1, least * highest) ||
            lhi_size_find_planned(s, other))
            continue;
        const double ratio = required / lhi_size_best_efficiency(s, other);
        if (ratio < least) {
            least = ratio;
            found = true;
            memcpy(nodes, other, sizeof other);
        }
    } while (next_size(s, other));
    return found;
}

/* Plans the sizes that are most likely faster than the fastest one within the
 * budget, with the effort that is left: local search misses them beyond sizes
 * that do not fit the batch, and in other datacenters. */
static lh_status explore(lhi_size_search *s, lh_error *err)
{
    uint32_t nodes[LH_MAX_DATACENTERS] = {0};
    const lhi_planned_size *size;
    if (s->result->n_sizes > MAX_EXPLORED)
        return LH_OK;
    while (may_plan(s)) {
        lh_size best;
        bool found;
        LHI_TRY(lhi_size_find_best(s, false, lhi_size_is_faster, &found, &best,
                                   err));
        if (!find_most_promising(s, found ? best.train_s : INFINITY, nodes))
            return LH_OK;
        LHI_TRY(lhi_size_plan(s, nodes, LHI_SIZE_QUICK, &size, err));
    }
    return LH_OK;
}

/* Finds the sizes that are fastest within the budget, with half of the effort,
 * then the cheapest and the smallest ones, and again the fastest with the
 * effort that is left. */
static lh_status search_ranges(lhi_size_search *s, lh_error *err)
{
    const bool budget = s->options.budget_usd > 0;
    if (budget) {
        s->most_plans = (s->options.effort + 1) / 2;
        LHI_TRY(bisect_all(s, true, err));
        LHI_TRY(climb(s, lhi_size_is_faster, err));
        s->most_plans = s->n_plans_made + s->options.effort / 2;
    }
    LHI_TRY(bisect_all(s, false, err));
    if (s->priced)
        LHI_TRY(climb(s, lhi_size_is_cheaper, err));
    LHI_TRY(climb(s, lhi_size_has_fewer_gpus, err));
    if (!budget)
        return LH_OK;
    s->most_plans = s->options.effort;
    LHI_TRY(climb(s, lhi_size_is_faster, err));
    return explore(s, err);
}

/* --- search --- */

/* Sets the least GPU time of an iteration. It holds for every size if all nodes
 * have equally many GPUs, so that no size has other tensor degrees. */
static lh_status bound_gpu_time(lhi_size_search *s, lh_error *err)
{
    uint32_t most[LH_MAX_DATACENTERS] = {0};
    lh_job *largest = NULL;
    for (uint32_t i = 1; i < s->job->n_datacenters; i++)
        if (s->job->datacenters[i].gpus_per_node !=
            s->job->datacenters[0].gpus_per_node)
            return LH_OK;
    /* A bound would hold only for one number of slices. */
    if (s->job->profile || s->job->layout.slices == LHI_SLICES_AUTO)
        return LH_OK;
    lhi_size_fill_nodes(s, true, most);
    LHI_TRY(lh_size_job(s->job, most, &largest, err));
    const lh_status status =
        lhi_compute_gpu_time_bound(largest, &s->gpu_s, err);
    lh_job_free(largest);
    return status;
}

/* Searches the sizes of the job; `given` without prices of the options. */
static lh_status run(lhi_size_search *s, const lh_job *given, lh_job *priced,
                     lh_error *err)
{
    const lh_plan_options prices = {.size = sizeof prices,
                                    .usd_per_gpu_hour =
                                        s->options.usd_per_gpu_hour,
                                    .usd_per_gb = s->options.usd_per_gb};
    LHI_TRY(lhi_pricing_override_job(given, &prices, s->mem, priced, err));
    s->job = priced;
    s->priced = lhi_pricing_has_prices(priced);
    LHI_TRY(lhi_size_set_options(s, err));
    s->iterations = s->options.tokens / ((double)given->training.global_batch *
                                         given->training.sequence);
    /* Times of a profile need not respect the GPUs' peak rates. */
    s->flops = s->job->profile ? 0 : lh_cost_iteration_flops(s->job);
    LHI_TRY(bound_gpu_time(s, err));
    if (s->result->n_sizes <= s->options.effort)
        LHI_TRY(plan_all(s, err));
    else
        LHI_TRY(search_ranges(s, err));
    if (!s->n_planned) { /* too slow by its matrix products: plan the largest */
        uint32_t most[LH_MAX_DATACENTERS] = {0};
        const lhi_planned_size *size;
        lhi_size_fill_nodes(s, true, most);
        LHI_TRY(lhi_size_plan(s, most, LHI_SIZE_QUICK, &size, err));
    }
    return lhi_size_fill_result(s, err);
}

lh_status lh_size_find(const lh_job *job, const lh_size_options *options,
                       lh_size_result **out, lh_error *err)
{
    lh_job priced;
    lhi_size_search s = {.result = NULL};
    LHI_TRY(LHI_OPTIONS_COPY(lh_size_options, &s.options, options, err));
    s.mem = lhi_arena_make(0);
    s.result = lhi_size_make_result();
    lh_status status =
        s.mem && s.result ? run(&s, job, &priced, err) : lhi_fail_nomem(err);
    if (status == LH_ECANCELED)
        status = lhi_size_fill_interrupted(&s, err);
    lhi_arena_free(s.mem);
    if (status == LH_OK)
        *out = s.result;
    else
        lh_size_result_free(s.result);
    return status;
}
