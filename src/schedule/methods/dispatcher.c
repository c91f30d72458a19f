/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/methods/dispatcher.h"

#include "base/integer_math.h"
#include "schedule/methods/link_reservations.h"
#include "schedule/pipeline/idle_limits.h"

#include <string.h>

/* --- tournament tree ----------------------------------------------------- */

/* Returns the one of devices `a` and `b` whose chosen pass starts first; `a` if
 * both start together. */
static uint32_t get_earlier_device(const lhi_dispatcher *p, uint32_t a,
                                   uint32_t b)
{
    if (a == LH_NONE || b == LH_NONE)
        return a == LH_NONE ? b : a;
    return p->choices[b].start_ns < p->choices[a].start_ns ? b : a;
}

/* Updates the tournament tree (device with the earliest choice) from one
 * device's leaf up to the root. */
static void update_tree(lhi_dispatcher *p, uint32_t device)
{
    for (uint32_t i = (p->leaves + device) / 2; i > 0; i /= 2)
        p->tree[i] = get_earlier_device(p, p->tree[2 * i], p->tree[2 * i + 1]);
}

/* Builds the tournament tree from the devices' chosen passes, with the earliest
 * at the root. */
static void build_tree(lhi_dispatcher *p)
{
    for (uint32_t d = 0; d < p->leaves; d++)
        p->tree[p->leaves + d] = d < p->pipeline->n_devices ? d : LH_NONE;
    for (uint32_t i = p->leaves - 1; i > 0; i--)
        p->tree[i] = get_earlier_device(p, p->tree[2 * i], p->tree[2 * i + 1]);
}

/* --- admissible passes --------------------------------------------------- */

int64_t lhi_dispatcher_get_start(const lhi_dispatcher *planner,
                                 const lhi_dispatcher_device *device,
                                 uint32_t chunk, lh_pass_kind kind)
{
    const lhi_dispatcher_chunk *c = &planner->chunks[chunk];
    uint32_t next = kind == LH_F ? c->next_f : c->next_d;
    if (next == planner->pipeline->n_microbatches)
        return LHI_NEVER;
    int64_t at = kind == LH_F ? c->f_at[next] : c->d_at[next];
    return at > device->free_ns ? at : device->free_ns;
}

/* Returns the oldest microbatch whose passes are not all finished on the
 * device. */
static uint32_t get_oldest_microbatch(const lhi_dispatcher *planner,
                                      const lhi_dispatcher_device *device)
{
    return planner->chunks[device->chunks[0]].next_d;
}

/* Checks whether microbatches are ordered by the copy of the model, too. */
static bool has_many_copies(const lh_pipeline *p)
{
    return p->n_copies > 2;
}

/* Returns the chunk on the device with the oldest microbatch whose passes are
 * not all finished, by its number and then by the copy of the model; LH_NONE:
 * none. */
static uint32_t find_oldest_of_copies(const lhi_dispatcher *planner,
                                      const lhi_dispatcher_device *device)
{
    uint32_t best = LH_NONE, oldest = planner->pipeline->n_microbatches;
    for (uint32_t i = device->n_chunks; i-- > 0;) { /* the lowest copy first */
        const uint32_t next = planner->chunks[device->chunks[i]].next_d;
        if (next < oldest) {
            oldest = next;
            best = device->chunks[i];
        }
    }
    return best;
}

/* Checks whether microbatch `m` of the chunk's copy is the device's oldest. */
static bool is_oldest_of_copies(const lhi_dispatcher *planner,
                                const lhi_dispatcher_device *device,
                                uint32_t chunk, uint32_t m)
{
    const uint32_t length = lhi_count_direction_chunks(planner->pipeline);
    return device->oldest != LH_NONE &&
           chunk / length == device->oldest / length &&
           m == planner->chunks[device->oldest].next_d;
}

/* Returns the bytes that a chunk's next F or D takes plus the reserve that it
 * must leave free for its microbatch; INT64_MIN if it takes none. The oldest
 * microbatch needs no reserve: every younger one was admitted with that
 * reserve. */
