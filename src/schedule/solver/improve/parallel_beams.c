/* SPDX-License-Identifier: Apache-2.0 */
/* Beam searches for deadlines between the bound and the incumbent, several in
 * parallel if full lattices serve all deadlines. */
#include "schedule/solver/improve/parallel_beams.h"

#include "schedule/solver/improve/beam_search.h"
#include "schedule/solver/improve/justification.h"
#include "schedule/solver/state/batch.h"

#include "base/fail.h"

/* Number of target makespans that are searched concurrently. */
enum { DEADLINES = 5 };

/* One beam search. */
typedef struct beam_task {
    lhi_arena *mem;
    lhi_windows *windows; /* r's windows, or a copy sharing its lattices */
    lhi_machine_orders *found;
    lhi_justifier *justifier; /* may be NULL */
    int64_t units, target;    /* deadline; job-shop time of the bound */
    bool refuted, ok, justified;
} beam_task;

/* A batch of beam searches. */
typedef struct beam_batch {
    lhi_solver *r;
    lhi_batch batch;
    beam_task one[DEADLINES];
    uint32_t n, width;
    size_t room; /* bytes per beam */
} beam_batch;

/* Runs beam search for one deadline and improves the schedule found by
 * justification. Task number i of a parallel batch: `context` is the
 * beam_batch. */
static lh_status run_task(void *context, uint32_t i, lhi_batch_task *piece)
{
    beam_batch *b = context;
    beam_task *k = &b->one[i];
    lhi_budget *budget = &piece->budget;
    int64_t deadline = lhi_shop_get_deadline(b->r->shop, k->units);
    k->refuted = !lhi_windows_set(k->windows, deadline, budget);
    if (k->refuted || budget->stop)
        return LH_OK;
    LHI_TRY(lhi_beam_search_run(k->windows, b->width, b->room, k->found, &k->ok,
                                budget, &piece->err));
    if (!k->ok)
        return LH_OK;
    piece->ends_batch = true;
    int64_t time = lhi_machine_orders_evaluate(k->found), before = time;
    if (time >= 0)
        LHI_TRY(lhi_justifier_run_unperturbed(k->justifier, k->found, &time,
                                              b->r->o.seed, k->target, budget,
                                              &piece->err));
    k->justified = time < before;
    k->ok = time >= 0;
    return LH_OK;
}

/* Merges the result of beam task `i` in task order: raises the lower bound if
 * its deadline is refuted, or offers the schedule to the solver. Leaves *last
 * unchanged. */
static lh_status merge_task(void *context, uint32_t i,
                            const lhi_batch_task *piece, bool *last,
                            lh_error *err)
{
    beam_batch *b = context;
    const beam_task *k = &b->one[i];
    (void)piece;
    (void)last; /* set by the task itself */
    if (k->refuted)
        lhi_solver_raise_bound(b->r, k->units + 1,
                               lhi_windows_get_engine_name(b->r));
    return k->ok
               ? lhi_solver_offer_orders(b->r, k->found,
                                         k->justified ? LHI_ENGINE_JUSTIFICATION
                                                      : LHI_ENGINE_BEAMS,
                                         err)
               : LH_OK;
}

/* Allocates one beam search's state per task in `pieces`; with several tasks
 * each has windows (earliest start, latest end) of its own. */
static lh_status make_beams(beam_batch *b, lhi_batch_task *pieces,
                            lh_error *err)
{
    lhi_solver *r = b->r;
    b->batch = (lhi_batch){.r = r,
                           .context = b,
                           .pieces = pieces,
                           .work = run_task,
                           .take = merge_task};
    for (uint32_t i = 0; i < b->n; i++) {
        beam_task *k = &b->one[i];
        k->mem = lhi_arena_make(0);
        if (!k->mem)
            return lhi_fail_nomem(err);
        k->windows = r->windows;
        if (b->n > 1)
            LHI_TRY(
                lhi_windows_make_shared(r->windows, k->mem, &k->windows, err));
        LHI_TRY(lhi_machine_orders_make(r->shop, k->mem, &k->found, err));
        LHI_TRY(lhi_justifier_make(r->shop, k->mem, &k->justifier, err));
    }
    return LH_OK;
}

/* Runs beam search for all deadlines, shortest first; only the first schedule
 * found counts. */
static lh_status search_all(beam_batch *b, lh_error *err)
{
    lhi_solver *r = b->r;
    for (uint32_t left = DEADLINES; left > 0 && !lhi_solver_is_done(r);) {
        const int64_t high = lhi_solver_get_deadline_limit(r) - 1;
        const uint32_t n = left < b->n ? left : b->n;
        if (high < r->low_units)
            break;
        for (uint32_t i = 0; i < n; i++) {
            beam_task *k = &b->one[i];
            k->units = r->low_units + ((high - r->low_units) >> (left - 1 - i));
            k->target = lhi_shop_get_deadline(r->shop, r->low_units);
            k->refuted = k->ok = k->justified = false;
            /* A terminated search may or may not have started. */
            if (k->windows != r->windows)
                lhi_windows_sync_lattices(k->windows, r->windows);
            b->batch.pieces[i].ticks =
                lhi_budget_get_remaining(&r->budget, UINT64_MAX / 2) / n;
        }
        b->batch.n = n;
        LHI_TRY(lhi_batch_run(&b->batch, r->o.threads, err));
        left -= b->batch.n_taken;
    }
    return LH_OK;
}

lh_status lhi_parallel_beams_run(lhi_solver *r, uint32_t width, lh_error *err)
{
    lhi_batch_task pieces[DEADLINES] = {0};
    beam_batch b = {.r = r, .width = width, .n = 1};
    /* Each operation copies a partial schedule: too slow for large problems. */
    if (r->shop->n_ops > LHI_SOLVER_LARGE_OPERATIONS ||
        !lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_BEAMS))
        return LH_OK;
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_BEAMS);
    if (r->windows->has_full_lattices && r->n_parallel > 1)
        b.n = DEADLINES;
    uint32_t share = r->n_parallel < b.n ? r->n_parallel : b.n;
    b.room = r->o.memory / (share > 2 ? 4 * share : 8);
    lhi_solver_report(r, "beam search");
    lh_status status = make_beams(&b, pieces, err);
    if (status == LH_OK)
        status = search_all(&b, err);
    lhi_budget_restore_engine(&r->budget, before);
    for (uint32_t i = 0; i < b.n; i++)
        lhi_arena_free(b.one[i].mem);
    return status;
}
