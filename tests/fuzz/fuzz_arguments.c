/* SPDX-License-Identifier: Apache-2.0 */
/* Input: Megatron-LM arguments. */
#include "fuzz.h"
#include "run_import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    run_import(LH_IMPORT_MEGATRON, data, size, NULL, NULL);
    return 0;
}
