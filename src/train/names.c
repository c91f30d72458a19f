/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors stored in a checkpoint, in the model's order, and the checksum.
 */
#include "train/train_own.h"

#include <string.h>

uint32_t lhi_n_kept_tensors(const lh_model *model)
{
    return lhi_n_model_tensors(model);
}

bool lhi_kept_tensor_of(const lh_model *model, uint32_t index,
                        lhi_kept_tensor *out)
{
    lhi_model_tensor_of(model, index, out);
    return !out->copies;
}

/* Each step is a bijection of the state for a given word, and of the word for a
 * given state. One wrong word is therefore always detected before the final
 * truncation, and several with near certainty. */
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
