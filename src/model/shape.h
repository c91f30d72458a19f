/* SPDX-License-Identifier: Apache-2.0 */
/* Per-GPU sizes of a model, in which the formulas for work and memory are
 * written.
 *
 * The cost model consists of pure formulas. Input: a job, a layout, a layer
 * range of the model. Output: times, bytes and memory
 * (longhaul/experimental/cost.h).
 *
 *     shape.h            sizes per GPU, and the model's constants
 *     work.h             operations and bytes of passes: work.c,
 *                        product_work.c, attention_work.c; their resident
 *                        memory: resident_memory.c; both, per operation: ops.h
 *     eager.h            operations that run one by one, and copies
 *     timing.h           times: path_timing.c for messages, timing.c for work,
 *                        pass_timing.c for passes
 *     slice_sums.h       a layer range's parts and their sums
 *     data_passes.h      when data parallelism communicates; passes that wait
 *     chunk.c            lh_cost of a layer range
 *     profile_lookup.h   profile measurements that replace estimates
 *     paths.h            paths between GPUs: paths.c; effects of their
 *                        settings: link_settings.c, with the rates of
 *                        transport.c
 *     group_layout.h     GPUs that share experts, and that hold the same ones
 *     groups.h           GPUs in any other collective
 *     collective.c       collectives over one path; all_to_all.h: over several
 *     sharding.h         data parallelism: shards and their communication
 *     flop_count.c       operations that a model needs on any hardware */
#ifndef LHI_MODEL_SHAPE_H
#define LHI_MODEL_SHAPE_H

#include <longhaul/experimental/cost.h>

/* Sizes per GPU for one job and layout. */
typedef struct lhi_shape {
    const lh_model *model;
    uint32_t tensor, context, expert, expert_tensor;
    /* Experts are partitioned differently from the other layers, so that tokens
     * are dispatched: each GPU sends 1/tensor of its tensor-parallel group's
     * tokens. */
    bool dispatches_tokens;
    /* The router's weights are applied to the experts' results, as in
     * DeepSpeed, which retains the results for the weights' gradients.
     * Otherwise they are applied between the experts' products (Megatron Core,
     * weighted_bias_swiglu_impl()). */
    bool weights_expert_results;
    /* The biases of experts' results are added expert by expert, as in Megatron
     * Core (TEGroupedMLP._apply_bias()) with unfused experts. */
    bool adds_biases;
    /* The inputs of the experts' activation function are clamped by kernels of
     * their own, as in Megatron Core (weighted_bias_quick_geglu_impl()) with
     * unfused experts. */
    bool clamps_activations;
    /* Tokens from an all-to-all are ordered by sender, and are sorted by expert
     * and back (Megatron Core, MoEAlltoAllTokenDispatcher, with several experts
     * on a GPU), after GPUs that share an expert have gathered them. */
    bool sorts_tokens;
    bool fused_experts; /* framework.experts: fused */
    double dispatched;  /* copies per token in `tokens` that a GPU sends */
    /* On the hottest rank (training.imbalance): copies per token that arrive
     * (in an all-gather as many as anywhere), and that its experts process. */
    double received, expert_rows;
    double tokens;             /* per GPU and microbatch */
    double norm_share;         /* fraction of the tokens processed by norms and
                                * residuals: 1/tensor with sequence parallelism */
    double sequence;           /* tokens visible to attention */
    double element;            /* bytes */
    bool fp8;                  /* layers' matrix products use FP8 */
    bool fp8_head;             /* the head's, too */
    double product_element;    /* bytes per element of a product's factors */
    double dispatch_element;   /* bytes per element sent to an expert */
    double gradient;           /* bytes per gradient element in memory */
    double gradient_traffic;   /* bytes that W moves per gradient element */
    uint32_t gradient_kernels; /* of W after each of its products */
    double heads, kv_heads;    /* per GPU */
    double qk_dim, v_dim;      /* per head */
    /* Key and value heads as attention's kernel receives them: torchtitan
     * repeated them until 0.2, where it used FlashAttention-2 (repeat_kv()). */
    double attention_kv_heads;
    bool cudnn_attention;  /* attention_work.c's rates of cuDNN */
    bool fp8_attention;    /* in FP8; also cudnn_attention */
    double vocab;          /* per GPU */
    double vocab_padding;  /* vocabulary padding, all GPUs */
    double expert_divisor; /* GPUs over which a layer's experts are divided */
    bool unfused, dropout;
    /* FP8 with one scale for a tensor, as torchao's default recipe: the maximum
     * takes a pass, and tensor parallelism gathers 8 bits. */
    bool scales_tensors;
    bool eager; /* element-wise operations of layers run one by one */
    lh_loss loss;
    /* Every second product is saved, as by torchtitan's selective
     * recomputation. */
    bool saves_products;
    /* Programs that run the model through PyTorch's DTensor: inputs of products
     * stay gathered, and gradients of a layer are allocated one by one. */
    bool keeps_gathered;
    /* PyTorch's FSDP2 copies gathered parameters from the collective's buffer
     * (foreach_all_gather_copy_out()). */
    bool copies_gathers;
    /* Context parallelism gathers keys and values at once. */
    bool gathers_context;
    /* Collectives along the sequence, the second dimension, are copied to or
     * from the order of ranks (all_gather_tensor() and reduce_scatter_tensor()
     * in torch/distributed/_functional_collectives.py). */
    bool copies_sequence;
    lh_recompute recompute;
    uint32_t modules; /* with LH_RECOMPUTE_MODULES: bit mask, 1 << lh_module */
} lhi_shape;

/* Checks whether `module` is among the modules to recompute. */
bool lhi_is_module_recomputed(const lhi_shape *shape, lh_module module);

/* Computes the shape: the model's sizes per GPU under a layout, for the cost
 * formulas. LH_EINVAL, LH_EUNSUPPORTED as lh_cost_chunk(). */
lh_status lhi_shape_make(const lh_job *job, const lh_layout *layout,
                         const lh_cost_options *options, lhi_shape *out,
                         lh_error *err);

/* Returns the cost-model constants for a job: its own, or the defaults. */
const lh_cost_constants *lhi_find_cost_constants(const lh_job *job);
/* Checks whether the job's profile measured everything after the pipeline,
 * including the optimizer and tied embeddings. */
bool lhi_is_iteration_end_measured(const lh_job *job);
/* Returns the time per iteration outside the passes, in ns: the profile's
 * measurement (including the optimizer) if it has one, else the cost model's
 * constant. */
int64_t lhi_find_iteration_overhead_ns(const lh_job *job);

/* Copies the cost options and fills their defaults and the values that default
 * to the job's. `in` may be `out`, which is undefined on failure. LH_EINVAL: a
 * wrong size or a constant out of range. */
lh_status lhi_complete_cost_options(const lh_job *job,
                                    const lh_cost_options *in,
                                    lh_cost_options *out, lh_error *err);

/* Rounds up to whole bytes or ns into *out; LH_EUNSUPPORTED above 2^62. `what`
 * names the value in the message. */
lh_status lhi_round_up_checked(double value, const char *what, int64_t *out,
                               lh_error *err);

#endif
