/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of links between datacenters: hashing, windows, congestion, loss. */
#include "model/link_settings.h"
#include "test.h"

#include <longhaul/experimental/network_model.h>

static const double ms = 1e6, us = 1e3;

/* Expected maximum of `flows` hashed onto `paths`, by enumerating counts:
 * weight[n] is flows!/paths^flows times the number of ways to put n on the
 * paths so far, none with more than `most`. */
static double busiest_by_counting(int flows, int paths)
{
    double expected = 0;

    for (int most = 0; most < flows; most++) {
        double ways[64] = {1};

        for (int path = 0; path < paths; path++) {
            double next[64] = {0};

            for (int n = 0; n <= flows; n++)
                for (int k = 0; k <= most && n + k <= flows; k++)
                    next[n + k] += ways[n] / tgamma(k + 1);
            for (int n = 0; n <= flows; n++)
                ways[n] = next[n];
        }
        expected += 1 - ways[flows] * tgamma(flows + 1) / pow(paths, flows);
    }
    return expected;
}

static void hashing(void)
{
    static const int cases[][2] = {{1, 8},  {2, 2},  {2, 64}, {3, 5},
                                   {8, 8},  {16, 4}, {32, 8}, {60, 3},
                                   {60, 7}, {60, 60}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double got = lhi_ecmp_busiest_path_flows(cases[i][0], cases[i][1]);
        double want = busiest_by_counting(cases[i][0], cases[i][1]);

        CHECK_MSG(fabs(got / want - 1) < 0.01, "%d on %d: %g, not %g",
                  cases[i][0], cases[i][1], got, want);
    }
    CHECK_NEAR(lhi_ecmp_busiest_path_flows(2, 2), 1.5, 1e-9);
    CHECK_NEAR(lhi_ecmp_busiest_path_flows(7, 1), 7, 0);
    CHECK_NEAR(lhi_ecmp_busiest_path_flows(0, 4), 0, 0);
    /* The formula changes at 64 flows per path. */
    CHECK_NEAR(lhi_ecmp_busiest_path_flows(8 * 64 + 1, 8),
               lhi_ecmp_busiest_path_flows(8 * 64, 8), 1.0);
    /* More queue pairs reduce the imbalance. */
    double before = 100;
    for (double q = 1; q <= 4096; q *= 2) {
        double over = lhi_ecmp_busiest_path_flows(16 * q, 48) / (16 * q / 48);

        CHECK(over >= 1 && over < before);
        before = over;
    }
    CHECK(before < 1.07);
}

/* NCCL's ends: over 140 ms there and back a channel of 4 MiB carries 0.24 Gb/s.
 */
static void nccl_ends(void)
{
    lh_link_load use = {.line_bytes_per_s = 12.5e9,
                        .latency_ns = 70 * ms,
                        .oversubscription = 1,
                        .senders = 2};
    lh_link_setting s = {.channels = 1};
    lh_link_effect e;
    lh_error err = {0};

    CHECK_INT(lh_nccl_channels(50e9), 4);
    CHECK_INT(lh_nccl_channels(14e9), 1);
    CHECK_INT(lh_nccl_channels(0), 2);
    CHECK_OK(lhi_cost_link_setting(&use, &s, &e, &err), err);
    CHECK_INT(e.limit, LH_LIMIT_WINDOW);
    CHECK_NEAR(e.bytes_per_s, 4194304 / 0.14, 1);
    s.channels = 4;
    s.buffer_bytes = 64 * 1048576.0;
    CHECK_OK(lhi_cost_link_setting(&use, &s, &e, &err), err);
    CHECK_NEAR(e.bytes_per_s, 4 * 64 * 1048576 / 0.14, 1);
    /* TCP: windows of Linux's default limit, or given ones. */
    s.sockets = 2;
    CHECK_NEAR(lh_nccl_window_bytes(&s), 4 * 2 * 4194304.0, 0);
    s.tcp_window_bytes = 16 * 1048576.0;
    CHECK_NEAR(lh_nccl_window_bytes(&s), 4 * 2 * 16 * 1048576.0, 0);
    s.sockets = 8;
    CHECK_NEAR(lh_nccl_window_bytes(&s), 4 * 64 * 1048576.0, 0);
    /* Enough in flight: the link limits. */
    s.channels = 64;
    CHECK_OK(lhi_cost_link_setting(&use, &s, &e, &err), err);
    CHECK_INT(e.limit, LH_LIMIT_SHARE);
    CHECK_NEAR(e.bytes_per_s, 6.25e9, 1);
    s = (lh_link_setting){0};
    CHECK(isinf(lh_nccl_window_bytes(&s)) && lh_link_setting_is_default(&s));
    s.channels = 1;
    CHECK(!lh_link_setting_is_default(&s));
}

