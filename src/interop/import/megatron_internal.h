/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-LM's arguments as given. */
#ifndef LHI_INTEROP_IMPORT_MEGATRON_INTERNAL_H
#define LHI_INTEROP_IMPORT_MEGATRON_INTERNAL_H

#include "interop/import/import_internal.h"
#include "interop/import/input_value.h"

/* The number of words that follow an argument's name. */
typedef enum lhi_arity {
    LHI_ARITY_FLAG,
    LHI_ARITY_ONE,
    LHI_ARITY_PATH, /* one, of which shell expansions do not matter */
    LHI_ARITY_THREE,
    LHI_ARITY_SOME, /* up to the next argument */
} lhi_arity;

/* An argument's treatment without a counterpart in the job. */
typedef enum lhi_argument_kind {
    LHI_ARGUMENT_UNKNOWN, /* not one of Megatron-LM's */
    LHI_ARGUMENT_READ,    /* has a counterpart */
    LHI_ARGUMENT_IGNORED, /* no effect on cost */
    LHI_ARGUMENT_NOTED,   /* accepted; `why`: how it is costed */
    LHI_ARGUMENT_REFUSED, /* rejected; `why`: the reason */
} lhi_argument_kind;

/* An argument without a counterpart. */
typedef struct lhi_unmapped_argument {
    lhi_argument_kind kind;
    lhi_arity arity;
    const char *why;
} lhi_unmapped_argument;

/* Checks whether an argument, given without dashes, has no effect on time and
 * memory. *arity then receives the word count after it. */
bool lhi_megatron_is_ignored(const char *name, lhi_arity *arity);
/* Returns how to treat an argument without a counterpart in the job, and the
 * word count after it. `name` is without its dashes. */
lhi_unmapped_argument lhi_megatron_find_unmapped(const char *name);

/* Finds Megatron-LM's argument `name` (without dashes): *arity, how many values
 * it takes, and *kind, how the import treats it. Returns false if Megatron-LM
 * has no such argument. */
bool lhi_megatron_find_argument(const char *name, lhi_arity *arity,
                                lhi_argument_kind *kind);

