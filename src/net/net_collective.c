/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives by direct messages: each member sends every other its part. That
 * moves as many bytes as a ring does, in one step instead of n - 1, and lets
 * the sums be made in one place, in one order. */
#include "net/net.h"

#include "base/fail.h"
#include "base/realtime.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_BARRIER, TAG_SCATTER, TAG_GATHER };

static size_t first_of(const lhi_net_group *g, size_t n, uint32_t i)
{
    /* n * i / n_ranks without overflow. */
    size_t per = n / g->n_ranks, rest = n % g->n_ranks;
    return per * i + rest * i / g->n_ranks;
}

static uint32_t rank_of(const lhi_net_group *g, uint32_t member)
{
    return g->ranks ? g->ranks[member] : member;
}

static lh_status check_group(const lhi_net *net, const lhi_net_group *g,
                             lh_error *err)
{
    if (g->n_ranks == 0 || g->mine >= g->n_ranks ||
        rank_of(g, g->mine) != lhi_net_rank(net))
        return lhi_fail(err, LH_EINVAL,
                        "rank %u is not member %u of a group of %u",
                        lhi_net_rank(net), g->mine, g->n_ranks);
    return LH_OK;
}

/* The operations of one collective: member i's send and receive. */
typedef struct exchange {
    lhi_net *net;
    const lhi_net_group *group;
    uint64_t tag;
    lhi_net_op *sends, *receives;
} exchange;

static lh_status exchange_init(exchange *x, lhi_net *net,
                               const lhi_net_group *group, uint64_t tag,
                               lh_error *err)
{
    *x = (exchange){.net = net, .group = group, .tag = tag};
    x->sends = calloc(2 * (size_t)group->n_ranks, sizeof *x->sends);
    if (!x->sends)
        return lhi_fail_nomem(err);
    x->receives = x->sends + group->n_ranks;
    return LH_OK;
}

static lh_status wait_all(exchange *x, lhi_net_op *ops,
                          const lhi_net_stop *stop, lh_error *err)
{
    lh_status first = LH_OK;
    for (uint32_t i = 0; i < x->group->n_ranks; i++) {
        if (!ops[i].net || i == x->group->mine)
            continue;
        lh_status status = lhi_net_wait_unless(x->net, &ops[i], stop,
                                               first == LH_OK ? err : NULL);
        if (first == LH_OK)
            first = status;
        int64_t *latest = x->group->latest_ns;
        if (latest && ops[i].receives && ops[i].entered_ns > *latest)
            *latest = ops[i].entered_ns;
    }
    return first;
}

/* Waits for all that was begun, also after a failure: then the run is ended,
 * so that no operation is left behind. */
static lh_status exchange_fini(exchange *x, lh_status status, lh_error *err)
{
    if (status != LH_OK) {
        lhi_net_abort(x->net, err ? err->text : lh_status_name(status));
        wait_all(x, x->receives, NULL, NULL);
        wait_all(x, x->sends, NULL, NULL);
    } else {
        status = wait_all(x, x->sends, NULL, err);
    }
    free(x->sends);
    return status;
}

static lh_status receive_from(exchange *x, uint32_t i, void *data, size_t size,
                              lh_error *err)
{
    lh_status status = lhi_net_receive(x->net, rank_of(x->group, i), x->tag,
                                       data, size, &x->receives[i], err);
    if (status != LH_OK)
        x->receives[i].net = NULL;
    return status;
}

static lh_status send_to(exchange *x, uint32_t i, const void *data, size_t size,
                         lh_error *err)
{
    lh_status status = lhi_net_send(x->net, rank_of(x->group, i), x->tag, data,
                                    size, x->group->link, lhi_now_ns(),
                                    LHI_NET_NO_TURN, &x->sends[i], err);
    if (status != LH_OK)
        x->sends[i].net = NULL;
    return status;
}

