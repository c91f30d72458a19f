/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the processes of a program over TCP, with rails: several
 * connections between each two ranks over separate network interfaces. If one
 * fails, the others send its unacknowledged bytes again, so that no message is
 * lost, duplicated or changed. docs/engine-transports.md, "Rails".
 *
 * A receive takes the oldest message from its rank with its tag. All bytes are
 * in host memory. Any thread may call the functions on one transport, several
 * threads at a time.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_TRANSPORT_H
#define LONGHAUL_EXPERIMENTAL_TRANSPORT_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One rank's end of the transport. */
typedef struct lh_transport lh_transport;

/* Options for lh_transport_join(), the same on all ranks but for `rank`. */
typedef struct lh_transport_options {
    size_t size; /* sizeof(lh_transport_options) */
    uint32_t rank, n_ranks;
    /* Rank 0's host, as the others reach it; NULL: 127.0.0.1. Ranks listen on
     * the address by which they reach it. */
    const char *host;
    uint16_t port;      /* rank 0's, free there */
    const char *job;    /* name; ranks of other jobs are rejected */
    const void *secret; /* known to the job's ranks only; at least 16 bytes */
    size_t secret_bytes;
    /* Each rail: a network interface's name, a network ("10.1.0.0/24") or an
     * address of this rank. All ranks have equally many, which connect to those
     * with the same index. 0: one connection between each two ranks. */
    uint32_t n_rails;
    const char *const *rails;
    int64_t join_ns;    /* limit for all ranks to join; 0: 4 s */
    int64_t silence_ns; /* a rank silent for this time is lost; 0: 3.5 s, with
                         * rails 10 s */
    /* Limit for each send and receive, after which the transport fails on all
     * ranks; 0: none. */
    int64_t wait_ns;
    /* Rank 0: a socket that listens at `port` of `host`, so that no other
     * program can take the port before the ranks join. The transport uses a
     * copy; the caller closes the socket. 0: the transport makes one. */
    int listener;
    /* Stop condition, polled about seven times a second by each thread that
     * joins, sends or receives. Once it returns true, the thread's call returns
     * LH_ECANCELED, and the transport fails on all ranks. NULL: none. */
    bool (*stop)(void *context);
    void *context;
} lh_transport_options;

/* Joins the job; returns once all ranks are connected. Release with
 * lh_transport_free(). LH_EIO: a rank is missing, or rejects another one.
 * LH_EINVAL: an option is out of range, or no interface belongs to a rail.
 * LH_ECANCELED: stopped. LH_EUNSUPPORTED: built without TCP. */
LH_API lh_status lh_transport_join(const lh_transport_options *options,
                                   lh_transport **out, lh_error *err);

/* Sends bytes to rank `to` under a tag; returns once `data` may be reused: for
 * more than 16 KiB, after the message is received. LH_EIO: a rank has failed,
 * or the limit has passed; the error has the failed rank's number and the
 * reason. LH_ECANCELED: stopped. LH_EINVAL: no such rank. */
LH_API lh_status lh_transport_send(lh_transport *transport, uint32_t to,
                                   uint64_t tag, const void *data,
                                   size_t n_bytes, lh_error *err);

/* Receives a message of exactly n_bytes from rank `from` into `data`. Errors as
 * in lh_transport_send(); a message of another size fails all ranks. */
LH_API lh_status lh_transport_receive(lh_transport *transport, uint32_t from,
                                      uint64_t tag, size_t n_bytes, void *data,
                                      lh_error *err);

/* Fails the transport on all ranks with a reason: every wait ends. */
LH_API void lh_transport_abort(lh_transport *transport, const char *reason);

/* Copies the next notice for the user, such as the loss of a rail, into `text`
 * (n_bytes with its 0); false: there is none. */
LH_API bool lh_transport_read_notice(lh_transport *transport, size_t n_bytes,
                                     char *text);

/* Waits until sent messages are delivered, or cannot be, and frees. No other
 * thread uses the transport. NULL is a no-op. */
LH_API void lh_transport_free(lh_transport *transport);

#ifdef __cplusplus
}
#endif
#endif