/* The arguments with a counterpart in the job. */
#define LHI_MEGATRON_LIST(X)                                                   \
    X(ACCOUNT_FOR_EMBEDDING_IN_PIPELINE_SPLIT,                                 \
      "account-for-embedding-in-pipeline-split", FLAG)                         \
    X(ACCOUNT_FOR_LOSS_IN_PIPELINE_SPLIT,                                      \
      "account-for-loss-in-pipeline-split", FLAG)                              \
    X(ACCUMULATE_ALLREDUCE_GRADS_IN_FP32,                                      \
      "accumulate-allreduce-grads-in-fp32", FLAG)                              \
    X(ACTIVATION_FUNC_CLAMP_VALUE, "activation-func-clamp-value", ONE)         \
    X(ADD_QKV_BIAS, "add-qkv-bias", FLAG)                                      \
    X(APPLY_LAYERNORM_1P, "apply-layernorm-1p", FLAG)                          \
    X(ATTENTION_BACKEND, "attention-backend", ONE)                             \
    X(ATTENTION_DROPOUT, "attention-dropout", ONE)                             \
    X(ATTENTION_OUTPUT_GATE, "attention-output-gate", FLAG)                    \
    X(BF16, "bf16", FLAG)                                                      \
    X(CONTEXT_PARALLEL_SIZE, "context-parallel-size", ONE)                     \
    X(DATA_PARALLEL_SHARDING_STRATEGY, "data-parallel-sharding-strategy", ONE) \
    X(DDP_BUCKET_SIZE, "ddp-bucket-size", ONE)                                 \
    X(DDP_NUM_BUCKETS, "ddp-num-buckets", ONE)                                 \
    X(DECODER_FIRST_PIPELINE_NUM_LAYERS, "decoder-first-pipeline-num-layers",  \
      ONE)                                                                     \
    X(DECODER_LAST_PIPELINE_NUM_LAYERS, "decoder-last-pipeline-num-layers",    \
      ONE)                                                                     \
    X(DISABLE_BIAS_LINEAR, "disable-bias-linear", FLAG)                        \
    X(DSA_INDEXER_HEAD_DIM, "dsa-indexer-head-dim", ONE)                       \
    X(DSA_INDEXER_N_HEADS, "dsa-indexer-n-heads", ONE)                         \
    X(DSA_INDEXER_TOPK, "dsa-indexer-topk", ONE)                               \
    X(ENCODER_NUM_LAYERS, "encoder-num-layers", ONE)                           \
    X(ENCODER_SEQ_LENGTH, "encoder-seq-length", ONE)                           \
    X(EXPERIMENTAL_ATTENTION_VARIANT, "experimental-attention-variant", ONE)   \
    X(EXPERT_MODEL_PARALLEL_SIZE, "expert-model-parallel-size", ONE)           \
    X(EXPERT_TENSOR_PARALLEL_SIZE, "expert-tensor-parallel-size", ONE)         \
    X(FFN_HIDDEN_SIZE, "ffn-hidden-size", ONE)                                 \
    X(FP16, "fp16", FLAG)                                                      \
    X(FP8_FORMAT, "fp8-format", ONE)                                           \
    X(FP8_PARAM_GATHER, "fp8-param-gather", FLAG)                              \
    X(GLOBAL_BATCH_SIZE, "global-batch-size", ONE)                             \
    X(GLU_LINEAR_OFFSET, "glu-linear-offset", ONE)                             \
    X(GRAD_REDUCE_IN_BF16, "grad-reduce-in-bf16", FLAG)                        \
    X(GROUP_QUERY_ATTENTION, "group-query-attention", FLAG)                    \
    X(HIDDEN_DROPOUT, "hidden-dropout", ONE)                                   \
    X(HIDDEN_SIZE, "hidden-size", ONE)                                         \
    X(HYBRID_LAYER_PATTERN, "hybrid-layer-pattern", ONE)                       \
    X(HYBRID_OVERRIDE_PATTERN, "hybrid-override-pattern", ONE)                 \
    X(INIT_METHOD_STD, "init-method-std", ONE)                                 \
    X(KV_CHANNELS, "kv-channels", ONE)                                         \
    X(KV_LORA_RANK, "kv-lora-rank", ONE)                                       \
    X(LINEAR_ATTENTION_FREQ, "linear-attention-freq", ONE)                     \
    X(LINEAR_CONV_KERNEL_DIM, "linear-conv-kernel-dim", ONE)                   \
    X(LINEAR_KEY_HEAD_DIM, "linear-key-head-dim", ONE)                         \
    X(LINEAR_NUM_KEY_HEADS, "linear-num-key-heads", ONE)                       \
    X(LINEAR_NUM_VALUE_HEADS, "linear-num-value-heads", ONE)                   \
    X(LINEAR_VALUE_HEAD_DIM, "linear-value-head-dim", ONE)                     \
    X(MAIN_GRADS_DTYPE, "main-grads-dtype", ONE)                               \
    X(MAKE_VOCAB_SIZE_DIVISIBLE_BY, "make-vocab-size-divisible-by", ONE)       \
    X(MAMBA_HEAD_DIM, "mamba-head-dim", ONE)                                   \
    X(MAMBA_NUM_GROUPS, "mamba-num-groups", ONE)                               \
    X(MAMBA_NUM_HEADS, "mamba-num-heads", ONE)                                 \
    X(MAMBA_STATE_DIM, "mamba-state-dim", ONE)                                 \
    X(MAX_POSITION_EMBEDDINGS, "max-position-embeddings", ONE)                 \
    X(MICRO_BATCH_SIZE, "micro-batch-size", ONE)                               \
    X(MICROBATCH_GROUP_SIZE_PER_VIRTUAL_PIPELINE_STAGE,                        \
      "microbatch-group-size-per-virtual-pipeline-stage", ONE)                 \
    X(MODEL_PROVIDER, "model-provider", ONE)                                   \
    X(MOE_AUX_LOSS_COEFF, "moe-aux-loss-coeff", SOME)                          \
    X(MOE_ENABLE_DEEPEP, "moe-enable-deepep", FLAG)                            \
    X(MOE_FFN_HIDDEN_SIZE, "moe-ffn-hidden-size", ONE)                         \
    X(MOE_FLEX_DISPATCHER_BACKEND, "moe-flex-dispatcher-backend", ONE)         \
    X(MOE_GROUPED_GEMM, "moe-grouped-gemm", FLAG)                              \
    X(MOE_LATENT_SIZE, "moe-latent-size", ONE)                                 \
    X(MOE_LAYER_FREQ, "moe-layer-freq", ONE)                                   \
    X(MOE_LAYER_RECOMPUTE, "moe-layer-recompute", FLAG)                        \
    X(MOE_ROUTER_BIAS_UPDATE_RATE, "moe-router-bias-update-rate", ONE)         \
    X(MOE_ROUTER_ENABLE_EXPERT_BIAS, "moe-router-enable-expert-bias", FLAG)    \
    X(MOE_ROUTER_GROUP_TOPK, "moe-router-group-topk", ONE)                     \
    X(MOE_ROUTER_LOAD_BALANCING_TYPE, "moe-router-load-balancing-type", SOME)  \
    X(MOE_ROUTER_NUM_GROUPS, "moe-router-num-groups", ONE)                     \
    X(MOE_ROUTER_PRE_SOFTMAX, "moe-router-pre-softmax", FLAG)                  \
    X(MOE_ROUTER_SCORE_FUNCTION, "moe-router-score-function", ONE)             \
    X(MOE_ROUTER_TOPK, "moe-router-topk", ONE)                                 \
    X(MOE_ROUTER_TOPK_SCALING_FACTOR, "moe-router-topk-scaling-factor", ONE)   \
    X(MOE_SHARED_EXPERT_GATE, "moe-shared-expert-gate", FLAG)                  \
    X(MOE_SHARED_EXPERT_INTERMEDIATE_SIZE,                                     \
      "moe-shared-expert-intermediate-size", ONE)                              \
    X(MOE_SHARED_EXPERT_OVERLAP, "moe-shared-expert-overlap", FLAG)            \
    X(MOE_TOKEN_DISPATCHER_TYPE, "moe-token-dispatcher-type", ONE)             \
    X(MSCALE, "mscale", ONE)                                                   \
    X(MSCALE_ALL_DIM, "mscale-all-dim", ONE)                                   \
    X(MTP_HYBRID_OVERRIDE_PATTERN, "mtp-hybrid-override-pattern", ONE)         \
    X(MTP_NUM_LAYERS, "mtp-num-layers", ONE)                                   \
    X(MULTI_LATENT_ATTENTION, "multi-latent-attention", FLAG)                  \
    X(NO_BIAS_GELU_FUSION, "no-bias-gelu-fusion", FLAG)                        \
    X(NO_OVERLAP_P2P_COMMUNICATION, "no-overlap-p2p-communication", FLAG)      \
    X(NO_ROPE_FREQ, "no-rope-freq", ONE)                                       \
    X(NORM_EPSILON, "norm-epsilon", ONE)                                       \
    X(NORMALIZATION, "normalization", ONE)                                     \
    X(NUM_ATTENTION_HEADS, "num-attention-heads", ONE)                         \
    X(NUM_DISTRIBUTED_OPTIMIZER_INSTANCES,                                     \
      "num-distributed-optimizer-instances", ONE)                              \
    X(NUM_EXPERTS, "num-experts", ONE)                                         \
    X(NUM_LAYERS, "num-layers", ONE)                                           \
    X(NUM_LAYERS_PER_VIRTUAL_PIPELINE_STAGE,                                   \
      "num-layers-per-virtual-pipeline-stage", ONE)                            \
    X(NUM_QUERY_GROUPS, "num-query-groups", ONE)                               \
    X(NUM_VIRTUAL_STAGES_PER_PIPELINE_RANK,                                    \
      "num-virtual-stages-per-pipeline-rank", ONE)                             \
    X(OPTIMIZER, "optimizer", ONE)                                             \
    X(OVERLAP_GRAD_REDUCE, "overlap-grad-reduce", FLAG)                        \
    X(OVERLAP_MOE_EXPERT_PARALLEL_COMM, "overlap-moe-expert-parallel-comm",    \
      FLAG)                                                                    \
    X(OVERLAP_PARAM_GATHER, "overlap-param-gather", FLAG)                      \
    X(PADDED_VOCAB_SIZE, "padded-vocab-size", ONE)                             \
    X(PIPELINE_MODEL_PARALLEL_LAYOUT, "pipeline-model-parallel-layout", ONE)   \
    X(PIPELINE_MODEL_PARALLEL_SIZE, "pipeline-model-parallel-size", ONE)       \
    X(POSITION_EMBEDDING_TYPE, "position-embedding-type", ONE)                 \
    X(Q_LORA_RANK, "q-lora-rank", ONE)                                         \
    X(QK_HEAD_DIM, "qk-head-dim", ONE)                                         \
    X(QK_L2_NORM, "qk-l2-norm", FLAG)                                          \
    X(QK_LAYERNORM, "qk-layernorm", FLAG)                                      \
    X(QK_POS_EMB_HEAD_DIM, "qk-pos-emb-head-dim", ONE)                         \
    X(QUICK_GEGLU, "quick-geglu", FLAG)                                        \
    X(RECOMPUTE_ACTIVATIONS, "recompute-activations", FLAG)                    \
    X(RECOMPUTE_GRANULARITY, "recompute-granularity", ONE)                     \
    X(RECOMPUTE_METHOD, "recompute-method", ONE)                               \
    X(RECOMPUTE_MODULES, "recompute-modules", SOME)                            \
    X(RECOMPUTE_NUM_LAYERS, "recompute-num-layers", ONE)                       \
    X(ROPE_SCALING_FACTOR, "rope-scaling-factor", ONE)                         \
    X(ROPE_TYPE, "rope-type", ONE)                                             \
    X(ROTARY_BASE, "rotary-base", ONE)                                         \
    X(ROTARY_PERCENT, "rotary-percent", ONE)                                   \
    X(ROTARY_SCALING_FACTOR, "rotary-scaling-factor", ONE)                     \
    X(SEQ_LENGTH, "seq-length", ONE)                                           \
    X(SEQUENCE_PARALLEL, "sequence-parallel", FLAG)                            \
    X(SOFTMAX_TYPE, "softmax-type", ONE)                                       \
    X(SQUARED_RELU, "squared-relu", FLAG)                                      \
    X(STEP_BATCH_SIZE_SCHEDULE, "step-batch-size-schedule", ONE)               \
    X(SWIGLU, "swiglu", FLAG)                                                  \
    X(TENSOR_MODEL_PARALLEL_SIZE, "tensor-model-parallel-size", ONE)           \
    X(TOKENIZER_MODEL, "tokenizer-model", PATH)                                \
    X(TOKENIZER_TYPE, "tokenizer-type", PATH)                                  \
    X(TORCH_FSDP2_NO_RESHARD_AFTER_FORWARD,                                    \
      "torch-fsdp2-no-reshard-after-forward", FLAG)                            \
    X(TP_COMM_OVERLAP, "tp-comm-overlap", FLAG)                                \
    X(TRANSFORMER_IMPL, "transformer-impl", ONE)                               \
    X(UNTIE_EMBEDDINGS_AND_OUTPUT_WEIGHTS,                                     \
      "untie-embeddings-and-output-weights", FLAG)                             \
    X(USE_DISTRIBUTED_OPTIMIZER, "use-distributed-optimizer", FLAG)            \
    X(USE_FLASH_ATTN, "use-flash-attn", FLAG)                                  \
    X(USE_MEGATRON_FSDP, "use-megatron-fsdp", FLAG)                            \
    X(USE_ROPE_SCALING, "use-rope-scaling", FLAG)                              \
    X(USE_ROTARY_POSITION_EMBEDDINGS, "use-rotary-position-embeddings", FLAG)  \
    X(USE_TORCH_FSDP2, "use-torch-fsdp2", FLAG)                                \
    X(USE_TP_PP_DP_MAPPING, "use-tp-pp-dp-mapping", FLAG)                      \
    X(V_HEAD_DIM, "v-head-dim", ONE)                                           \
    X(VOCAB_FILE, "vocab-file", PATH)                                          \
    X(VOCAB_SIZE, "vocab-size", ONE)                                           \
    X(WINDOW_ATTN_SKIP_FREQ, "window-attn-skip-freq", ONE)                     \
    X(WINDOW_SIZE, "window-size", ONE)

