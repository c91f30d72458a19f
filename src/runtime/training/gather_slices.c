/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers tensor slices from several ranks at one rank, so that a checkpoint is
 * independent of the slicing. */
#include "base/fail.h"
#include "runtime/training/train_internal.h"

#include <stdlib.h>

/* The ranks that hold a tensor's slices, for each of its replicas. */
typedef struct holders {
    lhi_train_bucket_kind bucket;
    uint32_t ranks, replicas;
    const uint32_t *shard_of; /* per replica; NULL: in order */
} holders;

/* Returns the ranks that together have the tensor `t`: their bucket (experts or
 * others), the number of its slices and of replicas, and which shard each
 * replica has. */
static holders find_holders(const lhi_train *train, const lhi_tensor *t)
{
    lhi_train_bucket_kind bucket = lhi_bucket_of(train, t);
    const lhi_train_options *o = &train->o;
    bool experts = bucket == LHI_BUCKET_EXPERTS;
    return (holders){bucket, lhi_bucket_count_slices(train, bucket),
                     experts ? o->n_expert_replicas : o->n_replicas,
                     experts ? o->expert_shard_of : o->shard_of};
}

/* Returns how many ranks have a slice or shard of the tensor: its slices times
 * its replicas. */
static uint32_t count_members(const holders *h)
{
    return h->ranks * h->replicas;
}

/* Computes the range of shard number `shard` of a slice with `n` values:
 * *first, and *count, which is `share` or fewer at the end. */
static void find_shard_range(size_t n, size_t share, uint32_t shard,
                             size_t *first, size_t *count)
{
    *first = share * shard < n ? share * shard : n;
    *count = n - *first < share ? n - *first : share;
}

/* Computes the range of its slice that member `i` (of the ranks that have
 * tensor `t`) contributes to the full tensor: its shard, without values that a
 * lower rank of its replica also has; *first and *n. Returns its slice. */
static lhi_slice find_member_range(const lhi_train *train, const lhi_tensor *t,
                                   const holders *h, uint32_t shards,
                                   uint32_t i, size_t *first, size_t *n)
{
    uint32_t ranks = h->ranks, replica = i / ranks;
    lhi_slice slice = lhi_slice_for_rank(&t->slice, i % ranks);
    size_t all = lhi_slice_count_values(&slice);
    size_t own = lhi_slice_count_own_values(&slice, i % ranks);
    uint32_t shard = replica;
    *first = *n = 0;
    if (shards > 1 && h->shard_of)
        shard = h->shard_of[replica];
    if (shard < shards)
        find_shard_range(
            all, shards > 1 ? lhi_values_per_shard(train, h->bucket, all) : all,
            shard, first, n);
    if (*n > own - (*first < own ? *first : own))
        *n = own - (*first < own ? *first : own);
    return slice;
}

/* Assembles the full tensor `whole` on the first of the ranks that have it,
 * from each member's n values `mine`. `shards`: shards per slice; `gets`:
 * scratch, one size per member. */
static lh_status assemble_tensor(const lhi_train *train, const lhi_tensor *t,
                                 const holders *h, uint32_t shards,
                                 const float *mine, size_t n, size_t *gets,
                                 float *whole, lh_error *err)
{
    float *all = malloc((lhi_count_full_values(t) + 1) * sizeof *all);
    size_t first;
    if (!all)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < count_members(h); i++)
        find_member_range(train, t, h, shards, i, &first, &gets[i]);
    lh_status status = train->o.gather_slices(train->o.context, h->bucket, mine,
                                              n, all, gets, err);
    const float *at = all;
    for (uint32_t i = 0; status == LH_OK && i < count_members(h);
         at += gets[i++]) {
        lhi_slice slice = find_member_range(train, t, h, shards, i, &first, &n);
        lhi_slice_write(&slice, at, first, n, whole);
    }
    free(all);
    return status;
}

lh_status lhi_gather_slices(const lhi_train *train, const lhi_tensor *t,
                            uint32_t shards, const float *mine, size_t n,
                            float *whole, lh_error *err)
{
    const lhi_train_options *o = &train->o;
    const holders h = find_holders(train, t);
    bool experts = h.bucket == LHI_BUCKET_EXPERTS;
    uint32_t me = experts ? o->expert_replica * h.ranks + o->expert_tensor
                          : o->replica * h.ranks + o->tensor;
    size_t first, gives;
    find_member_range(train, t, &h, shards, me, &first, &gives);
    n = gives < n ? gives : n;
    if (me > 0)
        return o->gather_slices(o->context, h.bucket, mine, n, NULL, NULL, err);
    size_t *gets = calloc(count_members(&h), sizeof *gets);
    if (!gets)
        return lhi_fail_nomem(err);
    lh_status status =
        assemble_tensor(train, t, &h, shards, mine, n, gets, whole, err);
    free(gets);
    return status;
}
