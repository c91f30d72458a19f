/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul packets: simulates messages over a link between two
 * sites, packet by packet, under all combinations of the given settings. */
#include "commands.h"
#include "inputs.h"
#include "packets_grid.h"
#include "plan_packets.h"
#include "values.h"

#include <longhaul/experimental/packets.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *values[N_PACKETS_AXES];
    int64_t variation_ns, timeout_ns, return_ns, failure_ns, reroute_ns;
    double interface_gbps, oversubscription, burst, window_kib, buffer_kib,
        queue_kib, switch_kib, switch_share, site_oversubscription, other_load;
    uint32_t messages, failed, other_gpus, seeds, threads;
    const char *other_message, *sample, *html;
} settings;

#define LIST_ROW(axis, option, argument, words, says)                          \
    {                                                                          \
        .name = (option), .type = CLI_TEXT,                                    \
        .at = offsetof(settings, values) + (axis) * sizeof(const char *),      \
        .arg = (argument), .example_argument = (words), .help = (says)         \
    }

static const cli_option options[] = {
    LIST_ROW(PACKETS_GBPS, "gbps", "NUMBER,...", "400",
             "Rate of the link, all paths together, in Gb/s. Required without "
             "PLAN."),
    LIST_ROW(PACKETS_LATENCY, "latency", "TIME,...", "35ms",
             "Latency of the link, one way. Required without PLAN."),
    LIST_ROW(PACKETS_LOSS, "loss", "SHARE,...", "0.01%",
             "Share of packets lost on the link: 1e-4 or 0.01% (default: 0)."),
    LIST_ROW(PACKETS_MESSAGE, "message", "BYTES,...", "134MB",
             "Size of a message: 64KiB, 134MB, 1e9 (default: 64MiB)."),
    LIST_ROW(PACKETS_SENDERS, "senders", "N,...", "8",
             "GPUs that send at the same time (default: 1)."),
    LIST_ROW(PACKETS_QUEUE_PAIRS, "queue-pairs", "N,...", "1,64",
             "Queue pairs between two GPUs (default: 1)."),
    LIST_ROW(PACKETS_PATHS, "paths", "N,...", "8",
             "Equal paths of the link (default: 1)."),
    LIST_ROW(PACKETS_BALANCING, "balancing", "NAME,...", "ecmp,spray",
             "ecmp: a queue pair keeps to one path; spray: each packet takes a "
             "random one; adaptive: the one with the shortest queue (default: "
             "ecmp)."),
    LIST_ROW(PACKETS_RECOVERY, "recovery", "NAME,...", "go-back-n",
             "selective-repeat or go-back-n (default: selective-repeat)."),
    LIST_ROW(PACKETS_FEC, "fec", "DATA+PARITY,...", "none,32+2",
             "Redundancy code, as 32+2 packets, or none (default: none)."),
    LIST_ROW(PACKETS_CONTROL, "control", "NAME,...", "none,dcqcn",
             "Congestion control: none, dcqcn or delay (default: none)."),
    LIST_ROW(PACKETS_FLOW_CONTROL, "flow-control", "NAME,...", "none,pfc",
             "pfc: switches pause links instead of dropping packets; requires "
             "--switch-kib (default: none)."),
    LIST_ROW(PACKETS_TRAFFIC, "traffic", "NAME,...", "ring,hierarchical",
             "messages; an all-reduce of --message bytes over the GPUs of both "
             "sites: ring or hierarchical; or all-to-all: each GPU sends "
             "--message bytes, divided over all (default: messages)."),
    {.name = "messages",
     .type = CLI_COUNT,
     .at = offsetof(settings, messages),
     .arg = "N",
     .least = 1,
     .most = 1000000,
     .preset = "1",
     .help = "Messages of each sender, or all-to-alls, each after the previous "
             "one's arrival."},
    {.name = "interface-gbps",
     .type = CLI_REAL_ABOVE,
     .at = offsetof(settings, interface_gbps),
     .arg = "NUMBER",
     .help = "Rate of a GPU's network interface in Gb/s (default: its share "
             "of the link)."},
    {.name = "oversubscription",
     .type = CLI_REAL,
     .at = offsetof(settings, oversubscription),
     .arg = "NUMBER",
     .low = 1,
     .help = "Ratio of the link's nominal to its real capacity (default: 1)."},
    {.name = "site-oversubscription",
     .type = CLI_REAL,
     .at = offsetof(settings, site_oversubscription),
     .arg = "NUMBER",
     .low = 1,
     .help = "Ratio of the GPUs' interfaces to the ports between their switch "
             "and the link, a third tier (default: one switch at each site)."},
    {.name = "return-latency",
     .type = CLI_TIME,
     .at = offsetof(settings, return_ns),
     .arg = "TIME",
     .example_argument = "40ms",
     .help = "Latency of the way back (default: as --latency)."},
    {.name = "burst",
     .type = CLI_REAL,
     .at = offsetof(settings, burst),
     .arg = "N",
     .low = 1,
     .help = "Mean number of consecutive losses (default: independent "
             "losses)."},
    {.name = "variation",
     .type = CLI_TIME,
     .at = offsetof(settings, variation_ns),
     .arg = "TIME",
     .example_argument = "50us",
     .help = "Mean of an exponential latency added to each packet (default: "
             "none)."},
    {.name = "failed",
     .type = CLI_COUNT,
     .at = offsetof(settings, failed),
     .arg = "N",
     .least = 1,
     .most = 4095,
     .help = "Paths that fail in both directions, fewer than --paths (default: "
             "none)."},
    {.name = "failed-at",
     .type = CLI_TIME,
     .at = offsetof(settings, failure_ns),
     .arg = "TIME",
     .example_argument = "10ms",
     .help = "Time at which --failed paths begin to lose all packets (default: "
             "the start)."},
    {.name = "reroute",
     .type = CLI_TIME,
     .at = offsetof(settings, reroute_ns),
     .arg = "TIME",
     .example_argument = "50ms",
     .help = "Time from the failure until the switches use the other paths "
             "(default: 0)."},
    {.name = "other-gpus",
     .type = CLI_COUNT,
     .at = offsetof(settings, other_gpus),
     .arg = "N",
     .least = 1,
     .most = 4096,
     .help =
         "GPUs of other jobs that send over the link all the time, with the "
         "same queue pairs and control (default: none)."},
    {.name = "other-load",
     .type = CLI_REAL_ABOVE,
     .at = offsetof(settings, other_load),
     .arg = "SHARE",
     .high = 1,
     .help =
         "Share of the link's capacity that --other-gpus offer, as messages "
         "at random times (default: they send without pause)."},
    {.name = "other-message",
     .type = CLI_TEXT,
     .at = offsetof(settings, other_message),
     .arg = "BYTES",
     .example_argument = "1MB",
     .help = "Size of the messages of --other-load (default: as --message)."},
    {.name = "window-kib",
     .type = CLI_REAL_ABOVE,
     .at = offsetof(settings, window_kib),
     .arg = "N",
     .help = "Maximum unacknowledged data of a queue pair (default: 2048 with "
             "spray, else no limit)."},
    {.name = "buffer-kib",
     .type = CLI_REAL_ABOVE,
     .at = offsetof(settings, buffer_kib),
     .arg = "N",
     .help = "Queue length of a path beyond which packets are dropped "
             "(default: the data of a round trip)."},
    {.name = "switch-kib",
     .type = CLI_REAL_ABOVE,
     .at = offsetof(settings, switch_kib),
     .arg = "N",
     .help = "Memory of each site's switch, shared by its queues (default: "
             "--buffer-kib for each path)."},
    {.name = "switch-share",
     .type = CLI_REAL_ABOVE,
     .at = offsetof(settings, switch_share),
     .arg = "NUMBER",
     .help = "Limit of a queue's length (pfc: of the packets from one incoming "
             "link) as a multiple of the switch's free memory (default: 1)."},
    {.name = "queue-kib",
     .type = CLI_REAL_ABOVE,
     .at = offsetof(settings, queue_kib),
     .arg = "N",
     .help =
         "Queue length from which dcqcn marks every packet (default: 2048, at "
         "most half of --buffer-kib)."},
    {.name = "timeout",
     .type = CLI_TIME,
     .at = offsetof(settings, timeout_ns),
     .arg = "TIME",
     .example_argument = "67ms",
     .help = "Time without progress after which packets are sent again "
             "(default: four round trips)."},
    {.name = "seeds",
     .type = CLI_COUNT,
     .at = offsetof(settings, seeds),
     .arg = "N",
     .least = 1,
     .most = 256,
     .preset = "5",
     .help = "Simulate each row, or the plan's iteration, with N seeds, from "
             "--seed on."},
    {.name = "sample",
     .type = CLI_TEXT,
     .at = offsetof(settings, sample),
     .arg = "N|all",
     .example_argument = "all",
     .help = "With PLAN, simulate N messages of each sender and draw the times "
             "of the others from them; all: simulate every message, as the "
             "schedule sends it (default: all up to 10 million packets in an "
             "iteration, else 4)."},
    {.name = "html",
     .type = CLI_OUTPUT,
     .at = offsetof(settings, html),
     .arg = "FILE",
     .help = "Write an HTML report: queue length, throughput and "
             "retransmissions over time, of each row or of each link of the "
             "plan, with the first seed.",
     .words = CLI_WORDS_FILES},
    CLI_THREADS_ROW(settings, "Simulate N seeds in parallel (default: one per "
                              "processor). The result is the same."),
};

