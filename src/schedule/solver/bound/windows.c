/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/solver/bound/windows.h"

#include "schedule/solver/bound/lattice.h"

#include <stdlib.h>
#include <string.h>

/* Allocates the arrays of the windows (earliest start, latest end): per
 * operation, and per pair of operation and stream. */
static lh_status allocate(lhi_windows *w, lh_error *err)
{
    const lhi_shop *s = w->shop;
    size_t n = s->n_ops, slots = 0;
    w->slot_at = LHI_NEW(w->mem, size_t, n + 1);
    if (!w->slot_at)
        return lhi_fail_nomem(err);
    for (size_t o = 0; o < n; o++) {
        w->slot_at[o] = slots;
        slots += s->machines[s->streams[s->stream_of[o]].machine].n_streams;
    }
    w->slot_at[n] = slots;
    w->lattices = LHI_NEW(w->mem, lhi_lattice *, s->n_machines);
    w->pruned = LHI_NEW(w->mem, lhi_lattice *, s->n_machines);
    w->pruned_deadline = LHI_NEW(w->mem, int64_t, s->n_machines);
    w->too_large = LHI_NEW(w->mem, int64_t, s->n_machines);
    w->r = LHI_NEW(w->mem, int64_t, n);
    w->e = LHI_NEW(w->mem, int64_t, n);
    w->new_r = LHI_NEW(w->mem, int64_t, n);
    w->new_e = LHI_NEW(w->mem, int64_t, n);
    w->fixed = LHI_NEW(w->mem, uint32_t, slots);
    w->least = LHI_NEW(w->mem, uint32_t, slots);
    w->most = LHI_NEW(w->mem, uint32_t, slots);
    w->order = LHI_NEW(w->mem, uint32_t, n + 1);
    w->queue = LHI_NEW(w->mem, uint32_t, n + 1);
    w->queued = LHI_NEW(w->mem, bool, n);
    w->dirty = LHI_NEW(w->mem, bool, s->n_machines);
    if (!w->lattices || !w->pruned || !w->pruned_deadline || !w->too_large ||
        !w->r || !w->e || !w->new_r || !w->new_e || !w->fixed || !w->least ||
        !w->most || !w->order || !w->queue || !w->queued || !w->dirty)
        return lhi_fail_nomem(err);
    return LH_OK;
}

/* Computes w->fixed[]: for each operation, how many operations of every stream
 * on its machine must precede it because of precedence rules and arcs. */
static void fix_counts(lhi_windows *w)
{
    const lhi_shop *s = w->shop;
    for (uint32_t r = 0; r < s->n_rules; r++) {
        const lhi_stream *a = &s->streams[s->rules[r].a];
        const lhi_stream *b = &s->streams[s->rules[r].b];
        for (uint32_t x = 0; x < b->count; x++)
            w->fixed[w->slot_at[b->first + x] + a->slot] = x / b->per + 1;
    }
    for (uint32_t o = 0; o < s->n_ops; o++) {
        const lhi_stream *t = &s->streams[s->stream_of[o]];
        uint32_t *fixed = w->fixed + w->slot_at[o];
        fixed[t->slot] = o - t->first;
        for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++) {
            const lhi_stream *from = &s->streams[s->stream_of[s->pred[i]]];
            uint32_t count = s->pred[i] - from->first + 1;
            if (from->machine == t->machine && count > fixed[from->slot])
                fixed[from->slot] = count;
        }
        if (o == t->first)
            continue;
        const uint32_t *before = w->fixed + w->slot_at[o - 1];
        uint32_t n = s->machines[t->machine].n_streams;
        for (uint32_t i = 0; i < n; i++)
            if (i != t->slot && before[i] > fixed[i])
                fixed[i] = before[i];
    }
}

/* Sorts the operations topologically; operations on or behind a cycle are left
 * out. The queue temporarily holds the number of pending inputs. */
