/* SPDX-License-Identifier: Apache-2.0 */
/* Method "look-ahead": improves greedy's schedule by alternating backward and
 * forward list scheduling (forward-backward improvement, also called
 * justification: Li and Willis 1992, Valls et al. 2005, for
 * resource-constrained projects). Each run supplies due dates for the next run
 * in the opposite direction. Tries several initial memory shares and selection
 * rules and keeps the best result. See docs/theory/schedules.md. */
#include "base/integer_math.h"
#include "schedule/methods/dispatcher.h"
#include "schedule/methods/list_scheduler.h"
#include "schedule/pipeline/schedule_internal.h"
#include "schedule/simulator/timeline.h"

#include <longhaul/experimental/simulate.h>
#include <string.h>

/* Work limits in the unit of lhi_list_scheduler_estimate_cost(), about 1 ns.
 * MIN_WORK is always allowed. RUNS runs are allowed up to MAX_WORK_FOR_RUNS;
 * this cap applies only if a pass costs more than MAX_PASS_COST. */
#define MIN_WORK UINT64_C(6000000)
#define RUNS 8
#define MAX_WORK_FOR_RUNS UINT64_C(100000000)
#define MAX_PASS_COST 1000
#define QUARTERS 3 /* max. quarters of a forward left unused */
#define ROUNDS 6   /* backward-forward pairs per initial rule */

/* Initial memory shares per chunk. */
enum { SHARED, NEAREST, DOWN, ALL, UNIFORM, N_SHARES };

/* One rule combination. */
typedef struct attempt {
    uint8_t shares;
    bool hold_back;
    uint8_t patience;
    bool reserve;
    bool at_first; /* shares apply to the first run only */
} attempt;

/* Search state: scheduler, evaluator and the best orders so far. */
typedef struct search_state {
    const lh_pipeline *p;
    const lh_method_options *o;
    lhi_arena *mem;
    lhi_list_scheduler scheduler;
    lh_evaluator *evaluator;
    lh_schedule view; /* view of the orders under evaluation */
    lhi_orders *best, trial;
    int64_t best_ns;
    uint32_t *caps[N_SHARES];
    uint64_t work, work_limit;
} search_state;

/* Simulates the schedule in `orders` without copying them; *out is its
 * makespan in ns. */
static lh_status evaluate(search_state *l, const lhi_orders *orders,
                          int64_t *out, lh_error *err)
{
    for (uint32_t d = 0; d < orders->n_devices; d++) {
        l->view.orders[d] = orders->devices[d].passes;
        l->view.counts[d] = orders->devices[d].count;
    }
    return lh_evaluator_run(l->evaluator, &l->view, out, err);
}

/* Sets the makespan of the best orders so far. Slower ones need no complete
 * simulation. */
static void set_best_time(search_state *l, int64_t ns)
{
    l->best_ns = ns;
    lhi_evaluator_set_useless(l->evaluator, ns);
}

/* Simulates the last run's schedule and keeps it if it is the fastest so far.
 * The list scheduler models fewer delays than the simulator, so a run that
 * already ends too late is skipped. A backward run packs passes toward the end
 * and may start earlier when simulated, so it gets a margin of 1/64. */
static lh_status evaluate_trial(search_state *l, lh_error *err)
{
    int64_t ns, late = l->scheduler.is_backward ? l->best_ns / 64 : 0;
    if (l->scheduler.end_ns >= l->best_ns + late)
        return LH_OK;
    lhi_list_scheduler_write_orders(&l->scheduler, &l->trial);
    lh_status status = evaluate(l, &l->trial, &ns, err);
    if (status == LH_OK && ns < l->best_ns)
        status = lhi_orders_check_memory(&l->trial, l->p, err);
    if (status == LH_EINFEASIBLE || status == LH_EDEADLOCK)
        return LH_OK;
    if (status != LH_OK || ns >= l->best_ns)
        return status;
    lhi_orders old = *l->best;
    *l->best = l->trial;
    l->trial = old;
    set_best_time(l, ns);
    return LH_OK;
}

/* Runs the list scheduler forward in time, or `backward` from the end, and adds
 * its estimated cost to the work done; false: the run failed. */
static bool run_direction(search_state *l, bool backward,
                          const lhi_list_scheduler_rules *rules)
{
    l->work += lhi_list_scheduler_estimate_cost(&l->scheduler);
    return lhi_list_scheduler_run(&l->scheduler, backward,
                                  backward ? 1 : l->o->sub_blocks, rules);
}

/* Checks whether the work limit is used up or the best makespan equals the
 * lower bound. */
static bool is_over(const search_state *l)
{
    return l->work >= l->work_limit || l->best_ns <= l->o->bound_ns;
}

