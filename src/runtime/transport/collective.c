/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives by direct messages: each member sends every other member's part
 * directly. That moves as many bytes as a ring, in one step rather than n - 1,
 * and computes each sum in one place and one order. */
#include "runtime/transport/transport.h"

#include "base/fail.h"
#include "runtime/transport/round.h"

#include <stdlib.h>

enum { TAG_BARRIER, TAG_SCATTER, TAG_GATHER };

/* Returns the index of member i's first value if n values are divided over the
 * group: floor(n * i / n_ranks). */
static size_t get_first_index(const lhi_net_group *g, size_t n, uint32_t i)
{
    /* n * i / n_ranks without overflow. */
    size_t per = n / g->n_ranks, rest = n % g->n_ranks;
    return per * i + rest * i / g->n_ranks;
}

/* Initialises a round (the sends and receives of one collective) with all
 * members of `group`; release it with finish_exchange(). */
static lh_status init_exchange(lhi_round *x, lhi_net *net,
                               const lhi_net_group *group, uint64_t tag,
                               lh_error *err)
{
    *x = (lhi_round){.net = net, .group = group, .tag = tag};
    x->sends = calloc(2 * (size_t)group->n_ranks, sizeof *x->sends);
    if (!x->sends)
        return lhi_fail_nomem(err);
    x->receives = x->sends + group->n_ranks;
    return LH_OK;
}

/* Waits for the sends and receives of a round (one collective) and releases
 * them. Returns `status` if it is an error, else the wait's result. */
static lh_status finish_exchange(lhi_round *x, lh_status status, lh_error *err)
{
    status = lhi_round_end(x, status, NULL, err);
    free(x->sends);
    return status;
}

/* Waits until every member of group `g` has called it with this tag. Every
 * member notifies the first one, which then notifies all; messages are empty.
 * Stops waiting if `stop` requests it. */
lh_status lhi_net_barrier(lhi_net *net, const lhi_net_group *g, uint64_t tag,
                          const lhi_net_stop *stop, lh_error *err)
{
    lhi_round x;
    LHI_TRY(lhi_round_check(net, g, err));
    LHI_TRY(init_exchange(&x, net, g, tag + TAG_BARRIER, err));
    bool leads = g->mine == 0;
    uint32_t from = leads ? 1 : 0, to = leads ? g->n_ranks : 1;
    lh_status status = LH_OK;
    for (uint32_t i = from; i < to && status == LH_OK; i++)
        status = lhi_round_receive(&x, i, NULL, 0, err);
    if (status == LH_OK && leads)
        status = lhi_round_wait(&x, x.receives, stop, err);
    for (uint32_t i = from; i < to && status == LH_OK; i++)
        status = lhi_round_send(&x, i, NULL, 0, err);
    if (status == LH_OK)
        status = lhi_round_wait(&x, x.receives, stop, err);
    return finish_exchange(&x, status, err);
}

lh_status lhi_net_reduce_scatter(lhi_net *net, const lhi_net_group *g,
                                 uint64_t tag, const float *values, size_t n,
                                 float *out, lh_error *err)
{
    lhi_round x;
    LHI_TRY(lhi_round_check(net, g, err));
    size_t first = get_first_index(g, n, g->mine);
    size_t count = get_first_index(g, n, g->mine + 1) - first;
    size_t room = count * (g->n_ranks - 1);
    float *others = malloc((room ? room : 1) * sizeof *others);
    if (!others)
        return lhi_fail_nomem(err);
    lh_status status = init_exchange(&x, net, g, tag + TAG_SCATTER, err);
    if (status != LH_OK) {
        free(others);
        return status;
    }
    float *next = others;
    for (uint32_t i = 0; i < g->n_ranks && status == LH_OK; i++) {
        if (i == g->mine)
            continue;
        status = lhi_round_receive(&x, i, next, count * sizeof *next, err);
        next += count;
    }
    for (uint32_t i = 0; i < g->n_ranks && status == LH_OK; i++) {
        size_t at = get_first_index(g, n, i),
               end = get_first_index(g, n, i + 1);
        if (i != g->mine)
            status = lhi_round_send(&x, i, values + at,
                                    (end - at) * sizeof *values, err);
    }
    if (status == LH_OK)
        status = lhi_round_wait(&x, x.receives, NULL, err);
    if (status == LH_OK)
        lhi_round_add(g, values + first, others, count, out);
    status = finish_exchange(&x, status, err);
    free(others);
    return status;
}

lh_status lhi_net_all_gather(lhi_net *net, const lhi_net_group *g, uint64_t tag,
                             void *values, size_t n, size_t value_size,
                             lh_error *err)
{
    lhi_round x;
    LHI_TRY(lhi_round_check(net, g, err));
    LHI_TRY(init_exchange(&x, net, g, tag + TAG_GATHER, err));
    unsigned char *bytes = values;
    size_t first = get_first_index(g, n, g->mine) * value_size;
    size_t size = get_first_index(g, n, g->mine + 1) * value_size - first;
    lh_status status = LH_OK;
    for (uint32_t i = 0; i < g->n_ranks && status == LH_OK; i++) {
        size_t at = get_first_index(g, n, i) * value_size;
        size_t end = get_first_index(g, n, i + 1) * value_size;
        if (i != g->mine)
            status = lhi_round_receive(&x, i, bytes + at, end - at, err);
    }
    for (uint32_t i = 0; i < g->n_ranks && status == LH_OK; i++)
        if (i != g->mine)
            status = lhi_round_send(&x, i, bytes + first, size, err);
    if (status == LH_OK)
        status = lhi_round_wait(&x, x.receives, NULL, err);
    return finish_exchange(&x, status, err);
}
