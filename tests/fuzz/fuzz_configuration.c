/* SPDX-License-Identifier: Apache-2.0 */
/* Input: torchtitan options or TOML; imported with torchtitan's own model and
 * with another model. */
#include "fuzz.h"
#include "run_import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    run_import(LH_IMPORT_TORCHTITAN, data, size, NULL, NULL);
    run_import(LH_IMPORT_TORCHTITAN, data, size, lh_model_preset("llama3-8b"),
               "zb-h1");
    return 0;
}
