/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory of switches, pauses (PFC), and collectives of the packet
 * simulation, against theory. */
#include "test.h"

#include "network/packet/state.h"

#include <longhaul/experimental/packets.h>

/* Bytes a ns of all interfaces, and a packet. */
static const double rate = 12.5;
enum { PACKET = 4096, MOST_FLOWS = 16 };

/* Checks that `got` is within the share `part` of `want`. */
#define CHECK_SHARE(got, want, part) CHECK_NEAR(got, want, (part)*fabs(want))

/* A message from one host to another. */
typedef struct flow {
    uint32_t from, to;
    double bytes;
} flow;

/* Simulates flows between hosts at one switch or, from `n_first` of the hosts
 * on, at a second one behind a link; ends_ns: their arrivals. */
static lh_packet_counters simulate(uint32_t n_hosts, uint32_t n_first,
                                   const flow *flows, uint32_t n,
                                   lhi_switch_memory buffer, double *ends_ns)
{
    lhi_port_spec ports[2 * (MOST_FLOWS + 1)] = {0};
    lhi_queue_pair pairs[MOST_FLOWS];
    lhi_packet_message messages[MOST_FLOWS];
    lhi_message_times times[MOST_FLOWS];
    lhi_arena *mem = lhi_arena_make(0);
    lhi_fabric fabric;
    lh_packet_counters k = {0};
    lh_error err = {0};
    for (uint32_t i = 0; i <= n_hosts; i++)
        for (uint32_t back = 0; back < 2; back++) {
            uint32_t a = i < n_hosts ? i : n_hosts;
            uint32_t b = i < n_first ? n_hosts : n_hosts + 1;
            ports[2 * i + back] = (lhi_port_spec){.from = back ? b : a,
                                                  .to = back ? a : b,
                                                  .bytes_per_s = rate * 1e9,
                                                  .latency_ns = 1000};
        }
    for (uint32_t i = 0; i < n; i++) {
        pairs[i] = (lhi_queue_pair){flows[i].from, flows[i].to};
        messages[i] = (lhi_packet_message){.bytes = (uint64_t)flows[i].bytes,
                                           .first_pair = i,
                                           .queue_pairs = 1};
    }
    CHECK_OK(lhi_fabric_build(n_hosts, n_hosts + 2, ports, 2 * (n_hosts + 1),
                              mem, &fabric, &err),
             err);
    fabric.buffer = buffer;
    const lhi_packet_options options = {
        .fabric = &fabric,
        .transport = {.packet_bytes = PACKET,
                      .balancing = LH_BALANCING_ECMP,
                      .recovery = LH_RECOVERY_SELECTIVE_REPEAT,
                      .timeout_ns = 100000000,
                      .line_bytes_per_s = rate * 1e9},
        .pairs = pairs,
        .messages = messages,
        .n_pairs = n,
        .n_messages = n};
    CHECK_OK(lhi_packets_simulate(&options, times, &k, &err), err);
    CHECK_INT(k.sent, k.delivered + k.lost + k.dropped);
    CHECK(buffer.bytes == 0 || k.max_switch_bytes <= buffer.bytes);
    for (uint32_t i = 0; i < n; i++)
        ends_ns[i] = times[i].end_ns;
    lhi_arena_free(mem);
    return k;
}

/* --- memory --- */

/* Memory that never fills: the same packets at the same times as without. */
static void large_memory(void)
{
    lh_packet_link link = {.load = {.line_bytes_per_s = 12.5e9,
                                    .latency_ns = 1e5,
                                    .oversubscription = 1,
                                    .senders = 3,
                                    .interface_bytes_per_s = 5e9,
                                    .loss = 1e-3,
                                    .message_bytes = 3e6},
                           .setting = {.balancing = LH_BALANCING_ECMP,
                                       .queue_pairs = 2,
                                       .paths = 2},
                           .messages = 2,
                           .buffer_bytes = 1e12};
    const lh_packet_run run = {.size = sizeof run, .n_seeds = 4};
    for (int back = 0; back < 2; back++) {
        lh_packet_result own, shared;
        lh_error err = {0};
        link.setting.recovery =
            back ? LH_RECOVERY_GO_BACK_N : LH_RECOVERY_SELECTIVE_REPEAT;
        link.switch_bytes = link.switch_share = 0;
        CHECK_OK(lh_packets_simulate_links(&link, 1, &run, &own, &err), err);
        link.switch_bytes = 1e12;
        link.switch_share = 1;
        CHECK_OK(lh_packets_simulate_links(&link, 1, &run, &shared, &err), err);
        CHECK_NEAR(shared.mean_ns, own.mean_ns, 0.01);
        CHECK_NEAR(shared.end_ns, own.end_ns, 0.01);
        CHECK_INT(shared.counters.sent, own.counters.sent);
        CHECK_INT(shared.counters.lost, own.counters.lost);
        CHECK(own.counters.lost > 10 && shared.counters.dropped == 0);
    }
}