static void codes(void)
{
    /* One parity packet for one data packet: both lost. */
    CHECK_NEAR(lhi_fec_residual(1, 1, 0.1), 0.01, 1e-12);
    /* Two and one: all three lost, or two of them with a share of 2/3. */
    CHECK_NEAR(lhi_fec_residual(2, 1, 0.1), 0.001 + 3 * 0.01 * 0.9 * 2 / 3,
               1e-12);
    CHECK_NEAR(lhi_fec_residual(8, 0, 0.1), 0.1, 1e-12);
    CHECK(lhi_fec_residual(32, 4, 0) == 0);
    CHECK(lhi_fec_residual(32, 2, 1e-3) < 1e-5);
    CHECK(lhi_fec_residual(32, 4, 1e-3) < lhi_fec_residual(32, 2, 1e-3));
    CHECK_NEAR(lhi_fec_residual(1000, 10, 0.99), 0.99, 1e-6);
    CHECK_NEAR(lhi_fec_residual(1000, 10, 0.01), 0.0055395773, 1e-9);
}

/* The sawtooth, round by round: `window` packets are sent per round trip, or in
 * the time that the link needs for them. */
static double saw_tooth(double product, double queue)
{
    double sent = 0, busy = 0;

    for (double w = (product + queue) / 2; w < product + queue; w++) {
        sent += w;
        busy += fmax(w, product);
    }
    return sent / busy;
}

static void congestion(void)
{
    for (double q = 0; q <= 1e5; q += 2e4)
        CHECK_NEAR(lhi_congestion_share(4096e9, 5e4, q * 4096, 1),
                   saw_tooth(1e5, q), 1e-5);
    CHECK_NEAR(lhi_congestion_share(12.5e9, 1 * ms, 0, 1), 0.75, 1e-12);
    CHECK_NEAR(lhi_congestion_share(12.5e9, 1 * ms, 25e6, 1), 1, 1e-12);
    CHECK_NEAR(lhi_congestion_share(12.5e9, 0, 0, 1), 1, 0);
    /* Half a product: (0.5 x 3.5 / 8 + 0.5 + 0.125) / (0.25 + 0.625). */
    CHECK_NEAR(lhi_congestion_share(12.5e9, 1 * ms, 12.5e6, 1), 0.84375 / 0.875,
               1e-12);
    /* Four alternating flows need half the queue. */
    CHECK_NEAR(lhi_congestion_share(12.5e9, 1 * ms, 6.25e6, 4), 0.84375 / 0.875,
               1e-12);
}

static lh_link_effect effect(lh_link_load use, lh_link_setting setting)
{
    lh_link_effect e = {0};
    lh_error err = {0};

    CHECK_OK(lhi_cost_link_setting(&use, &setting, &e, &err), err);
    return e;
}