static const cli_example examples[] = {
    {"longhaul packets --gbps 3200 --paths 8 --latency 35ms --loss 0.01% "
     "--senders 8 --message 134MB --queue-pairs 64 --balancing ecmp,spray",
     "Compare spraying with ECMP for 64 queue pairs."},
    {"longhaul packets --gbps 100 --latency 1ms --loss 2e-4 --message 42MB "
     "--recovery go-back-n,selective-repeat --seeds 20",
     "Show the cost of go-back-N."},
    {"longhaul packets plan.json --seeds 3",
     "Simulate the messages between the datacenters of a plan."},
};

/* Builds the simulated link for table row `row`: the row's settings, and the
 * options that all rows share. */
static lh_packet_link build_link(const cli *c, const packets_grid *g,
                                 uint32_t row)
{
    const settings *set = c->settings;
    const double bytes_per_gbit = 1.25e8;
    uint32_t fec = (uint32_t)packets_get_value(g, row, PACKETS_FEC);
    double line = packets_get_value(g, row, PACKETS_GBPS) * bytes_per_gbit;
    double senders = packets_get_value(g, row, PACKETS_SENDERS);
    double balancing = packets_get_value(g, row, PACKETS_BALANCING);
    double other_bytes = 0;
    if (set->other_message) /* valid: check_other_message() */
        packets_parse_bytes(set->other_message, &other_bytes);
    return (lh_packet_link){
        .load = {.line_bytes_per_s = line,
                 .latency_ns = packets_get_value(g, row, PACKETS_LATENCY),
                 .return_ns = (double)set->return_ns,
                 .loss = packets_get_value(g, row, PACKETS_LOSS),
                 .oversubscription =
                     set->oversubscription > 0 ? set->oversubscription : 1,
                 .senders = senders,
                 .interface_bytes_per_s =
                     set->interface_gbps > 0
                         ? set->interface_gbps * bytes_per_gbit
                         : line / senders,
                 .message_bytes =
                     floor(packets_get_value(g, row, PACKETS_MESSAGE))},
        .setting = {.balancing =
                        balancing > 0 ? LH_BALANCING_SPRAY : LH_BALANCING_ECMP,
                    .recovery = packets_get_value(g, row, PACKETS_RECOVERY) > 0
                                    ? LH_RECOVERY_GO_BACK_N
                                    : LH_RECOVERY_SELECTIVE_REPEAT,
                    .queue_pairs = (uint32_t)packets_get_value(
                        g, row, PACKETS_QUEUE_PAIRS),
                    .paths = (uint32_t)packets_get_value(g, row, PACKETS_PATHS),
                    .fec_data = fec / 256,
                    .fec_parity = fec % 256,
                    .window_bytes = set->window_kib * 1024,
                    .queue_bytes = set->queue_kib * 1024},
        .is_adaptive = balancing > 1,
        .control =
            (lh_packet_control)packets_get_value(g, row, PACKETS_CONTROL),
        .messages = set->messages,
        .burst = set->burst,
        .variation_ns = set->variation_ns,
        .traffic =
            (lh_packet_traffic)packets_get_value(g, row, PACKETS_TRAFFIC),
        .buffer_bytes = set->buffer_kib * 1024,
        .switch_bytes = set->switch_kib * 1024,
        .switch_share = set->switch_share,
        .pauses = packets_get_value(g, row, PACKETS_FLOW_CONTROL) > 0,
        .timeout_ns = set->timeout_ns,
        .site_oversubscription = set->site_oversubscription,
        .failed_paths = set->failed,
        .failure_ns = set->failure_ns,
        .reroute_ns = set->reroute_ns,
        .other_gpus = set->other_gpus,
        .other_load = set->other_load,
        .other_bytes = other_bytes};
}

