/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates messages over a link between two sites, packet by packet: queues,
 * losses, hashing, windows, recovery and congestion control. Model:
 * docs/theory/packets.md.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_PACKETS_H
#define LONGHAUL_EXPERIMENTAL_PACKETS_H

#include <longhaul/experimental/network_model.h>
#include <longhaul/plan.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A sender's congestion control. */
typedef enum lh_packet_control {
    LH_CONTROL_NONE,
    LH_CONTROL_DCQCN, /* rate, by ECN marks [Zhu et al., SIGCOMM 2015] */
    LH_CONTROL_DELAY, /* window, by round-trip times [Kumar et al., Swift,
                       * SIGCOMM 2020] */
    LH_N_CONTROLS
} lh_packet_control;
/* Returns a congestion control's name, as in options and output: "none",
 * "dcqcn" or "delay". */
LH_API const char *lh_packet_control_name(lh_packet_control control);

/* Messages that GPUs of two sites send. */
typedef enum lh_packet_traffic {
    /* each of `senders` GPUs sends `messages` messages, one after the other, to
     * its own receiver at the other site */
    LH_TRAFFIC_MESSAGES,
    /* all-reduces of message_bytes over `senders` GPUs at each site: one ring
     * through all GPUs; rings within the sites and an exchange of parts between
     * them */
    LH_TRAFFIC_RING,
    LH_TRAFFIC_HIERARCHICAL,
    /* `messages` all-to-alls in sequence: each of `senders` GPUs at each site
     * sends message_bytes, in equal parts to all GPUs, of which it keeps its
     * own */
    LH_TRAFFIC_ALL_TO_ALL,
    LH_N_TRAFFICS
} lh_packet_traffic;
/* Returns a traffic's name, as in options and output: "messages", "ring",
 * "hierarchical" or "all-to-all". */
LH_API const char *lh_packet_traffic_name(lh_packet_traffic traffic);

/* A link between two sites, and the messages that cross it. */
typedef struct lh_packet_link {
    lh_link_load load;       /* message_bytes above 0 */
    lh_link_setting setting; /* `congestion` is not read */
    /* Adaptive routing: a sprayed packet takes the path with the shortest queue
     * instead of a random one. Needs LH_BALANCING_SPRAY. */
    bool is_adaptive;
    lh_packet_control control;
    lh_packet_traffic traffic;
    uint32_t messages;    /* of each sender, or all-to-alls; 0: 1 */
    double burst;         /* mean consecutive losses; 0: independent
                           * losses */
    int64_t variation_ns; /* mean of an exponential additional latency of each
                           * packet; packets of a path stay in order */
    double buffer_bytes;  /* of a path's queue; 0: the data of a round trip */
    /* Memory of each site's switch, which its queues share; 0: only
     * buffer_bytes. A queue holds up to switch_share (0: 1) times the free
     * memory. */
    double switch_bytes, switch_share;
    /* Priority flow control (PFC): a switch drops no packet, but pauses an
     * incoming link whose packets hold more than switch_share times the free
     * memory. Needs switch_bytes. */
    bool pauses;
    /* Without progress, until packets are sent again; 0: four round trips. */
    int64_t timeout_ns;
    /* Rate of all GPUs' interfaces at a site by the rate of the ports between
     * their switch and the switch at the link's end, 1 or more; a port for each
     * interface's rate. Queues are as those of the link's paths. 0: one switch
     * at each site. */
    double site_oversubscription;
    /* Paths that fail in both directions, fewer than the setting's paths: from
     * failure_ns on they lose all packets, and reroute_ns later the switches
     * use the other paths. */
    uint32_t failed_paths;
    int64_t failure_ns, reroute_ns;
    /* Other jobs: GPUs at each site, each sending to one at the other site over
     * the same link, with the same transport. With other_load they start
     * messages of other_bytes (0: message_bytes) as a Poisson process; together
     * they offer this share of the link's capacity. Without, each sends until
     * the link's own messages have arrived. Counters include their packets. */
    uint32_t other_gpus;
    double other_load, other_bytes;
} lh_packet_link;