static void sort_operations(lhi_windows *w)
{
    const lhi_shop *s = w->shop;
    uint32_t n = 0;
    for (uint32_t o = 0; o < s->n_ops; o++) {
        w->queue[o] = s->pred_at[o + 1] - s->pred_at[o] +
                      (o > s->streams[s->stream_of[o]].first);
        if (w->queue[o] == 0)
            w->order[n++] = o;
    }
    for (uint32_t x = 0; x < n; x++) {
        uint32_t o = w->order[x];
        const lhi_stream *t = &s->streams[s->stream_of[o]];
        if (o + 1 < t->first + t->count && --w->queue[o + 1] == 0)
            w->order[n++] = o + 1;
        for (uint32_t i = s->succ_at[o]; i < s->succ_at[o + 1]; i++)
            if (--w->queue[s->succ[i]] == 0)
                w->order[n++] = s->succ[i];
    }
    w->n_order = n;
}

void lhi_windows_set_max_states(lhi_windows *w, size_t states)
{
    w->max_deadline_states = states;
    w->is_memory_limited = false;
    for (uint32_t m = 0; m < w->shop->n_machines; m++)
        w->too_large[m] = FAR;
}

/* Returns the approximate memory in bytes of a lattice (machine state graph);
 * NULL: 0. */
static size_t count_lattice_bytes(const lhi_lattice *l)
{
    return l ? (size_t)l->n_states * l->n_streams * 6 : 0;
}

/* Enlarges the scratch arrays that have one entry per state to n states;
 * false: out of memory. */
static bool make_scratch(lhi_windows *w, uint32_t n)
{
    if (n <= w->scratch)
        return true;
    int64_t *first = realloc(w->first, n * sizeof *first);
    if (first)
        w->first = first;
    int64_t *last = realloc(w->last, n * sizeof *last);
    if (last)
        w->last = last;
    if (first && last)
        w->scratch = n;
    return first && last;
}

/* Returns the bytes that machine m's lattice may use: `fair`, or less where
 * many states are unlikely to help. 0: failed[] names a machine with at most as
 * many streams and operations whose lattice was too large. */
static size_t compute_lattice_limit(const lhi_shop *shop, uint32_t m,
                                    size_t fair, const size_t *failed)
{
    uint32_t n = shop->machines[m].n_streams;
    if (failed[0] && n >= failed[0] &&
        lhi_machine_count_operations(shop, m) >= failed[1])
        return 0;
    size_t most = (n <= 3 ? (size_t)2000000 : 300000) * (n * 6 + 32);
    return fair < most ? fair : most;
}

lh_status lhi_windows_make(const lhi_shop *shop, size_t room,
                           lhi_budget *budget, lhi_arena *mem,
                           lhi_windows **out, uint32_t *impossible,
                           lh_error *err)
{
    lhi_windows *w = LHI_NEW(mem, lhi_windows, 1);
    if (!w)
        return lhi_fail_nomem(err);
    *w =
        (lhi_windows){.shop = shop, .mem = mem, .complete = true, .room = room};
    LHI_TRY(allocate(w, err));
    lhi_windows_set_max_states(w, 100000);
    fix_counts(w);
    sort_operations(w);
    *impossible = NONE;
    uint32_t most = 1;
    size_t failed[2] = {0}; /* streams, operations */
    const bool on = lhi_budget_is_engine_enabled(budget, LHI_ENGINE_LATTICE);
    const lhi_engine before =
        on ? lhi_budget_enter_engine(budget, LHI_ENGINE_LATTICE)
           : budget->engine;
    for (uint32_t m = 0; m < shop->n_machines; m++) {
        const lhi_machine *k = &shop->machines[m];
        bool no_memory = false;
        size_t fair = compute_lattice_limit(
            shop, m, room / (shop->n_machines - m), failed);
        if (k->n_streams == 0)
            continue;
        if (fair > 0 && on)
            w->lattices[m] =
                lhi_lattice_make(shop, m, fair, budget, &no_memory);
        if (no_memory) {
            lhi_windows_free(w);
            return lhi_fail_nomem(err);
        }
        lhi_lattice *l = w->lattices[m];
        w->complete = w->complete && l;
        if (!l && !failed[0]) {
            failed[0] = k->n_streams;
            failed[1] = lhi_machine_count_operations(shop, m);
        }
        if (!l)
            continue;
        size_t used = count_lattice_bytes(l);
        room = used < room ? room - used : 0;
        w->used += used;
        most = l->n_states > most ? l->n_states : most;
        uint32_t total = 0;
        for (uint32_t i = 0; i < k->n_streams; i++)
            total += l->counts[(size_t)(l->n_states - 1) * k->n_streams + i];
        if (total < lhi_machine_count_operations(shop, m) &&
            *impossible == NONE)
            *impossible = k->index;
    }
    lhi_budget_restore_engine(budget, before);
    if (!make_scratch(w, most)) {
        lhi_windows_free(w);
        return lhi_fail_nomem(err);
    }
    w->has_full_lattices = w->complete;
    *out = w;
    return LH_OK;
}

