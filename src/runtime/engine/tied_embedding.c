/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the gradients of a tied embedding's two copies, on the first and last
 * stage. A rank owns a range of the embedding's values: a shard of its
 * tensor-parallel slice. If both stages have the same tensor degree, one rank
 * of the other stage owns the same range; otherwise several own parts of it. */
#include "runtime/device/tensor_slices.h"
#include "runtime/engine/training_internal.h"

#include "base/realtime.h"

#include <stdlib.h>

/* A range of values of the tied embedding. */
typedef struct tied_range {
    size_t first, n;
} tied_range;

/* Returns the values of the tied embedding whose gradients a rank of stage
 * `stage` owns: shard of->shard of its tensor-parallel slice. */
static tied_range find_range(const lhi_training *t, uint32_t stage,
                             uint32_t tensor, const lhi_shard_groups *of)
{
    const lh_model *m = t->o.model->model;
    const uint32_t ranks = lhi_grid_get_tensor(t->o.grid, stage);
    const size_t first = lhi_slice_first(m->vocab, ranks, tensor),
                 end = lhi_slice_first(m->vocab, ranks, tensor + 1),
                 all = (end - first) * m->hidden,
                 share = all / of->n_shards + (all % of->n_shards != 0),
                 from = share * of->shard < all ? share * of->shard : all;
    return (tied_range){first * m->hidden + from,
                        all - from < share ? all - from : share};
}

/* Adds to the list the values that this rank owns (`own`) and the rank at the
 * coordinates `at` too, which is member `of` of its shard groups. */
static void add_part(lhi_training *t, const tied_range *own,
                     const lhi_grid_coords *at, const lhi_shard_groups *of)
{
    const tied_range other = find_range(t, at->device, at->tensor, of);
    const size_t end = other.first + other.n, own_end = own->first + own->n;
    const size_t from = other.first > own->first ? other.first : own->first;
    const size_t to = end < own_end ? end : own_end;
    if (from < to)
        t->tied[t->n_tied++] = (lhi_tied_part){
            lhi_rank_assignment_find_rank(t->o.assignment,
                                          lhi_grid_find_rank(t->o.grid, at)),
            from - own->first, to - from};
}

lh_status lhi_training_list_tied(lhi_training *t, lh_error *err)
{
    const lhi_train_tied_pair pair = lhi_train_get_tied_pair(t->train);
    if (pair.n == 0)
        return LH_OK;
    const lhi_grid *g = t->o.grid;
    const uint32_t other = t->o.exec->chunk_ranks[pair.other_chunk];
    const uint32_t tensors = lhi_grid_get_tensor(g, other);
    const tied_range own = find_range(t, t->o.stage, t->o.tensor, &t->shards);
    t->tied = calloc((size_t)tensors * t->o.n_replicas, sizeof *t->tied);
    if (!t->tied)
        return lhi_fail_nomem(err);
    for (uint32_t k = 0; k < t->o.n_replicas; k++) {
        const lhi_shard_groups of =
            lhi_shard_groups_find(t->o.model, t->o.n_replicas, other, k);
        lhi_grid_coords at = {.device = other,
                              .context = k % g->context,
                              .replica = k / g->context};
        for (; of.site == t->shards.site && at.tensor < tensors; at.tensor++)
            add_part(t, &own, &at, &of);
    }
    return LH_OK;
}

/* Starts the exchange of part `i` of the gradient with its rank. */
static lh_status start_part(lhi_training *t, const lhi_train_tied_pair *pair,
                            uint32_t i, uint64_t tag, lhi_net_op *in,
                            lhi_net_op *out, lh_error *err)
{
    const lhi_tied_part *part = &t->tied[i];
    const size_t size = part->n * sizeof *pair->mine;
    LHI_TRY(lhi_net_receive(t->o.net, part->peer, tag,
                            pair->theirs + part->first, size, in, err));
    return lhi_net_send(t->o.net, part->peer, tag, pair->mine + part->first,
                        size, LHI_NET_NO_LINK, lhi_now_ns(), LHI_NET_NO_TURN,
                        out, err);
}

lh_status lhi_training_exchange_tied(lhi_training *t, uint64_t turn,
                                     lh_error *err)
{
    const lhi_train_tied_pair pair = lhi_train_get_tied_pair(t->train);
    const uint64_t tag = lhi_tag(LHI_TAG_DATA, turn, UINT32_MAX);
    const uint32_t n = 2 * t->n_tied;
    uint32_t n_started = 0;
    lhi_net_op *ops = calloc((size_t)n + 1, sizeof *ops);
    lh_status status = ops ? LH_OK : lhi_fail_nomem(err);
    for (; status == LH_OK && n_started < n; n_started += 2) {
        lhi_net_op *in = &ops[n_started];
        status = start_part(t, &pair, n_started / 2, tag, in, in + 1, err);
    }
    for (uint32_t i = 0; i < n_started; i++) {
        const lh_status ended =
            lhi_net_wait(t->o.net, &ops[i], 0, status == LH_OK ? err : NULL);
        status = status == LH_OK ? ended : status;
    }
    free(ops);
    return status;
}
