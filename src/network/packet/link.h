/* SPDX-License-Identifier: Apache-2.0 */
/* A link between two sites for the packet simulation: its network, transport
 * and message times. */
#ifndef LHI_NETWORK_PACKET_LINK_H
#define LHI_NETWORK_PACKET_LINK_H

#include "network/packet/simulation.h"

/* Fails with LH_EINVAL if any rate, delay, loss, size or number in the link's
 * load and transport setting is out of range. */
lh_status lhi_packet_link_check(const lh_packet_link *link, lh_error *err);

/* Builds the network and the transport that a link describes, with `senders`
 * sending hosts (lhi_fabric_build_site_link()). */
lh_status lhi_packet_link_build(const lh_packet_link *link, uint32_t senders,
                                lhi_arena *mem, lhi_fabric *fabric,
                                lhi_transport *transport, lh_error *err);

/* Simulates a link's messages with one seed. `record`: zeroed; NULL: none.
 * *times: start and end of *n messages, in `mem`. LH_ECANCELED: stopped by
 * `progress`. */
lh_status
lhi_packet_link_sample(const lh_packet_link *link, uint64_t seed,
                       bool (*progress)(void *context, uint64_t events),
                       void *context, lh_packet_record *record, lhi_arena *mem,
                       const lhi_message_times **times, uint32_t *n,
                       lh_packet_counters *counters, lh_error *err);

/* Adds packet counters to *sum; the longest queue is the maximum instead of the
 * sum. */
void lhi_packet_add_counters(lh_packet_counters *sum,
                             const lh_packet_counters *c);

#endif