void lhi_windows_sync_lattices(lhi_windows *w, const lhi_windows *from)
{
    const size_t n = w->shop->n_machines;
    memcpy(w->lattices, from->lattices, n * sizeof *w->lattices);
    memcpy(w->pruned, from->pruned, n * sizeof *w->pruned);
    memcpy(w->pruned_deadline, from->pruned_deadline,
           n * sizeof *w->pruned_deadline);
}

lh_status lhi_windows_make_shared(const lhi_windows *from, lhi_arena *mem,
                                  lhi_windows **out, lh_error *err)
{
    const lhi_shop *s = from->shop;
    lhi_windows *w = LHI_NEW(mem, lhi_windows, 1);
    *out = NULL;
    if (!w)
        return lhi_fail_nomem(err);
    *w = (lhi_windows){.shop = s,
                       .mem = mem,
                       .has_full_lattices = from->has_full_lattices,
                       .complete = from->complete,
                       .shares_lattices = true};
    LHI_TRY(allocate(w, err));
    lhi_windows_sync_lattices(w, from);
    memcpy(w->fixed, from->fixed, w->slot_at[s->n_ops] * sizeof *w->fixed);
    memcpy(w->order, from->order, s->n_ops * sizeof *w->order);
    w->n_order = from->n_order;
    w->first = LHI_NEW(mem, int64_t, from->scratch);
    w->last = LHI_NEW(mem, int64_t, from->scratch);
    if (!w->first || !w->last)
        return lhi_fail_nomem(err);
    w->scratch = from->scratch;
    *out = w;
    return LH_OK;
}

/* Frees machine m's pruned lattice (graph of its states for one deadline) and
 * subtracts its memory from the used bytes. */
static void drop_pruned(lhi_windows *w, uint32_t m)
{
    w->used -= count_lattice_bytes(w->pruned[m]);
    lhi_lattice_free(w->pruned[m]);
    w->pruned[m] = NULL;
}

/* Frees the pruned lattices (machine state graphs) that hold for deadlines
 * shorter than `deadline` only. */
static void drop_stale_pruned(lhi_windows *w, int64_t deadline)
{
    for (uint32_t m = 0; m < w->shop->n_machines; m++) {
        if (!w->pruned[m] || deadline <= w->pruned_deadline[m])
            continue;
        if (w->shares_lattices) {
            w->pruned[m] = NULL;
            continue;
        }
        drop_pruned(w, m);
    }
}

void lhi_windows_free(lhi_windows *windows)
{
    if (!windows)
        return;
    drop_stale_pruned(windows, INT64_MAX);
    for (uint32_t m = 0; m < windows->shop->n_machines; m++)
        lhi_lattice_free(windows->lattices[m]);
    free(windows->first);
    free(windows->last);
    windows->first = windows->last = NULL;
}

/* --- precedence ----------------------------------------------------------- */

/* Adds operation `o` to the queue of operations whose time windows are to be
 * propagated, and marks its machine for tightening. */
static void enqueue(lhi_windows *w, uint32_t o)
{
    const lhi_shop *s = w->shop;
    w->dirty[s->streams[s->stream_of[o]].machine] = true;
    if (w->queued[o])
        return;
    w->queued[o] = true;
    w->queue[(w->front + w->n_queue++) % s->n_ops] = o;
}

/* Raises the earliest start of operation o to r and queues it; false: its
 * window is empty. */
static bool raise_start(lhi_windows *w, uint32_t o, int64_t r)
{
    if (r <= w->r[o])
        return true;
    w->r[o] = r;
    enqueue(w, o);
    return r + w->shop->time[o] <= w->e[o];
}

