/* SPDX-License-Identifier: Apache-2.0 */
/* Exports the part of a rank's training state that migrates with layers or
 * ranks, or outlives them: everything that the next step depends on. Gradients
 * and exchange arrays are recreated in each step. */
#include "runtime/training/train_internal.h"

#include <string.h>

uint32_t lhi_train_count_tensor_states(const lhi_train *train)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < train->o.n_mine; i++)
        n += train->chunks[i].n_tensors;
    return n;
}

lhi_train_tensor_state lhi_train_get_tensor_state(lhi_train *train, uint32_t i)
{
    const lhi_train_chunk *c = train->chunks;
    for (; i >= c->n_tensors; c++)
        i -= c->n_tensors;
    const lhi_owned_tensor *own = &c->owned[i];
    lhi_train_tensor_state out = {.chunk = c->chunk,
                                  .index = own->tensor->index,
                                  .n = lhi_count_moments(train),
                                  .values = own->tensor->value,
                                  .n_values = own->tensor->n,
                                  .n_moments = own->n};
    memcpy(out.moments, own->moments, sizeof out.moments);
    return out;
}

void lhi_train_set_step(lhi_train *train, uint64_t step)
{
    train->step = step;
}

/* Copies the owned state of all tensors to `bytes` or, with `back`, from it;
 * NULL: copies nothing. Returns its size. */
static size_t copy_owned(const lhi_train *train, char *bytes, bool back)
{
    size_t at = 0;
    const uint32_t n_moments = lhi_count_moments(train);
    for (uint32_t i = 0; i < train->o.n_mine; i++)
        for (uint32_t j = 0; j < train->chunks[i].n_tensors; j++) {
            const lhi_owned_tensor *own = &train->chunks[i].owned[j];
            const size_t size = own->n * sizeof(float);
            for (uint32_t k = 0; k <= n_moments; k++, at += size) {
                float *mine = k < n_moments ? own->moments[k] : own->value;
                if (bytes && size > 0)
                    memcpy(back ? (char *)mine : bytes + at,
                           back ? bytes + at : (char *)mine, size);
            }
        }
    return at;
}

size_t lhi_train_owned_bytes(const lhi_train *train)
{
    return copy_owned(train, NULL, false);
}

/* Extends the FNV-1a hash `hash` by `size` bytes. */
static uint64_t extend_hash(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

double lhi_train_owned_digest(const lhi_train *train)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < train->o.n_mine; i++)
        for (uint32_t j = 0; j < train->chunks[i].n_tensors; j++) {
            const lhi_owned_tensor *own = &train->chunks[i].owned[j];
            const lhi_tensor *t = own->tensor;
            const uint64_t part[] = {train->chunks[i].chunk,
                                     t->n,
                                     t->slice.cut,
                                     t->slice.ranks,
                                     t->slice.mine,
                                     own->first,
                                     own->n,
                                     lhi_count_moments(train)};
            hash = extend_hash(hash, t->name, strlen(t->name));
            hash = extend_hash(hash, part, sizeof part);
        }
    return (double)(hash >> 12);
}

void lhi_train_copy_owned(const lhi_train *train, void *bytes)
{
    copy_owned(train, bytes, false);
}

void lhi_train_set_owned(lhi_train *train, const void *bytes, uint64_t step)
{
    copy_owned(train, (char *)(uintptr_t)bytes, true);
    train->step = step;
}
