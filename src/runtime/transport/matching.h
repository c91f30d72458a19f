/* SPDX-License-Identifier: Apache-2.0 */
/* Message matching by peer and tag, oldest first: posted receives, and
 * unexpected messages. The endpoint's lock protects it. */
#ifndef LHI_RUNTIME_TRANSPORT_MATCHING_H
#define LHI_RUNTIME_TRANSPORT_MATCHING_H

#include "runtime/transport/transport.h"

/* An unexpected message: it arrived before its receive. */
typedef struct lhi_unexpected {
    struct lhi_unexpected *next;
    uint32_t from, link, slot;
    uint64_t tag;
    size_t size;
    int64_t entered_ns, received_ns;
    lhi_net_op *send; /* bytes are at the sender's; else in `data` */
    bool offer;       /* large: the sender still has the bytes */
    unsigned char data[];
} lhi_unexpected;

/* A singly linked queue. */
typedef struct lhi_queue {
    void *first, *last;
} lhi_queue;

/* Number of hash lists. */
enum { LHI_MATCH_LISTS = 256 };

/* Hash lists of receives and messages. */
typedef struct lhi_match {
    lhi_queue posted[LHI_MATCH_LISTS];     /* lhi_net_op */
    lhi_queue unexpected[LHI_MATCH_LISTS]; /* lhi_unexpected */
    size_t kept_bytes;
} lhi_match;

/* Queues a posted receive, so that a message that arrives later finds it. */
void lhi_match_post(lhi_match *match, lhi_net_op *op);
/* Removes and returns the oldest posted receive for a message from `from` with
 * `tag`; NULL: none. */
lhi_net_op *lhi_match_take_posted(lhi_match *match, uint32_t from,
                                  uint64_t tag);
/* Removes a posted receive; false: not found. */
bool lhi_match_cancel(lhi_match *match, const lhi_net_op *op);
/* Removes and returns any posted receive for a message from rank `from`, with
 * any tag; NULL: none. */
lhi_net_op *lhi_match_take_from(lhi_match *match, uint32_t from);

/* Allocates a record for an unexpected message (one without a posted receive)
 * with `data_bytes` of data; NULL: out of memory. */
lhi_unexpected *lhi_unexpected_make(size_t data_bytes);
/* Queues an unexpected message, for which no receive is posted; false: the
 * limit LHI_NET_UNEXPECTED_BYTES is reached. */
bool lhi_match_add_unexpected(lhi_match *match, lhi_unexpected *kept);
/* Removes and returns the oldest unexpected message from `from` with `tag`;
 * NULL: none. */
lhi_unexpected *lhi_match_take_unexpected(lhi_match *match, uint32_t from,
                                          uint64_t tag);
/* Removes and returns any unexpected message (one without a posted receive);
 * NULL: none is left. */
lhi_unexpected *lhi_match_take_any(lhi_match *match);
/* Removes and returns the message from `from` that belongs to the send
 * operation `send` (NULL: any message whose bytes are still the sender's);
 * NULL: none. */
lhi_unexpected *lhi_match_take_send(lhi_match *match, const lhi_net_op *send,
                                    uint32_t from);

#endif
