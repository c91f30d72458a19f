/* SPDX-License-Identifier: Apache-2.0 */
#include "interop/export/bridge_fields.h"

#define SAME(argument, part)                                                   \
    {                                                                          \
        argument, LHI_BRIDGE_##part, LHI_BRIDGE_SAME, 0, 0                     \
    }
#define TEXT(argument, part)                                                   \
    {                                                                          \
        argument, LHI_BRIDGE_##part, LHI_BRIDGE_TEXT, 0, 0                     \
    }
#define TRUE(argument, part)                                                   \
    {                                                                          \
        argument, LHI_BRIDGE_##part, LHI_BRIDGE_FIXED, 0, "True"               \
    }
#define AS(argument, part, value, field, text)                                 \
    {                                                                          \
        argument, LHI_BRIDGE_##part, LHI_BRIDGE_##value, field, text           \
    }
#define NONE(argument)                                                         \
    {                                                                          \
        argument, LHI_BRIDGE_MODEL, LHI_BRIDGE_NONE, 0, 0                      \
    }

const lhi_bridge_field lhi_bridge_fields[] = {
    /* Model. */
    SAME("num-layers", MODEL),
    SAME("hidden-size", MODEL),
    SAME("num-attention-heads", MODEL),
    TRUE("multi-latent-attention", MODEL),
    SAME("q-lora-rank", MODEL),
    SAME("kv-lora-rank", MODEL),
    SAME("qk-head-dim", MODEL),
    SAME("qk-pos-emb-head-dim", MODEL),
    SAME("v-head-dim", MODEL),
    SAME("kv-channels", MODEL),
    NONE("group-query-attention"), /* num_query_groups implies it */
    SAME("num-query-groups", MODEL),
    TRUE("qk-layernorm", MODEL),
    TEXT("softmax-type", MODEL),
    AS("window-size", MODEL, TUPLE, 0, 0),
    SAME("window-attn-skip-freq", MODEL),
    TEXT("position-embedding-type", MODEL),
    SAME("rotary-base", MODEL),
    SAME("rotary-percent", MODEL),
    AS("use-rope-scaling", MODEL, FIXED, "rope_scaling", "True"),
    SAME("rope-scaling-factor", MODEL),
    TEXT("rope-type", MODEL),
    SAME("rotary-scaling-factor", MODEL),
    SAME("mscale", MODEL),
    SAME("mscale-all-dim", MODEL),
    NONE("max-position-embeddings"), /* equals the sequence length */
    SAME("ffn-hidden-size", MODEL),
    AS("swiglu", MODEL, FIXED, "activation_func", "F.silu"),
    AS("swiglu", MODEL, FIXED, "gated_linear_unit", "True"),
    AS("squared-relu", MODEL, FIXED, "activation_func", "squared_relu"),
    AS("quick-geglu", MODEL, FIXED, "activation_func", "quick_gelu"),
    AS("quick-geglu", MODEL, FIXED, "gated_linear_unit", "True"),
    SAME("glu-linear-offset", MODEL),
    SAME("activation-func-clamp-value", MODEL),
    NONE("no-bias-gelu-fusion"), /* bias_activation_fusion */
    AS("num-experts", MODEL, SAME, "num_moe_experts", 0),
    SAME("moe-router-topk", MODEL),
    SAME("moe-ffn-hidden-size", MODEL),
    SAME("moe-shared-expert-intermediate-size", MODEL),
    TRUE("moe-shared-expert-gate", MODEL),
    SAME("moe-layer-freq", MODEL),
    TRUE("moe-grouped-gemm", MODEL),
    TEXT("moe-router-score-function", MODEL),
    TRUE("moe-router-enable-expert-bias", MODEL),
    SAME("moe-router-num-groups", MODEL),
    SAME("moe-router-group-topk", MODEL),
    SAME("moe-router-topk-scaling-factor", MODEL),
    TEXT("moe-router-load-balancing-type", MODEL),
    TEXT("moe-router-dtype", MODEL),
    TRUE("moe-router-pre-softmax", MODEL),
    SAME("moe-aux-loss-coeff", MODEL),
    SAME("moe-router-bias-update-rate", MODEL),
    SAME("moe-expert-capacity-factor", MODEL),
    TEXT("moe-token-drop-policy", MODEL),
    TEXT("normalization", MODEL),
    AS("norm-epsilon", MODEL, SAME, "layernorm_epsilon", 0),
    SAME("init-method-std", MODEL),
    AS("apply-layernorm-1p", MODEL, FIXED, "layernorm_zero_centered_gamma",
       "True"),
    TRUE("qk-l2-norm", MODEL),
    SAME("no-rope-freq", MODEL),
    AS("disable-bias-linear", MODEL, FIXED, "add_bias_linear", "False"),
    TRUE("add-qkv-bias", MODEL),
    AS("untie-embeddings-and-output-weights", MODEL, FIXED,
       "share_embeddings_and_output_weights", "False"),
    NONE("vocab-size"), /* the padded size */
    NONE("make-vocab-size-divisible-by"),
    SAME("mtp-num-layers", MODEL),
    SAME("hidden-dropout", MODEL),
    SAME("attention-dropout", MODEL),
    SAME("seq-length", MODEL),
    SAME("seq-length", DATASET),
    /* Plan. */
    SAME("tensor-model-parallel-size", MODEL),
    SAME("context-parallel-size", MODEL),
    SAME("expert-model-parallel-size", MODEL),
    SAME("expert-tensor-parallel-size", MODEL),
    TEXT("moe-token-dispatcher-type", MODEL),
    TEXT("moe-flex-dispatcher-backend", MODEL),
    SAME("pipeline-model-parallel-size", MODEL),
    TEXT("pipeline-model-parallel-layout", MODEL),
    AS("microbatch-group-size-per-virtual-pipeline-stage", MODEL, SAME,
       "microbatch_group_size_per_vp_stage", 0),
    NONE("no-overlap-p2p-communication"), /* overlap_p2p_comm, batch_p2p_comm */
    TRUE("use-tp-pp-dp-mapping", DIST),
    SAME("micro-batch-size", TRAIN),
    SAME("global-batch-size", TRAIN),
    TRUE("sequence-parallel", MODEL),
    AS("attention-backend", MODEL, ENUM, 0, "AttnBackend."),
    TRUE("tp-comm-overlap", MODEL),
    TRUE("overlap-moe-expert-parallel-comm", MODEL),
    TEXT("recompute-granularity", MODEL),
    AS("recompute-modules", MODEL, TEXTS, 0, 0),
    TEXT("recompute-method", MODEL),
    SAME("recompute-num-layers", MODEL),
    /* Precision; setup() copies it to model, optimizer and gradients. */
    TRUE("bf16", PRECISION),
    AS("bf16", PRECISION, FIXED, "params_dtype", "torch.bfloat16"),
    AS("bf16", PRECISION, FIXED, "pipeline_dtype", "torch.bfloat16"),
    TRUE("fp16", PRECISION),
    AS("fp16", PRECISION, FIXED, "params_dtype", "torch.float16"),
    AS("fp16", PRECISION, FIXED, "pipeline_dtype", "torch.float16"),
    NONE("grad-reduce-in-bf16"), /* grad_reduce_in_fp32 */
    NONE("accumulate-allreduce-grads-in-fp32"),
    AS("fp8-format", PRECISION, TEXT, "fp8", 0),
    AS("fp8-format", PRECISION, FIXED, "fp8_recipe", "\"delayed\""),
    TRUE("fp8-param-gather", PRECISION),
    /* Optimizer state. */
    TRUE("use-distributed-optimizer", DDP),
    TRUE("use-distributed-optimizer", OPTIMIZER),
    TRUE("overlap-grad-reduce", DDP),
    TRUE("overlap-param-gather", DDP),
    TRUE("overlap-param-gather", OPTIMIZER),
    SAME("num-distributed-optimizer-instances", DDP),
    NONE("ddp-num-buckets"), /* bucket_size */
    TRUE("use-megatron-fsdp", DDP),
    TRUE("use-megatron-fsdp", DIST),
    TEXT("data-parallel-sharding-strategy", DDP),
    TEXT("ckpt-format", CHECKPOINT),
};

const size_t lhi_n_bridge_fields =
    sizeof lhi_bridge_fields / sizeof *lhi_bridge_fields;
