/* SPDX-License-Identifier: Apache-2.0 */
/* State of a packet simulation, which its files share. */
#ifndef LHI_NETWORK_PACKET_STATE_H
#define LHI_NETWORK_PACKET_STATE_H

#include "base/random.h"
#include "network/packet/simulation.h"

enum {
    PS_PER_NS = 1000,
    ACK_BYTES = 64,
    /* Timeouts of a queue pair without progress that end the simulation, far
     * above the 7 after which a network interface reports an error [InfiniBand
     * Architecture Specification 1.4, retry count]. */
    MOST_TIMEOUTS = 10000
};

/* Packet kinds. */
typedef enum lhi_packet_kind {
    LHI_PACKET_DATA,
    LHI_PACKET_ACK,    /* of packet `number` and of all below `cumulative` */
    LHI_PACKET_NACK,   /* as an ack; `number` is the first that is missing */
    LHI_PACKET_NOTICE, /* of congestion, from receiver to sender (DCQCN) */
    LHI_PACKET_PAUSE,  /* of the port back; the end of its pause */
    LHI_PACKET_RESUME
} lhi_packet_kind;

/* A packet. */
typedef struct lhi_packet {
    uint64_t arrive_ps; /* at its current link's end */
    uint64_t stamp_ps;  /* sent by the sender; in an ack the data's */
    uint32_t pair, number, cumulative;
    uint16_t bytes;
    uint8_t kind;
    bool marked;
} lhi_packet;

/* First-in, first-out buffer of items with one size; capacity a power of two.
 * Zero-initialise it. */
typedef struct lhi_ring {
    void *items;
    uint32_t capacity, head, count;
} lhi_ring;

/* A port: packets in its queue and on its link, in arrival order. Since nothing
 * overtakes, a packet's arrival is known when it is queued, and the port needs
 * one event at a time, for its first packet. */
typedef struct lhi_port {
    const lhi_port_spec *spec;
    uint64_t free_ps; /* when all queued packets have been sent */
    uint64_t ps_per_64k, latency_ps, last_ps;
    lhi_ring packets;
    lhi_random random;
    uint64_t n_good, n_bad; /* packets until the next loss, and to lose then */
    uint64_t max_queue_ps;
    uint64_t recorded_ps; /* the record has the queue until then */
} lhi_port;

/* A packet in a switch's memory. */
typedef struct lhi_waiting {
    lhi_packet packet;
    uint32_t ingress; /* port by which it came */
} lhi_waiting;

/* A port's state where switches have shared memory (buffers.c). */
typedef struct lhi_buffered_port {
    lhi_ring waiting; /* lhi_waiting: not yet sent */
    uint64_t bytes;   /* of them, and of the packet being sent */
    uint64_t busy_ps; /* sends until then */
    uint32_t sent_bytes, sent_ingress; /* packet being sent; 0 bytes: none */
    bool has_event;                    /* sends a packet or a pause frame */
    bool is_paused;
    uint64_t paused_ps; /* since then */
    /* Incoming link of the switch at its end */
    uint64_t held_bytes; /* memory of packets that came by this port */
    bool has_paused;     /* the switch has paused the sender */
} lhi_buffered_port;

/* A part of a message on one queue pair: packet numbers first .. end - 1. */
typedef struct lhi_part {
    uint32_t message, first, end;
    uint16_t last_bytes;
} lhi_part;

/* A sent packet that is not acknowledged, in a ring by its number. */
typedef struct lhi_sent {
    uint64_t stamp_ps; /* last time it was sent */
    enum { LHI_UNSENT, LHI_IN_FLIGHT, LHI_ACKED, LHI_LOST } state;
} lhi_sent;

/* A transmission, in a ring by time. */
typedef struct lhi_transmission {
    uint64_t stamp_ps;
    uint32_t number;
} lhi_transmission;

/* State of a queue pair's congestion control. */
typedef struct lhi_control_state {
    /* DCQCN: rates in bytes per ps, as in the paper's section 5 */
    double rate, target, alpha;
    uint64_t alpha_ps, increase_ps; /* next timer */
    uint64_t bytes, marked_ps;      /* since the last increase; last notice */
    uint32_t n_timer, n_bytes;
    bool slowed; /* has received a notice */
    /* Bytes that the rate must allow, from owed_ps on, before the next packet
     */
    double owed;
    uint64_t owed_ps;
    /* Delay-based: window in packets */
    double window;
    uint64_t decreased_ps;
} lhi_control_state;

