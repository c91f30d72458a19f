/* SPDX-License-Identifier: Apache-2.0 */
/* Event loop of a packet simulation. */
#include "network/packet/simulation.h"

#include "base/fail.h"
#include "network/packet/state.h"

#include <longhaul/pipeline.h>

#include <stdlib.h>

/* --- run --- */

/* Lets the host send, if port `number` is a host's and idle. */
static void wake_host(lhi_packet_sim *sim, uint32_t number)
{
    uint32_t from = sim->ports[number].spec->from;
    if (from < sim->o->fabric->n_hosts)
        lhi_sender_schedule_host(sim, from);
}

/* Processes the first packet's arrival on port `number`'s link: forwards it at
 * a switch, or passes it to the receiver or sender at a host. */
static void arrive(lhi_packet_sim *sim, uint32_t number)
{
    lhi_port *port = &sim->ports[number];
    lhi_ring *ring = &port->packets;
    lhi_packet *items = ring->items;
    lhi_packet packet = items[ring->head];
    ring->head = (ring->head + 1) & (ring->capacity - 1);
    if (--ring->count > 0)
        lhi_packet_sim_replace_first(sim, items[ring->head].arrive_ps, number);
    else
        lhi_packet_sim_pop(sim);
    uint32_t node = port->spec->to;
    if (packet.kind >= LHI_PACKET_PAUSE) {
        lhi_buffers_receive_pause(sim, number, &packet);
        wake_host(sim, number ^ 1);
    } else if (node >= sim->o->fabric->n_hosts)
        lhi_packet_sim_forward(sim, node, number, &packet);
    else if (packet.kind == LHI_PACKET_DATA)
        lhi_receiver_receive(sim, &sim->pairs[packet.pair], &packet);
    else if (packet.kind == LHI_PACKET_NOTICE)
        sim->pairs[packet.pair].allowed_ps =
            lhi_control_receive_notice(sim, &sim->pairs[packet.pair].control);
    else
        lhi_sender_receive_ack(sim, &sim->pairs[packet.pair], &packet);
}

/* Processes the simulation's earliest event; its source number gives the kind:
 * packet arrival, host, timers, notice, message start or transmission. */
static void process(lhi_packet_sim *sim)
{
    const lhi_packet_event e = sim->heap[0];
    sim->now_ps = e.ps;
    sim->counters.events++;
    if (e.source < sim->host_source) {
        arrive(sim, e.source);
        return;
    }
    lhi_packet_sim_pop(sim);
    if (e.source < sim->timer_source) {
        lhi_sender_run_host(sim, e.source - sim->host_source);
    } else if (e.source < sim->reorder_source) {
        lhi_sender_run_timer(sim, &sim->pairs[e.source - sim->timer_source]);
    } else if (e.source < sim->pace_source) {
        lhi_sender_run_reorder_timer(
            sim, &sim->pairs[e.source - sim->reorder_source]);
    } else if (e.source < sim->notice_source) {
        lhi_pair *pair = &sim->pairs[e.source - sim->pace_source];
        pair->is_paced = false;
        lhi_sender_wake(sim, pair);
    } else if (e.source < sim->message_source) {
        lhi_receiver_send_notice(sim,
                                 &sim->pairs[e.source - sim->notice_source]);
    } else if (e.source < sim->buffer_source) {
        lhi_packet_sim_post_message(sim, e.source - sim->message_source);
    } else {
        lhi_buffers_run_port(sim, e.source - sim->buffer_source);
        wake_host(sim, e.source - sim->buffer_source);
    }
}

/* Returns the error of a simulation that cannot continue; LH_OK: it can. */
static lh_status check_status(const lhi_packet_sim *sim, lh_error *err)
{
    if (sim->status == LH_EINPUT)
        return lhi_fail(err, LH_EINPUT,
                        "a queue pair makes no progress in %d timeouts: the "
                        "timeout, the queue or the redundancy code does not "
                        "suit the link; a smaller window, congestion control, "
                        "flow control or a variation of the latency may help",
                        (int)MOST_TIMEOUTS);
    return sim->status == LH_OK ? LH_OK : lhi_fail_nomem(err);
}

