/* SPDX-License-Identifier: Apache-2.0 */
/* Records a packet simulation over time, in intervals of equal width. */
#include "network/packet/state.h"

/* Halves the number of a record's intervals by merging neighbours. */
static void widen(lh_packet_record *r)
{
    for (uint32_t i = 0; i < LH_PACKET_INTERVALS; i++) {
        const lh_packet_interval x = r->intervals[i];
        lh_packet_interval *to = &r->intervals[i / 2];
        if (i % 2 == 0) {
            *to = x;
            continue;
        }
        to->delivered_bytes += x.delivered_bytes;
        to->retransmitted += x.retransmitted;
        to->missing += x.missing;
        if (x.queue_bytes > to->queue_bytes)
            to->queue_bytes = x.queue_bytes;
    }
    for (uint32_t i = LH_PACKET_INTERVALS / 2; i < LH_PACKET_INTERVALS; i++)
        r->intervals[i] = (lh_packet_interval){0};
    r->width_ps *= 2;
    r->n = (r->n + 1) / 2;
}

lh_packet_interval *lhi_packet_sim_get_interval(lhi_packet_sim *sim,
                                                uint64_t ps)
{
    lh_packet_record *r = sim->o->record;
    if (r->width_ps == 0)
        r->width_ps = PS_PER_NS;
    while (ps / r->width_ps >= LH_PACKET_INTERVALS)
        widen(r);
    uint32_t i = (uint32_t)(ps / r->width_ps);
    if (i >= r->n)
        r->n = i + 1;
    return &r->intervals[i];
}

/* Records that data of wait_ps wait at a port at time `ps`. */
static void record_wait(lhi_packet_sim *sim, const lhi_port *port, uint64_t ps,
                        uint64_t wait_ps)
{
    lh_packet_interval *x = lhi_packet_sim_get_interval(sim, ps);
    uint64_t bytes =
        (uint64_t)((double)wait_ps * 0x1p16 / (double)port->ps_per_64k);
    if (bytes > x->queue_bytes)
        x->queue_bytes = bytes;
}

void lhi_packet_sim_record_queue(lhi_packet_sim *sim, lhi_port *port,
                                 uint64_t until_ps)
{
    lh_packet_record *r = sim->o->record;
    if (!r || port->spec->from < sim->o->fabric->n_hosts)
        return;
    if (until_ps > port->free_ps)
        until_ps = port->free_ps;
    while (r->width_ps > 0) {
        uint64_t begin_ps = (port->recorded_ps / r->width_ps + 1) * r->width_ps;
        if (begin_ps >= until_ps)
            break;
        record_wait(sim, port, begin_ps, port->free_ps - begin_ps);
        port->recorded_ps = begin_ps;
    }
}

void lhi_packet_sim_record_wait(lhi_packet_sim *sim, lhi_port *port,
                                uint64_t wait_ps)
{
    if (!sim->o->record || port->spec->from < sim->o->fabric->n_hosts)
        return;
    record_wait(sim, port, sim->now_ps, wait_ps);
    port->recorded_ps = sim->now_ps;
}
