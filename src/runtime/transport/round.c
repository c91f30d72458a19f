/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/transport/round.h"

#include "base/fail.h"
#include "base/realtime.h"

/* Returns a group member's rank. */
static uint32_t get_rank(const lhi_net_group *g, uint32_t member)
{
    return g->ranks ? g->ranks[member] : member;
}

lh_status lhi_round_check(const lhi_net *net, const lhi_net_group *g,
                          lh_error *err)
{
    if (g->n_ranks == 0 || g->mine >= g->n_ranks ||
        get_rank(g, g->mine) != lhi_net_rank(net))
        return lhi_fail(err, LH_EINVAL,
                        "rank %u is not member %u of a group of %u",
                        lhi_net_rank(net), g->mine, g->n_ranks);
    return LH_OK;
}

lh_status lhi_round_receive(lhi_round *x, uint32_t i, void *data, size_t size,
                            lh_error *err)
{
    lhi_net_op *op = &x->receives[i];
    if (x->group->hops && x->posted_ns == 0)
        x->posted_ns = lhi_now_ns();
    lh_status status = lhi_net_receive(x->net, get_rank(x->group, i), x->tag,
                                       data, size, op, err);
    if (status != LH_OK)
        op->net = NULL;
    return status;
}

lh_status lhi_round_send(lhi_round *x, uint32_t i, const void *data,
                         size_t size, lh_error *err)
{
    lhi_net_op *op = &x->sends[i];
    lh_status status =
        lhi_net_send(x->net, get_rank(x->group, i), x->tag, data, size,
                     x->group->link, lhi_now_ns(), LHI_NET_NO_TURN, op, err);
    if (status != LH_OK)
        op->net = NULL;
    return status;
}

lh_status lhi_round_wait(lhi_round *x, lhi_net_op *ops,
                         const lhi_net_stop *stop, lh_error *err)
{
    lh_status first = LH_OK;
    for (uint32_t i = 0; i < x->group->n_ranks; i++) {
        if (!ops[i].net || i == x->group->mine)
            continue;
        lh_status status = lhi_net_wait_or_stop(x->net, &ops[i], stop,
                                                first == LH_OK ? err : NULL);
        if (first == LH_OK)
            first = status;
        int64_t *latest = x->group->latest_ns;
        if (latest && ops[i].receives && ops[i].entered_ns > *latest)
            *latest = ops[i].entered_ns;
        if (status == LH_OK && x->group->hops && ops[i].receives) {
            lhi_net_hop *hop = &x->group->hops[i];
            hop->n++;
            hop->since_sent_ns += ops[i].arrived_ns - ops[i].entered_ns;
            hop->since_posted_ns += ops[i].arrived_ns - x->posted_ns;
        }
    }
    return first;
}

lh_status lhi_round_end(lhi_round *x, lh_status status,
                        const lhi_net_stop *stop, lh_error *err)
{
    if (status == LH_OK)
        return lhi_round_wait(x, x->sends, stop, err);
    lhi_net_abort(x->net, err ? err->text : lh_status_name(status));
    lhi_round_wait(x, x->receives, NULL, NULL);
    lhi_round_wait(x, x->sends, NULL, NULL);
    return status;
}

void lhi_round_add(const lhi_net_group *g, const float *mine,
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
