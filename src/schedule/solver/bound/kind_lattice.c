/* SPDX-License-Identifier: Apache-2.0 */
/* Shortest paths through the states of a device that counts its passes by kind
 * only. Each kind is a chain: its x-th pass starts no earlier than the x-th
 * smallest earliest start of the kind, and ends no later than the x-th smallest
 * latest end. */
#include "schedule/solver/bound/kind_lattice.h"

#include "base/integer_math.h"

#include <stdlib.h>

enum {
    N_KINDS = LHI_W + 1, /* F, D (or B) and W */
    N_LAYERS = 2,        /* stored at a time: states with equal numbers of W */
    STATES_PER_TICK = 256,      /* visited states per unit of search work */
    STATES_PER_CHECK = 1 << 20, /* between two checks of the budget */
    MEMORY_SHARE = 8 /* the states take at most 1/8 of the memory for tables */
};

/* All passes of one kind on a device. */
typedef struct pass_chain {
    uint32_t n;
    int64_t time, memory; /* of one pass: duration, net change */
    int64_t *r, *e;       /* earliest starts and latest ends, ascending */
} pass_chain;

/* Earliest times at which the states with x W can be reached, for x = 0, 1 ..
 * in turn: [number of F * (number of D + 1) + number of D]. */
typedef struct kind_lattice {
    pass_chain kinds[N_KINDS];
    uint32_t parts; /* of one W */
    int64_t memory_limit;
    int64_t *now, *next; /* with x and with x + 1 W */
} kind_lattice;

uint32_t lhi_kind_lattice_pick_machine(const lhi_shop *shop, uint32_t i)
{
    return i % 2 ? shop->n_machines - 1 - i / 2 : i / 2;
}

bool lhi_kind_lattice_is_applicable(const lhi_shop *shop, uint32_t m,
                                    size_t memory)
{
    const lhi_machine *k = &shop->machines[m];
    const lhi_stream *of[N_KINDS] = {NULL};
    uint32_t n[N_KINDS] = {0};
    uint64_t passes[N_KINDS] = {0};
    if (k->kind != LHI_DEVICE)
        return false;
    for (uint32_t i = 0; i < k->n_streams; i++) {
        const lhi_stream *t = &shop->streams[k->first_stream + i];
        if (t->kind > LHI_W)
            return false;
        const lhi_stream *first = of[t->kind] ? of[t->kind] : t;
        of[t->kind] = first;
        n[t->kind]++;
        passes[t->kind] += t->count;
        for (uint32_t o = t->first; o < t->first + t->count; o++)
            if (shop->time[o] != shop->time[first->first] ||
                shop->memory[o] != shop->memory[first->first])
                return false;
    }
    const uint64_t states = (passes[LHI_F] + 1) * (passes[LHI_D] + 1);
    return n[LHI_F] > 1 && n[LHI_D] == n[LHI_F] &&
           (n[LHI_W] == n[LHI_F] || n[LHI_W] == 0) &&
           states <= memory / MEMORY_SHARE / N_LAYERS / sizeof(int64_t);
}

static int compare_times(const void *x, const void *y)
{
    const int64_t *a = x, *b = y;
    return *a < *b ? -1 : *a > *b;
}

/* Fills in the chain of a kind's passes on machine m, with windows from heads,
 * tails and the deadline. `mem`: for its arrays. */
static lh_status make_chain(const lhi_shop *s, const lhi_heads *heads,
                            uint32_t m, int64_t deadline, lhi_stream_kind kind,
                            lhi_arena *mem, pass_chain *out, lh_error *err)
{
    const lhi_machine *k = &s->machines[m];
    const uint32_t most = lhi_machine_count_operations(s, m);
    out->r = LHI_NEW(mem, int64_t, most);
    out->e = LHI_NEW(mem, int64_t, most);
    if (!out->r || !out->e)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < k->n_streams; i++) {
        const lhi_stream *t = &s->streams[k->first_stream + i];
        if (t->kind != kind)
            continue;
        out->time = s->time[t->first];
        out->memory = s->memory[t->first];
        for (uint32_t o = t->first; o < t->first + t->count; o++) {
            out->r[out->n] = heads->head[o];
            out->e[out->n++] = deadline - heads->tail[o];
        }
    }
    qsort(out->r, out->n, sizeof *out->r, compare_times);
    qsort(out->e, out->n, sizeof *out->e, compare_times);
    return LH_OK;
}