lh_status lhi_packets_step(lhi_packet_sim *sim, lh_error *err)
{
    const lhi_packet_options *o = sim->o;
    process(sim);
    if (sim->counters.events % 1000000 == 0 && o->progress &&
        o->progress(o->context, sim->counters.events))
        return lhi_fail(err, LH_ECANCELED, "stopped");
    return sim->status == LH_OK ? LH_OK : check_status(sim, err);
}

/* Schedules the messages that need no other one. */
static void start_messages(lhi_packet_sim *sim)
{
    const lhi_packet_options *o = sim->o;
    for (uint32_t i = 0; i < o->n_messages; i++)
        if (o->messages[i].every_ns > 0)
            lhi_packet_sim_schedule_next(sim, i);
        else if (o->messages[i].n_required == 0)
            lhi_packet_sim_schedule(
                sim, PS_PER_NS * (uint64_t)o->messages[i].delay_ns,
                sim->message_source + i);
}

/* Runs the simulation until no event is left. LH_EINPUT: some messages never
 * end, or a queue pair makes no progress; LH_ECANCELED: stopped by the
 * callback. */
static lh_status run(lhi_packet_sim *sim, lh_error *err)
{
    start_messages(sim);
    while (sim->n_heap > 0)
        LHI_TRY(lhi_packets_step(sim, err));
    if (sim->n_missing > 0)
        return lhi_fail(err, LH_EINPUT, "%u of %u messages wait for each other",
                        sim->n_missing, sim->o->n_messages);
    return LH_OK;
}

/* --- setup --- */

/* Initialises a simulation's ports, hosts, queue pairs and messages from its
 * options, in zeroed memory; all arrays are in `mem`, except for rings. */
static lh_status begin(lhi_packet_sim *sim, lhi_arena *mem, lh_error *err)
{
    const lhi_packet_options *o = sim->o;
    const lhi_fabric *f = o->fabric;
    const lhi_transport *t = &o->transport;
    sim->host_source = f->n_ports;
    sim->timer_source = sim->host_source + f->n_hosts;
    sim->reorder_source = sim->timer_source + o->n_pairs;
    sim->pace_source = sim->reorder_source + o->n_pairs;
    sim->notice_source = sim->pace_source + o->n_pairs;
    sim->message_source = sim->notice_source + o->n_pairs;
    sim->buffer_source = sim->message_source + o->n_messages;
    sim->ports = LHI_NEW(mem, lhi_port, f->n_ports);
    sim->hosts = LHI_NEW(mem, lhi_host, f->n_hosts);
    sim->pairs = LHI_NEW(mem, lhi_pair, o->n_pairs);
    sim->messages = LHI_NEW(mem, lhi_message_state, o->n_messages);
    sim->spraying = LHI_NEW(mem, lhi_random, f->n_nodes);
    /* At most one event of each source. */
    sim->heap =
        LHI_NEW(mem, lhi_packet_event, (size_t)sim->buffer_source + f->n_ports);
    if (!sim->ports || !sim->hosts || !sim->pairs || !sim->messages ||
        !sim->spraying || !sim->heap)
        return lhi_fail_nomem(err);
    sim->block_packets = t->fec_parity > 0 ? t->fec_data + t->fec_parity : 1;
    sim->packet_ps =
        (uint64_t)(1e12 * t->packet_bytes / t->line_bytes_per_s + 0.5);
    sim->reorder_ps = PS_PER_NS * (uint64_t)t->reorder_ns;
    sim->n_missing = o->n_messages - o->n_other;
    for (uint32_t i = 0; i < f->n_hosts; i++)
        sim->hosts[i].first = LH_NONE;
    bool has_failures = false;
    for (uint32_t i = 0; i < f->n_ports; i++) {
        lhi_packet_sim_begin_port(sim, i);
        has_failures |= f->ports[i].fails;
    }
    sim->working = has_failures ? LHI_NEW(mem, uint32_t, f->n_ports) : NULL;
    if (has_failures && !sim->working)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < f->n_nodes; i++)
        sim->spraying[i].state = lhi_mix64(~(lhi_mix64(o->seed) + i));
    for (uint32_t i = 0; i < o->n_pairs; i++) {
        lhi_pair *p = &sim->pairs[i];
        p->from = o->pairs[i].from;
        p->to = o->pairs[i].to;
        p->hash = lhi_mix64(lhi_mix64(o->seed) + i);
        lhi_control_begin(sim, &p->control);
    }
    for (uint32_t i = 0; i < o->n_messages; i++) {
        sim->messages[i].n_required = o->messages[i].n_required;
        sim->messages[i].n_parts = o->messages[i].queue_pairs;
    }
    return lhi_buffers_begin(sim, mem, err);
}