static int64_t compute_need(const lhi_dispatcher *planner, uint32_t chunk,
                            lh_pass_kind kind)
{
    const lhi_dispatcher_chunk *c = &planner->chunks[chunk];
    const lh_chunk *pipe_chunk = &planner->pipeline->chunks[chunk];
    bool forward = kind == LH_F;
    const lhi_dispatcher_device *d = &planner->devices[pipe_chunk->device];
    const uint32_t next = forward ? c->next_f : c->next_d;
    int64_t change = forward ? pipe_chunk->mem_f : c->mem_d;
    int64_t keep = forward ? c->reserve_f : c->reserve_d;
    if (has_many_copies(planner->pipeline)
            ? is_oldest_of_copies(planner, d, chunk, next)
            : next == get_oldest_microbatch(planner, d))
        keep = 0;
    return change <= 0 && keep <= 0 ? INT64_MIN : change + keep;
}

int64_t lhi_dispatcher_get_headroom(const lhi_dispatcher_device *device)
{
    /* All amounts add up to less than 2^62 (lh_pipeline_make), so this equals
     * no limit, and no difference overflows. */
    const int64_t most = INT64_C(1) << 62;
    return (device->limit < most ? device->limit : most) - device->memory;
}

bool lhi_dispatcher_fits(const lhi_dispatcher *planner,
                         const lhi_dispatcher_device *device, uint32_t chunk,
                         lh_pass_kind kind)
{
    return compute_need(planner, chunk, kind) <=
           lhi_dispatcher_get_headroom(device);
}

bool lhi_dispatcher_fits_pair(const lhi_dispatcher *planner, uint32_t f,
                              uint32_t b, int64_t room)
{
    uint32_t length = lhi_count_direction_chunks(planner->pipeline);
    const lh_chunk *back = &planner->pipeline->chunks[b];
    int64_t need_f = compute_need(planner, f, LH_F);
    int64_t change = back->mem_d + back->mem_w;
    if (f / length == b / length &&
        planner->chunks[f].next_f == planner->chunks[b].next_d)
        return false;
    if (need_f == INT64_MIN)
        need_f = 0;
    return need_f + (change > 0 ? change : 0) <= room;
}

/* --- ready queue --------------------------------------------------------- */

static const lhi_ready_entry empty_entry = {LHI_NEVER, LHI_NEVER, LHI_NEVER};

/* Stores `leaf`, the entry for the device's chunk number `nth`, in a ready
 * queue (a binary tree with minima over chunks) and updates the minima above
 * it. */
static void set_entry(lhi_ready_queue *o, uint32_t nth, lhi_ready_entry leaf)
{
    uint32_t i = o->leaves + nth;
    o->nodes[i] = leaf;
    for (i /= 2; i > 0; i /= 2) {
        const lhi_ready_entry *a = &o->nodes[2 * i], *b = &o->nodes[2 * i + 1];
        const lhi_ready_entry least = {
            lhi_min_int64(a->ready_need, b->ready_need),
            lhi_min_int64(a->later_ns, b->later_ns),
            lhi_min_int64(a->later_need, b->later_need)};
        lhi_ready_entry *node = &o->nodes[i];
        if (least.ready_need == node->ready_need &&
            least.later_ns == node->later_ns &&
            least.later_need == node->later_need)
            return;
        *node = least;
    }
}

/* Updates a chunk's entry in the device's ready queue after the chunk's next
 * pass of kind `kind`, or its input's arrival time, has changed. */
static void update_entry(lhi_dispatcher *p, uint32_t chunk, lh_pass_kind kind)
{
    lhi_dispatcher_device *d = &p->devices[p->pipeline->chunks[chunk].device];
    const lhi_dispatcher_chunk *c = &p->chunks[chunk];
    uint32_t next = kind == LH_F ? c->next_f : c->next_d;
    int64_t at = LHI_NEVER, need = compute_need(p, chunk, kind);
    if (next < p->pipeline->n_microbatches)
        at = kind == LH_F ? c->f_at[next] : c->d_at[next];
    lhi_ready_entry leaf = empty_entry;
    if (at <= d->free_ns)
        leaf.ready_need = need;
    else if (at < LHI_NEVER)
        leaf = (lhi_ready_entry){LHI_NEVER, at, need};
    set_entry(kind == LH_F ? &d->f : &d->d, c->index, leaf);
}

