/* SPDX-License-Identifier: Apache-2.0 */
/* Computes ScaleAcross Explorer's figures (2026) for 100,000 GPUs with short
 * sequences. With hashing, losses, load balancing and congestion control
 * (figures 6, 11, 12, 18, 20 and 21) the links between buildings have the rate
 * and the latency of simulated packets. */
#include "scaleacross.h"

#include <longhaul.h>
#include <longhaul/experimental/packets.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* GPUs of a message between stages, each a sender. */
enum { SENDERS = 128 };

/* Rate of a GPU's interface and of a path, in bytes/s, and the bytes that a GPU
 * sends of a message between pipeline stages: 4096 tokens of 8192 values in 16
 * bits, divided over TP 8 and CP 16. */
static const double interface_bytes_per_s = 50e9;
static const double message_bytes = 4096.0 * 8192 * 2 / 128;

/* Messages of a stream, whose packets follow each other on the queue pairs:
 * four windows of a sprayed queue pair. */
enum { STREAM = 16 };

/* Messages under one setting of the network. */
typedef struct setting {
    double over, latency_us, loss, zone_over; /* 0: no zones */
    double factor; /* size of a message between stages by the job's; 0: 1 */
    lh_recovery recovery;
    lh_balancing balancing;
    lh_packet_control control;
    uint32_t queue_pairs;
    bool has_paths; /* one for each 400 Gb/s; else one with the whole rate */
    bool is_alone;  /* every packet has a queue pair of its own */
} setting;

/* Returns the simulated time, in us, until the slowest of 128 GPUs has sent
 * `messages` messages, one directly after the other; mean over the seeds. The
 * link has the rate of `share` times as many GPUs. */
static double packets_us(const setting *s, double share, uint32_t messages)
{
    double line = SENDERS * interface_bytes_per_s * share;
    const lh_packet_run run = {.size = sizeof run,
                               .seed = 1,
                               .n_seeds = s->loss > 0 ? 4 : 1,
                               .threads = 1};
    const lh_packet_link link = {
        .load = {.line_bytes_per_s = line,
                 .latency_ns = s->latency_us * 1e3,
                 .loss = s->loss,
                 .oversubscription = s->over,
                 .senders = SENDERS,
                 .interface_bytes_per_s = interface_bytes_per_s,
                 .message_bytes =
                     messages * message_bytes * fmax(1, s->factor)},
        .setting =
            {.balancing = s->balancing,
             .recovery = s->recovery,
             .queue_pairs = s->queue_pairs * (s->is_alone ? messages : 1),
             .paths = s->has_paths ? (uint32_t)(SENDERS * share / s->over) : 1},
        .control = s->control,
        .buffer_bytes = 1e12, /* the paper's network drops no packets */
        .site_oversubscription = s->zone_over};
    lh_packet_result r;
    lh_error err;

    if (lh_packets_simulate_links(&link, 1, &run, &r, &err) != LH_OK) {
        fprintf(stderr, "validate-scaleacross: packets: %s\n", err.text);
        exit(1);
    }
    return r.end_ns * 1e-3;
}

/* Oversubscription and latency with which an idle link takes the simulated
 * times of packets. */
typedef struct effective {
    double over, latency_us;
} effective;

/* Measures a setting: each further message of a stream occupies the link for
 * the time by which it lengthens the stream; the rest of the first message's
 * time is latency. */
static effective measure(const setting *s, double share)
{
    uint32_t n = s->is_alone ? 2 : STREAM;
    double interface_us = message_bytes / interface_bytes_per_s * 1e6;
    double idle_us =
        interface_us * fmax(1, s->factor) * fmax(1, s->over / share);
    double first_us = packets_us(s, share, 1);
    double occupied_us = (packets_us(s, share, n) - first_us) / (n - 1);

    occupied_us = fmax(occupied_us, idle_us);
    return (effective){fmax(s->over, share * occupied_us / interface_us),
                       fmax(s->latency_us, first_us - occupied_us)};
}

/* Iteration times in seconds, indexed by `outer`. */
typedef struct times {
    double seconds[2];
} times;

/* Returns the time of an iteration on a topology whose messages between
 * buildings take as long as simulated packets. With pipelines across buildings
 * only the GPUs of a building's last stage send to the next building, with the
 * rate of all GPUs in the building. */
static double packet_seconds(const char *name, outer out, const setting *s)
{
    const topology *on = across_topology(name);
    const workload w = across_100k_short(on);
    double stages = (double)on->pipeline / on->buildings;
    const effective e = measure(s, out == PIPELINE_OUT ? stages : 1);
    const crossing c = {.outermost = out,
                        .oversubscription = e.over,
                        .latency_us = e.latency_us};

    return across_seconds(&w, on, &c, "dorapp");
}

