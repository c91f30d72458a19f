/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the rails: rails.c has the thread, the local streams and the
 * timers, rail_io.c the transfer over a rail, rail_acceptor.c its setup.
 * Everything here belongs to the thread once it runs. */
#ifndef LHI_RUNTIME_TRANSPORT_RAILS_INTERNAL_H
#define LHI_RUNTIME_TRANSPORT_RAILS_INTERNAL_H

#include "runtime/transport/frame_mac.h"
#include "runtime/transport/pending_connections.h"
#include "runtime/transport/rails.h"
#include "runtime/transport/wire_format.h"

#include <pthread.h>
#include <sys/types.h>

/* A segment of a peer's stream. */
typedef struct lhi_segment {
    uint64_t number;
    uint32_t size;         /* 0: end of the stream */
    uint32_t rail;         /* last sent over */
    bool waiting;          /* waits for (re)transmission */
    bool retransmission;   /* retransmission */
    bool being_written;    /* a rail is writing it */
    bool free_after_write; /* acknowledged meanwhile: that rail frees it */
    unsigned char bytes[];
} lhi_segment;

/* States of a rail. */
typedef enum lhi_rail_state {
    LHI_RAIL_DOWN,
    LHI_RAIL_CONNECTING,
    LHI_RAIL_AWAITING_CHALLENGE, /* RAIL sent, CHALLENGE expected */
    LHI_RAIL_AWAITING_WELCOME,   /* PROOF sent, WELCOME expected */
    LHI_RAIL_UP
} lhi_rail_state;

/* One rail to a peer. */
typedef struct lhi_rail {
    lhi_rail_state state;
    int fd;           /* -1: DOWN */
    bool was_up;      /* was active before */
    bool probes_only; /* CONNECTING: only tests whether the peer listens */
    bool writable;    /* socket accepts more bytes */
    int error;        /* last attempt's, or reason of the loss; 0: silence */
    int64_t last_input_ns; /* UP: last input */
    int64_t last_output_ns;
    int64_t timeout_ns; /* timeout for silence */
    int64_t until_ns;   /* attempt's timeout */
    int64_t retry_ns;   /* DOWN: next attempt */
    int64_t lost_ns;    /* time of the loss; 0: not lost */
    lhi_handshake shake;
    unsigned char greeting[LHI_HANDSHAKE_BYTES];
    size_t n_greeting;
    int64_t asked_ns; /* time of the handshake's request */

    /* Frame being written: header, payload from `out`, tail. */
    lhi_frame_mac *seals_out, *seals_in;
    bool writing;
    lhi_segment *out; /* NULL: no payload */
    size_t out_size, out_sent;
    unsigned char out_head[LHI_RAIL_HEAD + LHI_FRAME_MAC_BYTES];
    unsigned char out_tail[LHI_FRAME_MAC_BYTES];

    /* Frame being read. */
    lhi_rail_head in_frame;
    size_t in_got; /* bytes of header, payload and tail */
    lhi_segment *in;
    unsigned char in_head[LHI_RAIL_HEAD + LHI_FRAME_MAC_BYTES];
    unsigned char in_tail[LHI_FRAME_MAC_BYTES];
} lhi_rail;

/* A peer's streams, segments and rails. */
typedef struct lhi_rail_peer {
    int fd;         /* thread's end of the local stream; -1: none */
    bool out_ended; /* local rank has closed; the last segment marks it */
    bool in_ended;  /* peer has closed */
    bool in_shut;   /* ... and the local rank is notified */
    bool stopped_receiving; /* local rank reads no more; input is dropped */
    bool given_up;
    /* Segments by number % LHI_RAIL_WINDOW; NULL while unused. */
    lhi_segment **sent, **received;
    uint64_t acknowledged;  /* all lower numbers are acknowledged */
    uint64_t next;          /* next segment's number */
    uint64_t first_waiting; /* no lower number waits */
    uint32_t n_waiting;
    uint64_t expected;        /* all lower numbers are delivered */
    size_t n_delivered;       /* delivered bytes of segment `expected` */
    bool owes_ack;            /* an acknowledgement is due */
    uint32_t next_rail;       /* first rail to try next */
    int64_t last_input_ns;    /* over any rail */
    int64_t last_progress_ns; /* last acknowledgement, or time with none due */
    lhi_rail *rails;
} lhi_rail_peer;

