/* SPDX-License-Identifier: Apache-2.0 */
/* UCX functions, from the library loaded at run time. */
#ifndef LHI_RUNTIME_TRANSPORT_UCX_CALLS_H
#define LHI_RUNTIME_TRANSPORT_UCX_CALLS_H

#include <longhaul/status.h>

#ifdef LHI_HAVE_UCX

#include <stdbool.h>
#include <ucp/api/ucp.h>

/* X(name): the functions used, without prefix. */
#define LHI_UCX_LIST(X)                                                        \
    X(config_read)                                                             \
    X(config_modify)                                                           \
    X(config_release)                                                          \
    X(init_version)                                                            \
    X(cleanup)                                                                 \
    X(worker_create)                                                           \
    X(worker_destroy)                                                          \
    X(worker_get_address)                                                      \
    X(worker_release_address)                                                  \
    X(worker_get_efd)                                                          \
    X(worker_arm)                                                              \
    X(worker_progress)                                                         \
    X(ep_create)                                                               \
    X(ep_close_nbx)                                                            \
    X(tag_send_nbx)                                                            \
    X(tag_recv_nbx)                                                            \
    X(tag_probe_nb)                                                            \
    X(tag_msg_recv_nbx)                                                        \
    X(request_cancel)                                                          \
    X(request_check_status)                                                    \
    X(request_free)

/* Addresses of the UCX functions. */
typedef struct lhi_ucx_calls {
#define LHI_UCX_MEMBER(name) __typeof__(ucp_##name) *name;
    LHI_UCX_LIST(LHI_UCX_MEMBER)
#undef LHI_UCX_MEMBER
    const char *(*status_string)(ucs_status_t status);
} lhi_ucx_calls;

/* Loads the UCX library into `call`, its function table; it stays loaded.
 * LH_EUNSUPPORTED: UCX is not installed, or lacks a function. */
lh_status lhi_ucx_load(lhi_ucx_calls *calls, lh_error *err);

/* Converts a UCX status to LH_OK or LH_EIO, with UCX's message: "UCX cannot
 * `what`". */
lh_status lhi_ucx_check_status(const lhi_ucx_calls *calls, ucs_status_t status,
                               const char *what, lh_error *err);

/* Creates a UCX context and worker for tagged messages with about n_peers
 * peers, and *efd, the worker's event descriptor. `loopback`: reachable only
 * from this host. On failure *context and *worker have the objects created so
 * far. */
lh_status lhi_ucx_make_worker(const lhi_ucx_calls *calls, bool loopback,
                              uint32_t n_peers, ucp_context_h *context,
                              ucp_worker_h *worker, int *efd, lh_error *err);

#endif
#endif