/* n overloaded queues of a switch with memory B hold a B / (1 + n a) each
 * [Choudhury and Hahne, 1998, section III]. */
static void dynamic_thresholds(void)
{
    static const double shares[] = {0.5, 1, 4};
    const double bytes = 1e6;
    const flow flows[] = {{0, 4, 4e6}, {1, 4, 4e6}, {2, 5, 4e6}, {3, 5, 4e6}};
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t n = 1; n <= 2; n++) {
            double ends_ns[4], share = shares[i];
            const lhi_switch_memory buffer = {.bytes = (uint64_t)bytes,
                                              .share = share};
            lh_packet_counters k =
                simulate(6, 6, flows, 2 * n, buffer, ends_ns);
            CHECK(k.dropped > 0 && k.pauses == 0);
            CHECK_NEAR((double)k.max_queue_bytes,
                       share * bytes / (1 + n * share), 2.5 * PACKET);
        }
}

/* --- pauses --- */

/* Eight hosts send to one. Without pauses packets are dropped; with pauses none
 * is, and the receiver's link is never idle. */
static void incast(void)
{
    flow flows[8];
    double ends_ns[8], last_ns = 0;
    lhi_switch_memory buffer = {.bytes = 2000000, .share = 1};
    for (uint32_t i = 0; i < 8; i++)
        flows[i] = (flow){i, 8, 2e6};
    CHECK(simulate(9, 9, flows, 8, buffer, ends_ns).dropped > 100);
    buffer.pauses = true;
    lh_packet_counters k = simulate(9, 9, flows, 8, buffer, ends_ns);
    CHECK_INT(k.dropped, 0);
    CHECK_INT(k.retransmitted, 0);
    CHECK(k.pauses > 8 && k.paused_ns > 0);
    for (uint32_t i = 0; i < 8; i++)
        last_ns = fmax(last_ns, ends_ns[i]);
    CHECK_SHARE(last_ns, 8 * 2e6 / rate, 0.01);
}

/* Head-of-line blocking: hosts 0 and 1 send over a link between two switches,
 * the former to host 6, to which hosts 2 to 5 send as well, the latter to host
 * 7, which is idle. Without pauses both have half of the link. With pauses the
 * link's share of host 6 is a fifth, and the message to host 7, which waits
 * behind, is as slow. */
static void head_of_line_blocking(void)
{
    const flow flows[] = {{1, 7, 8e6},  {0, 6, 16e6}, {2, 6, 16e6},
                          {3, 6, 16e6}, {4, 6, 16e6}, {5, 6, 16e6}};
    double ends_ns[6];
    lhi_switch_memory buffer = {.bytes = 1000000000, .share = 1};
    lh_packet_counters k = simulate(8, 2, flows, 6, buffer, ends_ns);
    CHECK_INT(k.dropped, 0);
    CHECK_SHARE(ends_ns[0], 2 * 8e6 / rate, 0.02);
    buffer =
        (lhi_switch_memory){.bytes = 3000000, .share = 0.125, .pauses = true};
    k = simulate(8, 2, flows, 6, buffer, ends_ns);
    CHECK_INT(k.dropped, 0);
    CHECK_SHARE(ends_ns[0], 5 * 8e6 / rate, 0.1);
}

/* Memory below the headroom, settings that pauses exclude, and an all-reduce
 * with too many packets. */
