/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of a packet simulation: events, queues, losses and the choice of paths.
 */
#include "network/packet/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- rings --- */

bool lhi_ring_push(lhi_ring *ring, const void *item, size_t bytes)
{
    if (ring->count == ring->capacity) {
        uint32_t capacity = ring->capacity ? 2 * ring->capacity : 16;
        char *items = malloc(capacity * bytes);
        if (!items)
            return false;
        uint32_t first = ring->capacity - ring->head;
        if (ring->count > 0) {
            memcpy(items, (char *)ring->items + ring->head * bytes,
                   first * bytes);
            memcpy(items + first * bytes, ring->items, ring->head * bytes);
        }
        free(ring->items);
        ring->items = items;
        ring->capacity = capacity;
        ring->head = 0;
    }
    uint32_t at = (ring->head + ring->count++) & (ring->capacity - 1);
    memcpy((char *)ring->items + at * bytes, item, bytes);
    return true;
}

/* --- events --- */

/* Checks whether event `a` is processed before `b`: at an earlier time or, at
 * the same time, with a lower source number. */
static inline bool is_before(const lhi_packet_event *a,
                             const lhi_packet_event *b)
{
    return a->ps != b->ps ? a->ps < b->ps : a->source < b->source;
}

/* Restores the order of the event heap (four children per node): inserts event
 * `e` at index `i` or below, moving earlier events up. */