/* The loss or restoration of a rail. */
typedef struct lhi_rail_event {
    uint32_t peer, rail;
    int error;           /* reason of the loss; 0: silence */
    int64_t downtime_ns; /* downtime on restoration; negative: lost */
} lhi_rail_event;

/* Capacity of the ring of unreported rail events. */
enum { LHI_RAIL_EVENTS = 16 };

/* A rank's rails. */
struct lhi_rails {
    uint32_t rank, n_ranks, n_rails;
    int listeners[LHI_MAX_RAILS];
    unsigned char *addresses, *keys;
    unsigned char job[32];
    int64_t timeout_ns;
    lhi_failure *failure;
    lhi_rail_peer *peers;
    lhi_pending_connections pending;
    struct pollfd *polls;
    lhi_segment *read_buffer; /* read buffer for local streams; or NULL */
    int wakeup_fd;
    pthread_t thread;
    uint32_t n_up;    /* atomic: rails that ever were active */
    uint32_t request; /* atomic: request to the thread */
    int64_t close_by_ns;
    lhi_rails_statistics statistics; /* each atomic */
    pthread_mutex_t lock; /* for the events; unread old ones are overwritten */
    lhi_rail_event events[LHI_RAIL_EVENTS];
    uint32_t n_events, n_reported;
};

/* Requests to the thread. */
enum { LHI_RAILS_RUN, LHI_RAILS_LEAVE, LHI_RAILS_STOP };

/* Adds to a statistic, atomically. */
static inline void lhi_rails_add_statistic(uint64_t *what, uint64_t n)
{
    __atomic_fetch_add(what, n, __ATOMIC_RELAXED);
}

/* ---- rail_io.c ---- */

/* Makes the authenticated connection `fd` the rail number `rail` (parallel
 * connection) to a peer, replacing an earlier one. `shake`: its handshake, from
 * which its keys follow; answer_ns: time of the peer's answer. */
lh_status lhi_rail_activate(lhi_rails *rails, uint32_t peer, uint32_t rail,
                            int fd, const lhi_handshake *shake,
                            int64_t answer_ns, lh_error *err);
/* Closes a rail (parallel connection) to a peer in any state; its
 * unacknowledged segments are sent over other rails. `error`: errno of the
 * cause. */
void lhi_rail_close(lhi_rails *rails, uint32_t peer, uint32_t rail, int error);
/* Reads from one rail (parallel connection) to a peer after a poll() event, and
 * handles the complete frames. */
void lhi_rail_read(lhi_rails *rails, uint32_t peer, uint32_t rail);
/* Sends a peer's waiting segments (numbered pieces of the stream) over those of
 * its rails (parallel connections) whose sockets have space. */
void lhi_rail_send_segments(lhi_rails *rails, uint32_t peer);
/* Sends a keep-alive frame with the current acknowledgement over one rail
 * (parallel connection) to a peer. */
void lhi_rail_send_ack(lhi_rails *rails, uint32_t peer, uint32_t rail);
/* Checks whether a connected rail (one of the parallel connections to a peer)
 * has an unfinished frame or a waiting segment to write. */
bool lhi_rail_has_work(const lhi_rail_peer *peer, const lhi_rail *rail);

/* Fails the run because of rank `peer`, which may be this rank itself; the text
 * `why` follows the rank's name in the message. */
void lhi_rails_fail_peer(lhi_rails *rails, uint32_t peer, const char *why);

/* ---- rail_acceptor.c ---- */

/* Connects rail `rail` (one of the parallel connections) to a lower rank. For
 * a higher rank, which connects itself, only tests whether the peer listens. */
void lhi_rail_connect(lhi_rails *rails, uint32_t peer, uint32_t rail);
/* Continues the connection attempt of a rail (one of the parallel connections
 * to a peer) after a poll() event. */
void lhi_rail_continue_connect(lhi_rails *rails, uint32_t peer, uint32_t rail);
/* Reads handshake bytes from a pending connection (accepted, not yet
 * authenticated); its fd is -1 once it is closed or has become a rail. */
void lhi_rail_read_pending(lhi_rails *rails,
                           lhi_pending_connection *connection);
/* Closes the pending connections (accepted, not yet authenticated) whose time
 * to authenticate has ended at now_ns. */
void lhi_rail_close_expired(lhi_rails *rails, int64_t now_ns);

#endif
