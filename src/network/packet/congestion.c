/* SPDX-License-Identifier: Apache-2.0 */
/* Congestion control of a queue pair.
 *
 *     [Zhu]   Zhu et al., Congestion Control for Large-Scale RDMA Deployments,
 *             SIGCOMM 2015, section 5 and figure 7: DCQCN
 *     [Kumar] Kumar et al., Swift: Delay is Simple and Effective for Congestion
 *             Control in the Datacenter, SIGCOMM 2020, section 3.1 */
#include "network/packet/state.h"

/* DCQCN's parameters in [Zhu, section 5.2 and table 14], which are for 40 Gb/s;
 * the rate steps grow with the line rate. */
#define DCQCN_G (1.0 / 256)   /* weight of a notice in alpha */
#define DCQCN_TIMER_NS 55000  /* of alpha, and of rate increases */
#define DCQCN_BYTES 10e6      /* sent between two rate increases */
#define DCQCN_FAST_STEPS 5    /* fast recovery */
#define DCQCN_ADDITIVE 1e-3   /* 40 Mb/s of 40 Gb/s */
#define DCQCN_HYPER 1e-2      /* 400 Mb/s of 40 Gb/s */
#define DCQCN_LEAST_RATE 1e-4 /* of the line rate */

/* Swift's parameters [Kumar, table 2]. */
#define SWIFT_ADDITIVE 1.0      /* packets per round trip */
#define SWIFT_BETA 0.8          /* decrease by the round trip's excess */
#define SWIFT_MOST_DECREASE 0.5 /* in one round trip */

/* Returns the highest sending rate of a queue pair (the interface's line rate),
 * in bytes per ps. */
static double get_line_rate(const lhi_packet_sim *sim)
{
    return sim->o->transport.line_bytes_per_s * 1e-12;
}

/* Returns the smallest congestion window of the delay-based control, in
 * packets: one redundancy block, because a block is acknowledged as a whole. */
static double get_least_window(const lhi_packet_sim *sim)
{
    return sim->block_packets;
}

void lhi_control_begin(const lhi_packet_sim *sim, lhi_control_state *c)
{
    const lhi_transport *t = &sim->o->transport;
    *c = (lhi_control_state){.rate = get_line_rate(sim), .alpha = 1};
    c->target = c->rate;
    /* The packets of a target round trip at the line rate. */
    c->window =
        (double)t->target_ns * 1e-9 * t->line_bytes_per_s / t->packet_bytes;
    if (c->window < get_least_window(sim))
        c->window = get_least_window(sim);
}

/* --- DCQCN --- */

/* Raises a queue pair's DCQCN rate by one step: halfway to the target rate,
 * which rises itself after the fast-recovery steps (additive or hyper
 * increase). */
static void increase_rate(const lhi_packet_sim *sim, lhi_control_state *c)
{
    double line = get_line_rate(sim);
    uint32_t most = c->n_timer > c->n_bytes ? c->n_timer : c->n_bytes;
    uint32_t least = c->n_timer < c->n_bytes ? c->n_timer : c->n_bytes;
    if (least > DCQCN_FAST_STEPS)
        c->target += DCQCN_HYPER * line * (least - DCQCN_FAST_STEPS);
    else if (most > DCQCN_FAST_STEPS)
        c->target += DCQCN_ADDITIVE * line;
    if (c->target > line)
        c->target = line;
    c->rate = (c->rate + c->target) / 2;
}

/* Runs a queue pair's DCQCN timer that lowers alpha (the next reduction's
 * strength) up to now. It runs since the first notice, at the line rate, too.
 */
static void run_alpha_timer(const lhi_packet_sim *sim, lhi_control_state *c)
{
    const uint64_t period_ps = (uint64_t)PS_PER_NS * DCQCN_TIMER_NS;
    for (; c->alpha_ps > 0 && sim->now_ps >= c->alpha_ps && c->alpha > 1e-9;
         c->alpha_ps += period_ps)
        c->alpha *= 1 - DCQCN_G;
}

/* Reduces the bytes that a queue pair waits for by those that its rate, which
 * is the same since the last call, allows until time `ps`. */
static void reduce_owed(lhi_control_state *c, uint64_t ps)
{
    c->owed -= c->rate * (double)(ps - c->owed_ps);
    if (c->owed < 0)
        c->owed = 0;
    c->owed_ps = ps;
}