/* Moves the entries of passes whose input has arrived by now_ns from "in
 * flight" to "ready" in a ready queue. */
static void move_arrived(lhi_ready_queue *o, int64_t now_ns)
{
    while (o->nodes[1].later_ns <= now_ns) {
        uint32_t i = 1;
        while (i < o->leaves)
            i = 2 * i + (o->nodes[2 * i].later_ns > now_ns);
        set_entry(
            o, i - o->leaves,
            (lhi_ready_entry){o->nodes[i].later_need, LHI_NEVER, LHI_NEVER});
    }
}

uint32_t lhi_ready_queue_find_ready(const lhi_ready_queue *offers, int64_t room)
{
    uint32_t i = 1;
    if (offers->nodes[1].ready_need > room)
        return LH_NONE;
    while (i < offers->leaves)
        i = 2 * i + (offers->nodes[2 * i + 1].ready_need <= room);
    return i - offers->leaves;
}

/* Returns the last chunk, by its index on the device, below tree node i whose
 * next pass fits into `room` bytes and gets its input, now in flight, by by_ns;
 * LH_NONE: none. */
static uint32_t find_later(const lhi_ready_queue *o, uint32_t i, int64_t room,
                           int64_t by_ns)
{
    if (o->nodes[i].later_ns > by_ns || o->nodes[i].later_need > room)
        return LH_NONE;
    if (i >= o->leaves)
        return i - o->leaves;
    uint32_t found = find_later(o, 2 * i + 1, room, by_ns);
    return found == LH_NONE ? find_later(o, 2 * i, room, by_ns) : found;
}

uint32_t lhi_ready_queue_find_later(const lhi_ready_queue *offers, int64_t room,
                                    int64_t by_ns)
{
    return by_ns == LHI_NEVER ? LH_NONE : find_later(offers, 1, room, by_ns);
}

/* Returns the earliest arrival in ns of an input in flight below tree node i,
 * among passes that fit into `room` bytes, if it is before `best`; else `best`.
 * */
static int64_t find_next(const lhi_ready_queue *o, uint32_t i, int64_t room,
                         int64_t best)
{
    if (o->nodes[i].later_ns >= best || o->nodes[i].later_need > room)
        return best;
    if (i >= o->leaves)
        return o->nodes[i].later_ns;
    uint32_t first = 2 * i, second = 2 * i + 1;
    if (o->nodes[second].later_ns < o->nodes[first].later_ns) {
        first = second;
        second = 2 * i;
    }
    best = find_next(o, first, room, best);
    return find_next(o, second, room, best);
}

int64_t lhi_ready_queue_get_next_arrival(const lhi_ready_queue *offers,
                                         int64_t room)
{
    return find_next(offers, 1, room, LHI_NEVER);
}

/* --- dispatch ------------------------------------------------------------ */

/* Raises *at_ns to the time at which a message produced at made_ns arrives over
 * `route`, and reserves the route's link for it. now_ns: time before which no
 * later message starts. Returns false if out of memory. */
static bool compute_arrival(lhi_dispatcher *p, const lhi_route *route,
                            int64_t now_ns, int64_t made_ns, int64_t *at_ns)
{
    int64_t sent = made_ns;
    if (route->resource != LH_NONE &&
        !lhi_link_reserve(p->mem, &p->resources[route->resource], now_ns,
                          made_ns, route->transfer_ns, &sent))
        return false;
    sent += route->latency_ns;
    if (sent > *at_ns) /* a first F may wait longer for its all-gather */
        *at_ns = sent;
    return true;
}

/* Delivers the output of `pass`, an F or D that runs from start_ns to end_ns,
 * to the pass that consumes it. Sets *reader to the device whose next choice
 * may change; LH_NONE: no device. False: out of memory. */
