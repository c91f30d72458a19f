/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that several ranks have slices of come together at one rank, so that
 * a checkpoint does not depend on how they were cut. */
#include "base/fail.h"
#include "train/train_own.h"

#include <stdlib.h>

/* Of a slice with n values, what one of its shards has. */
static void find_share(size_t n, uint32_t shards, uint32_t replica,
                       size_t *first, size_t *count)
{
    size_t share = n / shards + (n % shards != 0);
    *first = share * replica < n ? share * replica : n;
    *count = n - *first < share ? n - *first : share;
}

/* What member `i` has to give: what no rank of its replica before it has. */
static lhi_slice share_of(const lhi_train *train, const lhi_tensor *t,
                          uint32_t shards, uint32_t i, size_t *first,
                          size_t *n)
{
    uint32_t ranks = train->o.n_tensor, replica = i / ranks;
    lhi_slice slice = lhi_slice_at(&t->slice, i % ranks);
    size_t own = lhi_slice_own(&slice, i % ranks);
    uint32_t shard = replica;
    *first = *n = 0;
    if (shards > 1 && train->o.shard_of)
        shard = train->o.shard_of[replica];
    if (shard < shards)
        find_share(lhi_slice_values(&slice), shards, shard, first, n);
    if (*n > own - (*first < own ? *first : own))
        *n = own - (*first < own ? *first : own);
    return slice;
}

static lh_status put_together(const lhi_train *train, const lhi_tensor *t,
                              uint32_t shards, const float *mine, size_t n,
                              size_t *gets, float *whole, lh_error *err)
{
    uint32_t members = train->o.n_replicas * train->o.n_tensor;
    float *all = malloc((lhi_whole_values(t) + 1) * sizeof *all);
    size_t first;
    if (!all)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < members; i++)
        share_of(train, t, shards, i, &first, &gets[i]);
    lh_status status =
        train->o.collect(train->o.context, mine, n, all, gets, err);
    const float *at = all;
    for (uint32_t i = 0; status == LH_OK && i < members; at += gets[i++]) {
        lhi_slice slice = share_of(train, t, shards, i, &first, &n);
        lhi_slice_put(&slice, at, first, n, whole);
    }
    free(all);
    return status;
}

lh_status lhi_collect_slices(const lhi_train *train, const lhi_tensor *t,
                             uint32_t shards, const float *mine, size_t n,
                             float *whole, lh_error *err)
{
    const lhi_train_options *o = &train->o;
    uint32_t me = o->replica * o->n_tensor + o->tensor;
    size_t first, gives;
    share_of(train, t, shards, me, &first, &gives);
    n = gives < n ? gives : n;
    if (o->replica > 0 || o->tensor > 0)
        return o->collect(o->context, mine, n, NULL, NULL, err);
    size_t *gets = calloc((size_t)o->n_replicas * o->n_tensor, sizeof *gets);
    if (!gets)
        return lhi_fail_nomem(err);
    lh_status status =
        put_together(train, t, shards, mine, n, gets, whole, err);
    free(gets);
    return status;
}
