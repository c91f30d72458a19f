/* SPDX-License-Identifier: Apache-2.0 */
/* Exports the part of a rank's training state that migrates with layers or
 * ranks: everything that the next step depends on. Gradients and exchange
 * arrays are recreated in each step. */
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
