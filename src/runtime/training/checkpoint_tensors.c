/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors stored in a checkpoint, in the model's order, and the checksum.
 */
#include "runtime/training/train_internal.h"

#include <string.h>

uint32_t lhi_checkpoint_count_tensors(const lh_model *model)
{
    return lhi_count_model_tensors(model);
}

bool lhi_checkpoint_get_tensor(const lh_model *model, uint32_t index,
                               lhi_checkpoint_tensor *out)
{
    lhi_describe_model_tensor(model, index, out);
    return !out->is_tied_copy;
}

/* Returns a checksum of `bytes` bytes as an integral double. A single wrong
 * 8-byte word always changes the state before its final truncation; several do
 * with near certainty. */
double lhi_checksum(const void *data, size_t bytes)
{
    const char *from = data;
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15) ^ bytes;
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        size_t n = bytes - i < sizeof word ? bytes - i : sizeof word;
        memcpy(&word, from + i, n);
        state = (state ^ word) * UINT64_C(0xff51afd7ed558ccd);
        state ^= state >> 32;
    }
    state *= UINT64_C(0xc4ceb9fe1a85ec53);
    return (double)(state >> 12);
}
