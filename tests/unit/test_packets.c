/* SPDX-License-Identifier: Apache-2.0 */
/* The packet simulation: times computed by hand, queueing theory, loss
 * recovery, and properties of random networks. */
#include "test.h"

#include "base/random.h"
#include "model/link_settings.h"
#include "network/packet/state.h"

#include <longhaul/experimental/packets.h>

#define GBIT 1.25e8
#define MS 1e6
/* Checks that `got` is within the share `part` of `want`. */
#define CHECK_SHARE(got, want, part) CHECK_NEAR(got, want, (part)*fabs(want))

/* A link with one sender, whose interface is as fast as the link. */
static lh_packet_link a_link(double gbps, double latency_ns, double bytes)
{
    return (lh_packet_link){
        .load = {.line_bytes_per_s = gbps * GBIT,
                 .latency_ns = latency_ns,
                 .oversubscription = 1,
                 .senders = 1,
                 .interface_bytes_per_s = gbps * GBIT,
                 .message_bytes = bytes},
        .setting = {.balancing = LH_BALANCING_ECMP,
                    .recovery = LH_RECOVERY_SELECTIVE_REPEAT}};
}

static lh_packet_result simulate(const lh_packet_link *link, uint32_t seeds)
{
    const lh_packet_run run = {.size = sizeof run, .seed = 1, .n_seeds = seeds};
    lh_packet_result out = {0};
    lh_error err = {0};
    CHECK_OK(lh_packets_simulate_links(link, 1, &run, &out, &err), err);
    const lh_packet_counters *k = &out.counters;
    CHECK_INT(k->sent, k->delivered + k->lost + k->dropped);
    return out;
}

/* --- times by hand --- */

/* Two packets, the second one short: three hops with 1 us, 1 ms and 1 us
 * latency, on each of which the packets are sent anew. */
static void two_packets(void)
{
    lh_packet_link link = a_link(100, 1 * MS, 5000);
    lh_packet_result r = simulate(&link, 1);
    double full = 4096 / 12.5, rest = 904 / 12.5;
    CHECK_NEAR(r.median_ns, 3 * full + rest + 1002000, 0.01);
    CHECK_INT(r.counters.sent, 2);
    CHECK_INT(r.counters.acks, 2);
    CHECK_INT(r.counters.retransmitted, 0);
    /* The closed form counts the same latencies, and a packet once. */
    link = a_link(400, 10000, 65536);
    CHECK_NEAR(simulate(&link, 1).closed_form_ns, 12000 + 65536 / 50.0, 1);
}

/* Each message starts when the previous one has arrived. */
static void messages_in_turn(void)
{
    lh_packet_link link = a_link(100, 1 * MS, 4096);
    double once = simulate(&link, 1).end_ns;
    link.messages = 5;
    lh_packet_result r = simulate(&link, 1);
    CHECK_NEAR(r.end_ns, 5 * once, 0.01);
    CHECK_NEAR(r.median_ns, once, 0.01);
}

/* A window of 16 packets is sent once in each round trip. */
static void windows(void)
{
    lh_packet_link link = a_link(100, 1 * MS, 64 * 4096);
    link.setting.window_bytes = 16 * 4096;
    double t = 4096 / 12.5, ack = 64 / 12.5;
    /* From sending a packet to its ack's arrival. */
    double round_trip = 3 * t + 3 * ack + 2 * 1002000;
    double last = 15 * t + 3 * t + 1002000;
    CHECK_NEAR(simulate(&link, 1).median_ns, 3 * round_trip + last, 1);
}

/* Losses known from the counters: a lost packet that others follow arrives a
 * round trip later. */
static void a_lost_packet(void)
{
    lh_packet_link link = a_link(100, 1 * MS, 4096e3);
    double clean = simulate(&link, 1).median_ns;
    uint32_t n_late = 0;
    link.load.loss = 1e-4;
    for (uint64_t seed = 0; seed < 40; seed++) {
        const lh_packet_run run = {.size = sizeof run, .seed = seed};
        lh_packet_result r = {0};
        lh_error err = {0};
        CHECK_OK(lh_packets_simulate_links(&link, 1, &run, &r, &err), err);
        if (r.counters.lost != 1 || r.counters.timeouts > 0) {
            CHECK(r.counters.lost > 0 || r.median_ns == clean);
            continue;
        }
        n_late++;
        CHECK(r.median_ns > clean && r.median_ns < clean + 2.01 * MS + 1000);
    }
    CHECK_MSG(n_late >= 2, "%u runs with one loss", n_late);
}