/* A simulation's counts. sent = delivered + lost + dropped. */
typedef struct lh_packet_counters {
    uint64_t sent;          /* data packets, with parity and repeated ones */
    uint64_t delivered;     /* data packets that reached the receiver */
    uint64_t lost;          /* data packets lost on links */
    uint64_t dropped;       /* data packets dropped at full queues */
    uint64_t retransmitted; /* data packets sent again */
    uint64_t unneeded;      /* data packets delivered, but rejected */
    uint64_t acks, lost_acks;
    uint64_t marked;   /* data packets with an ECN mark */
    uint64_t timeouts; /* that sent packets again */
    uint64_t max_queue_bytes;
    uint64_t pauses, paused_ns; /* of links by PFC; time summed over links */
    uint64_t max_switch_bytes;  /* of shared memory in use at a switch */
    uint64_t events;
} lh_packet_counters;

/* Most intervals of a record over time. */
#define LH_PACKET_INTERVALS 400u

/* Packets of one interval of time, all queues and paths of a link together. */
typedef struct lh_packet_interval {
    uint64_t delivered_bytes; /* of data packets, with repeated ones */
    uint64_t retransmitted;   /* data packets sent again */
    uint64_t missing;         /* data packets lost or dropped */
    uint64_t queue_bytes;     /* longest queue of a switch */
} lh_packet_interval;

/* A simulation over time: n intervals of equal width from its start on. */
typedef struct lh_packet_record {
    uint64_t width_ps;
    uint32_t n;
    lh_packet_interval intervals[LH_PACKET_INTERVALS];
} lh_packet_record;

/* Measured on a simulated link, over all seeds. */
typedef struct lh_packet_result {
    /* Time of a message from the moment at which it can be sent to its last
     * packet's arrival, or of all collectives: mean, median, 99th percentile
     * and maximum. */
    double mean_ns, median_ns, p99_ns, max_ns;
    /* Time until all messages have arrived: mean, least and greatest of the
     * seeds. */
    double end_ns, least_end_ns, greatest_end_ns;
    /* Bytes of a sender, or of all collectives, by end_ns. */
    double bytes_per_s;
    /* A message's mean time, or the collectives' without loss, by the closed
     * form (docs/theory/transport.md). */
    double closed_form_ns;
    lh_packet_counters counters; /* sums; the longest queue */
} lh_packet_result;

/* A run's settings. */
typedef struct lh_packet_run {
    size_t size;      /* sizeof(lh_packet_run) */
    uint64_t seed;    /* the first one */
    uint32_t n_seeds; /* 1 to 256; 0: 1 */
    uint32_t threads; /* 0: one for each processor; the result is the same */
    /* Called on the calling thread, some times a second: `done` of `total`
     * simulations (a link with a seed) have ended. true: stop with
     * LH_ECANCELED. NULL: never. */
    bool (*progress)(void *context, uint32_t done, uint32_t total);
    void *context;
    /* One for each link, with its first seed over time; NULL: none. */
    lh_packet_record *records;
} lh_packet_run;

/* Simulates messages over each of n long links packet by packet, with every
 * seed of `run`; out[i]: times, rate and packet counters of links[i].
 * LH_EINVAL: a value is out of range; LH_ECANCELED: stopped by the progress
 * callback. out[i] of a link with all its seeds simulated is filled before the
 * next link begins, also if the call fails later; other links' stay. */
LH_API lh_status lh_packets_simulate_links(const lh_packet_link *links,
                                           uint32_t n, const lh_packet_run *run,
                                           lh_packet_result *out,
                                           lh_error *err);

struct lh_profile_link;

/* --- the messages of a plan ----------------------------------------------- */

/* Settings of a plan's simulation. */
typedef struct lh_packet_plan_run {
    size_t size;      /* sizeof(lh_packet_plan_run) */
    uint64_t seed;    /* of the first iteration */
    uint32_t n_seeds; /* iterations, one for each seed: 1 to 256; 0: 1 */
    uint32_t threads; /* 0: one for each processor; the result is the same */
    /* Messages of each sender that are simulated on a link; the times of all
     * others are drawn from theirs. LH_PACKET_ALL: simulate all messages, each
     * when the schedule sends it. 0: all, unless the packets of an iteration
     * are more than LH_PACKET_MOST; else LH_PACKET_SAMPLE. */
    uint32_t sample;
    /* As in lh_packet_run; `done` of `total` iterations. */
    bool (*progress)(void *context, uint32_t done, uint32_t total);
    void *context;
} lh_packet_plan_run;