/* Lowers the latest end of operation o to e and queues it; false: its time
 * window is empty. */
static bool lower_end(lhi_windows *w, uint32_t o, int64_t e)
{
    if (e >= w->e[o])
        return true;
    w->e[o] = e;
    enqueue(w, o);
    return w->r[o] + w->shop->time[o] <= e;
}

/* Propagates the window (earliest start, latest end) of operation o to its
 * neighbours in its stream (operations in fixed order) and along precedence
 * arcs; false: a window is empty. */
static bool propagate_operation(lhi_windows *w, uint32_t o)
{
    const lhi_shop *s = w->shop;
    const lhi_stream *t = &s->streams[s->stream_of[o]];
    int64_t end = w->r[o] + s->time[o], begin = w->e[o] - s->time[o];
    if (o + 1 < t->first + t->count && !raise_start(w, o + 1, end))
        return false;
    if (o > t->first && !lower_end(w, o - 1, begin))
        return false;
    for (uint32_t i = s->succ_at[o]; i < s->succ_at[o + 1]; i++)
        if (!raise_start(w, s->succ[i], end + s->succ_lag[i]))
            return false;
    for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++)
        if (!lower_end(w, s->pred[i], begin - s->pred_lag[i]))
            return false;
    return true;
}

/* Raises the earliest starts of operation o's successors to its earliest
 * end. */
static void push_forward(lhi_windows *w, uint32_t o)
{
    const lhi_shop *s = w->shop;
    const lhi_stream *t = &s->streams[s->stream_of[o]];
    int64_t end = w->r[o] + s->time[o];
    if (o + 1 < t->first + t->count && w->r[o + 1] < end)
        w->r[o + 1] = end;
    for (uint32_t i = s->succ_at[o]; i < s->succ_at[o + 1]; i++)
        if (w->r[s->succ[i]] < end + s->succ_lag[i])
            w->r[s->succ[i]] = end + s->succ_lag[i];
}

/* Lowers the latest ends of operation o's predecessors to its latest
 * start. */
static void push_back(lhi_windows *w, uint32_t o)
{
    const lhi_shop *s = w->shop;
    int64_t begin = w->e[o] - s->time[o];
    if (o > s->streams[s->stream_of[o]].first && w->e[o - 1] > begin)
        w->e[o - 1] = begin;
    for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++)
        if (w->e[s->pred[i]] > begin - s->pred_lag[i])
            w->e[s->pred[i]] = begin - s->pred_lag[i];
}

/* Sets the windows (earliest start, latest end) of all operations for a
 * deadline, and propagates them along streams (operations in fixed order) and
 * precedence arcs, once forward and once backward; false: a window is empty. */
static bool initialise_windows(lhi_windows *w, int64_t deadline,
                               lhi_budget *budget)
{
    const lhi_shop *s = w->shop;
    bool ok = true;
    memset(w->queued, 0, s->n_ops * sizeof *w->queued);
    w->n_queue = 0;
    for (uint32_t o = 0; o < s->n_ops; o++) {
        w->r[o] = s->head[o];
        w->e[o] = deadline - s->tail[o];
    }
    for (uint32_t x = 0; x < w->n_order; x++)
        push_forward(w, w->order[x]);
    for (uint32_t x = w->n_order; x-- > 0;)
        push_back(w, w->order[x]);
    for (uint32_t o = 0; ok && o < s->n_ops; o++)
        ok = w->r[o] + s->time[o] <= w->e[o];
    for (uint32_t o = 0; w->n_order < s->n_ops && o < s->n_ops; o++)
        enqueue(w, o);
    for (uint32_t m = 0; m < s->n_machines; m++)
        w->dirty[m] = true;
    lhi_budget_spend(budget, s->n_ops / 32 + 1);
    return ok;
}

/* Propagates the time windows (earliest start, latest end) of all queued
 * operations; false: a window is empty. If stopped by the budget, leaves the
 * queue unchanged. */
