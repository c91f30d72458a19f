/* SPDX-License-Identifier: Apache-2.0 */
/* Sender of a queue pair: window, acknowledgements, and recovery of lost
 * packets.
 *
 * Go-back-N sends everything again from the packet that the receiver misses
 * [InfiniBand Architecture Specification 1.4, section 9.7.5]. Selective repeat
 * sends a packet again when an ack for a packet sent later has arrived, where
 * packets take different paths after a quarter of a round trip more [RACK,
 * RFC 8985, section 6.2]. */
#include "network/packet/state.h"

#include <longhaul/pipeline.h>

#include <stdlib.h>

/* Checks whether the transport sends only lost packets again (selective
 * repeat), rather than all packets from the first lost one (go-back-N). */
static bool repeats_selectively(const lhi_packet_sim *sim)
{
    return sim->o->transport.recovery != LH_RECOVERY_GO_BACK_N;
}

const lhi_part *lhi_get_part(const lhi_pair *pair, uint32_t i)
{
    const lhi_part *parts = pair->parts.items;
    return &parts[(pair->parts.head + i) & (pair->parts.capacity - 1)];
}

/* Returns the message part that contains packet `number`; NULL if the part is
 * complete and acknowledged. */
static const lhi_part *find_part(const lhi_pair *pair, uint32_t number)
{
    /* The parts are in the order of their numbers. */
    uint32_t first = 0, end = pair->parts.count;
    while (first < end) {
        uint32_t middle = first + (end - first) / 2;
        const lhi_part *part = lhi_get_part(pair, middle);
        if (number < part->first)
            end = middle;
        else if (number >= part->end)
            first = middle + 1;
        else
            return part;
    }
    return NULL;
}

uint32_t lhi_find_block(const lhi_packet_sim *sim, const lhi_pair *pair,
                        uint32_t number, uint32_t *first, uint32_t *end)
{
    *first = number;
    *end = number + 1;
    if (sim->block_packets == 1)
        return 1;
    const lhi_part *part = find_part(pair, number);
    if (!part)
        return 1;
    *first = number - (number - part->first) % sim->block_packets;
    *end = part->end - *first < sim->block_packets
               ? part->end
               : *first + sim->block_packets;
    return *end - *first - sim->o->transport.fec_parity;
}

/* Returns the data bytes of packet `number`; only a message part's last packet
 * without redundancy may be shorter than packet_bytes. */
static uint16_t get_packet_bytes(const lhi_packet_sim *sim,
                                 const lhi_pair *pair, uint32_t number)
{
    const lhi_part *part = find_part(pair, number);
    return part && number == part->end - 1
               ? part->last_bytes
               : (uint16_t)sim->o->transport.packet_bytes;
}

/* --- hosts --- */

/* Checks whether a queue pair has a lost or new packet to send, and the
 * transport's window and the congestion window permit it. After the last
 * message's arrival nothing is sent again for lost acks. */
static bool can_send(const lhi_packet_sim *sim, const lhi_pair *pair)
{
    uint64_t window = sim->o->transport.window_packets;
    bool may_repeat = pair->repeats.count > 0;
    bool may_continue = pair->next < pair->posted &&
                        (window == 0 || pair->next - pair->acked < window);
    return sim->n_missing > 0 && (may_repeat || may_continue) &&
           lhi_control_allows(sim, &pair->control, pair->in_flight);
}

/* Checks whether a port has nothing to send and is not paused. */
static bool is_idle(const lhi_buffered_port *port)
{
    return !port->has_event && !port->is_paused && port->waiting.count == 0;
}

void lhi_sender_schedule_host(lhi_packet_sim *sim, uint32_t number)
{
    lhi_host *host = &sim->hosts[number];
    uint64_t free_ps = sim->ports[host->port].free_ps;
    if (host->has_event || host->first == LH_NONE ||
        (sim->buffered && !is_idle(&sim->buffered[host->port])))
        return;
    host->has_event = true;
    lhi_packet_sim_schedule(sim, free_ps > sim->now_ps ? free_ps : sim->now_ps,
                            sim->host_source + number);
}

