/* SPDX-License-Identifier: Apache-2.0 */
/* Computes ScaleAcross Explorer's figures (2026) for 100,000 GPUs with short
 * sequences. Losses, load balancing and congestion control (figures 18, 20 and
 * 21) add a delay to messages: the simulated time of their packets minus the
 * time of a message alone on its share of the link. */
#include "scaleacross.h"

#include <longhaul.h>
#include <longhaul/experimental/packets.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* GPUs of a message between stages, each a sender. */
enum { SENDERS = 128 };

/* Rate of a GPU's interface and of a path, in bytes/s, and the bytes that a GPU
 * sends of a message between pipeline stages: 4096 tokens of 8192 values in 16
 * bits, divided over TP 8 and CP 16. */
static const double interface_bytes_per_s = 50e9;
static const double message_bytes = 4096.0 * 8192 * 2 / 128;

/* Messages under one setting of the network. */
typedef struct setting {
    double over, latency_us, loss;
    lh_recovery recovery;
    lh_balancing balancing;
    lh_packet_control control;
    uint32_t queue_pairs;
    bool has_paths; /* one for each 400 Gb/s; else one with the whole rate */
} setting;

/* Returns the excess, in us, of a message's simulated time over its time on an
 * idle share of the link. The simulated time lasts until the packets of the
 * slowest of its 128 GPUs have arrived; mean over the seeds. */
static double packet_delay_us(const setting *s)
{
    double line = SENDERS * interface_bytes_per_s;
    const lh_packet_run run = {.size = sizeof run,
                               .seed = 1,
                               .n_seeds = s->loss > 0 ? 64 : 16,
                               .threads = 1};
    const lh_packet_link link = {
        .load = {.line_bytes_per_s = line,
                 .latency_ns = s->latency_us * 1e3,
                 .loss = s->loss,
                 .oversubscription = s->over,
                 .senders = SENDERS,
                 .interface_bytes_per_s = interface_bytes_per_s,
                 .message_bytes = message_bytes},
        .setting = {.balancing = s->balancing,
                    .recovery = s->recovery,
                    .queue_pairs = s->queue_pairs,
                    .paths = s->has_paths ? (uint32_t)(SENDERS / s->over) : 1},
        .control = s->control,
        .buffer_bytes = 1e12}; /* the paper's network drops no packets */
    lh_packet_result r;
    lh_error err;

    if (lh_packets_simulate_links(&link, 1, &run, &r, &err) != LH_OK) {
        fprintf(stderr, "validate-scaleacross: packets: %s\n", err.text);
        exit(1);
    }
    return fmax(0, r.end_ns * 1e-3 - s->latency_us -
                       message_bytes * s->over / interface_bytes_per_s * 1e6);
}

/* Iteration times in seconds, indexed by `outer`. */
typedef struct times {
    double seconds[2];
} times;

/* Returns the times of iterations whose messages between buildings take as long
 * as simulated packets. */
static times packet_times(const setting *s)
{
    const topology *on = across_topology("A1");
    const workload w = across_100k_short(on);
    double latency_us = s->latency_us + packet_delay_us(s);
    times t;

    for (int out = 0; out < 2; out++) {
        const crossing c = {.outermost = (outer)out,
                            .oversubscription = s->over,
                            .latency_us = latency_us};

        t.seconds[out] = across_seconds(&w, on, &c, "dorapp");
    }
    return t;
}

/* Adds a row for each placement: the ratio of two times. */
static void add(across_add_value how, void *to, const char *figure,
                const char *what, double at, const times *a, const times *b)
{
    static const char *const names[] = {"DP", "PP"};
    char key[64];

    for (int out = 0; out < 2; out++) {
        snprintf(key, sizeof key, "%s short %s %s%g", figure, names[out], what,
                 at);
        how(to, key, a->seconds[out] / b->seconds[out]);
    }
}

/* Adds figure 18b: 0.02 % of the packets lost, go-back-N. A packet that is
 * alone on its queue pair is repeated after a timeout. */
static void add_loss(across_add_value how, void *to)
{
    for (int alone = 0; alone < 2; alone++) {
        setting s = {.over = ACROSS_OVERSUBSCRIPTION,
                     .latency_us = ACROSS_LATENCY_US,
                     .loss = 2e-4,
                     .recovery = LH_RECOVERY_GO_BACK_N,
                     .balancing = LH_BALANCING_ECMP,
                     .queue_pairs =
                         alone ? (uint32_t)(message_bytes / LH_PACKET_BYTES)
                               : 1};
        const times near = packet_times(&s);

        s.latency_us = 1000;
        const times far = packet_times(&s);
        add(how, to, "18", alone ? "timeouts us " : "us ", 1000, &far, &near);
    }
}

/* Adds figure 20. The paper does not name the placement. */
static void add_spraying(across_add_value how, void *to)
{
    for (int far = 0; far < 2; far++)
        for (uint32_t pairs = 1; pairs <= 4; pairs *= 4) {
            setting s = {.over = ACROSS_OVERSUBSCRIPTION,
                         .latency_us = far ? 1000 : ACROSS_LATENCY_US,
                         .recovery = LH_RECOVERY_SELECTIVE_REPEAT,
                         .balancing = LH_BALANCING_ECMP,
                         .queue_pairs = pairs,
                         .has_paths = true};
            const times ecmp = packet_times(&s);

            s.balancing = LH_BALANCING_SPRAY;
            const times spray = packet_times(&s);
            add(how, to, "20", pairs == 1 ? "1 pairs us " : "4 pairs us ",
                s.latency_us, &spray, &ecmp);
        }
}

/* Adds figure 21: DCQCN by none. */
static void add_congestion(across_add_value how, void *to)
{
    static const double at[] = {50, 100, 1000};

    for (int eight = 0; eight < 2; eight++)
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            setting s = {.over = (eight ? 8 : 4) * ACROSS_OVERSUBSCRIPTION,
                         .latency_us = at[i],
                         .recovery = LH_RECOVERY_SELECTIVE_REPEAT,
                         .balancing = LH_BALANCING_ECMP,
                         .queue_pairs = 1};
            const times none = packet_times(&s);

            s.control = LH_CONTROL_DCQCN;
            const times dcqcn = packet_times(&s);
            add(how, to, "21", eight ? "8x us " : "4x us ", at[i], &dcqcn,
                &none);
        }
}

void across_short_figures(across_add_value how, void *to)
{
    across_add_100k(how, to, "short", across_100k_short);
    add_loss(how, to);
    add_spraying(how, to);
    add_congestion(how, to);
}
