/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "net_suite_groups.h"
#include "net_suite.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define UNUSED_REST (void)context, (void)result, (void)size

enum { MOST = 4 };
static const uint64_t TAG = UINT64_C(77) << 56;

/* Creates the group with ranks[0..n-1], including the caller. */
static lh_status make(lhi_net *net, uint32_t n, const uint32_t *ranks,
                      uint64_t tag, lhi_group **out, lh_error *err)
{
    lhi_group_options o = {.n_ranks = n, .ranks = ranks, .tag = tag};
    while (o.mine < n && ranks[o.mine] != lhi_net_rank(net))
        o.mine++;
    return lhi_group_make(net, &o, out, err);
}

/* Returns value k on member i; sums depend on the order of addition. */
static float value_of(uint32_t i, size_t k)
{
    return i == 0 ? 1e8f : i == 1 ? -1e8f : 0.25f + (float)(k % 1000 + i);
}

static float sum_of(uint32_t n, size_t k)
{
    float sum = value_of(0, k);
    for (uint32_t i = 1; i < n; i++)
        sum += value_of(i, k);
    return sum;
}

static lh_status sum_shares(lhi_group *g, const size_t *counts, float *values,
                            float *out, lh_error *err)
{
    uint32_t n = lhi_group_n_ranks(g), me = lhi_group_index(g);
    size_t all = 0, first = 0, sizes[MOST];
    for (uint32_t i = 0; i < n; i++) {
        first += i < me ? counts[i] : 0;
        all += counts[i];
        sizes[i] = counts[i] * sizeof *values;
    }
    for (size_t k = 0; k < all; k++)
        values[k] = value_of(me, k);
    LHI_TRY(lhi_group_reduce_scatter(g, values, out ? out : values + first,
                                     counts, err));
    const float *mine = out ? out : values + first;
    for (size_t k = 0; k < counts[me]; k++)
        EXPECT(mine[k] == sum_of(n, first + k));
    LHI_TRY(lhi_group_all_gather(g, mine, values, sizes, err));
    for (size_t k = 0; k < all; k++)
        EXPECT(values[k] == sum_of(n, k));
    return LH_OK;
}

static lh_status sums(lhi_group *g, float *values, float *out, lh_error *err)
{
    static const size_t counts[][3] = {
        {1, 1, 1}, {0, 3, 1}, {5, 0, 0}, {100, 101, 99}, {20001, 3, 9999}};
    for (unsigned c = 0; c < sizeof counts / sizeof counts[0]; c++)
        LHI_TRY(sum_shares(g, counts[c], values, c % 2 ? out : NULL, err));
    static const size_t whole[] = {0, 1, 2, 1024, 1025, 30001};
    for (unsigned c = 0; c < sizeof whole / sizeof whole[0]; c++) {
        for (size_t k = 0; k < whole[c]; k++)
            values[k] = value_of(lhi_group_index(g), k);
        LHI_TRY(lhi_group_all_reduce(g, values, whole[c], err));
        for (size_t k = 0; k < whole[c]; k++)
            EXPECT(values[k] == sum_of(3, k));
    }
    return LH_OK;
}

lh_status net_groups_sum(lhi_net *net, void *context, char **result,
                         size_t *size, lh_error *err)
{
    UNUSED_REST;
    /* Members in a custom order; rank 1 is in no group. */
    static const uint32_t members[] = {3, 0, 2};
    if (lhi_net_rank(net) == 1)
        return LH_OK;
    lhi_group *g = NULL;
    float *values = malloc(2 * 30003 * sizeof *values);
    EXPECT(values);
    lh_status status = make(net, 3, members, TAG, &g, err);
    if (status == LH_OK)
        status = sums(g, values, values + 30003, err);
    if (status == LH_OK &&
        lhi_group_memory_bytes(g) != lhi_group_scatter_bytes(3, 20001) &&
        lhi_group_index(g) == 0)
        status =
            lhi_fail(err, LH_EINVAL, "holds %zu", lhi_group_memory_bytes(g));
    lhi_group_free(g);
    free(values);
    return status;
}