static void errors(void)
{
    lh_packet_link link = {.load = {.line_bytes_per_s = 12.5e9,
                                    .latency_ns = 1e6,
                                    .oversubscription = 1,
                                    .senders = 2,
                                    .message_bytes = 1e6},
                           .pauses = true};
    const lh_packet_run run = {.size = sizeof run};
    lh_packet_result out;
    lh_error err = {0};
    const struct {
        double switch_bytes, buffer_bytes;
        int64_t variation_ns;
        const char *text;
    } cases[] = {
        {0, 0, 0, "pauses need switch_bytes, the memory of a switch"},
        {1e9, 1e6, 0,
         "buffer_bytes: a path's own limit would drop packets in spite of "
         "pauses; give only switch_bytes"},
        {1e9, 0, 10,
         "variation_ns: the headroom of pauses has no limit where latency "
         "varies; give a fixed latency"},
        {1e6, 0, 0, "switch_bytes: 1000000 is too little for pauses: the "}};
    for (uint32_t i = 0; i < 4; i++) {
        link.switch_bytes = cases[i].switch_bytes;
        link.buffer_bytes = cases[i].buffer_bytes;
        link.variation_ns = cases[i].variation_ns;
        CHECK_INT(lh_packets_simulate_links(&link, 1, &run, &out, &err),
                  LH_EINVAL);
        CHECK_MSG(strncmp(err.text, cases[i].text, strlen(cases[i].text)) == 0,
                  "%s", err.text);
    }
    link = (lh_packet_link){.load = link.load, .switch_share = 2};
    CHECK_INT(lh_packets_simulate_links(&link, 1, &run, &out, &err), LH_EINVAL);
    /* 1.5e9 packets on a queue pair, which a ring sends twice. */
    link = (lh_packet_link){.load = link.load,
                            .setting = {.fec_data = 1, .fec_parity = 5},
                            .traffic = LH_TRAFFIC_RING};
    link.load.message_bytes = 1e12;
    CHECK_INT(lh_packets_simulate_links(&link, 1, &run, &out, &err), LH_EINVAL);
    CHECK_MSG(strncmp(err.text, "message_bytes, messages: ", 25) == 0, "%s",
              err.text);
}

/* --- all-reduces --- */

/* Without loss all-reduces take the time of pipelined rings, whose steps do
 * not wait for the slowest one. With two GPUs at each site every other of a
 * part's six steps crosses the link. */
static void all_reduces(void)
{
    static const struct {
        double gpus, latency_ns, bytes;
    } cases[] = {{1, 1e6, 4e6},  {2, 1e7, 8e6}, {3, 1e7, 6e6},
                 {4, 1e6, 64e6}, {4, 1e4, 8e6}, {8, 1e7, 8e6}};
    const lh_packet_run run = {.size = sizeof run};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int kind = LH_TRAFFIC_RING; kind <= LH_TRAFFIC_HIERARCHICAL;
             kind++) {
            const lh_packet_link link = {
                .load = {.line_bytes_per_s = cases[i].gpus * 12.5e9,
                         .latency_ns = cases[i].latency_ns,
                         .oversubscription = 1,
                         .senders = cases[i].gpus,
                         .interface_bytes_per_s = 12.5e9,
                         .message_bytes = cases[i].bytes},
                .setting = {.queue_pairs = 1},
                .traffic = (lh_packet_traffic)kind};
            lh_packet_result r = {0};
            lh_error err = {0};
            CHECK_OK(lh_packets_simulate_links(&link, 1, &run, &r, &err), err);
            CHECK_INT(r.counters.retransmitted, 0);
            CHECK(r.end_ns == r.mean_ns);
            double n = 2 * cases[i].gpus;
            if (kind == LH_TRAFFIC_RING)
                CHECK_INT(r.counters.sent,
                          n * 2 * (n - 1) * ceil(cases[i].bytes / n / PACKET));
            CHECK_MSG(fabs(r.mean_ns / r.closed_form_ns - 1) < 0.03,
                      "case %u, %s: %.0f ns, closed form %.0f ns", i,
                      lh_packet_traffic_name((lh_packet_traffic)kind),
                      r.mean_ns, r.closed_form_ns);
        }
}