/* --- theory --- */

/* M/D/1: packets arrive at a switch's port as a Poisson process. Two hosts send
 * to a third over a link as fast as their own; mean wait rho / 2 (1 - rho) of a
 * service time [Kleinrock, Queueing Systems 1, section 5.6]. Many hosts make
 * the arrivals of their interfaces Poisson. */
static void queueing(void)
{
    enum { HOSTS = 64, PACKETS = 40000 };
    const double rho = 0.7, service_ns = 4096 / 12.5;
    static lhi_port_spec ports[2 * (HOSTS + 1)];
    static lhi_queue_pair pairs[PACKETS];
    static lhi_packet_message messages[PACKETS];
    static lhi_message_times times[PACKETS];
    lhi_random random = {.state = 7};
    for (uint32_t i = 0; i <= HOSTS; i++)
        for (uint32_t k = 0; k < 2; k++)
            ports[2 * i + k] =
                (lhi_port_spec){.from = k ? HOSTS + 1 : i,
                                .to = k ? i : HOSTS + 1,
                                /* the receiver's port is the slow one */
                                .bytes_per_s = i == HOSTS ? 12.5e9 : 12.5e11};
    int64_t at = 0;
    for (uint32_t i = 0; i < PACKETS; i++) {
        at += lhi_random_exponential(&random, service_ns / rho);
        pairs[i] = (lhi_queue_pair){i % HOSTS, HOSTS};
        messages[i] = (lhi_packet_message){
            .bytes = 4096, .first_pair = i, .queue_pairs = 1, .delay_ns = at};
    }
    lhi_arena *mem = lhi_arena_make(0);
    lhi_fabric fabric;
    lh_packet_counters counters;
    lh_error err = {0};
    CHECK_OK(lhi_fabric_build(HOSTS + 1, HOSTS + 2, ports, 2 * (HOSTS + 1), mem,
                              &fabric, &err),
             err);
    const lhi_packet_options options = {
        .fabric = &fabric,
        .transport = {.packet_bytes = 4096,
                      .timeout_ns = 1000000000,
                      .line_bytes_per_s = 12.5e11},
        .pairs = pairs,
        .messages = messages,
        .n_pairs = PACKETS,
        .n_messages = PACKETS};
    CHECK_OK(lhi_packets_simulate(&options, times, &counters, &err), err);
    double wait = 0;
    for (uint32_t i = 0; i < PACKETS; i++)
        wait += times[i].end_ns - times[i].start_ns - 1.01 * service_ns;
    CHECK_SHARE(wait / PACKETS, rho / (2 * (1 - rho)) * service_ns, 0.05);
    lhi_arena_free(mem);
}

/* The share of its rate that a long flow keeps: go-back-N sends a round trip
 * again for each loss, selective repeat a packet. */
static void long_flows(void)
{
    lh_packet_link link = a_link(100, 0.05 * MS, 400e6);
    lh_flow flow = {12.5e9, 50000, 1e-4};
    link.load.loss = flow.loss;
    link.timeout_ns = 1000000;
    for (uint32_t i = 0; i < 2; i++) {
        link.setting.recovery =
            i ? LH_RECOVERY_GO_BACK_N : LH_RECOVERY_SELECTIVE_REPEAT;
        double kept = lhi_flow_efficiency(link.setting.recovery, &flow);
        lh_packet_result r = simulate(&link, 1);
        CHECK_SHARE(400e6 / 12.5 / r.median_ns, kept, 0.02);
    }
}

/* Losses in bursts have the same share and another number of runs. */
static void bursts(void)
{
    lh_packet_link link = a_link(100, 0.01 * MS, 4096 * 100e3);
    link.load.loss = 0.01;
    link.burst = 5;
    lh_packet_result r = simulate(&link, 2);
    CHECK_SHARE((double)r.counters.lost / (double)r.counters.sent, 0.01, 0.15);
}

/* The first packet of a link is lost as often as any other: messages of one
 * packet, alone on the link. */
static void first_packets(void)
{
    lh_packet_link link = a_link(100, 0.1 * MS, 1000);
    link.load.loss = 0.5;
    lh_packet_result r = simulate(&link, 256);
    CHECK_SHARE((double)r.counters.lost / (double)r.counters.sent, 0.5, 0.2);
    CHECK(r.counters.timeouts > 100);
}