/* --- output --- */

/* Prints the settings with a single value, which are equal in all rows, above
 * the table. */
static void print_common(cli *c, const packets_grid *g)
{
    char text[64];
    const char *between = "";
    for (uint32_t a = 0; a < N_PACKETS_AXES; a++)
        if (g->n[a] == 1) {
            cli_print(
                c, "%s%s %s", between, packets_get_option((packets_axis)a),
                packets_get_text(g, 0, (packets_axis)a, text, sizeof text));
            between = ", ";
        }
    cli_print(c, "\n\n");
}

/* Prints the results as a table, a row per combination of settings; only
 * settings with several values have a column. */
static void print_table(cli *c, const packets_grid *g,
                        const lh_packet_result *results)
{
    char text[64];
    for (uint32_t a = 0; a < N_PACKETS_AXES; a++)
        if (g->n[a] > 1)
            cli_print(c, "%16s  ", packets_get_option((packets_axis)a));
    cli_print(c, "  time ms  (least  greatest)  Gb/s per GPU  sent again %%  "
                 "dropped %%  formula ms  (differs)\n");
    for (uint32_t row = 0; row < g->n_rows; row++) {
        const lh_packet_result *r = &results[row];
        const lh_packet_counters *k = &r->counters;
        double sent = (double)k->sent;
        for (uint32_t a = 0; a < N_PACKETS_AXES; a++)
            if (g->n[a] > 1)
                cli_print(c, "%16s  ",
                          packets_get_text(g, row, (packets_axis)a, text,
                                           sizeof text));
        cli_print(c,
                  "%9.3f %7.3f %10.3f  %12.2f  %12.3f  %9.3f  %10.3f  "
                  "(%+.1f %%)\n",
                  r->end_ns * 1e-6, r->least_end_ns * 1e-6,
                  r->greatest_end_ns * 1e-6, r->bytes_per_s * 8e-9,
                  100 * (double)k->retransmitted / sent,
                  100 * (double)k->dropped / sent, r->closed_form_ns * 1e-6,
                  100 * (r->closed_form_ns / r->mean_ns - 1));
    }
}