/* --- all-to-alls --- */

/* Without loss a GPU's interface or its share of the link limits an all-to-all:
 * each of n GPUs sends n - 1 parts of B / n bytes, of which n / 2 cross.
 * Several all-to-alls follow each other. */
static void all_to_alls(void)
{
    static const struct {
        double gpus, bytes, share; /* of the interface's rate, on the link */
        uint32_t rounds;
    } cases[] = {
        {1, 4e6, 1, 1}, {4, 64e6, 1, 1}, {4, 64e6, 0.25, 3}, {8, 32e6, 0.5, 2}};
    const lh_packet_run run = {.size = sizeof run};
    const double bytes_per_s = 12.5e9, latency_ns = 1e6, inside_ns = 2000;
    for (uint32_t i = 0; i < 4; i++) {
        double g = cases[i].gpus, n = 2 * g, part = cases[i].bytes / n;
        const lh_packet_link link = {
            .load = {.line_bytes_per_s = g * bytes_per_s * cases[i].share,
                     .latency_ns = latency_ns,
                     .oversubscription = 1,
                     .senders = g,
                     .interface_bytes_per_s = bytes_per_s,
                     .message_bytes = cases[i].bytes},
            .setting = {.queue_pairs = 1},
            .traffic = LH_TRAFFIC_ALL_TO_ALL,
            .messages = cases[i].rounds,
            .buffer_bytes = 1e12};
        double interface_ns = (n - 1) * part / bytes_per_s * 1e9;
        double link_ns = g * part / (bytes_per_s * cases[i].share) * 1e9;
        double least = cases[i].rounds *
                       (latency_ns + inside_ns + fmax(interface_ns, link_ns));
        lh_packet_result r = {0};
        lh_error err = {0};
        CHECK_OK(lh_packets_simulate_links(&link, 1, &run, &r, &err), err);
        CHECK_INT(r.counters.sent,
                  cases[i].rounds * n * (n - 1) * ceil(part / PACKET));
        CHECK_INT(r.counters.delivered, r.counters.sent);
        CHECK(r.end_ns == r.mean_ns);
        /* The GPU's last packet may be one inside its site. */
        CHECK_MSG(r.mean_ns > 0.999 * least - latency_ns &&
                      r.mean_ns < 1.03 * least,
                  "case %u: %.0f ns, at least %.0f ns", i, r.mean_ns, least);
        CHECK_MSG(r.closed_form_ns > 0.999 * least &&
                      r.closed_form_ns <
                          1.001 * (least + cases[i].rounds *
                                               fmin(interface_ns, link_ns)),
                  "case %u: closed form %.0f ns, at least %.0f ns", i,
                  r.closed_form_ns, least);
    }
}

/* --- marks --- */

/* On a short link, whose queue is shorter than 2 MiB, DCQCN's marks slow the
 * senders before the queue drops their packets. */
static void marks_before_drops(void)
{
    const lh_packet_run run = {.size = sizeof run};
    double dropped[2];
    for (int control = 0; control < 2; control++) {
        const lh_packet_link link = {.load = {.line_bytes_per_s = 50e9,
                                              .latency_ns = 50000,
                                              .oversubscription = 8,
                                              .senders = 8,
                                              .interface_bytes_per_s = 50e9 / 8,
                                              .message_bytes = 16e6},
                                     .control = control ? LH_CONTROL_DCQCN
                                                        : LH_CONTROL_NONE};
        lh_packet_result r = {0};
        lh_error err = {0};
        CHECK_OK(lh_packets_simulate_links(&link, 1, &run, &r, &err), err);
        CHECK((r.counters.marked > 0) == control);
        dropped[control] = (double)r.counters.dropped / (double)r.counters.sent;
    }
    CHECK_MSG(dropped[0] > 0.5 && dropped[1] < dropped[0] / 3,
              "dropped: %.3f, with DCQCN %.3f", dropped[0], dropped[1]);
}

/* Two messages of 4 MB to one host, with DCQCN. Marks within 50 us of a notice
 * cause another one at the end of this time, so that both senders halve their
 * rate three times. uet-htsim's DCQCN (ultraethernet/uet-htsim 40ccb05, with
 * alpha of each sender and the paper's increases) ends them at 1252 us. */
