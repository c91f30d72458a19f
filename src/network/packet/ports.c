/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of a packet simulation: queues and the choice of paths. */
#include "network/packet/state.h"

/* Checks whether a port's queue with `bytes` waiting bytes puts a congestion
 * mark (ECN) on a new packet: random between the two thresholds, always above
 * them. */
static bool marks(lhi_port *port, uint64_t bytes)
{
    const lhi_port_spec *s = port->spec;
    if (s->mark_to_bytes == 0 || bytes <= s->mark_from_bytes)
        return false;
    if (bytes > s->mark_to_bytes)
        return true;
    double p = s->mark_probability * (double)(bytes - s->mark_from_bytes) /
               (double)(s->mark_to_bytes - s->mark_from_bytes);
    return (double)(lhi_random_next(&port->random) >> 11) * 0x1p-53 < p;
}

/* Returns the bytes that wait at port `number`. */
static uint64_t count_queued(const lhi_packet_sim *sim, uint32_t number)
{
    const lhi_port *port = &sim->ports[number];
    if (sim->buffered)
        return sim->buffered[number].bytes;
    uint64_t wait_ps =
        port->free_ps > sim->now_ps ? port->free_ps - sim->now_ps : 0;
    return (uint64_t)((double)wait_ps * 0x1p16 / (double)port->ps_per_64k);
}

/* Applies the limits of a port's queue to a packet that came by port `ingress`.
 * Returns false, and counts the packet as dropped, if the queue has no room for
 * it. *is_marked: the packet has a congestion mark. */
static inline bool admits(lhi_packet_sim *sim, uint32_t number,
                          uint32_t ingress, const lhi_packet *packet,
                          bool *is_marked)
{
    lhi_port *port = &sim->ports[number];
    const lhi_port_spec *s = port->spec;
    *is_marked = packet->marked;
    if (s->buffer_bytes > 0 || s->mark_to_bytes > 0) {
        uint64_t queued = count_queued(sim, number);
        if (s->buffer_bytes > 0 && queued + packet->bytes > s->buffer_bytes) {
            lhi_packet_sim_count_missing(sim, packet, &sim->counters.dropped);
            return false;
        }
        if (packet->kind == LHI_PACKET_DATA && !packet->marked)
            *is_marked = marks(port, queued);
    }
    if (sim->buffered &&
        !lhi_buffers_admit(sim, number, ingress, packet->bytes)) {
        lhi_packet_sim_count_missing(sim, packet, &sim->counters.dropped);
        return false;
    }
    return true;
}

/* Queues a packet, which came by port `ingress`, at port `number`: computes its
 * arrival after all packets before it, and draws congestion mark and loss. A
 * packet that exceeds the buffer is dropped and counted. */
static void enqueue(lhi_packet_sim *sim, uint32_t number, uint32_t ingress,
                    const lhi_packet *packet)
{
    lhi_port *port = &sim->ports[number];
    bool is_marked;
    if (!admits(sim, number, ingress, packet, &is_marked))
        return;
    sim->counters.marked += is_marked && !packet->marked;
    if (sim->buffered) {
        lhi_buffers_append(sim, number, ingress, packet, is_marked);
        return;
    }
    uint64_t wait_ps =
        port->free_ps > sim->now_ps ? port->free_ps - sim->now_ps : 0;
    if (wait_ps > port->max_queue_ps)
        port->max_queue_ps = wait_ps;
    lhi_packet_sim_record_queue(sim, port, sim->now_ps);
    port->free_ps =
        sim->now_ps + wait_ps + (packet->bytes * port->ps_per_64k >> 16);
    lhi_packet_sim_record_wait(sim, port, wait_ps);
    lhi_packet_sim_transmit(sim, number, packet, is_marked, port->free_ps);
}

/* Returns the index of the port with the fewest whole packets in its queue; of
 * equal ones, a random port. Bytes would be too fine: the packets of senders
 * with equal rates would keep to one port each, and meet at the next switch. */
static uint32_t find_shortest(lhi_packet_sim *sim, uint32_t node,
                              const lhi_next_ports *next)
{
    uint32_t best = 0, n_equal = 0;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < next->n; i++) {
        uint64_t queued =
            count_queued(sim, next->ports[i]) / sim->o->transport.packet_bytes;
        n_equal = queued < least ? 1 : n_equal + (queued == least);
        if (queued < least ||
            (queued == least &&
             lhi_random_below(&sim->spraying[node], n_equal) == 0)) {
            best = i;
            least = queued;
        }
    }
    return best;
}

/* Removes the ports that have failed and are avoided from *next, unless all
 * are. */
static void remove_failed(lhi_packet_sim *sim, lhi_next_ports *next)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < next->n; i++) {
        const lhi_port_spec *s = sim->ports[next->ports[i]].spec;
        if (!s->fails || sim->now_ps < PS_PER_NS * (uint64_t)s->avoided_ns)
            sim->working[n++] = next->ports[i];
    }
    if (n > 0)
        *next = (lhi_next_ports){sim->working, n};
}

uint32_t lhi_packet_sim_choose_port(lhi_packet_sim *sim, uint32_t node,
                                    const lhi_packet *packet)
{
    const lhi_fabric *f = sim->o->fabric;
    const lhi_pair *pair = &sim->pairs[packet->pair];
    bool is_data = packet->kind == LHI_PACKET_DATA;
    lhi_next_ports next =
        f->next[(size_t)node * f->n_hosts + (is_data ? pair->to : pair->from)];
    uint32_t i = 0;
    if (sim->working)
        remove_failed(sim, &next);
    if (next.n > 1 && sim->o->transport.balancing == LH_BALANCING_SPRAY) {
        i = is_data && sim->o->transport.is_adaptive
                ? find_shortest(sim, node, &next)
                : lhi_random_below(&sim->spraying[node], next.n);
    } else if (next.n > 1)
        i = (uint32_t)((lhi_mix64(pair->hash + is_data + 2 * node) >> 32) *
                           next.n >>
                       32);
    return next.ports[i];
}

void lhi_packet_sim_forward(lhi_packet_sim *sim, uint32_t node,
                            uint32_t ingress, const lhi_packet *packet)
{
    enqueue(sim, lhi_packet_sim_choose_port(sim, node, packet), ingress,
            packet);
}