/* Prints which settings and effects in the results, such as dropped packets,
 * are not modelled by the closed-form estimate beside them. */
static void print_omitted(cli *c, const packets_grid *g,
                          const lh_packet_link *links,
                          const lh_packet_result *results)
{
    const settings *set = c->settings;
    bool drops = false, pauses = false, controls_rate = false,
         sprays_in_order = false, loses_parts = false;
    for (uint32_t i = 0; i < g->n_rows; i++) {
        const lh_link_setting *s = &links[i].setting;
        drops |= results[i].counters.dropped > 0;
        pauses |= results[i].counters.pauses > 0;
        loses_parts |=
            links[i].traffic != LH_TRAFFIC_MESSAGES && links[i].load.loss > 0;
        controls_rate |= links[i].control != LH_CONTROL_NONE;
        sprays_in_order |= s->balancing == LH_BALANCING_SPRAY && s->paths > 1 &&
                           s->recovery == LH_RECOVERY_GO_BACK_N;
    }
    const struct {
        bool applies;
        const char *name;
    } omitted[] = {{drops, "dropped packets"},
                   {pauses, "pauses of links"},
                   {loses_parts, "losses in collectives"},
                   {controls_rate, "the start of congestion control"},
                   {sprays_in_order, "go-back-n with spray"},
                   {set->site_oversubscription > 0, "--site-oversubscription"},
                   {set->failed > 0, "--failed"},
                   {set->other_gpus > 0, "--other-gpus"},
                   {set->burst > 0, "--burst"},
                   {set->variation_ns > 0, "--variation"},
                   {set->timeout_ns > 0, "--timeout"}};
    const char *between = "The formula does not model: ";
    for (uint32_t i = 0; i < CLI_COUNT_OF(omitted); i++)
        if (omitted[i].applies) {
            cli_print(c, "%s%s", between, omitted[i].name);
            between = ", ";
        }
    if (*between == ',')
        cli_print(c, ".\n");
}

