/* SPDX-License-Identifier: Apache-2.0 */
/* A transport over one connected stream socket per peer, with a communication
 * thread that sleeps in epoll_wait(). */
#ifndef LHI_RUNTIME_TRANSPORT_STREAM_H
#define LHI_RUNTIME_TRANSPORT_STREAM_H

#include "runtime/transport/frame_mac.h"
#include "runtime/transport/transport_internal.h"

/* Options for lhi_net_stream(). */
typedef struct lhi_stream_options {
    const char *name; /* transport's name; borrowed */
    uint32_t rank, n_ranks;
    /* Connected sockets by rank (-1 at `rank`); owned by the endpoint on LH_OK,
     * otherwise still by the caller. */
    const int *fds;
    /* Keys by rank (LHI_FRAME_MAC_KEY_BYTES each), shared only with that rank;
     * every frame then has MACs. NULL: no MACs, since only the local system
     * could modify the connections. */
    const unsigned char *keys;
    lhi_links *links;     /* NULL: none */
    lhi_failure *failure; /* the run's failure; NULL: the endpoint's own */
    /* A launcher detects deaths and records them in `failure`; a lost
     * connection is a failure only if the launcher reports none within a
     * second. */
    bool watched;
    /* Silence after which a peer has failed; 0: unlimited. */
    int64_t silence_ns;
    /* Called once at the end of close; may be NULL. */
    void (*closed)(void *context);
    void *context;
} lhi_stream_options;

/* Creates an endpoint over connected sockets, one per peer, and starts its
 * communication thread. */
lh_status lhi_net_stream(const lhi_stream_options *options, lhi_net **out,
                         lh_error *err);

#endif