/* One key per argument with a counterpart. */
typedef enum lhi_megatron_key {
#define LHI_MEGATRON_ROW(key, name, arity) LHI_ARG_##key,
    LHI_MEGATRON_LIST(LHI_MEGATRON_ROW)
#undef LHI_MEGATRON_ROW
        LHI_N_ARGS
} lhi_megatron_key;

/* All arguments as given, and the GPUs. */
typedef struct lhi_megatron {
    const char *file;
    bool from_checkpoint; /* --use-checkpoint-args */
    uint32_t gpus; /* torchrun's --nnodes x --nproc-per-node; 0: unknown */
    lhi_input_value args[LHI_N_ARGS];
} lhi_megatron;

/* Checks whether a text is a model_config.yaml rather than a command line:
 * whether it begins with a map's key, after comments. */
bool lhi_megatron_is_config(const char *text, size_t len);
/* Reads the map MODEL_ARGS of a model_config.yaml as a command line's words,
 * and records the file's other keys. */
lh_status lhi_megatron_read_config(const char *text, size_t len,
                                   const char *name, lhi_imported_job *in,
                                   lhi_command_line *out, lh_error *err);
/* Reads the words of a command line into *out: GPUs and arguments. Records
 * arguments without a counterpart in the job.
 * LH_EINPUT: there are no arguments, or one is invalid. */