/* Returns the times of iterations on topology A1. */
static times packet_times(const setting *s)
{
    return (times){{packet_seconds("A1", DATA_OUT, s),
                    packet_seconds("A1", PIPELINE_OUT, s)}};
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

/* Returns the paper's usual network: ECMP over paths of 400 Gb/s, no loss. */
static setting hashed(double over, double latency_us)
{
    return (setting){.over = over,
                     .latency_us = latency_us,
                     .recovery = LH_RECOVERY_GO_BACK_N,
                     .balancing = LH_BALANCING_ECMP,
                     .queue_pairs = 1,
                     .has_paths = true};
}

/* Growth of the iteration with pipelines across buildings: by 4 times the usual
 * oversubscription, and by 1000 us. */
typedef struct hashed_growth {
    double over, latency;
} hashed_growth;

/* Computes a topology's growth with hashed queue pairs and messages that are
 * `factor` times as long. Each building has a
 * tier of ports between its zones' switches and the links to other buildings,
 * with the zones' oversubscription. */
static hashed_growth compute_growth(const char *name, double factor)
{
    setting s = hashed(ACROSS_OVERSUBSCRIPTION, ACROSS_LATENCY_US);

    s.factor = factor;
    s.zone_over = across_topology(name)->zone_oversubscription;
    double base = packet_seconds(name, PIPELINE_OUT, &s);
    s.over *= 4;
    double over = packet_seconds(name, PIPELINE_OUT, &s);
    s.over = ACROSS_OVERSUBSCRIPTION;
    s.latency_us = 1000;
    double far = packet_seconds(name, PIPELINE_OUT, &s);
    return (hashed_growth){over / base, far / base};
}

/* Adds figures 6, 11 and 12 with hashed queue pairs. */
static void add_hashed(across_add_value how, void *to)
{
    static const char *const pairs[][2] = {
        {"A2", "A1"}, {"A3", "A1"}, {"B3", "B2"}};
    hashed_growth reference = {0};
    char key[64];

    for (double k = 1; k <= 4; k *= 2) {
        const setting s =
            hashed(k * ACROSS_OVERSUBSCRIPTION, ACROSS_LATENCY_US);
        const times t = packet_times(&s);

        snprintf(key, sizeof key, "6 short hashed times %g", k);
        how(to, key, t.seconds[PIPELINE_OUT] / t.seconds[DATA_OUT]);
    }
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (i == 0 || strcmp(pairs[i][1], pairs[i - 1][1]) != 0)
            reference = compute_growth(pairs[i][1], 1);
        const hashed_growth g = compute_growth(pairs[i][0], 1);

        snprintf(key, sizeof key, "11 short hashed PP %s by %s", pairs[i][0],
                 pairs[i][1]);
        how(to, key, g.over / reference.over);
        snprintf(key, sizeof key, "12 short hashed PP %s by %s", pairs[i][0],
                 pairs[i][1]);
        how(to, key, g.latency / reference.latency);
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
                     .is_alone = alone,
                     .queue_pairs =
                         alone ? (uint32_t)(message_bytes / LH_PACKET_BYTES)
                               : 1};
        const times near = packet_times(&s);

        s.latency_us = 1000;
        const times far = packet_times(&s);
        add(how, to, "18", alone ? "timeouts us " : "us ", 1000, &far, &near);
    }
}

/* Computes the times with packet spraying and with ECMP. */
static void compare_spraying(double over, double latency_us, uint32_t pairs,
                             times *spray, times *ecmp)
{
    setting s = hashed(over, latency_us);

    s.recovery = LH_RECOVERY_SELECTIVE_REPEAT;
    s.queue_pairs = pairs;
    *ecmp = packet_times(&s);
    s.balancing = LH_BALANCING_SPRAY;
    *spray = packet_times(&s);
}

/* Adds figure 20. The paper does not name the placement. */
static void add_spraying(across_add_value how, void *to)
{
    for (int far = 0; far < 2; far++)
        for (uint32_t pairs = 1; pairs <= 4; pairs *= 4) {
            double latency_us = far ? 1000 : ACROSS_LATENCY_US;
            times spray, ecmp;

            compare_spraying(ACROSS_OVERSUBSCRIPTION, latency_us, pairs, &spray,
                             &ecmp);
            add(how, to, "20", pairs == 1 ? "1 pairs us " : "4 pairs us ",
                latency_us, &spray, &ecmp);
        }
}

/* Computes the times with DCQCN and without congestion control. */
static void compare_control(double over, double latency_us, times *dcqcn,
                            times *none)
{
    setting s = {.over = over,
                 .latency_us = latency_us,
                 .recovery = LH_RECOVERY_SELECTIVE_REPEAT,
                 .balancing = LH_BALANCING_ECMP,
                 .queue_pairs = 1};

    *none = packet_times(&s);
    s.control = LH_CONTROL_DCQCN;
    *dcqcn = packet_times(&s);
}