static void shares(void)
{
    lh_link_load use = {.line_bytes_per_s = 100e9,
                        .latency_ns = 1 * ms,
                        .loss = 0.1,
                        .oversubscription = 4,
                        .senders = 10};
    lh_link_setting none = {0};
    lh_link_effect e = effect(use, none);

    CHECK(lh_link_setting_is_default(&none));
    CHECK_NEAR(e.share_bytes_per_s, 2.5e9, 1e-3);
    CHECK_NEAR(e.bytes_per_s, 2.25e9, 1e-3);
    CHECK_NEAR(e.in_flight_bytes, 2.25e6, 1e-3);
    CHECK_INT(e.limit, LH_LIMIT_SHARE);
    CHECK(e.message_ns == 0 && isinf(e.window_bytes_per_s));
    use.interface_bytes_per_s = 1e9;
    e = effect(use, none);
    CHECK_INT(e.limit, LH_LIMIT_INTERFACE);
    CHECK_NEAR(e.bytes_per_s, 0.9e9, 1e-3);
    /* One flow on a link with eight paths uses one of them. */
    use = (lh_link_load){.line_bytes_per_s = 100e9,
                         .latency_ns = 50 * us,
                         .oversubscription = 1,
                         .senders = 1};
    e = effect(use,
               (lh_link_setting){.balancing = LH_BALANCING_ECMP, .paths = 8});
    CHECK_NEAR(e.bytes_per_s, 12.5e9, 1);
    CHECK_NEAR(e.busiest_flows, 1, 1e-12);
    e = effect(use, (lh_link_setting){.balancing = LH_BALANCING_ECMP,
                                      .paths = 8,
                                      .queue_pairs = 8});
    CHECK_NEAR(e.balance_share, 1 / lhi_ecmp_busiest_path_flows(8, 8), 1e-12);
}

/* One and four queue pairs at 1 ms, one at 50 us, on a fast line. */
static void spraying(void)
{
    lh_link_load use = {.line_bytes_per_s = 400e9,
                        .latency_ns = 1 * ms,
                        .oversubscription = 1,
                        .senders = 1};
    lh_link_setting spray = {.balancing = LH_BALANCING_SPRAY};
    lh_link_effect e = effect(use, spray);

    CHECK_INT(e.limit, LH_LIMIT_WINDOW);
    CHECK_NEAR(e.bytes_per_s * 8e-9, 8.39, 0.005);
    spray.queue_pairs = 4;
    e = effect(use, spray);
    CHECK_NEAR(e.bytes_per_s * 8e-9, 33.55, 0.005);
    spray.queue_pairs = 1;
    use.latency_ns = 50 * us;
    e = effect(use, spray);
    CHECK_NEAR(e.bytes_per_s * 8e-9, 167.8, 0.05);
    /* Twice the window. */
    spray.window_bytes = 2 * LH_WINDOW_BYTES;
    e = effect(use, spray);
    CHECK_NEAR(e.bytes_per_s * 8e-9, 335.5, 0.05);
    use.senders = 16;
    e = effect(use, spray);
    CHECK_INT(e.limit, LH_LIMIT_SHARE);
    CHECK_NEAR(e.bytes_per_s, 25e9, 1);
}

static void loss(void)
{
    lh_link_load use = {.line_bytes_per_s = 12.5e9,
                        .latency_ns = 1 * ms,
                        .loss = 2e-4,
                        .oversubscription = 1,
                        .senders = 1,
                        .message_bytes = 41943040};
    lh_link_effect back =
        effect(use, (lh_link_setting){.recovery = LH_RECOVERY_GO_BACK_N});
    lh_link_effect one = effect(
        use, (lh_link_setting){.recovery = LH_RECOVERY_SELECTIVE_REPEAT});
    lh_link_effect code =
        effect(use, (lh_link_setting){.recovery = LH_RECOVERY_GO_BACK_N,
                                      .fec_data = 32,
                                      .fec_parity = 2});

    /* Means of 256 packet simulations (longhaul packets): 8.400, 5.164 ms. A
     * stream of messages takes 8.4529 ms for each with go-back-N; the loss of
     * the last packet adds 2e-4 timeouts. */
    CHECK_NEAR(back.message_ns / ms, 8.4529, 2e-4 * 10);
    CHECK_NEAR(back.message_ns / ms, 8.400, 0.1);
    CHECK_NEAR(back.recovery_share, 0.4502, 5e-5);
    CHECK_NEAR(1 * ms + use.message_bytes * 1e9 / back.bytes_per_s, 8.4529 * ms,
               50);
    CHECK_NEAR(back.message_bytes_per_s,
               use.message_bytes * 1e9 / back.message_ns, 1);
    CHECK_NEAR(one.message_ns / ms, 5.164, 0.05);
    CHECK_NEAR(one.recovery_share, 1 - 2e-4, 1e-12);
    CHECK_NEAR(code.fec_share, 32.0 / 34, 1e-12);
    CHECK(code.loss < 1e-8 && code.recovery_share > 0.9999);
    CHECK_NEAR(code.bytes_per_s, 12.5e9 * 32 / 34, 12.5e9 * 1e-4);
    /* Each of eight queue pairs discards an eighth as much. */
    lh_link_effect eight =
        effect(use, (lh_link_setting){.recovery = LH_RECOVERY_GO_BACK_N,
                                      .queue_pairs = 8});
    CHECK(eight.recovery_share > 0.85);
    CHECK_NEAR(eight.message_ns / ms, 5.608, 0.05);
}

