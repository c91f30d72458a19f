/* SPDX-License-Identifier: Apache-2.0 */
/* Forward-backward improvement (Valls, Ballestin and Quintanilla,
 * "Justification and RCPSP: a technique that pays", 2005) with active schedules
 * in place of serial ones. What starts late in a schedule goes first in one
 * that is made from the end; what starts early in that goes first in one that
 * is made from the beginning. Each time what is due is disturbed a little:
 * everywhere or in a stretch of time, each operation for itself or whole
 * streams. */
#include "solve/justify.h"

#include <string.h>

enum { N_KINDS = LHI_SCATTER + 1, WALK = 8 };

struct lhi_justifier {
    lhi_arena *mem;
    const lhi_shop *shop;
    lhi_shop mirror;         /* the shop with time running backwards */
    lhi_words *words, *back; /* of the shop and of its mirror */
    int64_t *due, mean;
    uint64_t rng;
};

typedef enum shake_kind {
    SHAKE_OPERATIONS,
    SHAKE_KINDS, /* all F, all D, ... */
    SHAKE_STREAMS,
    N_SHAKES,
    SHAKE_NOTHING
} shake_kind;

typedef struct shake {
    shake_kind kind;
    int64_t most;     /* change */
    int64_t from, to; /* of operations that end in this time */
} shake;

static uint64_t draw(lhi_justifier *j) /* splitmix64 */
{
    uint64_t z = j->rng += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int64_t below(lhi_justifier *j, int64_t n)
{
    return n > 0 ? (int64_t)(draw(j) % (uint64_t)n) : 0;
}

/* Between -most and most. */
static int64_t change(lhi_justifier *j, int64_t most)
{
    return below(j, 2 * most + 1) - most;
}

/* --- the mirror
 * ----------------------------------------------------------------- */

/* The operation's number in the mirror, and back. */
static uint32_t turn(const lhi_shop *s, uint32_t o)
{
    const lhi_stream *t = &s->streams[s->stream_of[o]];
    return 2 * t->first + t->count - 1 - o;
}

static void turn_arcs(const lhi_shop *s, lhi_shop *t)
{
    uint32_t n_succ = 0, n_pred = 0;
    for (uint32_t x = 0; x < s->n_ops; x++) {
        uint32_t o = turn(s, x);
        for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++) {
            t->succ[n_succ] = turn(s, s->pred[i]);
            t->succ_lag[n_succ++] = s->pred_lag[i];
        }
        for (uint32_t i = s->succ_at[o]; i < s->succ_at[o + 1]; i++) {
            t->pred[n_pred] = turn(s, s->succ[i]);
            t->pred_lag[n_pred++] = s->succ_lag[i];
        }
        t->succ_at[x + 1] = n_succ;
        t->pred_at[x + 1] = n_pred;
    }
}

/* What is held after an operation from one side is what is held before it from
 * the other. Rules follow from arcs through other machines. */
static lh_status make_mirror(lhi_justifier *j, lh_error *err)
{
    const lhi_shop *s = j->shop;
    lhi_shop *t = &j->mirror;
    size_t n = s->n_ops, n_arcs = s->succ_at[n];
    *t = *s;
    t->time = LHI_NEW(j->mem, int64_t, n);
    t->memory = LHI_NEW(j->mem, int64_t, n);
    t->head = LHI_NEW(j->mem, int64_t, n);
    t->tail = LHI_NEW(j->mem, int64_t, n);
    t->succ_at = LHI_NEW(j->mem, uint32_t, n + 1);
    t->pred_at = LHI_NEW(j->mem, uint32_t, n + 1);
    t->succ = LHI_NEW(j->mem, uint32_t, n_arcs);
    t->pred = LHI_NEW(j->mem, uint32_t, n_arcs);
    t->succ_lag = LHI_NEW(j->mem, int64_t, n_arcs);
    t->pred_lag = LHI_NEW(j->mem, int64_t, n_arcs);
    t->machines = LHI_NEW(j->mem, lhi_machine, s->n_machines);
    if (!t->time || !t->memory || !t->head || !t->tail || !t->succ_at ||
        !t->pred_at || !t->succ || !t->pred || !t->succ_lag || !t->pred_lag ||
        !t->machines)
        return lhi_fail_nomem(err);
    for (uint32_t m = 0; m < s->n_machines; m++) {
        t->machines[m] = s->machines[m];
        t->machines[m].n_rules = 0;
    }
    for (uint32_t x = 0; x < n; x++) {
        uint32_t o = turn(s, x);
        t->time[x] = s->time[o];
        t->memory[x] = -s->memory[o];
        t->head[x] = s->tail[o] > 0 ? s->tail[o] : 0;
        t->tail[x] = s->head[o];
    }
    turn_arcs(s, t);
    return LH_OK;
}

