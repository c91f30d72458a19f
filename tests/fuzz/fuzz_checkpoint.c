/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a checkpoint's state.json. */
#include "fuzz.h"

#include "runtime/training/train_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_model model = {.layers = 1,
                      .hidden = 4,
                      .ffn = 4,
                      .vocab = 8,
                      .heads = 2,
                      .kv_heads = 1,
                      .head_dim = 2,
                      .gated = true};
    lhi_recipe recipe = {.global_batch = 4, .seed = 3};
    lhi_checkpoint_options options = {.recipe = &recipe};
    lhi_checkpoint_state state = {0};
    lh_error err = {0};
    lh_status status =
        lhi_checkpoint_state_parse((const char *)data, size, "state.json",
                                   &model, 2, &options, &state, NULL, &err);
    if (status != LH_OK)
        fuzz_refused(status, &err, state.sums);
    else
        REQUIRE(state.sums && state.replicas > 0, "no sums");
    free(state.sums);
    return 0;
}
