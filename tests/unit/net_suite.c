/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "net_suite.h"
#include "net_suite_groups.h"
#include "net_suite_links.h"

#include "base/fail.h"
#include "base/realtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNUSED_REST (void)context, (void)result, (void)size

lh_status net_send_now(lhi_net *net, uint32_t to, uint64_t tag,
                       const void *data, size_t size, lhi_net_op *op,
                       lh_error *err)
{
    *op = (lhi_net_op){0};
    return lhi_net_send(net, to, tag, data, size, LHI_NET_NO_LINK, lhi_now_ns(),
                        LHI_NET_NO_TURN, op, err);
}

/* Fills memory with bytes that depend on position and seed. */
static void fill(unsigned char *bytes, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)((i * 131 + seed * 7919 + i / 251) & 255);
}

static bool filled(const unsigned char *bytes, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] !=
            (unsigned char)((i * 131 + seed * 7919 + i / 251) & 255))
            return false;
    return true;
}

/* Allocates memory that lives until the endpoint is closed, even if the run
 * fails. */
static void *parcel(lhi_net *net, size_t bytes, lh_error *err)
{
    void *out = calloc(1, bytes);
    if (out)
        lhi_net_set_release(net, free, out);
    else
        lhi_fail_nomem(err);
    return out;
}

/* Rank 0 sends `n` bytes to rank 1 with `tag` and receives them back. */
static lh_status round_trip(lhi_net *net, uint64_t tag, size_t n, int late_ms,
                            lh_error *err)
{
    unsigned char *out = malloc(n + 1), *in = malloc(n + 1);
    lhi_net_op send = {0}, receive = {0};
    uint32_t peer = 1 - lhi_net_rank(net);
    lh_status status = out && in ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK && peer == 1) {
        fill(out, n, tag);
        status = net_send_now(net, peer, tag, out, n, &send, err);
        if (status == LH_OK)
            status = lhi_net_receive(net, peer, tag, in, n, &receive, err);
    } else if (status == LH_OK) {
        lhi_sleep_for(late_ms * INT64_C(1000000));
        status = lhi_net_receive(net, peer, tag, in, n, &receive, err);
        if (status == LH_OK)
            status = lhi_net_wait(net, &receive, 0, err);
        if (status == LH_OK)
            status = net_send_now(net, peer, tag, in, n, &send, err);
    }
    if (status == LH_OK)
        status = lhi_net_wait(net, &receive, 0, err);
    if (status == LH_OK && !filled(in, n, tag))
        status = lhi_fail(err, LH_EINVAL, "%zu bytes came as others", n);
    if (status == LH_OK && receive.arrived_ns < receive.entered_ns)
        status = lhi_fail(err, LH_EINVAL, "arrived before it was sent");
    if (status == LH_OK)
        status = lhi_net_wait(net, &send, 0, err);
    if (status != LH_OK) { /* the transport owns the memory until then */
        lhi_net_abort(net, err->text);
        lhi_net_wait(net, &receive, 0, NULL);
        lhi_net_wait(net, &send, 0, NULL);
    }
    free(out);
    free(in);
    return status;
}

static lh_status sizes(lhi_net *net, void *context, char **result, size_t *size,
                       lh_error *err)
{
    UNUSED_REST;
    static const size_t all[] = {0,     1,     7,      4096,   16384,
                                 16385, 70000, 262144, 3000001};
    uint64_t tag = 100;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int late = 0; late < 2; late++)
            LHI_TRY(round_trip(net, tag++, all[i], late ? 5 : 0, err));
    return LH_OK;
}

/* Matches tags when sends and receives use different orders; keeps order within
 * a tag. */
