/* SPDX-License-Identifier: Apache-2.0 */
/* Formulas for network links: flows, paths, error correction, congestion. */
#ifndef LHI_MODEL_LINK_SETTINGS_H
#define LHI_MODEL_LINK_SETTINGS_H

#include <longhaul/experimental/network_model.h>

/* Returns the fraction of the line rate that an endless flow reaches despite
 * loss p. Go-back-N: (1-p) / (1-p + p (W+1)) with W packets per round trip;
 * selective repeat: 1-p. */
double lhi_flow_efficiency(lh_recovery recovery, const lh_flow *flow);

/* Returns the expected flow count on the busiest path when `flows` equal flows
 * are hashed uniformly onto `paths` equal paths. Distribution of the largest
 * multinomial count [Lev], with the sum of truncated Poisson variables by
 * saddle point. Above 64 flows per path: the largest of as many normal
 * variables. 0 flows or paths: 0. */
double lhi_ecmp_busiest_path_flows(double flows, double paths);

/* Returns the fraction of packets that a block code cannot restore. Any `data`
 * packets out of data + parity restore all (Reed-Solomon, or any maximum
 * distance separable code, as in [SDR]); losses are independent. */
double lhi_fec_residual(uint32_t data, uint32_t parity, double loss);

/* Returns a link's utilisation by `flows` that halve their rate when a
 * queue of `queue_bytes` signals congestion, and then add one packet per round
 * trip: a saw-tooth over the bandwidth-delay product D = bytes_per_s x round
 * trip. With b = min(1, queue x sqrt(flows) / D),
 *
 *     ((1-b)(3+b)/8 + b + b^2/2) / ((1-b)/2 + b + b^2/2),
 *
 * 3/4 without a queue, and 1 from a full D on. This is the rule of [App] for
 * one flow and for many desynchronised flows; docs/theory/transport.md derives
 * the values between. */
double lhi_congestion_share(double bytes_per_s, double latency_ns,
                            double queue_bytes, double flows);

/* A message over several queue pairs, whose packets alternate. */
typedef struct lhi_long_message {
    lh_recovery recovery;
    double bytes, bytes_per_s; /* while sending */
    double queue_pairs;
    double window_bytes; /* unacknowledged, all queue pairs; INFINITY */
    double latency_ns, round_trip_ns;
    double loss;       /* packet loss, 0..1 */
    double reorder_ns; /* until a gap counts as a loss */
} lhi_long_message;

/* Returns a message's mean time from its first packet's departure to its last
 * packet's arrival: sending by windows, and the round trips that losses add.
 * Derivation and error against the packet simulation:
 * docs/theory/packets.md. */
double lhi_estimate_message_ns(const lhi_long_message *message);

/* Computes a link setting's effect on a sender's rate and on a message's time.
 * A sender's queue pairs share its rate evenly, and each retransmits only its
 * own losses; the delay of the slowest one over their mean is neglected.
 * LH_EINVAL: invalid numbers. */
lh_status lhi_cost_link_setting(const lh_link_load *use,
                                const lh_link_setting *setting,
                                lh_link_effect *out, lh_error *err);

#endif