void lhi_sender_wake(lhi_packet_sim *sim, lhi_pair *pair)
{
    uint32_t number = (uint32_t)(pair - sim->pairs);
    lhi_host *host = &sim->hosts[pair->from];
    uint64_t free_ps = sim->ports[host->port].free_ps;
    uint64_t earliest_ps = free_ps > sim->now_ps ? free_ps : sim->now_ps;
    if (pair->is_ready || pair->is_paced || !can_send(sim, pair))
        return;
    if (pair->allowed_ps > earliest_ps) {
        pair->is_paced = true;
        lhi_packet_sim_schedule(sim, pair->allowed_ps,
                                sim->pace_source + number);
        return;
    }
    pair->is_ready = true;
    pair->next_ready = LH_NONE;
    if (host->first == LH_NONE)
        host->first = number;
    else
        sim->pairs[host->last].next_ready = number;
    host->last = number;
    lhi_sender_schedule_host(sim, pair->from);
}

/* --- posting --- */

/* Enlarges the ring buffer of sent packets, indexed by packet number, to hold
 * `n` packets; false on allocation failure. */
static bool reserve_sent(lhi_pair *pair, uint32_t n)
{
    uint32_t capacity = pair->sent ? pair->sent_mask + 1 : 0;
    if (n <= capacity)
        return true;
    uint32_t larger = capacity ? capacity : 64;
    while (larger < n)
        larger *= 2;
    lhi_sent *items = calloc(larger, sizeof *items);
    if (!items)
        return false;
    for (uint32_t i = pair->acked; i < pair->next; i++)
        items[i & (larger - 1)] = pair->sent[i & pair->sent_mask];
    free(pair->sent);
    pair->sent = items;
    pair->sent_mask = larger - 1;
    return true;
}

void lhi_sender_post(lhi_packet_sim *sim, lhi_pair *pair, uint32_t message,
                     uint64_t bytes)
{
    const lhi_transport *t = &sim->o->transport;
    uint32_t n = (uint32_t)((bytes + t->packet_bytes - 1) / t->packet_bytes);
    uint32_t last = (uint32_t)(bytes - (uint64_t)(n - 1) * t->packet_bytes);
    uint32_t parity = t->fec_parity > 0
                          ? (n + t->fec_data - 1) / t->fec_data * t->fec_parity
                          : 0;
    const lhi_part part = {
        message, pair->posted, pair->posted + n + parity,
        (uint16_t)(t->fec_parity > 0 ? t->packet_bytes : last)};
    if (!lhi_ring_push(&pair->parts, &part, sizeof part)) {
        sim->status = LH_ENOMEM;
        return;
    }
    pair->posted = part.end;
    lhi_sender_wake(sim, pair);
}

/* --- sending --- */

/* Removes the next packet to repeat that is still marked as lost, into *number;
 * false if there is none. */
static bool take_repeat(lhi_pair *pair, uint32_t *number)
{
    while (pair->repeats.count > 0) {
        const uint32_t *items = pair->repeats.items;
        *number = items[pair->repeats.head];
        pair->repeats.head =
            (pair->repeats.head + 1) & (pair->repeats.capacity - 1);
        pair->repeats.count--;
        if (*number >= pair->acked &&
            pair->sent[*number & pair->sent_mask].state == LHI_LOST)
            return true;
    }
    return false;
}

/* Records for selective repeat that packet `number` is sent now and in flight.
 * Sets sim->status on allocation failure. */
static void record_sent(lhi_packet_sim *sim, lhi_pair *pair, uint32_t number)
{
    const lhi_transmission x = {sim->now_ps, number};
    if (!reserve_sent(pair, pair->next - pair->acked + 1) ||
        !lhi_ring_push(&pair->transmissions, &x, sizeof x)) {
        sim->status = LH_ENOMEM;
        return;
    }
    pair->sent[number & pair->sent_mask] =
        (lhi_sent){sim->now_ps, LHI_IN_FLIGHT};
    pair->in_flight++;
}

/* Starts the retransmission timer of a queue pair unless it runs already. */
static void start_timer(lhi_packet_sim *sim, lhi_pair *pair)
{
    if (pair->has_timer)
        return;
    pair->has_timer = true;
    pair->progress_ps = sim->now_ps;
    lhi_packet_sim_schedule(
        sim, sim->now_ps + PS_PER_NS * (uint64_t)sim->o->transport.timeout_ns,
        sim->timer_source + (uint32_t)(pair - sim->pairs));
}

/* Sends a queue pair's next packet: a lost one first (selective repeat), else
 * the next new one, if the window permits. */
