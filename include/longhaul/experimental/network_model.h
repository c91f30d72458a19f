/* SPDX-License-Identifier: Apache-2.0 */
/* Closed forms for one message or collective on a long, fast or lossy network.
 * Pure functions; docs/theory/transport.md derives them.
 *
 *     [SX]  ScaleAcross Explorer: Exploring Communication Optimization for
 *           Scale-Across AI Model Training, 2026, sections 3 to 5
 *     [Tha] Thakur, Rabenseifner, Gropp, Optimization of Collective
 *           Communication Operations in MPICH, IJHPCA 19(1), 2005
 *     [Lev] Levin, A Representation for Multinomial Cumulative Distribution
 *           Functions, Annals of Statistics 9(5), 1981
 *     [App] Appenzeller, Keslassy, McKeown, Sizing Router Buffers, SIGCOMM 2004
 *     [SDR] Khalilov et al., SDR-RDMA: Software-Defined Reliability
 *           Architecture for Planetary Scale RDMA Communication, SC 2025
 *
 * Rates are bytes per second, times nanoseconds, latencies one-way. Invalid
 * arguments (a rate of 0, a loss of 1) give INFINITY.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_NETWORK_MODEL_H
#define LONGHAUL_EXPERIMENTAL_NETWORK_MODEL_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LH_PACKET_BYTES 4096.0         /* RDMA over Ethernet */
#define LH_WINDOW_BYTES (512 * 4096.0) /* unacknowledged, per queue pair */

/* A flow's rate, latency and loss. */
typedef struct lh_flow {
    double bytes_per_s; /* while sending */
    double latency_ns;
    double loss; /* packet loss, 0..1 */
} lh_flow;

/* Pipelining between the steps of a ring collective. */
typedef enum lh_ring {
    LH_RING_LOCKSTEP, /* each step waits for the slowest: (n-1)/n S/b + (n-1) a
                       * [Tha section 4.1] */
    /* buffer pieces circulate concurrently, so the long hop's latency
     * counts twice, not n-1 times: (n-1)/n S/b + min(2, n-1) a + max(0, n-3)
     * a_in */
    LH_RING_PIPELINED,
} lh_ring;

/* Computes the time for an all-gather or reduce-scatter of `bytes` over `n`
 * GPUs, limited by the ring's slowest flow. `inside_ns`: hop latency within a
 * site. Loss is ignored. [SX section 3.2] */
LH_API double lh_ring_ns(lh_ring kind, uint32_t n, double bytes,
                         const lh_flow *slowest, double inside_ns);

/* Hierarchical data parallelism's cost over two distant groups with n/2 GPUs
 * each: gather and reduce within a group, then all-reduce of the gradient
 * between groups. The latter runs between two leader GPUs, or between each GPU
 * and its peer for its shard (`sharded`) [SX section 4.1]. For one buffer of
 * `bytes`: */
typedef struct lh_hybrid {
    double all_gather_ns, reduce_ns;
} lh_hybrid;
/* Computes data parallelism's times in two groups of n / 2 GPUs. These are
 * gathers and reductions within a group (`inside`), and the gradient sum
 * between the groups (`across`). With `sharded` each GPU sums its shard only.
 * */
LH_API lh_hybrid lh_hybrid_ns(lh_ring kind, uint32_t n, double bytes,
                              const lh_flow *inside, const lh_flow *across,
                              bool sharded);

/* Returns the rate in bytes/s for a flow whose packets are sprayed over all
 * paths of a link with rate `line_bytes_per_s`. The sender stops when each of
 * its Q queue pairs has a full unacknowledged window. The rate is min(line, Q *
 * window / (2 * latency)) [SX section 5.3, with the round trip instead of the
 * one-way latency]. */
LH_API double lh_spray_rate(double line_bytes_per_s, uint32_t queue_pairs,
                            double latency_ns);
/* Returns the fewest queue pairs with which a sprayed flow reaches
 * the line's rate, line_bytes_per_s, at this one-way latency. */
LH_API uint32_t lh_spray_queue_pairs(double line_bytes_per_s,
                                     double latency_ns);

/* Loss recovery methods. */
typedef enum lh_recovery {
    LH_RECOVERY_ANY,       /* not given: modelled as selective repeat */
    LH_RECOVERY_GO_BACK_N, /* resend everything from the lost packet on */
    LH_RECOVERY_SELECTIVE_REPEAT, /* resend the lost packet */
} lh_recovery;

/* Computes the time for a message of `bytes` in k full packets with time t
 * each. A lost packet costs its own time again and, with go-back-N, another
 * round trip: latency + k t + k p/(1-p) (2 latency + t) [SX section 5.2]. */
LH_API double lh_message_ns(lh_recovery recovery, double bytes,
                            const lh_flow *flow);

/* ---- Endpoint settings for a link between sites ---- */

/* Load balancing over a link's paths, one of several endpoint settings in
 * lh_link_setting. In all settings, 0: not given. An empty setting means:
 * losses are not recovered, capacity is shared evenly, no other limit applies.
 */
