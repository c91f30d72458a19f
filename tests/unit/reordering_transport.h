/* SPDX-License-Identifier: Apache-2.0 */
/* A transport with legal reordering: wraps an endpoint and randomly delays the
 * start of sends and receives. Messages with different tags or peers overtake
 * each other; those with the same peer and tag stay in order. Users must
 * produce the same bytes over it. */
#ifndef REORDERING_TRANSPORT_H
#define REORDERING_TRANSPORT_H

#include "runtime/transport/transport.h"

/* Options for a delaying endpoint; context for late_net_rank. */
typedef struct reordering_transport {
    uint64_t seed;
    int64_t most_ns; /* maximum delay */
    lhi_rank_main *rank_main;
    void *context;
} reordering_transport;

/* An lhi_rank_main: runs a reordering_transport's rank_main over the delaying
 * endpoint. */
lh_status late_net_rank(lhi_net *net, void *of, char **result, size_t *size,
                        lh_error *err);

/* Returns the next pseudo-random number (chance), or one below n
 * (chance_below). */
uint64_t chance(uint64_t *state);
uint64_t chance_below(uint64_t *state, uint64_t n);

#endif
