/* SPDX-License-Identifier: Apache-2.0 */
/* What any transport may do to messages without being wrong: an endpoint around
 * another one, which hands over sends and receives later than it is asked to,
 * by chance. Messages of different tags and peers overtake each other; those of
 * one peer and tag stay in order. Whoever uses the endpoint has to come to the
 * same bytes. */
#ifndef LATE_NET_H
#define LATE_NET_H

#include "runtime/transport/transport.h"

typedef struct late_net {
    uint64_t seed;
    int64_t most_ns; /* by which something is late */
    lhi_rank_main *rank_main;
    void *context;
} late_net;

/* An lhi_rank_main: with a late_net, its rank_main over such an endpoint. */
lh_status late_net_rank(lhi_net *net, void *of, char **result, size_t *size,
                        lh_error *err);

/* The next of a row of numbers that look random, and one below n. */
uint64_t chance(uint64_t *state);
uint64_t chance_below(uint64_t *state, uint64_t n);

#endif