/* Lowers *to, the earliest time in the state after the x-th pass of a chain, if
 * the pass can run after `time` within its window. */
static inline void take_step(const pass_chain *c, uint32_t x, int64_t time,
                             int64_t *to)
{
    const int64_t end = lhi_max_int64(time, c->r[x]) + c->time;
    if (end <= c->e[x] && end < *to)
        *to = end;
}

/* Marks the states of a row, those with an equal number of F, as unreached. */
static void reset_row(const kind_lattice *l, int64_t *times, uint32_t f)
{
    const size_t width = (size_t)l->kinds[LHI_D].n + 1;
    for (size_t i = 0; f <= l->kinds[LHI_F].n && i < width; i++)
        times[f * width + i] = FAR;
}

/* Computes the earliest times of the states with `w` W, and from these of the
 * states with w + 1. Returns whether the budget is used up. */
static bool expand_layer(const kind_lattice *l, uint32_t w, lhi_budget *budget)
{
    const pass_chain *k = l->kinds;
    const uint32_t width = k[LHI_D].n + 1;
    uint64_t n = 0;
    for (uint32_t f = 0; f <= k[LHI_F].n; f++) {
        reset_row(l, l->next, f);
        if (w == 0)
            reset_row(l, l->now, f + 1);
        for (uint32_t d = (w + l->parts - 1) / l->parts; d <= f && d < width;
             d++, n++) {
            const size_t at = (size_t)f * width + d;
            const int64_t time = l->now[at];
            if (time == FAR)
                continue;
            const int64_t held =
                f * k[LHI_F].memory + d * k[LHI_D].memory + w * k[LHI_W].memory;
            const int64_t room =
                l->memory_limit == LH_NO_LIMIT ? FAR : l->memory_limit - held;
            if (f < k[LHI_F].n &&
                (k[LHI_F].memory <= 0 || k[LHI_F].memory <= room))
                take_step(&k[LHI_F], f, time, &l->now[at + width]);
            if (d < f && (k[LHI_D].memory <= 0 || k[LHI_D].memory <= room))
                take_step(&k[LHI_D], d, time, &l->now[at + 1]);
            if (w < k[LHI_W].n && w / l->parts < d &&
                (k[LHI_W].memory <= 0 || k[LHI_W].memory <= room))
                take_step(&k[LHI_W], w, time, &l->next[at]);
        }
        if (n < STATES_PER_CHECK)
            continue;
        if (lhi_budget_spend(budget, n / STATES_PER_TICK))
            return true;
        n %= STATES_PER_TICK;
    }
    return lhi_budget_spend(budget, n / STATES_PER_TICK + 1);
}

/* Checks whether a path leads to the state in which all passes have run; stops
 * with `true` if the budget is used up. */
static bool has_path(kind_lattice *l, lhi_budget *budget)
{
    const pass_chain *k = l->kinds;
    const size_t n = ((size_t)k[LHI_F].n + 1) * (k[LHI_D].n + 1);
    reset_row(l, l->now, 0);
    l->now[0] = 0;
    for (uint32_t w = 0;; w++) {
        if (expand_layer(l, w, budget))
            return true;
        if (w == k[LHI_W].n)
            return l->now[n - 1] < FAR;
        int64_t *old = l->now;
        l->now = l->next;
        l->next = old;
    }
}

lh_status lhi_kind_lattice_check(const lhi_shop *shop, const lhi_heads *heads,
                                 uint32_t m, int64_t deadline,
                                 lhi_budget *budget, lhi_arena *mem,
                                 bool *possible, lh_error *err)
{
    if (budget->stop)
        return LH_OK;
    const lhi_mark mark = lhi_arena_mark(mem);
    kind_lattice l = {.parts = shop->parts,
                      .memory_limit = shop->machines[m].memory_limit};
    lh_status status = LH_OK;
    for (int k = 0; k < N_KINDS && status == LH_OK; k++)
        status = make_chain(shop, heads, m, deadline, (lhi_stream_kind)k, mem,
                            &l.kinds[k], err);
    if (status == LH_OK) {
        const size_t n =
            ((size_t)l.kinds[LHI_F].n + 1) * (l.kinds[LHI_D].n + 1);
        l.now = LHI_NEW(mem, int64_t, n);
        l.next = LHI_NEW(mem, int64_t, n);
        if (!l.now || !l.next)
            status = lhi_fail_nomem(err);
        else if (!has_path(&l, budget))
            *possible = false;
    }
    lhi_arena_rewind(mem, mark);
    return status;
}
