/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between all members of a group at once: what collectives are made
 * of (net_collective.c, group.c). */
#ifndef LHI_NET_ROUND_H
#define LHI_NET_ROUND_H

#include "net/net.h"

/* One round of messages under one tag: member i's send and receive. */
typedef struct lhi_round {
    lhi_net *net;
    const lhi_net_group *group;
    uint64_t tag;
    lhi_net_op *sends, *receives; /* n_ranks each, zeroed; the caller's */
} lhi_round;

/* LH_EINVAL: the caller is not the member that the group says. */
lh_status lhi_round_check(const lhi_net *net, const lhi_net_group *group,
                          lh_error *err);
/* Begins to receive from, or send to, member `i`: once each in a round. */
lh_status lhi_round_receive(lhi_round *x, uint32_t i, void *data, size_t size,
                            lh_error *err);
lh_status lhi_round_send(lhi_round *x, uint32_t i, const void *data,
                         size_t size, lh_error *err);
/* Waits for those of `ops` (sends or receives of x) that were begun. */
lh_status lhi_round_wait(lhi_round *x, lhi_net_op *ops,
                         const lhi_net_stop *stop, lh_error *err);
/* Waits for all that was begun, also after a failure (`status`): then the run
 * is ended, so that no operation is left behind. */
lh_status lhi_round_end(lhi_round *x, lh_status status,
                        const lhi_net_stop *stop, lh_error *err);

/* out[k] is the sum of all members' values k, element by element in the order
 * of the members: the same sum on every member, whatever the transport. `mine`
 * are those of the caller, `others` those of the rest, n of each, one after the
 * other. `out` may be `mine`. */
void lhi_round_add(const lhi_net_group *group, const float *mine,
                   const float *others, size_t n, float *out);

#endif
