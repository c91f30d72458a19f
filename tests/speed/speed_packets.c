/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the speed of the packet simulation, and of htsim in the same run;
 * and compares their completion times.
 *
 *     speed-packets [MEGABYTES] [HTSIM_ROCE]
 *     speed-packets compare HTSIM_ROCE [RUNS]
 *
 * The network is a folded Clos network with three tiers and 16 hosts (4 pods of
 * 2 racks of 2 hosts), 100 Gb/s, 4096 bytes of data in a packet; go-back-N.
 * HTSIM_ROCE: the program htsim_roce of Broadcom/csg-htsim, which simulates the
 * same messages. The first form sends a permutation. The second form prints the
 * mean and the last completion of single messages, incasts and a permutation,
 * until the last ack, and fails if a mean differs by more than 5 %. ECMP: means
 * over 100 random hashes, and RUNS of htsim (default: 100). */
#define _XOPEN_SOURCE 700 /* clock_gettime, mkdtemp, realpath */
#include "network/packet/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    HOSTS = 16,
    LATENCY_NS = 1000,
    SEEDS = 100,
    MOST_RUNS = 1000,
    /* With pauses: packets of an incoming link at which it is paused, and below
     * which it is not. */
    PAUSE_PACKETS = 15,
    RESUME_PACKETS = 13
};

/* Receiver of each host's message: the permutation of htsim's
 * perm_16n_16c_2MB.cm. */
static const uint32_t receivers[HOSTS] = {13, 3,  10, 14, 0,  11, 7, 5,
                                          9,  12, 6,  4,  15, 2,  8, 1};

/* Equal messages that start at the same time. */
typedef struct traffic {
    const char *name;
    uint32_t n, from[HOSTS], to[HOSTS];
    uint64_t bytes;
    bool pauses; /* PFC; else queues without limit */
} traffic;

/* Seconds and packets of a simulation, and the completion of each message, in
 * us. */
typedef struct outcome {
    double seconds, end_us[HOSTS];
    uint64_t packets, events;
} outcome;

/* Returns the monotonic clock in seconds. */
static double read_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Prints the error and exits. */
static void fail(const lh_error *err)
{
    fprintf(stderr, "speed-packets: %s\n", err->text);
    exit(1);
}

/* Simulates the messages until their last acks, which may wait in queues behind
 * data; end_us[i]: when message i's ack has arrived. */
static void find_last_acks(const lhi_packet_options *options, double *end_us)
{
    lhi_packet_sim *sim = NULL;
    lh_error err = {0};
    if (lhi_packets_open(options, &sim, &err) != LH_OK)
        fail(&err);
    while (lhi_packets_peek(sim) != UINT64_MAX) {
        if (lhi_packets_step(sim, &err) != LH_OK)
            fail(&err);
        for (uint32_t i = 0; i < options->n_pairs; i++) {
            const lhi_pair *pair = &sim->pairs[i];
            if (end_us[i] <= 0 && pair->posted > 0 &&
                pair->acked == pair->posted)
                end_us[i] = (double)sim->now_ps * 1e-6;
        }
    }
    lhi_packets_close(sim);
}

/* Simulates the traffic until all messages have arrived, or until their last
 * acks. */
static outcome simulate(const traffic *t, uint64_t seed, bool until_acks)
{
    const lhi_clos clos = {
        .pods = 4,
        .racks = 2,
        .hosts = 2,
        .aggregation = 2,
        .cores = 2,
        .port = {.bytes_per_s = 12.5e9, .latency_ns = LATENCY_NS},
        .rack_up = 1,
        .pod_up = 1};
    lhi_queue_pair pairs[HOSTS];
    lhi_packet_message messages[HOSTS];
    lhi_message_times times[HOSTS];
    lhi_arena *mem = lhi_arena_make(0);
    lhi_fabric fabric;
    lh_packet_counters counters;
    lh_error err = {0};
    for (uint32_t i = 0; i < t->n; i++) {
        pairs[i] = (lhi_queue_pair){t->from[i], t->to[i]};
        messages[i] = (lhi_packet_message){
            .bytes = t->bytes, .first_pair = i, .queue_pairs = 1};
    }
    if (lhi_fabric_build_clos(&clos, mem, &fabric, &err) != LH_OK)
        fail(&err);
    /* A threshold that hardly depends on the memory in use. */
    if (t->pauses)
        fabric.buffer =
            (lhi_switch_memory){.bytes = UINT64_C(1) << 50,
                                .share = PAUSE_PACKETS * 4096.0 * 0x1p-50,
                                .pauses = true};
    const lhi_packet_options options = {
        .fabric = &fabric,
        .transport = {.packet_bytes = 4096,
                      .balancing = LH_BALANCING_ECMP,
                      .recovery = LH_RECOVERY_GO_BACK_N,
                      .timeout_ns = 1000000000,
                      .line_bytes_per_s = 12.5e9},
        .pairs = pairs,
        .messages = messages,
        .n_pairs = t->n,
        .n_messages = t->n,
        .seed = seed};
    outcome out = {0};
    double begin = read_clock();
    if (until_acks) {
        find_last_acks(&options, out.end_us);
    } else {
        if (lhi_packets_simulate(&options, times, &counters, &err) != LH_OK)
            fail(&err);
        out.packets = counters.delivered;
        out.events = counters.events;
        for (uint32_t i = 0; i < t->n; i++)
            out.end_us[i] = times[i].end_ns * 1e-3;
    }
    out.seconds = read_clock() - begin;
    lhi_arena_free(mem);
    return out;
}

