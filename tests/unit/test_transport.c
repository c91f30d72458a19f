/* SPDX-License-Identifier: Apache-2.0 */
/* Messages and collectives over long links, compared with numbers computed by
 * hand. */
#include "model/link_settings.h"
#include "test.h"

#include <longhaul/experimental/network_model.h>

#define CHECK_DIGITS(got, want, digits)                                        \
    CHECK_MSG(fabs((got) - (want)) <= 0.5 * pow(10, -(digits)),                \
              "%s is %.9g, not %.9g", #got, (double)(got), (double)(want))

static const double ms = 1e6, us = 1e3;

static void rings(void)
{
    lh_flow slow = {6.25e9, 50 * us, 0}, fast = {50e9, 1 * ms, 0};
    CHECK_DIGITS(lh_ring_ns(LH_RING_LOCKSTEP, 4, 100e6, &slow, 0) / ms, 12.15,
                 2);
    CHECK_DIGITS(lh_ring_ns(LH_RING_PIPELINED, 4, 100e6, &slow, 0) / ms, 12.10,
                 2);
    CHECK_DIGITS(lh_ring_ns(LH_RING_LOCKSTEP, 1024, 89.1e6, &fast, 0) / ms,
                 1024.78, 2);
    CHECK_DIGITS(lh_ring_ns(LH_RING_PIPELINED, 1024, 89.1e6, &fast, 0) / ms,
                 3.78, 2);
    /* Inner hops count if the ring is longer than three. */
    CHECK_DIGITS(lh_ring_ns(LH_RING_PIPELINED, 5, 0, &slow, 10 * us) / us, 120,
                 6);
    CHECK(lh_ring_ns(LH_RING_LOCKSTEP, 1, 1e9, &slow, 0) == 0);
    CHECK(isinf(lh_ring_ns(LH_RING_LOCKSTEP, 2, 1, &(lh_flow){0}, 0)));
}

static void two_sites(void)
{
    /* 1e9 elements with 2 bytes, 100 Gb/s and 1 ms between two GPUs. */
    lh_flow across = {12.5e9, 1 * ms, 0}, inside = {50e9, 10 * us, 0};
    lh_hybrid h =
        lh_hybrid_ns(LH_RING_PIPELINED, 2, 2e9, &inside, &across, false);
    CHECK_DIGITS(h.reduce_ns / ms, 162, 6);
    CHECK(h.all_gather_ns == 0);
    /* Eight GPUs: inner rings of four; a quarter each across, or all. */
    lh_hybrid leaders =
        lh_hybrid_ns(LH_RING_PIPELINED, 8, 8e6, &inside, &across, false);
    lh_hybrid shares =
        lh_hybrid_ns(LH_RING_PIPELINED, 8, 8e6, &inside, &across, true);
    double within = 0.12 * ms + 30 * us; /* 3/4 of 8 MB at 50 GB/s, 3 hops */
    CHECK_DIGITS(leaders.all_gather_ns, within, 3);
    CHECK_DIGITS(leaders.reduce_ns, within + 2 * (1 * ms + 0.32 * ms), 3);
    CHECK_DIGITS(shares.reduce_ns, within + 2 * (1 * ms + 0.08 * ms), 3);
}

static void spraying(void)
{
    double line = 1e12;
    CHECK_DIGITS(lh_spray_rate(line, 1, 1 * ms) * 8 / 1e9, 8.39, 2);
    CHECK_DIGITS(lh_spray_rate(line, 4, 1 * ms) * 8 / 1e9, 33.55, 2);
    CHECK_DIGITS(lh_spray_rate(line, 1, 50 * us) * 8 / 1e9, 167.8, 1);
    CHECK(lh_spray_rate(50e9, 100, 1 * ms) == 50e9);
    CHECK(lh_spray_rate(50e9, 1, 0) == 50e9);
    CHECK_INT(lh_spray_queue_pairs(50e9, 1 * ms), 48);
    CHECK_INT(lh_spray_queue_pairs(50e9, 0), 1);
    uint32_t q = lh_spray_queue_pairs(37e9, 3.3 * ms);
    CHECK(lh_spray_rate(37e9, q, 3.3 * ms) == 37e9);
    CHECK(lh_spray_rate(37e9, q - 1, 3.3 * ms) < 37e9);
}

static void losses(void)
{
    const double bytes = 41943040;
    lh_flow clean = {12.5e9, 50 * us, 0}, lossy = {12.5e9, 50 * us, 2e-4};
    lh_flow far = {12.5e9, 1 * ms, 2e-4};
    CHECK_DIGITS(lh_message_ns(LH_RECOVERY_GO_BACK_N, bytes, &clean) / ms,
                 3.4054, 4);
    CHECK_DIGITS(lh_message_ns(LH_RECOVERY_GO_BACK_N, bytes, &lossy) / ms,
                 3.6110, 4);
    CHECK_DIGITS(lh_message_ns(LH_RECOVERY_GO_BACK_N, bytes, &far) / ms, 8.4529,
                 4);
    CHECK_DIGITS(lhi_flow_efficiency(LH_RECOVERY_GO_BACK_N, &far), 0.4502, 4);
    /* Resending only lost packets: 2.048 packets with 0.328 us more. */
    CHECK_DIGITS(lh_message_ns(LH_RECOVERY_SELECTIVE_REPEAT, bytes, &far) / ms,
                 4.3561, 4);
    CHECK(lhi_flow_efficiency(LH_RECOVERY_SELECTIVE_REPEAT, &far) == 1 - 2e-4);
    CHECK(lhi_flow_efficiency(LH_RECOVERY_GO_BACK_N, &clean) == 1);
    CHECK(isinf(lh_message_ns(LH_RECOVERY_GO_BACK_N, 1, &(lh_flow){1, 1, 1})));
}

/* A message of one packet is repeated after timeouts of four round trips, on
 * average loss / (1 - loss) times. */
static void a_single_packet_waits_for_timeouts(void)
{
    const lhi_long_message packet = {.recovery = LH_RECOVERY_SELECTIVE_REPEAT,
                                     .bytes = LH_PACKET_BYTES,
                                     .bytes_per_s = 4096e9,
                                     .queue_pairs = 1,
                                     .window_bytes = INFINITY,
                                     .latency_ns = 1 * ms,
                                     .round_trip_ns = 2 * ms,
                                     .loss = 0.01};
    CHECK_DIGITS(lhi_estimate_message_ns(&packet) / ms, 1 + 0.01 / 0.99 * 4 * 2,
                 4);
}

int main(void)
{
    RUN(rings);
    RUN(two_sites);
    RUN(spraying);
    RUN(losses);
    RUN(a_single_packet_waits_for_timeouts);
    return test_summary();
}
