/* SPDX-License-Identifier: Apache-2.0 */
/* What a long, fast or lossy network does to one message or one collective, in
 * closed form. Pure functions; docs/theory/transport.md derives them.
 *
 *   [SX]  ScaleAcross Explorer: Exploring Communication Optimization for
 *         Scale-Across AI Model Training, 2026, sections 3 to 5
 *   [Tha] Thakur, Rabenseifner, Gropp, Optimization of Collective
 *         Communication Operations in MPICH, IJHPCA 19(1), 2005
 *   [Lev] Levin, A Representation for Multinomial Cumulative Distribution
 *         Functions, Annals of Statistics 9(5), 1981
 *   [App] Appenzeller, Keslassy, McKeown, Sizing Router Buffers, SIGCOMM 2004
 *   [SDR] Khalilov et al., SDR-RDMA: Software-Defined Reliability Architecture
 *         for Planetary Scale RDMA Communication, SC 2025
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
    LH_RING_LOCKSTEP,  /* each step waits for the slowest:
                          (n-1)/n S/b + (n-1) a   [Tha section 4.1] */
    LH_RING_PIPELINED, /* pieces of the buffer go round at the same time, so
                          the long way is waited for twice, not n-1 times:
                          (n-1)/n S/b + min(2, n-1) a + max(0, n-3) a_in */
} lh_ring;

/* All-gather or reduce-scatter of a buffer of `bytes` over `n` GPUs, on the
 * slowest flow of the ring; `inside_ns`: latency of the hops that do not cross.
 * [SX section 3.2]; loss is not looked at. */
LH_API double lh_ring_ns(lh_ring kind, uint32_t n, double bytes,
                         const lh_flow *slowest, double inside_ns);

/* Data parallelism over two groups of n/2 GPUs that are far apart: gather and
 * reduce inside each, and an all-reduce of the gradient between two GPUs that
 * stand for their groups (leaders), or between each GPU and its peer for its
 * share (sharded) [SX section 4.1]. Of one buffer of `bytes`: */
typedef struct lh_hybrid {
    double all_gather_ns, reduce_ns;
} lh_hybrid;
LH_API lh_hybrid lh_hybrid_ns(lh_ring kind, uint32_t n, double bytes,
                              const lh_flow *inside, const lh_flow *across,
                              bool sharded);

/* Packets of one flow spread over all paths: the sender stops when a window is
 * not acknowledged on each of its queue pairs, so it reaches
 * min(line, Q * window / (2 * latency)) [SX section 5.3, with the round trip
 * in place of the one-way latency]. */
LH_API double lh_spray_rate(double line_bytes_per_s, uint32_t queue_pairs,
                            double latency_ns);
/* The fewest queue pairs that reach the line's rate. */
LH_API uint32_t lh_spray_queue_pairs(double line_bytes_per_s,
                                     double latency_ns);

/* How what is lost is sent again. */
typedef enum lh_recovery {
    LH_RECOVERY_ANY,       /* not given: counted as the lost packet alone */
    LH_RECOVERY_GO_BACK_N, /* everything from the lost packet on */
    LH_RECOVERY_SELECTIVE_REPEAT, /* the lost packet */
} lh_recovery;

/* A message of `bytes` in packets, the last of them full: k packets of time t
 * each; a lost one costs its own time again, and under go-back-N a round trip
 * more:  latency + k t + k p/(1-p) (2 latency + t)  [SX section 5.2]. */
LH_API double lh_message_ns(lh_recovery recovery, double bytes,
                            const lh_flow *flow);
/* Share of the rate that is left to a flow without end. Go-back-N:
 * (1-p) / (1-p + p (W+1)) with W the packets of a round trip; selective
 * repeat: 1-p. */
LH_API double lh_flow_efficiency(lh_recovery recovery, const lh_flow *flow);

/* `flows` equal flows, each hashed onto one of `paths` equal paths, any as
 * likely: how many the busiest path is expected to have. The distribution of
 * the largest multinomial count [Lev], its sum of truncated Poisson variables
 * by saddle point; above 64 flows per path the largest of as many normal
 * variables. 0 flows or paths: 0. */
LH_API double lh_ecmp_busiest(double flows, double paths);

/* Share of packets that a block code cannot restore: of `data` packets with
 * `parity` more, any `data` restore all (Reed-Solomon, or any code that is
 * maximum distance separable, as in [SDR]); losses are independent. */
LH_API double lh_fec_residual(uint32_t data, uint32_t parity, double loss);