lh_status lhi_megatron_read(const lhi_command_line *words, lhi_imported_job *in,
                            lhi_megatron *out, lh_error *err);

/* Records for each key of the job the argument that sets it, for messages. */
lh_status lhi_megatron_add_origins(const lhi_megatron *m, lhi_imported_job *in,
                                   lh_error *err);

/* Checks whether an argument is given on the command line. */
bool lhi_arg_is_given(const lhi_megatron *m, lhi_megatron_key key);
/* Fails with `code` and "file:line: --name: message". */
lh_status lhi_arg_fail(const lhi_megatron *m, lhi_megatron_key key,
                       lh_status code, lh_error *err, const char *format, ...)
    LHI_PRINTF(5, 6);
/* Reads an integer argument in least..most; *out is unchanged if it is not
 * given.
 * LH_EINPUT: the value is not such an integer. */
lh_status lhi_arg_get_integer(const lhi_megatron *m, lhi_megatron_key key,
                              uint32_t least, uint32_t most, uint32_t *out,
                              lh_error *err);
/* Reads an integer argument in least..most that must be given.
 * LH_EINPUT: it is missing or invalid. */
lh_status lhi_arg_require_integer(const lhi_megatron *m, lhi_megatron_key key,
                                  uint32_t least, uint32_t most, uint32_t *out,
                                  lh_error *err);