static lh_status tags(lhi_net *net, void *context, char **result, size_t *size,
                      lh_error *err)
{
    UNUSED_REST;
    enum { N = 200 };
    static const size_t sizes_of[] = {8, 20000};
    typedef struct messages {
        lhi_net_op ops[2][N];
        unsigned char bytes[2][N * 20000];
    } messages;
    messages *all = parcel(net, sizeof *all, err);
    EXPECT(all);
    for (int large = 0; large < 2; large++) {
        size_t n = sizes_of[large];
        unsigned char *bytes = all->bytes[large];
        lhi_net_op *ops = all->ops[large];
        bool sends = lhi_net_rank(net) == 0;
        for (uint32_t k = 0; k < N; k++) {
            uint32_t i = sends ? k : (k / 2 * 74 + k % 2) % N;
            /* Two messages share each tag. */
            if (sends) {
                fill(bytes + i * n, n, i);
                LHI_TRY(net_send_now(net, 1, i / 2, bytes + i * n, n, &ops[i],
                                     err));
            } else {
                LHI_TRY(lhi_net_receive(net, 0, i / 2, bytes + i * n, n,
                                        &ops[i], err));
            }
        }
        for (uint32_t k = N; k-- > 0;) {
            LHI_TRY(lhi_net_wait(net, &ops[k], 0, err));
            EXPECT(ops[k].is_done);
            EXPECT(filled(bytes + k * n, n, k));
        }
    }
    return LH_OK;
}

/* Every rank sends to every rank simultaneously. */
static lh_status crowd(lhi_net *net, void *context, char **result, size_t *size,
                       lh_error *err)
{
    UNUSED_REST;
    enum { ROUNDS = 30, N = 3000 };
    uint32_t n = lhi_net_n_ranks(net), me = lhi_net_rank(net);
    size_t ops_bytes = 2 * (size_t)n * sizeof(lhi_net_op);
    lhi_net_op *ops = parcel(net, ops_bytes + 2 * (size_t)n * N * 8, err);
    EXPECT(ops);
    unsigned char *bytes = (unsigned char *)ops + ops_bytes;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        size_t m = round % 3 == 0 ? N * 8 : N;
        for (uint32_t i = 0; i < n; i++) {
            unsigned char *out = bytes + i * N * 8, *in = out + n * N * 8;
            if (i == me)
                continue;
            fill(out, m, me * 1000 + i + round);
            ops[n + i] = (lhi_net_op){0};
            LHI_TRY(net_send_now(net, i, round, out, m, &ops[i], err));
            LHI_TRY(lhi_net_receive(net, i, round, in, m, &ops[n + i], err));
        }
        for (uint32_t i = 0; i < n; i++) {
            if (i == me)
                continue;
            LHI_TRY(lhi_net_wait(net, &ops[n + i], 0, err));
            LHI_TRY(lhi_net_wait(net, &ops[i], 0, err));
            EXPECT(filled(bytes + (n + i) * N * 8, m, i * 1000 + me + round));
        }
    }
    return LH_OK;
}

/* A wait with a timeout returns at the timeout; the operation continues. */
static lh_status limits(lhi_net *net, void *context, char **result,
                        size_t *size, lh_error *err)
{
    UNUSED_REST;
    uint64_t value = 0, sent = 77;
    lhi_net_op op = {0};
    if (lhi_net_rank(net) == 0) {
        LHI_TRY(lhi_net_receive(net, 1, 5, &value, sizeof value, &op, err));
        EXPECT(lhi_net_wait(net, &op, 1, err) == LH_ECANCELED);
        int64_t start_ns = lhi_now_ns();
        EXPECT(lhi_net_wait(net, &op, start_ns + 30000000, err) ==
               LH_ECANCELED);
        EXPECT(lhi_now_ns() >= start_ns + 30000000);
        EXPECT(!op.is_done);
        lhi_net_op go = {0};
        LHI_TRY(net_send_now(net, 1, 6, &sent, sizeof sent, &go, err));
        LHI_TRY(lhi_net_wait(net, &op, 0, err));
        EXPECT(value == 77);
        LHI_TRY(lhi_net_wait(net, &op, 0, err)); /* waiting twice is allowed */
        return lhi_net_wait(net, &go, 0, err);
    }
    LHI_TRY(lhi_net_receive(net, 0, 6, &value, sizeof value, &op, err));
    LHI_TRY(lhi_net_wait(net, &op, 0, err));
    lhi_net_op back = {0};
    LHI_TRY(net_send_now(net, 0, 5, &value, sizeof value, &back, err));
    return lhi_net_wait(net, &back, 0, err);
}

