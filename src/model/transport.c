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
