/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates the messages of a connection matrix of htsim on its topology, for
 * bench/peer_htsim.py.
 *
 *     packet-matrix MATRIX [--leaves LEAVES SPINES OVERSUBSCRIPTION]
 *                   [--ecmp | --adaptive]
 *                   [--go-back-n PAUSE] [--dcqcn PACKETS]
 *                   [--target-us TIME] [--seed N]
 *
 * MATRIX: "Nodes N", "Connections N", and a line "A->B [id I] start T size S"
 * for each message; T in picoseconds. The network is a fat tree of N hosts with
 * three tiers or, with --leaves, a Clos network with two; ports of 100 Gb/s
 * with 1 us. Every packet has a header of 64 bytes, as in htsim, with 4086
 * bytes of data or, with --go-back-n, 4096. By default each packet takes a
 * random path, with selective repeat and delay-based control. --ecmp: one path
 * for each message. --adaptive: each packet takes the shortest queue.
 * --go-back-n: go-back-N, and PFC that pauses a link of PAUSE packets.
 * --dcqcn: queues mark packets above so many. --target-us: round trip that the
 * delay-based control aims at, by default 24. Prints JSON: the completion of
 * each message until its last ack, in us; packets; processor time. With --ecmp
 * also the ports of each message's path, from its sender on. */
#define _XOPEN_SOURCE 700 /* clock_gettime */
#include "network/packet/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LATENCY_NS = 1000,
    HEADER = 64,
    MOST_HOSTS = 8192,
    MOST_MESSAGES = 1 << 16
};

/* Rate of all ports, in bytes/s. */
static const double bytes_per_s = 12.5e9;

/* Messages and their hosts. */
typedef struct matrix {
    uint32_t n_hosts, n;
    lhi_queue_pair *pairs;
    lhi_packet_message *messages;
    double *end_us;
} matrix;

/* Settings of the command line. */
typedef struct arguments {
    const char *path;
    uint32_t leaves, spines;
    double oversubscription, pause_packets, mark_packets, target_us;
    bool is_ecmp, is_adaptive, goes_back;
    uint64_t seed;
} arguments;

/* Prints the error and exits. */
static void fail(const char *what)
{
    fprintf(stderr, "packet-matrix: %s\n", what);
    exit(1);
}

/* Allocates zeroed memory or exits. */
static void *allocate(size_t n, size_t size)
{
    void *all = calloc(n, size);
    if (!all)
        fail("no memory");
    return all;
}

/* Returns the data bytes of a packet. */
static uint32_t get_data_bytes(const arguments *a)
{
    return a->goes_back ? 4096 : 4086;
}

/* Adds the message of a line, if it has one. Headers count as data. */
static void add_message(matrix *m, const arguments *a, const char *line)
{
    uint32_t data = get_data_bytes(a);
    unsigned from, to;
    double start_ps;
    unsigned long long size;
    const char *start = strstr(line, " start "), *at = strstr(line, " size ");
    if (sscanf(line, "%u->%u", &from, &to) != 2 || !start || !at ||
        sscanf(start, " start %lf", &start_ps) != 1 ||
        sscanf(at, " size %llu", &size) != 1)
        return;
    if (m->n == MOST_MESSAGES || from >= m->n_hosts || to >= m->n_hosts)
        fail("a message has no host, or there are too many");
    m->pairs[m->n] = (lhi_queue_pair){from, to};
    m->messages[m->n] =
        (lhi_packet_message){.bytes = size + (size + data - 1) / data * HEADER,
                             .first_pair = m->n,
                             .queue_pairs = 1,
                             .delay_ns = llround(start_ps / PS_PER_NS)};
    m->n++;
}

/* Reads the matrix, or exits. */
static void read_matrix(const arguments *a, matrix *m)
{
    char line[512];
    uint32_t n = 0;
    FILE *file = fopen(a->path, "r");
    if (!file)
        fail("the matrix cannot be read");
    *m = (matrix){.pairs = allocate(MOST_MESSAGES, sizeof *m->pairs),
                  .messages = allocate(MOST_MESSAGES, sizeof *m->messages),
                  .end_us = allocate(MOST_MESSAGES, sizeof *m->end_us)};
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Nodes %u", &m->n_hosts) != 1 &&
            sscanf(line, "Connections %u", &n) != 1)
            add_message(m, a, line);
    fclose(file);
    if (m->n_hosts < 2 || m->n_hosts > MOST_HOSTS || n != m->n || n == 0)
        fail("the matrix has not as many messages as it names");
}

