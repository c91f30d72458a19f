/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/protocol.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/futex.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Maximum grants that a peer may send ahead of the matching offers. */
enum { MAX_GRANTS = 1 << 16 };

/* A grant that arrived before its offer. */
typedef struct lhi_grant {
    struct lhi_grant *next;
    uint64_t tag, size, id;
} grant;

lh_status lhi_proto_init(lhi_proto *p, lh_error *err)
{
    p->peers = calloc(p->net.n_ranks, sizeof *p->peers);
    if (!p->peers)
        return lhi_fail_nomem(err);
    /* Cannot fail with default attributes on Linux. */
    pthread_mutex_init(&p->lock, NULL);
    p->next_id = 1;
    return LH_OK;
}

void lhi_proto_fini(lhi_proto *p)
{
    for (uint32_t i = 0; p->peers && i < p->net.n_ranks; i++) {
        grant *g;
        while ((g = p->peers[i].grants)) {
            p->peers[i].grants = g->next;
            free(g);
        }
    }
    lhi_unexpected *kept;
    while ((kept = lhi_match_take_any(&p->match)))
        free(kept);
    free(p->peers);
    pthread_mutex_destroy(&p->lock);
}

/* Appends a send or receive to the end of a queue of operations. */
static void append_op(lhi_queue *q, lhi_net_op *op)
{
    op->next = NULL;
    if (q->first)
        ((lhi_net_op *)q->last)->next = op;
    else
        q->first = op;
    q->last = op;
}

/* Selection of an operation: a given one, the first with a tag, or the first.
 */
typedef enum by { BY_ITSELF, BY_TAG, ANY } by;
/* Removes and returns the first operation in the queue that is selected by
 * `what`: `wanted` itself (BY_ITSELF), one with tag `value` (BY_TAG), or any
 * (ANY); NULL: none. */
static lhi_net_op *take_op(lhi_queue *q, by what, const lhi_net_op *wanted,
                           uint64_t value)
{
    lhi_net_op *before = NULL;
    for (lhi_net_op *op = q->first; op; before = op, op = op->next) {
        bool is = what == ANY || (what == BY_ITSELF && op == wanted) ||
                  (what == BY_TAG && op->tag == value);
        if (!is)
            continue;
        if (before)
            before->next = op->next;
        else
            q->first = op->next;
        if (q->last == op)
            q->last = before;
        return op;
    }
    return NULL;
}

void lhi_proto_payload_sent(lhi_proto *p, lhi_net_op *op, lh_status status)
{
    p->n_sends_pending--;
    lhi_op_done(op, status);
    if (p->n_sends_pending == 0)
        lhi_futex_wake(&p->n_sends_pending, false);
}

/* Fails because a message from rank `from` and its receive differ in size; the
 * message names the tag and both sizes. */
static lh_status fail_size_mismatch(uint32_t from, uint64_t tag,
                                    uint64_t message_bytes,
                                    uint64_t receive_bytes, lh_error *err)
{
    return lhi_fail(err, LH_EIO,
                    "the message with tag %" PRIu64 " from rank %u has %" PRIu64
                    " bytes, its receive %" PRIu64,
                    tag, from, message_bytes, receive_bytes);
}

/* ---- sending ---- */

/* Removes and returns the first grant (the peer's permission to send a large
 * message) with the tag; NULL: none. The caller releases it. */
static grant *take_grant(lhi_peer *peer, uint64_t tag)
{
    for (grant **at = &peer->grants; *at; at = &(*at)->next) {
        grant *g = *at;
        if (g->tag == tag) {
            *at = g->next;
            peer->n_grants--;
            return g;
        }
    }
    return NULL;
}

/* Sends the bytes of large message `op`, which the receiver has granted under
 * the number `id` for `size` bytes. */
static lh_status send_data(lhi_proto *p, lhi_net_op *op, uint64_t id,
                           uint64_t size, lh_error *err)
{
    if (op->size != size)
        return fail_size_mismatch(p->net.rank, op->tag, op->size, size, err);
    lhi_frame f = {.kind = LHI_FRAME_DATA, .size = size, .id = id};
    return p->carrier->frame(p, op->peer, &f, op->data, op, err);
}

/* Offers a large message to its receiver (OFFER frame), or sends its bytes if
 * the receiver has already granted it. */
