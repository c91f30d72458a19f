/* SPDX-License-Identifier: Apache-2.0 */
/* Links behind the ports of a packet simulation: losses and arrivals. */
#include "network/packet/state.h"

#include <math.h>

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

void lhi_packet_sim_count_missing(lhi_packet_sim *sim, const lhi_packet *packet,
                                  uint64_t *counter)
{
    if (packet->kind != LHI_PACKET_DATA) {
        sim->counters.lost_acks += packet->kind != LHI_PACKET_NOTICE;
        return;
    }
    ++*counter;
    if (sim->o->record)
        lhi_packet_sim_get_interval(sim, sim->now_ps)->missing++;
}

void lhi_packet_sim_transmit(lhi_packet_sim *sim, uint32_t number,
                             const lhi_packet *packet, bool is_marked,
                             uint64_t sent_ps)
{
    lhi_port *port = &sim->ports[number];
    bool has_failed = port->spec->fails &&
                      sent_ps >= PS_PER_NS * (uint64_t)port->spec->fails_ns;
    if (has_failed || (port->n_good != UINT64_MAX &&
                       packet->kind < LHI_PACKET_PAUSE && loses_next(port))) {
        lhi_packet_sim_count_missing(sim, packet, &sim->counters.lost);
        return;
    }
    lhi_packet sent = *packet;
    sent.marked = is_marked;
    sent.arrive_ps = sent_ps + port->latency_ps;
    if (port->spec->variation_ns > 0)
        sent.arrive_ps +=
            PS_PER_NS * (uint64_t)lhi_random_exponential(
                            &port->random, (double)port->spec->variation_ns);
    if (sent.arrive_ps < port->last_ps)
        sent.arrive_ps = port->last_ps;
    port->last_ps = sent.arrive_ps;
    if (port->packets.count == 0)
        lhi_packet_sim_schedule(sim, sent.arrive_ps, number);
    if (!lhi_ring_push(&port->packets, &sent, sizeof sent))
        sim->status = LH_ENOMEM;
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
