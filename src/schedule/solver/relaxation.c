/* SPDX-License-Identifier: Apache-2.0 */
/* Relaxation for unequal W parts. If a W does not divide evenly, its parts
 * differ by one unit of time or memory, and their order is open. A search that
 * takes them in order proves nothing about other orders. If every part takes as
 * long as the shortest and frees as much as the largest, all parts are
 * equivalent and no schedule becomes slower or larger. The windows of this
 * relaxed job shop are valid bounds. */
#include "schedule/solver/relaxation.h"

#include "base/fail.h"

/* Raises the lower bound by the time windows of the relaxed job shop, as far as
 * they refute deadlines. */
static lh_status raise_by_windows(lhi_solver *r, lh_error *err)
{
    uint32_t impossible;
    int64_t unit_ns = r->shop->unit_ns;
    r->low_units = (r->bound_ns + unit_ns - 1) / unit_ns;
    LHI_TRY(lhi_windows_make(r->shop, r->o.memory / 2, &r->budget, r->mem,
                             &r->windows, &impossible, err));
    return impossible == NONE ? lhi_solver_bound_by_windows(r, err) : LH_OK;
}

/* Builds the relaxed job shop (equal W parts), raises the lower bound by it,
 * and restores the original job shop. */
static lh_status raise_bound(lhi_solver *r, lh_error *err)
{
    lhi_shop *own = r->shop, *loose = NULL;
    lh_error why = {0};
    lh_status status = lhi_shop_make_relaxed(
        r->p, r->o.sub_blocks, r->o.fifo, r->o.objective, r->mem, &loose, &why);
    if (status == LH_EUNSUPPORTED)
        return LH_OK;
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    r->shop = loose;
    status = raise_by_windows(r, err);
    lhi_windows_free(r->windows);
    r->windows = NULL;
    r->shop = own;
    r->low_units = (r->bound_ns + own->unit_ns - 1) / own->unit_ns;
    return status;
}

lh_status lhi_relaxation_raise_bound(lhi_solver *r, lh_error *err)
{
    if (!lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_RELAXATION))
        return LH_OK;
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_RELAXATION);
    lh_status status = raise_bound(r, err);
    lhi_budget_restore_engine(&r->budget, before);
    return status;
}