static lh_status send_large(lhi_proto *p, lhi_net_op *op, lh_error *err)
{
    lhi_peer *peer = &p->peers[op->peer];
    lhi_frame f = {.kind = LHI_FRAME_OFFER,
                   .tag = op->tag,
                   .size = op->size,
                   .entered_ns = op->entered_ns,
                   .link = op->link,
                   .slot = op->slot};
    LHI_TRY(p->carrier->frame(p, op->peer, &f, NULL, NULL, err));
    /* An existing grant is for this send: an earlier send with this tag would
     * have taken it. */
    grant *g = take_grant(peer, op->tag);
    if (!g) {
        append_op(&peer->offers, op);
        return LH_OK;
    }
    lh_status status = send_data(p, op, g->id, g->size, err);
    free(g);
    return status;
}

lh_status lhi_proto_send(lhi_net *net, lhi_net_op *op, lh_error *err)
{
    lhi_proto *p = (lhi_proto *)net;
    lh_error e = {0};
    /* The owner may free the operation as soon as it is done. */
    const lhi_peer *peer = &p->peers[op->peer];
    pthread_mutex_lock(&p->lock);
    lh_status status = LH_OK;
    p->n_sends_pending++;
    if (peer->has_shut_down) {
        status =
            lhi_fail(&e, LH_EIO, "rank %u has closed its endpoint", op->peer);
    } else if (op->size > LHI_NET_EAGER_BYTES) {
        status = send_large(p, op, &e);
    } else {
        lhi_frame f = {.kind = LHI_FRAME_SMALL,
                       .tag = op->tag,
                       .size = op->size,
                       .entered_ns = op->entered_ns,
                       .link = op->link,
                       .slot = op->slot};
        status = p->carrier->frame(p, op->peer, &f, op->data, op, &e);
    }
    bool left = peer->has_shut_down;
    if (status != LH_OK)
        p->n_sends_pending--;
    pthread_mutex_unlock(&p->lock);
    if (status == LH_OK)
        return LH_OK;
    if (!left)
        lhi_net_abort(net, e.text);
    return lhi_fail(err, status, "%s", e.text);
}

/* ---- receiving ---- */

/* Copies the message's entry time, emulated link and slot on that link to the
 * receive, which determine when it arrives. */
static void set_attributes(lhi_net_op *op, int64_t entered_ns, uint32_t link,
                           uint32_t slot)
{
    op->entered_ns = entered_ns;
    op->link = link;
    op->slot = slot;
}

/* Completes receive `op`, whose bytes are in place; without an emulated link,
 * it has arrived now. */
static void finish_receive(lhi_net_op *op)
{
    op->arrived_ns = op->link == LHI_NET_NO_LINK ? lhi_now_ns() : 0;
    lhi_op_done(op, LH_OK);
}

/* Returns the oldest large receive with the tag from this peer that has sent
 * its grant but has not got the sender's offer yet; NULL: none. */
static lhi_net_op *find_unoffered(const lhi_peer *peer, uint64_t tag)
{
    for (lhi_net_op *op = peer->granted.first; op; op = op->next)
        if (op->tag == tag && !(op->flags & LHI_OP_OFFERED))
            return op;
    return NULL;
}

/* Completes a large receive once both the sender's offer and the bytes have
 * arrived. */
static void finish_large(lhi_proto *p, lhi_net_op *op)
{
    if ((op->flags & LHI_OP_OFFERED) && (op->flags & LHI_OP_FILLED)) {
        take_op(&p->peers[op->peer].granted, BY_ITSELF, op, 0);
        finish_receive(op);
    }
}

/* Posts a large receive and sends its grant, the permission to send;
 * `offered`: the sender has already offered the message. */
static lh_status receive_large(lhi_proto *p, lhi_net_op *op, bool offered,
                               lh_error *err)
{
    op->id = p->next_id++;
    op->flags = offered ? LHI_OP_OFFERED : 0;
    lhi_frame f = {.kind = LHI_FRAME_GRANT,
                   .tag = op->tag,
                   .size = op->size,
                   .id = op->id};
    lhi_queue *granted = &p->peers[op->peer].granted;
    append_op(granted, op);
    lh_status status = p->carrier->expect(p, op, err);
    if (status == LH_OK)
        status = p->carrier->frame(p, op->peer, &f, NULL, NULL, err);
    if (status != LH_OK)
        take_op(granted, BY_ITSELF, op, 0);
    return status;
}

/* Copies a small unexpected message (one that arrived before its receive) to
 * the receive `op`, and completes it. */
