/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the UCX transport: ucx.c has the endpoint, its requests and its
 * thread, ucx_incoming_frames.c the frames that arrive. */
#ifndef LHI_RUNTIME_TRANSPORT_UCX_INTERNAL_H
#define LHI_RUNTIME_TRANSPORT_UCX_INTERNAL_H

#include "runtime/transport/ucx_calls.h"

#ifdef LHI_HAVE_UCX

#include "runtime/transport/protocol.h"

#include <pthread.h>

/* Tags separate this job's messages from others to the same worker, so they
 * must be secret. A frame's tag has 51 random bits of the job, and the sender.
 * A large message's tag has 63 random bits XORed with the receive's number.
 * Only ranks authenticated with the job's secret receive the random bits.
 * Messages with other tags are discarded. */
#define LHI_UCX_TAG_DATA (UINT64_C(1) << 63)
#define LHI_UCX_TAG_RANK_BITS 12
#define LHI_UCX_TAG_RANK ((UINT64_C(1) << LHI_UCX_TAG_RANK_BITS) - 1)
_Static_assert(LHI_NET_MAX_RANKS <= 1 << LHI_UCX_TAG_RANK_BITS,
               "a rank in a tag");

typedef struct lhi_ucx lhi_ucx;
typedef struct lhi_ucx_request lhi_ucx_request;

/* An incoming frame, in arrival order. */
typedef struct lhi_ucx_incoming_frame {
    struct lhi_ucx_incoming_frame *next;
    lhi_ucx *of;
    bool there, bad;
    size_t size;
    uint32_t from;
    unsigned char bytes[];
} lhi_ucx_incoming_frame;

/* State of a peer. */
typedef struct lhi_ucx_peer {
    ucp_ep_h ep; /* NULL: none, or closed */
    int64_t last_received_ns, last_sent_ns;
    /* Loss reported by UCX: reason and time. An orderly shutdown or a failure
     * reason from the peer may still be in unread frames. */
    ucs_status_t lost;
    int64_t lost_ns;
} lhi_ucx_peer;

/* The endpoint. */
struct lhi_ucx {
    lhi_proto proto; /* must be first */
    lhi_failure own_failure;
    lhi_ucx_calls call;
    ucp_context_h context;
    ucp_worker_h worker;
    int efd, wakeup_fd;
    uint64_t frame_tag, data_tag; /* the job's */
    bool stop, failure_shared, shutdown_sent;
    pthread_t thread;
    lhi_ucx_peer *ends;
    lhi_ucx_request *requests;
    lhi_ucx_incoming_frame *first, *last;
    int64_t silence_ns;
    void (*closed)(void *context);
    void *closed_context;
};

/* Starts receiving all frames that have arrived; discards other messages. The
 * caller holds the lock, or the communication thread has ended. */
lh_status lhi_ucx_receive_frames(lhi_ucx *u, lh_error *err);
/* Receives frames and handles the complete ones in arrival order. An invalid
 * frame sets the run's failure. The caller holds the lock. */
void lhi_ucx_handle_frames(lhi_ucx *u);

#endif
#endif