/* Frees the ring buffers and bit sets of all ports and queue pairs. */
static void end(lhi_packet_sim *sim)
{
    free(sim->arrivals.items);
    for (uint32_t i = 0; sim->ports && i < sim->o->fabric->n_ports; i++)
        free(sim->ports[i].packets.items);
    for (uint32_t i = 0; sim->buffered && i < sim->o->fabric->n_ports; i++)
        free(sim->buffered[i].waiting.items);
    for (uint32_t i = 0; sim->pairs && i < sim->o->n_pairs; i++) {
        lhi_pair *p = &sim->pairs[i];
        free(p->parts.items);
        free(p->transmissions.items);
        free(p->repeats.items);
        free(p->sent);
        free(p->received);
    }
}

lh_packet_counters lhi_packets_count(lhi_packet_sim *sim)
{
    lh_packet_counters counters = sim->counters;
    for (uint32_t i = 0; i < sim->o->fabric->n_ports; i++)
        lhi_packet_sim_record_queue(sim, &sim->ports[i], sim->now_ps);
    for (uint32_t i = 0; i < sim->o->fabric->n_ports; i++) {
        const lhi_port *p = &sim->ports[i];
        /* Hosts hold their packets themselves. */
        uint64_t bytes = (uint64_t)((double)p->max_queue_ps * 0x1p16 /
                                    (double)p->ps_per_64k);
        if (p->spec->from >= sim->o->fabric->n_hosts &&
            bytes > counters.max_queue_bytes)
            counters.max_queue_bytes = bytes;
    }
    return counters;
}

lh_status lhi_packets_open(const lhi_packet_options *options,
                           lhi_packet_sim **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_packet_sim *sim = mem ? LHI_NEW(mem, lhi_packet_sim, 1) : NULL;
    if (!sim) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    sim->o = options;
    sim->mem = mem;
    sim->has_caller = true;
    lh_status status = begin(sim, mem, err);
    if (status != LH_OK) {
        lhi_packets_close(sim);
        return status;
    }
    start_messages(sim);
    *out = sim;
    return LH_OK;
}

void lhi_packets_close(lhi_packet_sim *sim)
{
    if (!sim)
        return;
    end(sim);
    lhi_arena_free(sim->mem);
}

void lhi_packets_send(lhi_packet_sim *sim, uint32_t message, int64_t ns)
{
    lhi_packet_sim_schedule(sim, PS_PER_NS * (uint64_t)ns,
                            sim->message_source + message);
}

uint64_t lhi_packets_peek(const lhi_packet_sim *sim)
{
    return sim->n_heap > 0 ? sim->heap[0].ps : UINT64_MAX;
}

bool lhi_packets_take_arrival(lhi_packet_sim *sim, uint32_t *message,
                              int64_t *arrive_ns)
{
    lhi_ring *ring = &sim->arrivals;
    if (ring->count == 0)
        return false;
    *message = ((const uint32_t *)ring->items)[ring->head];
    ring->head = (ring->head + 1) & (ring->capacity - 1);
    ring->count--;
    *arrive_ns =
        (int64_t)((sim->messages[*message].end_ps + PS_PER_NS - 1) / PS_PER_NS);
    return true;
}

lh_status lhi_packets_simulate(const lhi_packet_options *options,
                               lhi_message_times *times,
                               lh_packet_counters *out, lh_error *err)
{
    lhi_packet_sim sim = {.o = options};
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = begin(&sim, mem, err);
    if (status == LH_OK)
        status = run(&sim, err);
    uint32_t n = options->n_messages - options->n_other;
    for (uint32_t i = 0; status == LH_OK && i < n; i++)
        times[i] =
            (lhi_message_times){(double)sim.messages[i].start_ps / PS_PER_NS,
                                (double)sim.messages[i].end_ps / PS_PER_NS};
    if (status == LH_OK)
        *out = lhi_packets_count(&sim);
    end(&sim);
    lhi_arena_free(mem);
    return status;
}
