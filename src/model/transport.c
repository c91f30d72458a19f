/* SPDX-License-Identifier: Apache-2.0 */
#include "model/link_settings.h"

#include <longhaul/experimental/network_model.h>

#include <math.h>

/* Checks that a flow's bandwidth, latency and loss are in range. */
static bool is_usable(const lh_flow *flow)
{
    return flow->bytes_per_s > 0 && flow->latency_ns >= 0 && flow->loss >= 0 &&
           flow->loss < 1;
}

/* Returns a packet's serialisation time, in ns. */
static double compute_packet_ns(const lh_flow *flow)
{
    return LH_PACKET_BYTES * 1e9 / flow->bytes_per_s;
}

double lh_ring_ns(lh_ring kind, uint32_t n, double bytes,
                  const lh_flow *slowest, double inside_ns)
{
    if (n <= 1)
        return 0;
    if (!is_usable(slowest))
        return INFINITY;
    double steps = (double)n - 1;
    double sending = steps / n * bytes * 1e9 / slowest->bytes_per_s;
    if (kind == LH_RING_LOCKSTEP)
        return sending + steps * slowest->latency_ns;
    return sending + fmin(2, steps) * slowest->latency_ns +
           fmax(0, steps - 2) * inside_ns;
}

lh_hybrid lh_hybrid_ns(lh_ring kind, uint32_t n, double bytes,
                       const lh_flow *inside, const lh_flow *across,
                       bool sharded)
{
    uint32_t half = n / 2;
    double within = lh_ring_ns(kind, half, bytes, inside, inside->latency_ns);
    double share = sharded && half > 1 ? bytes / half : bytes;
    double between =
        n > 1 ? 2 * lh_ring_ns(kind, 2, share, across, inside->latency_ns) : 0;
    return (lh_hybrid){.all_gather_ns = within, .reduce_ns = within + between};
}

double lh_spray_rate(double line_bytes_per_s, uint32_t queue_pairs,
                     double latency_ns)
{
    double round_trip_ns = 2 * latency_ns;
    if (round_trip_ns <= 0)
        return line_bytes_per_s;
    return fmin(line_bytes_per_s,
                queue_pairs * LH_WINDOW_BYTES * 1e9 / round_trip_ns);
}

uint32_t lh_spray_queue_pairs(double line_bytes_per_s, double latency_ns)
{
    double windows =
        ceil(line_bytes_per_s * 2 * latency_ns / 1e9 / LH_WINDOW_BYTES);
    return windows < 1            ? 1
           : windows > UINT32_MAX ? UINT32_MAX
                                  : (uint32_t)windows;
}

double lh_message_ns(lh_recovery recovery, double bytes, const lh_flow *flow)
{
    if (!is_usable(flow))
        return INFINITY;
    double packets = ceil(bytes / LH_PACKET_BYTES),
           each = compute_packet_ns(flow);
    double lost = packets * flow->loss / (1 - flow->loss);
    double again =
        recovery == LH_RECOVERY_GO_BACK_N ? 2 * flow->latency_ns + each : each;
    return flow->latency_ns + packets * each + lost * again;
}

double lhi_flow_efficiency(lh_recovery recovery, const lh_flow *flow)
{
    if (!is_usable(flow))
        return 0;
    double kept = 1 - flow->loss;
    if (recovery != LH_RECOVERY_GO_BACK_N)
        return kept;
    double window = 2 * flow->latency_ns / compute_packet_ns(flow);
    return kept / (kept + flow->loss * (window + 1));
}

/* --- one message, with the round trips that losses add --- */

/* A queue pair's last packet, and a packet sent again after all others, show no
 * gap when they are lost: the sender waits for its timeout, after the packet's
 * ack before. */
static const double timeout_round_trips = 4;

/* Returns the time in ns from the first packet's departure to the last one's,
 * without losses: each round trip sends at most a window. */
static double compute_sending_ns(const lhi_long_message *m)
{
    double line_ns = m->bytes * 1e9 / m->bytes_per_s;
    double window_ns = m->window_bytes * 1e9 / m->bytes_per_s;
    if (m->window_bytes >= m->bytes || window_ns >= m->round_trip_ns)
        return line_ns;
    double rounds = ceil(m->bytes / m->window_bytes) - 1;
    return line_ns + rounds * (m->round_trip_ns - window_ns);
}

/* Returns the logarithm of the probability that all packets have been sent
 * without loss x_ns after the first packet's departure. Packets are sent at
 * evenly spaced times within send_ns, and again each retry_ns after a loss. */
static double compute_log_arrived(double x_ns, double packets, double send_ns,
                                  double retry_ns, double loss)
{
    double each = send_ns / packets, sum = 0;
    double first = floor(fmax(0, x_ns - send_ns) / retry_ns);
    for (double tries = first; tries < first + 40; tries++) {
        double last = fmin(packets, (x_ns - tries * retry_ns) / each);
        double next = fmax(0, (x_ns - (tries + 1) * retry_ns) / each);
        if (last <= 0)
            break;
        if (last > next)
            sum += (last - next) * log1p(-pow(loss, tries + 1));
    }
    return sum;
}

