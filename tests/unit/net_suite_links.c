/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "net_suite_links.h"
#include "net_suite.h"

#include "base/fail.h"
#include "base/realtime.h"

#include <stdlib.h>
#include <string.h>

#define UNUSED_REST (void)context, (void)result, (void)size

/* Latency and occupancy in FIFO order by time of entry. */
lh_status net_links_fifo(lhi_net *net, void *context, char **result,
                         size_t *size, lh_error *err)
{
    UNUSED_REST;
    const int64_t ms = 1000000;
    unsigned char bytes[3][1000];
    lhi_net_op ops[3] = {{0}};
    uint32_t me = lhi_net_rank(net);
    int64_t base_ns = lhi_now_ns();
    if (me == 0) {
        /* The latest entry is submitted first. */
        for (int i = 2; i >= 0; i--)
            LHI_TRY(lhi_net_send(net, 2, (uint64_t)i, bytes[i], 1000, 0,
                                 base_ns - 10 * ms + i * ms, LHI_NET_NO_TURN,
                                 &ops[i], err));
    } else if (me == 2) {
        for (int i = 0; i < 3; i++)
            LHI_TRY(lhi_net_receive(net, 0, (uint64_t)i, bytes[i], 1000,
                                    &ops[i], err));
    } else {
        return LH_OK;
    }
    for (int i = 0; i < 3; i++)
        LHI_TRY(lhi_net_wait(net, &ops[i], 0, err));
    if (me == 0)
        return LH_OK;
    /* 4 ms each: 3 ms, and 1 us per byte. The latency is the delay that the
     * first message, submitted last, may have. */
    int64_t first_ns = ops[0].entered_ns;
    EXPECT(ops[1].entered_ns == first_ns + ms);
    for (int i = 0; i < 3; i++)
        EXPECT_NEAR(ops[i].arrived_ns - first_ns, (4 * (i + 1) + 2000) * ms, 0);
    EXPECT(lhi_now_ns() >= ops[2].arrived_ns);
    return LH_OK;
}

/* Two senders share a link; at equal entry times the lower rank is first. */
lh_status net_links_shared_link(lhi_net *net, void *context, char **result,
                                size_t *size, lh_error *err)
{
    UNUSED_REST;
    const int64_t ms = 1000000;
    uint32_t me = lhi_net_rank(net);
    lhi_net_op a = {0}, b = {0};
    int64_t start_ns = 0;
    if (me == 2) {
        LHI_TRY(lhi_net_receive(net, 0, 1, NULL, 0, &a, err));
        LHI_TRY(lhi_net_receive(net, 1, 1, NULL, 0, &b, err));
        LHI_TRY(lhi_net_wait(net, &b, 0, err));
        LHI_TRY(lhi_net_wait(net, &a, 0, err));
        EXPECT(a.entered_ns == b.entered_ns);
        EXPECT_NEAR(a.arrived_ns - a.entered_ns, 2003 * ms, 0);
        EXPECT_NEAR(b.arrived_ns - a.entered_ns, 2006 * ms, 0);
        return LH_OK;
    }
    /* Rank 1 picks the time; rank 0 is late. */
    if (me == 1) {
        start_ns = lhi_now_ns();
        LHI_TRY(net_send_now(net, 0, 9, &start_ns, sizeof start_ns, &b, err));
    } else {
        LHI_TRY(
            lhi_net_receive(net, 1, 9, &start_ns, sizeof start_ns, &b, err));
    }
    LHI_TRY(lhi_net_wait(net, &b, 0, err));
    LHI_TRY(lhi_net_send(net, 2, 1, NULL, 0, 1, start_ns, LHI_NET_NO_TURN, &a,
                         err));
    return lhi_net_wait(net, &a, 0, err);
}

/* A link's parameters change while messages are on it. Each message keeps the
 * parameters from its entry; the second, without delay itself, waits behind the
 * first. */
