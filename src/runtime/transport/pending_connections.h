/* SPDX-License-Identifier: Apache-2.0 */
/* Pending connections: accepted while a rank waits for the others, and not yet
 * authenticated with the job's secret. Anyone who reaches the port can open
 * them, so their number and duration are limited. A new connection never waits
 * for an old one: if the table is full, the oldest is dropped.
 *
 * A connection that has identified itself as a rank of this job (its handshake
 * has the digest of the job's name, which outsiders do not have) takes
 * precedence over those that have not. Identified connections may fill at most
 * half the table, so that replayed handshakes cannot lock out others. */
#ifndef LHI_RUNTIME_TRANSPORT_PENDING_CONNECTIONS_H
#define LHI_RUNTIME_TRANSPORT_PENDING_CONNECTIONS_H

#include "runtime/transport/handshake.h"

#include <poll.h>

/* Table entries beyond the number of missing ranks. */
enum { LHI_PENDING_EXTRA = 64 };
/* Timeout for a handshake, which takes one or two round trips. */
#define LHI_HANDSHAKE_TIMEOUT_NS INT64_C(3000000000)

/* A pending connection. */
typedef struct lhi_pending_connection {
    int fd;          /* -1: to be removed */
    bool identified; /* identified; challenge sent */
    size_t n_got;    /* bytes of the next handshake message */
    int64_t until_ns;
    lhi_handshake shake;
    uint32_t n_rails; /* of the rank */
    unsigned char address[LHI_ADDRESS_BYTES];
    unsigned char buffer[LHI_HANDSHAKE_BYTES];
} lhi_pending_connection;

/* The pending connection table. */
typedef struct lhi_pending_connections {
    lhi_pending_connection *list; /* oldest first */
    uint32_t n, capacity;
    uint64_t n_dropped;      /* dropped because the table was full */
    bool short_of_files;     /* the last accept found no free file descriptor */
    int64_t paused_until_ns; /* pause: nor was there a connection to drop */
} lhi_pending_connections;

/* Counts the files that this process can still open, up to `enough`; raises the
 * soft limit if necessary. */
uint32_t lhi_count_free_files(uint32_t enough);

/* Allocates a table for at most `most` pending connections (accepted, not yet
 * authenticated), at least 1. */
lh_status lhi_pending_init(lhi_pending_connections *pending, uint32_t most,
                           lh_error *err);
/* Closes all pending connections and frees their table. */
void lhi_pending_fini(lhi_pending_connections *pending);
/* Closes all pending connections. */
void lhi_pending_close_all(lhi_pending_connections *pending);

/* Closes one pending connection to free a descriptor: the oldest that has not
 * identified itself or, if more than half the table has, the oldest that has.
 * False: the table is empty. */
bool lhi_pending_drop_oldest(lhi_pending_connections *pending);
/* Removes the table entries of closed connections, whose fd is -1. */
void lhi_pending_remove_closed(lhi_pending_connections *pending);

/* Fills at most `most` + 1 poll() entries: the listener (-1 during a pause),
 * then the pending connections in order. Returns their number. */
uint32_t lhi_pending_fill_polls(const lhi_pending_connections *pending,
                                int listener, struct pollfd *polls);
/* Accepts one connection as pending, dropping others if necessary; NULL: no
 * connection, or no free file descriptor. Entries move, which invalidates
 * pointers to them. */
lhi_pending_connection *lhi_pending_accept(lhi_pending_connections *pending,
                                           int listener);

#endif
