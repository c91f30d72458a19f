/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/part_collectives.h"

#include "base/fail.h"
#include "base/realtime.h"

void lhi_part_fit_buffers(const lhi_part_collectives *x,
                          const lhi_train_part *part,
                          lhi_part_buffer_sizes *room)
{
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++) {
        size_t piece = part->of[i].to - part->of[i].from;
        size_t all = x->groups[i] ? piece * x->groups[i]->n_ranks : 0;
        room->sums = piece > room->sums ? piece : room->sums;
        room->array = all > room->array ? all : room->array;
    }
}

bool lhi_part_make_buffers(lhi_part_collectives *x,
                           const lhi_part_buffer_sizes *room, lhi_arena *mem)
{
    return (x->array = LHI_NEW(mem, float, room->array)) &&
           (x->sums = LHI_NEW(mem, float, room->sums));
}

/* All-gathers one bucket (experts or other parameters) of `part`, a range of a
 * chunk's tensors; `room` receives the sharded parameters. Raises *ready_ns
 * (NULL: none) to the time at which all ranks were ready. */
static lh_status gather_bucket(const lhi_part_collectives *x,
                               const lhi_train_part *part,
                               lhi_train_bucket_kind bucket, float *room,
                               uint64_t tag, int64_t *ready_ns, lh_error *err)
{
    lhi_net_group group = *x->groups[bucket];
    size_t n = (part->of[bucket].to - part->of[bucket].from) * group.n_ranks;
    group.latest_ns = ready_ns;
    if (n == 0)
        return LH_OK;
    lhi_train_pack_values(x->train, part, bucket, x->array);
    LHI_TRY(lhi_net_all_gather(x->net, &group, tag + bucket * LHI_NET_TAGS,
                               x->array, n, sizeof *x->array, err));
    lhi_train_unpack_values(x->train, part, bucket, x->array, room);
    return LH_OK;
}

lh_status lhi_part_all_gather(const lhi_part_collectives *x,
                              const lhi_train_part *part, float *room,
                              uint64_t tag, int64_t *ready_ns, lh_error *err)
{
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++)
        if (x->groups[i])
            LHI_TRY(gather_bucket(x, part, (lhi_train_bucket_kind)i, room, tag,
                                  ready_ns, err));
    return LH_OK;
}

/* Reduce-scatters the gradients of one bucket (experts or others) of `part`, a
 * range of a chunk's tensors, and stores this rank's shard; `adds`: adds to
 * earlier microbatch groups' sums. Raises *ready_ns (NULL: none) to the time at
 * which all ranks were ready. */
static lh_status scatter_bucket(const lhi_part_collectives *x,
                                const lhi_train_part *part,
                                lhi_train_bucket_kind bucket, const float *room,
                                bool adds, uint64_t tag, int64_t *ready_ns,
                                lh_error *err)
{
    lhi_net_group group = *x->groups[bucket];
    size_t sharded =
        lhi_train_find_piece_sizes(x->train, part->chunk, bucket).gradients;
    lhi_train_range all = part->of[bucket], early = all, late = all;
    size_t n = (all.to - all.from) * group.n_ranks;
    group.latest_ns = ready_ns;
    if (n == 0)
        return LH_OK;
    lhi_train_pack_gradients(x->train, part, bucket, room, x->array);
    LHI_TRY(lhi_net_reduce_scatter(x->net, &group, tag + bucket * LHI_NET_TAGS,
                                   x->array, n, x->sums, err));
    if (early.to > sharded)
        early.to = sharded;
    if (late.from < sharded)
        late.from = sharded;
    if (early.from < early.to)
        lhi_train_store_sums(x->train, part->chunk, bucket, early, x->sums,
                             adds);
    if (late.from < late.to)
        lhi_train_store_sums(x->train, part->chunk, bucket, late,
                             x->sums + (late.from - all.from), false);
    return LH_OK;
}

lh_status lhi_part_reduce_scatter(const lhi_part_collectives *x,
                                  const lhi_train_part *part, const float *room,
                                  bool adds, uint64_t tag, int64_t *ready_ns,
                                  lh_error *err)
{
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++)
        if (x->groups[i])
            LHI_TRY(scatter_bucket(x, part, (lhi_train_bucket_kind)i, room,
                                   adds, tag, ready_ns, err));
    return LH_OK;
}

