/* SPDX-License-Identifier: Apache-2.0 */
/* Facts that hold before any decision: rules, arcs within one machine and the
 * windows' counts, closed under transitivity and stream order. */
#include "schedule/solver/search/search_internal.h"

#include <stdlib.h>

/* State while computing the closure. */
typedef struct root {
    const lhi_shop *s;
    const size_t *slot_at;
    uint32_t *before, *after; /* [slot_at[op] + slot] */
    uint32_t *list, n;        /* a machine's operations */
    bool changed;
} root;

bool lhi_search_is_applicable(const lhi_shop *shop)
{
    for (uint32_t m = 0; m < shop->n_machines; m++)
        if (shop->machines[m].n_streams > MOST_SLOTS)
            return false;
    return true;
}

/* Returns the stream (operations in fixed order) of operation o. */
static const lhi_stream *get_stream(const root *a, uint32_t o)
{
    return &a->s->streams[a->s->stream_of[o]];
}

/* Initialises a->before and a->after for operation o: how many operations of
 * each stream (operations in fixed order) certainly precede it, and the first
 * that certainly follows. Uses fixed rules and, with_counts, the time windows'
 * counts. */
static void initialise_counts(root *a, const lhi_windows *w, bool with_counts,
                              uint32_t o)
{
    const lhi_stream *t = get_stream(a, o);
    const lhi_machine *m = &a->s->machines[t->machine];
    const bool counts = with_counts && (w->restricted_counts ||
                                        lhi_windows_get_lattice(w, t->machine));
    for (uint32_t i = 0; i < m->n_streams; i++) {
        const size_t at = a->slot_at[o] + i;
        const bool own = i == t->slot;
        const bool open = m->leader == NONE;
        uint32_t least = open ? w->fixed[at] : 0;
        uint32_t most = a->s->streams[m->first_stream + i].count;
        if (open && counts) {
            least = w->least[at] > least ? w->least[at] : least;
            most = w->most[at];
        }
        a->before[at] = own ? o - t->first : least;
        a->after[at] = own ? o - t->first + 1 : most;
    }
}

/* Lists a machine's operations by earliest start, an order that agrees with
 * most known orders of pairs. */
static void list_machine(root *a, const lhi_windows *w, const lhi_machine *m)
{
    uint32_t at[MOST_SLOTS] = {0};
    a->n = 0;
    for (;;) {
        uint32_t pick = NONE, slot = 0;
        for (uint32_t i = 0; i < m->n_streams; i++) {
            const lhi_stream *t = &a->s->streams[m->first_stream + i];
            const uint32_t o = t->first + at[i];
            if (at[i] < t->count && (pick == NONE || w->r[o] < w->r[pick])) {
                pick = o;
                slot = i;
            }
        }
        if (pick == NONE)
            return;
        at[slot]++;
        a->list[a->n++] = pick;
    }
}

/* Adds to o's predecessors those of q, which precedes o. False: the known
 * orders have a cycle. */
static bool inherit_before(root *a, uint32_t o, uint32_t q)
{
    const lhi_stream *t = get_stream(a, o), *u = get_stream(a, q);
    const uint32_t n = a->s->machines[t->machine].n_streams;
    uint32_t *to = a->before + a->slot_at[o];
    const uint32_t *from = a->before + a->slot_at[q];
    uint32_t *back = a->after + a->slot_at[q] + t->slot;
    if (from[t->slot] > o - t->first)
        return false;
    if (u != t && *back > o - t->first) {
        *back = o - t->first;
        a->changed = true;
    }
    for (uint32_t i = 0; i < n; i++)
        if (from[i] > to[i]) {
            to[i] = from[i];
            a->changed = true;
        }
    return true;
}

/* Adds to o's successors those of q, which follows o. False: the known orders
 * have a cycle. */
static bool inherit_after(root *a, uint32_t o, uint32_t q)
{
    const lhi_stream *t = get_stream(a, o), *u = get_stream(a, q);
    const uint32_t n = a->s->machines[t->machine].n_streams;
    uint32_t *to = a->after + a->slot_at[o];
    const uint32_t *from = a->after + a->slot_at[q];
    uint32_t *back = a->before + a->slot_at[q] + t->slot;
    if (from[t->slot] <= o - t->first)
        return false;
    if (u != t && *back <= o - t->first) {
        *back = o - t->first + 1;
        a->changed = true;
    }
    for (uint32_t i = 0; i < n; i++)
        if (from[i] < to[i]) {
            to[i] = from[i];
            a->changed = true;
        }
    return true;
}