static bool send_output(lhi_dispatcher *p, const lh_pass *pass,
                        int64_t start_ns, int64_t end_ns, uint32_t *reader)
{
    const lh_pipeline *pipe = p->pipeline;
    uint32_t c = pass->chunk, m = pass->microbatch;
    *reader = LH_NONE;
    bool forward = pass->kind == LH_F;
    if (forward && lhi_is_last_chunk(pipe, c)) {
        p->chunks[c].d_at[m] = end_ns;
        if (m == p->chunks[c].next_d)
            update_entry(p, c, LH_D);
        return true;
    }
    if (!forward && lhi_is_first_chunk(pipe, c))
        return true;
    uint32_t to = forward ? c + 1 : c - 1;
    lhi_dispatcher_chunk *next = &p->chunks[to];
    int64_t *at = forward ? &next->f_at[m] : &next->d_at[m];
    *at = forward && m == 0 ? p->gathered_ns[to] : 0;
    if (!compute_arrival(p, forward ? &pipe->forward[c] : &pipe->backward[c],
                         start_ns, end_ns, at))
        return false;
    if (m != (forward ? next->next_f : next->next_d))
        return true;
    update_entry(p, to, forward ? LH_F : LH_D);
    /* A policy never prefers a pass that starts after its current choice,
     * unless both form an overlapped pair. */
    const uint32_t device = pipe->chunks[to].device;
    if (pipe->overlap_f_b > 0 || *at <= p->choices[device].start_ns)
        *reader = device;
    return true;
}

/* Appends the chosen pass to the device's order and returns it; the order owns
 * it. */
static lh_pass *add_choice(lhi_dispatcher *p, uint32_t device,
                           const lhi_dispatcher_choice *choice)
{
    lhi_dispatcher_device *d = &p->devices[device];
    lhi_order *order = &p->orders->devices[device];
    if (choice->kind == LH_F) {
        lhi_order_add_pass(order, LH_F, choice->chunk,
                           p->chunks[choice->chunk].next_f++);
        d->f_left--;
        d->last = LH_F;
    } else if (choice->kind == LH_D) {
        lhi_order_add_pass(order, p->pipeline->joint ? LH_B : LH_D,
                           choice->chunk, p->chunks[choice->chunk].next_d++);
        d->d_left--;
        d->last = LH_D;
        d->w_pending += p->pipeline->joint ? 0 : 1;
    } else {
        while (order->passes[d->w_at].kind != LH_D)
            d->w_at++;
        const lh_pass *of = &order->passes[d->w_at];
        lhi_order_add_pass(order, LH_W, of->chunk, of->microbatch);
        lh_pass *w = &order->passes[order->count - 1];
        w->part = d->w_part;
        w->n_parts = (uint16_t)p->n_parts;
        if (++d->w_part == p->n_parts) {
            d->w_part = 0;
            d->w_at++;
            d->w_pending--;
        }
    }
    return &order->passes[order->count - 1];
}

/* Updates the time until which a device is busy, its idle time, and its memory,
 * after a pass that starts at `start` (ns). */
static void add_to_clock(lhi_dispatcher *p, lhi_dispatcher_device *d,
                         const lh_pass *pass, int64_t start)
{
    const lh_chunk *chunk = &p->pipeline->chunks[pass->chunk];
    d->idle_left_ns -= start - d->free_ns;
    p->is_useless = p->is_useless || d->idle_left_ns <= 0;
    d->free_ns = start + lhi_pass_duration(p->pipeline, pass);
    d->memory += lhi_pass_memory_change(chunk, pass);
    p->orders->tight =
        p->orders->tight || lhi_dispatcher_get_headroom(d) < d->most_need;
}

/* Updates the entries whose memory need has changed because the device has a
 * new oldest microbatch: those of its passes and of the previous one's, with
 * more than two copies of the model all. */
static void update_oldest(lhi_dispatcher *p, lhi_dispatcher_device *d)
{
    const uint32_t oldest = get_oldest_microbatch(p, d);
    const bool many = has_many_copies(p->pipeline);
    if (many)
        d->oldest = find_oldest_of_copies(p, d);
    for (uint32_t k = 0; k < d->n_chunks; k++) {
        const lhi_dispatcher_chunk *c = &p->chunks[d->chunks[k]];
        if (many || c->next_f == oldest || c->next_f + 1 == oldest)
            update_entry(p, d->chunks[k], LH_F);
        if (many || c->next_d == oldest || c->next_d + 1 == oldest)
            update_entry(p, d->chunks[k], LH_D);
    }
}

/* Updates the ready queues after `pass` ran from `start` until the device's
 * current time, and delivers its output. *reader and the result are those of
 * send_output(). */
