/* SPDX-License-Identifier: Apache-2.0 */
/* The incumbent, external schedules, and the bound. */
#include "base/fail.h"
#include "schedule/methods/sched.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/solver/state/solver.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>

/* Checks whether the solver has to stop: the budget is used up, or the gap
 * between lower bound and incumbent is closed. */
bool lhi_solver_is_done(const lhi_solver *r)
{
    return r->budget.stop || lhi_solver_is_closed(r);
}

bool lhi_solver_is_closed(const lhi_solver *r)
{
    if (r->infeasible)
        return true;
    if (r->o.target_ns > 0 && r->bound_ns > r->o.target_ns)
        return true;
    if (r->best_ns >= 0 && r->best_ns <= r->o.target_ns)
        return true;
    return r->best_ns >= 0 &&
           (double)(r->best_ns - r->bound_ns) <= r->o.gap * (double)r->bound_ns;
}

void lhi_solver_report(lhi_solver *r, const char *phase)
{
    if (r->is_reduced)
        return;
    r->budget.now.best_ns = r->best_ns;
    r->budget.now.bound_ns = r->bound_ns;
    r->budget.now.phase = phase;
}

/* Simulates a schedule; *out is its objective, -1 if it exceeds a memory
 * limit. `fifo`: without its link orders. */
static lh_status evaluate(const lhi_solver *r, const lh_schedule *schedule,
                          bool fifo, int64_t *out, lh_error *err)
{
    lh_timeline *timeline = NULL;
    lh_sim_options sim = {
        .size = sizeof sim, .fifo = fifo, .host_copy_ns = r->o.host_copy_ns};
    LHI_TRY(lh_simulate(r->p, schedule, &sim, &timeline, err));
    *out = r->o.objective == LH_SOLVE_OBJECTIVE_MAKESPAN
               ? lh_timeline_makespan(timeline)
               : lh_timeline_first_device_end(timeline);
    if (!lh_timeline_fits(timeline, NULL))
        *out = -1;
    lh_timeline_free(timeline);
    return LH_OK;
}

/* Makes the schedule with objective `ns` the incumbent if it is better (*kept),
 * otherwise frees it. `engine`, `by`: the engine and the method that found
 * it. */
static void keep_better(lhi_solver *r, lh_schedule *schedule, int64_t ns,
                        lhi_engine engine, const char *by, bool *kept)
{
    lhi_engine_statistics *use = &r->budget.use[engine];
    *kept = ns >= 0 && (r->best_ns < 0 || ns < r->best_ns);
    if (!*kept) {
        lh_schedule_free(schedule);
        return;
    }
    use->improved++;
    if (r->best_ns >= 0)
        use->gained_ns += r->best_ns - ns;
    lh_schedule_free(r->schedule);
    r->schedule = schedule;
    r->best_ns = ns;
    r->found_by = by;
    if (!r->is_reduced)
        r->budget.now.best_ns = ns;
}

/* --- external schedules --------------------------------------------------- */

/* Checks that every W in the schedule is undivided, or in the requested number
 * of parts. */
static bool has_parts(const lhi_solver *r, const lh_schedule *schedule)
{
    uint32_t parts = r->p->joint ? 1 : r->o.sub_blocks;
    for (uint32_t d = 0; d < lh_schedule_n_devices(schedule); d++) {
        uint32_t n;
        const lh_pass *order = lh_schedule_order(schedule, d, &n);
        for (uint32_t i = 0; i < n; i++)
            if (order[i].n_parts != 1 && order[i].n_parts != parts)
                return false;
    }
    return true;
}

lh_status lhi_solver_enter_schedule(lhi_solver *r, lh_schedule *schedule,
                                    const char *by, lh_error *err)
{
    int64_t ns = -1;
    bool kept = false;
    lh_status status = LH_OK;
    if (has_parts(r, schedule))
        status = evaluate(r, schedule, r->o.fifo, &ns, err);
    if (status == LH_EINFEASIBLE || status == LH_EDEADLOCK)
        status = LH_OK;
    keep_better(r, schedule, ns, r->budget.engine, by, &kept);
    if (status != LH_OK || !kept || !r->shop)
        return status;
    bool fits = false;
    status = lhi_shop_read_orders(r->shop, r->schedule, r->scratch->order,
                                  &fits, err);
    if (status == LH_OK && fits) {
        lhi_machine_orders_copy(r->best, r->scratch);
        r->has_orders = true;
    }
    return status;
}

