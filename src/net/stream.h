/* SPDX-License-Identifier: Apache-2.0 */
/* A transport over one connected stream socket per peer, with a communication
 * thread that sleeps in epoll. */
#ifndef LHI_STREAM_H
#define LHI_STREAM_H

#include "net/net_own.h"
#include "net/seal.h"

typedef struct lhi_stream_options {
    const char *name; /* of the transport; stays the caller's */
    uint32_t rank, n_ranks;
    /* A connection per rank (-1 at `rank`); the endpoint's on LH_OK, and
     * still the caller's otherwise. */
    const int *fds;
    /* A key per rank (LHI_SEAL_KEY_BYTES each) that it and this one alone have:
     * every frame is sealed.
     * NULL: who could change anything on these connections is this system. */
    const unsigned char *keys;
    lhi_links *links;     /* NULL: none */
    lhi_failure *failure; /* where the run's failure goes; NULL: its own */
    /* Someone else sees when a rank dies and says so in `failure`: a lost
     * connection counts only where nobody did within a second. */
    bool watched;
    /* A peer that has said nothing for so long has failed; 0: may be silent. */
    int64_t silence_ns;
    /* Called once at the end of close; NULL: nothing. */
    void (*closed)(void *context);
    void *context;
} lhi_stream_options;

lh_status lhi_net_stream(const lhi_stream_options *options, lhi_net **out,
                         lh_error *err);

#endif
