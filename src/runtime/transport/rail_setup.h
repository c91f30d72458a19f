/* SPDX-License-Identifier: Apache-2.0 */
/* Exchange of rail addresses between ranks that have joined. */
#ifndef LHI_RUNTIME_TRANSPORT_RAIL_SETUP_H
#define LHI_RUNTIME_TRANSPORT_RAIL_SETUP_H

#include "runtime/transport/rails.h"
#include "runtime/transport/transport.h"

/* Opens the rails (parallel connections) of a rank that has joined the job,
 * over its connections fds[i] to rank i (-1 at its own) and their keys. LH_OK:
 * fds[i] is now the stream to rank i over the rails, and the connection is
 * closed; otherwise nothing has changed. */
lh_status lhi_rails_setup(const lhi_tcp_options *options,
                          const unsigned char *keys, lhi_failure *failure,
                          int *fds, lhi_rails **out, lh_error *err);

#endif