/* Prints the results as a readable table, with the common settings above it and
 * the estimate's limits below. */
static void print_text(cli *c, const packets_grid *g,
                       const lh_packet_link *links,
                       const lh_packet_result *results)
{
    const settings *set = c->settings;
    bool reduces = false;
    for (uint32_t i = 0; i < g->n_rows; i++)
        reduces |= links[i].traffic != LH_TRAFFIC_MESSAGES;
    const char *what = reduces ? "message or collective" : "message";
    print_common(c, g);
    print_table(c, g, results);
    cli_print(c,
              "\nSimulated packet by packet, %" PRIu32
              " seed%s. \"time\": until all messages have arrived, mean over "
              "the seeds; \"formula\": the plans' closed form for a %s "
              "(modelled), relative to the simulated mean.\n",
              set->seeds, set->seeds == 1 ? "" : "s", what);
    print_omitted(c, g, links, results);
}

/* Adds a table row's link settings to its JSON object. */
static void add_settings(json_t *object, const lh_packet_link *l)
{
    json_object_set_new(object, "gbps",
                        json_real(l->load.line_bytes_per_s * 8e-9));
    json_object_set_new(object, "latency_ns",
                        json_integer((json_int_t)l->load.latency_ns));
    json_object_set_new(object, "loss", json_real(l->load.loss));
    json_object_set_new(object, "message_bytes",
                        json_integer((json_int_t)l->load.message_bytes));
    json_object_set_new(object, "senders",
                        json_integer((json_int_t)l->load.senders));
    json_object_set_new(object, "queue_pairs",
                        json_integer(l->setting.queue_pairs));
    json_object_set_new(object, "paths", json_integer(l->setting.paths));
    json_object_set_new(
        object, "load_balancing",
        json_string(
            packets_balancings[(l->setting.balancing == LH_BALANCING_SPRAY) +
                               l->is_adaptive]));
    json_object_set_new(
        object, "recovery",
        json_string(
            packets_recoveries[l->setting.recovery == LH_RECOVERY_GO_BACK_N]));
    json_object_set_new(object, "fec_data", json_integer(l->setting.fec_data));
    json_object_set_new(object, "fec_parity",
                        json_integer(l->setting.fec_parity));
    json_object_set_new(object, "congestion_control",
                        json_string(lh_packet_control_name(l->control)));
    json_object_set_new(object, "flow_control",
                        json_string(packets_flow_controls[l->pauses]));
    json_object_set_new(object, "traffic",
                        json_string(lh_packet_traffic_name(l->traffic)));
    json_object_set_new(object, "failed_paths", json_integer(l->failed_paths));
    json_object_set_new(object, "failure_ns", json_integer(l->failure_ns));
    json_object_set_new(object, "reroute_ns", json_integer(l->reroute_ns));
    json_object_set_new(object, "other_gpus", json_integer(l->other_gpus));
    json_object_set_new(object, "other_load", json_real(l->other_load));
    json_object_set_new(object, "other_bytes", json_real(l->other_bytes));
}

/* Adds the simulated times and packet counts of a table row to its JSON object.
 * */