typedef enum lh_balancing {
    LH_BALANCING_ANY,   /* not given: as a single path */
    LH_BALANCING_ECMP,  /* each queue pair is hashed onto one path */
    LH_BALANCING_SPRAY, /* packets go over all paths */
} lh_balancing;

/* Congestion control settings. */
typedef enum lh_congestion {
    LH_CONGESTION_ANY, /* not given: treated as off */
    LH_CONGESTION_OFF, /* senders do not slow down; queue overflow is not
                        * modelled */
    LH_CONGESTION_ON,  /* senders halve their rate on a signal (ECN) */
} lh_congestion;

/* A link's endpoint settings. */
typedef struct lh_link_setting {
    lh_balancing balancing;
    lh_congestion congestion;
    lh_recovery recovery;
    uint32_t queue_pairs;          /* between two GPUs; 0: 1 */
    uint32_t paths;                /* equal path count; 0: 1 */
    uint32_t fec_data, fec_parity; /* packets per block; 0: none */
    /* unacknowledged bytes per queue pair; 0: LH_WINDOW_BYTES if packets are
     * sprayed, else unlimited */
    double window_bytes;
    double queue_bytes; /* queue size that signals congestion; 0: 2 MiB, an
                         * assumption */
    /* NCCL's ends: channels between two GPUs, each with a send buffer
     * (NCCL_BUFFSIZE) that limits its bytes in flight. 0 channels: other ends,
     * without this limit. */
    uint32_t channels;
    double buffer_bytes; /* per channel; 0: LH_NCCL_BUFFER_BYTES */
    /* TCP connections per channel (NCCL_SOCKET_NTHREADS times
     * NCCL_NSOCKS_PERTHREAD); 0: RDMA, without TCP windows */
    uint32_t sockets;
    double tcp_window_bytes; /* per connection; 0: LH_TCP_WINDOW_BYTES */
} lh_link_setting;

/* An RDMA connection's default send queue: 512 packets of 4096 bytes. */
#define LH_QUEUE_BYTES (512 * 4096.0)
/* NCCL's default (DEFAULT_BUFFSIZE in src/init.cc of NCCL 5067397). */
#define LH_NCCL_BUFFER_BYTES 4194304.0
/* Linux's default maximum of a TCP send buffer (net.ipv4.tcp_wmem, tcp(7)). */
#define LH_TCP_WINDOW_BYTES 4194304.0

/* Returns NCCL's default channel count between two GPUs over the network:
 * one for each 14 GB/s of the interface's rate interface_bytes_per_s; 2 if that
 * is 0, unknown (ncclTopoGetNchannels() in src/graph/paths.cc of NCCL 5067397).
 */
LH_API uint32_t lh_nccl_channels(double interface_bytes_per_s);
/* Returns the bytes that NCCL's end points allow in flight between two GPUs:
 * channels times the smaller of a buffer and the TCP windows. INFINITY: no
 * number of channels is set. */
LH_API double lh_nccl_window_bytes(const lh_link_setting *setting);

/* Checks whether a link setting is the default: all fields are 0. */
LH_API bool lh_link_setting_is_default(const lh_link_setting *setting);

/* A link in one direction and its load. */
typedef struct lh_link_load {
    double line_bytes_per_s; /* all paths together */
    double latency_ns;       /* one way */
    double return_ns;        /* reverse direction; 0: the same */
    double loss;             /* packet loss, 0..1 */
    double oversubscription; /* >= 1: competing demand */
    double senders;          /* GPUs that send concurrently, equal amounts */
    double interface_bytes_per_s; /* sender's network interface; 0: no limit */
    double message_bytes; /* bytes per message from one sender; 0: none */
} lh_link_load;

/* What limits the rate. */
typedef enum lh_link_limit {
    LH_LIMIT_SHARE,     /* sender's share of the link or of its path */
    LH_LIMIT_INTERFACE, /* its network interface */
    LH_LIMIT_WINDOW,    /* unacknowledged window */
} lh_link_limit;

/* Predicted effect per sender. Rates are before redundancy and retransmission.
 */
typedef struct lh_link_effect {
    double share_bytes_per_s;  /* line / oversubscription / senders */
    double busiest_flows;      /* flows on the busiest path; if spread evenly:
                                * senders x queue_pairs / paths */
    double balance_share;      /* even / busiest: hashing efficiency */
    double window_bytes_per_s; /* queue_pairs x window or NCCL's window, by the
                                * round trip; INFINITY */
    double congestion_share;   /* 1 if the link is not the bottleneck */
    lh_link_limit limit;
    double wire_bytes_per_s; /* minimum of the above, counting all packets */
    double fec_share;        /* data / (data + parity) */
    double loss;             /* packet loss after decoding */
    double recovery_share;   /* fraction left after retransmission */
    double bytes_per_s;      /* goodput: wire x fec x recovery */
    /* Bytes in flight at that rate, one way. A message n times as large reaches
     * n/(n+1) of the rate [SX section 5.1]. */
    double in_flight_bytes;
    double message_ns;          /* latency included; 0 without a message */
    double message_bytes_per_s; /* message bytes / time */
} lh_link_effect;

#ifdef __cplusplus
}
#endif
#endif