static void deferred_notices(void)
{
    const double mark = 5 * 4160.0;
    const lhi_clos clos = {.pods = 4,
                           .racks = 2,
                           .hosts = 2,
                           .aggregation = 2,
                           .cores = 2,
                           .port = {.bytes_per_s = 12.5e9,
                                    .latency_ns = 1000,
                                    .mark_from_bytes = (uint64_t)mark,
                                    .mark_to_bytes = (uint64_t)mark,
                                    .mark_probability = 1},
                           .rack_up = 1,
                           .pod_up = 1};
    const lhi_queue_pair pairs[] = {{0, 15}, {2, 15}};
    lhi_packet_message messages[2];
    lhi_message_times times[2];
    lh_packet_counters counters;
    lh_error err = {0};
    lhi_fabric fabric;
    lhi_arena *mem = lhi_arena_make(0);
    for (uint32_t i = 0; i < 2; i++)
        messages[i] = (lhi_packet_message){
            .bytes = 977 * 4160, .first_pair = i, .queue_pairs = 1};
    CHECK_OK(lhi_fabric_build_clos(&clos, mem, &fabric, &err), err);
    const lhi_packet_options options = {
        .fabric = &fabric,
        .transport = {.packet_bytes = 4160, /* 64 of them a header */
                      .balancing = LH_BALANCING_ECMP,
                      .recovery = LH_RECOVERY_GO_BACK_N,
                      .control = LH_CONTROL_DCQCN,
                      .timeout_ns = 1000000000,
                      .line_bytes_per_s = 12.5e9},
        .pairs = pairs,
        .messages = messages,
        .n_pairs = 2,
        .n_messages = 2,
        .seed = 1};
    CHECK_OK(lhi_packets_simulate(&options, times, &counters, &err), err);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_MSG(fabs(times[i].end_ns / 1252e3 - 1) < 0.05, "%.0f ns",
                  times[i].end_ns);
    lhi_arena_free(mem);
}

/* --- ports inside sites --- */

/* Sprayed messages take the time of the narrowest tier: the GPUs' interfaces,
 * the ports inside a site, or the link. */
static void site_ports(void)
{
    static const struct {
        double site, link; /* oversubscription; site 0: no ports */
    } cases[] = {{0, 2}, {1, 2}, {2, 2}, {4, 2}, {4, 1}, {8, 3}};
    const lh_packet_run run = {.size = sizeof run};
    const double gpus = 8, bytes_per_s = 12.5e9, bytes = 4e6;
    for (uint32_t i = 0; i < 6; i++) {
        double most = fmax(cases[i].site, cases[i].link);
        /* Above: queues of ports that random packets load unevenly. */
        double least = 1e6 + (cases[i].site > 0 ? 4000 : 2000) +
                       most * bytes / bytes_per_s * 1e9;
        const lh_packet_link link = {
            .load = {.line_bytes_per_s = gpus * bytes_per_s,
                     .latency_ns = 1e6,
                     .oversubscription = cases[i].link,
                     .senders = gpus,
                     .interface_bytes_per_s = bytes_per_s,
                     .message_bytes = bytes},
            .setting = {.queue_pairs = 16, /* windows above the link's rate */
                        .paths = 4,
                        .balancing = LH_BALANCING_SPRAY},
            .buffer_bytes = 1e12,
            .site_oversubscription = cases[i].site};
        lh_packet_result r = {0};
        lh_error err = {0};
        CHECK_OK(lh_packets_simulate_links(&link, 1, &run, &r, &err), err);
        CHECK_INT(r.counters.retransmitted, 0);
        CHECK_MSG(r.end_ns > least && r.end_ns < 1.06 * least,
                  "case %u: %.0f ns, at least %.0f ns", i, r.end_ns, least);
    }
}

int main(void)
{
    RUN(large_memory);
    RUN(dynamic_thresholds);
    RUN(incast);
    RUN(head_of_line_blocking);
    RUN(errors);
    RUN(all_reduces);
    RUN(all_to_alls);
    RUN(marks_before_drops);
    RUN(deferred_notices);
    RUN(site_ports);
    return test_summary();
}