/* A packet that is alone on its queue pair is repeated by timeouts, each after
 * four round trips: the expected maximum of n geometric variables. */
static void single_packets(void)
{
    const double n = 256, loss = 0.01;
    lh_packet_link link = a_link(100, 1 * MS, n * 4096);
    link.setting.queue_pairs = (uint32_t)n;
    link.load.loss = loss;
    double timeouts = 0;
    for (int k = 1; k < 8; k++)
        timeouts += 1 - pow(1 - pow(loss, k), n);
    lh_packet_result r = simulate(&link, 256);
    CHECK_SHARE(r.closed_form_ns, 1 * MS + n * 4096 / 12.5 + timeouts * 8 * MS,
                0.02);
    CHECK_SHARE(r.mean_ns, r.closed_form_ns, 0.1);
}

/* Two parity packets of 34 recover all but the blocks with three losses. */
static void redundancy(void)
{
    lh_packet_link link = a_link(100, 1 * MS, 4096 * 32000);
    link.load.loss = 1e-3;
    link.setting.fec_data = 32;
    link.setting.fec_parity = 2;
    lh_packet_result r = simulate(&link, 1);
    CHECK_INT(r.counters.sent - r.counters.retransmitted, 34000);
    CHECK(r.counters.lost > 10 && r.counters.retransmitted <= 3);
    CHECK_SHARE(r.median_ns, 34000 * 4096 / 12.5 + 1 * MS, 0.01);
    link.setting.fec_parity = link.setting.fec_data = 0;
    CHECK(simulate(&link, 1).median_ns > r.median_ns + 0.5 * MS);
}

/* Many queue pairs share an interface, so that the packets of a block are sent
 * further apart than the timeout: nothing is sent again. */
static void slow_blocks(void)
{
    lh_packet_link link = a_link(10, 0.01 * MS, 64 * 12 * 4096);
    link.setting.recovery = LH_RECOVERY_GO_BACK_N;
    link.setting.queue_pairs = 64;
    link.setting.fec_data = 4;
    link.setting.fec_parity = 1;
    lh_packet_result r = simulate(&link, 1);
    CHECK_INT(r.counters.retransmitted, 0);
    CHECK_INT(r.counters.timeouts, 0);
    /* A block is recovered before its parity is due, except at the end, when
     * few queue pairs share the interface. */
    CHECK(r.counters.sent >= 64 * 12 && r.counters.sent <= 64 * 13);
    CHECK_SHARE(r.end_ns, 64 * 12 * 4096 / 1.25, 0.02);
}

/* Packets of other jobs at Poisson times: packets that are sent one after the
 * other wait as in the M/D/1 queue above. */
static void other_jobs_at_random(void)
{
    const double rho = 0.7;
    lh_packet_link link = a_link(100, 10000, 4096);
    link.load.interface_bytes_per_s = 12.5e11;
    link.messages = 4000;
    link.buffer_bytes = 1e9;
    double alone = simulate(&link, 1).mean_ns;
    link.other_gpus = 64;
    link.other_load = rho;
    CHECK_SHARE(simulate(&link, 1).mean_ns - alone,
                rho / (2 * (1 - rho)) * 4096 / 12.5, 0.08);
}

/* A message beside three GPUs of other jobs that send all the time gets a
 * quarter of the rate (max-min share). */
static void other_jobs_without_pause(void)
{
    lh_packet_link link = a_link(100, 50000, 40e6);
    link.control = LH_CONTROL_DELAY;
    link.buffer_bytes = 1e9;
    link.other_gpus = 3;
    CHECK_SHARE(simulate(&link, 1).mean_ns, 4 * 40e6 / 12.5, 0.05);
    link.other_gpus = 1;
    link.setting.queue_pairs = 2;
    CHECK_SHARE(simulate(&link, 1).mean_ns, 2 * 40e6 / 12.5, 0.05);
}

/* Flows that share a path get equal rates; four hosts over one path. */
static void equal_shares(void)
{
    lh_packet_link link = a_link(100, 0.1 * MS, 4e6);
    link.load.senders = 4;
    link.buffer_bytes = 1e9;
    lh_packet_result r = simulate(&link, 1);
    CHECK_SHARE(r.median_ns, 4 * 4e6 / 12.5 + 0.1 * MS, 0.01);
    CHECK_SHARE(r.max_ns, r.median_ns, 0.001);
    CHECK_INT(r.counters.dropped, 0);
}

/* Balls in bins: with 8 queue pairs on 4 paths the time is that of the path
 * with the most. Spraying uses all paths. */