static bool finish_pass(lhi_dispatcher *p, lhi_dispatcher_device *d,
                        const lh_pass *pass, int64_t start, uint32_t *reader)
{
    *reader = LH_NONE;
    if (pass->kind == LH_W)
        return true;
    update_entry(p, pass->chunk, pass->kind == LH_F ? LH_F : LH_D);
    const bool many = has_many_copies(p->pipeline);
    if (pass->kind != LH_F && pass->chunk == (many ? d->oldest : d->chunks[0]))
        update_oldest(p, d);
    return send_output(p, pass, start, d->free_ns, reader);
}

/* Runs the pass or the overlapped pair that a device has chosen and updates its
 * time, memory and ready queues. readers[]: devices whose next choice may
 * change; LH_NONE: no device. False: out of memory. */
static bool run_choice(lhi_dispatcher *p, uint32_t device, uint32_t readers[2])
{
    lhi_dispatcher_device *d = &p->devices[device];
    const lhi_dispatcher_choice choice = p->choices[device];
    lh_pass *pass = add_choice(p, device, &choice);
    readers[1] = LH_NONE;
    if (choice.has_pair) {
        const lhi_dispatcher_choice back = {.kind = LH_D, .chunk = choice.pair};
        lh_pass *b = add_choice(p, device, &back);
        d->w_pending -= p->pipeline->joint ? 0 : 1; /* B includes W */
        b->kind = LH_B;
        b->overlapped = pass->overlapped = true;
        add_to_clock(p, d, pass, choice.start_ns);
        add_to_clock(p, d, b, d->free_ns);
    } else {
        add_to_clock(p, d, pass, choice.start_ns);
    }
    move_arrived(&d->f, d->free_ns);
    move_arrived(&d->d, d->free_ns);
    return finish_pass(p, d, pass, choice.start_ns, &readers[0]) &&
           (!choice.has_pair ||
            finish_pass(p, d, pass + 1, choice.start_ns, &readers[1]));
}

/* --- setup --------------------------------------------------------------- */

/* Computes the memory reserves reserve_f and reserve_d: by how much the
 * device's memory rises at most in a microbatch's remaining passes after
 * an F or D on each chunk; *whole: for a whole microbatch.
 *
 * An F or D is admitted only if its reserve stays free. The oldest microbatch
 * needs none except for its own pass, because younger ones were admitted with
 * capacity for all its earlier passes. So no order deadlocks. With two
 * directions, the two microbatches with the same number count as one: an F
 * leaves room for one on the chunk that is closer to its model's end, so the
 * passes closest to the end can always proceed. */
static void compute_reserves(lhi_dispatcher *p, const lhi_dispatcher_device *d,
                             int64_t *whole)
{
    const lh_chunk *chunks = p->pipeline->chunks;
    int64_t rise = 0, most = 0; /* rise from here; maximum over any interval */
    for (uint32_t i = 0; i < d->n_chunks; i++) { /* backward in time: D0 .. */
        uint32_t c = d->chunks[i];
        int64_t change[2] = {chunks[c].mem_w, chunks[c].mem_d};
        if (p->pipeline->joint) {
            change[0] = 0;
            change[1] += chunks[c].mem_w;
        }
        for (uint32_t k = 0; k < 2; k++) {
            if (k == 1)
                p->chunks[c].reserve_d = most;
            rise = rise + change[k] > 0 ? rise + change[k] : 0;
            most = rise > most ? rise : most;
        }
        p->chunks[c].mem_d = change[1];
    }
    for (uint32_t i = d->n_chunks; i-- > 0;) {
        uint32_t c = d->chunks[i];
        p->chunks[c].reserve_f = most;
        rise = rise + chunks[c].mem_f > 0 ? rise + chunks[c].mem_f : 0;
        most = rise > most ? rise : most;
    }
    *whole = most;
}

/* Computes the reserves if microbatches are ordered by the copy of the model,
 * too: that of a whole microbatch, because the oldest one may not have begun on
 * this device. It is the next to begin or in progress on every device that it
 * passes, so it can always proceed. */