static void copy_unexpected(const lhi_unexpected *kept, lhi_net_op *op)
{
    set_attributes(op, kept->entered_ns, kept->link, kept->slot);
    if (op->size)
        memcpy(op->data, kept->data, op->size);
    finish_receive(op);
}

/* Starts a receive with the lock held: takes an unexpected message, posts the
 * receive, or grants a large one. LH_EIO: the peer has shut down, or the sizes
 * differ. */
static lh_status receive(lhi_proto *p, lhi_net_op *op, lh_error *err)
{
    lhi_unexpected *kept =
        lhi_match_take_unexpected(&p->match, op->peer, op->tag);
    if (!kept && p->peers[op->peer].has_shut_down)
        return lhi_fail(err, LH_EIO, "rank %u has closed its endpoint",
                        op->peer);
    lh_status status = LH_OK;
    if (kept && kept->size != op->size)
        status =
            fail_size_mismatch(op->peer, op->tag, kept->size, op->size, err);
    else if (kept)
        set_attributes(op, kept->entered_ns, kept->link, kept->slot);
    if (status == LH_OK && op->size > LHI_NET_EAGER_BYTES) {
        status = receive_large(p, op, kept != NULL, err);
    } else if (status == LH_OK && kept) {
        copy_unexpected(kept, op);
    } else if (status == LH_OK) {
        lhi_match_post(&p->match, op);
    }
    free(kept);
    return status;
}

lh_status lhi_proto_receive(lhi_net *net, lhi_net_op *op, lh_error *err)
{
    lhi_proto *p = (lhi_proto *)net;
    lh_error e = {0};
    const lhi_peer *peer = &p->peers[op->peer];
    pthread_mutex_lock(&p->lock);
    lh_status status = receive(p, op, &e);
    bool left = peer->has_shut_down;
    pthread_mutex_unlock(&p->lock);
    if (status == LH_OK)
        return LH_OK;
    if (!left)
        lhi_net_abort(net, e.text);
    return lhi_fail(err, status, "%s", e.text);
}

/* ---- incoming frames ---- */

/* Allocates a record for frame `f`'s message from rank `from`, for which no
 * receive is posted. */
static lhi_unexpected *alloc_unexpected(uint32_t from, const lhi_frame *f,
                                        lh_error *err)
{
    bool offer = f->kind == LHI_FRAME_OFFER;
    lhi_unexpected *kept = lhi_unexpected_make(offer ? 0 : (size_t)f->size);
    if (!kept) {
        lhi_fail_nomem(err);
        return NULL;
    }
    kept->from = from;
    kept->tag = f->tag;
    kept->size = (size_t)f->size;
    kept->offer = offer;
    kept->entered_ns = f->entered_ns;
    kept->link = f->link;
    kept->slot = f->slot;
    return kept;
}

/* Queues a message for which no receive is posted. */
static lh_status queue_unexpected(lhi_proto *p, lhi_unexpected *kept,
                                  lh_error *err)
{
    if (lhi_match_add_unexpected(&p->match, kept))
        return LH_OK;
    free(kept);
    return lhi_fail(
        err, LH_EIO,
        "rank %u buffers %d MiB of messages that it has not received",
        p->net.rank, LHI_NET_UNEXPECTED_BYTES >> 20);
}

/* Sets *out to the posted receive for a small message, which it removes; NULL:
 * none is posted. Fails if the sizes differ. */
static lh_status take_small(lhi_proto *p, uint32_t from, uint64_t tag,
                            uint64_t size, lhi_net_op **out, lh_error *err)
{
    const lhi_net_op *large = find_unoffered(&p->peers[from], tag);
    lhi_net_op *found = lhi_match_take_posted(&p->match, from, tag);
    if (found ? found->size != size : large != NULL) {
        lh_status status = fail_size_mismatch(
            from, tag, size, found ? found->size : large->size, err);
        if (found)
            lhi_match_post(&p->match, found);
        return status;
    }
    *out = found;
    return LH_OK;
}

/* Handles the header of a SMALL frame (a message sent without a grant): sets
 * *into, the payload's destination, to a posted receive's memory (*op) or to a
 * new unexpected message (*kept). */
