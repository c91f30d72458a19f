/* SPDX-License-Identifier: Apache-2.0 */
/* A transport over UCX for ranks that have another channel for the address
 * exchange. */
#ifndef LHI_RUNTIME_TRANSPORT_UCX_H
#define LHI_RUNTIME_TRANSPORT_UCX_H

#include "runtime/transport/transport_internal.h"

/* Options for lhi_ucx_open(). */
typedef struct lhi_ucx_options {
    uint32_t rank, n_ranks;
    /* All-gather for the address exchange: each rank provides `size` bytes at
     * records + rank * size; on return all have all records. */
    lh_status (*exchange)(void *context, void *records, size_t size,
                          lh_error *err);
    void *context;
    bool loopback;        /* all ranks on this host, restricted to it */
    lhi_links *links;     /* NULL: none */
    lhi_failure *failure; /* the run's failure; NULL: the endpoint's own */
    int64_t silence_ns;
    void (*closed)(void *context); /* called at the end of close; may be NULL */
    void *closed_context;
} lhi_ucx_options;

/* Checks whether UCX may listen. LH_EINVAL: users beyond this host could reach
 * it, and `insecure` does not permit that. `one_host` restricts UCX to
 * loopback, unless the environment names other devices. Defined in
 * remote_endpoints.c. */
lh_status lhi_ucx_may_listen(bool one_host, bool insecure, lh_error *err);

/* Creates a UCX endpoint connected to all peers. LH_EUNSUPPORTED: UCX is not
 * built in, or not installed. */
lh_status lhi_ucx_open(const lhi_ucx_options *options, lhi_net **out,
                       lh_error *err);

#endif
