/* SPDX-License-Identifier: Apache-2.0 */
/* What a long, fast or lossy network does to one message or one collective, in
 * closed form. Pure functions; docs/theory/transport.md derives them.
 *
 *   [SX]  ScaleAcross Explorer: Exploring Communication Optimization for
 *         Scale-Across AI Model Training, 2026, sections 3 and 5
 *   [Tha] Thakur, Rabenseifner, Gropp, Optimization of Collective
 *         Communication Operations in MPICH, IJHPCA 19(1), 2005
 *
 * Rates are bytes per second, times nanoseconds, latencies one-way. Arguments
 * that make no sense (a rate of 0, a loss of 1) give INFINITY. */
#ifndef LONGHAUL_TRANSPORT_H
#define LONGHAUL_TRANSPORT_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LH_PACKET_BYTES 4096.0         /* of RDMA over Ethernet */
#define LH_WINDOW_BYTES (512 * 4096.0) /* unacknowledged, per queue pair */

typedef struct lh_flow {
    double bytes_per_s; /* while it sends */
    double latency_ns;
    double loss; /* of packets, 0..1 */
} lh_flow;

/* How the steps of a ring follow one another. */
typedef enum lh_ring {
    LH_RING_PIPELINED, /* pieces of the buffer go round at the same time, so
                          the long way is waited for twice, not n-1 times:
                          (n-1)/n S/b + min(2, n-1) a + max(0, n-3) a_in */
    LH_RING_LOCKSTEP,  /* each step waits for the slowest:
                          (n-1)/n S/b + (n-1) a   [Tha section 4.1] */
} lh_ring;

/* All-gather or reduce-scatter of a buffer of `bytes` over `n` GPUs, on the
 * slowest flow of the ring; `inside_ns`: latency of the hops that do not cross.
 * [SX section 3.1]; loss is not looked at. */
LH_API double lh_ring_ns(lh_ring kind, uint32_t n, double bytes,
                         const lh_flow *slowest, double inside_ns);

/* Data parallelism over two groups of n/2 GPUs that are far apart: gather and
 * reduce inside each, and an all-reduce of the gradient between two GPUs that
 * stand for their groups (leaders), or between each GPU and its peer for its
 * share (sharded) [SX section 3.4]. Of one buffer of `bytes`: */
typedef struct lh_hybrid {
    double all_gather_ns, reduce_ns;
} lh_hybrid;
LH_API lh_hybrid lh_hybrid_ns(lh_ring kind, uint32_t n, double bytes,
                              const lh_flow *inside, const lh_flow *across,
                              bool sharded);

/* Packets of one flow spread over all paths: the sender stops when a window is
 * not acknowledged on each of its queue pairs, so it reaches
 * min(line, Q * window / (2 * latency)) [SX section 3.2, with the round trip
 * in place of the one-way latency]. */
LH_API double lh_spray_rate(double line_bytes_per_s, uint32_t queue_pairs,
                            double latency_ns);
/* The fewest queue pairs that reach the line's rate. */
LH_API uint32_t lh_spray_queue_pairs(double line_bytes_per_s,
                                     double latency_ns);

/* How what is lost is sent again. */
typedef enum lh_recovery {
    LH_GO_BACK_N,        /* everything from the lost packet on */
    LH_SELECTIVE_REPEAT, /* the lost packet */
} lh_recovery;

/* A message of `bytes` in packets, the last of them full: k packets of time t
 * each; a lost one costs its own time again, and under go-back-N a round trip
 * more:  latency + k t + k p/(1-p) (2 latency + t)  [SX section 3.3]. */
LH_API double lh_message_ns(lh_recovery recovery, double bytes,
                            const lh_flow *flow);
/* Share of the rate that is left to a flow without end. Go-back-N:
 * (1-p) / (1-p + p (W+1)) with W the packets of a round trip; selective
 * repeat: 1-p. */
LH_API double lh_flow_efficiency(lh_recovery recovery, const lh_flow *flow);

#ifdef __cplusplus
}
#endif
#endif