static lh_status handle_small_frame(lhi_proto *p, uint32_t from,
                                    const lhi_frame *f, void **into,
                                    lhi_net_op **op, lhi_unexpected **kept,
                                    lh_error *err)
{
    lhi_net_op *found = NULL;
    LHI_TRY(take_small(p, from, f->tag, f->size, &found, err));
    if (found) {
        set_attributes(found, f->entered_ns, f->link, f->slot);
        *op = found;
        *into = found->data;
        return LH_OK;
    }
    *kept = alloc_unexpected(from, f, err);
    if (!*kept)
        return LH_ENOMEM;
    *into = (*kept)->data;
    return LH_OK;
}

/* Handles an OFFER frame (a sender has a large message): matches it with a
 * receive already granted, or queues it as unexpected. */
static lh_status handle_offer_frame(lhi_proto *p, uint32_t from,
                                    const lhi_frame *f, lh_error *err)
{
    lhi_net_op *op = find_unoffered(&p->peers[from], f->tag);
    if (op && op->size != f->size)
        return fail_size_mismatch(from, f->tag, f->size, op->size, err);
    if (op) {
        set_attributes(op, f->entered_ns, f->link, f->slot);
        op->flags |= LHI_OP_OFFERED;
        finish_large(p, op);
        return LH_OK;
    }
    lhi_net_op *small = lhi_match_take_posted(&p->match, from, f->tag);
    if (small) {
        lhi_match_post(&p->match, small);
        return fail_size_mismatch(from, f->tag, f->size, small->size, err);
    }
    lhi_unexpected *kept = alloc_unexpected(from, f, err);
    return kept ? queue_unexpected(p, kept, err) : LH_ENOMEM;
}

/* Handles a GRANT frame (a receiver permits a large message): sends the
 * message, or stores the grant until its send starts. */
static lh_status handle_grant_frame(lhi_proto *p, uint32_t from,
                                    const lhi_frame *f, lh_error *err)
{
    lhi_peer *peer = &p->peers[from];
    lhi_net_op *op = take_op(&peer->offers, BY_TAG, NULL, f->tag);
    if (op) {
        lh_status status = send_data(p, op, f->id, f->size, err);
        if (status != LH_OK) /* its owner will cancel it */
            append_op(&peer->offers, op);
        return status;
    }
    if (peer->n_grants == MAX_GRANTS)
        return lhi_fail(
            err, LH_EIO,
            "it posted more than %d receives for messages that are not sent",
            MAX_GRANTS);
    grant *g = malloc(sizeof *g);
    if (!g)
        return lhi_fail_nomem(err);
    *g = (grant){.tag = f->tag, .size = f->size, .id = f->id};
    grant **end = &peer->grants;
    while (*end)
        end = &(*end)->next;
    *end = g;
    peer->n_grants++;
    return LH_OK;
}

/* Handles the header of a DATA frame (a granted message's bytes): sets *into,
 * the payload's destination, to the memory of the granted receive *op. */
static lh_status handle_data_frame(lhi_proto *p, uint32_t from,
                                   const lhi_frame *f, void **into,
                                   lhi_net_op **op, lh_error *err)
{
    lhi_net_op *found = p->peers[from].granted.first;
    while (found && found->id != f->id)
        found = found->next;
    if (lhi_failure_text(p->net.failure))
        return LH_OK; /* possibly cancelled: dropped */
    if (!found || !(found->flags & LHI_OP_OFFERED) || found->size != f->size ||
        (found->flags & LHI_OP_FILLING))
        return lhi_fail(err, LH_EIO,
                        "rank %u sent %" PRIu64
                        " bytes that were not requested",
                        from, f->size);
    found->flags |= LHI_OP_FILLING;
    *op = found;
    *into = found->data;
    return LH_OK;
}

/* Handles a peer's BYE frame (orderly shutdown): operations that still wait for
 * a message from that peer fail. */
static void handle_bye_frame(lhi_proto *p, uint32_t from)
{
    lhi_peer *peer = &p->peers[from];
    lhi_net_op *op;
    peer->has_shut_down = true;
    while ((op = lhi_match_take_from(&p->match, from)))
        lhi_op_done(op, LH_EIO);
    while ((op = take_op(&peer->granted, ANY, NULL, 0))) {
        p->carrier->cancel(p, op);
        lhi_op_done(op, LH_EIO);
    }
    while ((op = take_op(&peer->offers, ANY, NULL, 0)))
        lhi_proto_payload_sent(p, op, LH_EIO);
}

/* Checks that the emulated link and slot named in a frame from rank `from`
 * exist. LH_EIO: they do not. */
