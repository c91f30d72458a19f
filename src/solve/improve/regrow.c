/* SPDX-License-Identifier: Apache-2.0 */
/* Destroy and repair. Departure order determines the meeting costs in the rest
 * of a schedule, and a schedule with a good first half deserves a different
 * end. Therefore most insertion cycles keep the first microbatches of the
 * incumbent, or of an improved schedule with fewer microbatches. The result is
 * improved from both ends. */
#include "solve/improve/regrow.h"

#include "base/fail.h"
#include "base/random.h"
#include "solve/improve/fewer.h"
#include "solve/improve/justify.h"

enum {
    CLOSE = 200, /* justify results within best / CLOSE */
    OF_BEST = 4, /* of 8 cycles: keep part of the best */
    OF_FEWER = 3 /* of 8: part of a reduced schedule; else nothing */
};

/* State for destroy and repair. */
struct lhi_regrower {
    lhi_inserter *inserters[2]; /* from the first microbatch, or the last */
    uint32_t turn;              /* inserter to use next */
    lhi_justifier *justifier;
    lhi_words *found;
    int64_t *start; /* starts in the best, per operation */
    lhi_random random;
};

/* Draws a known schedule with fewer than n microbatches; NULL: none. */
static const lhi_rung *draw_rung(lhi_regrower *a, const lhi_fewer *fewer,
                                 uint32_t n, uint32_t *m)
{
    uint32_t n_known = 0, pick;
    for (uint32_t i = 2; fewer && i < n; i++)
        n_known += fewer->rung[i].start != NULL;
    if (n_known == 0)
        return NULL;
    pick = lhi_random_below(&a->random, n_known);
    for (*m = 2; !fewer->rung[*m].start || pick-- > 0;)
        ++*m;
    return &fewer->rung[*m];
}

/* Draws the prefix to keep: part of the best, part of a reduced schedule, or
 * nothing. */
static void draw_kept(lhi_regrower *a, const lhi_words *words, int64_t time,
                      const lhi_fewer *fewer, lhi_insert *out)
{
    const uint32_t what = lhi_random_below(&a->random, 8);
    const lhi_rung *rung = NULL;
    uint32_t m = 0;
    if (what >= OF_BEST + OF_FEWER)
        return;
    if (what >= OF_BEST)
        rung = draw_rung(a, fewer, words->shop->n_microbatches, &m);
    if (!rung && time >= 0)
        m = words->shop->n_microbatches;
    if (m < 2)
        return;
    out->start = rung ? rung->start : a->start;
    if (!rung) {
        const lhi_shop *s = words->shop;
        for (uint32_t o = 0; o < s->n_ops; o++)
            a->start[o] = words->end[o] - s->time[o];
    }
    out->n_microbatches = m;
    out->n_kept = 1 + lhi_random_below(&a->random, m - 1);
}

/* Anneals once and improves the result by justification. */
static lh_status regrow(lhi_regrower *a, lhi_words *words, int64_t *time,
                        lhi_engine *by, const lhi_regrow *how,
                        lhi_budget *budget, lh_error *err)
{
    lhi_insert insert = {.ticks = how->ticks, .target = how->target};
    int64_t found = -1;
    if (lhi_is_on(budget, LHI_ENGINE_REGROWTH))
        draw_kept(a, words, *time, how->fewer, &insert);
    const lhi_engine engine = insert.n_kept > 0 ? LHI_ENGINE_REGROWTH
                              : a->turn         ? LHI_ENGINE_MIRROR
                                                : LHI_ENGINE_INSERTION;
    const lhi_engine before = lhi_call_engine(budget, engine);
    lhi_inserter_run(a->inserters[a->turn], &insert, a->found, &found, budget);
    lhi_go_back_to(budget, before);
    a->turn = !a->turn && lhi_is_on(budget, LHI_ENGINE_MIRROR);
    if (found < 0 || (*time >= 0 && found > *time + *time / CLOSE))
        return LH_OK;
    const int64_t plain = found = lhi_words_time(a->found);
    LHI_TRY(lhi_justify_calmly(a->justifier, a->found, &found, how->seed,
                               how->target, budget, err));
    if (*time >= 0 && found >= *time)
        return LH_OK;
    lhi_words_copy(words, a->found);
    *time = lhi_words_time(words);
    *by = found < plain ? LHI_ENGINE_JUSTIFICATION : engine;
    return LH_OK;
}

lh_status lhi_regrow_run(lhi_regrower *a, lhi_words *words, int64_t *time,
                         lhi_engine *by, const lhi_regrow *how,
                         lhi_budget *budget, lh_error *err)
{
    const uint64_t end = budget->used + how->ticks;
    a->turn = a->turn && lhi_is_on(budget, LHI_ENGINE_MIRROR);
    while (!budget->stop && budget->used < end &&
           (*time < 0 || *time > how->target)) {
        lhi_regrow rest = *how;
        rest.ticks = end - budget->used;
        LHI_TRY(regrow(a, words, time, by, &rest, budget, err));
    }
    return LH_OK;
}

lh_status lhi_regrower_make(const lhi_shop *shop, uint64_t seed, lhi_arena *mem,
                            lhi_regrower **out, lh_error *err)
{
    *out = NULL;
    lhi_regrower *a = LHI_NEW(mem, lhi_regrower, 1);
    if (!a)
        return lhi_fail_nomem(err);
    lhi_random seeds = {seed};
    *a = (lhi_regrower){.random = {lhi_random_next(&seeds)}, .turn = seed & 1};
    for (uint32_t i = 0; i < 2; i++) {
        LHI_TRY(lhi_inserter_make(shop, i == 1, lhi_random_next(&seeds), mem,
                                  &a->inserters[i], err));
        if (!a->inserters[i])
            return LH_OK;
    }
    a->start = LHI_NEW(mem, int64_t, shop->n_ops);
    if (!a->start)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_justifier_make(shop, mem, &a->justifier, err));
    LHI_TRY(lhi_words_make(shop, mem, &a->found, err));
    *out = a;
    return LH_OK;
}
