/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/simulator/fair_links.h"

lh_status lhi_fair_links_init(const lh_pipeline *p, uint64_t n_messages,
                              lhi_arena *mem, lhi_fair_links *out,
                              lh_error *err)
{
    uint32_t n = p->n_resources;
    *out = (lhi_fair_links){0};
    if (p->dp_priority != LH_DP_FAIR)
        return LH_OK;
    lhi_fair_links f = {
        .p = p,
        .is_shared = LHI_NEW(mem, bool, n),
        .transfers = LHI_NEW(mem, lhi_fair_transfer, (size_t)n + p->n_devices),
        .queues = LHI_NEW(mem, lhi_fair_queue, n),
        .next_message = LHI_NEW(mem, uint32_t, n_messages),
        .message_ns = LHI_NEW(mem, int64_t, n_messages),
        .senders = LHI_NEW(mem, uint32_t, n),
        .is_claimed = LHI_NEW(mem, bool, n),
        .waiting = LHI_NEW(mem, uint32_t, p->n_devices),
        .piece_ns = LHI_NEW(mem, int64_t, p->n_devices),
    };
    if (!f.is_shared || !f.transfers || !f.queues || !f.next_message ||
        !f.message_ns || !f.senders || !f.is_claimed || !f.waiting ||
        !f.piece_ns)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->shared_at[p->n_devices]; i++)
        f.is_shared[p->shared[i]] = true;
    for (uint32_t r = 0; r < n; r++) {
        f.queues[r] = (lhi_fair_queue){LH_NONE, LH_NONE, LH_NONE};
        f.senders[r] = LH_NONE;
    }
    *out = f;
    return LH_OK;
}

void lhi_fair_links_fini(lhi_fair_links *f)
{
    lhi_heap_fini(&f->ends);
}

/* Gives transfer number i its rate from time `now` on, and adds its expected
 * end: the time, rounded up, at which its remaining work is done. */
static void set_rate(lhi_fair_links *f, uint32_t i, bool is_shared, int64_t now)
{
    lhi_fair_transfer *t = &f->transfers[i];
    t->left -= (now - t->since_ns) * (t->is_shared ? 1 : 2);
    t->since_ns = now;
    t->is_shared = is_shared;
    int64_t rest_ns = is_shared ? t->left : (t->left + 1) / 2;
    lhi_event end = {.time_ns = now + (rest_ns > 0 ? rest_ns : 0),
                     .rank = i,
                     .seq = ++t->n_rates};
    if (!lhi_heap_push(&f->ends, end))
        f->no_memory = true;
}

/* Starts transfer number i, which takes transfer_ns at full rate. */
static void start_transfer(lhi_fair_links *f, uint32_t i, int64_t transfer_ns,
                           bool is_shared, int64_t now)
{
    lhi_fair_transfer *t = &f->transfers[i];
    t->is_active = true;
    t->depart_ns = t->since_ns = now;
    t->left = 2 * transfer_ns;
    set_rate(f, i, is_shared, now);
}

/* Checks whether one of the device's shared links transfers a message. */
static bool meets_message(const lhi_fair_links *f, uint32_t device)
{
    const lh_pipeline *p = f->p;
    for (uint32_t i = p->shared_at[device]; i < p->shared_at[device + 1]; i++)
        if (f->transfers[p->shared[i]].is_active)
            return true;
    return false;
}

/* Updates the rate of the piece on link resource r, if there is one, after the
 * link's message started or ended at time `now`. */
static void update_piece(lhi_fair_links *f, uint32_t r, int64_t now)
{
    uint32_t d = f->senders[r];
    if (d == LH_NONE)
        return;
    bool is_shared = meets_message(f, d);
    if (is_shared != f->transfers[f->p->n_resources + d].is_shared)
        set_rate(f, f->p->n_resources + d, is_shared, now);
}

/* Starts the first waiting message of link resource r at time `now`, if there
 * is one and no message is in transfer. */
