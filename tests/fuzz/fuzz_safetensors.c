/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a safetensors file up to the end of its header. */
#include "fuzz.h"

#include "runtime/training/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lhi_safetensors *file = NULL;
    lh_error err = {0};
    uint64_t length = 0, bytes = (uint64_t)size + 4096;
    if (size < 8)
        return 0;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)data[i] << (8 * i);
    if (length > size - 8)
        length = size - 8;
    lh_status status = lhi_st_parse((const char *)data + 8, (size_t)length,
                                    bytes, "x.safetensors", &file, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, file);
        return 0;
    }
    const lhi_st_tensor *t = NULL;
    if (lhi_st_find(file, "a", 2, 3, &t, &err) == LH_OK)
        REQUIRE(t->n == 6 && t->at >= 8 + length && t->at + 12 <= bytes,
                "tensor a lies at %llu", (unsigned long long)t->at);
    if (lhi_st_find(file, "b", 4, 0, &t, &err) == LH_OK)
        REQUIRE(t->n == 4 && t->at + 8 <= bytes, "tensor b lies at %llu",
                (unsigned long long)t->at);
    lhi_st_close(file);
    return 0;
}