static lh_status misuse(lhi_net *net, void *context, char **result,
                        size_t *size, lh_error *err)
{
    UNUSED_REST;
    lhi_net_op op = {0};
    lh_error e = {0};
    uint32_t me = lhi_net_rank(net), n = lhi_net_n_ranks(net);
    EXPECT(lhi_net_receive(net, n, 0, NULL, 0, &op, &e) == LH_EINVAL);
    EXPECT(strstr(e.text, "no peer"));
    EXPECT(lhi_net_receive(net, me, 0, NULL, 0, &op, &e) == LH_EINVAL);
    EXPECT(net_send_now(net, n + 7, 0, NULL, 0, &op, &e) == LH_EINVAL);
    EXPECT(lhi_net_send(net, 1 - me, 0, NULL, 0, 3, 0, LHI_NET_NO_TURN, &op,
                        &e) == LH_EINVAL);
    EXPECT(strstr(e.text, "emulated link 3 does not exist"));
    lhi_net_op none = {0};
    EXPECT(lhi_net_wait(net, &none, 0, &e) == LH_EINVAL);
    EXPECT(!lhi_net_failure(net));
    return LH_OK;
}

static lh_status all_collectives(lhi_net *net, void *context, char **result,
                                 size_t *size, lh_error *err)
{
    UNUSED_REST;
    /* Members in a custom order; rank 1 is in no group. */
    static const uint32_t members[] = {3, 0, 2, LHI_LINK_UNSHARED};
    uint32_t me = lhi_net_rank(net);
    if (me == 1)
        return LH_OK;
    lhi_net_group g = {
        3, me == 3 ? 0 : me == 0 ? 1 : 2, members, LHI_NET_NO_LINK, NULL, NULL};
    static const size_t counts[] = {1, 2, 3, 100, 30001};
    float *values = parcel(net, 2 * 30001 * sizeof *values, err);
    EXPECT(values);
    for (uint32_t c = 0; c < 5; c++) {
        size_t n = counts[c], first = n * g.mine / 3;
        size_t end = n * (g.mine + 1) / 3;
        /* The sums depend on the order of addition. */
        for (size_t i = 0; i < n; i++)
            values[i] = me == 3 ? 1e8f : me == 0 ? -1e8f : 0.25f + (float)i;
        float *out = c % 2 ? values + first : values + 30001;
        LHI_TRY(lhi_net_barrier(net, &g, 1000 + 64 * c, NULL, err));
        LHI_TRY(lhi_net_reduce_scatter(net, &g, 1016 + 64 * c, values, n, out,
                                       err));
        for (size_t i = first; i < end; i++)
            EXPECT(out[i - first] == 1e8f + -1e8f + (0.25f + (float)i));
        if (out != values + first)
            memcpy(values + first, out, (end - first) * 4);
        LHI_TRY(lhi_net_all_gather(net, &g, 1032 + 64 * c, values, n,
                                   sizeof *values, err));
        for (size_t i = 0; i < n; i++)
            EXPECT(values[i] == 0.25f + (float)i);
    }
    return LH_OK;
}

static lh_status wrong_group(lhi_net *net, void *context, char **result,
                             size_t *size, lh_error *err)
{
    UNUSED_REST;
    const uint32_t members[] = {0, 1};
    lhi_net_group g = {
        2, 1 - lhi_net_rank(net), members, LHI_NET_NO_LINK, NULL, NULL};
    lh_error e = {0};
    EXPECT(lhi_net_barrier(net, &g, 0, NULL, &e) == LH_EINVAL);
    EXPECT(strstr(e.text, "is not member"));
    return LH_OK;
}

/* ---- several receives at once ---- */

/* Waits on the bell until an operation that was not `seen` completes; returns
 * its index. */
static lh_status next_done(lhi_net *net, lhi_net_op *ops, bool *seen,
                           uint32_t n, uint32_t *out, lh_error *err)
{
    for (;;) {
        uint32_t said = lhi_net_event_count(net);
        int64_t look_ns = INT64_MAX;
        for (uint32_t i = 0; i < n; i++) {
            int64_t again_ns = 0;
            if (seen[i])
                continue;
            lh_status status = lhi_net_test(net, &ops[i], &again_ns, err);
            if (status == LH_OK) {
                *out = i;
                seen[i] = true;
            }
            if (status != LH_ECANCELED)
                return status;
            look_ns = again_ns < look_ns ? again_ns : look_ns;
        }
        lhi_net_wait_event(net, said, look_ns);
    }
}

enum { BELL_LARGE = 100000, BELL_RECEIVES = 5 };