static void hashing(void)
{
    lh_packet_link link = a_link(100, 0.2 * MS, 4e6);
    link.setting.paths = 4;
    link.setting.queue_pairs = 8;
    link.setting.window_bytes = link.buffer_bytes = 1e9;
    lh_packet_result ecmp = simulate(&link, 60);
    double even = 4e6 / 12.5, latency = 0.202 * MS;
    double busiest = lhi_ecmp_busiest_path_flows(8, 4);
    CHECK_SHARE(ecmp.end_ns - latency, even * busiest / 2, 0.05);
    /* Random paths: the busiest of four has about 1.03 standard deviations more
     * packets than the mean of 250. */
    link.setting.balancing = LH_BALANCING_SPRAY;
    CHECK_SHARE(simulate(&link, 20).end_ns - latency,
                even * (1 + 1.03 * sqrt(0.75 / 250)), 0.06);
    /* The shortest queue: no path has more than a packet more than another one.
     * This packet and the last one take four packet times each on a path, the
     * last one two more at the interfaces. */
    link.is_adaptive = true;
    CHECK_NEAR(simulate(&link, 20).end_ns - latency, even, 10 * 4096 / 12.5);
}

/* An overloaded queue drops packets; DCQCN keeps it short; the delay-based
 * control keeps its delay. */
static void congestion(void)
{
    lh_packet_link link = a_link(100, 0.02 * MS, 40e6);
    link.load.senders = 4;
    link.load.interface_bytes_per_s = 12.5e9;
    link.buffer_bytes = 4e6;
    lh_packet_result none = simulate(&link, 1);
    CHECK(none.counters.dropped > 1000 && none.counters.marked == 0);
    link.control = LH_CONTROL_DCQCN;
    link.setting.queue_bytes = 400e3;
    lh_packet_result dcqcn = simulate(&link, 1);
    CHECK(dcqcn.counters.marked > 100);
    CHECK(dcqcn.counters.dropped < none.counters.dropped / 4);
    CHECK(dcqcn.bytes_per_s * 4 > 0.5 * 12.5e9);
    link.control = LH_CONTROL_DELAY;
    lh_packet_result delay = simulate(&link, 1);
    CHECK_INT(delay.counters.marked, 0);
    CHECK(delay.counters.dropped < none.counters.dropped / 4);
    CHECK(delay.bytes_per_s * 4 > 0.7 * 12.5e9);
}

/* DCQCN's alpha falls while a queue pair sends at the line rate: a notice after
 * a long time hardly slows it. */
static void alpha_at_the_line_rate(void)
{
    const lhi_fabric fabric = {0};
    const lhi_packet_options options = {
        .fabric = &fabric,
        .transport = {.packet_bytes = 4096,
                      .control = LH_CONTROL_DCQCN,
                      .line_bytes_per_s = 12.5e9}};
    lhi_packet_sim sim = {.o = &options, .now_ps = 1000000};
    lhi_control_state c;
    lhi_control_begin(&sim, &c);
    lhi_control_receive_notice(&sim, &c);
    CHECK_NEAR(c.rate, 12.5e-3 / 2, 1e-9);
    sim.now_ps += UINT64_C(20000000000); /* 20 ms */
    lhi_control_send(&sim, &c, 4096);
    CHECK_NEAR(c.rate, 12.5e-3, 1e-9);
    sim.now_ps += UINT64_C(1000000000000); /* 1 s */
    lhi_control_receive_notice(&sim, &c);
    CHECK_NEAR(c.rate, 12.5e-3, 1e-9);
}

/* Two marked packets in succession cause a notice at once and another one 50 us
 * later, although no packet follows. Both halve the rate: two packets that are
 * sent then have a distance of four packets. */