/* A queue pair: sender and receiver. Packet numbers grow from 0. */
typedef struct lhi_pair {
    uint32_t from, to;
    uint64_t hash;
    lhi_ring parts;      /* lhi_part: not yet acknowledged whole */
    uint32_t n_received; /* the first of them, which have arrived whole */
    /* Sender: numbers below `posted` belong to messages that may be sent,
     * those below `acked` are acknowledged, `next` is the next in order,
     * those below `reached` have been sent. */
    uint32_t posted, acked, next, reached, in_flight, highest_acked;
    lhi_sent *sent; /* selective repeat: [number & sent_mask] */
    uint32_t sent_mask;
    lhi_ring transmissions; /* lhi_transmission */
    lhi_ring repeats;       /* uint32_t: lost packets to send again */
    uint64_t allowed_ps;    /* by the rate */
    uint64_t progress_ps;   /* the timeout counts from here */
    uint32_t next_ready;    /* list of the host's ready queue pairs */
    bool is_ready, is_paced, has_timer, has_reorder_timer;
    uint64_t acked_ps, rtt_ps; /* latest acknowledged: sent at; round trip */
    uint64_t sent_ps;          /* latest transmission */
    uint32_t n_timeouts;       /* since the last progress */
    lhi_control_state control;
    /* Receiver: all below `expected` have arrived. */
    uint32_t expected;
    uint64_t *received; /* bit set over numbers from `expected` on */
    uint32_t received_mask;
    bool nacked;
    bool is_marked; /* a packet since the last notice; its event is scheduled */
    uint64_t notified_ps; /* last notice; 0: none */
} lhi_pair;

/* A host: the queue pairs that may send, in round-robin order. */
typedef struct lhi_host {
    uint32_t port, first, last; /* LH_NONE: no queue pair */
    bool has_event;
} lhi_host;

/* An event in the heap. */
typedef struct lhi_packet_event {
    uint64_t ps;
    /* port, host, queue pair's timeout, reordering, pace or notice, message,
     * port with shared memory */
    uint32_t source;
} lhi_packet_event;

/* A message's progress. */
typedef struct lhi_message_state {
    uint32_t n_required, n_parts; /* still missing */
    uint64_t start_ps, end_ps;
} lhi_message_state;

/* A simulation. */
struct lhi_packet_sim {
    const lhi_packet_options *o;
    lhi_port *ports;
    lhi_host *hosts;
    lhi_pair *pairs;
    lhi_message_state *messages;
    lhi_random *spraying;        /* of each node */
    lhi_buffered_port *buffered; /* [port]; NULL: no shared memory */
    /* [node]: memory in use, and memory without headroom */
    uint64_t *used_bytes, *shared_bytes;
    lhi_packet_event *heap;
    uint32_t n_heap;
    uint32_t host_source, timer_source, reorder_source, pace_source,
        notice_source, message_source, buffer_source;
    uint32_t block_packets;     /* of a redundancy block; 1: none */
    uint64_t now_ps, packet_ps; /* a full packet at the line rate */
    uint64_t reorder_ps;
    uint32_t *working;  /* [port]: scratch; NULL: no port fails */
    uint32_t n_missing; /* messages that have not arrived */
    lh_packet_counters counters;
    lhi_ring arrivals; /* uint32_t: messages that have arrived, not taken */
    bool has_caller;   /* that takes arrivals */
    lhi_arena *mem;
    lh_status status; /* LH_ENOMEM; LH_EINPUT: no progress */
};

/* --- record --- */

/* Returns the record's interval at a time; makes the intervals wider if there
 * are too few. The options must have a record. */
lh_packet_interval *lhi_packet_sim_get_interval(lhi_packet_sim *sim,
                                                uint64_t ps);
/* Records that data of wait_ps wait now at a switch's port; does nothing
 * without a record. */
void lhi_packet_sim_record_wait(lhi_packet_sim *sim, lhi_port *port,
                                uint64_t wait_ps);
/* Records the queue of a switch's port, which becomes shorter since its latest
 * packet was queued, in the intervals up to time until_ps. */
void lhi_packet_sim_record_queue(lhi_packet_sim *sim, lhi_port *port,
                                 uint64_t until_ps);

