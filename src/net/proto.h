/* SPDX-License-Identifier: Apache-2.0 */
/* Messages over frames: small ones go at once and are kept where no receive
 * waits; of a large one the sender offers it, the receiver grants it (as soon
 * as its receive is posted, so that a receive posted ahead costs no round
 * trip), and then its bytes come straight into the receiver's memory.
 *
 * A carrier brings frames between two ranks in order; the endpoint's lock is
 * held in every call either way. */
#ifndef LHI_PROTO_H
#define LHI_PROTO_H

#include "net/match.h"
#include "net/net_own.h"
#include "net/wire.h"

#include <pthread.h>

typedef struct lhi_proto lhi_proto;

/* Flags of a large receive: what has come of its message. */
enum { LHI_OP_OFFERED = 1, LHI_OP_FILLING = 2, LHI_OP_FILLED = 4 };

typedef struct lhi_carrier {
    /* Sends a frame with its payload. With an `op`, the payload is the
     * operation's and lhi_proto_sent follows; without, it is copied. LH_EIO,
     * LH_ENOMEM: not even begun. */
    lh_status (*frame)(lhi_proto *proto, uint32_t to, const lhi_frame *frame,
                       const void *payload, lhi_net_op *op, lh_error *err);
    /* The receive may be filled from now on (frame.id is its number). */
    lh_status (*expect)(lhi_proto *proto, lhi_net_op *op, lh_error *err);
    /* Lets go of an operation that it has in hands; false: it has not. May
     * let go of the lock for a while. */
    bool (*withdraw)(lhi_proto *proto, lhi_net_op *op);
} lhi_carrier;

/* What is known of a peer. */
typedef struct lhi_peer {
    lhi_queue offers;         /* of lhi_net_op: sends that wait for a grant */
    lhi_queue granted;        /* of lhi_net_op: large receives, until done */
    struct lhi_grant *grants; /* that have no offer yet, oldest first */
    uint32_t n_grants;
    bool left; /* said goodbye */
} lhi_peer;

struct lhi_proto {
    lhi_net net; /* first */
    const lhi_carrier *carrier;
    pthread_mutex_t lock;
    lhi_match match;
    uint64_t next_id;
    uint32_t n_out; /* sends that are not out; a futex for close */
    lhi_peer *peers;
};

lh_status lhi_proto_init(lhi_proto *proto, lh_error *err);
void lhi_proto_fini(lhi_proto *proto);

/* For the transport's lhi_net_ops. */
lh_status lhi_proto_send(lhi_net *net, lhi_net_op *op, lh_error *err);
lh_status lhi_proto_receive(lhi_net *net, lhi_net_op *op, lh_error *err);
void lhi_proto_withdraw(lhi_net *net, lhi_net_op *op);

/* From the carrier. A frame has come (of SMALL and DATA: its header); where its
 * payload goes is *into, with the receive in *op or the kept message in
 * *kept; both NULL: it is to be dropped. Errors end the run. */
lh_status lhi_proto_frame(lhi_proto *proto, uint32_t from,
                          const lhi_frame *frame, void **into, lhi_net_op **op,
                          lhi_kept **kept, lh_error *err);
/* The payload is there. */
lh_status lhi_proto_filled(lhi_proto *proto, lhi_net_op *op, lhi_kept *kept,
                           lh_error *err);
/* The operation's bytes are out (or cannot get out: `status`). */
void lhi_proto_sent(lhi_proto *proto, lhi_net_op *op, lh_status status);

/* Until what was sent is out, or the run has failed; then nothing refers to
 * the owner's operations any more. */
void lhi_proto_drain(lhi_proto *proto);

#endif
