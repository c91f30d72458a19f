/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/part_exchange.h"

#include "base/fail.h"
#include "base/realtime.h"

lh_status lhi_part_gather(const lhi_part_exchange *x,
                          const lhi_train_part *part, float *room, uint64_t tag,
                          int64_t *ready_ns, lh_error *err)
{
    lhi_net_group group = *x->group;
    size_t n = (part->to - part->from) * group.n_ranks;
    group.latest_ns = ready_ns;
    if (n == 0)
        return LH_OK;
    lhi_train_pack_values(x->train, part, x->array);
    LHI_TRY(lhi_net_all_gather(x->net, &group, tag, x->array, n,
                               sizeof *x->array, err));
    lhi_train_unpack_values(x->train, part, x->array, room);
    return LH_OK;
}

lh_status lhi_part_scatter(const lhi_part_exchange *x,
                           const lhi_train_part *part, const float *room,
                           bool adds, uint64_t tag, int64_t *ready_ns,
                           lh_error *err)
{
    lhi_net_group group = *x->group;
    lhi_train_pieces pieces = lhi_train_pieces_of(x->train, part->chunk);
    size_t n = (part->to - part->from) * group.n_ranks;
    lhi_train_part early = *part, late = *part;
    group.latest_ns = ready_ns;
    if (n == 0)
        return LH_OK;
    lhi_train_pack_gradients(x->train, part, room, x->array);
    LHI_TRY(lhi_net_reduce_scatter(x->net, &group, tag, x->array, n, x->sums,
                                   err));
    if (early.to > pieces.gradients)
        early.to = pieces.gradients;
    if (late.from < pieces.gradients)
        late.from = pieces.gradients;
    if (early.from < early.to)
        lhi_train_take_sums(x->train, &early, x->sums, adds);
    if (late.from < late.to)
        lhi_train_take_sums(x->train, &late,
                            x->sums + (late.from - part->from), false);
    return LH_OK;
}

static lh_status sum_across(const lhi_site_sums *s, float *values, size_t n,
                            uint64_t tag, int64_t *ready_ns, lh_error *err)
{
    lhi_net_group group = *s->across;
    group.latest_ns = ready_ns;
    LHI_TRY(lhi_net_reduce_scatter(s->net, &group, tag, values, n,
                                   values + n * group.mine / group.n_ranks,
                                   err));
    group.latest_ns = NULL;
    return lhi_net_all_gather(s->net, &group, tag + LHI_NET_TAGS, values, n,
                              sizeof *values, err);
}

static lh_status send_to(const lhi_site_sums *s, uint32_t member,
                         const float *values, size_t n, uint64_t tag,
                         lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_send(s->net, s->group->ranks[member], tag, values,
                         n * sizeof *values, s->group->link, lhi_now_ns(),
                         LHI_NET_NO_TURN, &op, err));
    return lhi_net_wait(s->net, &op, 0, err);
}

static lh_status receive_from(const lhi_site_sums *s, uint32_t member,
                              float *values, size_t n, uint64_t tag,
                              lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_receive(s->net, s->group->ranks[member], tag, values,
                            n * sizeof *values, &op, err));
    return lhi_net_wait(s->net, &op, 0, err);
}

/* A site's shards one after the other, by way of its leader. */
static lh_status sum_by_leaders(const lhi_site_sums *s, float *values, size_t n,
                                float *room, uint64_t tag, int64_t *ready_ns,
                                lh_error *err)
{
    uint32_t mine = s->group->mine;
    if (mine > 0) {
        tag += (uint64_t)4 * mine * LHI_NET_TAGS;
        LHI_TRY(send_to(s, 0, values, n, tag + 2 * LHI_NET_TAGS, err));
        return receive_from(s, 0, values, n, tag + 3 * LHI_NET_TAGS, err);
    }
    LHI_TRY(sum_across(s, values, n, tag, ready_ns, err));
    for (uint32_t i = 1; i < s->group->n_ranks; i++) {
        tag += (uint64_t)4 * LHI_NET_TAGS;
        LHI_TRY(receive_from(s, i, room, n, tag + 2 * LHI_NET_TAGS, err));
        LHI_TRY(sum_across(s, room, n, tag, NULL, err));
        LHI_TRY(send_to(s, i, room, n, tag + 3 * LHI_NET_TAGS, err));
    }
    return LH_OK;
}

lh_status lhi_sum_sites(const lhi_site_sums *s, float *values, size_t n,
                        float *room, uint64_t tag, int64_t *ready_ns,
                        lh_error *err)
{
    if (n == 0 || s->across->n_ranks < 2)
        return LH_OK;
    return s->leaders && s->group->n_ranks > 1
               ? sum_by_leaders(s, values, n, room, tag, ready_ns, err)
               : sum_across(s, values, n, tag, ready_ns, err);
}