/* Rank 0 sends a small and a large message at once. When rank 2 has both, rank
 * 1 sends one over a link and two with explicit turns, the later turn first. */
static lh_status bell_senders(lhi_net *net, unsigned char *bytes, lh_error *err)
{
    lhi_net_op ops[3] = {{0}};
    if (lhi_net_rank(net) == 0) {
        fill(bytes, BELL_LARGE, 1);
        LHI_TRY(net_send_now(net, 2, 0, bytes, 10, &ops[0], err));
        LHI_TRY(net_send_now(net, 2, 1, bytes, BELL_LARGE, &ops[1], err));
        LHI_TRY(lhi_net_wait(net, &ops[0], 0, err));
        return lhi_net_wait(net, &ops[1], 0, err);
    }
    LHI_TRY(lhi_net_receive(net, 2, 9, NULL, 0, &ops[0], err));
    LHI_TRY(lhi_net_wait(net, &ops[0], 0, err));
    LHI_TRY(lhi_net_send(net, 2, 2, NULL, 0, 0, lhi_now_ns(), LHI_NET_NO_TURN,
                         &ops[0], err));
    LHI_TRY(lhi_net_send(net, 2, 3, NULL, 0, 1, lhi_now_ns(), 1, &ops[1], err));
    lhi_sleep_for(INT64_C(10000000));
    LHI_TRY(lhi_net_send(net, 2, 4, NULL, 0, 1, lhi_now_ns(), 0, &ops[2], err));
    for (int i = 0; i < 3; i++)
        LHI_TRY(lhi_net_wait(net, &ops[i], 0, err));
    return LH_OK;
}

/* One thread waits for several receives in completion order. */
static lh_status bell(lhi_net *net, void *context, char **result, size_t *size,
                      lh_error *err)
{
    UNUSED_REST;
    static const size_t sizes_of[BELL_RECEIVES] = {10, BELL_LARGE, 0, 0, 0};
    unsigned char *bytes = parcel(net, 2 * BELL_LARGE, err);
    lhi_net_op ops[BELL_RECEIVES] = {{0}}, go = {0};
    bool seen[BELL_RECEIVES] = {false};
    if (!bytes)
        return LH_ENOMEM;
    if (lhi_net_rank(net) < 2)
        return bell_senders(net, bytes, err);
    for (uint32_t i = BELL_RECEIVES; i-- > 0;) {
        ops[i].signals_event = true;
        LHI_TRY(lhi_net_receive(net, i < 2 ? 0 : 1, i,
                                bytes + (i == 1 ? BELL_LARGE : 0), sizes_of[i],
                                &ops[i], err));
    }
    for (uint32_t k = 0; k < BELL_RECEIVES; k++) {
        uint32_t found = BELL_RECEIVES;
        LHI_TRY(next_done(net, ops, seen, BELL_RECEIVES, &found, err));
        EXPECT(k < 2 ? found < 2 : found >= 2);
        EXPECT(lhi_now_ns() >= ops[found].arrived_ns);
        if (k == 1)
            LHI_TRY(net_send_now(net, 1, 9, NULL, 0, &go, err));
    }
    EXPECT(filled(bytes, 10, 1) && filled(bytes + BELL_LARGE, BELL_LARGE, 1));
    EXPECT_NEAR(ops[2].arrived_ns - ops[2].entered_ns, 33000000, 0);
    EXPECT_NEAR(ops[4].arrived_ns - ops[4].entered_ns, 8000000, 0);
    EXPECT_NEAR(ops[3].arrived_ns - ops[4].entered_ns, 11000000, 0);
    return lhi_net_wait(net, &go, 0, err);
}

static lh_status wrong_size(lhi_net *net, void *context, char **result,
                            size_t *size, lh_error *err)
{
    UNUSED_REST;
    unsigned char bytes[100] = {0};
    lhi_net_op op = {0};
    if (lhi_net_rank(net) == 0) {
        LHI_TRY(net_send_now(net, 1, 4, bytes, 100, &op, err));
        LHI_TRY(lhi_net_wait(net, &op, 0, err));
    } else {
        LHI_TRY(lhi_net_receive(net, 0, 4, bytes, 99, &op, err));
        return lhi_net_wait(net, &op, 0, err);
    }
    /* This receive never matches; the failure ends the wait. */
    lhi_net_op never = {0};
    LHI_TRY(lhi_net_receive(net, 1, 8, bytes, 1, &never, err));
    return lhi_net_wait(net, &never, 0, err);
}