static lh_status check_link(const lhi_proto *p, uint32_t from,
                            const lhi_frame *f, lh_error *err)
{
    bool message = f->kind == LHI_FRAME_SMALL || f->kind == LHI_FRAME_OFFER;
    if (!message || f->link == LHI_NET_NO_LINK ||
        lhi_links_is_valid(p->net.links, f->link, f->slot))
        return LH_OK;
    return lhi_fail(
        err, LH_EIO,
        "rank %u sent a message over emulated link %u, which does not exist",
        from, f->link);
}

lh_status lhi_proto_frame_received(lhi_proto *p, uint32_t from,
                                   const lhi_frame *f, void **into,
                                   lhi_net_op **op, lhi_unexpected **kept,
                                   lh_error *err)
{
    *into = NULL;
    *op = NULL;
    *kept = NULL;
    LHI_TRY(check_link(p, from, f, err));
    if (p->peers[from].has_shut_down)
        return lhi_fail(err, LH_EIO, "rank %u sent a frame after its shutdown",
                        from);
    switch (f->kind) {
    case LHI_FRAME_SMALL:
        return handle_small_frame(p, from, f, into, op, kept, err);
    case LHI_FRAME_OFFER:
        return handle_offer_frame(p, from, f, err);
    case LHI_FRAME_GRANT:
        return handle_grant_frame(p, from, f, err);
    case LHI_FRAME_DATA:
        return handle_data_frame(p, from, f, into, op, err);
    case LHI_FRAME_BYE:
        handle_bye_frame(p, from);
        return LH_OK;
    default: /* handled by the carrier */
        return LH_OK;
    }
}

/* Hands a complete unexpected message to a receive that was posted while it
 * arrived, or queues it. */
static lh_status finish_unexpected(lhi_proto *p, lhi_unexpected *kept,
                                   lh_error *err)
{
    lhi_net_op *op = NULL;
    lh_status status =
        take_small(p, kept->from, kept->tag, kept->size, &op, err);
    if (status == LH_OK && !op)
        return queue_unexpected(p, kept, err);
    if (status == LH_OK)
        copy_unexpected(kept, op);
    free(kept);
    return status;
}

lh_status lhi_proto_payload_received(lhi_proto *p, lhi_net_op *op,
                                     lhi_unexpected *kept, lh_error *err)
{
    if (kept)
        return finish_unexpected(p, kept, err);
    if (op && op->size > LHI_NET_EAGER_BYTES) {
        op->flags |= LHI_OP_FILLED;
        finish_large(p, op);
    } else if (op) {
        finish_receive(op);
    }
    return LH_OK;
}

/* ---- ending ---- */

/* Removes a send or receive from every queue of the protocol; false: it is in
 * none. */
static bool remove_op(lhi_proto *p, lhi_net_op *op)
{
    lhi_peer *peer = &p->peers[op->peer];
    if (!op->receives) {
        if (!take_op(&peer->offers, BY_ITSELF, op, 0))
            return false;
        p->n_sends_pending--;
        return true;
    }
    if (op->size <= LHI_NET_EAGER_BYTES)
        return lhi_match_cancel(&p->match, op);
    return take_op(&peer->granted, BY_ITSELF, op, 0) != NULL;
}

void lhi_proto_cancel(lhi_net *net, lhi_net_op *op)
{
    lhi_proto *p = (lhi_proto *)net;
    pthread_mutex_lock(&p->lock);
    if (lhi_op_state(op) != LHI_OP_DONE) {
        bool carried = p->carrier->cancel(p, op);
        remove_op(p, op);
        if (carried && !op->receives)
            p->n_sends_pending--;
    }
    pthread_mutex_unlock(&p->lock);
}

void lhi_proto_drain(lhi_proto *p)
{
    pthread_mutex_lock(&p->lock);
    uint32_t n_out;
    while ((n_out = p->n_sends_pending) > 0 &&
           !lhi_failure_text(p->net.failure)) {
        pthread_mutex_unlock(&p->lock);
        lhi_futex_wait(&p->n_sends_pending, n_out,
                       lhi_now_ns() + LHI_NET_POLL_NS, false);
        pthread_mutex_lock(&p->lock);
    }
    for (uint32_t i = 0; i < p->net.n_ranks; i++) {
        p->peers[i].granted = (lhi_queue){0};
        p->peers[i].offers = (lhi_queue){0};
    }
    memset(p->match.posted, 0, sizeof p->match.posted);
    pthread_mutex_unlock(&p->lock);
}