lh_status net_links_changing_link(lhi_net *net, void *context, char **result,
                                  size_t *size, lh_error *err)
{
    UNUSED_REST;
    const int64_t ms = 1000000;
    const lhi_net_link rules[] = {{0, ms, 0, LHI_LINK_UNSHARED},
                                  {500 * ms, ms, 0, LHI_LINK_UNSHARED},
                                  {0, 0, 0, LHI_LINK_UNSHARED}};
    lhi_net_op ops[3] = {{0}};
    if (lhi_net_rank(net) == 0) {
        int64_t now_ns = lhi_now_ns();
        for (uint32_t i = 0; i < 3; i++) {
            LHI_TRY(lhi_net_send(net, 1, i, NULL, 0, 0, now_ns + i * ms,
                                 LHI_NET_NO_TURN, &ops[i], err));
            LHI_TRY(lhi_net_set_link(net, 0, &rules[i], err));
        }
        lh_error e = {0};
        const lhi_net_link bad = {-1, 0, 0, LHI_LINK_UNSHARED};
        EXPECT(lhi_net_set_link(net, 0, &bad, &e) == LH_EINVAL);
        EXPECT(lhi_net_set_link(net, 1, &rules[0], &e) == LH_EINVAL);
        EXPECT(strstr(e.text, "emulated link 1 does not exist"));
        for (uint32_t i = 0; i < 3; i++)
            LHI_TRY(lhi_net_wait(net, &ops[i], 0, err));
        return LH_OK;
    }
    for (uint32_t i = 0; i < 3; i++)
        LHI_TRY(lhi_net_receive(net, 0, i, NULL, 0, &ops[i], err));
    for (uint32_t i = 0; i < 3; i++)
        LHI_TRY(lhi_net_wait(net, &ops[i], 0, err));
    int64_t first_ns = ops[0].entered_ns;
    EXPECT_NEAR(ops[0].arrived_ns - first_ns, 403 * ms, 0);
    EXPECT_NEAR(ops[1].arrived_ns - first_ns, 403 * ms, 0);
    EXPECT_NEAR(ops[2].arrived_ns - first_ns, 505 * ms, 0);
    return LH_OK;
}

/* Messages that enter a held link leave one after the other once it is free;
 * each carries the expected time. */
lh_status net_links_held_link(lhi_net *net, void *context, char **result,
                              size_t *size, lh_error *err)
{
    UNUSED_REST;
    const int64_t ms = 1000000;
    lhi_net_op ops[2] = {{0}};
    int64_t until_ns[2];
    if (lhi_net_rank(net) == 0) {
        int64_t now_ns = lhi_now_ns();
        until_ns[0] = until_ns[1] = now_ns + 300 * ms;
        LHI_TRY(lhi_net_suspend_link(net, 0, until_ns[0], err));
        LHI_TRY(
            /* does not shorten the hold */
            lhi_net_suspend_link(net, 0, now_ns + ms, err));
        for (uint32_t i = 0; i < 2; i++)
            LHI_TRY(lhi_net_send(net, 1, i, &until_ns[i], sizeof until_ns[i], 0,
                                 now_ns, LHI_NET_NO_TURN, &ops[i], err));
        lh_error e = {0};
        EXPECT(lhi_net_suspend_link(net, 1, now_ns, &e) == LH_EINVAL);
        EXPECT(strstr(e.text, "emulated link 1 does not exist"));
    } else {
        for (uint32_t i = 0; i < 2; i++)
            LHI_TRY(lhi_net_receive(net, 0, i, &until_ns[i], sizeof until_ns[i],
                                    &ops[i], err));
    }
    for (uint32_t i = 0; i < 2; i++)
        LHI_TRY(lhi_net_wait(net, &ops[i], 0, err));
    for (uint32_t i = 0; i < 2 && lhi_net_rank(net) == 1; i++) {
        EXPECT_NEAR(ops[i].began_ns, until_ns[i] + i * ms, 0);
        EXPECT_NEAR(ops[i].arrived_ns, until_ns[i] + (i + 6) * ms, 0);
    }
    return LH_OK;
}