/* --- ports --- */

/* Initialises port number `i` from its specification: rate, latency, random
 * numbers and loss state. */
void lhi_packet_sim_begin_port(lhi_packet_sim *sim, uint32_t port);
/* Removes the earliest event from the event heap. */
void lhi_packet_sim_pop(lhi_packet_sim *sim);
/* Replaces the earliest event by one at time `ps` (picoseconds) with number
 * `source`; cheaper than removal and insertion. */
void lhi_packet_sim_replace_first(lhi_packet_sim *sim, uint64_t ps,
                                  uint32_t source);
/* Schedules an event at time `ps` (picoseconds). `source`: number of the
 * port, host, queue pair or message that it belongs to; at most one event
 * per source. */
void lhi_packet_sim_schedule(lhi_packet_sim *sim, uint64_t ps, uint32_t source);
/* Returns the port by which node `node` sends a packet towards its destination
 * host. Of several shortest paths a hash of the queue pair (ECMP) or, with
 * spraying, a random number or the shortest queue chooses. */
uint32_t lhi_packet_sim_choose_port(lhi_packet_sim *sim, uint32_t node,
                                    const lhi_packet *packet);
/* Forwards a packet from node `node`, to which it came by port `ingress`
 * (LH_NONE: from the host itself), by the chosen port. */
void lhi_packet_sim_forward(lhi_packet_sim *sim, uint32_t node,
                            uint32_t ingress, const lhi_packet *packet);
/* Puts a packet, with or without a congestion mark, on the link of port
 * `number`, which sends its last byte at sent_ps: draws its loss and schedules
 * its arrival. */
void lhi_packet_sim_transmit(lhi_packet_sim *sim, uint32_t number,
                             const lhi_packet *packet, bool is_marked,
                             uint64_t sent_ps);
/* Counts a lost or dropped packet: a data packet in *counter, an
 * acknowledgement in the counter of lost acknowledgements. */
void lhi_packet_sim_count_missing(lhi_packet_sim *sim, const lhi_packet *packet,
                                  uint64_t *counter);

/* Appends a copy of an item of `bytes` bytes to a ring buffer and doubles the
 * capacity if it is full; false on allocation failure. */
bool lhi_ring_push(lhi_ring *ring, const void *item, size_t bytes);

/* --- shared memory of switches --- */

/* Allocates the state of shared memory if the network has it. LH_EINVAL: the
 * headroom exceeds a switch's memory. */
lh_status lhi_buffers_begin(lhi_packet_sim *sim, lhi_arena *mem, lh_error *err);
/* Takes memory for a packet of `bytes` bytes that came by port `ingress` and
 * leaves by port `number`; false: the packet is dropped. Pauses the incoming
 * link if it holds too much. Hosts have memory without limit. */
bool lhi_buffers_admit(lhi_packet_sim *sim, uint32_t number, uint32_t ingress,
                       uint32_t bytes);
/* Appends an admitted packet, with or without a congestion mark, to the queue
 * of port `number`. */
void lhi_buffers_append(lhi_packet_sim *sim, uint32_t number, uint32_t ingress,
                        const lhi_packet *packet, bool is_marked);
/* Processes the end of a transmission at port `number`: releases the packet's
 * memory and sends the next one. */
void lhi_buffers_run_port(lhi_packet_sim *sim, uint32_t number);
/* Processes a pause frame that arrives by port `number`: pauses the port back,
 * or ends its pause. */
void lhi_buffers_receive_pause(lhi_packet_sim *sim, uint32_t number,
                               const lhi_packet *frame);

/* --- sender --- */

/* Posts a part of message `message` (`bytes` bytes) on a queue pair: numbers
 * its data and redundancy packets and starts to send. */
void lhi_sender_post(lhi_packet_sim *sim, lhi_pair *pair, uint32_t message,
                     uint64_t bytes);
/* Appends a queue pair to its host's list of senders if it can send a packet.
 * If congestion control delays the packet, schedules a later wake-up. */
void lhi_sender_wake(lhi_packet_sim *sim, lhi_pair *pair);
/* Sends one packet of host `number`, from the first of its queue pairs that can
 * send, and schedules the host's next packet. */
