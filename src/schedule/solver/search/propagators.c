/* SPDX-License-Identifier: Apache-2.0 */
/* Consequences of orders in time and memory: heads, tails, one-machine bounds
 * and memory. */
#include "schedule/solver/search/search_internal.h"

#include "base/integer_math.h"

#include <string.h>

/* --- heads and tails ------------------------------------------------------ */

/* With `heads`, propagates the head (earliest start) of operation o, on a
 * machine that follows another's order, to the operations after it on that
 * machine. Otherwise propagates its tail (time that must follow) to those
 * before it. False: conflict. */
static bool push_follower(lhi_search *s, uint32_t o, bool heads)
{
    const lhi_shop *shop = s->s;
    const lhi_machine *m =
        &shop->machines[lhi_search_get_stream(s, o)->machine];
    uint32_t producer = s->producer[o];
    for (uint32_t i = 0; i < m->n_streams; i++) {
        const lhi_stream *u = &shop->streams[m->first_stream + i];
        if (u == lhi_search_get_stream(s, o))
            continue;
        uint32_t base = s->producer[u->first];
        const lhi_stream *from = lhi_search_get_stream(s, base);
        uint32_t skip = base - from->first, y;
        size_t at = s->slot_at[producer] + from->slot;
        if (heads) {
            y = s->after[at] > skip ? s->after[at] - skip : 0;
            if (y >= u->count)
                continue;
            if (!lhi_search_raise_time(
                    s, &s->head, u->first + y, o, shop->time[o],
                    lhi_search_get_literal(s, producer, base + y)))
                return false;
            continue;
        }
        if (s->before[at] <= skip)
            continue;
        y = s->before[at] - skip - 1;
        y = y < u->count ? y : u->count - 1;
        if (!lhi_search_raise_time(
                s, &s->tail, u->first + y, o, shop->time[o],
                lhi_search_get_literal(s, base + y, producer)))
            return false;
    }
    return true;
}

/* With `heads`, propagates the head (earliest start) of o to operations of
 * other streams on the same machine that are ordered after it. Otherwise
 * propagates its tail (time that must follow) to those before it. False:
 * conflict. */
static bool push_machine(lhi_search *s, uint32_t o, bool heads)
{
    const lhi_shop *shop = s->s;
    const lhi_stream *t = lhi_search_get_stream(s, o);
    const lhi_machine *m = &shop->machines[t->machine];
    int64_t time = shop->time[o];
    for (uint32_t i = 0; i < m->n_streams; i++) {
        const lhi_stream *u = &shop->streams[m->first_stream + i];
        size_t at = s->slot_at[o] + i;
        if (i == t->slot)
            continue;
        if (heads && s->after[at] < u->count) {
            uint32_t to = u->first + s->after[at];
            if (lhi_search_would_rise(&s->head, to, o, time) &&
                !lhi_search_raise_time(s, &s->head, to, o, time,
                                       lhi_search_get_literal(s, o, to)))
                return false;
        }
        if (!heads && s->before[at] > 0) {
            uint32_t to = u->first + s->before[at] - 1;
            if (lhi_search_would_rise(&s->tail, to, o, time) &&
                !lhi_search_raise_time(s, &s->tail, to, o, time,
                                       lhi_search_get_literal(s, to, o)))
                return false;
        }
    }
    return true;
}

/* Propagates the head (earliest start) of o to its successors by stream, arcs
 * and known orders; false: conflict. */
static bool push_head(lhi_search *s, uint32_t o)
{
    const lhi_shop *shop = s->s;
    const lhi_stream *t = lhi_search_get_stream(s, o);
    int64_t time = shop->time[o];
    if (o + 1 < t->first + t->count &&
        !lhi_search_raise_time(s, &s->head, o + 1, o, time, NONE))
        return false;
    for (uint32_t i = shop->succ_at[o]; i < shop->succ_at[o + 1]; i++)
        if (!lhi_search_raise_time(s, &s->head, shop->succ[i], o,
                                   time + shop->succ_lag[i], NONE))
            return false;
    if (s->producer[o] != NONE)
        return push_follower(s, o, true);
    return push_machine(s, o, true);
}

