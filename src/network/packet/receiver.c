/* SPDX-License-Identifier: Apache-2.0 */
/* Receiver of a queue pair: order, redundancy blocks, and acknowledgements.
 *
 * With go-back-N the receiver accepts only the packet that it expects (of a
 * redundancy code: those of the block that it expects) and requests a missing
 * one once, until it arrives. With selective repeat it accepts all packets. */
#include "network/packet/state.h"

#include <stdlib.h>
#include <string.h>

/* Between two congestion notices [Zhu, section 3.1 and table 1]. At the end of
 * this time the receiver sends another notice if any packet within it had a
 * mark. */
enum { NOTIFY_NS = 50000 };

/* Enlarges the receiver's bit set of received packets to cover `n` packet
 * numbers from pair->expected on; false on allocation failure. */
static bool reserve_received(lhi_pair *pair, uint32_t n)
{
    uint32_t capacity = pair->received ? pair->received_mask + 1 : 0;
    if (n <= capacity)
        return true;
    uint32_t larger = capacity ? capacity : 512;
    while (larger < n)
        larger *= 2;
    uint64_t *bits = calloc(larger / 64, sizeof *bits);
    if (!bits)
        return false;
    for (uint32_t i = 0; i < capacity; i++) {
        uint32_t from = (pair->expected + i) & pair->received_mask;
        uint32_t to = (pair->expected + i) & (larger - 1);
        if (pair->received[from / 64] >> from % 64 & 1)
            bits[to / 64] |= UINT64_C(1) << to % 64;
    }
    free(pair->received);
    pair->received = bits;
    pair->received_mask = larger - 1;
    return true;
}

/* Returns the word of the received-packets bit set that holds packet `number`;
 * *bit: its bit's mask in that word. */
static uint64_t *find_bit(lhi_pair *pair, uint32_t number, uint64_t *bit)
{
    uint32_t at = number & pair->received_mask;
    *bit = UINT64_C(1) << at % 64;
    return &pair->received[at / 64];
}

/* Counts the received packets among numbers first to end - 1. */
static uint32_t count_received(lhi_pair *pair, uint32_t first, uint32_t end)
{
    uint32_t n = 0;
    uint64_t bit;
    for (uint32_t i = first; i < end; i++)
        n += (*find_bit(pair, i, &bit) & bit) != 0;
    return n;
}

/* Returns the first packet number that has not arrived. */
static uint32_t find_missing(lhi_pair *pair)
{
    uint32_t number = pair->expected;
    uint64_t bit;
    while (pair->received && number - pair->expected <= pair->received_mask &&
           (*find_bit(pair, number, &bit) & bit))
        number++;
    return number;
}

/* Ends message parts in order: all whose packets are below pair->expected, the
 * lowest packet number that has not arrived. */
static void end_parts(lhi_packet_sim *sim, lhi_pair *pair)
{
    while (pair->n_received < pair->parts.count) {
        const lhi_part *part = lhi_get_part(pair, pair->n_received);
        if (pair->expected < part->end)
            break;
        pair->n_received++;
        lhi_packet_sim_end_part(sim, part->message);
    }
}

/* Advances pair->expected past all complete redundancy blocks (enough packets
 * arrived to recover the rest), ends message parts, and clears the blocks'
 * bits. */
static void advance(lhi_packet_sim *sim, lhi_pair *pair)
{
    uint32_t first, end;
    for (;;) {
        if (!reserve_received(pair, sim->block_packets)) {
            sim->status = LH_ENOMEM;
            return;
        }
        if (pair->n_received == pair->parts.count)
            return;
        uint32_t needs =
            lhi_find_block(sim, pair, pair->expected, &first, &end);
        if (count_received(pair, pair->expected, end) < needs)
            return;
        for (uint32_t i = pair->expected; i < end; i++) {
            uint64_t bit, *word = find_bit(pair, i, &bit);
            *word &= ~bit;
        }
        pair->expected = end;
        pair->nacked = false;
        end_parts(sim, pair);
    }
}

/* --- replies --- */

void lhi_receiver_send_notice(lhi_packet_sim *sim, lhi_pair *pair)
{
    const lhi_packet notice = {.pair = (uint32_t)(pair - sim->pairs),
                               .bytes = ACK_BYTES,
                               .kind = LHI_PACKET_NOTICE};
    pair->notified_ps = sim->now_ps;
    pair->is_marked = false;
    lhi_packet_sim_forward(sim, pair->to, LH_NONE, &notice);
}

/* Processes the congestion mark of a data packet: sends a notice now, or at the
 * end of the time without one. */
static void receive_mark(lhi_packet_sim *sim, lhi_pair *pair)
{
    uint64_t again_ps = pair->notified_ps + (uint64_t)PS_PER_NS * NOTIFY_NS;
    if (sim->o->transport.control != LH_CONTROL_DCQCN || pair->is_marked)
        return;
    if (pair->notified_ps == 0 || sim->now_ps >= again_ps) {
        lhi_receiver_send_notice(sim, pair);
        return;
    }
    pair->is_marked = true;
    lhi_packet_sim_schedule(sim, again_ps,
                            sim->notice_source + (uint32_t)(pair - sim->pairs));
}

/* Sends an acknowledgement (`kind`: ack or nack) for data packet `data` back to
 * the sender, with the cumulative packet number. */
static void reply(lhi_packet_sim *sim, lhi_pair *pair, const lhi_packet *data,
                  lhi_packet_kind kind)
{
    lhi_packet ack = *data;
    ack.kind = (uint8_t)kind;
    ack.bytes = ACK_BYTES;
    ack.cumulative = pair->expected;
    /* A redundancy block may have arrived in part. */
    if (kind == LHI_PACKET_NACK)
        ack.number = find_missing(pair);
    ack.marked = false;
    lhi_packet_sim_forward(sim, pair->to, LH_NONE, &ack);
}

void lhi_receiver_receive(lhi_packet_sim *sim, lhi_pair *pair,
                          const lhi_packet *packet)
{
    uint32_t first, end;
    bool goes_back = sim->o->transport.recovery == LH_RECOVERY_GO_BACK_N;
    sim->counters.delivered++;
    if (sim->o->record)
        lhi_packet_sim_get_interval(sim, sim->now_ps)->delivered_bytes +=
            packet->bytes;
    if (packet->marked)
        receive_mark(sim, pair);
    if (packet->number < pair->expected) {
        sim->counters.unneeded++;
        reply(sim, pair, packet, LHI_PACKET_ACK);
        return;
    }
    lhi_find_block(sim, pair, packet->number, &first, &end);
    if (goes_back && first > pair->expected) {
        sim->counters.unneeded++;
        if (!pair->nacked)
            reply(sim, pair, packet, LHI_PACKET_NACK);
        pair->nacked = true;
        return;
    }
    uint32_t span = packet->number - pair->expected + 1;
    if (!reserve_received(pair, span < sim->block_packets ? sim->block_packets
                                                          : span)) {
        sim->status = LH_ENOMEM;
        return;
    }
    uint64_t bit, *word = find_bit(pair, packet->number, &bit);
    sim->counters.unneeded += (*word & bit) != 0;
    *word |= bit;
    if (first == pair->expected)
        advance(sim, pair);
    reply(sim, pair, packet, LHI_PACKET_ACK);
}