void lhi_sender_run_host(lhi_packet_sim *sim, uint32_t host);
/* Schedules the event at which host `host` sends its next packet: when its
 * interface is free. Does nothing if one is scheduled or no queue pair is
 * ready. Also does nothing while the interface sends or is paused: the event
 * that ends this state calls the function again. */
void lhi_sender_schedule_host(lhi_packet_sim *sim, uint32_t host);
/* Processes an ack or nack at the sender: advances the window, updates
 * congestion control and round trip, finds lost packets, and lets the queue
 * pair send. */
void lhi_sender_receive_ack(lhi_packet_sim *sim, lhi_pair *pair,
                            const lhi_packet *ack);
/* Processes the expiry of a queue pair's retransmission timer. After timeout_ns
 * without progress, marks packets in flight as lost (selective repeat) or sends
 * again from the first one without ack (go-back-N). Fails after too many
 * timeouts. */
void lhi_sender_run_timer(lhi_packet_sim *sim, lhi_pair *pair);
/* Processes the expiry of a queue pair's reordering timer: marks overdue
 * packets as lost and lets the queue pair send. */
void lhi_sender_run_reorder_timer(lhi_packet_sim *sim, lhi_pair *pair);

/* Returns the i-th unfinished message part (a message's bytes on one queue
 * pair) of a queue pair, oldest first; borrowed. */
const lhi_part *lhi_get_part(const lhi_pair *pair, uint32_t i);
/* Finds the redundancy block of packet `number`: packets *first to *end - 1.
 * Returns the number of its packets that suffice to recover all. Without
 * redundancy each packet is a block. */
uint32_t lhi_find_block(const lhi_packet_sim *sim, const lhi_pair *pair,
                        uint32_t number, uint32_t *first, uint32_t *end);

/* --- messages --- */

/* Starts sending message `number` now: divides its bytes evenly over its queue
 * pairs, one part each. */
void lhi_packet_sim_post_message(lhi_packet_sim *sim, uint32_t message);
/* Schedules the next sending of a message of other jobs after an exponential
 * time. */
void lhi_packet_sim_schedule_next(lhi_packet_sim *sim, uint32_t message);
/* Counts one part of a message (its bytes on one queue pair) as arrived; does
 * nothing for other jobs. After
 * the last part the message ends, and messages that waited for it are
 * scheduled. */
void lhi_packet_sim_end_part(lhi_packet_sim *sim, uint32_t message);

/* --- receiver --- */

/* Processes a data packet at the receiver: records it, advances past complete
 * packets, and replies with an ack or, in go-back-N after a gap, one nack. */
void lhi_receiver_receive(lhi_packet_sim *sim, lhi_pair *pair,
                          const lhi_packet *packet);
/* Sends a congestion notice to the sender now (DCQCN). */
void lhi_receiver_send_notice(lhi_packet_sim *sim, lhi_pair *pair);

/* --- congestion control --- */

/* Initialises a queue pair's congestion control: the rate is the line rate,
 * the window holds the packets that the line rate sends in one target round
 * trip. */
void lhi_control_begin(const lhi_packet_sim *sim, lhi_control_state *c);
/* Applies a congestion notice to a queue pair: reduces its DCQCN rate. Returns
 * the time from which its next packet may be sent. */
uint64_t lhi_control_receive_notice(const lhi_packet_sim *sim,
                                    lhi_control_state *c);
/* Applies an acknowledgement to a queue pair's congestion control: the
 * delay-based one updates its window by the round trip. */
void lhi_control_receive_ack(const lhi_packet_sim *sim, lhi_control_state *c,
                             const lhi_packet *ack);
/* Shrinks a queue pair's window by the largest single decrease after a timeout;
 * does nothing unless the control is the delay-based one. */
void lhi_control_time_out(const lhi_packet_sim *sim, lhi_control_state *c);
/* Counts a data packet of `bytes` bytes that a queue pair sends. Returns the
 * time from which its next packet may be sent: 0 unless DCQCN has reduced the
 * rate. */
uint64_t lhi_control_send(const lhi_packet_sim *sim, lhi_control_state *c,
                          uint32_t bytes);
/* Checks whether the congestion window permits one more packet beside
 * `in_flight` packets without acknowledgement; always true without the
 * delay-based control. */
bool lhi_control_allows(const lhi_packet_sim *sim, const lhi_control_state *c,
                        uint32_t in_flight);

#endif