/* Propagates the tail (time that must follow) of o to its predecessors by
 * stream, arcs and known orders; false: conflict. */
static bool push_tail(lhi_search *s, uint32_t o)
{
    const lhi_shop *shop = s->s;
    const lhi_stream *t = lhi_search_get_stream(s, o);
    int64_t time = shop->time[o];
    if (o > t->first &&
        !lhi_search_raise_time(s, &s->tail, o - 1, o, time, NONE))
        return false;
    for (uint32_t i = shop->pred_at[o]; i < shop->pred_at[o + 1]; i++)
        if (!lhi_search_raise_time(s, &s->tail, shop->pred[i], o,
                                   time + shop->pred_lag[i], NONE))
            return false;
    if (s->producer[o] != NONE)
        return push_follower(s, o, false);
    return push_machine(s, o, false);
}

/* Puts those operations before o whose order is open but which would exceed the
 * deadline if they ran after o. Tails decrease along a stream, so this affects
 * the first open ones. False: conflict. */
static bool order_by_head(lhi_search *s, uint32_t o)
{
    const lhi_shop *shop = s->s;
    const lhi_stream *t = lhi_search_get_stream(s, o);
    const lhi_machine *m = &shop->machines[t->machine];
    int64_t end = s->head.now[o] + shop->time[o];
    why w = {WHY_TIME, s->head.n, s->tail.n};
    for (uint32_t i = 0; i < m->n_streams; i++) {
        uint32_t first = shop->streams[m->first_stream + i].first;
        size_t at = s->slot_at[o] + i;
        uint32_t y = s->before[at], open = y;
        if (i == t->slot)
            continue;
        while (y < s->after[at] &&
               end + shop->time[first + y] + s->tail.now[first + y] >
                   s->deadline)
            y++;
        s->work += y - open + 1;
        if (y > open && !lhi_search_enqueue(
                            s, lhi_search_get_literal(s, first + y - 1, o), w))
            return false;
    }
    return true;
}

/* Puts those operations after o whose order is open but which end too late to
 * precede it within the deadline; false: conflict. */
static bool order_by_tail(lhi_search *s, uint32_t o)
{
    const lhi_shop *shop = s->s;
    const lhi_stream *t = lhi_search_get_stream(s, o);
    const lhi_machine *m = &shop->machines[t->machine];
    int64_t begin = s->deadline - s->tail.now[o] - shop->time[o];
    why w = {WHY_TIME, s->head.n, s->tail.n};
    for (uint32_t i = 0; i < m->n_streams; i++) {
        uint32_t first = shop->streams[m->first_stream + i].first;
        size_t at = s->slot_at[o] + i;
        uint32_t y = s->after[at], open = y;
        if (i == t->slot)
            continue;
        while (y > s->before[at] &&
               s->head.now[first + y - 1] + shop->time[first + y - 1] > begin)
            y--;
        s->work += open - y + 1;
        if (y < open &&
            !lhi_search_enqueue(s, lhi_search_get_literal(s, o, first + y), w))
            return false;
    }
    return true;
}

/* Checks that o's head (earliest start), duration and tail (time that must
 * follow) fit the deadline; otherwise stores the explanation as conflict. */
static bool check_window(lhi_search *s, uint32_t o)
{
    int64_t spare =
        s->head.now[o] + s->s->time[o] + s->tail.now[o] - s->deadline - 1;
    if (spare < 0)
        return true;
    s->n_conflict = 0;
    lhi_search_explain_both(s, o, s->head.now[o], o, s->tail.now[o], spare);
    return false;
}

/* Propagates one changed head (earliest start) or tail (time that must follow)
 * per call, so that implied orders are known before the next; false: conflict.
 * */