static void notices_without_packets(void)
{
    enum { MESSAGES = 2 };
    const double packet_ns = 4096 / 12.5;
    const lhi_port_spec ports[] = {
        {.from = 0, .to = 2, .bytes_per_s = 12.5e9, .latency_ns = 1000},
        {.from = 2, .to = 0, .bytes_per_s = 12.5e9, .latency_ns = 1000},
        {.from = 1, .to = 2, .bytes_per_s = 12.5e9, .latency_ns = 1000},
        /* The receiver's link has half the rate; its queue marks. */
        {.from = 2,
         .to = 1,
         .bytes_per_s = 6.25e9,
         .latency_ns = 1000,
         .mark_from_bytes = 1,
         .mark_to_bytes = 1,
         .mark_probability = 1}};
    const lhi_queue_pair pair = {0, 1};
    const lhi_packet_message messages[MESSAGES] = {
        {.bytes = 3 * 4096, .queue_pairs = 1},
        {.bytes = 2 * 4096, .queue_pairs = 1, .delay_ns = 60000}};
    lhi_message_times times[MESSAGES];
    lhi_arena *mem = lhi_arena_make(0);
    lhi_fabric fabric;
    lh_packet_counters counters;
    lh_error err = {0};
    CHECK_OK(lhi_fabric_build(2, 3, ports, 4, mem, &fabric, &err), err);
    const lhi_packet_options options = {
        .fabric = &fabric,
        .transport = {.packet_bytes = 4096,
                      .control = LH_CONTROL_DCQCN,
                      .timeout_ns = 1000000000,
                      .line_bytes_per_s = 12.5e9},
        .pairs = &pair,
        .messages = messages,
        .n_pairs = 1,
        .n_messages = MESSAGES};
    CHECK_OK(lhi_packets_simulate(&options, times, &counters, &err), err);
    CHECK_INT(counters.marked, 2);
    CHECK_NEAR(times[1].end_ns,
               60000 + 4 * packet_ns + packet_ns + 1000 + 2 * packet_ns + 1000,
               0.01);
    lhi_arena_free(mem);
}

/* A packet waits until DCQCN's rate has allowed the bytes of the one before it,
 * with the increases and notices of this time. */
static void waits_with_a_changing_rate(void)
{
    const lhi_fabric fabric = {0};
    const lhi_packet_options options = {
        .fabric = &fabric,
        .transport = {.packet_bytes = 4096,
                      .control = LH_CONTROL_DCQCN,
                      .line_bytes_per_s = 12.5e9}};
    lhi_packet_sim sim = {.o = &options, .now_ps = 1000000};
    lhi_control_state c;
    lhi_control_begin(&sim, &c);
    lhi_control_receive_notice(&sim, &c);
    /* Half the rate for 0.3 us, then a quarter. */
    lhi_control_send(&sim, &c, 4096);
    sim.now_ps += 300000;
    CHECK_NEAR((double)lhi_control_receive_notice(&sim, &c),
               1300000 + (4096 - 300e-9 * 6.25e9) / 3.125e9 * 1e12, 2);
    /* After ten notices a packet takes 335.5 us. The timer raises the rate r
     * after 55, 110 and 165 us to 1.5, 1.75 and 1.875 r. */
    for (int i = 2; i < 10; i++)
        lhi_control_receive_notice(&sim, &c);
    double r = 12.5e9 / 1024;
    CHECK_NEAR(c.rate, r * 1e-12, 1e-12);
    CHECK_NEAR((double)lhi_control_send(&sim, &c, 4096),
               1300000 + 165e6 +
                   (4096 - r * 55e-6 * (1 + 1.5 + 1.75)) / (1.875 * r) * 1e12,
               2);
}

/* Failed paths that are avoided from the start: the message takes the time of
 * the others. */
static void failed_paths(void)
{
    lh_packet_link link = a_link(100, 0.2 * MS, 4e6);
    link.setting.paths = 4;
    link.setting.balancing = LH_BALANCING_SPRAY;
    link.is_adaptive = true;
    link.setting.window_bytes = link.buffer_bytes = 1e9;
    for (link.failed_paths = 0; link.failed_paths < 4; link.failed_paths++) {
        double rate = 12.5 * (4 - link.failed_paths) / 4;
        lh_packet_result r = simulate(&link, 1);
        CHECK_NEAR(r.end_ns - 0.202 * MS, 4e6 / rate, 10 * 4096 / 12.5);
        CHECK_INT(r.counters.lost, 0);
    }
}

/* A path that fails within a message and is avoided after 50 us. The sender
 * detects it by a timeout. Then it repeats all packets that the failure has
 * lost: the latency, the time of all bytes, and a round trip and the timeout
 * more. Messages on the other path take the latency and the time of all bytes.
 */