/* A large message for a small receive, in either order. */
static lh_status wrong_large_size(lhi_net *net, void *context, char **result,
                                  size_t *size, lh_error *err)
{
    UNUSED_REST;
    static _Thread_local unsigned char bytes[100000];
    lhi_net_op op = {0};
    if (lhi_net_rank(net) == 0) {
        LHI_TRY(net_send_now(net, 1, 4, bytes, sizeof bytes, &op, err));
        return lhi_net_wait(net, &op, 0, err);
    }
    LHI_TRY(lhi_net_receive(net, 0, 4, bytes, 99, &op, err));
    return lhi_net_wait(net, &op, 0, err);
}

static lh_status one_aborts(lhi_net *net, void *context, char **result,
                            size_t *size, lh_error *err)
{
    UNUSED_REST;
    static _Thread_local unsigned char bytes[400000];
    uint32_t me = lhi_net_rank(net);
    if (me == 2) {
        lhi_sleep_for(50 * INT64_C(1000000));
        return lhi_fail(err, LH_EINPUT, "the roof fell in");
    }
    /* The other ranks are waiting, one for each kind of operation. */
    lhi_net_op op = {0};
    if (me == 0)
        LHI_TRY(net_send_now(net, 1, 3, bytes, sizeof bytes, &op, err));
    else
        LHI_TRY(lhi_net_receive(net, 2, 3, bytes, sizeof bytes, &op, err));
    lh_status status = lhi_net_wait(net, &op, 0, err);
    EXPECT(status == LH_EIO);
    EXPECT(strcmp(err->text, "rank 2: the roof fell in") == 0);
    EXPECT(lhi_net_failure(net));
    lh_error e = {0};
    lhi_net_op more = {0};
    EXPECT(net_send_now(net, 3 - me, 3, bytes, 1, &more, &e) == LH_EIO);
    return status;
}

/* Waits on operations that were withdrawn when the run failed: each wait
 * returns the same error at once. */
static lh_status asks_again(lhi_net *net, void *context, char **result,
                            size_t *size, lh_error *err)
{
    UNUSED_REST;
    static _Thread_local unsigned char bytes[400000];
    uint32_t me = lhi_net_rank(net);
    if (me == 2) {
        lhi_sleep_for(50 * INT64_C(1000000));
        return lhi_fail(err, LH_EINPUT, "the roof fell in");
    }
    /* Each rank waits for the other, so neither leaves before both have waited.
     */
    lhi_net_op sent = {0}, received = {0};
    LHI_TRY(lhi_net_receive(net, 1 - me, 4, bytes, 1, &received, err));
    LHI_TRY(net_send_now(net, 1 - me, 5, bytes, sizeof bytes, &sent, err));
    lh_status status = lhi_net_wait(net, &received, 0, err);
    lhi_net_op *all[] = {&sent, &received, &sent};
    for (uint32_t i = 0; i < 3; i++) {
        lh_error e = {0};
        EXPECT(lhi_net_wait(net, all[i], 0, &e) == LH_EIO);
        EXPECT(strcmp(e.text, "rank 2: the roof fell in") == 0);
    }
    return status;
}

/* Waiting for a rank that has closed its endpoint returns an error. */
static lh_status one_leaves(lhi_net *net, void *context, char **result,
                            size_t *size, lh_error *err)
{
    UNUSED_REST;
    static _Thread_local unsigned char bytes[100000];
    lhi_net_op op = {0};
    if (lhi_net_rank(net) == 1) {
        /* Messages that it sent earlier still arrive. */
        LHI_TRY(net_send_now(net, 0, 1, bytes, 5, &op, err));
        return lhi_net_wait(net, &op, 0, err);
    }
    if (lhi_net_rank(net) == 2)
        lhi_sleep_for(50 * INT64_C(1000000));
    if (lhi_net_rank(net) == 0) {
        LHI_TRY(lhi_net_receive(net, 1, 1, bytes, 5, &op, err));
        LHI_TRY(lhi_net_wait(net, &op, 0, err));
    }
    lh_error e = {0};
    lh_status status = lhi_net_receive(net, 1, 2, bytes, sizeof bytes, &op, &e);
    if (status == LH_OK)
        status = lhi_net_wait(net, &op, 0, &e);
    EXPECT(status == LH_EIO);
    EXPECT(strstr(e.text, "rank 1 has closed its endpoint"));
    EXPECT(!lhi_net_failure(net));
    return LH_OK;
}

