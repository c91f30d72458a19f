/* SPDX-License-Identifier: Apache-2.0 */
/* Message protocol over frames. Small messages are eager: sent at once, and
 * stored if no receive is posted. Large messages use rendezvous: the sender
 * sends an offer (RTS), the receiver a grant (CTS), then the bytes go directly
 * into the receiver's memory. The grant is sent when the receive is posted, so
 * a receive posted early saves the round trip.
 *
 * A carrier transports frames between two ranks in order. The endpoint's lock
 * is held in every call in either direction. */
#ifndef LHI_RUNTIME_TRANSPORT_PROTOCOL_H
#define LHI_RUNTIME_TRANSPORT_PROTOCOL_H

#include "runtime/transport/matching.h"
#include "runtime/transport/transport_internal.h"
#include "runtime/transport/wire_format.h"

#include <pthread.h>

typedef struct lhi_proto lhi_proto;

/* Flags of a large receive: the parts of its message that have arrived. */
enum { LHI_OP_OFFERED = 1, LHI_OP_FILLING = 2, LHI_OP_FILLED = 4 };

/* Operations of a carrier. */
typedef struct lhi_carrier {
    /* Sends a frame with its payload. With an `op`, the payload is the
     * operation's memory and lhi_proto_payload_sent() follows; without, the
     * payload is copied. LH_EIO, LH_ENOMEM: not started. */
    lh_status (*frame)(lhi_proto *proto, uint32_t to, const lhi_frame *frame,
                       const void *payload, lhi_net_op *op, lh_error *err);
    /* Announces that the receive may be filled from now on (frame.id is its
     * number). */
    lh_status (*expect)(lhi_proto *proto, lhi_net_op *op, lh_error *err);
    /* Cancels an operation in progress; false: the carrier does not have it.
     * May release the lock temporarily. */
    bool (*cancel)(lhi_proto *proto, lhi_net_op *op);
} lhi_carrier;

/* State of a peer. */
typedef struct lhi_peer {
    lhi_queue offers;         /* lhi_net_op: sends without a grant */
    lhi_queue granted;        /* lhi_net_op: large receives in progress */
    struct lhi_grant *grants; /* without an offer yet, oldest first */
    uint32_t n_grants;
    bool has_shut_down; /* shut down in order */
} lhi_peer;

/* Base of an endpoint that exchanges frames. */
struct lhi_proto {
    lhi_net net; /* must be first */
    const lhi_carrier *carrier;
    pthread_mutex_t lock;
    lhi_match match;
    uint64_t next_id;
    uint32_t n_sends_pending; /* sends in progress; futex for close */
    lhi_peer *peers;
};

/* Initialises the protocol state: queues, locks and peers. */
lh_status lhi_proto_init(lhi_proto *proto, lh_error *err);
/* Frees the protocol state. */
void lhi_proto_fini(lhi_proto *proto);

/* Starts a send: small messages at once, large ones by rendezvous; for the
 * transport's lhi_net_ops. */
lh_status lhi_proto_send(lhi_net *net, lhi_net_op *op, lh_error *err);
/* Starts a receive; it is the function `receive` in the transport's
 * lhi_net_ops. */
lh_status lhi_proto_receive(lhi_net *net, lhi_net_op *op, lh_error *err);
/* Cancels a send or receive; it is the function `cancel` in the transport's
 * lhi_net_ops. */
void lhi_proto_cancel(lhi_net *net, lhi_net_op *op);

/* Handles a received frame (SMALL and DATA: its header); called by the carrier
 * (sockets or UCX). *into receives the payload's address, with the receive in
 * *op or the unexpected message in *kept; if both are NULL, the payload is
 * dropped. Errors end the run. */
lh_status lhi_proto_frame_received(lhi_proto *proto, uint32_t from,
                                   const lhi_frame *frame, void **into,
                                   lhi_net_op **op, lhi_unexpected **kept,
                                   lh_error *err);
/* Completes the receive, or queues the unexpected message, whose payload is
 * complete; called by the carrier (sockets or UCX). */
lh_status lhi_proto_payload_received(lhi_proto *proto, lhi_net_op *op,
                                     lhi_unexpected *kept, lh_error *err);
/* Completes a send whose bytes have been sent or, with an error `status`,
 * cannot be; called by the carrier (sockets or UCX). */
void lhi_proto_payload_sent(lhi_proto *proto, lhi_net_op *op, lh_status status);

/* Waits until all sends are complete or the run has failed. Afterwards the
 * protocol uses no memory of the caller's operations. */
void lhi_proto_drain(lhi_proto *proto);

#endif