/* Runs all scheduling methods and offers their schedules to the solver as
 * incumbents. */
static lh_status run_methods(lhi_solver *r, lh_error *err)
{
    const lh_sim_options sim = {.size = sizeof sim,
                                .host_copy_ns = r->o.host_copy_ns};
    for (uint32_t i = 0; i < lh_n_methods(); i++) {
        const char *name = lh_method_name(i);
        lh_schedule *schedule = NULL;
        lh_method_options o = {.size = sizeof o,
                               .sim = &sim,
                               .sub_blocks = r->o.sub_blocks,
                               .bound_ns = r->bound_ns};
        lh_error why = {0};
        if (lh_method_is_auto(name))
            continue;
        if (r->best_ns >= 0 && r->best_ns <= r->bound_ns)
            break; /* at the bound, even if a gap is allowed */
        lh_status status = lh_method_run(name, r->p, &o, &schedule, NULL, &why);
        if (status == LH_ENOMEM) {
            if (err)
                *err = why;
            return status;
        }
        if (status == LH_OK)
            LHI_TRY(lhi_solver_enter_schedule(r, schedule, name, err));
        lhi_budget_spend(&r->budget, r->shop ? r->shop->n_ops / 4 + 1 : 1000);
        if (r->budget.timed_out && r->best_ns >= 0)
            break;
    }
    return LH_OK;
}

/* Offers the solver interleaved schedules with a short warm-up, for memory
 * limits below those of Megatron's warm-up: in rounds of as many microbatches
 * as there are devices, and of half as many. */
static lh_status run_short_rounds(lhi_solver *r, lh_error *err)
{
    const uint32_t n = r->p->n_devices;
    if (!r->p->has_limits || r->p->placement != LH_PLACEMENT_LOOP)
        return LH_OK;
    for (uint32_t i = 1; i <= 2 && !lhi_solver_is_done(r); i++) {
        lh_schedule *schedule = NULL;
        lh_error why = {0};
        lh_status status =
            lhi_make_short_rounds(r->p, (n + i - 1) / i, &schedule, &why);
        if (status == LH_OK)
            LHI_TRY(
                lhi_solver_enter_schedule(r, schedule, "short rounds", err));
        else if (!lhi_method_is_inapplicable(status)) {
            if (err)
                *err = why;
            return status;
        }
        lhi_budget_spend(&r->budget, r->shop ? r->shop->n_ops / 4 + 1 : 1000);
    }
    return LH_OK;
}

lh_status lhi_solver_run_methods(lhi_solver *r, lh_error *err)
{
    if (!lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_METHODS))
        return LH_OK;
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_METHODS);
    lh_status status = run_methods(r, err);
    if (status == LH_OK)
        status = run_short_rounds(r, err);
    lhi_budget_restore_engine(&r->budget, before);
    return status;
}

/* Evaluates the caller's initial schedule itself, because a copy would lose
 * the file name for error messages. */
static lh_status evaluate_start(const lhi_solver *r, lh_error *err)
{
    int64_t ns;
    lh_status status = evaluate(r, r->o.initial_schedule, r->o.fifo, &ns, err);
    if (status == LH_OK && ns < 0)
        status = lhi_fail(err, LH_EINFEASIBLE,
                          "the schedule to start from exceeds a memory limit");
    if (status != LH_OK)
        lhi_fail_add_context(err, "start");
    return status;
}

