/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a Hugging Face config.json. */
#include "format/job/model_size.h"
#include "fuzz.h"

#include <longhaul/experimental/model.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lh_model *model = NULL;
    lh_error err = {0};
    lh_status status =
        lhi_model_parse((const char *)data, size, "config.json", &model, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, model);
        return 0;
    }
    lh_layer_params sum = lhi_model_range_params(model, 0, model->layers);
    REQUIRE(sum.active <= sum.total, "more parameters are active than exist");
    REQUIRE(lhi_model_moe_layers(model, 0, model->layers) <= model->layers,
            "more MoE layers than layers");
    lh_model_free(model);
    return 0;
}
