/* SPDX-License-Identifier: Apache-2.0 */
/* Pending connections: accepted while a rank waits for the others, and not yet
 * authenticated with the job's secret. Anyone who reaches the port can open
 * them, so their number and duration are limited. A new connection never waits
 * for an old one: if the table is full, the oldest is dropped.
 *
 * A connection that has identified itself as a rank of this job (its handshake
 * has the digest of the job's name, which outsiders do not have) takes
 * precedence over those that have not. Identified connections may fill at most
 * half of the table, so that replayed handshakes cannot lock out others. */
#ifndef LHI_GUESTS_H
#define LHI_GUESTS_H

#include "net/hello.h"

#include <poll.h>

/* Table entries beyond the number of missing ranks. */
enum { LHI_GUESTS_BESIDES = 64 };
/* Timeout for a handshake, which takes one or two round trips. */
#define LHI_GREETING_NS INT64_C(3000000000)

/* A pending connection. */
typedef struct lhi_guest {
    int fd;       /* -1: to be removed */
    bool named;   /* identified; challenge sent */
    size_t n_got; /* bytes of the next handshake message */
    int64_t until_ns;
    lhi_handshake shake;
    unsigned char address[LHI_ADDRESS_BYTES];
    unsigned char got[LHI_HELLO_BYTES];
} lhi_guest;

/* The table of pending connections. */
typedef struct lhi_guests {
    lhi_guest *list; /* oldest first */
    uint32_t n, most;
    uint64_t n_dropped;    /* dropped because the table was full */
    bool short_of_files;   /* the last accept found no free file descriptor */
    int64_t deaf_until_ns; /* pause: nor was there a connection to drop */
} lhi_guests;

/* Counts the files that this process can still open, up to `enough`; raises the
 * soft limit if necessary. */
uint32_t lhi_free_files(uint32_t enough);

/* Allocates a table for `most` connections, at least 1. */
lh_status lhi_guests_init(lhi_guests *guests, uint32_t most, lh_error *err);
void lhi_guests_fini(lhi_guests *guests); /* closes all connections */
/* Closes all connections. */
void lhi_guests_close_all(lhi_guests *guests);

/* Drops the oldest connection with the lowest precedence; false: the table is
 * empty. */
bool lhi_guests_drop_one(lhi_guests *guests);
/* Removes the entries whose fd is -1. */
void lhi_guests_forget(lhi_guests *guests);

/* Fills at most `most` + 1 poll() entries: the listener (-1 during a pause),
 * then the connections in order. Returns their number. */
uint32_t lhi_guests_polls(const lhi_guests *guests, int listener,
                          struct pollfd *polls);
/* Accepts one connection, dropping others if necessary; NULL: no connection, or
 * no free file descriptor. Entries move, which invalidates pointers to them. */
lhi_guest *lhi_guests_accept(lhi_guests *guests, int listener);

#endif