/* Reads the completion times that htsim printed. */
static void read_completions(const char *path, const traffic *t, outcome *out)
{
    char line[512];
    uint32_t n = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *at = strstr(line, " finished at ");
        if (strncmp(line, "Flow ", 5) == 0 && at && n < t->n)
            out->end_us[n++] = strtod(at + strlen(" finished at "), NULL);
    }
    if (file)
        fclose(file);
    if (n != t->n) {
        fprintf(stderr, "speed-packets: htsim ended %u of %u messages\n", n,
                t->n);
        exit(1);
    }
}

/* Runs htsim on the same traffic, with queues without limit or pauses. htsim
 * writes files into its working folder: each run changes to a temporary folder
 * and removes it, so that `program` must be an absolute path. */
static outcome run_htsim(const char *program, const traffic *t, uint32_t seed)
{
    char folder[] = "/tmp/speed-packets-XXXXXX", command[2048];
    FILE *file = NULL;
    if (mkdtemp(folder) && chdir(folder) == 0)
        file = fopen("matrix", "w");
    if (!file) {
        perror("speed-packets");
        exit(1);
    }
    fprintf(file, "Nodes %d\nConnections %u\n", HOSTS, t->n);
    for (uint32_t i = 0; i < t->n; i++)
        fprintf(file, "%u->%u id %u start 0 size %llu\n", t->from[i], t->to[i],
                i + 1, (unsigned long long)t->bytes);
    fclose(file);
    snprintf(command, sizeof command,
             "'%s' -tm matrix -nodes %d -conns %u -tiers 3 -linkspeed 100000 "
             "-strat ecmp_host -paths 64 -mtu 4096 -end 1000000 -q 1000000 "
             "-pfc_thresholds %d %d -seed %u -o /dev/null >printed 2>&1",
             program, HOSTS, t->n, t->pauses ? RESUME_PACKETS : 900000,
             t->pauses ? PAUSE_PACKETS : 950000, seed);
    double begin = read_clock();
    int status = system(command);
    outcome out = {.seconds = read_clock() - begin};
    if (status != 0) {
        fprintf(stderr, "speed-packets: %s failed\n", program);
        exit(1);
    }
    read_completions("printed", t, &out);
    unlink("matrix");
    unlink("idmap.txt");
    unlink("printed");
    rmdir(folder);
    return out;
}

/* --- speed --- */

/* Returns the permutation with messages of so many bytes. */
static traffic make_permutation(uint64_t bytes)
{
    traffic t = {.name = "permutation", .n = HOSTS, .bytes = bytes};
    for (uint32_t i = 0; i < HOSTS; i++) {
        t.from[i] = i;
        t.to[i] = receivers[i];
    }
    return t;
}

/* Adds an outcome's completions to the sum of mean and last ones. */
static void add_ends(const traffic *t, const outcome *o, double *mean,
                     double *last)
{
    double latest = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        *mean += o->end_us[i] / t->n;
        latest = fmax(latest, o->end_us[i]);
    }
    *last += latest;
}

/* Measures the speed of the permutation. */
static int measure(int argc, char **argv)
{
    uint64_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 200) * 1000000;
    const traffic t = make_permutation(bytes);
    double mean = 0, last = 0;
    outcome o = simulate(&t, 1, false);
    add_ends(&t, &o, &mean, &last);
    printf(
        "{\"bytes\": %llu, \"packets\": %llu, "
        "\"seconds\": %.3f, \"packets_per_s\": %.0f, \"events_per_s\": %.0f, "
        "\"end_ms\": %.3f",
        (unsigned long long)bytes, (unsigned long long)o.packets, o.seconds,
        (double)o.packets / o.seconds, (double)o.events / o.seconds,
        last * 1e-3);
    if (argc > 2) {
        double seconds = run_htsim(argv[2], &t, 1).seconds;
        printf(", \"htsim_seconds\": %.3f, \"htsim_packets_per_s\": %.0f",
               seconds, (double)o.packets / seconds);
    }
    printf("}\n");
    return 0;
}

