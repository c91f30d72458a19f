/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the other ranks of a job over TCP. */
#ifndef LHI_TCP_H
#define LHI_TCP_H

#include "net/hello.h"
#include "net/net.h"

/* Until when all have to be there, unless the caller says. */
#define LHI_JOIN_NS INT64_C(4000000000)
/* So long may a rank say nothing, unless the caller says. */
#define LHI_SILENCE_NS INT64_C(3500000000)

/* What rank 0 tells everyone besides. */
typedef struct lhi_tcp_extra {
    unsigned char bytes[64];
} lhi_tcp_extra;

/* What the other ranks do with it; an error keeps all from starting. */
typedef lh_status lhi_tcp_told(void *context, const lhi_tcp_options *options,
                               const lhi_tcp_extra *extra, lh_error *err);

/* Connects this rank to all others (fds[i], -1 at its own); the
 * LHI_MAC_BYTES at keys + i * LHI_MAC_BYTES are what it and rank i alone have,
 * new for each connection. `extra` is what rank 0 tells;
 * the others have `told` called with it. */
lh_status lhi_tcp_join(const lhi_tcp_options *options,
                       const lhi_tcp_extra *extra, lhi_tcp_told *told,
                       void *context, int *fds, unsigned char *keys,
                       lh_error *err);

#endif
