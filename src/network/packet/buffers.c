/* SPDX-License-Identifier: Apache-2.0 */
/* Switch memory that queues share, and priority flow control (PFC).
 *
 *     [Choudhury] Choudhury and Hahne, Dynamic Queue Length Thresholds for
 *                 Shared-Memory Packet Switches, IEEE/ACM Transactions on
 *                 Networking 6(2), 1998: a queue may hold a multiple of the
 *                 free memory
 *     [Zhu]       Zhu et al., Congestion Control for Large-Scale RDMA
 *                 Deployments, SIGCOMM 2015, section 4: the same threshold for
 *                 the packets of an incoming link, and headroom
 *
 * The departure times of a paused port's packets are unknown. Therefore each
 * port sends one packet at a time in this file, and memory is released when the
 * packet has left. All packets are in one class: a pause stops
 * acknowledgements, too. */
#include "network/packet/state.h"

#include "base/fail.h"

#include <math.h>

/* Packets below the threshold at which a paused link may send again. */
enum { RESUME_PACKETS = 2 };

/* --- setup --- */

/* Returns the bytes that may arrive on port `number` after the switch at its
 * end decided to pause it: the pause frame waits for a packet on the way back,
 * and the packets on the link and the one being sent still arrive. */
static uint64_t compute_headroom(const lhi_packet_sim *sim, uint32_t number)
{
    const lhi_port_spec *port = &sim->o->fabric->ports[number];
    const lhi_port_spec *back = &sim->o->fabric->ports[number ^ 1];
    double packet = sim->o->transport.packet_bytes;
    double wait_s = (packet + 2 * ACK_BYTES) / back->bytes_per_s;
    double round_trip_s = 1e-9 * (double)(port->latency_ns + back->latency_ns);
    /* The packet that exceeds the threshold, the one being sent, a partly
     * received one, and one that exceeds a threshold of 0. */
    return (uint64_t)ceil((round_trip_s + wait_s) * port->bytes_per_s +
                          4 * packet);
}

/* Reserves the headroom of all links at each switch. LH_EINVAL: a switch has
 * too little memory. */
static lh_status reserve_headroom(lhi_packet_sim *sim, lh_error *err)
{
    const lhi_fabric *f = sim->o->fabric;
    uint64_t packet = sim->o->transport.packet_bytes;
    for (uint32_t i = 0; i < f->n_nodes; i++)
        sim->shared_bytes[i] = f->buffer.bytes;
    if (!f->buffer.pauses)
        return LH_OK;
    uint64_t *needed = sim->used_bytes; /* until the end of this function */
    for (uint32_t i = 0; i < f->n_ports; i++) {
        const lhi_port_spec *port = &f->ports[i];
        if ((i ^ 1) >= f->n_ports || f->ports[i ^ 1].from != port->to ||
            f->ports[i ^ 1].to != port->from)
            return lhi_fail(err, LH_EINPUT,
                            "port %u has no port back, which pauses need", i);
        if (port->to >= f->n_hosts)
            needed[port->to] += compute_headroom(sim, i);
    }
    for (uint32_t i = f->n_hosts; i < f->n_nodes; i++) {
        needed[i] += packet;
        if (needed[i] + packet > f->buffer.bytes)
            return lhi_fail(err, LH_EINVAL,
                            "switch_bytes: %llu is too little for pauses: the "
                            "headroom of a switch's links takes %llu bytes; "
                            "give more, or use shorter links",
                            (unsigned long long)f->buffer.bytes,
                            (unsigned long long)needed[i]);
        sim->shared_bytes[i] -= needed[i];
        needed[i] = 0;
    }
    return LH_OK;
}

lh_status lhi_buffers_begin(lhi_packet_sim *sim, lhi_arena *mem, lh_error *err)
{
    const lhi_fabric *f = sim->o->fabric;
    if (f->buffer.bytes == 0)
        return LH_OK;
    sim->buffered = LHI_NEW(mem, lhi_buffered_port, f->n_ports);
    sim->used_bytes = LHI_NEW(mem, uint64_t, f->n_nodes);
    sim->shared_bytes = LHI_NEW(mem, uint64_t, f->n_nodes);
    if (!sim->buffered || !sim->used_bytes || !sim->shared_bytes)
        return lhi_fail_nomem(err);
    return reserve_headroom(sim, err);
}

/* --- ports --- */

/* Sets when a switch's port would have sent all packets, for the record of its
 * queue. */
static void update_queue(lhi_packet_sim *sim, uint32_t number)
{
    lhi_port *port = &sim->ports[number];
    uint64_t bytes = sim->buffered[number].bytes;
    if (port->spec->from < sim->o->fabric->n_hosts)
        return;
    /* In two parts: the product of all bytes exceeds 64 bits from 281 s on. */
    uint64_t wait_ps = (bytes >> 16) * port->ps_per_64k +
                       ((bytes & 0xffff) * port->ps_per_64k >> 16);
    lhi_packet_sim_record_queue(sim, port, sim->now_ps);
    port->free_ps = sim->now_ps + wait_ps;
    if (wait_ps > port->max_queue_ps)
        port->max_queue_ps = wait_ps;
    lhi_packet_sim_record_wait(sim, port, wait_ps);
}

/* Occupies a port with `bytes` bytes from the end of its current transmission
 * on; returns the end. */
static uint64_t occupy(lhi_packet_sim *sim, uint32_t number, uint32_t bytes)
{
    lhi_buffered_port *b = &sim->buffered[number];
    if (b->busy_ps < sim->now_ps)
        b->busy_ps = sim->now_ps;
    b->busy_ps += bytes * sim->ports[number].ps_per_64k >> 16;
    if (!b->has_event)
        lhi_packet_sim_schedule(sim, b->busy_ps, sim->buffer_source + number);
    b->has_event = true;
    return b->busy_ps;
}