bool lhi_search_propagate_times(lhi_search *s)
{
    const lhi_shop *shop = s->s;
    bool heads = s->head.n_queue > 0;
    history *h = heads ? &s->head : &s->tail;
    if (h->n_queue == 0)
        return true;
    uint32_t o = lhi_search_take_operation(h, shop->n_ops);
    s->machine_dirty[lhi_search_get_stream(s, o)->machine] = true;
    s->work += 4;
    if (!check_window(s, o))
        return false;
    if (heads)
        return push_head(s, o) &&
               (s->producer[o] != NONE || order_by_head(s, o));
    return push_tail(s, o) && (s->producer[o] != NONE || order_by_tail(s, o));
}

/* Queues for propagation, in `history` h, the messages or collectives whose
 * order on a following machine depends on op. */
static void queue_followers(lhi_search *s, uint32_t op, history *h)
{
    const lhi_shop *shop = s->s;
    for (uint32_t i = shop->succ_at[op]; i < shop->succ_at[op + 1]; i++)
        if (s->producer[shop->succ[i]] == op)
            lhi_search_queue_operation(h, shop->n_ops, shop->succ[i]);
    for (uint32_t i = shop->pred_at[op]; i < shop->pred_at[op + 1]; i++)
        if (s->producer[shop->pred[i]] == op)
            lhi_search_queue_operation(h, shop->n_ops, shop->pred[i]);
}

bool lhi_search_propagate_literal(lhi_search *s, lit l)
{
    uint32_t a = lhi_search_get_first(s, l), b = lhi_search_get_second(s, l);
    queue_followers(s, a, &s->head);
    queue_followers(s, b, &s->tail);
    return lhi_search_raise_time(s, &s->head, b, a, s->s->time[a], l) &&
           lhi_search_raise_time(s, &s->tail, a, b, s->s->time[b], l);
}

/* --- one machine ---------------------------------------------------------- */

/* Operations that run on a machine without idle time. */
typedef struct block {
    /* per slot: a range of a stream */
    uint32_t first[MOST_SLOTS], n[MOST_SLOTS];
    int64_t begin, end;
} block;

/* Checks whether the machine's operations that must end by `due`, run alone in
 * order of their heads (earliest starts), end later. *out: the last block of
 * them without idle time. */
static bool find_late_block(lhi_search *s, const lhi_machine *m, int64_t due,
                            block *out)
{
    const lhi_shop *shop = s->s;
    uint32_t at[MOST_SLOTS] = {0};
    int64_t now = -1;
    for (;;) {
        uint32_t pick = NONE, slot = 0;
        for (uint32_t i = 0; i < m->n_streams; i++) {
            const lhi_stream *t = &shop->streams[m->first_stream + i];
            uint32_t o = t->first + at[i];
            if (at[i] < t->count && s->deadline - s->tail.now[o] <= due &&
                (pick == NONE || s->head.now[o] < s->head.now[pick])) {
                pick = o;
                slot = i;
            }
        }
        if (pick == NONE)
            return false;
        s->work++;
        at[slot]++;
        if (s->head.now[pick] > now) {
            now = out->begin = s->head.now[pick];
            memset(out->n, 0, m->n_streams * sizeof *out->n);
        }
        if (out->n[slot]++ == 0)
            out->first[slot] = pick;
        now += shop->time[pick];
        if (now > due) {
            out->end = now;
            return true;
        }
    }
}

/* Stores as conflict the heads (earliest starts) and tails (times that must
 * follow) that explain block `b`, which misses `due`; splits the slack between
 * heads and tails. */
static void explain_block(lhi_search *s, const lhi_machine *m, int64_t due,
                          const block *b)
{
    int64_t spare = b->end - due - 1;
    int64_t head = b->begin - spare / 2;
    int64_t tail = s->deadline - due - (spare - spare / 2);
    s->n_conflict = 0;
    for (uint32_t i = 0; i < m->n_streams; i++) {
        if (b->n[i] == 0)
            continue;
        lhi_search_explain_path(s, &s->head, b->first[i], head);
        lhi_search_explain_path(s, &s->tail, b->first[i] + b->n[i] - 1, tail);
    }
}

/* Checks by Jackson's preemptive schedule (earliest deadline first) whether a
 * machine can meet its deadlines; *due: the first missed one. */