static void start_message(lhi_fair_links *f, uint32_t r, int64_t now)
{
    lhi_fair_queue *q = &f->queues[r];
    if (q->head == LH_NONE || f->transfers[r].is_active)
        return;
    q->current = q->head;
    q->head = f->next_message[q->head];
    start_transfer(f, r, f->message_ns[q->current], f->senders[r] != LH_NONE,
                   now);
}

void lhi_fair_links_add_message(lhi_fair_links *f, uint32_t resource,
                                uint32_t message, int64_t transfer_ns,
                                int64_t now)
{
    lhi_fair_queue *q = &f->queues[resource];
    f->message_ns[message] = transfer_ns;
    f->next_message[message] = LH_NONE;
    if (q->head == LH_NONE)
        q->head = message;
    else
        f->next_message[q->tail] = message;
    q->tail = message;
    start_message(f, resource, now);
    update_piece(f, resource, now);
}

/* Records `device` (LH_NONE: none) as the sender of a piece on the links of
 * device d, and updates the rates of their messages at time `now`. */
static void set_sender(lhi_fair_links *f, uint32_t d, uint32_t device,
                       int64_t now)
{
    const lh_pipeline *p = f->p;
    for (uint32_t i = p->shared_at[d]; i < p->shared_at[d + 1]; i++) {
        uint32_t r = p->shared[i];
        f->senders[r] = device;
        if (f->transfers[r].is_active)
            set_rate(f, r, device != LH_NONE, now);
    }
}

/* Starts, at time `now` and in order of entry, all waiting pieces whose links
 * neither transfer a piece nor are wanted by a piece that still waits. */
static void start_pieces(lhi_fair_links *f, int64_t now)
{
    const lh_pipeline *p = f->p;
    uint32_t n_left = 0;
    for (uint32_t k = 0; k < f->n_waiting; k++) {
        uint32_t d = f->waiting[k];
        bool can_start = true;
        for (uint32_t i = p->shared_at[d]; i < p->shared_at[d + 1]; i++)
            can_start = can_start && f->senders[p->shared[i]] == LH_NONE &&
                        !f->is_claimed[p->shared[i]];
        if (can_start) {
            start_transfer(f, p->n_resources + d, f->piece_ns[d],
                           meets_message(f, d), now);
            set_sender(f, d, d, now);
            continue;
        }
        f->waiting[n_left++] = d;
        for (uint32_t i = p->shared_at[d]; i < p->shared_at[d + 1]; i++)
            f->is_claimed[p->shared[i]] = true;
    }
    f->n_waiting = n_left;
    for (uint32_t k = 0; k < n_left; k++) {
        uint32_t d = f->waiting[k];
        for (uint32_t i = p->shared_at[d]; i < p->shared_at[d + 1]; i++)
            f->is_claimed[p->shared[i]] = false;
    }
}

void lhi_fair_links_add_piece(lhi_fair_links *f, uint32_t device,
                              int64_t transfer_ns, int64_t now)
{
    f->piece_ns[device] = transfer_ns;
    f->waiting[f->n_waiting++] = device;
    start_pieces(f, now);
}

bool lhi_fair_links_take_end(lhi_fair_links *f, int64_t until_ns,
                             lhi_fair_end *out)
{
    lhi_event event;
    while (f->ends.count > 0 && f->ends.items[0].time_ns <= until_ns) {
        lhi_heap_pop(&f->ends, &event);
        uint32_t i = (uint32_t)event.rank, n = f->p->n_resources;
        lhi_fair_transfer *t = &f->transfers[i];
        if (!t->is_active || t->n_rates != event.seq)
            continue;
        t->is_active = false;
        *out = (lhi_fair_end){i >= n, i < n ? f->queues[i].current : i - n,
                              t->depart_ns, event.time_ns};
        if (i < n) {
            start_message(f, i, event.time_ns);
            update_piece(f, i, event.time_ns);
        } else {
            set_sender(f, i - n, LH_NONE, event.time_ns);
            start_pieces(f, event.time_ns);
        }
        return true;
    }
    return false;
}