static void send_next(lhi_packet_sim *sim, lhi_pair *pair)
{
    uint32_t number = pair->next;
    bool is_selective = repeats_selectively(sim);
    bool repeats = is_selective && take_repeat(pair, &number);
    uint64_t window = sim->o->transport.window_packets;
    if (!repeats) {
        number = pair->next;
        if (number == pair->posted ||
            (window > 0 && number - pair->acked >= window))
            return;
        repeats = number < pair->reached;
    }
    if (is_selective)
        record_sent(sim, pair, number);
    if (sim->status != LH_OK)
        return;
    if (number == pair->next)
        pair->next++;
    if (pair->next > pair->reached)
        pair->reached = pair->next;
    if (!is_selective)
        pair->in_flight = pair->next - pair->acked;
    const lhi_packet packet = {.stamp_ps = sim->now_ps,
                               .pair = (uint32_t)(pair - sim->pairs),
                               .number = number,
                               .bytes = get_packet_bytes(sim, pair, number),
                               .kind = LHI_PACKET_DATA};
    sim->counters.sent++;
    sim->counters.retransmitted += repeats;
    if (repeats && sim->o->record)
        lhi_packet_sim_get_interval(sim, sim->now_ps)->retransmitted++;
    /* The timeout counts from the first unanswered packet. */
    if (pair->acked_ps == pair->sent_ps)
        pair->progress_ps = sim->now_ps;
    pair->sent_ps = sim->now_ps;
    pair->allowed_ps = lhi_control_send(sim, &pair->control, packet.bytes);
    lhi_packet_sim_forward(sim, pair->from, LH_NONE, &packet);
    start_timer(sim, pair);
}

void lhi_sender_run_host(lhi_packet_sim *sim, uint32_t number)
{
    lhi_host *host = &sim->hosts[number];
    host->has_event = false;
    while (host->first != LH_NONE) {
        lhi_pair *pair = &sim->pairs[host->first];
        host->first = pair->next_ready;
        pair->is_ready = false;
        if (!can_send(sim, pair))
            continue;
        send_next(sim, pair);
        lhi_sender_wake(sim, pair);
        break;
    }
    lhi_sender_schedule_host(sim, number);
}

/* --- acknowledgements --- */

/* Resets a queue pair to send again from packet `number` on, or from its first
 * one without acknowledgement if that is later (go-back-N). */
static void go_back(lhi_pair *pair, uint32_t number)
{
    pair->next = number > pair->acked ? number : pair->acked;
    pair->in_flight = pair->next - pair->acked;
}

/* Marks packet `number` as lost and appends it to the queue pair's list of
 * packets to repeat. Sets sim->status on allocation failure. */
static void lose(lhi_packet_sim *sim, lhi_pair *pair, uint32_t number)
{
    pair->sent[number & pair->sent_mask].state = LHI_LOST;
    pair->in_flight--;
    if (!lhi_ring_push(&pair->repeats, &number, sizeof number))
        sim->status = LH_ENOMEM;
}

/* Schedules the next search for losses: when a packet sent at stamp_ps
 * (picoseconds) counts as lost, one round trip and the reordering time later.
 * Does nothing if one is scheduled. */
static void start_reorder_timer(lhi_packet_sim *sim, lhi_pair *pair,
                                uint64_t stamp_ps)
{
    if (pair->has_reorder_timer)
        return;
    pair->has_reorder_timer = true;
    lhi_packet_sim_schedule(sim, stamp_ps + pair->rtt_ps + sim->reorder_ps,
                            sim->reorder_source +
                                (uint32_t)(pair - sim->pairs));
}

/* Marks as lost the packets in flight, sent before until_ps, that had no ack
 * for one round trip plus the reordering time. Only packets below `end`: a
 * later redundancy block may still be recovered. */
static void find_losses(lhi_packet_sim *sim, lhi_pair *pair, uint64_t until_ps,
                        uint32_t end)
{
    lhi_ring *ring = &pair->transmissions;
    while (ring->count > 0) {
        const lhi_transmission *x =
            &((const lhi_transmission *)ring->items)[ring->head];
        const lhi_sent *sent = &pair->sent[x->number & pair->sent_mask];
        if (x->number >= pair->acked && sent->stamp_ps == x->stamp_ps &&
            sent->state == LHI_IN_FLIGHT) {
            if (x->stamp_ps >= until_ps || x->number >= end)
                break;
            if (x->stamp_ps + pair->rtt_ps + sim->reorder_ps > sim->now_ps) {
                start_reorder_timer(sim, pair, x->stamp_ps);
                break;
            }
            lose(sim, pair, x->number);
        }
        ring->head = (ring->head + 1) & (ring->capacity - 1);
        ring->count--;
    }
}

