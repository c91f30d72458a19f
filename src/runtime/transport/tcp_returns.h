/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of ranks that come back, for example because their host was lost,
 * while other processes run in their place. They try to join over TCP. Rank 0
 * listens for them during the run, without a thread of its own. */
#ifndef LHI_RUNTIME_TRANSPORT_TCP_RETURNS_H
#define LHI_RUNTIME_TRANSPORT_TCP_RETURNS_H

#include "runtime/transport/transport.h"

typedef struct lhi_tcp_returns lhi_tcp_returns;

/* Starts to listen at rank 0's address, which must be free: after all ranks
 * have joined. is_replaced: per rank, whether another process runs in its
 * place. `options` must outlive the object. */
lh_status lhi_tcp_returns_open(const lhi_tcp_options *options,
                               const bool *is_replaced, lhi_tcp_returns **out,
                               lh_error *err);
/* Serves the connections without waiting. Returns a replaced rank whose process
 * has proved that it has the run's secret and setup; UINT32_MAX: none. That
 * process's connection is closed, after which it tries again to join. */
uint32_t lhi_tcp_returns_poll(lhi_tcp_returns *returns);
/* Stops listening and frees the object; NULL is allowed. */
void lhi_tcp_returns_close(lhi_tcp_returns *returns);

#endif
