/* SPDX-License-Identifier: Apache-2.0 */
/* A job's key names and enum values in its file. */
#include "format/job/parse.h"

#include "base/fail.h"
#include "format/job/job_values.h"

#include <string.h>

const char *const lhi_training_keys[] = {
    "global_batch", "sequence",     "precision",
    "optimizer",    "zero",         "recompute",
    "rings",        "dispatcher",   "dropout",
    "balance_loss", "balance_bias", "expert_capacity",
    "imbalance",    "offload",      NULL};
const char *const lhi_offload_keys[] = {"layers", "storage_gbps", NULL};
const char *const lhi_layout_keys[] = {
    "tensor",    "context",   "expert",      "expert_tensor",
    "pipeline",  "data",      "micro_batch", "chunks_per_device",
    "outermost", "sharding",  "schedule",    "sites",
    "layers",    "mtp_chunk", "framework",   "rank_order",
    "packing",   "slices",    NULL};
const char *const lhi_precision_names[] = {"bf16", "fp16", "fp32", NULL};
const char *const lhi_optimizer_names[] = {"adamw", "adam", NULL};
const char *const lhi_recompute_names[] = {"none", "selective", "full", NULL};
const char *const lhi_chosen_recompute_names[] = {
    "none", "selective", "full", "modules", "operations", NULL};
const char *const lhi_module_names[] = {
    "core_attn", "layernorm", "moe_act",        "mla_up_proj",
    "mlp",       "moe",       "shared_experts", NULL};
const char *const lhi_outermost_names[] = {"pipeline", "data", "mixed", NULL};
const char *const lhi_rank_order_names[] = {"pipeline", "data", NULL};
const char *const lhi_packing_names[] = {"dense", "aligned", NULL};
const char *const lhi_sharding_names[] = {"full", "hybrid", "hybrid-leaders",
                                          NULL};
const char *const lhi_target_choices[] = {"any",        "longhaul", "megatron",
                                          "torchtitan", "pytorch",  NULL};
const char *const lhi_dispatcher_names[] = {"alltoall", "deepep", "hybridep",
                                            "allgather", NULL};

const char *lh_precision_name(lh_precision precision)
{
    return lhi_precision_names[precision];
}

const char *lhi_optimizer_name(lh_optimizer optimizer)
{
    return lhi_optimizer_names[optimizer];
}

const char *lh_recompute_name(lh_recompute recompute)
{
    return lhi_chosen_recompute_names[recompute];
}

const char *lh_module_name(lh_module module)
{
    return lhi_module_names[module];
}

const char *lh_outermost_name(lh_outermost outermost)
{
    return outermost == LH_OUTERMOST_ANY ? "any"
                                         : lhi_outermost_names[outermost - 1];
}

const char *lhi_target_name(lh_target target)
{
    return lhi_target_choices[target];
}

lh_status lh_target_find(const char *name, lh_target *target, lh_error *err)
{
    for (int i = LH_TARGET_ANY + 1; lhi_target_choices[i]; i++)
        if (strcmp(lhi_target_choices[i], name) == 0) {
            *target = (lh_target)i;
            return LH_OK;
        }
    return lhi_fail(err, LH_EINVAL,
                    "unknown framework '%.60s'; expected longhaul, megatron, "
                    "torchtitan or pytorch",
                    name);
}

const char *lh_packing_name(lh_packing packing)
{
    return packing == LH_PACKING_ANY ? "any" : lhi_packing_names[packing - 1];
}

const char *lh_sharding_name(lh_sharding sharding)
{
    return sharding == LH_SHARDING_ANY ? "any"
                                       : lhi_sharding_names[sharding - 1];
}
