/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/solver/state/batch.h"

#include "base/thread_pool.h"

/* Signals tasks number i and above of the batch to stop. */
static void stop_tasks(lhi_batch *b, uint32_t i)
{
    for (uint32_t k = i; k < b->n; k++)
        atomic_store(&b->pieces[k].end, true);
}

/* Runs task `i` on thread `thread`; thread 0 is the caller's. */
static void run_task(void *context, uint32_t i, uint32_t thread)
{
    lhi_batch *b = context;
    lhi_batch_task *k = &b->pieces[i];
    const bool here = thread == 0;
    /* A batch may be part of another batch's task. */
    k->budget.may_report = here && b->r->budget.may_report;
    if (here) {
        k->budget.now = b->r->budget.now;
        k->budget.last_call_s = b->r->budget.last_call_s;
    }
    if (!lhi_budget_check_time(&k->budget))
        k->status = b->work(b->context, i, k);
    if (here) {
        b->r->budget.last_call_s = k->budget.last_call_s;
        if (k->budget.timed_out && !atomic_load(&k->end))
            b->r->budget.stop = b->r->budget.timed_out = true;
    }
    if (k->ends_batch || k->status != LH_OK)
        stop_tasks(b, i + 1);
}

/* Merges the results of finished tasks in order, on the caller's thread. */
static void merge_finished(void *context, uint32_t n_done)
{
    lhi_batch *b = context;
    for (; b->n_taken < n_done && !b->over; b->n_taken++) {
        lhi_batch_task *k = &b->pieces[b->n_taken];
        b->status = k->status;
        if (k->status != LH_OK && b->err)
            *b->err = k->err;
        lhi_budget_merge_part(&b->r->budget, &k->budget);
        const lhi_engine before = b->r->budget.engine;
        lhi_budget_restore_engine(&b->r->budget, k->budget.engine);
        bool last = k->ends_batch;
        if (b->status == LH_OK)
            b->status = b->take(b->context, b->n_taken, k, &last, b->err);
        lhi_budget_restore_engine(&b->r->budget, before);
        b->over = last || b->status != LH_OK || lhi_solver_is_closed(b->r);
        if (b->over)
            stop_tasks(b, 0);
    }
    /* Effort limits do not stop other tasks: they have their share and must use
     * it exactly as on one thread. */
    lhi_budget_check_time(&b->r->budget);
    if (b->r->budget.timed_out)
        stop_tasks(b, 0);
}

lh_status lhi_batch_run(lhi_batch *b, uint32_t threads, lh_error *err)
{
    const lhi_parallel_job team = {b, run_task, merge_finished};
    b->n_taken = 0;
    b->over = false;
    b->status = LH_OK;
    b->err = err;
    for (uint32_t i = 0; i < b->n; i++) {
        lhi_batch_task *k = &b->pieces[i];
        atomic_store(&k->end, false);
        k->budget = lhi_budget_make_part(&b->r->budget, k->ticks, &k->end);
        k->status = LH_OK;
        k->ends_batch = false;
    }
    lhi_run_parallel(&team, b->n, threads);
    return b->status;
}