/* Share of a link that is used by `flows` that halve their rate when a queue
 * of `queue_bytes` signals congestion, and then add a packet per round trip:
 * a saw-tooth over the bandwidth-delay product D = bytes_per_s x round trip.
 * With b = min(1, queue x sqrt(flows) / D),
 *   ((1-b)(3+b)/8 + b + b^2/2) / ((1-b)/2 + b + b^2/2),
 * 3/4 without a queue and 1 from a whole D on, which is the rule of [App] for
 * one flow and for many that take turns; docs/theory/transport.md derives what
 * is between. */
LH_API double lh_congestion_share(double bytes_per_s, double latency_ns,
                                  double queue_bytes, double flows);

/* ---- What the ends of a link between sites are set to ---- */

/* Every field at 0: not given. A setting of which nothing is given loses
 * what is lost, shares evenly what there is, and has no other limit. */
typedef enum lh_balancing {
    LH_BALANCING_ANY,   /* not given: as if all paths were one */
    LH_BALANCING_ECMP,  /* each queue pair is hashed onto one path */
    LH_BALANCING_SPRAY, /* packets go over all paths */
} lh_balancing;

typedef enum lh_congestion {
    LH_CONGESTION_ANY, /* not given: counted as off */
    LH_CONGESTION_OFF, /* senders do not slow down; nothing says that the
                          queues hold what that brings */
    LH_CONGESTION_ON,  /* senders halve their rate on a signal (ECN) */
} lh_congestion;

typedef struct lh_link_setting {
    lh_balancing balancing;
    lh_congestion congestion;
    lh_recovery recovery;
    uint32_t queue_pairs; /* between two GPUs; 0: 1 */
    uint32_t paths;       /* equal ones that the link consists of; 0: 1 */
    uint32_t fec_data, fec_parity; /* packets of a block; 0: none */
    double window_bytes; /* unacknowledged per queue pair; 0: LH_WINDOW_BYTES
                            where packets are sprayed, else no limit */
    double queue_bytes;  /* queue at which congestion is signalled; 0: 2 MiB,
                            an assumption */
} lh_link_setting;

#define LH_QUEUE_BYTES (512 * 4096.0)

/* True where nothing is given. */
LH_API bool lh_link_setting_is_default(const lh_link_setting *setting);

/* A link in one direction, and what goes over it. */
typedef struct lh_link_load {
    double line_bytes_per_s; /* of all its paths together */
    double latency_ns;       /* one way */
    double return_ns;        /* the way back; 0: as long */
    double loss;             /* of packets, 0..1 */
    double oversubscription; /* >= 1: others' demand */
    double senders;          /* GPUs that send at once, equal amounts */
    double own_bytes_per_s;  /* of a sender's interface; 0: no limit */
    double message_bytes;    /* that one sender sends in one piece; 0: none */
} lh_link_load;

/* Which of the numbers below is the rate's bound. */
typedef enum lh_link_limit {
    LH_LIMIT_SHARE,  /* the sender's share of the link, or of its path */
    LH_LIMIT_OWN,    /* its interface */
    LH_LIMIT_WINDOW, /* what may be unacknowledged */
} lh_link_limit;

/* Of each sender. Rates before what redundancy and repeating take. */
typedef struct lh_link_effect {
    double share_bytes_per_s;  /* line / oversubscription / senders */
    double busiest_flows;      /* on the busiest path; spread evenly there
                                  would be senders x queue_pairs / paths */
    double balance_share;      /* even / busiest: what hashing leaves */
    double window_bytes_per_s; /* queue_pairs x window / round trip; INFINITY */
    double congestion_share;   /* 1 where the link is not the bottleneck */
    lh_link_limit limit;
    double wire_bytes_per_s; /* least of the above, in packets of any kind */
    double fec_share;        /* data among data and parity */
    double loss;             /* of packets, after the code */
    double recovery_share;   /* what repeating leaves */
    double bytes_per_s;      /* of the message's own bytes: wire x fec x
                                recovery */
    /* Bytes on the way at that rate, one way: a message of n times as many
     * reaches n/(n+1) of it [SX section 5.1]. */
    double in_flight_bytes;
    double message_ns;          /* latency included; 0 without a message */
    double message_bytes_per_s; /* message / time */
} lh_link_effect;

/* What a setting comes to. A sender's queue pairs share its rate evenly, and
 * each repeats only its own losses; that the slowest of them is later than
 * their mean is left out. LH_EINVAL: numbers that make no sense. */
LH_API lh_status lh_cost_link_setting(const lh_link_load *use,
                                      const lh_link_setting *setting,
                                      lh_link_effect *out, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