static void failure_within_a_message(void)
{
    lh_packet_link link = a_link(100, 0.1 * MS, 4e6);
    uint32_t n_late = 0;
    link.setting.paths = 2;
    link.buffer_bytes = 1e9;
    link.failed_paths = 1;
    link.failure_ns = 300000;
    link.reroute_ns = 50000;
    link.timeout_ns = 1000000;
    double plain = 4e6 / 6.25 + 0.102 * MS;
    for (uint64_t seed = 0; seed < 20; seed++) {
        const lh_packet_run run = {.size = sizeof run, .seed = seed};
        lh_packet_result r = {0};
        lh_error err = {0};
        CHECK_OK(lh_packets_simulate_links(&link, 1, &run, &r, &err), err);
        CHECK_INT(r.counters.sent, r.counters.delivered + r.counters.lost);
        bool is_late = r.counters.lost > 0;
        n_late += is_late;
        CHECK_SHARE(r.end_ns, plain + is_late * (0.204 * MS + 1 * MS), 0.01);
    }
    CHECK_MSG(n_late > 4 && n_late < 16, "%u of 20 messages", n_late);
}

/* A lost ack of the last packet is no reason to send it again: the message has
 * arrived. */
static void lost_last_acks(void)
{
    lh_packet_link link = a_link(100, 1 * MS, 4096);
    link.load.loss = 0.3;
    lh_packet_result r = simulate(&link, 200);
    CHECK(r.counters.lost > 40 && r.counters.lost_acks > 30);
    CHECK_INT(r.counters.unneeded, 0);
    CHECK_INT(r.counters.retransmitted, r.counters.lost);
}

/* The default timeout includes the mean variation. */
static void timeouts_with_variation(void)
{
    lh_packet_link link = a_link(100, 0.1 * MS, 4096 * 20);
    link.variation_ns = 1000000;
    lh_packet_result r = simulate(&link, 10);
    CHECK_INT(r.counters.timeouts, 0);
    CHECK_INT(r.counters.retransmitted, 0);
}

/* Go-back-N repeats a redundancy block from its first missing packet on: the
 * packets before it are not sent again. */
static void partial_blocks(void)
{
    lh_packet_link link = a_link(100, 1 * MS, 4096 * 32);
    link.setting.recovery = LH_RECOVERY_GO_BACK_N;
    link.setting.fec_data = 16;
    link.setting.fec_parity = 1;
    link.load.loss = 0.01;
    link.burst = 4;
    lh_packet_result r = simulate(&link, 250);
    CHECK(r.counters.lost > 50);
    /* Whole blocks: six packets for each lost one. */
    CHECK_MSG(r.counters.retransmitted < 5 * r.counters.lost,
              "%u packets were sent again, %u lost",
              (unsigned)r.counters.retransmitted, (unsigned)r.counters.lost);
}

/* --- random networks --- */

