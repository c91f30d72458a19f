/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over the GPUs of two sites as dependent messages. */
#ifndef LHI_NETWORK_PACKET_COLLECTIVES_H
#define LHI_NETWORK_PACKET_COLLECTIVES_H

#include "network/packet/link.h"

/* Messages and their queue pairs. */
typedef struct lhi_message_set {
    lhi_packet_message *messages;
    lhi_queue_pair *pairs;
    uint32_t n_messages, n_pairs;
} lhi_message_set;

/* A collective over hosts 0 to gpus - 1 of one site and gpus to 2 * gpus - 1 of
 * the other one. */
typedef struct lhi_packet_collective {
    lh_packet_traffic kind; /* not MESSAGES */
    uint32_t gpus, queue_pairs;
    uint32_t rounds; /* of ALL_TO_ALL, in sequence; else 1 */
    double bytes;
} lhi_packet_collective;

/* Counts the messages and queue pairs of a collective. */
void lhi_collective_count(const lhi_packet_collective *collective,
                          uint64_t *n_messages, uint64_t *n_pairs);
/* Builds a collective's messages in `mem`.
 *
 * RING: one ring through all hosts, site after site. Each of 2 (n - 1) steps
 * sends an n-th of the bytes (n = 2 * gpus), when that of the step before has
 * arrived [Thakur, Rabenseifner and Gropp, Optimization of Collective
 * Communication Operations in MPICH, 2005, section 4.1].
 * HIERARCHICAL: a ring reduce-scatter within each site, an exchange of the two
 * halves of each GPU's part with its peer at the other site, and a ring
 * all-gather within each site.
 * ALL_TO_ALL: every host sends an n-th of the bytes to every other one, all at
 * once; in the next round, after all its messages of this one have arrived. */
lh_status lhi_collective_build(const lhi_packet_collective *collective,
                               lhi_arena *mem, lhi_message_set *out,
                               lh_error *err);

#endif
