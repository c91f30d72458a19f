/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces over the GPUs of two sites as dependent messages. */
#ifndef LHI_NETWORK_PACKET_ALL_REDUCE_H
#define LHI_NETWORK_PACKET_ALL_REDUCE_H

#include "network/packet/link.h"

/* Messages and their queue pairs. */
typedef struct lhi_message_set {
    lhi_packet_message *messages;
    lhi_queue_pair *pairs;
    uint32_t n_messages, n_pairs;
} lhi_message_set;

/* Counts the messages and queue pairs of an all-reduce over 2 * gpus GPUs. */
void lhi_all_reduce_count(lh_packet_traffic kind, uint64_t gpus,
                          uint64_t queue_pairs, uint64_t *n_messages,
                          uint64_t *n_pairs);
/* Builds an all-reduce of `bytes` bytes over hosts 0 to gpus - 1 of one site
 * and gpus to 2 * gpus - 1 of the other one, in `mem`.
 *
 * RING: one ring through all hosts, site after site. Each of 2 (n - 1) steps
 * sends an n-th of the bytes (n = 2 * gpus), when that of the step before has
 * arrived [Thakur, Rabenseifner and Gropp, Optimization of Collective
 * Communication Operations in MPICH, 2005, section 4.1].
 * HIERARCHICAL: a ring reduce-scatter within each site, an exchange of the two
 * halves of each GPU's part with its peer at the other site, and a ring
 * all-gather within each site. */
lh_status lhi_all_reduce_build(lh_packet_traffic kind, uint32_t gpus,
                               uint32_t queue_pairs, double bytes,
                               lhi_arena *mem, lhi_message_set *out,
                               lh_error *err);

#endif