/* Explicit order: the first message submitted leaves last. */
/* On an idle link, messages may leave in FIFO order, and then in turns again;
 * the turn numbers continue. */
static lh_status other_orders(lhi_net *net, lh_error *err)
{
    const uint64_t given[] = {LHI_NET_NO_TURN, LHI_NET_NO_TURN, 5};
    for (uint32_t i = 0; i < 3; i++) {
        lhi_net_op there = {0}, back = {0};
        if (lhi_net_rank(net) == 0) {
            LHI_TRY(lhi_net_receive(net, 1, 20 + i, NULL, 0, &back, err));
            LHI_TRY(lhi_net_send(net, 1, 10 + i, NULL, 0, 0, lhi_now_ns(),
                                 given[i], &there, err));
        } else {
            LHI_TRY(lhi_net_receive(net, 0, 10 + i, NULL, 0, &there, err));
            LHI_TRY(lhi_net_wait(net, &there, 0, err));
            LHI_TRY(net_send_now(net, 0, 20 + i, NULL, 0, &back, err));
        }
        LHI_TRY(lhi_net_wait(net, &there, 0, err));
        LHI_TRY(lhi_net_wait(net, &back, 0, err));
    }
    return LH_OK;
}

lh_status net_links_turns(lhi_net *net, void *context, char **result,
                          size_t *size, lh_error *err)
{
    UNUSED_REST;
    const int64_t ms = 1000000;
    lhi_net_op ops[3] = {{0}}, answer = {0};
    uint32_t me = lhi_net_rank(net);
    if (me == 0) {
        lh_error e = {0};
        lhi_net_op bad = {0};
        LHI_TRY(lhi_net_receive(net, 1, 8, NULL, 0, &answer, err));
        for (uint32_t i = 0; i < 3; i++) {
            if (i == 2) /* while earlier ones wait for their turn */
                EXPECT(lhi_net_send(net, 1, 9, NULL, 0, 0, lhi_now_ns(),
                                    LHI_NET_NO_TURN, &bad, &e) == LH_EINVAL);
            LHI_TRY(lhi_net_send(net, 1, i, NULL, 0, 0, lhi_now_ns(), 2 - i,
                                 &ops[i], err));
            lhi_sleep_for((i < 2 ? 20 : 0) * INT64_C(1000000));
        }
        EXPECT(strstr(e.text, "have none"));
        EXPECT(lhi_net_send(net, 1, 9, NULL, 0, 0, lhi_now_ns(), 1, &bad, &e) ==
               LH_EINVAL);
        EXPECT(strstr(e.text, "used twice"));
        for (uint32_t i = 0; i < 3; i++)
            LHI_TRY(lhi_net_wait(net, &ops[i], 0, err));
        LHI_TRY(lhi_net_wait(net, &answer, 0, err));
        return other_orders(net, err);
    }
    for (uint32_t i = 0; i < 3; i++)
        LHI_TRY(lhi_net_receive(net, 0, i, NULL, 0, &ops[i], err));
    for (uint32_t i = 0; i < 3; i++)
        LHI_TRY(lhi_net_wait(net, &ops[i], 0, err));
    EXPECT_NEAR(ops[2].arrived_ns - ops[2].entered_ns, 8 * ms, 0);
    EXPECT_NEAR(ops[1].arrived_ns - ops[2].entered_ns, 11 * ms, 0);
    EXPECT_NEAR(ops[0].arrived_ns - ops[2].entered_ns, 14 * ms, 0);
    LHI_TRY(net_send_now(net, 0, 8, NULL, 0, &answer, err));
    LHI_TRY(lhi_net_wait(net, &answer, 0, err));
    return other_orders(net, err);
}