/* Runs a queue pair's DCQCN timer that raises the rate up to time `ps`. */
static void run_increase_timer(const lhi_packet_sim *sim, lhi_control_state *c,
                               uint64_t ps)
{
    const uint64_t period_ps = (uint64_t)PS_PER_NS * DCQCN_TIMER_NS;
    double line = get_line_rate(sim);
    for (; ps >= c->increase_ps && c->rate < line * (1 - 1e-9);
         c->increase_ps += period_ps) {
        reduce_owed(c, c->increase_ps);
        c->n_timer++;
        increase_rate(sim, c);
    }
    /* The rate stays until the next notice. */
    if (c->rate >= line * (1 - 1e-9)) {
        c->rate = line;
        c->slowed = false;
    }
}

/* Returns the time from which a queue pair may send its next packet: when its
 * rate, with the increases until then, has allowed the bytes that it owes. */
static uint64_t compute_next_ps(const lhi_packet_sim *sim,
                                const lhi_control_state *c)
{
    lhi_control_state later = *c;
    while (later.slowed &&
           later.owed >
               later.rate * (double)(later.increase_ps - later.owed_ps))
        run_increase_timer(sim, &later, later.increase_ps);
    return later.owed_ps + (uint64_t)(later.owed / later.rate);
}

uint64_t lhi_control_receive_notice(const lhi_packet_sim *sim,
                                    lhi_control_state *c)
{
    const uint64_t period_ps = (uint64_t)PS_PER_NS * DCQCN_TIMER_NS;
    double least = get_line_rate(sim) * DCQCN_LEAST_RATE;
    run_alpha_timer(sim, c);
    if (c->slowed)
        run_increase_timer(sim, c, sim->now_ps);
    reduce_owed(c, sim->now_ps);
    /* The rate falls by the factor 1 - alpha/2; both timers start again. */
    c->target = c->rate;
    c->rate *= 1 - c->alpha / 2;
    if (c->rate < least)
        c->rate = least;
    c->alpha = (1 - DCQCN_G) * c->alpha + DCQCN_G;
    c->n_timer = c->n_bytes = 0;
    c->bytes = 0;
    c->alpha_ps = c->increase_ps = sim->now_ps + period_ps;
    c->slowed = true;
    return compute_next_ps(sim, c);
}

uint64_t lhi_control_send(const lhi_packet_sim *sim, lhi_control_state *c,
                          uint32_t bytes)
{
    if (sim->o->transport.control != LH_CONTROL_DCQCN || !c->slowed)
        return 0;
    run_increase_timer(sim, c, sim->now_ps);
    reduce_owed(c, sim->now_ps);
    c->bytes += bytes;
    if ((double)c->bytes >= DCQCN_BYTES) {
        c->bytes = 0;
        c->n_bytes++;
        increase_rate(sim, c);
    }
    c->owed = bytes;
    return compute_next_ps(sim, c);
}

/* --- delay --- */

/* Updates the delay-based control's window after a round trip of rtt_ps: grows
 * it below the target round trip; else shrinks it, at most once per round
 * trip. */
static void update_window(const lhi_packet_sim *sim, lhi_control_state *c,
                          uint64_t rtt_ps)
{
    double target = (double)sim->o->transport.target_ns * PS_PER_NS;
    double rtt = (double)rtt_ps;
    if (rtt < target) {
        c->window += SWIFT_ADDITIVE / c->window;
    } else if (sim->now_ps - c->decreased_ps >= rtt_ps) {
        double keep = 1 - SWIFT_BETA * (rtt - target) / rtt;
        c->window *=
            keep > 1 - SWIFT_MOST_DECREASE ? keep : 1 - SWIFT_MOST_DECREASE;
        c->decreased_ps = sim->now_ps;
    }
    if (c->window < get_least_window(sim))
        c->window = get_least_window(sim);
}

void lhi_control_receive_ack(const lhi_packet_sim *sim, lhi_control_state *c,
                             const lhi_packet *ack)
{
    if (sim->o->transport.control == LH_CONTROL_DELAY)
        update_window(sim, c, sim->now_ps - ack->stamp_ps);
}

void lhi_control_time_out(const lhi_packet_sim *sim, lhi_control_state *c)
{
    if (sim->o->transport.control != LH_CONTROL_DELAY)
        return;
    c->window *= 1 - SWIFT_MOST_DECREASE;
    if (c->window < get_least_window(sim))
        c->window = get_least_window(sim);
}

bool lhi_control_allows(const lhi_packet_sim *sim, const lhi_control_state *c,
                        uint32_t in_flight)
{
    return sim->o->transport.control != LH_CONTROL_DELAY ||
           in_flight < c->window;
}