/* Reads a real argument in low..high; *out is unchanged if it is not given.
 * LH_EINPUT: the value is not such a number. */
lh_status lhi_arg_get_real(const lhi_megatron *m, lhi_megatron_key key,
                           double low, double high, double *out, lh_error *err);
/* Records as ignored an argument that has no effect in combination with the
 * others, if it is given. */
void lhi_arg_ignore(const lhi_megatron *m, lhi_megatron_key key,
                    lhi_imported_job *in);
/* Reads an argument whose value is in the NULL-terminated list `names`; *out is
 * its index, unchanged if it is not given.
 * LH_EINPUT: the value is not in the list. */
lh_status lhi_arg_get_choice(const lhi_megatron *m, lhi_megatron_key key,
                             const char *const *names, uint32_t *out,
                             lh_error *err);

/* Reads a hybrid model's layer pattern, from which the number of layers
 * follows, and its prediction modules. *given: there is a pattern.
 * LH_EUNSUPPORTED: longhaul does not model one of the layers. */
lh_status lhi_megatron_read_pattern(const lhi_megatron *m, lhi_imported_job *in,
                                    bool *given, lh_error *err);
/* Reads the sizes of Mamba-2 layers, gated delta networks and sparse attention.
 * LH_EUNSUPPORTED: a job cannot express the layers. */
lh_status lhi_megatron_read_mixers(const lhi_megatron *m, lhi_imported_job *in,
                                   lh_error *err);
/* Returns the argument that gives a hybrid model's layer pattern: the current
 * one, or an older name if that is given. */
lhi_megatron_key lhi_megatron_pattern_key(const lhi_megatron *m);
/* Reads the vocabulary size; without one infers it from the tokenizer, with a
 * note. Notes padding that is modelled differently. */
lh_status lhi_megatron_read_vocabulary(const lhi_megatron *m,
                                       lhi_imported_job *in, lh_error *err);
/* Builds the imported job's model from the arguments, which must all have been
 * read; `given`, the model from --model, replaces it unless NULL. */
lh_status lhi_megatron_build_model(const lhi_megatron *m, const lh_model *given,
                                   lhi_imported_job *in, lh_error *err);
/* Builds a command line's job: model, degrees, training, framework and stages.
 * `gpus` are known from elsewhere; 0: from the command line. */
lh_status lhi_megatron_build_job(const lhi_command_line *words, uint32_t gpus,
                                 const lh_import_options *options,
                                 lhi_imported_job *in, lh_error *err);
/* Sets the layout's stages, or a single stage's gradient buckets, and the
 * schedule, from the arguments.
 * LH_EINPUT: arguments contradict each other or the model. */
lh_status lhi_megatron_build_stages(const lhi_megatron *m, lhi_imported_job *in,
                                    lh_error *err);

#endif
