/* SPDX-License-Identifier: Apache-2.0 */
/* Runs insertion on all threads. */
#include "solve/improve/inserts.h"

#include "solve/improve/regrow.h"
#include "solve/state/batch.h"

#include "base/fail.h"

enum {
    REGROWER_BYTES = 800, /* per operation, approximate */
    ENDS = 2              /* insertion from the first or the last */
};

/* One task's result. */
typedef struct one {
    lhi_words *words; /* best orders of this task */
    int64_t time, before;
    lhi_engine by;
} one;

/* A batch of insertion tasks. */
typedef struct inserts {
    lhi_solver *r;
    one *all;
    lhi_regrow how;
} inserts;

static lh_status insert(void *context, uint32_t i, lhi_piece *piece)
{
    inserts *a = context;
    one *k = &a->all[i];
    lhi_regrow how = a->how;
    how.ticks = piece->ticks;
    return lhi_regrow_run(a->r->regrowers[i].regrower, k->words, &k->time,
                          &k->by, &how, &piece->budget, &piece->err);
}

/* Offers a task's schedule if it improved. */
static lh_status take_schedule(void *context, uint32_t i,
                               const lhi_piece *piece, bool *last,
                               lh_error *err)
{
    inserts *a = context;
    const one *k = &a->all[i];
    (void)piece;
    (void)last; /* nothing remains once a task meets the bound */
    return k->time >= 0 && (k->before < 0 || k->time < k->before)
               ? lhi_solver_offer(a->r, k->words, k->by, err)
               : LH_OK;
}

/* Creates the workers: at least one per direction, at most an eighth of the
 * memory. None if insertion does not apply to the job shop. */
static lh_status make_regrowers(lhi_solver *r, lh_error *err)
{
    if (r->regrowers)
        return LH_OK;
    const size_t fit = r->o.memory / 8 / REGROWER_BYTES / r->shop->n_ops;
    uint32_t n = r->at_once < fit ? r->at_once : (uint32_t)fit;
    if (n < ENDS)
        n = ENDS;
    r->regrowers = LHI_NEW(r->mem, lhi_worker, n);
    if (!r->regrowers)
        return lhi_fail_nomem(err);
    while (r->n_regrowers < n && !lhi_spend(&r->budget, r->shop->n_ops / 6)) {
        lhi_worker *k = &r->regrowers[r->n_regrowers];
        k->mem = lhi_arena_make(0);
        if (!k->mem)
            return lhi_fail_nomem(err);
        lh_status status = lhi_regrower_make(
            r->shop, r->o.seed + r->n_regrowers, k->mem, &k->regrower, err);
        if (status != LH_OK || !k->regrower) {
            lhi_arena_free(k->mem);
            return status;
        }
        r->n_regrowers++;
    }
    return LH_OK;
}

void lhi_free_regrowers(lhi_solver *r)
{
    for (uint32_t i = 0; i < r->n_regrowers; i++)
        lhi_arena_free(r->regrowers[i].mem);
    r->n_regrowers = 0;
}

static lh_status make_all(inserts *a, lhi_arena *mem, lhi_piece **pieces,
                          lh_error *err)
{
    lhi_solver *r = a->r;
    const uint32_t n = r->n_regrowers;
    *pieces = LHI_NEW(mem, lhi_piece, n);
    a->all = LHI_NEW(mem, one, n);
    if (!*pieces || !a->all)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n && !lhi_spend(&r->budget, r->shop->n_ops / 12);
         i++) {
        one *k = &a->all[i];
        k->before = k->time = -1;
        LHI_TRY(lhi_words_make(r->shop, mem, &k->words, err));
        if (r->has_words) {
            lhi_words_copy(k->words, r->best);
            k->before = k->time = lhi_words_time(k->words);
        }
        (*pieces)[i].ticks = lhi_budget_left(&r->budget, a->how.ticks) / n;
    }
    return LH_OK;
}

lh_status lhi_try_insertion(lhi_solver *r, uint64_t ticks, lh_error *err)
{
    inserts a = {.r = r,
                 .how = {.fewer = r->fewer,
                         .ticks = ticks,
                         .target = lhi_shop_deadline(r->shop, r->low),
                         .seed = r->o.seed}};
    if (!lhi_is_on(&r->budget, LHI_ENGINE_INSERTION))
        return LH_OK;
    const lhi_engine before = lhi_call_engine(&r->budget, LHI_ENGINE_INSERTION);
    LHI_TRY(make_regrowers(r, err));
    if (r->n_regrowers == 0 || lhi_is_done(r)) {
        lhi_go_back_to(&r->budget, before);
        return LH_OK;
    }
    lhi_arena *mem = lhi_arena_make(0);
    lhi_batch batch = {.r = r,
                       .context = &a,
                       .n = r->n_regrowers,
                       .work = insert,
                       .take = take_schedule};
    if (!mem)
        return lhi_fail_nomem(err);
    lhi_report(r, "insertion");
    lh_status status = make_all(&a, mem, &batch.pieces, err);
    if (status == LH_OK && !r->budget.stop)
        status = lhi_batch_run(&batch, r->o.threads, err);
    lhi_go_back_to(&r->budget, before);
    lhi_arena_free(mem);
    return status;
}