static void compute_copy_reserves(lhi_dispatcher *p,
                                  const lhi_dispatcher_device *d,
                                  int64_t *whole)
{
    const uint32_t length = lhi_count_direction_chunks(p->pipeline);
    *whole = 0;
    for (uint32_t i = 0, end; i < d->n_chunks; i = end) {
        lhi_dispatcher_device one = {.chunks = d->chunks + i};
        int64_t most;
        end = i;
        while (end < d->n_chunks &&
               d->chunks[end] / length == d->chunks[i] / length)
            end++;
        one.n_chunks = end - i;
        compute_reserves(p, &one, &most);
        *whole = lhi_max_int64(*whole, most);
    }
    for (uint32_t i = 0; i < d->n_chunks; i++) {
        lhi_dispatcher_chunk *c = &p->chunks[d->chunks[i]];
        c->reserve_f = *whole;
        c->reserve_d = c->mem_d > 0 ? *whole : 0;
    }
}

/* Lowers a device's memory limit by p->quarters quarters of its largest
 * forward's memory, which the policy leaves unused. The limit stays high enough
 * for one microbatch, which needs `whole` bytes beside the static memory. */
static void reduce_limit(const lhi_dispatcher *p, lhi_dispatcher_device *d,
                         int64_t whole)
{
    int64_t most_f = 0;
    for (uint32_t i = 0; i < d->n_chunks; i++) {
        const lhi_dispatcher_chunk *c = &p->chunks[d->chunks[i]];
        int64_t f = p->pipeline->chunks[d->chunks[i]].mem_f;
        most_f = lhi_max_int64(most_f, f);
        d->most_need = lhi_max_int64(d->most_need, f + c->reserve_f);
        d->most_need = lhi_max_int64(d->most_need, c->mem_d + c->reserve_d);
    }
    if (d->limit < LH_NO_LIMIT)
        d->limit = lhi_max_int64(d->memory + whole,
                                 d->limit - most_f / 4 * p->quarters);
}

/* Allocates a ready queue (binary tree of minima) for n_chunks chunks, empty;
 * false: out of memory. */
static bool make_queue(lhi_dispatcher *p, lhi_ready_queue *o, uint32_t n_chunks)
{
    o->leaves = 1;
    while (o->leaves < n_chunks)
        o->leaves *= 2;
    o->nodes = LHI_NEW(p->mem, lhi_ready_entry, 2 * (size_t)o->leaves);
    for (uint32_t i = 0; o->nodes && i < 2 * o->leaves; i++)
        o->nodes[i] = empty_entry;
    return o->nodes != NULL;
}

/* Assigns chunks to devices and computes their memory reserves; fails if one
 * microbatch does not fit into a device's memory. */
static lh_status assign_chunks(lhi_dispatcher *p, lh_error *err)
{
    const lh_pipeline *pipe = p->pipeline;
    uint32_t *all = LHI_NEW(p->mem, uint32_t, pipe->n_chunks);
    if (!all)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < pipe->n_chunks; c++)
        p->devices[pipe->chunks[c].device].n_chunks++;
    uint32_t *next = all;
    for (uint32_t i = 0; i < pipe->n_devices; i++) {
        lhi_dispatcher_device *d = &p->devices[i];
        d->chunks = next;
        next += d->n_chunks;
        if (!make_queue(p, &d->f, d->n_chunks) ||
            !make_queue(p, &d->d, d->n_chunks))
            return lhi_fail_nomem(err);
        d->f_left = (uint64_t)d->n_chunks * pipe->n_microbatches;
        d->d_left = d->f_left;
        d->n_chunks = 0;
        d->limit = lh_pipeline_memory_limit(pipe, i);
    }
    uint32_t length = lhi_count_direction_chunks(pipe);
    for (uint32_t i = 0; i < pipe->n_chunks; i++) {
        uint32_t n_directions = pipe->n_chunks / length;
        uint32_t c = i % n_directions * length + i / n_directions;
        if (has_many_copies(pipe)) /* the lowest copy last */
            c = (n_directions - 1 - i / length) * length + i % length;
        lhi_dispatcher_device *d = &p->devices[pipe->chunks[c].device];
        p->chunks[c].index = d->n_chunks;
        all[(d->chunks - all) + d->n_chunks++] = c;
        d->memory += pipe->chunks[c].mem_static;
    }
    for (uint32_t i = 0; i < pipe->n_devices; i++) {
        int64_t whole;
        lhi_dispatcher_device *d = &p->devices[i];
        if (has_many_copies(pipe))
            compute_copy_reserves(p, d, &whole);
        else
            compute_reserves(p, d, &whole);
        d->oldest = find_oldest_of_copies(p, d);
        if (d->memory + whole > d->limit)
            return lhi_fail_memory_limit(pipe, i, d->memory + whole, err);
        reduce_limit(p, d, whole);
    }
    return LH_OK;
}