/* Builds the network, or exits: with k ports at each switch, a fat tree has k
 * pods of k/2 racks with k/2 hosts [Al-Fares et al., SIGCOMM 2008]. */
static void build_network(const arguments *a, uint32_t n_hosts, lhi_arena *mem,
                          lhi_fabric *out)
{
    uint32_t half = (uint32_t)llround(cbrt(n_hosts / 2.0));
    double mark = a->mark_packets * (get_data_bytes(a) + HEADER);
    lhi_clos clos = {.pods = 2 * half,
                     .racks = half,
                     .hosts = half,
                     .aggregation = half,
                     .cores = half,
                     .port = {.bytes_per_s = bytes_per_s,
                              .latency_ns = LATENCY_NS,
                              .mark_from_bytes = (uint64_t)mark,
                              .mark_to_bytes = (uint64_t)mark,
                              .mark_probability = mark > 0},
                     .rack_up = 1,
                     .pod_up = 1};
    lh_error err = {0};
    if (a->leaves > 0) {
        clos.pods = 1;
        clos.racks = a->leaves;
        clos.hosts = n_hosts / a->leaves;
        clos.aggregation = a->spines;
        clos.cores = 0;
        clos.rack_up = clos.hosts / a->oversubscription / a->spines;
    }
    if (clos.pods * clos.racks * clos.hosts != n_hosts)
        fail("the topology has another number of hosts");
    if (lhi_fabric_build_clos(&clos, mem, out, &err) != LH_OK)
        fail(err.text);
    /* A threshold that hardly depends on the memory in use. */
    if (a->pause_packets > 0)
        out->buffer = (lhi_switch_memory){
            .bytes = UINT64_C(1) << 50,
            .share = a->pause_packets * (get_data_bytes(a) + HEADER) * 0x1p-50,
            .pauses = true};
}

/* Returns the settings of the queue pairs. */
static lhi_transport make_transport(const arguments *a)
{
    return (lhi_transport){
        .packet_bytes = get_data_bytes(a) + HEADER,
        .balancing = a->is_ecmp ? LH_BALANCING_ECMP : LH_BALANCING_SPRAY,
        .is_adaptive = a->is_adaptive,
        .recovery =
            a->goes_back ? LH_RECOVERY_GO_BACK_N : LH_RECOVERY_SELECTIVE_REPEAT,
        .control = a->mark_packets > 0 ? LH_CONTROL_DCQCN
                   : a->goes_back      ? LH_CONTROL_NONE
                                       : LH_CONTROL_DELAY,
        .timeout_ns = 1000000000,
        .reorder_ns = 1000000000, /* nothing is lost */
        .line_bytes_per_s = bytes_per_s,
        .target_ns = llround(a->target_us * 1e3)};
}

/* Returns the queue pair of the ack that the next event passes to a host;
 * LH_NONE: another event. */
static uint32_t find_acked_pair(const lhi_packet_sim *sim)
{
    uint32_t source = sim->heap[0].source;
    if (source >= sim->host_source)
        return LH_NONE;
    const lhi_port *port = &sim->ports[source];
    const lhi_packet *packet =
        (const lhi_packet *)port->packets.items + port->packets.head;
    bool is_ack =
        packet->kind == LHI_PACKET_ACK || packet->kind == LHI_PACKET_NACK;
    return is_ack && port->spec->to == sim->pairs[packet->pair].from
               ? packet->pair
               : LH_NONE;
}

/* Prints the ports of each message's path. */
static void print_paths(lhi_packet_sim *sim)
{
    printf("\"paths\": [");
    for (uint32_t i = 0; i < sim->o->n_messages; i++) {
        const lhi_packet packet = {.pair = i, .kind = LHI_PACKET_DATA};
        uint32_t node = sim->pairs[i].from;
        const char *between = i ? ", [" : "[";
        while (node != sim->pairs[i].to) {
            uint32_t port = lhi_packet_sim_choose_port(sim, node, &packet);
            printf("%s%u", between, port);
            between = ", ";
            node = sim->o->fabric->ports[port].to;
        }
        printf("]");
    }
    printf("], ");
}

