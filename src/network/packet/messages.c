/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a packet simulation: their parts and their order. */
#include "network/packet/state.h"

void lhi_packet_sim_post_message(lhi_packet_sim *sim, uint32_t number)
{
    const lhi_packet_message *m = &sim->o->messages[number];
    if (sim->n_missing == 0)
        return;
    sim->messages[number].start_ps = sim->now_ps;
    for (uint32_t i = 0; i < m->queue_pairs; i++) {
        uint64_t from = m->bytes / m->queue_pairs * i +
                        m->bytes % m->queue_pairs * i / m->queue_pairs;
        uint64_t to = m->bytes / m->queue_pairs * (i + 1) +
                      m->bytes % m->queue_pairs * (i + 1) / m->queue_pairs;
        if (to > from)
            lhi_sender_post(sim, &sim->pairs[m->first_pair + i], number,
                            to - from);
        else
            lhi_packet_sim_end_part(sim, number);
    }
    if (m->every_ns > 0)
        lhi_packet_sim_schedule_next(sim, number);
}

void lhi_packet_sim_schedule_next(lhi_packet_sim *sim, uint32_t number)
{
    const lhi_packet_message *m = &sim->o->messages[number];
    uint32_t host = sim->o->pairs[m->first_pair].from;
    int64_t wait_ns =
        lhi_random_exponential(&sim->spraying[host], (double)m->every_ns);
    lhi_packet_sim_schedule(sim, sim->now_ps + PS_PER_NS * (uint64_t)wait_ns,
                            sim->message_source + number);
}

void lhi_packet_sim_end_part(lhi_packet_sim *sim, uint32_t message)
{
    lhi_message_state *state = &sim->messages[message];
    const lhi_packet_message *m = &sim->o->messages[message];
    if (message >= sim->o->n_messages - sim->o->n_other)
        return;
    if (--state->n_parts > 0)
        return;
    state->end_ps = sim->now_ps;
    sim->n_missing--;
    if (sim->has_caller &&
        !lhi_ring_push(&sim->arrivals, &message, sizeof message))
        sim->status = LH_ENOMEM;
    for (uint32_t i = 0; i < m->n_successors; i++) {
        uint32_t next = m->successors[i];
        if (--sim->messages[next].n_required == 0)
            lhi_packet_sim_schedule(
                sim,
                sim->now_ps +
                    PS_PER_NS * (uint64_t)sim->o->messages[next].delay_ns,
                sim->message_source + next);
    }
}