/* Computes when each chunk's parameters are gathered: all-gathers run one after
 * another from the start, in the order of the chunks' first forwards. */
static void compute_gather_times(lhi_dispatcher *p)
{
    for (uint32_t i = 0; i < p->pipeline->n_devices; i++) {
        int64_t free_ns = 0;
        for (uint32_t k = 0; k < p->devices[i].n_chunks; k++) {
            uint32_t c = p->devices[i].chunks[k];
            const lh_chunk *chunk = &p->pipeline->chunks[c];
            if (chunk->all_gather_ns == 0)
                continue;
            free_ns += chunk->all_gather_ns;
            p->gathered_ns[c] = free_ns + chunk->dp_latency_ns;
        }
    }
}

/* Allocates the dispatcher's state and enters the first F of each direction
 * into the ready queues. */
static lh_status init_planner(lhi_dispatcher *p, lh_error *err)
{
    const lh_pipeline *pipe = p->pipeline;
    uint32_t n = pipe->n_microbatches;
    p->leaves = 1;
    while (p->leaves < pipe->n_devices)
        p->leaves *= 2;
    p->chunks = LHI_NEW(p->mem, lhi_dispatcher_chunk, pipe->n_chunks);
    p->devices = LHI_NEW(p->mem, lhi_dispatcher_device, pipe->n_devices);
    p->resources = LHI_NEW(p->mem, lhi_link_reservations, pipe->n_resources);
    p->choices = LHI_NEW(p->mem, lhi_dispatcher_choice, pipe->n_devices);
    p->gathered_ns = LHI_NEW(p->mem, int64_t, pipe->n_chunks);
    p->tree = LHI_NEW(p->mem, uint32_t, 2 * (size_t)p->leaves);
    size_t n_inputs = 2 * (size_t)pipe->n_chunks * n;
    int64_t *inputs = LHI_NEW(p->mem, int64_t, n_inputs);
    if (!p->chunks || !p->devices || !p->resources || !p->choices ||
        !p->gathered_ns || !p->tree || !inputs)
        return lhi_fail_nomem(err);
    LHI_TRY(assign_chunks(p, err));
    compute_gather_times(p);
    for (size_t i = 0; i < n_inputs; i++)
        inputs[i] = LHI_NEVER;
    for (uint32_t c = 0; c < pipe->n_chunks; c++) {
        p->chunks[c].f_at = inputs + 2 * (size_t)c * n;
        p->chunks[c].d_at = p->chunks[c].f_at + n;
    }
    for (uint32_t c = 0; c < pipe->n_chunks; c++) {
        if (!lhi_is_first_chunk(pipe, c))
            continue;
        memset(p->chunks[c].f_at, 0, n * sizeof *p->chunks[c].f_at);
        p->chunks[c].f_at[0] = p->gathered_ns[c];
        update_entry(p, c, LH_F);
    }
    return LH_OK;
}

/* --- run ----------------------------------------------------------------- */

/* Fails because no device can start a pass. With the memory reserves this
 * requires passes that never release their memory. */
static lh_status report_blocked(const lhi_dispatcher *p, lh_error *err)
{
    for (uint32_t i = 0; i < p->pipeline->n_devices; i++) {
        const lhi_dispatcher_device *d = &p->devices[i];
        for (uint32_t k = 0; k < 2 * d->n_chunks; k++) {
            uint32_t c = d->chunks[k / 2];
            lh_pass_kind kind = k % 2 ? LH_D : LH_F;
            if (lhi_dispatcher_get_start(p, d, c, kind) == LHI_NEVER)
                continue;
            int64_t need =
                d->memory +
                (kind == LH_F
                     ? p->pipeline->chunks[c].mem_f + p->chunks[c].reserve_f
                     : p->chunks[c].mem_d + p->chunks[c].reserve_d);
            return lhi_fail_memory_limit(p->pipeline, i, need, err);
        }
    }
    return lhi_fail(err, LH_EINFEASIBLE, "deadlock: no further pass can start");
}