/* Extends the known predecessors of every operation by their own predecessors,
 * in the list's order; false: the known orders have a cycle. */
static bool extend_predecessors(root *a, const lhi_machine *m)
{
    for (uint32_t x = 0; x < a->n; x++) {
        const uint32_t o = a->list[x];
        for (uint32_t i = 0; i < m->n_streams; i++) {
            const uint32_t k = a->before[a->slot_at[o] + i];
            const uint32_t first = a->s->streams[m->first_stream + i].first;
            if (k > 0 && !inherit_before(a, o, first + k - 1))
                return false;
        }
    }
    return true;
}

/* Extends the known successors of every operation by their own successors, in
 * reverse order of the list; false: the known orders have a cycle. */
static bool extend_successors(root *a, const lhi_machine *m)
{
    for (uint32_t x = a->n; x-- > 0;) {
        const uint32_t o = a->list[x];
        for (uint32_t i = 0; i < m->n_streams; i++) {
            const lhi_stream *u = &a->s->streams[m->first_stream + i];
            const uint32_t k = a->after[a->slot_at[o] + i];
            if (k < u->count && !inherit_after(a, o, u->first + k))
                return false;
        }
    }
    return true;
}

/* Checks that no operation of the machine is known to run both before and after
 * the same other operation. */
static bool is_possible(const root *a, const lhi_machine *m)
{
    for (uint32_t x = 0; x < a->n; x++)
        for (uint32_t i = 0; i < m->n_streams; i++) {
            const size_t at = a->slot_at[a->list[x]] + i;
            if (a->before[at] > a->after[at])
                return false;
        }
    return true;
}

/* Computes the known orders' transitive closure on one machine; false: no order
 * exists. */
static bool compute_closure(root *a, const lhi_windows *w, const lhi_machine *m)
{
    list_machine(a, w, m);
    if (!is_possible(a, m))
        return false;
    do {
        a->changed = false;
        if (!extend_predecessors(a, m) || !extend_successors(a, m))
            return false;
    } while (a->changed);
    return is_possible(a, m);
}

bool lhi_search_compute_root_orders(const lhi_windows *w, bool with_counts,
                                    uint32_t *list, uint32_t *before,
                                    uint32_t *after)
{
    root a = {.s = w->shop,
              .slot_at = w->slot_at,
              .before = before,
              .after = after,
              .list = list};
    for (uint32_t o = 0; o < a.s->n_ops; o++)
        initialise_counts(&a, w, with_counts, o);
    for (uint32_t m = 0; m < a.s->n_machines; m++)
        if (a.s->machines[m].leader == NONE &&
            !compute_closure(&a, w, &a.s->machines[m]))
            return false;
    return true;
}

uint64_t lhi_search_count_open_pairs(const lhi_shop *shop,
                                     const size_t *slot_at,
                                     const uint32_t *before,
                                     const uint32_t *after)
{
    uint64_t n = 0;
    for (uint32_t o = 0; o < shop->n_ops; o++) {
        const lhi_stream *t = &shop->streams[shop->stream_of[o]];
        const lhi_machine *m = &shop->machines[t->machine];
        for (uint32_t i = t->slot + 1; i < m->n_streams && m->leader == NONE;
             i++)
            n += after[slot_at[o] + i] - before[slot_at[o] + i];
    }
    return n;
}

lh_status lhi_search_estimate_bytes(const lhi_windows *w, bool with_counts,
                                    size_t *out, lh_error *err)
{
    const lhi_shop *shop = w->shop;
    const size_t n = shop->n_ops, slots = w->slot_at[n];
    const size_t each = sizeof(why) + 2 * sizeof(watches) + sizeof(double) +
                        9 * sizeof(uint32_t) + 8;
    *out = SIZE_MAX;
    if (!lhi_search_is_applicable(shop))
        return LH_OK;
    uint32_t *scratch = malloc((n + 2 * slots) * sizeof *scratch);
    if (!scratch)
        return lhi_fail_nomem(err);
    *out = n * 400 + slots * (2 * sizeof *scratch + sizeof(open_pairs));
    uint32_t *before = scratch + n, *after = before + slots;
    if (lhi_search_compute_root_orders(w, with_counts, scratch, before, after))
        *out +=
            each * lhi_search_count_open_pairs(shop, w->slot_at, before, after);
    free(scratch);
    return LH_OK;
}
