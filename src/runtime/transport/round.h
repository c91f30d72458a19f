/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of messages between all group members, the basis of the collectives
 * (collective.c, group.c). */
#ifndef LHI_RUNTIME_TRANSPORT_ROUND_H
#define LHI_RUNTIME_TRANSPORT_ROUND_H

#include "runtime/transport/transport.h"

/* One round under one tag: a send and a receive per member. */
typedef struct lhi_round {
    lhi_net *net;
    const lhi_net_group *group;
    uint64_t tag;
    lhi_net_op *sends, *receives; /* n_ranks each, zeroed; caller's */
    int64_t posted_ns;            /* first receive, if the group has hops */
} lhi_round;

/* Checks that the caller's rank is member g->mine of the group; else
 * LH_EINVAL. */
lh_status lhi_round_check(const lhi_net *net, const lhi_net_group *group,
                          lh_error *err);
/* Starts the receive of `size` bytes from member `i`, at most once per round
 * (one collective's sends and receives). */
lh_status lhi_round_receive(lhi_round *x, uint32_t i, void *data, size_t size,
                            lh_error *err);
/* Starts the send of `size` bytes to member `i`, at most once per round (one
 * collective's sends and receives). */
lh_status lhi_round_send(lhi_round *x, uint32_t i, const void *data,
                         size_t size, lh_error *err);
/* Waits for the started operations in `ops`, the sends or the receives of the
 * round (one collective), or until `stop` requests a stop. */
lh_status lhi_round_wait(lhi_round *x, lhi_net_op *ops,
                         const lhi_net_stop *stop, lh_error *err);
/* Waits for all started sends and receives of the round. After a failure
 * (`status`) it ends the run, so that none remains pending. */
lh_status lhi_round_end(lhi_round *x, lh_status status,
                        const lhi_net_stop *stop, lh_error *err);

/* Computes out[k] as the sum over all members' values k, in member order: equal
 * on every member and transport. `mine` has the caller's n values, `others`
 * each other member's in turn. `out` may be `mine`. */
void lhi_round_add(const lhi_net_group *group, const float *mine,
                   const float *others, size_t n, float *out);

#endif