/* Runs the devices' chosen passes, earliest first, until no pass is left or the
 * orders are useless; fails if passes remain but none can start. `choose`:
 * policy that selects a device's next pass, with its data `policy`. */
static lh_status dispatch_all(lhi_dispatcher *p,
                              lhi_dispatcher_policy_fn *choose,
                              const void *policy, lh_error *err)
{
    uint64_t left = 0;
    for (uint32_t i = 0; i < p->pipeline->n_devices; i++) {
        left += p->orders->devices[i].room;
        p->choices[i] = choose(p, i, policy);
    }
    build_tree(p);
    while (left > 0 && !p->is_useless) {
        uint32_t device = p->tree[1], readers[2];
        if (p->choices[device].start_ns == LHI_NEVER)
            return report_blocked(p, err);
        /* The B of a pair includes all parts of its W. */
        left -= !p->choices[device].has_pair ? 1
                : p->pipeline->joint         ? 2
                                             : 2 + p->n_parts;
        if (!run_choice(p, device, readers))
            return lhi_fail_nomem(err);
        p->choices[device] = choose(p, device, policy);
        update_tree(p, device);
        for (uint32_t i = 0; i < 2; i++) {
            if (readers[i] == LH_NONE || readers[i] == device)
                continue;
            p->choices[readers[i]] = choose(p, readers[i], policy);
            update_tree(p, readers[i]);
        }
    }
    return LH_OK;
}

/* Sets each device's idle time after which the makespan is at least
 * `useless_ns` (0: no limit). Links that several devices send on carry messages
 * in the gaps that the dispatcher reserves, which may be later than in the
 * simulation: then there is no limit. */
static lh_status set_idle_limits(lhi_dispatcher *p, int64_t useless_ns,
                                 lh_error *err)
{
    const lh_pipeline *pipe = p->pipeline;
    lhi_mark mark = lhi_arena_mark(p->mem);
    uint32_t *sender = LHI_NEW(p->mem, uint32_t, pipe->n_resources);
    int64_t *limits = LHI_NEW(p->mem, int64_t, pipe->n_devices);
    if (!sender || !limits)
        return lhi_fail_nomem(err);
    if (useless_ns == 0 || pipe->bidirectional ||
        !lhi_pipeline_has_private_links(pipe, sender))
        useless_ns = INT64_MAX;
    lhi_pipeline_compute_idle_limits(pipe, useless_ns, limits);
    for (uint32_t d = 0; d < pipe->n_devices; d++)
        p->devices[d].idle_left_ns = limits[d];
    lhi_arena_rewind(p->mem, mark);
    return LH_OK;
}

lh_status lhi_dispatcher_run(const lh_pipeline *pipeline, uint32_t n_parts,
                             uint32_t quarters,
                             lhi_dispatcher_policy_fn *choose,
                             const void *policy, lhi_orders *out, lh_error *err)
{
    lhi_dispatcher p = {.pipeline = pipeline,
                        .n_parts = n_parts,
                        .quarters = quarters,
                        .orders = out};
    p.mem = lhi_arena_make(0);
    if (!p.mem)
        return lhi_fail_nomem(err);
    lh_status status = init_planner(&p, err);
    if (status == LH_OK)
        status = lhi_orders_init(out, pipeline,
                                 pipeline->joint ? 2 : 2 + n_parts, err);
    if (status == LH_OK) {
        status = set_idle_limits(&p, out->useless_ns, err);
        if (status == LH_OK)
            status = dispatch_all(&p, choose, policy, err);
        out->given_up = p.is_useless;
        for (uint32_t i = 0; i < pipeline->n_devices; i++)
            if (p.devices[i].free_ns > out->planned_ns)
                out->planned_ns = p.devices[i].free_ns;
        if (status != LH_OK)
            lhi_orders_fini(out);
    }
    lhi_arena_free(p.mem);
    return status;
}
