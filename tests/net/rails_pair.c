/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks that communicate over rails, each on its own host:
 *
 *     rails_pair RANK HOST PORT RAILS pings FILE     until FILE exists
 *     rails_pair RANK HOST PORT RAILS stream BYTES   from rank 0 to rank 1
 *
 * RAILS: as for `train`; "-": none. `pings` sends messages with various sizes
 * in both directions, checks every byte, and prints the longest round: after a
 * failure, the time until the next message is complete. It prints its progress
 * ten times a second. */
#define _GNU_SOURCE
#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/transport.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 20, PIECE_BYTES = 4 << 20, DEPTH = 8 };

static unsigned char byte_of(uint64_t round, size_t at, uint32_t from)
{
    return (unsigned char)(round * 131 + at * 7 + from);
}

/* Returns the message size for a round: 0 bytes to 1 MiB. */
static size_t size_of(uint64_t round)
{
    static const size_t sizes[] = {8,      1000,  0,         20000,
                                   300000, 16384, MOST_BYTES};
    return sizes[round % (sizeof sizes / sizeof *sizes)];
}

static lh_status send_all(lhi_net *net, uint64_t tag, const void *data,
                          size_t size, lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_send(net, 1 - lhi_net_rank(net), tag, data, size,
                         LHI_NET_NO_LINK, lhi_now_ns(), LHI_NET_NO_TURN, &op,
                         err));
    return lhi_net_wait(net, &op, 0, err);
}

static lh_status receive_all(lhi_net *net, uint64_t tag, void *data,
                             size_t size, lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(
        lhi_net_receive(net, 1 - lhi_net_rank(net), tag, data, size, &op, err));
    return lhi_net_wait(net, &op, 0, err);
}

/* Exchanges one message in each direction, first from rank 0, then from rank 1,
 * and checks the bytes. */
static lh_status ping(lhi_net *net, uint64_t round, unsigned char *bytes,
                      lh_error *err)
{
    uint32_t me = lhi_net_rank(net);
    size_t size = size_of(round);
    for (int turn = 0; turn < 2; turn++) {
        uint32_t from = (uint32_t)turn;
        for (size_t i = 0; i < size && from == me; i++)
            bytes[i] = byte_of(round, i, from);
        LHI_TRY(from == me ? send_all(net, round, bytes, size, err)
                           : receive_all(net, round, bytes, size, err));
        for (size_t i = 0; i < size; i++)
            if (bytes[i] != byte_of(round, i, from))
                return lhi_fail(err, LH_EINVAL,
                                "round %" PRIu64 ": byte %zu is another", round,
                                i);
    }
    return LH_OK;
}

/* Prints the rail events since the last call. */
static void tell_news(lhi_net *net)
{
    char text[400];
    while (lhi_net_read_notice(net, text, sizeof text))
        printf("%s\n", text);
    fflush(stdout);
}

static lh_status pings(lhi_net *net, const char *file, lh_error *err)
{
    int64_t longest_ns = 0, said_ns = lhi_now_ns();
    unsigned char *bytes = malloc(MOST_BYTES), last = 0;
    uint64_t round = 0;
    lh_status status = bytes ? LH_OK : lhi_fail_nomem(err);
    int64_t begin_ns = said_ns;
    while (status == LH_OK && !last) {
        status = ping(net, round++, bytes, err);
        int64_t end_ns = lhi_now_ns();
        if (end_ns - begin_ns > longest_ns)
            longest_ns = end_ns - begin_ns;
        begin_ns = end_ns;
        if (end_ns - said_ns > 100000000) {
            said_ns = end_ns;
            printf("%" PRIu64 "\n", round);
            tell_news(net);
        }
        last = access(file, F_OK) == 0;
        if (status == LH_OK) /* rank 0 decides whether to stop */
            status = lhi_net_rank(net) == 0
                         ? send_all(net, UINT64_MAX, &last, 1, err)
                         : receive_all(net, UINT64_MAX, &last, 1, err);
    }
    free(bytes);
    tell_news(net);
    if (status == LH_OK)
        printf("%" PRIu64 " rounds, the longest %.0f ms\n", round,
               (double)longest_ns * 1e-6);
    return status;
}

/* Sends `size` bytes with several messages in flight and prints the rate. */
static lh_status stream(lhi_net *net, uint64_t size, lh_error *err)
{
    uint64_t n = (size + PIECE_BYTES - 1) / PIECE_BYTES;
    unsigned char *bytes = calloc(DEPTH, PIECE_BYTES);
    lhi_net_op ops[DEPTH] = {{0}};
    lh_status status = bytes ? LH_OK : lhi_fail_nomem(err);
    int64_t begin_ns = lhi_now_ns();
    for (uint64_t i = 0; i < n + DEPTH && status == LH_OK; i++) {
        lhi_net_op *op = &ops[i % DEPTH];
        unsigned char *at = bytes + i % DEPTH * PIECE_BYTES;
        if (i >= DEPTH)
            status = lhi_net_wait(net, op, 0, err);
        *op = (lhi_net_op){0};
        if (i >= n || status != LH_OK)
            continue;
        status = lhi_net_rank(net) == 0
                     ? lhi_net_send(net, 1, 1, at, PIECE_BYTES, LHI_NET_NO_LINK,
                                    lhi_now_ns(), LHI_NET_NO_TURN, op, err)
                     : lhi_net_receive(net, 0, 1, at, PIECE_BYTES, op, err);
    }
    free(bytes);
    if (status == LH_OK)
        status = lhi_net_rank(net) == 0 ? receive_all(net, 2, NULL, 0, err)
                                        : send_all(net, 2, NULL, 0, err);
    double seconds = (double)(lhi_now_ns() - begin_ns) * 1e-9;
    if (status == LH_OK && lhi_net_rank(net) == 0)
        printf("%.1f Mbit/s\n", (double)n * PIECE_BYTES * 8e-6 / seconds);
    return status;
}

int main(int argc, char **argv)
{
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    const char *rails[8];
    lhi_net *net = NULL;
    lh_error err = {0};
    if (argc == 2 && strcmp(argv[1], "--probe") == 0) {
#ifdef LHI_HAVE_OPENSSL
        return 0;
#else
        printf("SKIPPED: built without OpenSSL\n");
        return 77;
#endif
    }
    if (argc != 7)
        return 2;
    lhi_tcp_options o = {.rank = (uint32_t)atoi(argv[1]),
                         .n_ranks = 2,
                         .host = argv[2],
                         .port = (uint16_t)atoi(argv[3]),
                         .job = "pair",
                         .secret = secret,
                         .secret_size = sizeof secret,
                         .join_ns = 20000000000,
                         .rails = rails};
    for (char *at = strtok(argv[4], ",-"); at && o.n_rails < 8;
         at = strtok(NULL, ",-"))
        rails[o.n_rails++] = at;
    lh_status status = lhi_net_tcp(&o, &net, &err);
    if (status == LH_OK) {
        printf("joined\n");
        fflush(stdout);
        status = strcmp(argv[5], "pings") == 0
                     ? pings(net, argv[6], &err)
                     : stream(net, strtoull(argv[6], NULL, 10), &err);
        if (status != LH_OK && lhi_net_failure(net))
            lhi_fail(&err, status, "%s", lhi_net_failure(net));
        lhi_net_close(net);
    }
    if (status != LH_OK)
        printf("%s\n", err.text);
    return status == LH_OK ? 0 : 1;
}
