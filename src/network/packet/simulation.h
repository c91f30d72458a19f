/* SPDX-License-Identifier: Apache-2.0 */
/* Event-driven simulation of messages, packet by packet.
 *
 * A message is divided over the queue pairs of its flow group. A queue pair
 * numbers its packets, sends them within a window and at a rate, and recovers
 * lost ones. All times inside are picoseconds, integers; events at equal times
 * are processed by the number of their source (ports, hosts, queue pairs). The
 * same options give the same result on every machine. */
#ifndef LHI_NETWORK_PACKET_SIMULATION_H
#define LHI_NETWORK_PACKET_SIMULATION_H

#include "network/packet/fabric.h"

#include <longhaul/experimental/network_model.h>
#include <longhaul/experimental/packets.h>

#include <stdbool.h>

/* Settings of all queue pairs. */
typedef struct lhi_transport {
    uint32_t packet_bytes; /* of data in a packet, up to 65535 */
    lh_balancing balancing;
    /* A sprayed data packet takes the port with the shortest queue, of equal
     * ones a random port; else a random port. */
    bool is_adaptive;
    lh_recovery recovery; /* ANY: selective repeat */
    lh_packet_control control;
    uint64_t window_packets;       /* unacknowledged; 0: no limit */
    uint32_t fec_data, fec_parity; /* packets of a block; 0: none */
    int64_t timeout_ns;            /* without progress, until a resend */
    /* Sprayed packets that a packet sent so much later has overtaken count as
     * lost. */
    int64_t reorder_ns;
    double line_bytes_per_s; /* highest rate of a queue pair */
    int64_t target_ns;       /* delay-based control: round trip */
} lhi_transport;

/* A message from one host to another, over `queue_pairs` consecutive queue
 * pairs from `first_pair` on. It is sent when all messages that it needs have
 * arrived, `delay_ns` later. */
typedef struct lhi_packet_message {
    uint64_t bytes;
    uint32_t first_pair, queue_pairs;
    int64_t delay_ns;
    /* Of other jobs: sent again and again, after exponential times with this
     * mean; 0: once */
    int64_t every_ns;
    const uint32_t *successors; /* messages that need this one */
    uint32_t n_successors, n_required;
} lhi_packet_message;

/* Hosts of a queue pair. */
typedef struct lhi_queue_pair {
    uint32_t from, to;
} lhi_queue_pair;

/* A simulation's input. */
typedef struct lhi_packet_options {
    const lhi_fabric *fabric;
    lhi_transport transport;
    const lhi_queue_pair *pairs;
    const lhi_packet_message *messages;
    uint32_t n_pairs, n_messages;
    /* The last messages, of other jobs: the simulation ends without them. Their
     * times are not stored. */
    uint32_t n_other;
    uint64_t seed;
    /* Called every million events; true: end with LH_ECANCELED. NULL: never. */
    bool (*progress)(void *context, uint64_t events);
    void *context;
    lh_packet_record *record; /* zeroed; filled over time. NULL: none */
} lhi_packet_options;

/* When a message was sent and had arrived whole, in ns. */
typedef struct lhi_message_times {
    double start_ns, end_ns;
} lhi_message_times;

/* Simulates all messages of the options packet by packet. times[i]: start and
 * end of message i, other jobs' apart; *out: packet counters. LH_EINPUT:
 * messages wait for each other, or a queue pair makes no progress; LH_ENOMEM.
 */
lh_status lhi_packets_simulate(const lhi_packet_options *options,
                               lhi_message_times *times,
                               lh_packet_counters *out, lh_error *err);

/* --- messages whose times depend on other simulations --- */

/* A simulation that its caller advances event by event. */
typedef struct lhi_packet_sim lhi_packet_sim;

/* Begins a simulation; `options` stays borrowed. Messages with n_required > 0
 * and no predecessor wait for lhi_packets_send(). Release with
 * lhi_packets_close(). */
lh_status lhi_packets_open(const lhi_packet_options *options,
                           lhi_packet_sim **out, lh_error *err);
/* Frees a simulation; ignores NULL. */
void lhi_packets_close(lhi_packet_sim *sim);
/* Sends a message at time `ns`, which is not before the latest event. Its
 * first_pair may be set until then. */
void lhi_packets_send(lhi_packet_sim *sim, uint32_t message, int64_t ns);
/* Returns the time of the next event in ps; UINT64_MAX: none. */
uint64_t lhi_packets_peek(const lhi_packet_sim *sim);
/* Processes the next event. LH_EINPUT: a queue pair makes no progress. */
lh_status lhi_packets_step(lhi_packet_sim *sim, lh_error *err);
/* Removes the first message that has arrived since the last call, into
 * *message, and its arrival rounded up to ns; false: none. */
bool lhi_packets_take_arrival(lhi_packet_sim *sim, uint32_t *message,
                              int64_t *arrive_ns);
/* Returns the counters so far and the longest switch queue, and completes the
 * record. */
lh_packet_counters lhi_packets_count(lhi_packet_sim *sim);

#endif