static unsigned char byte_of(uint32_t from, uint32_t to, size_t k)
{
    return (unsigned char)(from * 83 + to * 29 + k % 251);
}

/* Returns a message size: zero, small, or too large to send without a receive.
 */
static size_t size_between(uint32_t from, uint32_t to)
{
    return from == 2 && to != 2   ? 0
           : from == 0 && to == 3 ? 70000
                                  : from * 10 + to;
}

static lh_status all_pairs(lhi_group *g, unsigned char *out, unsigned char *in,
                           lh_error *err)
{
    uint32_t me = lhi_group_index(g);
    size_t gives[MOST], gets[MOST], at = 0;
    for (uint32_t i = 0; i < MOST; i++) {
        gives[i] = size_between(me, i);
        gets[i] = size_between(i, me);
        for (size_t k = 0; k < gives[i]; k++)
            out[at++] = byte_of(me, i, k);
    }
    LHI_TRY(lhi_group_all_to_all(g, out, gives, in, gets, err));
    at = 0;
    for (uint32_t i = 0; i < MOST; i++)
        for (size_t k = 0; k < gets[i]; k++)
            EXPECT(in[at++] == byte_of(i, me, k));
    return LH_OK;
}

/* Receive sizes that only the sender has; they travel with the bytes. */
typedef struct sizes_told {
    uint32_t told[MOST];
    size_t gets[MOST];
} sizes_told;

static void hear_sizes(void *context)
{
    sizes_told *t = context;
    for (uint32_t i = 0; i < MOST; i++)
        t->gets[i] = t->told[i];
}

static lh_status all_pairs_told(lhi_group *g, bool to_all, unsigned char *out,
                                unsigned char *in, lh_error *err)
{
    uint32_t me = lhi_group_index(g), says[MOST];
    size_t gives[MOST], each[MOST], at = 0;
    sizes_told t;
    for (uint32_t i = 0; i < (to_all ? 1 : MOST); i++) {
        gives[i] = says[i] = (uint32_t)size_between(me, to_all ? 3 : i);
        for (size_t k = 0; k < gives[i]; k++)
            out[at++] = byte_of(me, i, k);
    }
    for (uint32_t i = 0; i < MOST; i++)
        each[i] = sizeof *says;
    const lhi_group_bytes told = {says, each, to_all, t.told, each};
    const lhi_group_bytes rest = {out, gives, to_all, in, t.gets};
    uint64_t calls = lhi_group_count_calls(g);
    LHI_TRY(
        lhi_group_all_to_all_with_counts(g, &told, &rest, hear_sizes, &t, err));
    EXPECT(lhi_group_count_calls(g) == calls + 1);
    at = 0;
    for (uint32_t i = 0; i < MOST; i++) {
        EXPECT(t.gets[i] == size_between(i, to_all ? 3 : me));
        for (size_t k = 0; k < t.gets[i]; k++)
            EXPECT(in[at++] == byte_of(i, to_all ? 0 : me, k));
    }
    return LH_OK;
}

lh_status net_groups_all_pairs(lhi_net *net, void *context, char **result,
                               size_t *size, lh_error *err)
{
    UNUSED_REST;
    static const uint32_t members[] = {2, 3, 0, 1};
    lhi_group *g = NULL;
    unsigned char *bytes = malloc(2 * 80000);
    EXPECT(bytes);
    lh_status status = make(net, MOST, members, TAG, &g, err);
    for (int i = 0; i < 3 && status == LH_OK; i++)
        status = all_pairs(g, bytes, bytes + 80000, err);
    for (int i = 0; i < 3 && status == LH_OK; i++)
        status = all_pairs_told(g, i == 1, bytes, bytes + 80000, err);
    lhi_group_free(g);
    free(bytes);
    return status;
}

