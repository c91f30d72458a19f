/* SPDX-License-Identifier: Apache-2.0 */
/* Values and gradients of chunks that are sharded, a part at a time. */
#include "base/fail.h"
#include "train/train_own.h"

#include <string.h>

lhi_train_pieces lhi_train_pieces_of(const lhi_train *train, uint32_t chunk)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, chunk);
    lhi_sharded_tensors s = train->device->ops->sharded(train->device, chunk);
    return (lhi_train_pieces){
        .all = c->lots[0].piece,
        .values =
            s.n_values < c->n_tensors ? c->owned[s.n_values].at : c->lots[0].piece,
        .gradients = s.n_gradients < c->n_tensors ? c->owned[s.n_gradients].at
                                                  : c->lots[0].piece,
    };
}

lhi_train_part lhi_train_part_of(const lhi_train *train, uint32_t chunk,
                                 uint32_t first, uint32_t n_tensors)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, chunk);
    uint32_t end = first + n_tensors;
    return (lhi_train_part){
        .chunk = chunk,
        .from = first < c->n_tensors ? c->owned[first].at : c->lots[0].piece,
        .to = end < c->n_tensors ? c->owned[end].at : c->lots[0].piece,
        .base = first < c->n_tensors ? c->owned[first].offset : 0,
    };
}

/* Of one tensor and one replica: `n` values from `first` of the tensor on are
 * in the part, at `at` of its array; then there is filling, up to `room`. */
typedef struct overlap {
    size_t at, first, n, room;
} overlap;

static overlap find_overlap(const lhi_owned *own, const lhi_train_part *part,
                            uint32_t replica)
{
    size_t from = own->at > part->from ? own->at : part->from;
    size_t end = own->at + own->share;
    size_t to = end < part->to ? end : part->to;
    overlap o = {0};
    if (from >= to)
        return o;
    o.room = to - from;
    o.at = replica * (part->to - part->from) + (from - part->from);
    o.first = own->share * replica + (from - own->at);
    if (o.first > own->tensor->n)
        o.first = own->tensor->n;
    o.n = own->tensor->n - o.first < o.room ? own->tensor->n - o.first : o.room;
    return o;
}

void lhi_train_pack_values(const lhi_train *train, const lhi_train_part *part,
                           float *array)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, part->chunk);
    for (uint32_t i = 0; i < c->n_tensors; i++) {
        const lhi_owned *own = &c->owned[i];
        overlap o = find_overlap(own, part, train->o.shard);
        if (o.n > 0)
            memcpy(array + o.at, own->value + (o.first - own->first),
                   o.n * sizeof *array);
        if (o.room > o.n)
            memset(array + o.at + o.n, 0, (o.room - o.n) * sizeof *array);
    }
}

void lhi_train_unpack_values(const lhi_train *train, const lhi_train_part *part,
                             const float *array, float *room)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, part->chunk);
    lhi_sharded_tensors s =
        train->device->ops->sharded(train->device, part->chunk);
    for (uint32_t i = 0; i < c->n_tensors; i++) {
        const lhi_owned *own = &c->owned[i];
        for (uint32_t r = 0; r < train->o.n_shards; r++) {
            overlap o = find_overlap(own, part, r);
            float *to = i < s.n_values ? room : own->tensor->value;
            if (o.n > 0)
                memcpy(to + (i < s.n_values ? own->offset - part->base : 0) +
                           o.first,
                       array + o.at, o.n * sizeof *array);
        }
    }
}

void lhi_train_pack_gradients(const lhi_train *train,
                              const lhi_train_part *part, const float *room,
                              float *array)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, part->chunk);
    lhi_sharded_tensors s =
        train->device->ops->sharded(train->device, part->chunk);
    for (uint32_t i = 0; i < c->n_tensors; i++) {
        const lhi_owned *own = &c->owned[i];
        for (uint32_t r = 0; r < train->o.n_shards; r++) {
            overlap o = find_overlap(own, part, r);
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

void lhi_train_take_sums(lhi_train *train, const lhi_train_part *part,
                         const float *sums, bool adds)
{
    const lhi_train_chunk *c = lhi_train_find_chunk(train, part->chunk);
    size_t n = part->to - part->from;
    if (n > 0 && adds)
        train->k->add(c->lots[0].sums + part->from, sums, n);
    else if (n > 0)
        memcpy(c->lots[0].sums + part->from, sums, n * sizeof *sums);
}

lh_status lhi_train_settle(lhi_train *train, lh_error *err)
{
    lhi_device *device = train->device;
    for (uint32_t i = 0; i < train->o.n_mine; i++) {
        lhi_train_chunk *c = &train->chunks[i];
        uint32_t n = device->ops->sharded(device, c->chunk).n_values;
        size_t room = lhi_train_pieces_of(train, c->chunk).values;
        float *kept = LHI_NEW(train->parameters, float, room);
        if (!kept)
            return lhi_fail_nomem(err);
        for (uint32_t j = 0; j < n; j++) {
            lhi_owned *own = &c->owned[j];
            memcpy(kept + own->at, own->value, own->n * sizeof *kept);
            own->value = kept + own->at;
        }
    }
    device->ops->settle(device);
    return LH_OK;
}
