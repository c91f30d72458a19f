/* SPDX-License-Identifier: Apache-2.0 */
/* Rails: several connections to each peer, each between different addresses,
 * that form one stream. The stream survives unless all fail.
 *
 * Each peer has a local socket pair: bytes written to one end emerge at the
 * peer's, in order and exactly once. In between, a thread cuts them into
 * numbered segments and stores each until it is acknowledged. Any rail with
 * socket space sends the next segment. A rail is closed if it has an error or a
 * wrong MAC, or if it is silent for its timeout although the other end sends at
 * three times that rate. Its unacknowledged segments are sent again over other
 * rails; duplicates are dropped by number. Meanwhile the higher rank
 * reconnects, and the rail is used again once both ends have authenticated.
 *
 * Each connection has its own handshake (handshake.h), under the key that the
 * two ranks share from joining this run. Its frames have MACs (frame_mac.h)
 * under the key that the handshake produces: docs/formats/wire.md. */
#ifndef LHI_RUNTIME_TRANSPORT_RAILS_H
#define LHI_RUNTIME_TRANSPORT_RAILS_H

#include "runtime/transport/handshake.h"
#include "runtime/transport/transport_internal.h"

enum {
    LHI_RAIL_SEGMENT_BYTES = 64 << 10, /* maximum segment size */
    LHI_RAIL_WINDOW = 1024             /* maximum unacknowledged segments */
};

/* Silence after which a rail is lost; longer for links whose round trip exceeds
 * a quarter of it. */
#define LHI_RAIL_TIMEOUT_NS INT64_C(300000000)
/* Time without any rail to a peer after which the run ends. */
#define LHI_RAILS_TIMEOUT_NS INT64_C(10000000000)
/* Timeout for all rails to connect, once the ranks have joined. */
#define LHI_RAILS_CONNECT_TIMEOUT_NS INT64_C(6000000000)

typedef struct lhi_rails lhi_rails;

/* Options for lhi_rails_open(). */
typedef struct lhi_rails_options {
    uint32_t rank, n_ranks, n_rails;
    const int *listeners; /* one per rail; owned by the rails on LH_OK */
    /* Address of rank i's rail k: LHI_ADDRESS_BYTES at i * n_rails + k.
     * Outgoing connections start from this rank's own address, any port. */
    const unsigned char *addresses;
    /* Key shared by this rank and rank i for this run: LHI_MAC_BYTES at i *
     * LHI_MAC_BYTES. */
    const unsigned char *keys;
    unsigned char job[32]; /* digest of the job's name */
    int64_t timeout_ns;    /* time without rails before the run ends; 0: 10 s */
    lhi_failure *failure;  /* the run's; outlives the rails */
} lhi_rails_options;

/* Opens the rails (parallel connections) of this rank; returns once every rail
 * to every peer is connected. fds[i] (-1 at `rank`) is then this rank's end of
 * the stream to rank i, owned by the caller. LH_EIO: a rail does not connect;
 * `err` names it. */
lh_status lhi_rails_open(const lhi_rails_options *options, lhi_rails **out,
                         int *fds, lh_error *err);

/* Sends the bytes written to the streams, whose ends must be closed, and frees
 * the rails (parallel connections). Takes at most 3 s, in a failed run 0.5 s.
 * NULL is allowed. */
void lhi_rails_close(lhi_rails *rails);

/* Returns the next notice for the user about lost or restored rails, as a
 * sentence; false: no new notice. Only a rail's connecting end has notices. */
bool lhi_rails_read_notice(lhi_rails *rails, char *text, size_t room);

/* Statistics of the rails. */
typedef struct lhi_rails_statistics {
    uint64_t n_lost, n_restored; /* connections lost, connections restored */
    uint64_t n_retransmitted, n_duplicates; /* segments retransmitted,
                                             * duplicates received */
    uint64_t sent[LHI_MAX_RAILS];           /* segment bytes per rail */
} lhi_rails_statistics;
/* Stores the statistics of the rails (parallel connections) so far in *out. */
void lhi_rails_read_statistics(const lhi_rails *rails,
                               lhi_rails_statistics *out);

#endif