/* Simulates random messages on a folded Clos network. */
static void simulate_random(uint64_t seed, lhi_message_times *times,
                            lh_packet_counters *out)
{
    enum { MESSAGES = 60, HOSTS = 16 };
    lhi_random r = {.state = seed};
    lhi_clos clos = {
        .pods = 2,
        .racks = 2,
        .hosts = 4,
        .aggregation = 2,
        .cores = 2,
        .port = {.bytes_per_s = 12.5e9,
                 .latency_ns = 500,
                 .variation_ns = lhi_random_below(&r, 2) * 300,
                 .loss = lhi_random_below(&r, 3) * 0.005,
                 .buffer_bytes = 100000 + lhi_random_below(&r, 400000),
                 .mark_from_bytes = 10000,
                 .mark_to_bytes = 60000,
                 .mark_probability = 0.1},
        .rack_up = 1,
        .pod_up = 0.5};
    lhi_queue_pair pairs[MESSAGES * 3];
    lhi_packet_message messages[MESSAGES];
    uint32_t next[MESSAGES];
    for (uint32_t i = 0; i < MESSAGES; i++) {
        uint32_t from = lhi_random_below(&r, HOSTS);
        uint32_t to = (from + 1 + lhi_random_below(&r, HOSTS - 1)) % HOSTS;
        for (uint32_t k = 0; k < 3; k++)
            pairs[3 * i + k] = (lhi_queue_pair){from, to};
        next[i] = i + 1;
        messages[i] =
            (lhi_packet_message){.bytes = lhi_random_below(&r, 400000),
                                 .first_pair = 3 * i,
                                 .queue_pairs = 1 + lhi_random_below(&r, 3),
                                 .delay_ns = lhi_random_below(&r, 20000),
                                 .successors = &next[i],
                                 .n_successors = i % 3 < 2 && i + 1 < MESSAGES,
                                 .n_required = i % 3 > 0};
    }
    bool codes = lhi_random_below(&r, 2) > 0;
    /* A third each: memory of ports only, shared memory, pauses. */
    uint32_t sharing = lhi_random_below(&r, 3);
    if (sharing == 2)
        clos.port.variation_ns = 0, clos.port.buffer_bytes = 0;
    lhi_fabric fabric;
    lhi_arena *mem = lhi_arena_make(0);
    lh_error err = {0};
    CHECK_OK(lhi_fabric_build_clos(&clos, mem, &fabric, &err), err);
    if (sharing > 0)
        fabric.buffer =
            (lhi_switch_memory){.bytes = 400000 + lhi_random_below(&r, 400000),
                                .share = 0.125 * (1 << lhi_random_below(&r, 6)),
                                .pauses = sharing == 2};
    const lhi_packet_options options = {
        .fabric = &fabric,
        .transport = {.is_adaptive = seed % 2 > 0,
                      .packet_bytes = 1024 + lhi_random_below(&r, 4000),
                      .balancing = lhi_random_below(&r, 2) ? LH_BALANCING_ECMP
                                                           : LH_BALANCING_SPRAY,
                      .recovery = lhi_random_below(&r, 2)
                                      ? LH_RECOVERY_GO_BACK_N
                                      : LH_RECOVERY_SELECTIVE_REPEAT,
                      .control = (lh_packet_control)lhi_random_below(
                          &r, LH_N_CONTROLS),
                      .window_packets = lhi_random_below(&r, 2) * 40,
                      .fec_data = codes ? 8 : 0,
                      .fec_parity = codes ? 1 + lhi_random_below(&r, 3) : 0,
                      .timeout_ns = 100000,
                      .reorder_ns = 2000,
                      .line_bytes_per_s = 12.5e9,
                      .target_ns = 20000},
        .pairs = pairs,
        .messages = messages,
        .n_pairs = MESSAGES * 3,
        .n_messages = MESSAGES,
        .seed = seed};
    CHECK_OK(lhi_packets_simulate(&options, times, out, &err), err);
    CHECK(sharing < 2 || out->dropped == 0);
    CHECK((sharing == 2) >= (out->pauses > 0));
    CHECK(out->max_switch_bytes <= fabric.buffer.bytes);
    for (uint32_t i = 0; i < MESSAGES; i++)
        CHECK_MSG(times[i].end_ns >=
                      times[i].start_ns + (double)messages[i].bytes / 12.5,
                  "seed %" PRIu64 ": message %u is too fast", seed, i);
    for (uint32_t i = 0; i < MESSAGES; i++)
        if (messages[i].n_required > 0)
            CHECK(times[i].start_ns >=
                  times[i - 1].end_ns + (double)messages[i].delay_ns - 0.01);
    lhi_arena_free(mem);
}

/* Every message arrives; every sent packet is delivered, lost or dropped; with
 * pauses no packet is dropped; equal seeds give equal results. */
static void random_networks(void)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        lhi_message_times one[60], other[60];
        lh_packet_counters k = {0}, again = {0};
        simulate_random(seed, one, &k);
        CHECK_INT(k.sent, k.delivered + k.lost + k.dropped);
        CHECK(k.delivered + k.lost + k.dropped >= k.retransmitted);
        if (seed % 10 == 0) {
            simulate_random(seed, other, &again);
            CHECK(memcmp(one, other, sizeof one) == 0);
            CHECK(memcmp(&k, &again, sizeof k) == 0);
        }
    }
}

/* The number of threads does not affect the result. */
static void threads(void)
{
    lh_packet_link link = a_link(100, 0.1 * MS, 1e6);
    lh_packet_result out[2];
    lh_error err = {0};
    link.load.loss = 0.001;
    for (uint32_t i = 0; i < 2; i++) {
        const lh_packet_run run = {
            .size = sizeof run, .n_seeds = 9, .threads = 1 + 3 * i};
        CHECK_OK(lh_packets_simulate_links(&link, 1, &run, &out[i], &err), err);
    }
    CHECK(memcmp(&out[0], &out[1], sizeof out[0]) == 0);
}

/* --- errors --- */

static bool stop(void *context, uint32_t done, uint32_t total)
{
    (void)context;
    return done < total;
}