static bool meets_deadlines(lhi_search *s, const lhi_machine *m, int64_t *due)
{
    const lhi_shop *shop = s->s;
    uint32_t op[MOST_SLOTS], end[MOST_SLOTS];
    int64_t left[MOST_SLOTS], now = 0;
    for (uint32_t i = 0; i < m->n_streams; i++) {
        const lhi_stream *t = &shop->streams[m->first_stream + i];
        op[i] = t->first;
        end[i] = t->first + t->count;
        left[i] = shop->time[t->first];
    }
    for (;;) {
        uint32_t pick = NONE;
        int64_t next = FAR, most = -FAR;
        for (uint32_t i = 0; i < m->n_streams; i++) {
            if (op[i] == end[i])
                continue;
            int64_t r = s->head.now[op[i]], q = s->tail.now[op[i]];
            if (r > now) {
                next = r < next ? r : next;
            } else if (q > most) {
                most = q;
                pick = i;
            }
        }
        s->work++;
        if (pick == NONE && next == FAR)
            return true;
        if (pick == NONE) {
            now = next;
            continue;
        }
        int64_t run = lhi_min_int64(left[pick], next - now);
        now += run;
        left[pick] -= run;
        if (left[pick] > 0)
            continue;
        if (now + most > s->deadline) {
            *due = s->deadline - most;
            return false;
        }
        if (++op[pick] < end[pick])
            left[pick] = shop->time[op[pick]];
    }
}

bool lhi_search_check_machines(lhi_search *s)
{
    const lhi_shop *shop = s->s;
    for (uint32_t i = 0; i < shop->n_machines; i++) {
        const lhi_machine *m = &shop->machines[i];
        if (!s->machine_dirty[i])
            continue;
        s->machine_dirty[i] = false;
        int64_t due;
        block b;
        if (m->n_streams < 2 || m->n_streams > MOST_SLOTS ||
            meets_deadlines(s, m, &due))
            continue;
        if (!find_late_block(s, m, due, &b))
            continue;
        s->machine_dirty[i] = true;
        explain_block(s, m, due, &b);
        return false;
    }
    return true;
}

/* --- memory --------------------------------------------------------------- */

void lhi_search_queue_memory(lhi_search *s, uint32_t op)
{
    const lhi_shop *shop = s->s;
    if (shop->memory[op] <= 0 || s->memory_queued[op] ||
        shop->machines[lhi_search_get_stream(s, op)->machine].memory_limit ==
            LH_NO_LIMIT)
        return;
    s->memory_queued[op] = true;
    s->memory_queue[s->n_memory_queue++] = op;
}

/* Returns the net memory change of the first x operations of a stream
 * (operations in fixed order). */
static int64_t get_memory_sum(const lhi_search *s, uint32_t stream, uint32_t x)
{
    return s->memory_sum[s->s->streams[stream].first + stream + x];
}

/* Checks whether all operations of a stream (operations in fixed order)
 * together increase the memory. */
static bool takes_memory(const lhi_search *s, uint32_t stream)
{
    return get_memory_sum(s, stream, s->s->streams[stream].count) > 0;
}

/* Returns the literal that explains why `stream` holds at least get_min_share()
 * of the memory while o runs; NONE: no literal is needed. */
static lit get_share_reason(const lhi_search *s, uint32_t o, uint32_t stream)
{
    const lhi_stream *u = &s->s->streams[stream];
    size_t at = s->slot_at[o] + u->slot;
    if (takes_memory(s, stream))
        return s->before[at]
                   ? lhi_search_get_literal(s, u->first + s->before[at] - 1, o)
                   : NONE;
    return s->after[at] < u->count
               ? lhi_search_get_literal(s, o, u->first + s->after[at])
               : NONE;
}

/* Returns the least memory that a stream's operations hold while o runs. It is
 * the net change of those that certainly precede o or, for a stream (operations
 * in fixed order) that releases memory, of those that may precede it. */
static int64_t get_min_share(const lhi_search *s, uint32_t o, uint32_t stream)
{
    size_t at = s->slot_at[o] + s->s->streams[stream].slot;
    return get_memory_sum(
        s, stream, takes_memory(s, stream) ? s->before[at] : s->after[at]);
}

