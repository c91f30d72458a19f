/* SPDX-License-Identifier: Apache-2.0 */
/* Raises the bound by windows under trial deadlines, and by shaving. */
#include "schedule/solver/bound/heads.h"
#include "schedule/solver/bound/kind_lattice.h"
#include "schedule/solver/bound/shaving.h"
#include "schedule/solver/state/solver.h"

#include "base/fail.h"
#include "base/integer_math.h"

/* Work limits, in ticks per operation. */
enum { SHAVING_TICKS = 60, KIND_TICKS = 100 };

const char *lhi_windows_get_engine_name(const lhi_solver *r)
{
    return r->windows->complete ? "lattice" : "windows";
}

/* Finds the smallest deadline that windows (time range of each operation) do
 * not refute, by growing steps from the known bound and then bisection. Raises
 * the lower bound to it. */
static lh_status bound_by_windows(lhi_solver *r, lh_error *err)
{
    const bool whole = r->windows->has_full_lattices;
    int64_t high = r->best_ns >= 0 ? lhi_solver_convert_to_units(r, r->best_ns)
                                   : r->shop->horizon / r->shop->scale + 1;
    int64_t step = 0, last = lhi_shop_get_deadline(r->shop, high - 1);
    if (r->low_units >= high)
        return LH_OK;
    /* Lattices for the longest deadline serve all shorter ones. */
    bool any = whole ? lhi_windows_set(r->windows, last, &r->budget)
                     : lhi_windows_set_strictly(r->windows, last, &r->budget);
    if (!any)
        lhi_solver_raise_bound(r, high, lhi_windows_get_engine_name(r));
    if (!any || r->budget.stop)
        return LH_OK;
    if (r->windows->complete &&
        !lhi_windows_prune(r->windows, last, true, &r->budget))
        return lhi_fail_nomem(err);
    /* With slightly more memory the lattices may fit, which is stronger than
     * windows for short deadlines. */
    if (!r->windows->complete && r->windows->tries++ > 0 &&
        !r->windows->is_memory_limited)
        return LH_OK;
    while (r->low_units < high && !r->budget.stop) {
        int64_t t = r->low_units + step < high ? r->low_units + step : high - 1;
        bool open = lhi_windows_set(
            r->windows, lhi_shop_get_deadline(r->shop, t), &r->budget);
        if (r->budget.stop)
            return LH_OK;
        if (!open) {
            lhi_solver_raise_bound(r, t + 1, lhi_windows_get_engine_name(r));
            step = step ? 3 * step : (high - r->low_units) / 64 + 1;
            continue;
        }
        high = t;
        step = (high - r->low_units) / 2;
        if (whole &&
            !lhi_windows_prune(r->windows, lhi_shop_get_deadline(r->shop, t),
                               false, &r->budget))
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

/* Raises the lower bound to the smallest deadline that machine m's lattice of
 * pass kinds does not refute: by growing steps, then by bisection. The first
 * step is short, since most machines refute nothing beyond the bound. Stops at
 * `end` of the budget. */
static lh_status bound_by_kinds(lhi_solver *r, const lhi_heads *heads,
                                uint32_t m, uint64_t end, lh_error *err)
{
    int64_t high = lhi_solver_get_deadline_limit(r);
    bool open = false;
    for (int64_t step = 1; r->low_units < high && r->budget.used < end;
         step = open ? (high - r->low_units) / 2 + 1
                     : lhi_max_int64(2 * step, (high - r->low_units) / 64)) {
        int64_t t = r->low_units + step - 1;
        bool possible = true;
        if (t >= high)
            t = high - 1;
        LHI_TRY(lhi_kind_lattice_check(r->shop, heads, m,
                                       lhi_shop_get_deadline(r->shop, t),
                                       &r->budget, r->mem, &possible, err));
        if (r->budget.stop)
            return LH_OK;
        if (possible)
            high = t;
        else
            lhi_solver_raise_bound(r, t + 1, lhi_windows_get_engine_name(r));
        open = open || possible;
    }
    return LH_OK;
}

/* Raises the lower bound by lattices of pass kinds, on the machines without a
 * lattice. */
static lh_status bound_by_all_kinds(lhi_solver *r, lh_error *err)
{
    const uint32_t n = r->shop->n_machines;
    const uint64_t most = KIND_TICKS * (uint64_t)r->shop->n_ops;
    const uint64_t share = lhi_budget_get_remaining(&r->budget, UINT64_MAX) / 8;
    const uint64_t ticks = most < share ? most : share;
    const uint64_t end = r->budget.used + ticks;
    lhi_heads heads = {0};
    if (r->best_ns < 0)
        return LH_OK;
    for (uint32_t i = 0; i < n && !lhi_solver_is_done(r); i++) {
        const uint32_t m = lhi_kind_lattice_pick_machine(r->shop, i);
        if (lhi_windows_get_lattice(r->windows, m) ||
            !lhi_kind_lattice_is_applicable(r->shop, m, r->o.memory))
            continue;
        if (!heads.head)
            LHI_TRY(lhi_heads_make(r->shop, ticks / 2, &r->budget, r->mem,
                                   &heads, err));
        LHI_TRY(bound_by_kinds(r, &heads, m, end, err));
    }
    return LH_OK;
}

lh_status lhi_solver_bound_by_windows(lhi_solver *r, lh_error *err)
{
    if (!lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_WINDOWS))
        return LH_OK;
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_WINDOWS);
    lh_status status = LH_OK;
    if (!r->has_kind_bound)
        status = bound_by_all_kinds(r, err);
    r->has_kind_bound = true;
    if (status == LH_OK && !lhi_solver_is_done(r))
        status = bound_by_windows(r, err);
    lhi_budget_restore_engine(&r->budget, before);
    return status;
}

/* Raises the lower bound by shaving (tightening time windows by refutation):
 * refutes deadlines that lattices (machine state graphs) leave open, doubling
 * the step until it fails, then halving it. */
lh_status lhi_solver_bound_by_shaving(lhi_solver *r, lh_error *err)
{
    const lhi_engine before = r->budget.engine;
    const uint64_t most = SHAVING_TICKS * (uint64_t)r->shop->n_ops;
    const uint64_t share = lhi_budget_get_remaining(&r->budget, UINT64_MAX) / 8;
    const uint64_t end = r->budget.used + (most < share ? most : share);
    int64_t step = 1;
    bool failed = false;
    if (!r->windows->has_full_lattices ||
        r->shop->n_ops > LHI_SOLVER_LARGE_OPERATIONS ||
        !lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_SHAVING))
        return LH_OK;
    lhi_budget_enter_engine(&r->budget, LHI_ENGINE_SHAVING);
    while (step > 0 && r->budget.used < end && !lhi_solver_is_done(r)) {
        const int64_t units = lhi_solver_get_first_deadline(r) + step - 1;
        bool open = true;
        if (units < lhi_solver_get_deadline_limit(r)) {
            open = lhi_windows_set(
                r->windows, lhi_shop_get_deadline(r->shop, units), &r->budget);
            if (open && !r->budget.stop)
                LHI_TRY(lhi_shaving_run(r->windows, end - r->budget.used,
                                        &r->budget, &open, err));
        }
        if (!open)
            lhi_solver_raise_bound(r, units + 1, "shaving");
        failed = failed || open;
        step = failed ? step / 2 : 2 * step;
    }
    lhi_budget_restore_engine(&r->budget, before);
    return LH_OK;
}