lh_status lhi_solver_copy_start(lhi_solver *r, lh_error *err)
{
    LHI_TRY(evaluate_start(r, err));
    const lh_schedule *s = r->o.initial_schedule;
    uint32_t n = lh_schedule_n_devices(s),
             n_links = lh_schedule_n_link_orders(s);
    lhi_mark mark = lhi_arena_mark(r->mem);
    const lh_pass **orders = LHI_NEW(r->mem, const lh_pass *, n);
    uint32_t *counts = LHI_NEW(r->mem, uint32_t, n);
    lh_schedule *copy = NULL;
    if (!orders || !counts)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < n; d++)
        orders[d] = lh_schedule_order(s, d, &counts[d]);
    lh_status status = lh_schedule_make(
        n, orders, counts, r->o.fifo ? 0 : n_links,
        n_links ? lh_schedule_link_order(s, 0) : NULL, &copy, err);
    lhi_arena_rewind(r->mem, mark);
    if (status != LH_OK)
        return status;
    return lhi_solver_enter_schedule(r, copy, "start", err);
}

/* --- job-shop schedules --------------------------------------------------- */

/* Converts machine orders to a schedule and makes it the incumbent if it is
 * better; `by`: engine that found them. Keeps message orders only if the
 * schedule is worse with FIFO links. */
lh_status lhi_solver_offer_orders(lhi_solver *r,
                                  const lhi_machine_orders *orders,
                                  lhi_engine by, lh_error *err)
{
    lh_schedule *plain = NULL, *ordered = NULL;
    int64_t plain_ns = -1, ordered_ns = -1;
    bool kept = false;
    const uint32_t *const *rows = (const uint32_t *const *)orders->order;
    LHI_TRY(lhi_shop_build_schedule(r->shop, rows, false, &plain, err));
    lh_status status = evaluate(r, plain, true, &plain_ns, err);
    if (status == LH_EDEADLOCK)
        status = LH_OK;
    if (status != LH_OK) {
        lh_schedule_free(plain);
        return status;
    }
    keep_better(r, plain, plain_ns, by, lhi_engine_get_label(by), &kept);
    bool any = kept;
    if (!r->o.fifo) {
        LHI_TRY(lhi_shop_build_schedule(r->shop, rows, true, &ordered, err));
        status = evaluate(r, ordered, false, &ordered_ns, err);
        if (status != LH_OK) {
            lh_schedule_free(ordered);
            return status;
        }
        keep_better(r, ordered, ordered_ns, by, lhi_engine_get_label(by),
                    &kept);
        any = any || kept;
    }
    if (any) {
        lhi_machine_orders_copy(r->best, orders);
        r->has_orders = true;
    }
    return LH_OK;
}

int64_t lhi_solver_convert_to_units(const lhi_solver *r, int64_t ns)
{
    return ns / r->shop->unit_ns;
}

void lhi_solver_raise_bound(lhi_solver *r, int64_t units, const char *by)
{
    if (units > r->low_units)
        r->low_units = units;
    if (r->shop->restricted || units * r->shop->unit_ns <= r->bound_ns)
        return;
    lhi_engine_statistics *use = &r->budget.use[r->budget.engine];
    use->improved++;
    use->gained_ns += units * r->shop->unit_ns - r->bound_ns;
    r->bound_ns = units * r->shop->unit_ns;
    if (!r->is_reduced)
        r->budget.now.bound_ns = r->bound_ns;
    r->proven_by = by;
}

/* Returns the first deadline to search for, in job-shop units. It is the
 * caller's target makespan if that exceeds the lower bound, otherwise the lower
 * bound, which is often the optimum. */
int64_t lhi_solver_get_first_deadline(const lhi_solver *r)
{
    int64_t target = r->o.target_ns > 0
                         ? lhi_solver_convert_to_units(r, r->o.target_ns)
                         : -1;
    return target > r->low_units ? target : r->low_units;
}

int64_t lhi_solver_get_deadline_limit(const lhi_solver *r)
{
    int64_t best = lhi_solver_convert_to_units(r, r->best_ns);
    int64_t target = r->o.target_ns > 0
                         ? lhi_solver_convert_to_units(r, r->o.target_ns) + 1
                         : best;
    return target < best ? target : best;
}