static void sift_down(lhi_packet_sim *sim, lhi_packet_event e, uint32_t i)
{
    lhi_packet_event *heap = sim->heap;
    for (;;) {
        uint32_t child = 4 * i + 1, n = sim->n_heap;
        if (child >= n)
            break;
        uint32_t last = child + 4 < n ? child + 4 : n, least = child;
        for (uint32_t k = child + 1; k < last; k++)
            if (is_before(&heap[k], &heap[least]))
                least = k;
        if (!is_before(&heap[least], &e))
            break;
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = e;
}

void lhi_packet_sim_schedule(lhi_packet_sim *sim, uint64_t ps, uint32_t source)
{
    const lhi_packet_event e = {ps, source};
    uint32_t i = sim->n_heap++;
    while (i > 0) {
        uint32_t parent = (i - 1) / 4;
        if (!is_before(&e, &sim->heap[parent]))
            break;
        sim->heap[i] = sim->heap[parent];
        i = parent;
    }
    sim->heap[i] = e;
}

void lhi_packet_sim_pop(lhi_packet_sim *sim)
{
    lhi_packet_event last = sim->heap[--sim->n_heap];
    if (sim->n_heap > 0)
        sift_down(sim, last, 0);
}

void lhi_packet_sim_replace_first(lhi_packet_sim *sim, uint64_t ps,
                                  uint32_t source)
{
    sift_down(sim, (lhi_packet_event){ps, source}, 0);
}

/* --- ports --- */

/* Draws a geometrically distributed run length in packets (at least 1) with
 * mean `mean`; always 1 if `mean` is at most 1. */
static uint64_t draw_run(lhi_random *r, double mean)
{
    if (mean <= 1)
        return 1;
    double unit = (double)(lhi_random_next(r) >> 11) * 0x1p-53;
    double n = ceil(log1p(-unit) / log1p(-1 / mean));
    return n < 1 ? 1 : n > 0x1p60 ? UINT64_C(1) << 60 : (uint64_t)n;
}

/* Draws the next number of packets without loss and of consecutive losses after
 * them on a port's link: a Gilbert channel with loss share spec->loss. */
static void draw_losses(lhi_port *port)
{
    const lhi_port_spec *s = port->spec;
    double burst = s->burst > 0 ? s->burst : 1 / (1 - s->loss);
    port->n_good =
        s->loss > 0 ? draw_run(&port->random, burst * (1 - s->loss) / s->loss)
                    : UINT64_MAX;
    port->n_bad = s->loss > 0 ? draw_run(&port->random, burst) : 0;
}

/* Draws the loss state of a port's link before its first packet, so that this
 * packet too is lost with probability spec->loss. */
static void begin_losses(lhi_port *port)
{
    lhi_random start = {.state = ~port->random.state};
    draw_losses(port);
    if ((double)(lhi_random_next(&start) >> 11) * 0x1p-53 < port->spec->loss)
        port->n_good = 0;
}

/* Checks whether a port's link loses its next packet, and advances the link's
 * loss state by one packet. */
static bool loses_next(lhi_port *port)
{
    if (port->n_good > 0) {
        if (port->n_good != UINT64_MAX)
            port->n_good--;
        return false;
    }
    if (--port->n_bad == 0)
        draw_losses(port);
    return true;
}

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

/* Counts a lost or dropped packet: a data packet in *counter, an
 * acknowledgement in the counter of lost acknowledgements. */
static void count_missing(lhi_packet_sim *sim, const lhi_packet *packet,
                          uint64_t *counter)
{
    if (packet->kind != LHI_PACKET_DATA) {
        sim->counters.lost_acks++;
        return;
    }
    ++*counter;
    if (sim->o->record)
        lhi_packet_sim_get_interval(sim, sim->now_ps)->missing++;
}

/* Queues a packet at port `number`: computes its arrival after all packets
 * before it, and draws congestion mark and loss. A packet that exceeds the
 * buffer is dropped and counted. */
static void enqueue(lhi_packet_sim *sim, uint32_t number,
                    const lhi_packet *packet)
{
    lhi_port *port = &sim->ports[number];
    const lhi_port_spec *s = port->spec;
    uint64_t wait_ps =
        port->free_ps > sim->now_ps ? port->free_ps - sim->now_ps : 0;
    uint64_t takes_ps = packet->bytes * port->ps_per_64k >> 16;
    if (s->buffer_bytes > 0 || s->mark_to_bytes > 0) {
        uint64_t queued =
            (uint64_t)((double)wait_ps * 0x1p16 / (double)port->ps_per_64k);
        if (s->buffer_bytes > 0 && queued + packet->bytes > s->buffer_bytes) {
            count_missing(sim, packet, &sim->counters.dropped);
            return;
        }
        if (packet->kind == LHI_PACKET_DATA && !packet->marked &&
            marks(port, queued)) {
            lhi_packet marked = *packet;
            marked.marked = true;
            sim->counters.marked++;
            enqueue(sim, number, &marked);
            return;
        }
    }
    if (wait_ps > port->max_queue_ps)
        port->max_queue_ps = wait_ps;
    lhi_packet_sim_record_queue(sim, port, sim->now_ps);
    port->free_ps = sim->now_ps + wait_ps + takes_ps;
    lhi_packet_sim_record_wait(sim, port, wait_ps);
    if (port->n_good != UINT64_MAX && loses_next(port)) {
        count_missing(sim, packet, &sim->counters.lost);
        return;
    }
    lhi_packet sent = *packet;
    sent.arrive_ps = port->free_ps + port->latency_ps;
    if (s->variation_ns > 0)
        sent.arrive_ps +=
            PS_PER_NS * (uint64_t)lhi_random_exponential(
                            &port->random, (double)s->variation_ns);
    if (sent.arrive_ps < port->last_ps)
        sent.arrive_ps = port->last_ps;
    port->last_ps = sent.arrive_ps;
    if (port->packets.count == 0)
        lhi_packet_sim_schedule(sim, sent.arrive_ps, number);
    if (!lhi_ring_push(&port->packets, &sent, sizeof sent))
        sim->status = LH_ENOMEM;
}

void lhi_packet_sim_forward(lhi_packet_sim *sim, uint32_t node,
                            const lhi_packet *packet)
{
    const lhi_fabric *f = sim->o->fabric;
    const lhi_pair *pair = &sim->pairs[packet->pair];
    bool is_data = packet->kind == LHI_PACKET_DATA;
    const lhi_next_ports *next =
        &f->next[(size_t)node * f->n_hosts + (is_data ? pair->to : pair->from)];
    uint32_t i = 0;
    if (next->n > 1 && sim->o->transport.balancing == LH_BALANCING_SPRAY)
        i = lhi_random_below(&sim->spraying[node], next->n);
    else if (next->n > 1)
        i = (uint32_t)((lhi_mix64(pair->hash + is_data + 2 * node) >> 32) *
                           next->n >>
                       32);
    enqueue(sim, next->ports[i], packet);
}

void lhi_packet_sim_begin_port(lhi_packet_sim *sim, uint32_t i)
{
    lhi_port *port = &sim->ports[i];
    const lhi_port_spec *s = &sim->o->fabric->ports[i];
    port->spec = s;
    port->ps_per_64k = (uint64_t)(1e12 * 0x1p16 / s->bytes_per_s + 0.5);
    port->latency_ps = PS_PER_NS * (uint64_t)s->latency_ns;
    port->random.state = lhi_mix64(lhi_mix64(sim->o->seed) + i);
    begin_losses(port);
    if (s->from < sim->o->fabric->n_hosts)
        sim->hosts[s->from].port = i;
}