static void add_result(json_t *object, const lh_packet_result *r)
{
    const lh_packet_counters *k = &r->counters;
    const struct {
        const char *name;
        double value;
    } reals[] = {{"end_ns", r->end_ns},
                 {"least_end_ns", r->least_end_ns},
                 {"greatest_end_ns", r->greatest_end_ns},
                 {"mean_ns", r->mean_ns},
                 {"median_ns", r->median_ns},
                 {"p99_ns", r->p99_ns},
                 {"max_ns", r->max_ns},
                 {"bytes_per_s", r->bytes_per_s},
                 {"closed_form_ns", r->closed_form_ns}};
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"sent", k->sent},
                  {"delivered", k->delivered},
                  {"lost", k->lost},
                  {"dropped", k->dropped},
                  {"retransmitted", k->retransmitted},
                  {"unneeded", k->unneeded},
                  {"acks", k->acks},
                  {"lost_acks", k->lost_acks},
                  {"marked", k->marked},
                  {"timeouts", k->timeouts},
                  {"max_queue_bytes", k->max_queue_bytes},
                  {"pauses", k->pauses},
                  {"paused_ns", k->paused_ns},
                  {"max_switch_bytes", k->max_switch_bytes},
                  {"events", k->events}};
    for (uint32_t i = 0; i < CLI_COUNT_OF(reals); i++)
        json_object_set_new(object, reals[i].name, json_real(reals[i].value));
    for (uint32_t i = 0; i < CLI_COUNT_OF(counts); i++)
        json_object_set_new(object, counts[i].name,
                            json_integer((json_int_t)counts[i].value));
}

/* Prints the settings and results of all rows as JSON. */
static lh_status print_json(cli *c, const packets_grid *g,
                            const lh_packet_link *links,
                            const lh_packet_result *results)
{
    const settings *set = c->settings;
    json_t *rows = json_array(), *object = json_object();
    for (uint32_t i = 0; i < g->n_rows; i++) {
        json_t *row = json_object();
        add_settings(row, &links[i]);
        add_result(row, &results[i]);
        json_array_append_new(rows, row);
    }
    json_object_set_new(object, "longhaul", json_string("packets/1"));
    json_object_set_new(object, "seed",
                        json_integer((json_int_t)c->common.seed));
    json_object_set_new(object, "seeds", json_integer(set->seeds));
    json_object_set_new(object, "certainty", json_string("simulated"));
    json_object_set_new(object, "rows", rows);
    return cli_put_json(c, object);
}

/* --- command --- */

/* Formats row `row`'s values on the axes with several values into `text`. */
static void format_row(const packets_grid *g, uint32_t row, char *text,
                       size_t size)
{
    char value[64];
    size_t len = 0;
    snprintf(text, size, "link");
    for (uint32_t a = 0; a < N_PACKETS_AXES && len < size; a++)
        if (g->n[a] > 1)
            len += (size_t)snprintf(
                text + len, size - len, "%s%s %s", len ? ", " : "",
                packets_get_option((packets_axis)a),
                packets_get_text(g, row, (packets_axis)a, value, sizeof value));
}

/* Writes the page of all rows. */
static lh_status write_html(cli *c, const packets_grid *g,
                            const lh_packet_record *records)
{
    enum { NAME = 300 };
    const settings *set = c->settings;
    const char *facts[2 * N_PACKETS_AXES + 1] = {NULL};
    char values[N_PACKETS_AXES][64], *text, *names = calloc(g->n_rows, NAME);
    size_t len;
    lh_packet_picture *pictures = calloc(g->n_rows, sizeof *pictures);
    uint32_t n = 0;
    for (uint32_t a = 0; a < N_PACKETS_AXES; a++)
        if (g->n[a] == 1) {
            facts[n++] = packets_get_option((packets_axis)a);
            facts[n++] = packets_get_text(g, 0, (packets_axis)a, values[a],
                                          sizeof values[a]);
        }
    for (uint32_t i = 0; names && pictures && i < g->n_rows; i++) {
        char *name = names + (size_t)i * NAME;
        format_row(g, i, name, NAME);
        pictures[i] = (lh_packet_picture){name, &records[i]};
    }
    lh_status status =
        names && pictures
            ? lh_packets_html("Packets on a link", facts, pictures, g->n_rows,
                              &text, &len, &c->err)
            : cli_no_memory(c);
    free(names);
    free(pictures);
    CLI_TRY(status);
    return cli_write_text(c, set->html, text, len);
}