#define LH_PACKET_ALL UINT32_MAX
#define LH_PACKET_MOST 10000000.0 /* some seconds */
#define LH_PACKET_SAMPLE 4u

/* A link in one direction, and a plan's messages on it. */
typedef struct lh_packet_plan_link {
    char name[256];       /* as in the pipeline: "west>east" */
    uint32_t messages;    /* of one replica in an iteration */
    uint32_t replicas;    /* that send at the same time */
    uint32_t gpus;        /* that send a replica's message */
    double message_bytes; /* of a replica's message */
    double planned_ns;    /* a message's time by the plan's closed form */
    /* By packets, from the time at which the plan sends a message of the first
     * replica to its last packet's arrival, over the iterations. */
    double mean_ns, p95_ns, max_ns;
    lh_packet_counters counters; /* sums; the longest queue */
    lh_packet_record record; /* of the first seed; of a sample, its own time */
} lh_packet_plan_link;

/* A plan's iteration with its messages between datacenters simulated packet by
 * packet. */
typedef struct lh_packet_plan {
    int64_t planned_ns; /* the iteration, messages by the closed form */
    double mean_ns;     /* by packets, over the iterations */
    int64_t least_ns, greatest_ns;
    uint32_t sample; /* as in lh_packet_plan_run, decided: LH_PACKET_ALL or
                      * messages of each sender */
    uint32_t n_links;
    lh_packet_plan_link *links; /* by the pipeline's links */
} lh_packet_plan;

/* Simulates the plan's messages between datacenters packet by packet, with the
 * link settings of its job, in the schedule's order: a late message delays
 * everything that needs it. All replicas send each message when the first one
 * does; the iteration ends with the slowest replica. Collectives, and messages
 * inside a datacenter, take the plan's times. Release *out with
 * lh_packet_plan_free().
 *
 * LH_EUNSUPPORTED: no message crosses a link, a link lacks load_balancing or
 * recovery, a profile gives its times, or replicas send a message over
 * different links; `err` names the link. LH_ECANCELED: stopped by the progress
 * callback. */
LH_API lh_status lh_packets_simulate_plan(const lh_plan *plan,
                                          const lh_packet_plan_run *run,
                                          lh_packet_plan **out, lh_error *err);
/* Estimates the links that the plan's messages cross from packets: *out has *n
 * links whose values, as a profile's measured ones, give the mean time of a
 * message of the plan and of one of half its size. Both are simulated as
 * sampled messages of all replicas (run->sample; LH_PACKET_ALL is not
 * possible). No link is faster than its line. Names are borrowed from the plan.
 * Release *out with free(). Errors as lh_packets_simulate_plan(). */
LH_API lh_status lh_packets_estimate_links(const lh_plan *plan,
                                           const lh_packet_plan_run *run,
                                           struct lh_profile_link **out,
                                           uint32_t *n, lh_error *err);
/* Frees a plan's simulation; ignores NULL. */
LH_API void lh_packet_plan_free(lh_packet_plan *result);

/* --- pictures ------------------------------------------------------------- */

/* A simulation on a page. */
typedef struct lh_packet_picture {
    const char *name; /* UTF-8 */
    const lh_packet_record *record;
} lh_packet_picture;

/* Draws queue length, throughput and retransmissions of n simulations over time
 * as an HTML page in the report's design. `facts`: name and value of each line
 * below the title, in turn, until NULL. Release *text with lh_text_free(). */
LH_API lh_status lh_packets_html(const char *title, const char *const *facts,
                                 const lh_packet_picture *pictures, uint32_t n,
                                 char **text, size_t *len, lh_error *err);

#ifdef __cplusplus
}
#endif

#endif
