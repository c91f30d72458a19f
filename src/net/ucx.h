/* SPDX-License-Identifier: Apache-2.0 */
/* A transport over UCX, for ranks that have another way to tell each other
 * where they are. */
#ifndef LHI_UCX_H
#define LHI_UCX_H

#include "net/net_own.h"

typedef struct lhi_ucx_options {
    uint32_t rank, n_ranks;
    /* All ranks give `size` bytes each, at cards + rank * size; on return
     * everyone has all. */
    lh_status (*exchange)(void *context, void *cards, size_t size,
                          lh_error *err);
    void *context;
    bool loopback;        /* all on this host, and only there */
    lhi_links *links;     /* NULL: none */
    lhi_failure *failure; /* where the run's goes; NULL: its own */
    int64_t silence_ns;
    void (*closed)(void *context); /* at the end of close; NULL: nothing */
    void *closed_context;
} lhi_ucx_options;

/* LH_EINVAL: UCX would listen where others than this host's users reach it
 * (`one_host`: it is kept to loopback, unless the environment names other
 * devices), and `insecure` does not allow that. In apart.c. */
lh_status lhi_ucx_may_listen(bool one_host, bool insecure, lh_error *err);

/* LH_EUNSUPPORTED: UCX is not built in, or not installed. */
lh_status lhi_ucx_open(const lhi_ucx_options *options, lhi_net **out,
                       lh_error *err);

#endif