/* Returns the mean time by which retries of single packets delay the last one:
 * the integral of the probability that some packet is missing, from the end of
 * sending on. */
static double compute_retry_delay(double packets, double send_ns,
                                  double retry_ns, double loss)
{
    enum { POINTS = 8 };
    double delay = 0, x = send_ns;
    double offset = send_ns - floor(send_ns / retry_ns) * retry_ns;
    /* The probability changes its slope at k retries after 0 and send_ns. */
    for (uint32_t i = 0; i < 200; i++) {
        double base = floor(x / retry_ns + 1e-9) * retry_ns;
        double next = x - base < offset - 1e-6 * retry_ns ? base + offset
                                                          : base + retry_ns;
        double step = (next - x) / POINTS, part = 0;
        for (uint32_t k = 0; k < POINTS; k++)
            part -= expm1(compute_log_arrived(x + (k + 0.5) * step, packets,
                                              send_ns, retry_ns, loss));
        delay += part * step;
        x = next;
        if (part < 1e-6 * POINTS)
            break;
    }
    return delay;
}

/* Returns the expected maximum of n Poisson variables. */
static double compute_max_poisson(double mean, double n)
{
    double sum = 0, term = exp(-mean), below = 0;
    /* Many losses: as many as flows on the busiest of n paths. */
    if (mean > 32)
        return lhi_ecmp_busiest_path_flows(mean * n, n);
    for (double most = 0; most < mean + 20 * sqrt(mean) + 30; most++) {
        below = fmin(1, below + term);
        sum += -expm1(n * log(below));
        term *= mean / (most + 1);
    }
    return sum;
}

/* Returns the probability that the loss of a packet ends in a timeout: each
 * queue pair has one packet that no other follows. */
static double compute_timeout_probability(double packets, double queue_pairs,
                                          double loss)
{
    return -expm1(fmin(queue_pairs, packets) * log1p(-loss));
}

/* Returns the mean time by which go-back-N delays a message. A loss costs its
 * queue pair a round trip, and the link the data that the queue pair sends in
 * it. Where sending takes longer than a round trip, the other queue pairs use
 * the link meanwhile, so that only losses in the last round trip are waited
 * for. losses: of a queue pair. */
static double compute_go_back_delay(const lhi_long_message *m, double send_ns,
                                    double packets, double losses)
{
    double n = m->queue_pairs, round_trip_ns = m->round_trip_ns;
    double each = send_ns / packets * n;
    double wasted = losses * (round_trip_ns + each);
    double waited = compute_max_poisson(losses, n) * round_trip_ns;
    if (send_ns <= round_trip_ns)
        return fmax(wasted, waited);
    double rate = losses * n / send_ns;
    double last = round_trip_ns + expm1(-rate * round_trip_ns) / rate;
    return fmin(fmax(wasted, waited), wasted + last * (1 - 1 / n));
}

double lhi_estimate_message_ns(const lhi_long_message *m)
{
    /* Each queue pair's part ends with its own packet. */
    double packets =
        m->queue_pairs * ceil(m->bytes / m->queue_pairs / LH_PACKET_BYTES);
    double send_ns = compute_sending_ns(m), retry_ns = m->round_trip_ns;
    if (!(m->bytes_per_s > 0 && m->loss < 1))
        return INFINITY;
    if (!(m->loss > 0) || !(retry_ns > 0) || packets < 1)
        return m->latency_ns + send_ns / (1 - m->loss);
    /* One packet each: only timeouts repeat them, however often. */
    if (packets <= m->queue_pairs)
        return m->latency_ns + send_ns +
               compute_retry_delay(packets, send_ns,
                                   timeout_round_trips * m->round_trip_ns,
                                   m->loss);
    /* Each loss costs its queue pair a round trip; the others continue. */
    double losses = packets / m->queue_pairs * m->loss / (1 - m->loss);
    double late_ns;
    if (m->recovery != LH_RECOVERY_GO_BACK_N) {
        send_ns /= 1 - m->loss;
        retry_ns += m->reorder_ns;
        late_ns =
            m->window_bytes < m->bytes
                ? compute_max_poisson(losses, m->queue_pairs) * retry_ns
                : compute_retry_delay(packets, send_ns, retry_ns, m->loss);
    } else {
        late_ns = compute_go_back_delay(m, send_ns, packets, losses);
    }
    double timeout_ns = (timeout_round_trips + 1) * m->round_trip_ns;
    double waits =
        compute_timeout_probability(packets, m->queue_pairs, m->loss);
    return m->latency_ns + send_ns + late_ns +
           waits * fmax(0, timeout_ns - late_ns);
}
