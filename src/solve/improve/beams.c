/* SPDX-License-Identifier: Apache-2.0 */
/* Beam searches for deadlines between the bound and the incumbent, several in
 * parallel if full lattices serve all deadlines. */
#include "solve/improve/beams.h"

#include "solve/improve/beam.h"
#include "solve/improve/justify.h"
#include "solve/state/batch.h"

#include "base/fail.h"

enum { DEADLINES = 5 };

/* One beam search. */
typedef struct one_beam {
    lhi_arena *mem;
    lhi_windows *windows; /* r's windows, or a copy sharing its lattices */
    lhi_words *found;
    lhi_justifier *justifier; /* may be NULL */
    int64_t units, target;    /* deadline; job-shop time of the bound */
    bool refuted, ok, justified;
} one_beam;

/* A batch of beam searches. */
typedef struct beams {
    lhi_solver *r;
    lhi_batch batch;
    one_beam one[DEADLINES];
    uint32_t n, width;
    size_t room; /* bytes per beam */
} beams;

/* Task: searches one deadline and improves the result by justification. */
static lh_status search(void *context, uint32_t i, lhi_piece *piece)
{
    beams *b = context;
    one_beam *k = &b->one[i];
    lhi_budget *budget = &piece->budget;
    int64_t deadline = lhi_shop_deadline(b->r->shop, k->units);
    k->refuted = !lhi_windows_set(k->windows, deadline, budget);
    if (k->refuted || budget->stop)
        return LH_OK;
    LHI_TRY(lhi_words_beam(k->windows, b->width, b->room, k->found, &k->ok,
                           budget, &piece->err));
    if (!k->ok)
        return LH_OK;
    piece->last = true;
    int64_t time = lhi_words_time(k->found), before = time;
    if (time >= 0)
        LHI_TRY(lhi_justify_calmly(k->justifier, k->found, &time, b->r->o.seed,
                                   k->target, budget, &piece->err));
    k->justified = time < before;
    k->ok = time >= 0;
    return LH_OK;
}

/* Merges one result: raises the bound or offers the schedule. */
static lh_status take_beam(void *context, uint32_t i, const lhi_piece *piece,
                           bool *last, lh_error *err)
{
    beams *b = context;
    const one_beam *k = &b->one[i];
    (void)piece;
    (void)last; /* set by the task itself */
    if (k->refuted)
        lhi_raise_bound(b->r, k->units + 1, lhi_windows_name(b->r));
    return k->ok ? lhi_solver_offer(b->r, k->found,
                                    k->justified ? LHI_ENGINE_JUSTIFICATION
                                                 : LHI_ENGINE_BEAMS,
                                    err)
                 : LH_OK;
}

static lh_status make_beams(beams *b, lhi_piece *pieces, lh_error *err)
{
    lhi_solver *r = b->r;
    b->batch = (lhi_batch){.r = r,
                           .context = b,
                           .pieces = pieces,
                           .work = search,
                           .take = take_beam};
    for (uint32_t i = 0; i < b->n; i++) {
        one_beam *k = &b->one[i];
        k->mem = lhi_arena_make(0);
        if (!k->mem)
            return lhi_fail_nomem(err);
        k->windows = r->windows;
        if (b->n > 1)
            LHI_TRY(lhi_windows_beside(r->windows, k->mem, &k->windows, err));
        LHI_TRY(lhi_words_make(r->shop, k->mem, &k->found, err));
        LHI_TRY(lhi_justifier_make(r->shop, k->mem, &k->justifier, err));
    }
    return LH_OK;
}

/* Runs all deadlines, shortest first; only the first schedule found counts. */
static lh_status search_all(beams *b, lh_error *err)
{
    lhi_solver *r = b->r;
    for (uint32_t left = DEADLINES; left > 0 && !lhi_is_done(r);) {
        const int64_t high = lhi_first_enough(r) - 1;
        const uint32_t n = left < b->n ? left : b->n;
        if (high < r->low)
            break;
        for (uint32_t i = 0; i < n; i++) {
            one_beam *k = &b->one[i];
            k->units = r->low + ((high - r->low) >> (left - 1 - i));
            k->target = lhi_shop_deadline(r->shop, r->low);
            k->refuted = k->ok = k->justified = false;
            /* A terminated search may or may not have started. */
            if (k->windows != r->windows)
                lhi_windows_look_again(k->windows, r->windows);
            b->batch.pieces[i].ticks =
                lhi_budget_left(&r->budget, UINT64_MAX / 2) / n;
        }
        b->batch.n = n;
        LHI_TRY(lhi_batch_run(&b->batch, r->o.threads, err));
        left -= b->batch.n_taken;
    }
    return LH_OK;
}

lh_status lhi_try_beams(lhi_solver *r, uint32_t width, lh_error *err)
{
    lhi_piece pieces[DEADLINES] = {0};
    beams b = {.r = r, .width = width, .n = 1};
    /* Each operation copies a partial schedule: too slow for large problems. */
    if (r->shop->n_ops > LHI_LARGE || !lhi_is_on(&r->budget, LHI_ENGINE_BEAMS))
        return LH_OK;
    const lhi_engine before = lhi_call_engine(&r->budget, LHI_ENGINE_BEAMS);
    if (r->windows->whole && r->at_once > 1)
        b.n = DEADLINES;
    uint32_t share = r->at_once < b.n ? r->at_once : b.n;
    b.room = r->o.memory / (share > 2 ? 4 * share : 8);
    lhi_report(r, "beam search");
    lh_status status = make_beams(&b, pieces, err);
    if (status == LH_OK)
        status = search_all(&b, err);
    lhi_go_back_to(&r->budget, before);
    for (uint32_t i = 0; i < b.n; i++)
        lhi_arena_free(b.one[i].mem);
    return status;
}