/* Rows of a table under simulation. */
typedef struct running {
    cli *c;
    const lh_packet_result *results; /* of finished rows; the others zeroed */
    uint32_t n_rows;
} running;

/* Counts the finished rows. */
static uint32_t count_finished(const running *r)
{
    uint32_t n = 0;
    while (n < r->n_rows && r->results[n].mean_ns > 0)
        n++;
    return n;
}

/* Shows the progress and the last finished row's time; returns true after an
 * interrupt, to stop (callback). `context`: the running table. */
static bool show_progress(void *context, uint32_t done, uint32_t total)
{
    const running *r = context;
    uint32_t n = count_finished(r);
    if (n == 0)
        return cli_packets_show_progress(r->c, done, total);
    cli_progress(r->c,
                 "packets: simulation %" PRIu32 " of %" PRIu32 "; row %" PRIu32
                 " of %" PRIu32 ": %.3f ms",
                 done < total ? done + 1 : total, total, n, r->n_rows,
                 r->results[n - 1].end_ns * 1e-6);
    return cli_interrupts() > 0;
}

/* Simulates all rows and prints the results; after an interrupt or a failed
 * row, those of the finished rows. `records`: one for each row, for the page;
 * NULL: none. */
static lh_status simulate(cli *c, const packets_grid *g, lh_packet_link *links,
                          lh_packet_result *results, lh_packet_record *records)
{
    const settings *set = c->settings;
    running table = {c, results, g->n_rows};
    const lh_packet_run run = {.size = sizeof run,
                               .seed = c->common.seed,
                               .n_seeds = set->seeds,
                               .threads = set->threads,
                               .progress = show_progress,
                               .context = &table,
                               .records = records};
    packets_grid finished = *g;
    for (uint32_t i = 0; i < g->n_rows; i++)
        links[i] = build_link(c, g, i);
    cli_interrupts_begin(c, CLI_INTERRUPT_ONCE);
    lh_status status =
        lh_packets_simulate_links(links, g->n_rows, &run, results, &c->err);
    cli_interrupts_end();
    cli_progress_end();
    finished.n_rows = count_finished(&table);
    if (status == LH_ECANCELED && finished.n_rows > 0) {
        cli_note(
            c, "interrupted: the results have %" PRIu32 " of %" PRIu32 " rows",
            finished.n_rows, g->n_rows);
        c->exit_code = EXIT_FAILED;
        status = LH_OK;
    } else if (status == LH_EINPUT) {
        status = packets_print_failed_row(c, g, finished.n_rows);
    }
    CLI_TRY(status);
    if (records)
        CLI_TRY(write_html(c, &finished, records));
    if (c->common.json)
        return print_json(c, &finished, links, results);
    print_text(c, &finished, links, results);
    return LH_OK;
}

/* Rejects the options that describe a link: with a plan, its job does. */
static lh_status check_plan_options(cli *c)
{
    static const char *const others[] = {
        "messages",         "interface-gbps",
        "oversubscription", "site-oversubscription",
        "return-latency",   "burst",
        "variation",        "window-kib",
        "buffer-kib",       "queue-kib",
        "switch-kib",       "switch-share",
        "timeout",          "failed",
        "failed-at",        "reroute",
        "other-gpus",       "other-load",
        "other-message"};
    for (uint32_t a = 0; a < N_PACKETS_AXES + CLI_COUNT_OF(others); a++) {
        const char *name = a < N_PACKETS_AXES
                               ? packets_get_option((packets_axis)a)
                               : others[a - N_PACKETS_AXES];
        if (cli_is_given(c, name))
            return cli_usage(c,
                             "--%s cannot be combined with a plan, whose job "
                             "describes its links",
                             name);
    }
    return LH_OK;
}