static lh_status ring(lhi_group *g, unsigned char *bytes, lh_error *err)
{
    uint32_t me = lhi_group_index(g), n = lhi_group_n_ranks(g);
    unsigned char *out = bytes, *in = bytes + 50000;
    for (int back = 0; back < 2; back++) {
        uint32_t from = (me + (back ? 1 : n - 1)) % n;
        size_t gives = 20000u * me + 1, gets = 20000u * from + 1;
        for (size_t k = 0; k < gives; k++)
            out[k] = byte_of(me, 0, k);
        if (back) {
            LHI_TRY(lhi_group_shift_begin(g, true, out, gives, in, gets, err));
            LHI_TRY(lhi_group_shift_end(g, err));
        } else {
            LHI_TRY(lhi_group_shift(g, false, out, gives, in, gets, err));
        }
        for (size_t k = 0; k < gets; k++)
            EXPECT(in[k] == byte_of(from, 0, k));
    }
    return LH_OK;
}

lh_status net_groups_ring(lhi_net *net, void *context, char **result,
                          size_t *size, lh_error *err)
{
    UNUSED_REST;
    static const uint32_t members[] = {1, 2, 0};
    uint32_t alone[] = {lhi_net_rank(net)};
    lhi_group *g = NULL, *one = NULL;
    unsigned char *bytes = malloc(100000);
    EXPECT(bytes);
    lh_status status = make(net, 3, members, TAG, &g, err);
    if (status == LH_OK)
        status = make(net, 1, alone, TAG + (UINT64_C(1) << 32), &one, err);
    if (status == LH_OK)
        status = ring(g, bytes, err);
    if (status == LH_OK)
        status = ring(one, bytes, err);
    lhi_group_free(g);
    lhi_group_free(one);
    free(bytes);
    return status;
}

/* Work for a rank's second thread in its own group. */
typedef struct other_thread {
    lhi_group *group;
    uint32_t rank;
    lh_status status;
    lh_error err;
} other_thread;

static lh_status add_ranks(lhi_group *g, uint32_t rank, int times,
                           lh_error *err)
{
    for (int i = 0; i < times; i++) {
        float values[3] = {(float)rank, 1, (float)i};
        LHI_TRY(lhi_group_all_reduce(g, values, 3, err));
        uint32_t n = lhi_group_n_ranks(g);
        EXPECT(values[0] == (n == 4 ? 6.0f : rank < 2 ? 1.0f : 5.0f));
        EXPECT(values[1] == (float)n && values[2] == (float)(n * (unsigned)i));
    }
    return LH_OK;
}

static void *add_in_thread(void *of)
{
    other_thread *o = of;
    o->status = add_ranks(o->group, o->rank, 100, &o->err);
    return NULL;
}

/* A group with all four ranks, and two pairs at the same time. */
lh_status net_groups_apart(lhi_net *net, void *context, char **result,
                           size_t *size, lh_error *err)
{
    UNUSED_REST;
    static const uint32_t all[] = {0, 1, 2, 3};
    uint32_t me = lhi_net_rank(net);
    uint32_t pair[] = {me & 2, (me & 2) + 1};
    lhi_group *two = NULL;
    other_thread other = {.rank = me};
    LHI_TRY(make(net, MOST, all, TAG, &other.group, err));
    lh_status status = make(net, 2, pair, TAG + (UINT64_C(1) << 32), &two, err);
    pthread_t thread;
    if (status == LH_OK &&
        pthread_create(&thread, NULL, add_in_thread, &other) != 0)
        status = lhi_fail(err, LH_ENOMEM, "no thread");
    if (status == LH_OK) {
        status = add_ranks(two, me, 300, err);
        pthread_join(thread, NULL);
    }
    if (status == LH_OK && other.status != LH_OK) {
        status = other.status;
        *err = other.err;
    }
    lhi_group_free(two);
    lhi_group_free(other.group);
    return status;
}

/* A link with 20 ms latency and 10 us per byte, from the later member's start.
 */
