/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the transports. Compares emulated links with their settings, by
 * ping-pong and by a stream of messages; counts the empty messages that eight
 * ranks exchange per second. Prints one JSON object on stdout. With --check,
 * exits with status 1 if a latency (half a round trip) or a stream time is off
 * by more than 1 % and 100 us. */
#define _GNU_SOURCE
#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/transport.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const int64_t ms_ns = 1000000;

typedef lh_status runner(uint32_t n, uint32_t n_links,
                         const lhi_net_link *links, lhi_rank_main *rank_main,
                         void *context, lhi_rank_result *results,
                         lh_error *err);

/* An emulated link and the messages to send over it. */
typedef struct setting {
    const char *name;
    lhi_net_link link;
    size_t bytes;
    uint32_t n; /* message count */
} setting;

static const setting settings[] = {
    {"metro: 1 ms, 4 Gbit/s", {1000000, 0, 2, LHI_LINK_UNSHARED}, 1 << 18, 100},
    {"region: 10 ms, 10 Gbit/s",
     {10000000, 0, 0.8, LHI_LINK_UNSHARED},
     1 << 20,
     40},
    {"continent: 20 ms, 1 Gbit/s",
     {20000000, 0, 8, LHI_LINK_UNSHARED},
     1 << 20,
     20},
    {"ocean: 50 ms, 10 Gbit/s",
     {50000000, 0, 0.8, LHI_LINK_UNSHARED},
     1 << 20,
     20},
    {"latency alone: 5 ms", {5000000, 0, 0, LHI_LINK_UNSHARED}, 8, 40},
    {"occupancy alone: 2 ms", {0, 2000000, 0, LHI_LINK_UNSHARED}, 8, 40},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static lh_status one(lhi_net *net, bool sends, uint64_t tag, void *data,
                     size_t size, uint32_t link, lh_error *err)
{
    lhi_net_op op = {0};
    uint32_t peer = 1 - lhi_net_rank(net);
    if (sends)
        LHI_TRY(lhi_net_send(net, peer, tag, data, size, link, lhi_now_ns(),
                             LHI_NET_NO_TURN, &op, err));
    else
        LHI_TRY(lhi_net_receive(net, peer, tag, data, size, &op, err));
    return lhi_net_wait(net, &op, 0, err);
}

/* Computes the median round-trip time. */
static lh_status ping_pong(lhi_net *net, const setting *s, char *data,
                           int64_t *median_ns, lh_error *err)
{
    int64_t took_ns[200];
    bool first = lhi_net_rank(net) == 0;
    for (uint32_t i = 0; i < s->n; i++) {
        int64_t start_ns = lhi_now_ns();
        LHI_TRY(one(net, first, 1, data, s->bytes, 0, err));
        LHI_TRY(one(net, !first, 2, data, s->bytes, 1, err));
        took_ns[i] = lhi_now_ns() - start_ns;
    }
    qsort(took_ns, s->n, sizeof took_ns[0], by_value);
    *median_ns = took_ns[s->n / 2];
    return LH_OK;
}

/* Sends all messages at once and measures from the first send to the last
 * arrival. */
static lh_status stream(lhi_net *net, const setting *s, char *data,
                        int64_t *took_ns, lh_error *err)
{
    lhi_net_op ops[200] = {{0}};
    int64_t start_ns = 0;
    if (lhi_net_rank(net) == 0) {
        LHI_TRY(one(net, false, 5, NULL, 0, LHI_NET_NO_LINK, err));
        start_ns = lhi_now_ns();
        for (uint32_t i = 0; i < s->n; i++)
            LHI_TRY(lhi_net_send(net, 1, 3, data, s->bytes, 0, start_ns,
                                 LHI_NET_NO_TURN, &ops[i], err));
        LHI_TRY(one(net, true, 4, &start_ns, sizeof start_ns, LHI_NET_NO_LINK,
                    err));
    } else {
        for (uint32_t i = 0; i < s->n; i++)
            LHI_TRY(lhi_net_receive(net, 0, 3, data, s->bytes, &ops[i], err));
        LHI_TRY(one(net, true, 5, NULL, 0, LHI_NET_NO_LINK, err));
        LHI_TRY(one(net, false, 4, &start_ns, sizeof start_ns, LHI_NET_NO_LINK,
                    err));
    }
    for (uint32_t i = 0; i < s->n; i++)
        LHI_TRY(lhi_net_wait(net, &ops[i], 0, err));
    *took_ns = lhi_now_ns() - start_ns;
    return LH_OK;
}

static lh_status measure(lhi_net *net, void *context, char **result,
                         size_t *size, lh_error *err)
{
    const setting *s = context;
    int64_t *times = calloc(2, sizeof *times);
    char *data = calloc(1, s->bytes);
    if (!times || !data)
        return lhi_fail_nomem(err);
    lhi_enable_precise_wakeups(getenv("BENCH_NET_REALTIME") != NULL, NULL);
    LHI_TRY(ping_pong(net, s, data, &times[0], err));
    LHI_TRY(stream(net, s, data, &times[1], err));
    free(data);
    *result = (char *)times;
    *size = 2 * sizeof *times;
    return LH_OK;
}

static bool near(int64_t got_ns, int64_t want_ns)
{
    int64_t off_ns = llabs(got_ns - want_ns);
    return off_ns <= ms_ns / 10 || off_ns * 100 <= want_ns;
}

static bool print_setting(const char *transport, runner *run, const setting *s,
                          bool more)
{
    lhi_net_link links[2] = {s->link, s->link};
    lhi_rank_result results[2] = {{0}};
    lh_error err = {0};
    union {
        const setting *in;
        void *context;
    } context = {s};
    if (run(2, 2, links, measure, context.context, results, &err) != LH_OK) {
        fprintf(stderr, "%s, %s: %s\n", transport, s->name, err.text);
        exit(1);
    }
    int64_t there[2], here[2];
    memcpy(there, results[0].text, sizeof there);
    memcpy(here, results[1].text, sizeof here);
    int64_t transfer_ns =
        s->link.transfer_ns +
        (int64_t)((double)s->bytes * s->link.ns_per_byte + 0.5);
    int64_t trip_ns = 2 * (transfer_ns + s->link.latency_ns);
    int64_t stream_ns = s->n * transfer_ns + s->link.latency_ns;
    bool good = near(there[0] / 2, trip_ns / 2) && near(here[1], stream_ns);
    printf("    {\"transport\": \"%s\", \"link\": \"%s\", \"bytes\": %zu,\n"
           "     \"round_trip_s\": %.6f, \"round_trip_asked_s\": %.6f,\n"
           "     \"stream_s\": %.6f, \"stream_asked_s\": %.6f, "
           "\"within\": %s}%s\n",
           transport, s->name, s->bytes, (double)there[0] * 1e-9,
           (double)trip_ns * 1e-9, (double)here[1] * 1e-9,
           (double)stream_ns * 1e-9, good ? "true" : "false", more ? "," : "");
    free(results[0].text);
    free(results[1].text);
    return good;
}

/* ---- messages per second ---- */

enum { RING = 8, ROUNDS = 20000, AHEAD = 16 };

/* Every rank sends to its successor and receives from its predecessor. Receives
 * are posted ahead, as in the engine. */
static lh_status ring(lhi_net *net, void *context, char **result, size_t *size,
                      lh_error *err)
{
    (void)result, (void)size;
    uint32_t link = *(uint32_t *)context;
    uint32_t me = lhi_net_rank(net), n = lhi_net_n_ranks(net);
    lhi_net_op sends[AHEAD] = {{0}}, receives[AHEAD] = {{0}};
    for (uint32_t i = 0; i < ROUNDS + AHEAD; i++) {
        uint32_t k = i % AHEAD;
        if (i >= AHEAD) {
            LHI_TRY(lhi_net_wait(net, &receives[k], 0, err));
            LHI_TRY(lhi_net_wait(net, &sends[k], 0, err));
        }
        if (i >= ROUNDS)
            continue;
        sends[k] = receives[k] = (lhi_net_op){0};
        LHI_TRY(lhi_net_receive(net, (me + n - 1) % n, i, NULL, 0, &receives[k],
                                err));
        LHI_TRY(lhi_net_send(net, (me + 1) % n, i, NULL, 0, link, lhi_now_ns(),
                             LHI_NET_NO_TURN, &sends[k], err));
    }
    return LH_OK;
}

static void print_rate(const char *transport, runner *run, bool linked,
                       bool more)
{
    const lhi_net_link link = {0, 0, 0, LHI_LINK_UNSHARED};
    lh_error err = {0};
    uint32_t which = linked ? 0 : LHI_NET_NO_LINK;
    int64_t start_ns = lhi_now_ns();
    if (run(RING, 1, &link, ring, &which, NULL, &err) != LH_OK) {
        fprintf(stderr, "%s: %s\n", transport, err.text);
        exit(1);
    }
    double seconds = (double)(lhi_now_ns() - start_ns) * 1e-9;
    printf("    {\"transport\": \"%s\", \"emulated\": %s, \"ranks\": %d, "
           "\"messages_per_s\": %.0f}%s\n",
           transport, linked ? "true" : "false", RING,
           RING * (double)ROUNDS / seconds, more ? "," : "");
}

int main(int argc, char **argv)
{
    bool check = argc > 1 && strcmp(argv[1], "--check") == 0, good = true;
    printf("{\n  \"links\": [\n");
    for (int i = 0; i < N_SETTINGS; i++)
        good &= print_setting("inproc", lhi_inproc_run, &settings[i], true);
    for (int i = 0; i < N_SETTINGS; i++)
        good &= print_setting("local", lhi_local_run, &settings[i],
                              i + 1 < N_SETTINGS);
    printf("  ],\n  \"rates\": [\n");
    if (!check) {
        print_rate("inproc", lhi_inproc_run, false, true);
        print_rate("inproc", lhi_inproc_run, true, true);
        print_rate("local", lhi_local_run, false, true);
        print_rate("local", lhi_local_run, true, false);
    }
    printf("  ]\n}\n");
    return check && !good;
}
