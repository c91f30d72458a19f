/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks that have joined tell each other of their rails. */
#ifndef LHI_RAIL_JOIN_H
#define LHI_RAIL_JOIN_H

#include "net/net.h"
#include "net/rails.h"

/* Opens the rails of a rank that has joined by these options, over the
 * connections that it has joined by (fds[i], -1 at its own), with their keys.
 * LH_OK: fds[i] is now its end of the stream to rank i, and the connection is
 * closed; otherwise all is as it was. */
lh_status lhi_rails_join(const lhi_tcp_options *options,
                         const unsigned char *keys, lhi_failure *failure,
                         int *fds, lhi_rails **out, lh_error *err);

#endif
