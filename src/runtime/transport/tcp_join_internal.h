/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of joining over TCP: tcp_join.c connects to lower ranks and
 * exchanges the addresses, tcp_acceptor.c authenticates the connections of
 * higher ranks. Everything here belongs to the one thread that joins. */
#ifndef LHI_RUNTIME_TRANSPORT_TCP_JOIN_INTERNAL_H
#define LHI_RUNTIME_TRANSPORT_TCP_JOIN_INTERNAL_H

#include "runtime/transport/pending_connections.h"
#include "runtime/transport/tcp_join.h"

#include <string.h>

/* Reasons for a rejection, from least to most informative. */
typedef enum lhi_tcp_rejection {
    LHI_TCP_REFUSED_NOBODY,
    LHI_TCP_REFUSED_SILENT,
    LHI_TCP_REFUSED_INVALID,
    LHI_TCP_REFUSED_STRANGER, /* rank of another job, or not in this one */
    LHI_TCP_REFUSED_SECRET
} lhi_tcp_rejection;

/* State of joining. */
typedef struct lhi_tcp_join_state {
    const lhi_tcp_options *options;
    unsigned char job[32];
    int listener;             /* -1: not open */
    uint32_t port;            /* listener's */
    int *fds;                 /* authenticated connections by rank; else -1 */
    unsigned char *addresses; /* LHI_ADDRESS_BYTES per rank */
    lhi_handshake *shakes;    /* by rank */
    lhi_pending_connections pending;
    struct pollfd *polls; /* entries for pending connections and ranks */
    int64_t until_ns;
    bool cut; /* peer closed the last connection; a retry may succeed */
    lhi_tcp_rejection refused; /* most informative rejection: kind, and text */
    char refused_text[200];
    uint64_t n_refused;
    /* Why joining ends: the first authenticated rank with another setup, or
     * that has failed; "": it does not. LH_EIO: a restart may succeed. */
    char end_reason[LHI_REFUSAL_BYTES];
    lh_status end_status;
    int64_t end_ns;
    bool *has_reason;   /* per rank: it got the reason */
    bool is_informed;   /* this rank got a reason that ends the run */
    uint32_t n_leaving; /* connected ranks that are to send why they do not
                         * join */
    /* Joining stops: options->is_stopped() has returned true. A rank that is
     * connecting to a lower rank continues for at most 1 s, so that it can send
     * the reason over a complete connection. */
    bool is_stopped;
    bool connects;    /* this rank is connecting to a lower rank */
    int64_t asked_ns; /* when a stop was first requested; 0: not yet */
    /* By rank: its number was claimed with a wrong secret. */
    bool *is_impersonated;
    /* Last time at which a rank joined, or one was first impersonated. */
    int64_t progress_ns;
    /* Authenticated ranks are not admitted, but recorded (tcp_returns.h). */
    bool detects_returns;
    uint32_t returned; /* UINT32_MAX: none */
    const lhi_tcp_extra *extra;
    lhi_tcp_extra_callback *on_extra;
    void *context;
} lhi_tcp_join_state;

/* Creates a handshake message of the given kind. */
static inline lhi_handshake_message
lhi_tcp_make_message(const lhi_tcp_join_state *t, lhi_handshake_kind kind)
{
    lhi_handshake_message h = {
        .kind = kind, .rank = t->options->rank, .n_ranks = t->options->n_ranks};
    memcpy(h.job, t->job, sizeof h.job);
    return h;
}

/* Allocates tables for peers and pending connections; LH_EIO: the limit on open
 * files is too low. */
lh_status lhi_tcp_allocate(lhi_tcp_join_state *t, lh_error *err);
/* Closes the pending connections and frees the tables. */
void lhi_tcp_release(lhi_tcp_join_state *t);
/* Sends a refusal with the reason `why` over socket `fd` without blocking; it
 * is lost if the socket buffer is full. is_final: the run ends, also if it has
 * restarts left. */
void lhi_tcp_refuse(const lhi_tcp_join_state *t, int fd, bool is_final,
                    const char *why);
/* Ends the joining of all ranks because of `status` and `why`, unless it ends
 * already. Ranks that connect within a second get the reason. */
void lhi_tcp_end_joining(lhi_tcp_join_state *t, lh_status status,
                         const char *why);
/* Polls for at most 100 ms, or until until_ns, and serves pending connections;
 * updates t->is_stopped and t->asked_ns. Returns whether `fd` (-1: none) has
 * the event `what`. Unless `spoke` is NULL, also polls the connected higher
 * ranks; *spoke: one that has sent something out of turn. */
bool lhi_tcp_poll(lhi_tcp_join_state *t, int fd, short what, int64_t until_ns,
                  uint32_t *spoke);

#endif