/* Sends the next packet of a port, unless the port sends already or is paused.
 */
static void send_next(lhi_packet_sim *sim, uint32_t number)
{
    lhi_buffered_port *b = &sim->buffered[number];
    if (b->has_event || b->is_paused || b->waiting.count == 0)
        return;
    const lhi_waiting next =
        ((const lhi_waiting *)b->waiting.items)[b->waiting.head];
    b->waiting.head = (b->waiting.head + 1) & (b->waiting.capacity - 1);
    b->waiting.count--;
    b->sent_bytes = next.packet.bytes;
    b->sent_ingress = next.ingress;
    lhi_packet_sim_transmit(sim, number, &next.packet, next.packet.marked,
                            occupy(sim, number, next.packet.bytes));
}

/* --- memory --- */

/* Returns the bytes that a queue or, with pauses, the packets of a link may
 * hold at a switch now [Choudhury]. */
static double compute_threshold(const lhi_packet_sim *sim, uint32_t node)
{
    uint64_t used = sim->used_bytes[node], shared = sim->shared_bytes[node];
    return shared > used
               ? sim->o->fabric->buffer.share * (double)(shared - used)
               : 0;
}

/* Sends a pause or its end to the sender of port `ingress`, ahead of all
 * packets that wait on the way back. */
static void send_pause(lhi_packet_sim *sim, uint32_t ingress, bool pauses)
{
    const lhi_packet frame = {.bytes = ACK_BYTES,
                              .kind = pauses ? LHI_PACKET_PAUSE
                                             : LHI_PACKET_RESUME};
    sim->buffered[ingress].has_paused = pauses;
    sim->counters.pauses += pauses;
    lhi_packet_sim_transmit(sim, ingress ^ 1, &frame, false,
                            occupy(sim, ingress ^ 1, ACK_BYTES));
}

bool lhi_buffers_admit(lhi_packet_sim *sim, uint32_t number, uint32_t ingress,
                       uint32_t bytes)
{
    const lhi_switch_memory *memory = &sim->o->fabric->buffer;
    uint32_t node = sim->ports[number].spec->from;
    if (node < sim->o->fabric->n_hosts)
        return true;
    uint64_t used = sim->used_bytes[node] + bytes;
    double threshold = compute_threshold(sim, node);
    if (used > memory->bytes ||
        (!memory->pauses &&
         (double)(sim->buffered[number].bytes + bytes) > threshold))
        return false;
    sim->used_bytes[node] = used;
    if (used > sim->counters.max_switch_bytes)
        sim->counters.max_switch_bytes = used;
    lhi_buffered_port *in = &sim->buffered[ingress];
    in->held_bytes += bytes;
    if (memory->pauses && !in->has_paused && (double)in->held_bytes > threshold)
        send_pause(sim, ingress, true);
    return true;
}

/* Releases the memory of a packet that a switch has sent, and ends the pause of
 * its incoming link if that holds less than the threshold. */
static void release(lhi_packet_sim *sim, uint32_t node, uint32_t ingress,
                    uint32_t bytes)
{
    lhi_buffered_port *in = &sim->buffered[ingress];
    double least = RESUME_PACKETS * (double)sim->o->transport.packet_bytes;
    sim->used_bytes[node] -= bytes;
    in->held_bytes -= bytes;
    if (in->has_paused &&
        (in->held_bytes == 0 ||
         (double)in->held_bytes + least <= compute_threshold(sim, node)))
        send_pause(sim, ingress, false);
}

void lhi_buffers_append(lhi_packet_sim *sim, uint32_t number, uint32_t ingress,
                        const lhi_packet *packet, bool is_marked)
{
    lhi_buffered_port *b = &sim->buffered[number];
    lhi_waiting last = {*packet, ingress};
    last.packet.marked = is_marked;
    if (!lhi_ring_push(&b->waiting, &last, sizeof last)) {
        sim->status = LH_ENOMEM;
        return;
    }
    b->bytes += packet->bytes;
    update_queue(sim, number);
    send_next(sim, number);
}

/* --- events --- */

void lhi_buffers_run_port(lhi_packet_sim *sim, uint32_t number)
{
    lhi_buffered_port *b = &sim->buffered[number];
    uint32_t from = sim->ports[number].spec->from;
    b->has_event = false;
    if (b->sent_bytes > 0) {
        uint32_t bytes = b->sent_bytes;
        b->sent_bytes = 0;
        b->bytes -= bytes;
        update_queue(sim, number);
        if (from >= sim->o->fabric->n_hosts)
            release(sim, from, b->sent_ingress, bytes);
    }
    /* A pause frame follows the packet. */
    if (b->busy_ps > sim->now_ps && !b->has_event) {
        b->has_event = true;
        lhi_packet_sim_schedule(sim, b->busy_ps, sim->buffer_source + number);
    }
    send_next(sim, number);
}

void lhi_buffers_receive_pause(lhi_packet_sim *sim, uint32_t number,
                               const lhi_packet *frame)
{
    lhi_buffered_port *b = &sim->buffered[number ^ 1];
    bool pauses = frame->kind == LHI_PACKET_PAUSE;
    if (b->is_paused && !pauses)
        sim->counters.paused_ns += (sim->now_ps - b->paused_ps) / PS_PER_NS;
    b->is_paused = pauses;
    b->paused_ps = sim->now_ps;
    if (!pauses)
        send_next(sim, number ^ 1);
}
