/* SPDX-License-Identifier: Apache-2.0 */
/* Large neighbourhoods (Shaw 1998): all orders stay as they are but for those
 * of passes in a stretch of time, and clause learning asks whether some order
 * of these is shorter. Every critical path goes through every stretch of time.
 */
#include "solve/solver.h"

#include "base/fail.h"

#include <string.h>

enum {
    EACH = 150000, /* ticks of a question */
    PATIENCE = 8   /* questions in vain after which enough is enough */
};

typedef struct near {
    int64_t from, to;       /* the stretch of time */
    uint32_t *least, *most; /* of the windows */
    int64_t set_for;        /* the deadline of these, in units; -1: none yet */
    uint64_t again_at;      /* ticks after which new ones are worth it */
} near;

static bool is_free(const near *k, const lhi_words *w, uint32_t o)
{
    return w->end[o] > k->from && w->end[o] - w->shop->time[o] < k->to;
}

/* Of a stream: the operations that are over when the stretch begins, and those
 * that begin before its end. */
static void count_around(const near *k, const lhi_words *w, const lhi_stream *t,
                         uint32_t *done, uint32_t *begun)
{
    *done = *begun = 0;
    for (uint32_t o = t->first; o < t->first + t->count; o++) {
        *done += w->end[o] <= k->from;
        *begun += w->end[o] - w->shop->time[o] < k->to;
    }
}

static uint32_t clamp(uint32_t x, uint32_t low, uint32_t high)
{
    return x < low ? low : x > high ? high : x;
}

static void restrict_machine(const near *k, const lhi_words *now,
                             lhi_windows *w, uint32_t m)
{
    const lhi_shop *s = w->shop;
    const lhi_machine *at = &s->machines[m];
    const bool known = lhi_windows_lattice(w, m);
    uint32_t done[64], begun[64], count[64] = {0};
    for (uint32_t i = 0; i < at->n_streams; i++)
        count_around(k, now, &s->streams[at->first_stream + i], &done[i],
                     &begun[i]);
    for (uint32_t x = 0; x < now->n[m]; x++) {
        uint32_t o = now->order[m][x];
        const bool open = is_free(k, now, o);
        for (uint32_t i = 0; i < at->n_streams; i++) {
            size_t c = w->slot_at[o] + i;
            uint32_t low = known ? k->least[c] : 0;
            uint32_t high =
                known ? k->most[c] : s->streams[at->first_stream + i].count;
            uint32_t a = open && done[i] < count[i] ? done[i] : count[i];
            uint32_t b = open && begun[i] > count[i] ? begun[i] : count[i];
            w->least[c] = low > high ? low : clamp(a, low, high);
            w->most[c] = low > high ? high : clamp(b, low, high);
        }
        count[s->streams[s->stream_of[o]].slot]++;
    }
}

/* A schedule that is done sooner by so much can be delayed by as much: so it
 * ends before all its windows' ends by as much. */
static bool shift_windows(lhi_solver *r, near *k, int64_t units)
{
    const lhi_shop *s = r->shop;
    const int64_t by =
        lhi_shop_deadline(s, k->set_for) - lhi_shop_deadline(s, units);
    k->set_for = units;
    for (uint32_t o = 0; o < s->n_ops; o++) {
        r->windows->e[o] -= by;
        if (r->windows->r[o] + s->time[o] > r->windows->e[o]) {
            lhi_raise_bound(r, units + 1, lhi_windows_name(r));
            return false;
        }
    }
    return true;
}

/* Windows of the longest deadline that is of use; false: there is none. Large
 * lattices take much longer than a question, so they are asked now and then. */
