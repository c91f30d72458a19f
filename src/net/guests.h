/* SPDX-License-Identifier: Apache-2.0 */
/* Who knocks while a rank waits for the others: connections that have not
 * proven that they hold the job's secret. Anyone who reaches the port can make
 * them, so there are but so many, each for but so long, and a newcomer never
 * has to wait for one of them to give up: where there is no room, the oldest
 * goes.
 *
 * A guest that has named itself as a rank of this job (its HELLO has the
 * digest of the job's name, which passers-by do not know) stays before those
 * that have said nothing or half of it; the named hold at most half of the
 * room, so that nobody who has overheard a HELLO keeps others from saying
 * theirs. */
#ifndef LHI_GUESTS_H
#define LHI_GUESTS_H

#include "net/hello.h"

#include <poll.h>

/* Of those beyond the ranks that are still to come. */
enum { LHI_GUESTS_BESIDES = 64 };
/* A greeting takes a round trip or two; who needs longer is not there. */
#define LHI_GREETING_NS INT64_C(3000000000)

typedef struct lhi_guest {
    int fd;       /* -1: to be forgotten */
    bool named;   /* has been challenged */
    size_t n_got; /* bytes of the next greeting */
    int64_t until_ns;
    lhi_handshake shake;
    unsigned char address[LHI_ADDRESS_BYTES];
    unsigned char got[LHI_HELLO_BYTES];
} lhi_guest;

typedef struct lhi_guests {
    lhi_guest *list; /* oldest first */
    uint32_t n, most;
    uint64_t n_dropped;    /* to make room */
    bool short_of_files;   /* the last accept found no file descriptor free */
    int64_t deaf_until_ns; /* ... nor a guest to be dropped for one */
} lhi_guests;

/* How many files this process can still open, as far as `enough`; raises its
 * own limit (the soft one) where that is too low for so many. */
uint32_t lhi_free_files(uint32_t enough);

/* Room for `most` guests, at least 1. */
lh_status lhi_guests_init(lhi_guests *guests, uint32_t most, lh_error *err);
void lhi_guests_fini(lhi_guests *guests); /* closes them all */
void lhi_guests_close_all(lhi_guests *guests);

/* The oldest that counts least goes; false: there is none. */
bool lhi_guests_drop_one(lhi_guests *guests);
/* Those whose fd is -1 go. */
void lhi_guests_forget(lhi_guests *guests);

/* What poll() is to look at, at most `most` + 1 entries: the listener (-1 while
 * nothing can be accepted), then the guests in order. How many. */
uint32_t lhi_guests_polls(const lhi_guests *guests, int listener,
                          struct pollfd *polls);
/* Accepts one connection, for which others may go; NULL: there is none now, or
 * no file descriptor for it. Guests that are in hands elsewhere move. */
lhi_guest *lhi_guests_accept(lhi_guests *guests, int listener);

#endif