/* Simulates the messages of a plan. */
static lh_status run_plan(cli *c)
{
    const settings *set = c->settings;
    cli_plan_packets how = {.sample = 0,
                            .seeds = set->seeds,
                            .threads = set->threads,
                            .html = set->html};
    uint64_t sample;
    CLI_TRY(check_plan_options(c));
    if (set->sample && strcmp(set->sample, "all") == 0)
        how.sample = LH_PACKET_ALL;
    else if (set->sample && cli_parse_count(set->sample, 1, 1000000, &sample))
        how.sample = (uint32_t)sample;
    else if (set->sample)
        return cli_usage(c,
                         "--sample: '%s' is neither a number of messages "
                         "nor all",
                         set->sample);
    return cli_plan_packets_run(c, &how);
}

/* Rejects pauses if --switch-kib is not given. */
static lh_status check_pauses(cli *c, const packets_grid *g)
{
    if (cli_is_given(c, "switch-kib"))
        return LH_OK;
    for (uint32_t i = 0; i < g->n[PACKETS_FLOW_CONTROL]; i++)
        if (g->values[PACKETS_FLOW_CONTROL][i] > 0)
            return cli_usage(c, "--flow-control pfc requires --switch-kib, the "
                                "memory of a switch");
    return LH_OK;
}

/* Rejects an invalid size of other jobs' messages. */
static lh_status check_other_message(cli *c)
{
    const settings *set = c->settings;
    double bytes;
    if (set->other_message && !packets_parse_bytes(set->other_message, &bytes))
        return cli_usage(c, "--other-message: '%s' is not a value such as 1MB",
                         set->other_message);
    return LH_OK;
}

/* Rejects an option without the option that it describes. */
static lh_status check_requirements(cli *c)
{
    static const struct {
        const char *name, *needs;
    } pairs[] = {{"switch-share", "switch-kib"},
                 {"failed-at", "failed"},
                 {"reroute", "failed"},
                 {"other-load", "other-gpus"},
                 {"other-message", "other-load"}};
    for (uint32_t i = 0; i < CLI_COUNT_OF(pairs); i++)
        if (cli_is_given(c, pairs[i].name) && !cli_is_given(c, pairs[i].needs))
            return cli_usage(c, "--%s requires --%s", pairs[i].name,
                             pairs[i].needs);
    return LH_OK;
}

/* Runs 'longhaul packets', which simulates messages over a link packet by
 * packet under all combinations of the given settings. */
static lh_status run_packets(cli *c)
{
    packets_grid g = {.n_rows = 0};
    const settings *set = c->settings;
    if (c->n_operands > 0)
        return run_plan(c);
    if (cli_is_given(c, "sample"))
        return cli_usage(c, "--sample requires a plan");
    CLI_TRY(packets_parse_grid(c, set->values, &g));
    CLI_TRY(check_requirements(c));
    CLI_TRY(check_pauses(c, &g));
    CLI_TRY(check_other_message(c));
    lh_packet_link *links = calloc(g.n_rows, sizeof *links);
    lh_packet_result *results = calloc(g.n_rows, sizeof *results);
    lh_packet_record *records =
        set->html ? calloc(g.n_rows, sizeof *records) : NULL;
    lh_status status = links && results && (records || !set->html)
                           ? simulate(c, &g, links, results, records)
                           : cli_no_memory(c);
    free(records);
    free(links);
    free(results);
    return status;
}

const cli_command cmd_packets = {
    .name = "packets",
    .operands = "[PLAN]",
    .most_operands = 1,
    .about = "Simulate messages over a long link, packet by packet",
    .description =
        "Simulates GPUs at one site that send messages to GPUs at another one, "
        "or all-reduces and all-to-alls over both sites: queues, losses, "
        "pauses, hashing over "
        "paths, windows, recovery, redundancy and congestion control. Where an "
        "option has several values, separated by "
        "commas, every combination is simulated and is a row of the table.\n"
        "\n"
        "With PLAN, simulates one iteration of a plan: its messages between "
        "datacenters go packet by packet over the links of its job, and a late "
        "message delays everything that needs it. The job must give "
        "load_balancing and recovery for these links.\n"
        "\n"
        "The last columns compare with the closed form that plans use "
        "(docs/theory/transport.md). docs/theory/packets.md describes the "
        "model and its tests.",
    .output_help = "Write the results to FILE instead of printing them.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_packets,
};
