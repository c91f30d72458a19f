/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier's model of links that messages and data-parallel pieces share by
 * rate. It advances all transfers together, from one end of a transfer to the
 * next, and derives from their order which of them move, and at which rate. */
#ifndef LHI_SCHEDULE_VERIFIER_RATE_SHARING_H
#define LHI_SCHEDULE_VERIFIER_RATE_SHARING_H

#include "schedule/verifier/data_streams.h"

/* A message or piece that has entered its links' queues and is not yet sent. */
typedef struct lhi_verify_transfer {
    bool is_piece;
    uint32_t owner; /* a message's node, or a piece's device */
    uint32_t n_links;
    const uint32_t *links; /* resources, borrowed */
    int64_t work;          /* remaining, in half ns at full rate */
    bool moves;            /* first in the queues of all its links */
    bool is_halved;        /* its rate, by a transfer of the other kind */
    struct lhi_verify_transfer *next;
} lhi_verify_transfer;

/* All transfers, in order of entry, at one time. */
typedef struct lhi_verify_sharing {
    lhi_verifier *judge;
    lhi_verify_transfer *first, *unused;
    int64_t now_ns;
    /* [resource], for messages and for pieces: a transfer waits or moves there;
     * one moves there. */
    bool *is_taken[2], *is_moving[2];
} lhi_verify_sharing;

/* Initialises the model without transfers. */
lh_status lhi_verify_make_sharing(lhi_verifier *judge, lhi_verify_sharing *out,
                                  lh_error *err);
/* Adds the message of the pass `node`, which enters link number `link` at
 * now_ns. Sets judge->no_memory if memory runs out. */
void lhi_verify_add_message(lhi_verify_sharing *sharing, uint32_t node,
                            uint32_t link, int64_t now_ns);
/* Adds the next piece (collective slice) of the device's stream, which enters
 * its links at now_ns. Sets judge->no_memory if memory runs out. */
void lhi_verify_add_piece(lhi_verify_sharing *sharing,
                          lhi_verify_stream *stream, uint32_t device,
                          int64_t now_ns);
/* Removes the next transfer to end, if it ends at until_ns or before, and
 * copies it to *out. Returns false if there is none. The time of its end is
 * then sharing->now_ns. */
bool lhi_verify_end_transfer(lhi_verify_sharing *sharing, int64_t until_ns,
                             lhi_verify_transfer *out);

#endif