static bool set_windows(lhi_solver *r, near *k, int64_t units)
{
    const lhi_shop *s = r->shop;
    const size_t n = r->windows->slot_at[s->n_ops];
    const uint64_t before = r->budget.used;
    if (k->set_for >= units && before < k->again_at)
        return shift_windows(r, k, units);
    if (!lhi_windows_set(r->windows, lhi_shop_deadline(s, units), &r->budget)) {
        lhi_raise_bound(r, units + 1, lhi_windows_name(r));
        return false;
    }
    if (r->budget.stop)
        return false;
    lhi_windows_counts(r->windows);
    memcpy(k->least, r->windows->least, n * sizeof *k->least);
    memcpy(k->most, r->windows->most, n * sizeof *k->most);
    k->set_for = units;
    k->again_at = r->budget.used + 8 * (r->budget.used - before);
    return true;
}

static lh_status ask(lhi_solver *r, near *k, int64_t units, lhi_answer *answer,
                     lh_error *err)
{
    const lhi_shop *s = r->shop;
    lhi_search *search = NULL;
    for (uint32_t m = 0; m < s->n_machines; m++)
        if (s->machines[m].n_streams > 0)
            restrict_machine(k, r->scratch, r->windows, m);
    r->windows->near = true;
    lh_status status = lhi_search_make(s, lhi_shop_deadline(s, units),
                                       r->windows, r->scratch, &search, err);
    r->windows->near = false;
    if (status == LH_OK)
        status = lhi_search_run(search, EACH, r->o.memory / 8, &r->budget,
                                r->found, answer, err);
    lhi_search_free(search);
    lhi_spend(&r->budget, s->n_ops * 4);
    return status;
}

/* Questions that take neither too long nor no time, and steps that succeed now
 * and then. */
static void adapt(lhi_near *state, lhi_answer answer, uint64_t spent)
{
    if (answer == LHI_GAVE_UP)
        state->share -= state->share / 16;
    else if (answer == LHI_REFUTED && spent < EACH / 4)
        state->share += state->share / 16 + 1;
    state->share = state->share > 1024 ? 1024 : state->share;
    state->share = state->share < 16 ? 16 : state->share;
    state->n_vain = answer == LHI_FOUND ? 0 : state->n_vain + 1;
    if (answer == LHI_FOUND)
        state->step *= 2;
    else if (state->n_vain % 3 == 0 && state->step > 1)
        state->step /= 2;
}

static lh_status look_around(lhi_solver *r, near *k, lhi_near *state,
                             uint64_t ticks, lh_error *err)
{
    const uint64_t end = r->budget.used + ticks;
    int64_t units = -1, span = 0;
    state->n_vain = 0;
    while ((r->budget.used < end || state->n_vain < PATIENCE) &&
           state->n_vain < 2 * PATIENCE && !lhi_is_done(r)) {
        lhi_answer answer = LHI_GAVE_UP;
        uint64_t before = r->budget.used;
        int64_t now = lhi_first_enough(r) - 1;
        if (now < r->low)
            break;
        if (state->step > (now - r->low) / 2 + 1)
            state->step = (now - r->low) / 2 + 1;
        now -= state->step - 1;
        if (now != units) {
            units = now;
            lhi_words_copy(r->scratch, r->best);
            span = lhi_words_time(r->scratch);
            if (span < 0 || !set_windows(r, k, units))
                break;
        }
        state->at = (state->at + state->share / 2) % 1024;
        k->from = span * state->at / 1024 - span * state->share / 2048;
        k->to = k->from + span * state->share / 1024;
        LHI_TRY(ask(r, k, units, &answer, err));
        adapt(state, answer, r->budget.used - before);
        if (answer == LHI_FOUND)
            LHI_TRY(lhi_offer(r, r->found, "large neighbourhoods", err));
    }
    return LH_OK;
}

lh_status lhi_try_near(lhi_solver *r, lhi_near *state, uint64_t ticks,
                       lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    near k = {.set_for = -1};
    const size_t n = r->windows->slot_at[r->shop->n_ops];
    if (!mem)
        return lhi_fail_nomem(err);
    lhi_report(r, "neighbourhoods");
    k.least = LHI_NEW(mem, uint32_t, n);
    k.most = LHI_NEW(mem, uint32_t, n);
    lh_status status = k.least && k.most ? look_around(r, &k, state, ticks, err)
                                         : lhi_fail_nomem(err);
    lhi_arena_free(mem);
    return status;
}