/* Runs the list scheduler by greedy's rules, then alternately backward and
 * forward in time with due dates from the previous run. Ends when nothing
 * changes, or after ROUNDS pairs. `by`: caps and rules to use. */
static lh_status try_rule(search_state *l, const attempt *by, lh_error *err)
{
    lhi_list_scheduler_rules rules = {.caps = l->caps[by->shares],
                                      .greedy = true,
                                      .delay_sends = by->hold_back};
    if (!run_direction(l, false, &rules))
        return LH_OK;
    LHI_TRY(evaluate_trial(l, err));
    rules.greedy = false;
    rules.patience = by->patience;
    rules.reserve = by->reserve;
    rules.caps = by->at_first ? NULL : rules.caps;
    int64_t last_ns = -1;
    for (uint32_t i = 0; i < 2 * ROUNDS && !is_over(l); i++) {
        lhi_list_scheduler_reverse_due_dates(&l->scheduler);
        if (!run_direction(l, i % 2 == 0, &rules))
            return LH_OK;
        LHI_TRY(evaluate_trial(l, err));
        if (i % 2 && l->scheduler.end_ns == last_ns)
            return LH_OK;
        last_ns = i % 2 ? l->scheduler.end_ns : last_ns;
    }
    return LH_OK;
}

/* Rule combinations, most effective first, so large cases try the best few.
 * Fewer are useful if chunks do not share memory. */
static const attempt rules_unshared[] = {
    {SHARED, false, 3, false, false}, {SHARED, false, 2, false, false},
    {SHARED, false, 0, false, false}, {SHARED, false, 4, false, false},
    {SHARED, false, 1, false, false}, {SHARED, true, 1, false, false},
};
static const attempt rules_shared[] = {
    {DOWN, false, 2, true, true},      {UNIFORM, true, 1, true, true},
    {SHARED, false, 2, false, false},  {ALL, false, 2, true, true},
    {NEAREST, true, 4, true, true},    {UNIFORM, false, 0, true, true},
    {ALL, true, 3, true, true},        {UNIFORM, false, 2, false, true},
    {SHARED, true, 3, false, false},   {DOWN, false, 2, false, false},
    {ALL, true, 0, true, true},        {DOWN, true, 4, false, false},
    {SHARED, false, 0, false, false},  {NEAREST, false, 0, false, false},
    {UNIFORM, false, 3, true, true},   {NEAREST, true, 3, false, false},
    {NEAREST, true, 2, true, true},    {SHARED, true, 2, false, false},
    {NEAREST, false, 3, false, false}, {SHARED, false, 4, false, false},
};

/* Computes the caps (microbatches in flight per chunk) for each of the N_SHARES
 * rules by which a device's chunks share its memory. */
static lh_status compute_shares(search_state *l, lh_error *err)
{
    for (int i = NEAREST; i < N_SHARES; i++) {
        l->caps[i] = LHI_NEW(l->mem, uint32_t, l->p->n_chunks);
        if (!l->caps[i])
            return lhi_fail_nomem(err);
        if (i == UNIFORM)
            lhi_list_scheduler_compute_uniform_caps(&l->scheduler, l->caps[i]);
        else
            LHI_TRY(lhi_list_scheduler_compute_caps(&l->scheduler, i != DOWN,
                                                    i == ALL, l->caps[i], err));
    }
    return LH_OK;
}

/* Lowers each device's memory limit in the list scheduler by a quarter of its
 * largest forward's memory, but not below one microbatch's peak. Returns false
 * if no device has a limit. */
static bool reduce_memory(search_state *l)
{
    bool any = false;
    for (uint32_t i = 0; i < l->p->n_devices; i++) {
        lhi_stream_device *d = &l->scheduler.devices[i];
        int64_t most_f = 0;
        if (d->room == LH_NO_LIMIT)
            continue;
        for (uint32_t c = 0; c < l->p->n_chunks; c++)
            if (l->p->chunks[c].device == i)
                most_f = lhi_max_int64(most_f, l->p->chunks[c].mem_f);
        d->room = lhi_max_int64(
            lhi_max_int64(d->microbatch_peak[0], d->microbatch_peak[1]),
            d->room - most_f / 4);
        any = true;
    }
    return any;
}

/* Tries all rule combinations (caps, patience, reserve), then the best one with
 * reduced memory. */
