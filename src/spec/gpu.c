/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs by name, from NVIDIA's datasheets: dense (without sparsity) tensor-core
 * rate in 16 bit, memory, memory bandwidth. docs/formats/job.md names them. */
#include "spec/spec.h"

#include <string.h>

#define GPU(gpu, peak, gib, gbytes)                                            \
    {                                                                          \
        .name = gpu, .preset = gpu, .tflops = peak,                            \
        .flops_per_s = peak * 1e12, .memory_gib = gib,                         \
        .memory_bytes = INT64_C(gib) << 30, .memory_gbps = gbytes,             \
        .memory_bytes_per_s = gbytes * 1e9                                     \
    }

static const lh_gpu presets[] = {
    GPU("v100-32g", 125, 32, 900),  GPU("a100-40g", 312, 40, 1555),
    GPU("a100-80g", 312, 80, 2039), GPU("h100-sxm", 989.5, 80, 3350),
    GPU("h200", 989.5, 141, 4800),  GPU("gh200", 989.5, 96, 4000),
    GPU("b200", 2250, 180, 8000),
};

static const char *const preset_names[] = {
    "v100-32g", "a100-40g", "a100-80g", "h100-sxm",
    "h200",     "gh200",    "b200",     NULL,
};

const char *const *lh_gpu_presets(void)
{
    return preset_names;
}

const lh_gpu *lh_gpu_preset(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

/* Volta's tensor cores know fp16 only. */
bool lhi_gpu_preset_has(const char *preset, lh_precision precision)
{
    return precision == LH_PRECISION_FP16 ||
           (precision == LH_PRECISION_BF16 && strcmp(preset, "v100-32g") != 0);
}
