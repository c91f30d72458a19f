/* SPDX-License-Identifier: Apache-2.0 */
/* Packs and unpacks values and gradients of sharded chunks, one part at a time.
 */
#include "base/fail.h"
#include "runtime/training/train_internal.h"

#include <string.h>

/* Returns the offset of the bucket's (experts or others) first tensor with
 * index `first` or higher in this rank's piece; the piece's size if there is
 * none. A piece is the rank's shards of all tensors of a bucket, one after the
 * other. */
static size_t find_bucket_offset(const lhi_train *train,
                                 const lhi_train_chunk *c,
                                 lhi_train_bucket_kind bucket, uint32_t first)
{
    uint32_t i = first;
    while (i < c->n_tensors &&
           lhi_bucket_of(train, c->owned[i].tensor) != bucket)
        i++;
    return i < c->n_tensors ? c->owned[i].offset_in_piece
                            : c->buckets[bucket].piece;
}

lhi_train_piece_sizes lhi_train_find_piece_sizes(const lhi_train *train,
                                                 uint32_t chunk,
                                                 lhi_train_bucket_kind bucket)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, chunk);
    lhi_sharded_tensors s =
        train->device->ops->sharded_tensors(train->device, chunk);
    return (lhi_train_piece_sizes){
        .all = c->buckets[bucket].piece,
        .values = find_bucket_offset(train, c, bucket, s.n_values),
        .gradients = find_bucket_offset(train, c, bucket, s.n_gradients),
    };
}

lhi_train_part lhi_train_find_part(const lhi_train *train, uint32_t chunk,
                                   uint32_t first, uint32_t n_tensors)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, chunk);
    lhi_train_part part = {
        .chunk = chunk,
        .base = first < c->n_tensors ? c->owned[first].offset : 0,
    };
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++) {
        lhi_train_bucket_kind bucket = (lhi_train_bucket_kind)i;
        part.of[i].from = find_bucket_offset(train, c, bucket, first);
        part.of[i].to = find_bucket_offset(train, c, bucket, first + n_tensors);
    }
    return part;
}

/* Overlap of a part with one replica's piece of one tensor: `n` values from
 * `first` in the tensor, at `at` in the part's array, followed by padding up to
 * `room`. */
typedef struct overlap {
    size_t at, first, n, room;
} overlap;

/* Returns where shard `replica` of a tensor overlaps `part` (a range of each
 * rank's piece of a bucket): its place in the exchange array, its values, and
 * their padded length. Empty if the tensor is in another bucket. */
static overlap find_overlap(const lhi_train *train, const lhi_owned_tensor *own,
                            const lhi_train_part *part,
                            lhi_train_bucket_kind bucket, uint32_t replica)
{
    const lhi_train_range *of = &part->of[bucket];
    size_t from =
        own->offset_in_piece > of->from ? own->offset_in_piece : of->from;
    size_t end = own->offset_in_piece + own->share;
    size_t to = end < of->to ? end : of->to;
    overlap o = {0};
    if (lhi_bucket_of(train, own->tensor) != bucket || from >= to)
        return o;
    o.room = to - from;
    o.at = replica * (of->to - of->from) + (from - of->from);
    o.first = own->share * replica + (from - own->offset_in_piece);
    if (o.first > own->tensor->n)
        o.first = own->tensor->n;
    o.n = own->tensor->n - o.first < o.room ? own->tensor->n - o.first : o.room;
    return o;
}

void lhi_train_pack_values(const lhi_train *train, const lhi_train_part *part,
                           lhi_train_bucket_kind bucket, float *array)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, part->chunk);
    uint32_t mine = lhi_bucket_shard(train, bucket);
    for (uint32_t i = 0; i < c->n_tensors; i++) {
        const lhi_owned_tensor *own = &c->owned[i];
        overlap o = find_overlap(train, own, part, bucket, mine);
        if (o.n > 0)
            memcpy(array + o.at, own->value + (o.first - own->first),
                   o.n * sizeof *array);
        if (o.room > o.n)
            memset(array + o.at + o.n, 0, (o.room - o.n) * sizeof *array);
    }
}