/* --- comparison --- */

/* Returns an incast of n messages to host 15, one from each rack. */
static traffic make_incast(uint32_t n, uint64_t bytes)
{
    traffic t = {.name = "incast", .n = n, .bytes = bytes};
    for (uint32_t i = 0; i < n; i++) {
        t.from[i] = 2 * i;
        t.to[i] = HOSTS - 1;
    }
    return t;
}

/* Compares one traffic over `runs` random hashes; prints a row. Returns whether
 * the mean completions are within 5 %. */
static bool compare(const char *program, const traffic *t, uint32_t runs)
{
    double mean = 0, last = 0, peer_mean = 0, peer_last = 0;
    /* A message alone takes one time on every path. */
    if (t->n == 1)
        runs = 1;
    for (uint32_t i = 0; i < SEEDS; i++) {
        outcome o = simulate(t, i + 1, true);
        add_ends(t, &o, &mean, &last);
    }
    for (uint32_t i = 0; i < runs; i++) {
        outcome peer = run_htsim(program, t, i + 1);
        add_ends(t, &peer, &peer_mean, &peer_last);
    }
    mean /= SEEDS;
    last /= SEEDS;
    peer_mean /= runs;
    peer_last /= runs;
    double off = mean / peer_mean - 1;
    printf("%-14s %8u %10.1f %10.1f %10.1f %7.1f %% %10.1f %10.1f %7.1f %%\n",
           t->name, t->n, (double)t->bytes * 1e-6, mean, peer_mean, 100 * off,
           last, peer_last, 100 * (last / peer_last - 1));
    fflush(stdout);
    return fabs(off) <= 0.05;
}

/* Compares completion times with htsim's. */
static int compare_all(int argc, char **argv)
{
    static const uint64_t sizes[] = {100000, 2000000, 16000000};
    uint32_t runs = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 100;
    bool all = true;
    if (argc < 3 || runs < 1 || runs > MOST_RUNS) {
        fprintf(stderr, "usage: speed-packets compare HTSIM_ROCE [RUNS]\n");
        return 2;
    }
    printf("%-14s %8s %10s %10s %10s %9s %10s %10s %9s\n", "traffic",
           "messages", "MB", "mean us", "htsim", "differs", "last us", "htsim",
           "differs");
    for (uint32_t k = 0; k < 3; k++) {
        for (uint32_t to = 1; to <= 8; to = to == 1 ? 2 : 4 * to) {
            traffic one = {.name = to == 1   ? "same rack"
                                   : to == 2 ? "same pod"
                                             : "other pod",
                           .n = 1,
                           .to = {to},
                           .bytes = sizes[k]};
            all = compare(argv[2], &one, runs) && all;
        }
        for (uint32_t n = 2; n <= 8 && k < 2; n *= 2) {
            traffic incast = make_incast(n, sizes[k]);
            all = compare(argv[2], &incast, runs) && all;
        }
    }
    traffic permutation = make_permutation(2000000);
    all = compare(argv[2], &permutation, runs) && all;
    for (uint32_t n = 4; n <= 8; n *= 2) {
        traffic incast = make_incast(n, 2000000);
        incast.name = "pauses, incast";
        incast.pauses = true;
        all = compare(argv[2], &incast, runs) && all;
    }
    /* Messages that share links with an incast wait behind it. */
    traffic blocked = make_incast(6, 2000000);
    for (uint32_t i = 0; i < 6; i++) {
        blocked.from[6 + i] = 2 * i + 1;
        blocked.to[6 + i] = 13;
    }
    blocked.to[11] = 14;
    blocked.n = 12;
    blocked.name = "pauses, two";
    blocked.pauses = true;
    all = compare(argv[2], &blocked, runs) && all;
    permutation.name = "pauses, perm.";
    permutation.pauses = true;
    all = compare(argv[2], &permutation, runs) && all;
    return all ? 0 : 1;
}

int main(int argc, char **argv)
{
    bool compares = argc > 1 && strcmp(argv[1], "compare") == 0;
    char *program = argc > 2 ? realpath(argv[2], NULL) : NULL;
    if (argc > 2 && !program) {
        perror(argv[2]);
        return 1;
    }
    if (program)
        argv[2] = program;
    int result = compares ? compare_all(argc, argv) : measure(argc, argv);
    free(program);
    return result;
}
