/* SPDX-License-Identifier: Apache-2.0 */
/* Several connections to each peer, each between other addresses, as one
 * stream that outlives all but the last of them.
 *
 * To each peer leads a socket pair: what is written into our end comes out of
 * its, in order and once. In between, a thread cuts it into segments, numbers
 * them, and keeps each until it is acknowledged. Whichever rail has room gets
 * the next one. A rail that errs, on which a seal is broken, or on which
 * nothing is heard for `silent_ns`, though the other end says something three
 * times as often, is closed; the segments that went over it and are not
 * acknowledged go over another. Segments that come twice are dropped by their
 * number. Meanwhile the rail is dialled again, by the higher rank, and used
 * again once both ends have proven who they are.
 *
 * Each connection of a rail is proven by a handshake of its own (hello.h) under
 * the key that these two ranks have from joining this run, and sealed (seal.h)
 * under the key that it comes to: docs/formats/wire.md. */
#ifndef LHI_RAILS_H
#define LHI_RAILS_H

#include "net/hello.h"
#include "net/net_own.h"

enum {
    LHI_RAIL_BYTES = 64 << 10, /* of a segment, at most */
    LHI_RAIL_WINDOW = 1024     /* segments that are not acknowledged */
};

/* What is silent for so long is taken for dead, but for links with a round trip
 * of more than a quarter of it. */
#define LHI_RAIL_SILENT_NS INT64_C(300000000)
/* With no rail for so long, the run ends. */
#define LHI_RAILS_GONE_NS INT64_C(10000000000)
/* All rails have to be there so long after the ranks are. */
#define LHI_RAILS_JOIN_NS INT64_C(6000000000)

typedef struct lhi_rails lhi_rails;

typedef struct lhi_rails_options {
    uint32_t rank, n_ranks, n_rails;
    const int *listeners; /* one per rail; the rails' on LH_OK */
    /* Of rail k of rank i: LHI_ADDRESS_BYTES at i * n_rails + k. What dials
     * goes out from this rank's own, by any port. */
    const unsigned char *addresses;
    /* Of rank i: LHI_MAC_BYTES at i * LHI_MAC_BYTES, that it and this one alone
     * have, of this run. */
    const unsigned char *keys;
    unsigned char job[32]; /* digest of its name */
    int64_t gone_ns;       /* with no rail for so long, the run ends; 0: 10 s */
    lhi_failure *failure;  /* of the run; outlives the rails */
} lhi_rails_options;

/* Returns once every rail to every peer is there; fds[i] (-1 at `rank`) is
 * then this rank's end of the stream to rank i, and the caller's to close.
 * LH_EIO: one does not come, which `err` names. */
lh_status lhi_rails_open(const lhi_rails_options *options, lhi_rails **out,
                         int *fds, lh_error *err);

/* Once the ends of all streams are closed: sees that what was written into them
 * gets to the peers, for at most 3 s (0.5 s where the run has failed), and
 * releases everything. NULL is fine. */
void lhi_rails_close(lhi_rails *rails);

/* What people are to know of rails that have gone or come back, as a sentence;
 * false: nothing that was not told before. Of a rail's two ends, the one that
 * dials tells. */
bool lhi_rails_tell(lhi_rails *rails, char *text, size_t room);

/* What has happened to rails so far. */
typedef struct lhi_rails_seen {
    uint64_t n_lost, n_back;       /* connections; those that came back */
    uint64_t n_again, n_twice;     /* segments sent again; come twice */
    uint64_t sent[LHI_MOST_RAILS]; /* bytes of segments, by rail */
} lhi_rails_seen;
void lhi_rails_look(const lhi_rails *rails, lhi_rails_seen *out);

#endif