void lhi_train_unpack_values(const lhi_train *train, const lhi_train_part *part,
                             lhi_train_bucket_kind bucket, const float *array,
                             float *room)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, part->chunk);
    lhi_sharded_tensors s =
        train->device->ops->sharded_tensors(train->device, part->chunk);
    for (uint32_t i = 0; i < c->n_tensors; i++) {
        const lhi_owned_tensor *own = &c->owned[i];
        for (uint32_t r = 0; r < lhi_bucket_count_shards(train, bucket); r++) {
            overlap o = find_overlap(train, own, part, bucket, r);
            float *to = i < s.n_values ? room : own->tensor->value;
            if (o.n > 0)
                memcpy(to + (i < s.n_values ? own->offset - part->base : 0) +
                           o.first,
                       array + o.at, o.n * sizeof *array);
        }
    }
}

void lhi_train_pack_gradients(const lhi_train *train,
                              const lhi_train_part *part,
                              lhi_train_bucket_kind bucket, const float *room,
                              float *array)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, part->chunk);
    lhi_sharded_tensors s =
        train->device->ops->sharded_tensors(train->device, part->chunk);
    for (uint32_t i = 0; i < c->n_tensors; i++) {
        const lhi_owned_tensor *own = &c->owned[i];
        for (uint32_t r = 0; r < lhi_bucket_count_shards(train, bucket); r++) {
            overlap o = find_overlap(train, own, part, bucket, r);
            const float *from =
                i < s.n_gradients ? room : own->tensor->gradient;
            if (o.n > 0)
                memcpy(array + o.at,
                       from +
                           (i < s.n_gradients ? own->offset - part->base : 0) +
                           o.first,
                       o.n * sizeof *array);
            if (o.room > o.n)
                memset(array + o.at + o.n, 0, (o.room - o.n) * sizeof *array);
        }
    }
}

void lhi_train_store_sums(lhi_train *train, uint32_t chunk,
                          lhi_train_bucket_kind bucket, lhi_train_range range,
                          const float *sums, bool adds)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, chunk);
    size_t n = range.to - range.from;
    if (n > 0 && adds)
        train->k->add(c->buckets[bucket].sums + range.from, sums, n);
    else if (n > 0)
        memcpy(c->buckets[bucket].sums + range.from, sums, n * sizeof *sums);
}

/* Copies this rank's shards of a bucket's sharded parameters from the device to
 * the trainer's memory, so that finalise() can free the full ones on the
 * device. False: out of memory. */
static bool store_bucket(lhi_train *train, lhi_train_chunk *c,
                         lhi_train_bucket_kind bucket)
{
    uint32_t n =
        train->device->ops->sharded_tensors(train->device, c->chunk).n_values;
    size_t room = lhi_train_find_piece_sizes(train, c->chunk, bucket).values;
    float *kept = LHI_NEW(train->parameters, float, room);
    for (uint32_t j = 0; kept && j < n; j++) {
        lhi_owned_tensor *own = &c->owned[j];
        if (lhi_bucket_of(train, own->tensor) != bucket)
            continue;
        memcpy(kept + own->offset_in_piece, own->value, own->n * sizeof *kept);
        own->value = kept + own->offset_in_piece;
    }
    return kept;
}

lh_status lhi_train_finalise(lhi_train *train, lh_error *err)
{
    lhi_device *device = train->device;
    for (uint32_t i = 0; i < train->o.n_mine * LHI_N_TRAIN_BUCKETS; i++)
        if (!store_bucket(train, &train->chunks[i / LHI_N_TRAIN_BUCKETS],
                          (lhi_train_bucket_kind)(i % LHI_N_TRAIN_BUCKETS)))
            return lhi_fail_nomem(err);
    device->ops->finalise(device);
    return LH_OK;
}
