/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a configuration of torchtitan, DeepSpeed, NeMo or Megatron-Bridge;
 * imported by each of their parsers, with its own model and with another. */
#include "fuzz.h"
#include "run_import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    run_import(LH_IMPORT_TORCHTITAN, data, size, NULL, NULL);
    run_import(LH_IMPORT_TORCHTITAN, data, size, lh_model_preset("llama3-8b"),
               "zb-h1");
    run_import(LH_IMPORT_DEEPSPEED, data, size, lh_model_preset("llama3-8b"),
               NULL);
    run_import(LH_IMPORT_NEMO, data, size, NULL, NULL);
    run_import(LH_IMPORT_NEMO, data, size, lh_model_preset("llama3-8b"), NULL);
    return 0;
}