static void errors(void)
{
    lh_packet_link link = a_link(100, 1 * MS, 4e9);
    lh_packet_run run = {.size = sizeof run, .progress = stop};
    lh_packet_result out;
    lh_error err = {0};
    link.load.loss = 0.01;
    CHECK_INT(lh_packets_simulate_links(&link, 1, &run, &out, &err),
              LH_ECANCELED);
    link.load.loss = 0.9;
    CHECK_INT(lh_packets_simulate_links(&link, 1, &run, &out, &err), LH_EINVAL);
    CHECK_STR(err.text, "loss: 0.9 is not in 0 to 0.5");
    link.load.loss = 0;
    link.load.message_bytes = NAN;
    CHECK_INT(lh_packets_simulate_links(&link, 1, &run, &out, &err), LH_EINVAL);
    link = a_link(100, 1 * MS, 4e6);
    link.burst = 0.5;
    CHECK_INT(lh_packets_simulate_links(&link, 1, &run, &out, &err), LH_EINVAL);
    link = a_link(100, 1 * MS, 4e6);
    link.buffer_bytes = 1024;
    CHECK_INT(lh_packets_simulate_links(&link, 1, &run, &out, &err), LH_EINVAL);
    CHECK_STR(err.text,
              "buffer_bytes: 1024 is less than a packet of 4096 bytes");
    link = a_link(100, 1 * MS, 1e12);
    link.messages = 10;
    CHECK_INT(lh_packets_simulate_links(&link, 1, &run, &out, &err), LH_EINVAL);
    link.messages = 1;
    link.setting.fec_data = 1;
    link.setting.fec_parity = 64;
    CHECK_INT(lh_packets_simulate_links(&link, 1, &run, &out, &err), LH_EINVAL);

    /* Go-back-N repeats whole blocks; the queue passes each tenth packet. */
    link = a_link(10, 0.01 * MS, 32 * 4096);
    link.load.interface_bytes_per_s = 100 * GBIT;
    link.setting.recovery = LH_RECOVERY_GO_BACK_N;
    link.setting.fec_data = 32;
    link.setting.fec_parity = 8;
    link.buffer_bytes = 4096;
    run.progress = NULL;
    CHECK_INT(lh_packets_simulate_links(&link, 1, &run, &out, &err), LH_EINPUT);

    const uint32_t other[] = {1, 0};
    const lhi_queue_pair pair = {0, 1};
    const lhi_port_spec ports[] = {{.from = 0, .to = 2, .bytes_per_s = 1e9},
                                   {.from = 2, .to = 0, .bytes_per_s = 1e9},
                                   {.from = 1, .to = 2, .bytes_per_s = 1e9},
                                   {.from = 2, .to = 1, .bytes_per_s = 1e9}};
    lhi_packet_message messages[2];
    for (uint32_t i = 0; i < 2; i++)
        messages[i] = (lhi_packet_message){.bytes = 1,
                                           .queue_pairs = 1,
                                           .successors = &other[i],
                                           .n_successors = 1,
                                           .n_required = 1};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_fabric fabric;
    lhi_message_times times[2];
    lh_packet_counters counters;
    CHECK_INT(lhi_fabric_build(2, 3, ports, 3, mem, &fabric, &err), LH_EINPUT);
    CHECK_OK(lhi_fabric_build(2, 3, ports, 4, mem, &fabric, &err), err);
    const lhi_packet_options options = {.fabric = &fabric,
                                        .transport = {.packet_bytes = 4096,
                                                      .timeout_ns = 1,
                                                      .line_bytes_per_s = 1e9},
                                        .pairs = &pair,
                                        .messages = messages,
                                        .n_pairs = 1,
                                        .n_messages = 2};
    CHECK_INT(lhi_packets_simulate(&options, times, &counters, &err),
              LH_EINPUT);
    CHECK_STR(err.text, "2 of 2 messages wait for each other");
    lhi_arena_free(mem);
}

int main(void)
{
    RUN(two_packets);
    RUN(messages_in_turn);
    RUN(windows);
    RUN(a_lost_packet);
    RUN(queueing);
    RUN(long_flows);
    RUN(bursts);
    RUN(first_packets);
    RUN(single_packets);
    RUN(redundancy);
    RUN(slow_blocks);
    RUN(other_jobs_at_random);
    RUN(other_jobs_without_pause);
    RUN(equal_shares);
    RUN(hashing);
    RUN(congestion);
    RUN(alpha_at_the_line_rate);
    RUN(notices_without_packets);
    RUN(waits_with_a_changing_rate);
    RUN(failed_paths);
    RUN(failure_within_a_message);
    RUN(lost_last_acks);
    RUN(timeouts_with_variation);
    RUN(partial_blocks);
    RUN(random_networks);
    RUN(threads);
    RUN(errors);
    return test_summary();
}