lh_status lhi_justifier_make(const lhi_shop *shop, lhi_arena *mem,
                             lhi_justifier **out, lh_error *err)
{
    *out = NULL;
    for (uint32_t m = 0; m < shop->n_machines; m++)
        if (shop->machines[m].leader != NONE)
            return LH_OK;
    lhi_justifier *j = LHI_NEW(mem, lhi_justifier, 1);
    if (!j)
        return lhi_fail_nomem(err);
    *j = (lhi_justifier){.mem = mem, .shop = shop};
    j->due = LHI_NEW(mem, int64_t, shop->n_ops);
    if (!j->due)
        return lhi_fail_nomem(err);
    for (uint32_t o = 0; o < shop->n_ops; o++)
        j->mean += shop->time[o];
    j->mean = j->mean / shop->n_ops + 1;
    LHI_TRY(make_mirror(j, err));
    LHI_TRY(lhi_words_make(shop, mem, &j->words, err));
    LHI_TRY(lhi_words_make(&j->mirror, mem, &j->back, err));
    *out = j;
    return LH_OK;
}

/* The same orders from the other side. */
static void turn_words(const lhi_shop *s, lhi_words *to, const lhi_words *from)
{
    for (uint32_t m = 0; m < s->n_machines; m++)
        for (uint32_t k = 0; k < from->n[m]; k++)
            to->order[m][from->n[m] - 1 - k] = turn(s, from->order[m][k]);
}

/* --- what is due
 * ----------------------------------------------------------------- */

static shake draw_shake(lhi_justifier *j, int64_t span)
{
    shake k = {.kind = (shake_kind)below(j, N_SHAKES),
               .most = j->mean * (1 + below(j, 24)) / 8,
               .to = FAR};
    if (below(j, 4) > 0) {
        int64_t length = span / (2 + below(j, 20));
        k.from = below(j, span - length);
        k.to = k.from + length;
    }
    return k;
}

/* From the other side, operations are due in the order in which they start on
 * this one, the last first. */
static void make_due(lhi_justifier *j, const lhi_words *from, int64_t span,
                     const shake *k)
{
    const lhi_shop *s = j->shop;
    int64_t by_kind[N_KINDS] = {0};
    for (uint32_t i = 0; k->kind == SHAKE_KINDS && i < N_KINDS; i++)
        by_kind[i] = change(j, k->most);
    for (uint32_t i = 0; i < s->n_streams; i++) {
        const lhi_stream *t = &s->streams[i];
        int64_t add = by_kind[t->kind];
        if (k->kind == SHAKE_STREAMS)
            add = change(j, k->most);
        for (uint32_t o = t->first; o < t->first + t->count; o++) {
            int64_t due = span - from->end[o] + s->time[o];
            if (k->kind == SHAKE_OPERATIONS)
                add = change(j, k->most);
            if (from->end[o] >= k->from && from->end[o] <= k->to)
                due += add;
            j->due[turn(s, o)] = due;
        }
    }
}

/* A schedule of `to` by what is due after `from`, which takes `span`; its time,
 * or -1. */
static lh_status dispatch_from(lhi_justifier *j, const lhi_words *from,
                               int64_t span, const shake *k, lhi_words *to,
                               int64_t *time, lh_error *err)
{
    bool ok = false;
    make_due(j, from, span, k);
    LHI_TRY(lhi_words_dispatch(to, j->due, &ok, j->mem, err));
    *time = ok ? lhi_words_time(to) : -1;
    return LH_OK;
}

static bool take(lhi_words *best, int64_t *best_time, const lhi_words *words,
                 int64_t time)
{
    if (time < 0 || time >= *best_time)
        return false;
    *best_time = time;
    lhi_words_copy(best, words);
    lhi_words_time(best);
    return true;
}

lh_status lhi_justify_run(lhi_justifier *j, lhi_words *best, int64_t *best_time,
                          const lhi_justify *how, lhi_budget *budget,
                          lh_error *err)
{
    const uint64_t each = j->shop->n_ops / 8 + 1;
    const uint64_t end = budget->used + how->ticks;
    const shake still = {.kind = SHAKE_NOTHING};
    const lhi_words *now = best;
    int64_t span = *best_time;
    j->rng = how->seed;
    for (uint32_t since = 0; *best_time > how->target;) {
        int64_t back, turned = -1, time = -1;
        shake k = since == 0 ? still : draw_shake(j, span);
        LHI_TRY(dispatch_from(j, now, span, &k, j->back, &back, err));
        if (lhi_spend(budget, each))
            break;
        if (back >= 0) {
            turn_words(j->shop, j->words, j->back);
            turned = lhi_words_time(j->words);
        }
        bool better = take(best, best_time, j->words, turned);
        if (back >= 0)
            LHI_TRY(
                dispatch_from(j, j->back, back, &still, j->words, &time, err));
        better = take(best, best_time, j->words, time) || better;
        since = better ? 0 : since + 1;
        if (lhi_spend(budget, each) || budget->used >= end ||
            (how->calm && !better))
            break;
        /* A walk of a few steps from the best. */
        bool home = better || since % WALK == 0 || time < 0;
        now = home ? best : j->words;
        span = home ? *best_time : time;
    }
    return LH_OK;
}
