/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated annealing on the orders. A move picks a position on a critical path
 * where the machine, not an input, delayed an operation. It shifts one of the
 * two operations past the other and further. All arithmetic is in integers, so
 * a seed gives the same result on every platform. */
#include "schedule/solver/improve/annealing.h"

#include "schedule/pipeline/pipeline_internal.h"

#include <string.h>

/* Annealing state. */
typedef struct annealer {
    lhi_machine_orders *w;
    uint64_t rng;
    uint32_t *before; /* segment before the move */
    uint32_t *count;  /* per slot */
    uint32_t *arcs;   /* critical: second operation of each */
    uint32_t n_arcs;
} annealer;

/* A changed segment in one machine's order. */
typedef struct move {
    uint32_t machine, from, to; /* positions */
} move;

/* Returns the next 64 random bits. */
static uint64_t draw(annealer *a) /* splitmix64 */
{
    uint64_t z = a->rng += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Returns a random number from 0 to n - 1. */
static uint32_t draw_below(annealer *a, uint32_t n)
{
    return (uint32_t)((draw(a) >> 32) * n >> 32);
}

/* Returns an exponentially distributed number with mean 1024: -ln(u) for a
 * uniform u, in 1/1024. Approximates the logarithm to base 2 by its integer
 * part and a straight line, with an error below 0.06. */
static int64_t draw_exponential(annealer *a)
{
    uint64_t u = draw(a) | 1;
    int64_t zeros = 0;
    while (!(u >> 63)) {
        u <<= 1;
        zeros++;
    }
    int64_t part = 1024 - (int64_t)(u << 1 >> 54);
    return (zeros * 1024 + part) * 710 / 1024;
}

/* Checks that the operations at positions `from` to `upto` of machine m's order
 * respect the precedence rules and the memory limit. */
static bool is_valid(annealer *a, uint32_t m, uint32_t from, uint32_t upto)
{
    const lhi_shop *s = a->w->shop;
    const lhi_machine *k = &s->machines[m];
    int64_t held = 0;
    memset(a->count, 0, k->n_streams * sizeof *a->count);
    for (uint32_t i = 0; i <= upto; i++) {
        uint32_t o = a->w->order[m][i], id = s->stream_of[o];
        const lhi_stream *t = &s->streams[id];
        held += s->memory[o];
        if (held > k->memory_limit && i >= from)
            return false;
        uint32_t x = a->count[t->slot]++;
        for (uint32_t r = 0; i >= from && r < k->n_rules; r++) {
            const lhi_rule *rule = &s->rules[k->first_rule + r];
            if (rule->b == id &&
                a->count[s->streams[rule->a].slot] <= x / t->per)
                return false;
        }
    }
    return true;
}

/* Restores index order among operations of the same stream (operations in fixed
 * order) at positions lo to hi of machine m's order after a move. */
static void restore_stream_order(annealer *a, uint32_t m, uint32_t lo,
                                 uint32_t hi)
{
    const lhi_shop *s = a->w->shop;
    uint32_t *order = a->w->order[m];
    uint32_t moved = s->stream_of[order[lo]];
    for (int pass = 0; pass < 2; pass++) {
        uint32_t least = NONE;
        for (uint32_t i = lo; i <= hi; i++)
            if (s->stream_of[order[i]] == moved && order[i] < least)
                least = order[i];
        for (uint32_t i = lo; i <= hi; i++)
            if (s->stream_of[order[i]] == moved)
                order[i] = least++;
        if (s->stream_of[order[hi]] == moved)
            return;
        moved = s->stream_of[order[hi]];
    }
}

/* Moves the element of an operation order at index `from` to index `to`; those
 * in between shift by one. */
static void move_element(uint32_t *order, uint32_t from, uint32_t to)
{
    uint32_t o = order[from];
    if (from > to)
        memmove(order + to + 1, order + to, (from - to) * sizeof *order);
    else
        memmove(order + from, order + from + 1, (to - from) * sizeof *order);
    order[to] = o;
}

/* Lists in `a` the pairs of operations that follow each other both on a machine
 * and on one randomly chosen critical path. */
static void find_critical_arcs(annealer *a)
{
    lhi_machine_orders *w = a->w;
    const lhi_shop *s = w->shop;
    uint32_t o = NONE;
    int64_t last = -1;
    for (uint32_t i = 0; i < s->n_streams; i++) {
        uint32_t e = s->streams[i].first + s->streams[i].count - 1;
        if (w->end[e] + s->tail[e] > last) {
            last = w->end[e] + s->tail[e];
            o = e;
        }
    }
    for (uint32_t m = 0; m < s->n_machines; m++)
        for (uint32_t i = 0; i < w->n[m]; i++)
            w->at[w->order[m][i]] = i;
    a->n_arcs = 0;
    while (o != NONE) {
        int64_t start = w->end[o] - s->time[o] - (w->copy ? w->copy[o] : 0);
        uint32_t from = NONE, m = s->streams[s->stream_of[o]].machine;
        uint32_t before = w->at[o] ? w->order[m][w->at[o] - 1] : NONE;
        for (uint32_t i = w->pred_at[o]; i < w->pred_at[o + 1]; i++)
            if (w->end[w->pred[i]] + w->pred_lag[i] == start)
                from = w->pred[i];
        bool machine = before != NONE && w->end[before] == start;
        if (machine && (from == NONE || draw(a) & 1)) {
            from = before;
            if (s->machines[m].leader == NONE &&
                s->stream_of[before] != s->stream_of[o])
                a->arcs[a->n_arcs++] = o;
        }
        o = from;
    }
}

/* Applies a random move (one operation to another position) to a machine's
 * order so that the order stays valid; *out: the move. False: none was
 * found. */
static bool apply_random_move(annealer *a, move *out)
{
    lhi_machine_orders *w = a->w;
    uint32_t o = a->arcs[draw_below(a, a->n_arcs)];
    uint32_t m = w->shop->streams[w->shop->stream_of[o]].machine;
    uint32_t k = w->at[o], n = w->n[m], far = 1;
    while (far < n && draw(a) & 1)
        far *= 2;
    far = far > 1 ? far / 2 + draw_below(a, far / 2 + 1) : 1;
    bool left = draw(a) & 1;
    for (; far > 0; far /= 2) {
        uint32_t from = left ? k : k - 1;
        uint32_t to = left ? (k > far ? k - far : 0)
                           : (k - 1 + far < n ? k - 1 + far : n - 1);
        uint32_t lo = left ? to : from, hi = left ? from : to;
        memcpy(a->before, w->order[m] + lo, (hi - lo + 1) * sizeof(uint32_t));
        move_element(w->order[m], from, to);
        restore_stream_order(a, m, lo, hi);
        if (is_valid(a, m, lo, hi)) {
            *out = (move){m, lo, hi};
            return true;
        }
        memcpy(w->order[m] + lo, a->before, (hi - lo + 1) * sizeof(uint32_t));
    }
    return false;
}

/* Restores the machine order that the move `mv`, which was rejected,
 * changed. */
static void undo_move(annealer *a, const move *mv)
{
    memcpy(a->w->order[mv->machine] + mv->from, a->before,
           (mv->to - mv->from + 1) * sizeof(uint32_t));
    lhi_machine_orders_update_followers(a->w, mv->machine);
}

/* Runs the annealing loop with a geometric cooling schedule. If a better
 * objective than *best_time is found, stores the orders in `best` and updates
 * *best_time. */
static void run_annealing(annealer *a, lhi_machine_orders *best,
                          int64_t *best_time, const lhi_annealing_options *how,
                          lhi_budget *budget)
{
    const uint64_t each = a->w->shop->n_ops / 128 + 1;
    const uint64_t steps = how->ticks / each / 64 + 1;
    int64_t now = lhi_machine_orders_evaluate(a->w), heat = how->hot * 1024;
    find_critical_arcs(a);
    for (uint32_t stage = 0; stage < 64; stage++) {
        for (uint64_t i = 0; i < steps; i++) {
            move mv;
            if (*best_time <= how->target || a->n_arcs == 0 ||
                lhi_budget_spend(budget, each))
                return;
            if (!apply_random_move(a, &mv))
                continue;
            lhi_machine_orders_update_followers(a->w, mv.machine);
            int64_t time = lhi_machine_orders_evaluate(a->w);
            int64_t allowed = heat / 1024 * draw_exponential(a) / 1024;
            if (time < 0 || time - now > allowed) {
                undo_move(a, &mv);
                continue;
            }
            now = time;
            find_critical_arcs(a);
            if (now < *best_time) {
                *best_time = now;
                lhi_machine_orders_copy(best, a->w);
            }
        }
        /* 0.95^64 is about 1/27. */
        heat = heat / 100 * 95;
        if (heat < how->cold * 1024)
            heat = how->cold * 1024;
    }
}

lh_status lhi_annealing_run(lhi_machine_orders *orders,
                            lhi_machine_orders *best, int64_t *best_time,
                            const lhi_annealing_options *how,
                            lhi_budget *budget, lhi_arena *mem, lh_error *err)
{
    uint32_t n = orders->shop->n_ops;
    lhi_mark mark = lhi_arena_mark(mem);
    annealer a = {.w = orders, .rng = how->seed};
    a.before = LHI_NEW(mem, uint32_t, n);
    a.count = LHI_NEW(mem, uint32_t, orders->shop->n_streams);
    a.arcs = LHI_NEW(mem, uint32_t, n);
    if (!a.before || !a.count || !a.arcs) {
        lhi_arena_rewind(mem, mark);
        return lhi_fail_nomem(err);
    }
    run_annealing(&a, best, best_time, how, budget);
    lhi_arena_rewind(mem, mark);
    return LH_OK;
}
