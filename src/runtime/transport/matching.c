/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/transport/matching.h"

#include <stdlib.h>

/* Returns the hash list of a peer and tag, 0 to LHI_MATCH_LISTS - 1. */
static size_t get_list_index(uint32_t peer, uint64_t tag)
{
    uint64_t mixed =
        (tag ^ ((uint64_t)peer << 48)) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 56);
}

void lhi_match_post(lhi_match *match, lhi_net_op *op)
{
    lhi_queue *q = &match->posted[get_list_index(op->peer, op->tag)];
    op->next = NULL;
    if (q->first)
        ((lhi_net_op *)q->last)->next = op;
    else
        q->first = op;
    q->last = op;
}

/* Removes operation `op` from a queue; `before`: the operation before it, NULL:
 * it is the first. */
static void unlink_op(lhi_queue *q, lhi_net_op *before, lhi_net_op *op)
{
    if (before)
        before->next = op->next;
    else
        q->first = op->next;
    if (q->last == op)
        q->last = before;
    op->next = NULL;
}

lhi_net_op *lhi_match_take_posted(lhi_match *match, uint32_t from, uint64_t tag)
{
    lhi_queue *q = &match->posted[get_list_index(from, tag)];
    lhi_net_op *before = NULL;
    for (lhi_net_op *op = q->first; op; before = op, op = op->next) {
        if (op->peer == from && op->tag == tag) {
            unlink_op(q, before, op);
            return op;
        }
    }
    return NULL;
}

bool lhi_match_cancel(lhi_match *match, const lhi_net_op *wanted)
{
    lhi_queue *q = &match->posted[get_list_index(wanted->peer, wanted->tag)];
    lhi_net_op *before = NULL;
    for (lhi_net_op *op = q->first; op; before = op, op = op->next) {
        if (op == wanted) {
            unlink_op(q, before, op);
            return true;
        }
    }
    return false;
}

lhi_net_op *lhi_match_take_from(lhi_match *match, uint32_t from)
{
    for (size_t i = 0; i < LHI_MATCH_LISTS; i++) {
        lhi_queue *q = &match->posted[i];
        lhi_net_op *before = NULL;
        for (lhi_net_op *op = q->first; op; before = op, op = op->next) {
            if (op->peer == from) {
                unlink_op(q, before, op);
                return op;
            }
        }
    }
    return NULL;
}

lhi_unexpected *lhi_unexpected_make(size_t data_bytes)
{
    lhi_unexpected *kept = malloc(sizeof *kept + data_bytes);
    if (kept)
        *kept = (lhi_unexpected){.link = LHI_NET_NO_LINK};
    return kept;
}

/* Returns the bytes that an unexpected message counts towards the memory
 * limit; if its data are still in the sender's memory, only its record. */
static size_t get_stored_bytes(const lhi_unexpected *kept)
{
    return sizeof *kept + (kept->send || kept->offer ? 0 : kept->size);
}

bool lhi_match_add_unexpected(lhi_match *match, lhi_unexpected *kept)
{
    size_t bytes = get_stored_bytes(kept);
    if (bytes > LHI_NET_UNEXPECTED_BYTES - match->kept_bytes)
        return false;
    match->kept_bytes += bytes;
    lhi_queue *q = &match->unexpected[get_list_index(kept->from, kept->tag)];
    kept->next = NULL;
    if (q->first)
        ((lhi_unexpected *)q->last)->next = kept;
    else
        q->first = kept;
    q->last = kept;
    return true;
}

/* Removes an unexpected message from its queue and returns it; `before`
 * precedes it (NULL: it is first). */
static lhi_unexpected *unlink_unexpected(lhi_match *match, lhi_queue *q,
                                         lhi_unexpected *before,
                                         lhi_unexpected *kept)
{
    if (before)
        before->next = kept->next;
    else
        q->first = kept->next;
    if (q->last == kept)
        q->last = before;
    match->kept_bytes -= get_stored_bytes(kept);
    return kept;
}

lhi_unexpected *lhi_match_take_unexpected(lhi_match *match, uint32_t from,
                                          uint64_t tag)
{
    lhi_queue *q = &match->unexpected[get_list_index(from, tag)];
    lhi_unexpected *before = NULL;
    for (lhi_unexpected *k = q->first; k; before = k, k = k->next)
        if (k->from == from && k->tag == tag)
            return unlink_unexpected(match, q, before, k);
    return NULL;
}

lhi_unexpected *lhi_match_take_any(lhi_match *match)
{
    for (size_t i = 0; i < LHI_MATCH_LISTS; i++)
        if (match->unexpected[i].first)
            return unlink_unexpected(match, &match->unexpected[i], NULL,
                                     match->unexpected[i].first);
    return NULL;
}

/* Removes and returns a peer's unexpected message in one list: that of the
 * operation `send`, or any whose bytes are still the sender's (NULL). NULL:
 * none. */
static lhi_unexpected *take_send(lhi_match *match, lhi_queue *q,
                                 const lhi_net_op *send, uint32_t from)
{
    lhi_unexpected *before = NULL;
    for (lhi_unexpected *k = q->first; k; before = k, k = k->next)
        if (k->from == from && (send ? k->send == send : k->send != NULL))
            return unlink_unexpected(match, q, before, k);
    return NULL;
}

lhi_unexpected *lhi_match_take_send(lhi_match *match, const lhi_net_op *send,
                                    uint32_t from)
{
    if (send)
        return take_send(match,
                         &match->unexpected[get_list_index(from, send->tag)],
                         send, from);
    lhi_unexpected *found = NULL;
    for (size_t i = 0; i < LHI_MATCH_LISTS && !found; i++)
        found = take_send(match, &match->unexpected[i], NULL, from);
    return found;
}