/* No message is lost if all ranks leave at once. Message memory lives until the
 * endpoint is closed. */
static lh_status leave_early(lhi_net *net, void *context, char **result,
                             size_t *size, lh_error *err)
{
    UNUSED_REST;
    typedef struct message {
        lhi_net_op op;
        unsigned char bytes[300000];
    } message;
    message *p = parcel(net, sizeof *p, err);
    EXPECT(p);
    if (lhi_net_rank(net) == 0)
        return net_send_now(net, 1, 1, p->bytes, sizeof p->bytes, &p->op, err);
    lhi_sleep_for(60 * INT64_C(1000000));
    LHI_TRY(lhi_net_receive(net, 0, 1, p->bytes, sizeof p->bytes, &p->op, err));
    return lhi_net_wait(net, &p->op, 0, err);
}

/* No rank leaves a barrier before the last one has entered. */
static lh_status barrier_waits(lhi_net *net, void *context, char **result,
                               size_t *size, lh_error *err)
{
    UNUSED_REST;
    enum { LAST = 2 };
    uint32_t me = lhi_net_rank(net), n = lhi_net_n_ranks(net);
    const lhi_net_group all = {n, me, NULL, LHI_NET_NO_LINK, NULL, NULL};
    if (me == LAST)
        lhi_sleep_for(50 * INT64_C(1000000));
    int64_t came_ns = lhi_now_ns();
    LHI_TRY(lhi_net_barrier(net, &all, 7, NULL, err));
    int64_t passed_ns = lhi_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        lhi_net_op op = {0};
        if (i == LAST)
            continue;
        if (me == LAST)
            LHI_TRY(
                net_send_now(net, i, 1, &came_ns, sizeof came_ns, &op, err));
        else if (me == i)
            LHI_TRY(lhi_net_receive(net, LAST, 1, &came_ns, sizeof came_ns, &op,
                                    err));
        else
            continue;
        LHI_TRY(lhi_net_wait(net, &op, 0, err));
    }
    EXPECT(passed_ns >= came_ns);
    return LH_OK;
}

static bool after_the_time(void *of)
{
    return lhi_now_ns() > *(int64_t *)of;
}

/* A stop ends a wait, and the run on all other ranks. */
static lh_status one_stops(lhi_net *net, void *context, char **result,
                           size_t *size, lh_error *err)
{
    UNUSED_REST;
    unsigned char bytes[8];
    lhi_net_op op = {0};
    int64_t limit_ns = lhi_now_ns() + 50 * INT64_C(1000000);
    const lhi_net_stop stop = {after_the_time, &limit_ns};
    if (lhi_net_rank(net) == 2) {
        const lhi_net_group all = {3, 2, NULL, LHI_NET_NO_LINK, NULL, NULL};
        return lhi_net_barrier(net, &all, 40, NULL, err);
    }
    LHI_TRY(lhi_net_receive(net, 2, 3, bytes, sizeof bytes, &op, err));
    if (lhi_net_rank(net) == 1)
        return lhi_net_wait(net, &op, 0, err);
    lh_status status = lhi_net_wait_or_stop(net, &op, &stop, err);
    EXPECT(status == LH_ECANCELED);
    EXPECT(lhi_net_failure(net));
    return status;
}

static lh_status too_many_kept(lhi_net *net, void *context, char **result,
                               size_t *size, lh_error *err)
{
    UNUSED_REST;
    static _Thread_local unsigned char bytes[LHI_NET_EAGER_BYTES];
    lhi_net_op op = {0};
    if (lhi_net_rank(net) == 1) {
        LHI_TRY(lhi_net_receive(net, 0, 1, bytes, 1, &op, err));
        return lhi_net_wait(net, &op, 0, err);
    }
    for (int i = 0; i < 5000; i++) {
        LHI_TRY(net_send_now(net, 1, 2, bytes, sizeof bytes, &op, err));
        LHI_TRY(lhi_net_wait(net, &op, 0, err));
    }
    return LH_OK;
}