static bool propagate(lhi_windows *w, lhi_budget *budget)
{
    bool ok = true;
    for (uint32_t n = 1; w->n_queue > 0; n++) {
        if (n % 1024 == 0 && lhi_budget_spend(budget, 64))
            return ok;
        uint32_t o = w->queue[w->front];
        w->front = w->front + 1 == w->shop->n_ops ? 0 : w->front + 1;
        w->n_queue--;
        w->queued[o] = false;
        ok = ok && propagate_operation(w, o);
    }
    return ok;
}

/* --- machines too large for a lattice ------------------------------------- */

/* Returns the earliest end of the operations that must precede an operation:
 * the first fixed[i] of each stream number i. Scheduling them by rising
 * earliest start is optimal; these increase in a stream, so this is a merge. */
static int64_t compute_predecessor_end(const lhi_windows *w,
                                       const lhi_machine *k,
                                       const uint32_t *fixed)
{
    const lhi_shop *s = w->shop;
    uint32_t at[64] = {0};
    int64_t now = 0;
    for (;;) {
        uint32_t pick = NONE;
        for (uint32_t i = 0; i < k->n_streams; i++) {
            uint32_t o = s->streams[k->first_stream + i].first + at[i];
            if (at[i] < fixed[i] && (pick == NONE || w->r[o] < w->r[pick]))
                pick = o;
        }
        if (pick == NONE)
            return now;
        at[s->streams[s->stream_of[pick]].slot]++;
        now = (now > w->r[pick] ? now : w->r[pick]) + s->time[pick];
    }
}

/* Checks by Jackson's preemptive schedule whether a machine's windows may be
 * feasible: preemptive earliest deadline first misses a deadline only if every
 * order does. Only the front of each stream competes, since it has the
 * stream's earliest start and deadline. */
static bool meets_jackson_bound(const lhi_windows *w, const lhi_machine *k)
{
    const lhi_shop *s = w->shop;
    uint32_t at[64] = {0};
    int64_t left[64], now = 0;
    for (uint32_t i = 0; i < k->n_streams; i++)
        left[i] = s->time[s->streams[k->first_stream + i].first];
    for (;;) {
        uint32_t pick = NONE, slot = 0;
        int64_t next = FAR;
        for (uint32_t i = 0; i < k->n_streams; i++) {
            const lhi_stream *t = &s->streams[k->first_stream + i];
            uint32_t o = t->first + at[i];
            if (at[i] == t->count)
                continue;
            if (w->r[o] > now) {
                next = w->r[o] < next ? w->r[o] : next;
            } else if (pick == NONE || w->e[o] < w->e[pick]) {
                pick = o;
                slot = i;
            }
        }
        if (pick == NONE && next == FAR)
            return true;
        if (pick == NONE) {
            now = next;
            continue;
        }
        int64_t run = left[slot] < next - now ? left[slot] : next - now;
        now += run;
        left[slot] -= run;
        if (left[slot] > 0)
            continue;
        if (now > w->e[pick])
            return false;
        const lhi_stream *t = &s->streams[k->first_stream + slot];
        if (++at[slot] < t->count)
            left[slot] = s->time[pick + 1];
    }
}

/* Tightens the time windows of a machine without a lattice (machine state
 * graph) by Jackson's preemptive schedule and by the operations that must
 * precede each operation; false: no order exists. */
static bool tighten_without_lattice(lhi_windows *w, uint32_t m)
{
    const lhi_shop *s = w->shop;
    const lhi_machine *k = &s->machines[m];
    if (k->n_streams > 64)
        return true;
    if (!meets_jackson_bound(w, k))
        return false;
    for (uint32_t i = 0; i < k->n_streams; i++) {
        const lhi_stream *t = &s->streams[k->first_stream + i];
        for (uint32_t o = t->first; o < t->first + t->count; o++)
            if (!raise_start(
                    w, o,
                    compute_predecessor_end(w, k, w->fixed + w->slot_at[o])))
                return false;
    }
    return true;
}

/* --- combination ---------------------------------------------------------- */

const lhi_lattice *lhi_windows_get_lattice(const lhi_windows *w, uint32_t m)
{
    return w->pruned[m] ? w->pruned[m] : w->lattices[m];
}

/* Tightens the windows (earliest start, latest end) of machine m's operations
 * to the orders in its lattice (machine state graph); false: no order exists.
 * Changes nothing if stopped. */