/* All tell the first member, which then tells all: messages without bytes. */
lh_status lhi_net_barrier(lhi_net *net, const lhi_net_group *g, uint64_t tag,
                          const lhi_net_stop *stop, lh_error *err)
{
    exchange x;
    LHI_TRY(check_group(net, g, err));
    LHI_TRY(exchange_init(&x, net, g, tag + TAG_BARRIER, err));
    bool leads = g->mine == 0;
    uint32_t from = leads ? 1 : 0, to = leads ? g->n_ranks : 1;
    lh_status status = LH_OK;
    for (uint32_t i = from; i < to && status == LH_OK; i++)
        status = receive_from(&x, i, NULL, 0, err);
    if (status == LH_OK && leads)
        status = wait_all(&x, x.receives, stop, err);
    for (uint32_t i = from; i < to && status == LH_OK; i++)
        status = send_to(&x, i, NULL, 0, err);
    if (status == LH_OK)
        status = wait_all(&x, x.receives, stop, err);
    return exchange_fini(&x, status, err);
}

/* Element by element, in the order of the members: the same sum on every
 * member, whatever the transport, and `out` may be the caller's own part. */
static void add_up(const lhi_net_group *g, const float *mine,
                   const float *others, size_t n, float *out)
{
    for (size_t k = 0; k < n; k++) {
        const float *other = others + k;
        float sum = 0;
        for (uint32_t i = 0; i < g->n_ranks; i++) {
            float value = mine[k];
            if (i != g->mine) {
                value = *other;
                other += n;
            }
            sum = i == 0 ? value : sum + value;
        }
        out[k] = sum;
    }
}

lh_status lhi_net_reduce_scatter(lhi_net *net, const lhi_net_group *g,
                                 uint64_t tag, const float *values, size_t n,
                                 float *out, lh_error *err)
{
    exchange x;
    LHI_TRY(check_group(net, g, err));
    size_t first = first_of(g, n, g->mine);
    size_t count = first_of(g, n, g->mine + 1) - first;
    size_t room = count * (g->n_ranks - 1);
    float *others = malloc((room ? room : 1) * sizeof *others);
    if (!others)
        return lhi_fail_nomem(err);
    lh_status status = exchange_init(&x, net, g, tag + TAG_SCATTER, err);
    if (status != LH_OK) {
        free(others);
        return status;
    }
    float *next = others;
    for (uint32_t i = 0; i < g->n_ranks && status == LH_OK; i++) {
        if (i == g->mine)
            continue;
        status = receive_from(&x, i, next, count * sizeof *next, err);
        next += count;
    }
    for (uint32_t i = 0; i < g->n_ranks && status == LH_OK; i++) {
        size_t at = first_of(g, n, i), end = first_of(g, n, i + 1);
        if (i != g->mine)
            status =
                send_to(&x, i, values + at, (end - at) * sizeof *values, err);
    }
    if (status == LH_OK)
        status = wait_all(&x, x.receives, NULL, err);
    if (status == LH_OK)
        add_up(g, values + first, others, count, out);
    status = exchange_fini(&x, status, err);
    free(others);
    return status;
}

lh_status lhi_net_all_gather(lhi_net *net, const lhi_net_group *g, uint64_t tag,
                             void *values, size_t n, size_t value_size,
                             lh_error *err)
{
    exchange x;
    LHI_TRY(check_group(net, g, err));
    LHI_TRY(exchange_init(&x, net, g, tag + TAG_GATHER, err));
    unsigned char *bytes = values;
    size_t first = first_of(g, n, g->mine) * value_size;
    size_t size = first_of(g, n, g->mine + 1) * value_size - first;
    lh_status status = LH_OK;
    for (uint32_t i = 0; i < g->n_ranks && status == LH_OK; i++) {
        size_t at = first_of(g, n, i) * value_size;
        size_t end = first_of(g, n, i + 1) * value_size;
        if (i != g->mine)
            status = receive_from(&x, i, bytes + at, end - at, err);
    }
    for (uint32_t i = 0; i < g->n_ranks && status == LH_OK; i++)
        if (i != g->mine)
            status = send_to(&x, i, bytes + first, size, err);
    if (status == LH_OK)
        status = wait_all(&x, x.receives, NULL, err);
    return exchange_fini(&x, status, err);
}