/* Stores in *out the literals that explain the least memory held by all streams
 * (operations in fixed order) except o's own and `except`; false: out of
 * memory. */
static bool store_share_reasons(lhi_search *s, uint32_t o, uint32_t except,
                                why *out)
{
    const lhi_stream *t = lhi_search_get_stream(s, o);
    const lhi_machine *m = &s->s->machines[t->machine];
    if (!lhi_search_grow_array(s, (void **)&s->sets, &s->room_sets,
                               sizeof *s->sets, s->n_sets + m->n_streams))
        return false;
    *out = (why){WHY_SET, s->n_sets, 0};
    for (uint32_t i = 0; i < m->n_streams; i++) {
        if (i == t->slot || m->first_stream + i == except)
            continue;
        lit l = get_share_reason(s, o, m->first_stream + i);
        if (l != NONE)
            s->sets[s->n_sets++] = l;
    }
    out->y = s->n_sets - out->x;
    return true;
}

/* Orders operations of a stream (operations in fixed order) after o, or before
 * it if the stream releases memory, because otherwise the memory would exceed
 * `spare`, the amount that remains. False: conflict. */
static bool order_by_memory(lhi_search *s, uint32_t o, uint32_t stream,
                            int64_t spare)
{
    const lhi_stream *u = &s->s->streams[stream];
    size_t at = s->slot_at[o] + u->slot;
    int64_t now = get_min_share(s, o, stream);
    uint32_t lo = s->before[at], hi = s->after[at];
    lit l;
    if (takes_memory(s, stream)) {
        uint32_t y = lo;
        while (y < hi && get_memory_sum(s, stream, y + 1) - now <= spare)
            y++;
        if (y == hi)
            return true;
        l = lhi_search_get_literal(s, o, u->first + y);
    } else {
        uint32_t y = hi;
        while (y > lo && get_memory_sum(s, stream, y - 1) - now <= spare)
            y--;
        if (y == lo)
            return true;
        l = lhi_search_get_literal(s, u->first + y - 1, o);
    }
    why w;
    return store_share_reasons(s, o, stream, &w) && lhi_search_enqueue(s, l, w);
}

/* Checks that the least memory held by all streams (operations in fixed order)
 * while o runs fits the machine's limit, and derives orders from the remaining
 * amount. False: conflict. */
static bool check_memory(lhi_search *s, uint32_t o)
{
    const lhi_stream *t = lhi_search_get_stream(s, o);
    const lhi_machine *m = &s->s->machines[t->machine];
    uint32_t own = m->first_stream + t->slot;
    int64_t held = get_memory_sum(s, own, o - t->first + 1);
    s->work += m->n_streams;
    for (uint32_t i = 0; i < m->n_streams; i++)
        if (i != t->slot)
            held += get_min_share(s, o, m->first_stream + i);
    int64_t spare = m->memory_limit - held;
    if (spare < 0) {
        why w;
        s->n_conflict = 0;
        if (!store_share_reasons(s, o, NONE, &w))
            return false;
        for (uint32_t i = 0; i < w.y; i++)
            lhi_search_add_conflict(s, s->sets[w.x + i]);
        return false;
    }
    for (uint32_t i = 0; i < m->n_streams; i++)
        if (i != t->slot && !order_by_memory(s, o, m->first_stream + i, spare))
            return false;
    return true;
}

bool lhi_search_propagate_memory(lhi_search *s)
{
    if (s->n_memory_queue == 0)
        return true;
    uint32_t o = s->memory_queue[--s->n_memory_queue];
    s->memory_queued[o] = false;
    return check_memory(s, o);
}

void lhi_search_clear_queues(lhi_search *s)
{
    while (s->n_memory_queue > 0)
        s->memory_queued[s->memory_queue[--s->n_memory_queue]] = false;
    while (s->head.n_queue > 0)
        lhi_search_take_operation(&s->head, s->s->n_ops);
    while (s->tail.n_queue > 0)
        lhi_search_take_operation(&s->tail, s->s->n_ops);
}
