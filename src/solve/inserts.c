/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches inserted one after another, from both ends at the same time. */
#include "solve/batch.h"
#include "solve/insert.h"

#include "base/fail.h"

enum { ENDS = 2 };

typedef struct one_end {
    lhi_arena *mem;
    lhi_inserter *inserter; /* NULL: not for this shop */
    lhi_justifier *justifier;
    lhi_words *found;
    bool ok, justified;
} one_end;

typedef struct inserts {
    lhi_solver *r;
    one_end ends[ENDS];
    uint64_t ticks;
    int64_t target; /* shop time */
} inserts;

static lh_status insert(void *context, uint32_t i, lhi_piece *piece)
{
    inserts *a = context;
    one_end *k = &a->ends[i];
    lhi_budget *budget = &piece->budget;
    int64_t time = -1;
    lhi_inserter_run(k->inserter, k->found, &time, a->ticks, a->target, budget);
    if (time < 0)
        return LH_OK;
    int64_t before = time = lhi_words_time(k->found);
    lhi_justify how = {.seed = a->r->o.seed,
                       .ticks = UINT64_MAX / 2,
                       .target = a->target,
                       .calm = true};
    if (time >= 0 && k->justifier)
        LHI_TRY(lhi_justify_run(k->justifier, k->found, &time, &how, budget,
                                &piece->err));
    k->ok = time >= 0;
    k->justified = time < before;
    return LH_OK;
}

static lh_status take(void *context, uint32_t i, const lhi_piece *piece,
                      bool *last, lh_error *err)
{
    inserts *a = context;
    const one_end *k = &a->ends[i];
    (void)piece;
    (void)last; /* nothing is left to do where one meets the bound */
    return k->ok ? lhi_offer(a->r, k->found,
                             k->justified ? "justification" : "insertion", err)
                 : LH_OK;
}

static lh_status make_end(inserts *a, uint32_t i, lh_error *err)
{
    const lhi_shop *s = a->r->shop;
    one_end *k = &a->ends[i];
    k->mem = lhi_arena_make(0);
    if (!k->mem)
        return lhi_fail_nomem(err);
    LHI_TRY(
        lhi_inserter_make(s, i == 1, a->r->o.seed, k->mem, &k->inserter, err));
    if (!k->inserter)
        return LH_OK;
    LHI_TRY(lhi_justifier_make(s, k->mem, &k->justifier, err));
    return lhi_words_make(s, k->mem, &k->found, err);
}

lh_status lhi_try_insertion(lhi_solver *r, uint64_t ticks, lh_error *err)
{
    lhi_piece pieces[ENDS] = {0};
    inserts a = {
        .r = r, .ticks = ticks, .target = lhi_shop_deadline(r->shop, r->low)};
    lhi_batch batch = {
        .r = r, .context = &a, .pieces = pieces, .work = insert, .take = take};
    lh_status status = LH_OK;
    lhi_report(r, "insertion");
    for (uint32_t i = 0; i < ENDS && status == LH_OK; i++) {
        status = make_end(&a, i, err);
        if (!a.ends[i].inserter)
            break;
        pieces[batch.n++].ticks = lhi_budget_left(&r->budget, UINT64_MAX / 2);
    }
    for (uint32_t i = 0; i < batch.n; i++)
        pieces[i].ticks /= batch.n;
    if (status == LH_OK && !lhi_is_done(r))
        status = lhi_batch_run(&batch, r->o.threads, err);
    for (uint32_t i = 0; i < ENDS; i++)
        lhi_arena_free(a.ends[i].mem);
    return status;
}
