/* SPDX-License-Identifier: Apache-2.0 */
/* Runs insertion on all threads. */
#include "schedule/solver/improve/parallel_insertion.h"

#include "schedule/solver/improve/destroy_repair.h"
#include "schedule/solver/state/batch.h"

#include "base/fail.h"

enum {
    WORKER_BYTES = 800, /* per operation, approximate */
    N_DIRECTIONS = 2    /* insertion from the first or the last */
};

/* One task's result. */
typedef struct insertion_task {
    lhi_machine_orders *orders; /* best orders of this task */
    int64_t time, before;
    lhi_engine by;
} insertion_task;

/* A batch of insertion tasks. */
typedef struct insertion_batch {
    lhi_solver *r;
    insertion_task *all;
    lhi_repair_options how;
} insertion_batch;

/* Runs destroy and repair by insertion on worker number i, within the task's
 * budget `piece`. Task of a parallel batch: `context` is the insertion_batch.
 * */
static lh_status run_task(void *context, uint32_t i, lhi_batch_task *piece)
{
    insertion_batch *a = context;
    insertion_task *k = &a->all[i];
    lhi_repair_options how = a->how;
    how.ticks = piece->ticks;
    return lhi_repairer_run(a->r->workers[i].repairer, k->orders, &k->time,
                            &k->by, &how, &piece->budget, &piece->err);
}

/* Offers the schedule of insertion task `i` to the solver if the task improved
 * it. Merge function for a batch, called in task order; leaves *last
 * unchanged. */
static lh_status merge_task(void *context, uint32_t i,
                            const lhi_batch_task *piece, bool *last,
                            lh_error *err)
{
    insertion_batch *a = context;
    const insertion_task *k = &a->all[i];
    (void)piece;
    (void)last; /* nothing remains once a task meets the bound */
    return k->time >= 0 && (k->before < 0 || k->time < k->before)
               ? lhi_solver_offer_orders(a->r, k->orders, k->by, err)
               : LH_OK;
}

/* Creates the solver's insertion workers: at least one per direction of time,
 * with at most an eighth of the memory. None if insertion does not apply to the
 * job shop. */
static lh_status make_workers(lhi_solver *r, lh_error *err)
{
    if (r->workers)
        return LH_OK;
    const size_t fit = r->o.memory / 8 / WORKER_BYTES / r->shop->n_ops;
    uint32_t n = r->n_parallel < fit ? r->n_parallel : (uint32_t)fit;
    if (n < N_DIRECTIONS)
        n = N_DIRECTIONS;
    r->workers = LHI_NEW(r->mem, lhi_worker, n);
    if (!r->workers)
        return lhi_fail_nomem(err);
    while (r->n_workers < n &&
           !lhi_budget_spend(&r->budget, r->shop->n_ops / 6)) {
        lhi_worker *k = &r->workers[r->n_workers];
        k->mem = lhi_arena_make(0);
        if (!k->mem)
            return lhi_fail_nomem(err);
        lh_status status = lhi_repairer_make(r->shop, r->o.seed + r->n_workers,
                                             k->mem, &k->repairer, err);
        if (status != LH_OK || !k->repairer) {
            lhi_arena_free(k->mem);
            return status;
        }
        r->n_workers++;
    }
    return LH_OK;
}

void lhi_parallel_insertion_free_workers(lhi_solver *r)
{
    for (uint32_t i = 0; i < r->n_workers; i++)
        lhi_arena_free(r->workers[i].mem);
    r->n_workers = 0;
}

/* Creates one insertion task per worker, as far as the budget lasts, and stores
 * their budgets in *pieces. Each task starts from the incumbent if there is
 * one. */
static lh_status make_tasks(insertion_batch *a, lhi_arena *mem,
                            lhi_batch_task **pieces, lh_error *err)
{
    lhi_solver *r = a->r;
    const uint32_t n = r->n_workers;
    *pieces = LHI_NEW(mem, lhi_batch_task, n);
    a->all = LHI_NEW(mem, insertion_task, n);
    if (!*pieces || !a->all)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0;
         i < n && !lhi_budget_spend(&r->budget, r->shop->n_ops / 12); i++) {
        insertion_task *k = &a->all[i];
        k->before = k->time = -1;
        LHI_TRY(lhi_machine_orders_make(r->shop, mem, &k->orders, err));
        if (r->has_orders) {
            lhi_machine_orders_copy(k->orders, r->best);
            k->before = k->time = lhi_machine_orders_evaluate(k->orders);
        }
        (*pieces)[i].ticks =
            lhi_budget_get_remaining(&r->budget, a->how.ticks) / n;
    }
    return LH_OK;
}

lh_status lhi_parallel_insertion_run(lhi_solver *r, uint64_t ticks,
                                     lh_error *err)
{
    insertion_batch a = {
        .r = r,
        .how = {.reduction = r->reduction,
                .ticks = ticks,
                .target = lhi_shop_get_deadline(r->shop, r->low_units),
                .seed = r->o.seed}};
    if (!lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_INSERTION))
        return LH_OK;
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_INSERTION);
    LHI_TRY(make_workers(r, err));
    if (r->n_workers == 0 || lhi_solver_is_done(r)) {
        lhi_budget_restore_engine(&r->budget, before);
        return LH_OK;
    }
    lhi_arena *mem = lhi_arena_make(0);
    lhi_batch batch = {.r = r,
                       .context = &a,
                       .n = r->n_workers,
                       .work = run_task,
                       .take = merge_task};
    if (!mem)
        return lhi_fail_nomem(err);
    lhi_solver_report(r, "insertion");
    lh_status status = make_tasks(&a, mem, &batch.pieces, err);
    if (status == LH_OK && !r->budget.stop)
        status = lhi_batch_run(&batch, r->o.threads, err);
    lhi_budget_restore_engine(&r->budget, before);
    lhi_arena_free(mem);
    return status;
}