/* A round trip uses both directions. */
static void ways_back(void)
{
    lh_link_load use = {.line_bytes_per_s = 12.5e9,
                        .latency_ns = 0.5 * ms,
                        .return_ns = 1.5 * ms,
                        .loss = 2e-4,
                        .oversubscription = 1,
                        .senders = 1,
                        .message_bytes = 41943040};
    lh_link_effect e =
        effect(use, (lh_link_setting){.recovery = LH_RECOVERY_GO_BACK_N});

    CHECK_NEAR(e.recovery_share, 0.4502, 5e-5);
    CHECK_NEAR(e.message_ns / ms, 8.4529 - 0.5, 2e-4 * 10);
    e = effect(use, (lh_link_setting){.balancing = LH_BALANCING_SPRAY});
    CHECK_NEAR(e.window_bytes_per_s * 8e-9, 8.39, 0.005);
}

static void signals(void)
{
    lh_link_load use = {.line_bytes_per_s = 100e9,
                        .latency_ns = 1 * ms,
                        .oversubscription = 8,
                        .senders = 4,
                        .interface_bytes_per_s = 50e9};
    lh_link_setting on = {.congestion = LH_CONGESTION_ON};
    lh_link_setting off = {.congestion = LH_CONGESTION_OFF};
    lh_link_effect slow = effect(use, on), fast = effect(use, off);

    CHECK_NEAR(fast.bytes_per_s, 100e9 / 32, 1);
    CHECK_NEAR(slow.congestion_share,
               lhi_congestion_share(100e9, 1 * ms, LH_QUEUE_BYTES, 4), 1e-12);
    CHECK(slow.bytes_per_s < fast.bytes_per_s);
    on.queue_bytes = 1e9;
    CHECK_NEAR(effect(use, on).bytes_per_s, fast.bytes_per_s, 1);
    /* No queue builds up if senders are slower than the link. */
    use.interface_bytes_per_s = 1e9;
    on.queue_bytes = 0;
    CHECK_NEAR(effect(use, on).congestion_share, 1, 0);
}

static void nonsense(void)
{
    lh_link_load use = {.line_bytes_per_s = 1, .oversubscription = 1};
    lh_link_setting setting = {0};
    lh_link_effect e;
    lh_error err;

    CHECK_INT(lhi_cost_link_setting(&use, &setting, &e, &err), LH_EINVAL);
    CHECK_HAS(err.text, "senders of at least 1");
    use.senders = 1;
    setting.fec_parity = 1;
    CHECK_INT(lhi_cost_link_setting(&use, &setting, &e, &err), LH_EINVAL);
    CHECK_HAS(err.text, "block of a code");
    setting.fec_data = 1;
    CHECK_OK(lhi_cost_link_setting(&use, &setting, &e, &err), err);
    CHECK(!lh_link_setting_is_default(&setting));
}

int main(void)
{
    RUN(hashing);
    RUN(nccl_ends);
    RUN(codes);
    RUN(congestion);
    RUN(shares);
    RUN(spraying);
    RUN(loss);
    RUN(ways_back);
    RUN(signals);
    RUN(nonsense);
    return test_summary();
}
