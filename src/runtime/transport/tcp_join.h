/* SPDX-License-Identifier: Apache-2.0 */
/* Joins a job's ranks over TCP. */
#ifndef LHI_RUNTIME_TRANSPORT_TCP_JOIN_H
#define LHI_RUNTIME_TRANSPORT_TCP_JOIN_H

#include "runtime/transport/handshake.h"
#include "runtime/transport/transport.h"

/* Default timeout for all ranks to join. */
#define LHI_JOIN_TIMEOUT_NS INT64_C(4000000000)

/* Additional data that rank 0 sends to all ranks. */
typedef struct lhi_tcp_extra {
    unsigned char bytes[64];
} lhi_tcp_extra;

/* Callback on the other ranks for that data; an error prevents all from
 * starting. */
typedef lh_status lhi_tcp_extra_callback(void *context,
                                         const lhi_tcp_options *options,
                                         const lhi_tcp_extra *extra,
                                         lh_error *err);

/* Connects this rank to all others: fds[i] is the socket to rank i, -1 at its
 * own. The LHI_MAC_BYTES at keys + i * LHI_MAC_BYTES are a key shared only
 * with rank i, new for each connection. Rank 0 sends `extra`; the other ranks
 * receive it through `on_extra`. */
lh_status lhi_tcp_join(const lhi_tcp_options *options,
                       const lhi_tcp_extra *extra,
                       lhi_tcp_extra_callback *on_extra, void *context,
                       int *fds, unsigned char *keys, lh_error *err);

/* Sends to the other ranks the reason `text` for which this one stops instead
 * of joining them, also at a restart, so that they end. Rank 0 answers their
 * connections, other ranks connect to rank 0; at most for options->join_ns, or
 * until options->is_stopped(). Ignores options->setup. */
void lhi_tcp_send_reason(const lhi_tcp_options *options, const char *text);

/* Reports to the other ranks, in the same way, that this one has failed because
 * of `why` before it could join them. At a restart they continue without it. */
void lhi_tcp_send_failure(const lhi_tcp_options *options, const char *why);

#endif