static bool tighten(lhi_windows *w, uint32_t m, lhi_budget *budget)
{
    const lhi_shop *s = w->shop;
    const lhi_machine *k = &s->machines[m];
    if (!lhi_windows_get_lattice(w, m))
        return tighten_without_lattice(w, m);
    uint32_t first = s->streams[k->first_stream].first;
    uint32_t end = first + lhi_machine_count_operations(s, m);
    for (uint32_t o = first; o < end; o++) {
        w->new_r[o] = FAR;
        w->new_e[o] = -1;
    }
    if (!lhi_lattice_tighten(lhi_windows_get_lattice(w, m), w, budget))
        return false;
    if (budget->timed_out)
        return true;
    for (uint32_t o = first; o < end; o++)
        if (!raise_start(w, o, w->new_r[o]) || !lower_end(w, o, w->new_e[o]))
            return false;
    return true;
}

/* Estimates the work of one call of tighten() for machine m, in ticks (units of
 * search work). With a lattice (graph of the machine's states) it is the state
 * count times the count of the machine's operation streams, divided by 64;
 * without, the number of the machine's operations. */
static uint64_t estimate_cost(const lhi_windows *w, uint32_t m)
{
    const lhi_lattice *l = lhi_windows_get_lattice(w, m);
    return l ? (uint64_t)l->n_states * l->n_streams / 64 + 1
             : lhi_machine_count_operations(w->shop, m);
}

/* Tightens the operations' time windows until none changes or the budget is
 * spent. It uses precedence constraints, and each machine's constraint that it
 * runs one operation at a time. Returns false if no schedule exists. */
static bool propagate_machines(lhi_windows *w, lhi_budget *budget)
{
    const lhi_shop *s = w->shop;
    for (bool changed = true; changed;) {
        changed = false;
        if (!propagate(w, budget))
            return false;
        for (uint32_t m = 0; m < s->n_machines; m++) {
            if (!w->dirty[m])
                continue;
            w->dirty[m] = false;
            if (s->machines[m].n_streams == 0)
                continue;
            changed = true;
            if (!tighten(w, m, budget))
                return false;
            if (budget->stop)
                return true;
            /* The machine's own tightening does not make it dirty again. */
            if (lhi_windows_get_lattice(w, m))
                w->dirty[m] = false;
            if (!propagate(w, budget))
                return false;
            if (lhi_budget_spend(budget, estimate_cost(w, m)))
                return true;
        }
    }
    return true;
}

/* Builds a lattice (machine state graph) that is valid only for `deadline`, for
 * a machine whose full lattice is too large. Returns true on success. */
static bool make_deadline_lattice(lhi_windows *w, uint32_t m, int64_t deadline,
                                  lhi_budget *budget)
{
    const lhi_shop *s = w->shop;
    bool no_memory = false;
    if (w->shares_lattices || lhi_windows_get_lattice(w, m) ||
        s->machines[m].n_streams < 2 || deadline >= w->too_large[m] ||
        !lhi_budget_is_engine_enabled(budget, LHI_ENGINE_LIVE))
        return false;
    const lhi_engine before = lhi_budget_enter_engine(budget, LHI_ENGINE_LIVE);
    /* Pruning releases most of it. */
    size_t used = w->used + w->scratch * 2 * sizeof *w->first;
    size_t all = w->room + w->room / 2;
    size_t room = all > used ? (all - used) / 3 * 2 : 0;
    size_t most = w->max_deadline_states * (s->machines[m].n_streams * 6 + 40);
    w->pruned[m] = lhi_lattice_make_for_deadline(
        w, m, room < most ? room : most, budget, &no_memory);
    lhi_budget_restore_engine(budget, before);
    if (!w->pruned[m]) {
        if (!no_memory && !budget->stop) {
            w->too_large[m] = deadline;
            w->is_memory_limited = w->is_memory_limited || room < most;
        }
        return false;
    }
    w->pruned_deadline[m] = deadline;
    w->used += count_lattice_bytes(w->pruned[m]);
    if (make_scratch(w, w->pruned[m]->n_states))
        return true;
    drop_pruned(w, m);
    return false;
}