static lh_status try_rules(search_state *l, lh_error *err)
{
    bool shared = false, has_transfers = false;
    for (uint32_t d = 0; d < l->p->n_devices; d++) {
        const lhi_stream_device *device = &l->scheduler.devices[d];
        shared =
            shared || (device->n_chunks > 1 && device->room != LH_NO_LIMIT);
    }
    for (uint32_t c = 0; c + 1 < l->p->n_chunks; c++)
        has_transfers = has_transfers || l->p->forward[c].transfer_ns > 0 ||
                        l->p->backward[c + 1].transfer_ns > 0;
    if (shared)
        LHI_TRY(compute_shares(l, err));
    const attempt *list = shared ? rules_shared : rules_unshared, *best = list;
    size_t n = shared ? sizeof rules_shared / sizeof *rules_shared
                      : sizeof rules_unshared / sizeof *rules_unshared;
    for (size_t i = 0; i < n && !is_over(l); i++) {
        int64_t before_ns = l->best_ns;
        if (has_transfers || !list[i].hold_back)
            LHI_TRY(try_rule(l, &list[i], err));
        if (l->best_ns < before_ns)
            best = &list[i];
    }
    /* Same as greedy does with little memory. */
    for (uint32_t i = 0; i < QUARTERS && !is_over(l); i++)
        if (reduce_memory(l))
            LHI_TRY(try_rule(l, best, err));
    return LH_OK;
}

/* Runs the method "greedy" with part of the memory left unused and keeps its
 * orders if they are the fastest so far. */
static lh_status try_reserve(search_state *l, lh_error *err)
{
    bool tight = l->best->tight;
    for (uint32_t i = 1; i <= QUARTERS && tight; i++) {
        lhi_orders orders = {.useless_ns = l->best_ns};
        int64_t ns = 0;
        LHI_TRY(lhi_greedy_run_with_reserve(l->p, l->o, i, &orders, err));
        if (orders.given_up) {
            lhi_orders_fini(&orders);
            continue;
        }
        lh_status status = evaluate(l, &orders, &ns, err);
        if (status == LH_OK && ns < l->best_ns) {
            lhi_orders_fini(l->best);
            *l->best = orders;
            set_best_time(l, ns);
            continue;
        }
        lhi_orders_fini(&orders);
        if (status != LH_OK && status != LH_EDEADLOCK)
            return status;
    }
    return LH_OK;
}

/* Improves greedy's orders within the work limit and returns the fastest
 * ones. */
static lh_status improve(search_state *l, lh_error *err)
{
    uint32_t n_parts = l->p->joint ? 1 : l->o->sub_blocks;
    l->view = (lh_schedule){
        .n_devices = l->p->n_devices,
        .orders = LHI_NEW(l->mem, const lh_pass *, l->p->n_devices),
        .counts = LHI_NEW(l->mem, uint32_t, l->p->n_devices)};
    if (!l->view.orders || !l->view.counts)
        return lhi_fail_nomem(err);
    LHI_TRY(lh_evaluator_make(l->p, l->o->sim, &l->evaluator, err));
    lh_status status = evaluate(l, l->best, &l->best_ns, err);
    if (status == LH_EDEADLOCK) /* coupled queues can deadlock */
        l->best_ns = INT64_MAX / 2;
    else if (status != LH_OK)
        return status;
    if (l->best_ns <= l->o->bound_ns)
        return LH_OK;
    set_best_time(l, l->best_ns);
    LHI_TRY(try_reserve(l, err));
    LHI_TRY(lhi_list_scheduler_make(l->p, n_parts, l->mem, &l->scheduler, err));
    uint64_t cost = lhi_list_scheduler_estimate_cost(&l->scheduler);
    uint64_t passes = (uint64_t)l->scheduler.n_streams * l->scheduler.n;
    l->work_limit = RUNS * cost;
    if (l->work_limit > MAX_WORK_FOR_RUNS && cost > MAX_PASS_COST * passes)
        l->work_limit = MAX_WORK_FOR_RUNS;
    if (l->work_limit < MIN_WORK)
        l->work_limit = MIN_WORK;
    if (!l->scheduler.balanced || cost > l->work_limit)
        return LH_OK;
    LHI_TRY(
        lhi_orders_init(&l->trial, l->p, l->p->joint ? 2 : 2 + n_parts, err));
    status = try_rules(l, err);
    lhi_orders_fini(&l->trial);
    return status;
}

/* Method "look-ahead": list scheduling with due dates from runs in both time
 * directions, starting from greedy's orders. */
lh_status lhi_look_ahead(const lh_pipeline *pipeline,
                         const lh_method_options *options, lhi_orders *out,
                         lh_error *err)
{
    out->useless_ns = 0; /* runs that start from greedy's may be faster */
    LHI_TRY(lhi_greedy(pipeline, options, out, err));
    search_state l = {
        .p = pipeline, .o = options, .mem = lhi_arena_make(0), .best = out};
    lh_status status = l.mem ? improve(&l, err) : lhi_fail_nomem(err);
    out->planned_ns = 0;
    out->simulated_ns = l.best_ns < INT64_MAX / 2 ? l.best_ns : 0;
    lh_evaluator_free(l.evaluator);
    lhi_arena_free(l.mem);
    if (status != LH_OK)
        lhi_orders_fini(out);
    return status;
}