lh_status net_groups_link(lhi_net *net, void *context, char **result,
                          size_t *size, lh_error *err)
{
    UNUSED_REST;
    static const uint32_t members[] = {0, 1};
    const int64_t ms = 1000000;
    unsigned char bytes[4000] = {0};
    const size_t sizes[] = {1000, 3000};
    lhi_group *g = NULL;
    LHI_TRY(make(net, 2, members, TAG, &g, err));
    lhi_group_set_link(g, 20 * ms, 1e4);
    uint32_t me = lhi_group_index(g);
    if (me == 1)
        lhi_sleep_for(30 * ms);
    int64_t began_ns = lhi_now_ns();
    lh_status status =
        lhi_group_all_gather(g, bytes + (me ? 1000 : 0), bytes, sizes, err);
    int64_t took_ns = lhi_now_ns() - began_ns;
    int64_t spent_ns = lhi_group_duration_ns(g);
    uint64_t calls = lhi_group_count_calls(g);
    lhi_group_free(g);
    LHI_TRY(status);
    EXPECT(took_ns >= 50 * ms); /* 3000 bytes in one direction */
    EXPECT(spent_ns >= 50 * ms && spent_ns <= took_ns);
    EXPECT(calls == 1);
    return LH_OK;
}

lh_status net_groups_refuse(lhi_net *net, void *context, char **result,
                            size_t *size, lh_error *err)
{
    UNUSED_REST;
    uint32_t me = lhi_net_rank(net);
    const uint32_t members[] = {0, 1, 0};
    lhi_group *g = NULL;
    lh_error e = {0};
    lhi_group_options o = {.n_ranks = 2, .mine = 1 - me, .ranks = members};
    EXPECT(lhi_group_make(net, &o, &g, &e) == LH_EINVAL);
    EXPECT(strstr(e.text, "is not member"));
    o.mine = me;
    o.tag = TAG + 1;
    EXPECT(lhi_group_make(net, &o, &g, &e) == LH_EINVAL);
    EXPECT(strstr(e.text, "must have zeros in its low 32 bits"));
    o.tag = TAG;
    o.n_ranks = 3;
    EXPECT(lhi_group_make(net, &o, &g, &e) == LH_EINVAL);
    EXPECT(strstr(e.text, "rank 0 is in a group twice"));
    EXPECT(!g);
    lhi_group_free(NULL);
    return LH_OK;
}

/* A failing rank ends the collectives on all others. */
lh_status net_groups_fail(lhi_net *net, void *context, char **result,
                          size_t *size, lh_error *err)
{
    UNUSED_REST;
    static const uint32_t members[] = {0, 1, 2};
    lhi_group *g = NULL;
    LHI_TRY(make(net, 3, members, TAG, &g, err));
    float values[2000] = {0};
    lh_status status = LH_OK;
    for (int i = 0; i < 50 && status == LH_OK; i++) {
        if (lhi_net_rank(net) == 2 && i == 20)
            status = lhi_fail(err, LH_EINPUT, "the roof fell in");
        else
            status = lhi_group_all_reduce(g, values, 2000, err);
    }
    lhi_group_free(g);
    if (lhi_net_rank(net) == 2)
        return status;
    EXPECT(status == LH_EIO);
    EXPECT(strcmp(err->text, "rank 2: the roof fell in") == 0);
    return status;
}

lh_status net_groups_disagree(lhi_net *net, void *context, char **result,
                              size_t *size, lh_error *err)
{
    UNUSED_REST;
    static const uint32_t members[] = {0, 1};
    uint32_t me = lhi_net_rank(net);
    lhi_group *g = NULL;
    LHI_TRY(make(net, 2, members, TAG, &g, err));
    unsigned char out[300] = {0}, in[300];
    const size_t gives[] = {100, 100}, gets[] = {100, 100};
    const size_t more[] = {100 + 17 * (1 - (size_t)me), 100};
    lh_status status = lhi_group_all_to_all(g, out, gives, in, gets, err);
    if (status == LH_OK && me == 1)
        status = lhi_group_all_to_all(g, out, gives, in, more, err);
    else if (status == LH_OK)
        status = lhi_group_shift(g, false, out, 83, in, 100, err);
    lhi_group_free(g);
    return status;
}