/* Marks packets as lost that were sent before the latest acknowledged one and
 * are overdue by the reordering time. */
static void find_overtaken(lhi_packet_sim *sim, lhi_pair *pair)
{
    uint32_t end = UINT32_MAX, block_end;
    if (sim->block_packets > 1)
        lhi_find_block(sim, pair, pair->highest_acked, &end, &block_end);
    find_losses(sim, pair, pair->acked_ps, end);
}

void lhi_sender_run_reorder_timer(lhi_packet_sim *sim, lhi_pair *pair)
{
    pair->has_reorder_timer = false;
    find_overtaken(sim, pair);
    lhi_sender_wake(sim, pair);
}

/* Marks packet `number` as acknowledged for selective repeat, and no longer in
 * flight. */
static void acknowledge(lhi_pair *pair, uint32_t number)
{
    lhi_sent *sent = &pair->sent[number & pair->sent_mask];
    if (sent->state == LHI_IN_FLIGHT)
        pair->in_flight--;
    sent->state = LHI_ACKED;
}

/* Advances the sender's window: all packets with numbers below `cumulative`
 * have arrived. Removes complete message parts and restarts the timeout. */
static void advance(lhi_packet_sim *sim, lhi_pair *pair, uint32_t cumulative)
{
    if (cumulative <= pair->acked)
        return;
    pair->n_timeouts = 0;
    pair->progress_ps = sim->now_ps;
    if (repeats_selectively(sim))
        for (uint32_t i = pair->acked; i < cumulative && i < pair->next; i++)
            acknowledge(pair, i);
    pair->acked = cumulative;
    while (pair->n_received > 0 && lhi_get_part(pair, 0)->end <= cumulative) {
        pair->parts.head = (pair->parts.head + 1) & (pair->parts.capacity - 1);
        pair->parts.count--;
        pair->n_received--;
    }
    /* The receiver may need no more packets of a block. */
    if (pair->next < cumulative)
        pair->next = cumulative;
    if (pair->reached < cumulative)
        pair->reached = cumulative;
}

void lhi_sender_receive_ack(lhi_packet_sim *sim, lhi_pair *pair,
                            const lhi_packet *ack)
{
    bool is_selective = repeats_selectively(sim);
    sim->counters.acks++;
    lhi_control_receive_ack(sim, &pair->control, ack);
    advance(sim, pair, ack->cumulative);
    if (ack->kind == LHI_PACKET_NACK && ack->cumulative == pair->acked) {
        go_back(pair, ack->number);
        pair->progress_ps = sim->now_ps;
    }
    if (ack->stamp_ps > pair->acked_ps) {
        pair->acked_ps = ack->stamp_ps;
        pair->rtt_ps = sim->now_ps - ack->stamp_ps;
    }
    if (is_selective) {
        if (ack->number >= pair->acked && ack->number < pair->next)
            acknowledge(pair, ack->number);
        if (ack->number > pair->highest_acked)
            pair->highest_acked = ack->number;
        find_overtaken(sim, pair);
    } else {
        pair->in_flight = pair->next - pair->acked;
    }
    lhi_sender_wake(sim, pair);
}

void lhi_sender_run_timer(lhi_packet_sim *sim, lhi_pair *pair)
{
    uint64_t timeout_ps = PS_PER_NS * (uint64_t)sim->o->transport.timeout_ns;
    pair->has_timer = false;
    if (pair->acked == pair->posted || sim->n_missing == 0)
        return;
    /* All packets are answered: the next one waits for the interface. */
    if (pair->acked_ps == pair->sent_ps && can_send(sim, pair))
        pair->progress_ps = sim->now_ps;
    if (sim->now_ps >= pair->progress_ps + timeout_ps) {
        sim->counters.timeouts++;
        if (++pair->n_timeouts > MOST_TIMEOUTS)
            sim->status = LH_EINPUT;
        lhi_control_time_out(sim, &pair->control);
        if (repeats_selectively(sim))
            /* Until the first ack the round trip is unknown. */
            find_losses(sim, pair,
                        pair->rtt_ps > 0 ? sim->now_ps
                                         : sim->now_ps - timeout_ps + 1,
                        UINT32_MAX);
        else
            go_back(pair, pair->acked);
        pair->progress_ps = sim->now_ps;
    }
    pair->has_timer = true;
    lhi_packet_sim_schedule(sim, pair->progress_ps + timeout_ps,
                            sim->timer_source + (uint32_t)(pair - sim->pairs));
    lhi_sender_wake(sim, pair);
}