/* Runs the simulation to its last ack, or exits; stores when each message's
 * last ack has arrived. With ECMP prints the paths. Returns the packets. */
static lh_packet_counters simulate(const lhi_packet_options *options,
                                   double *end_us)
{
    lhi_packet_sim *sim = NULL;
    lh_error err = {0};
    if (lhi_packets_open(options, &sim, &err) != LH_OK)
        fail(err.text);
    printf("{");
    if (options->transport.balancing == LH_BALANCING_ECMP)
        print_paths(sim);
    while (lhi_packets_peek(sim) != UINT64_MAX) {
        uint32_t i = find_acked_pair(sim);
        if (lhi_packets_step(sim, &err) != LH_OK)
            fail(err.text);
        if (i != LH_NONE && end_us[i] <= 0 &&
            sim->pairs[i].acked == sim->pairs[i].posted)
            end_us[i] = (double)sim->now_ps * 1e-6;
    }
    const lh_packet_counters counters = lhi_packets_count(sim);
    lhi_packets_close(sim);
    return counters;
}

/* Prints the usage and exits. */
static void print_usage(void)
{
    fprintf(stderr, "usage: packet-matrix MATRIX [--leaves LEAVES SPINES "
                    "OVERSUBSCRIPTION] [--ecmp | --adaptive] "
                    "[--go-back-n PAUSE] [--dcqcn PACKETS] "
                    "[--target-us TIME] [--seed N]\n");
    exit(2);
}

/* Reads the command line, or exits. */
static arguments read_arguments(int argc, char **argv)
{
    /* The default target: a round trip of 12 us, and as long queues. */
    arguments a = {
        .path = argc > 1 ? argv[1] : NULL, .target_us = 24, .seed = 1};
    if (!a.path)
        print_usage();
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--leaves") && i + 3 < argc) {
            a.leaves = (uint32_t)strtoul(argv[++i], NULL, 10);
            a.spines = (uint32_t)strtoul(argv[++i], NULL, 10);
            a.oversubscription = strtod(argv[++i], NULL);
            if (a.leaves < 1 || a.spines < 1 || !(a.oversubscription > 0))
                print_usage();
        } else if (!strcmp(argv[i], "--ecmp")) {
            a.is_ecmp = true;
        } else if (!strcmp(argv[i], "--adaptive")) {
            a.is_adaptive = true;
        } else if (!strcmp(argv[i], "--go-back-n") && i + 1 < argc) {
            a.goes_back = true;
            a.pause_packets = strtod(argv[++i], NULL);
        } else if (!strcmp(argv[i], "--dcqcn") && i + 1 < argc) {
            a.mark_packets = strtod(argv[++i], NULL);
        } else if (!strcmp(argv[i], "--target-us") && i + 1 < argc) {
            a.target_us = strtod(argv[++i], NULL);
            if (!(a.target_us > 0))
                print_usage();
        } else if (!strcmp(argv[i], "--seed") && i + 1 < argc) {
            a.seed = strtoull(argv[++i], NULL, 10);
        } else {
            print_usage();
        }
    }
    return a;
}

/* Returns the processor time of this process in seconds. */
static double read_processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    const arguments a = read_arguments(argc, argv);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_fabric fabric;
    matrix m;
    read_matrix(&a, &m);
    build_network(&a, m.n_hosts, mem, &fabric);
    const lhi_packet_options options = {.fabric = &fabric,
                                        .transport = make_transport(&a),
                                        .pairs = m.pairs,
                                        .messages = m.messages,
                                        .n_pairs = m.n,
                                        .n_messages = m.n,
                                        .seed = a.seed};
    const lh_packet_counters counters = simulate(&options, m.end_us);
    printf("\"packets\": %llu, \"marked\": %llu, \"pauses\": %llu, "
           "\"processor_s\": %.4f, \"end_us\": [",
           (unsigned long long)counters.delivered,
           (unsigned long long)counters.marked,
           (unsigned long long)counters.pauses, read_processor_time());
    for (uint32_t i = 0; i < m.n; i++)
        printf("%s%.3f", i ? ", " : "", m.end_us[i]);
    printf("]}\n");
    lhi_arena_free(mem);
    free(m.pairs);
    free(m.messages);
    free(m.end_us);
    return 0;
}
