/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the speed of the packet simulation, and of htsim in the same run.
 *
 *     speed-packets [MEGABYTES] [HTSIM_ROCE]
 *
 * A permutation of 16 hosts on a folded Clos network with three tiers (4 pods
 * of 2 racks of 2 hosts), 100 Gb/s, 4096 bytes of data in a packet; each host
 * sends one message with go-back-N. HTSIM_ROCE: the program htsim_roce of
 * Broadcom/csg-htsim, which runs the same permutation. */
#define _XOPEN_SOURCE 700 /* clock_gettime, mkdtemp, realpath */
#include "network/packet/simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS = 16 };

/* Receiver of each host's message: the permutation of htsim's
 * perm_16n_16c_2MB.cm. */
static const uint32_t receivers[HOSTS] = {13, 3,  10, 14, 0,  11, 7, 5,
                                          9,  12, 6,  4,  15, 2,  8, 1};

typedef struct outcome {
    double seconds, end_ms;
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

/* Simulates the permutation. */
static outcome simulate(uint64_t bytes)
{
    const lhi_clos clos = {.pods = 4,
                           .racks = 2,
                           .hosts = 2,
                           .aggregation = 2,
                           .cores = 2,
                           .port = {.bytes_per_s = 12.5e9, .latency_ns = 1000},
                           .rack_up = 1,
                           .pod_up = 1};
    lhi_queue_pair pairs[HOSTS];
    lhi_packet_message messages[HOSTS];
    lhi_message_times times[HOSTS];
    lhi_arena *mem = lhi_arena_make(0);
    lhi_fabric fabric;
    lh_packet_counters counters;
    lh_error err = {0};
    for (uint32_t i = 0; i < HOSTS; i++) {
        pairs[i] = (lhi_queue_pair){i, receivers[i]};
        messages[i] = (lhi_packet_message){
            .bytes = bytes, .first_pair = i, .queue_pairs = 1};
    }
    if (lhi_fabric_build_clos(&clos, mem, &fabric, &err) != LH_OK)
        fail(&err);
    const lhi_packet_options options = {
        .fabric = &fabric,
        .transport = {.packet_bytes = 4096,
                      .balancing = LH_BALANCING_ECMP,
                      .recovery = LH_RECOVERY_GO_BACK_N,
                      .timeout_ns = 1000000000,
                      .line_bytes_per_s = 12.5e9},
        .pairs = pairs,
        .messages = messages,
        .n_pairs = HOSTS,
        .n_messages = HOSTS,
        .seed = 1};
    double begin = read_clock();
    if (lhi_packets_simulate(&options, times, &counters, &err) != LH_OK)
        fail(&err);
    outcome out = {read_clock() - begin, 0, counters.delivered,
                   counters.events};
    for (uint32_t i = 0; i < HOSTS; i++)
        if (times[i].end_ns * 1e-6 > out.end_ms)
            out.end_ms = times[i].end_ns * 1e-6;
    lhi_arena_free(mem);
    return out;
}

/* Runs htsim on the same permutation, in a temporary folder, since it writes
 * files into its working folder; returns its seconds. */
static double run_htsim(const char *program, uint64_t bytes)
{
    char folder[] = "/tmp/speed-packets-XXXXXX", command[2048];
    char *path = realpath(program, NULL);
    FILE *file = NULL;
    if (path && mkdtemp(folder) && chdir(folder) == 0)
        file = fopen("matrix", "w");
    if (!file) {
        perror("speed-packets");
        exit(1);
    }
    fprintf(file, "Nodes %d\nConnections %d\n", HOSTS, HOSTS);
    for (uint32_t i = 0; i < HOSTS; i++)
        fprintf(file, "%u->%u id %u start 0 size %llu\n", i, receivers[i],
                i + 1, (unsigned long long)bytes);
    fclose(file);
    snprintf(command, sizeof command,
             "'%s' -tm matrix -nodes %d -conns %d -tiers 3 -linkspeed 100000 "
             "-strat ecmp_host -paths 64 -mtu 4096 -end 1000000 -o /dev/null "
             ">/dev/null 2>&1",
             path, HOSTS, HOSTS);
    double begin = read_clock();
    int status = system(command);
    double seconds = read_clock() - begin;
    free(path);
    unlink("matrix");
    unlink("idmap.txt");
    rmdir(folder);
    if (status != 0) {
        fprintf(stderr, "speed-packets: %s failed\n", program);
        exit(1);
    }
    return seconds;
}

int main(int argc, char **argv)
{
    uint64_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 200) * 1000000;
    outcome o = simulate(bytes);
    printf(
        "{\"bytes\": %llu, \"packets\": %llu, "
        "\"seconds\": %.3f, \"packets_per_s\": %.0f, \"events_per_s\": %.0f, "
        "\"end_ms\": %.3f",
        (unsigned long long)bytes, (unsigned long long)o.packets, o.seconds,
        (double)o.packets / o.seconds, (double)o.events / o.seconds, o.end_ms);
    if (argc > 2) {
        double seconds = run_htsim(argv[2], bytes);
        printf(", \"htsim_seconds\": %.3f, \"htsim_packets_per_s\": %.0f",
               seconds, (double)o.packets / seconds);
    }
    printf("}\n");
    return 0;
}
