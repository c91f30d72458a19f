/* SPDX-License-Identifier: Apache-2.0 */
#include "solve/state/batch.h"

#include "base/team.h"

/* Signals tasks i and later to stop. */
static void end_after(lhi_batch *b, uint32_t i)
{
    for (uint32_t k = i; k < b->n; k++)
        atomic_store(&b->pieces[k].end, true);
}

/* Runs one task on any thread; thread 0 is the caller's. */
static void do_piece(void *context, uint32_t i, uint32_t who)
{
    lhi_batch *b = context;
    lhi_piece *k = &b->pieces[i];
    const bool here = who == 0;
    /* A batch may be part of another batch's task. */
    k->budget.calls = here && b->r->budget.calls;
    if (here) {
        k->budget.now = b->r->budget.now;
        k->budget.last_call_s = b->r->budget.last_call_s;
    }
    if (!lhi_look(&k->budget))
        k->status = b->work(b->context, i, k);
    if (here) {
        b->r->budget.last_call_s = k->budget.last_call_s;
        if (k->budget.late && !atomic_load(&k->end))
            b->r->budget.stop = b->r->budget.late = true;
    }
    if (k->last || k->status != LH_OK)
        end_after(b, i + 1);
}

/* Merges finished tasks in order, on the caller's thread. */
static void take_done(void *context, uint32_t n_done)
{
    lhi_batch *b = context;
    for (; b->n_taken < n_done && !b->over; b->n_taken++) {
        lhi_piece *k = &b->pieces[b->n_taken];
        b->status = k->status;
        if (k->status != LH_OK && b->err)
            *b->err = k->err;
        lhi_spend_part(&b->r->budget, &k->budget);
        const lhi_engine before = b->r->budget.engine;
        lhi_go_back_to(&b->r->budget, k->budget.engine);
        bool last = k->last;
        if (b->status == LH_OK)
            b->status = b->take(b->context, b->n_taken, k, &last, b->err);
        lhi_go_back_to(&b->r->budget, before);
        b->over = last || b->status != LH_OK || lhi_is_closed(b->r);
        if (b->over)
            end_after(b, 0);
    }
    /* Effort limits do not stop other tasks: they have their share and must use
     * it exactly as on one thread. */
    lhi_look(&b->r->budget);
    if (b->r->budget.late)
        end_after(b, 0);
}

lh_status lhi_batch_run(lhi_batch *b, uint32_t threads, lh_error *err)
{
    const lhi_team team = {b, do_piece, take_done};
    b->n_taken = 0;
    b->over = false;
    b->status = LH_OK;
    b->err = err;
    for (uint32_t i = 0; i < b->n; i++) {
        lhi_piece *k = &b->pieces[i];
        atomic_store(&k->end, false);
        k->budget = lhi_budget_part(&b->r->budget, k->ticks, &k->end);
        k->status = LH_OK;
        k->last = false;
    }
    lhi_team_run(&team, b->n, threads);
    return b->status;
}