/* Replaces machine m's lattice by a copy without states that no order within
 * `deadline` passes. `for_good`: frees the old one; otherwise it is restored
 * for longer deadlines. Returns false if out of memory, or stopped. */
static bool prune_machine(lhi_windows *w, uint32_t m, int64_t deadline,
                          bool for_good, lhi_budget *budget)
{
    lhi_lattice *l =
        lhi_lattice_prune(lhi_windows_get_lattice(w, m), w, budget);
    if (!l)
        return false;
    drop_pruned(w, m);
    w->used += count_lattice_bytes(l);
    if (!for_good || !w->lattices[m]) {
        w->pruned[m] = l;
        w->pruned_deadline[m] = deadline;
        return true;
    }
    w->used -= count_lattice_bytes(w->lattices[m]);
    lhi_lattice_free(w->lattices[m]);
    w->lattices[m] = l;
    return true;
}

bool lhi_windows_set(lhi_windows *w, int64_t deadline, lhi_budget *budget)
{
    const lhi_shop *s = w->shop;
    drop_stale_pruned(w, deadline);
    bool ok = initialise_windows(w, deadline, budget);
    ok = ok && propagate_machines(w, budget);
    for (uint32_t m = 0; ok && !budget->stop && m < s->n_machines; m++) {
        if (!make_deadline_lattice(w, m, deadline, budget)) {
            if (w->strict && s->machines[m].n_streams > 1 &&
                !lhi_windows_get_lattice(w, m))
                break;
            continue;
        }
        ok = tighten(w, m, budget) && propagate_machines(w, budget);
        /* Without memory for a copy the lattice stays unpruned. */
        if (ok && !budget->stop)
            (void)prune_machine(w, m, deadline, false, budget);
    }
    w->complete = true;
    for (uint32_t m = 0; m < s->n_machines; m++)
        w->complete = w->complete && (s->machines[m].n_streams < 2 ||
                                      lhi_windows_get_lattice(w, m));
    return ok;
}

bool lhi_windows_set_strictly(lhi_windows *w, int64_t deadline,
                              lhi_budget *budget)
{
    w->strict = true;
    bool open = lhi_windows_set(w, deadline, budget);
    w->strict = false;
    return open;
}

bool lhi_windows_prune(lhi_windows *w, int64_t deadline, bool for_good,
                       lhi_budget *budget)
{
    for (uint32_t m = 0; m < w->shop->n_machines; m++) {
        if (lhi_windows_get_lattice(w, m) &&
            !prune_machine(w, m, deadline, for_good, budget))
            return budget->timed_out;
        if (lhi_budget_spend(budget, estimate_cost(w, m)))
            break;
    }
    return true;
}

bool lhi_windows_propagate(lhi_windows *w, uint32_t m, lhi_budget *budget)
{
    const lhi_shop *s = w->shop;
    w->dirty[m] = true;
    if (propagate_machines(w, budget) && !budget->stop)
        return true;
    /* Leave no pending work for the next call. */
    memset(w->queued, 0, s->n_ops * sizeof *w->queued);
    memset(w->dirty, 0, s->n_machines * sizeof *w->dirty);
    w->n_queue = 0;
    return budget->stop;
}

void lhi_windows_compute_counts(lhi_windows *w, uint32_t m, lhi_budget *budget)
{
    const lhi_shop *s = w->shop;
    const uint32_t first = s->streams[s->machines[m].first_stream].first;
    const size_t end = w->slot_at[first + lhi_machine_count_operations(s, m)];
    for (size_t at = w->slot_at[first]; at < end; at++) {
        w->least[at] = UINT32_MAX;
        w->most[at] = 0;
    }
    if (lhi_windows_get_lattice(w, m) && !budget->timed_out)
        lhi_lattice_compute_counts(lhi_windows_get_lattice(w, m), w, budget);
}

void lhi_windows_compute_all_counts(lhi_windows *w, lhi_budget *budget)
{
    for (uint32_t m = 0; m < w->shop->n_machines; m++)
        if (w->shop->machines[m].n_streams > 0)
            lhi_windows_compute_counts(w, m, budget);
}