/* Adds figure 21: DCQCN by none. */
static void add_congestion(across_add_value how, void *to)
{
    static const double at[] = {50, 100, 1000};

    for (int eight = 0; eight < 2; eight++)
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            times dcqcn, none;

            compare_control((eight ? 8 : 4) * ACROSS_OVERSUBSCRIPTION, at[i],
                            &dcqcn, &none);
            add(how, to, "21", eight ? "8x us " : "4x us ", at[i], &dcqcn,
                &none);
        }
}

/* Prints the ratio of two times for PP-out and DP-out. */
static void print_ratio(FILE *to, const times *a, const times *b)
{
    fprintf(to, " %.3f, %.3f |",
            a->seconds[PIPELINE_OUT] / b->seconds[PIPELINE_OUT],
            a->seconds[DATA_OUT] / b->seconds[DATA_OUT]);
}

void across_print_ranges(FILE *to)
{
    static const double ratios[] = {8};
    times a, b;

    fputs("| usual ratio | figure 6, 4x: PP-out / DP-out | figure 20, 1000 us: "
          "one queue pair | the same with four | figure 21, 8x: 100 us | the "
          "same, 1000 us |\n"
          "| --- | --- | --- | --- | --- | --- |\n",
          to);
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        setting s = hashed(4 * ratios[i], ACROSS_LATENCY_US);

        a = packet_times(&s);
        fprintf(to, "| 1:%g | %.3f |", ratios[i],
                a.seconds[PIPELINE_OUT] / a.seconds[DATA_OUT]);
        for (uint32_t pairs = 1; pairs <= 4; pairs *= 4) {
            compare_spraying(ratios[i], 1000, pairs, &a, &b);
            print_ratio(to, &a, &b);
        }
        for (double us = 100; us <= 1000; us *= 10) {
            compare_control(8 * ratios[i], us, &a, &b);
            print_ratio(to, &a, &b);
        }
        fputs("\n", to);
    }
    fputs("| the paper | up to 1.066 | 1.001 to 1.114 | 1.001 to 1.114 | 1.009 "
          "| 1.015 |\n",
          to);
}

/* Computes PP-out's time by DP-out's in figure 6 at four times the usual
 * oversubscription, with messages that are `factor` times as long. */
static double compare_placements(double factor)
{
    setting s = hashed(4 * ACROSS_OVERSUBSCRIPTION, ACROSS_LATENCY_US);
    double data_out = packet_seconds("A1", DATA_OUT, &s);

    s.factor = factor;
    return packet_seconds("A1", PIPELINE_OUT, &s) / data_out;
}

/* Prints a number of a table. */
static void print_number(FILE *to, double value)
{
    fprintf(to, " %.3f |", value);
}

/* Prints PP-out's times with DCQCN by those without for messages that are
 * `factor` times as long. */
static void print_controls(FILE *to, double factor)
{
    static const double at[] = {50, 100, 1000};

    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        setting s = {.over = 8 * ACROSS_OVERSUBSCRIPTION,
                     .latency_us = at[i],
                     .factor = factor,
                     .recovery = LH_RECOVERY_SELECTIVE_REPEAT,
                     .balancing = LH_BALANCING_ECMP,
                     .queue_pairs = 1};
        double none = packet_seconds("A1", PIPELINE_OUT, &s);

        s.control = LH_CONTROL_DCQCN;
        print_number(to, packet_seconds("A1", PIPELINE_OUT, &s) / none);
    }
}

void across_print_messages(FILE *to)
{
    static const double factors[] = {1, 4, 8};
    static const char *const pairs[][2] = {{"A3", "A1"}, {"B3", "B2"}};

    fputs("| message of a GPU, MB | figure 12: PP-out, 1000 us by 50 us | "
          "figure 6, 4x: PP-out / DP-out | figure 11: A3 by A1 | B3 by B2 | "
          "figure 21, 8x: 50 us | 100 us | 1000 us |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        fprintf(to, "| %.1f |", factors[i] * message_bytes * 1e-6);
        print_number(to, compute_growth("A1", factors[i]).latency);
        print_number(to, compare_placements(factors[i]));
        for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
            print_number(to, compute_growth(pairs[k][0], factors[i]).over /
                                 compute_growth(pairs[k][1], factors[i]).over);
        print_controls(to, factors[i]);
        fputs("\n", to);
    }
    fputs("| the paper | 1.100 | up to 1.066 | above 1 | above 1 | about 1 | "
          "1.009 | 1.015 |\n",
          to);
}

void across_short_figures(across_add_value how, void *to)
{
    across_add_100k(how, to, "short", across_100k_short);
    add_hashed(how, to);
    add_loss(how, to);
    add_spraying(how, to);
    add_congestion(how, to);
}