/* Sums this rank's shard `values` over the datacenters in place: a
 * reduce-scatter and an all-gather among the ranks with the same shard. */
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

/* Sends n values to a member of the group at this rank's datacenter and waits
 * until they are sent. */
static lh_status send_to_member(const lhi_site_sums *s, uint32_t member,
                                const float *values, size_t n, uint64_t tag,
                                lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_send(s->net, s->group->ranks[member], tag, values,
                         n * sizeof *values, s->group->link, lhi_now_ns(),
                         LHI_NET_NO_TURN, &op, err));
    return lhi_net_wait(s->net, &op, 0, err);
}

/* Receives n values from a member of the group at this rank's datacenter. */
static lh_status receive_from_member(const lhi_site_sums *s, uint32_t member,
                                     float *values, size_t n, uint64_t tag,
                                     lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(lhi_net_receive(s->net, s->group->ranks[member], tag, values,
                            n * sizeof *values, &op, err));
    return lhi_net_wait(s->net, &op, 0, err);
}

/* Sums all ranks' shards at a datacenter over the datacenters, one shard
 * after the other, through the leader (member 0), which alone communicates with
 * other datacenters. `room`: the leader's buffer for n values. */
static lh_status sum_by_leaders(const lhi_site_sums *s, float *values, size_t n,
                                float *room, uint64_t tag, int64_t *ready_ns,
                                lh_error *err)
{
    uint32_t mine = s->group->mine;
    if (mine > 0) {
        tag += (uint64_t)4 * mine * LHI_NET_TAGS;
        LHI_TRY(send_to_member(s, 0, values, n, tag + 2 * LHI_NET_TAGS, err));
        return receive_from_member(s, 0, values, n, tag + 3 * LHI_NET_TAGS,
                                   err);
    }
    LHI_TRY(sum_across(s, values, n, tag, ready_ns, err));
    for (uint32_t i = 1; i < s->group->n_ranks; i++) {
        tag += (uint64_t)4 * LHI_NET_TAGS;
        LHI_TRY(
            receive_from_member(s, i, room, n, tag + 2 * LHI_NET_TAGS, err));
        LHI_TRY(sum_across(s, room, n, tag, NULL, err));
        LHI_TRY(send_to_member(s, i, room, n, tag + 3 * LHI_NET_TAGS, err));
    }
    return LH_OK;
}

lh_status lhi_sum_sites(const lhi_site_sums *s, float *values, size_t n,
                        float *room, uint64_t tag, int64_t *ready_ns,
                        lh_error *err)
{
    if (n == 0 || s->across->n_ranks < 2)
        return LH_OK;
    return s->by_leaders && s->group->n_ranks > 1
               ? sum_by_leaders(s, values, n, room, tag, ready_ns, err)
               : sum_across(s, values, n, tag, ready_ns, err);
}

uint32_t lhi_part_count_sum_tags(const lhi_part_collectives *x)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++) {
        uint32_t n = x->groups[i] ? lhi_site_count_sum_tags(x->groups[i]) : 0;
        most = n > most ? n : most;
    }
    return most;
}

lh_status lhi_part_sum_sites(const lhi_part_collectives *x,
                             const lhi_train_part *part, uint64_t tag,
                             int64_t *ready_ns, lh_error *err)
{
    uint64_t each = (uint64_t)lhi_part_count_sum_tags(x) * LHI_NET_TAGS;
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++) {
        const lhi_site_sums sites = {x->net, x->groups[i], x->across[i],
                                     x->by_leaders};
        const lhi_train_range *of = &part->of[i];
        size_t n;
        if (!x->across[i])
            continue;
        float *sums = lhi_train_get_sums(x->train, part->chunk,
                                         (lhi_train_bucket_kind)i, &n);
        LHI_TRY(lhi_sum_sites(&sites, sums + of->from, of->to - of->from,
                              x->sums, tag + i * each, ready_ns, err));
    }
    return LH_OK;
}