static lh_status hands_back(lhi_net *net, void *context, char **result,
                            size_t *size, lh_error *err)
{
    const char *word = context;
    size_t room = 300000;
    *result = malloc(room);
    EXPECT(*result);
    memset(*result, '.', room);
    *size = lhi_net_rank(net) == 1 ? room : 20;
    snprintf(*result, room, "%s %u", word, lhi_net_rank(net));
    return LH_OK;
}

/* Partial results are returned even if the run fails. */
static lh_status hands_back_half(lhi_net *net, void *context, char **result,
                                 size_t *size, lh_error *err)
{
    LHI_TRY(hands_back(net, context, result, size, err));
    return lhi_net_rank(net) == 1 ? lhi_fail(err, LH_EINPUT, "half is done")
                                  : LH_OK;
}

const net_case net_cases[] = {
    {"sizes", 2, sizes, 0, {{0}}, NULL},
    {"tags", 2, tags, 0, {{0}}, NULL},
    {"crowd", 5, crowd, 0, {{0}}, NULL},
    {"limits", 2, limits, 0, {{0}}, NULL},
    {"misuse", 2, misuse, 0, {{0}}, NULL},
    {"collectives", 4, all_collectives, 0, {{0}}, NULL},
    {"wrong group", 2, wrong_group, 0, {{0}}, NULL},
    {"fifo",
     3,
     net_links_fifo,
     1,
     {{2000000000, 3000000, 1000, LHI_LINK_UNSHARED}},
     NULL},
    {"shared link",
     3,
     net_links_shared_link,
     2,
     {{0}, {2000000000, 3000000, 0, LHI_LINK_UNSHARED}},
     NULL},
    {"held link",
     2,
     net_links_held_link,
     1,
     {{5000000, 1000000, 0, LHI_LINK_UNSHARED}},
     NULL},
    {"changing link",
     2,
     net_links_changing_link,
     1,
     {{400000000, 3000000, 0, LHI_LINK_UNSHARED}},
     NULL},
    {"turns",
     2,
     net_links_turns,
     1,
     {{5000000, 3000000, 0, LHI_LINK_UNSHARED}},
     NULL},
    {"bell",
     3,
     bell,
     2,
     {{30000000, 3000000, 0, LHI_LINK_UNSHARED},
      {5000000, 3000000, 0, LHI_LINK_UNSHARED}},
     NULL},
    {"wrong size", 2, wrong_size, 0, {{0}}, "has 100 bytes, its receive 99"},
    {"wrong large size",
     2,
     wrong_large_size,
     0,
     {{0}},
     "has 100000 bytes, its receive 99"},
    {"one aborts", 4, one_aborts, 0, {{0}}, "rank 2: the roof fell in"},
    {"asks again", 3, asks_again, 0, {{0}}, "rank 2: the roof fell in"},
    {"one leaves", 3, one_leaves, 0, {{0}}, NULL},
    {"leave early", 2, leave_early, 0, {{0}}, NULL},
    {"too many kept", 2, too_many_kept, 0, {{0}}, "64 MiB of messages"},
    {"hands back", 3, hands_back, 0, {{0}}, NULL},
    {"hands back half", 2, hands_back_half, 0, {{0}}, "rank 1: half is done"},
    {"barrier waits", 4, barrier_waits, 0, {{0}}, NULL},
    {"one stops", 3, one_stops, 0, {{0}}, "rank 0: interrupted"},
    {"groups sum", 4, net_groups_sum, 0, {{0}}, NULL},
    {"groups of all pairs", 4, net_groups_all_pairs, 0, {{0}}, NULL},
    {"groups in a ring", 3, net_groups_ring, 0, {{0}}, NULL},
    {"groups apart", 4, net_groups_apart, 0, {{0}}, NULL},
    {"groups' links", 2, net_groups_link, 0, {{0}}, NULL},
    {"groups refused", 2, net_groups_refuse, 0, {{0}}, NULL},
    {"groups fail", 3, net_groups_fail, 0, {{0}}, "rank 2: the roof fell in"},
    {"groups disagree", 2, net_groups_disagree, 0, {{0}}, "has 83 bytes"},
};
const unsigned n_net_cases = sizeof net_cases / sizeof net_cases[0];
