/* SPDX-License-Identifier: Apache-2.0 */
/* Which message is whose: receives that wait for a message, and messages that
 * wait for a receive, by peer and tag, the oldest first. The endpoint's lock
 * covers it. */
#ifndef LHI_MATCH_H
#define LHI_MATCH_H

#include "net/net.h"

/* A message that came before its receive. */
typedef struct lhi_kept {
    struct lhi_kept *next;
    uint32_t from, link, slot;
    uint64_t tag;
    size_t size;
    int64_t entered_ns, there_ns;
    lhi_net_op *send; /* its bytes are still there; else in `data` */
    bool offer;       /* its bytes are the sender's still */
    unsigned char data[];
} lhi_kept;

typedef struct lhi_queue {
    void *first, *last;
} lhi_queue;

enum { LHI_MATCH_LISTS = 256 };

typedef struct lhi_match {
    lhi_queue posted[LHI_MATCH_LISTS]; /* of lhi_net_op */
    lhi_queue kept[LHI_MATCH_LISTS];   /* of lhi_kept */
    size_t kept_bytes;
} lhi_match;

void lhi_match_post(lhi_match *match, lhi_net_op *op);
lhi_net_op *lhi_match_take_posted(lhi_match *match, uint32_t from,
                                  uint64_t tag);
/* Removes this one: false if it is not there. */
bool lhi_match_withdraw(lhi_match *match, const lhi_net_op *op);
/* Takes out one that was posted for a message from `from`; NULL: none. */
lhi_net_op *lhi_match_take_from(lhi_match *match, uint32_t from);

/* A message to keep, with room for `data_bytes`; NULL: no memory. */
lhi_kept *lhi_kept_make(size_t data_bytes);
/* False: LHI_NET_KEPT_BYTES are reached. */
bool lhi_match_keep(lhi_match *match, lhi_kept *kept);
lhi_kept *lhi_match_take_kept(lhi_match *match, uint32_t from, uint64_t tag);
lhi_kept *lhi_match_take_any(lhi_match *match); /* NULL: none is left */
/* Takes out the message from `from` that `send` is the sender's end of (NULL:
 * any whose bytes are still the sender's); NULL: none. */
lhi_kept *lhi_match_take_send(lhi_match *match, const lhi_net_op *send,
                              uint32_t from);

#endif
