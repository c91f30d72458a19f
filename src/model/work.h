/* SPDX-License-Identifier: Apache-2.0 */
/* The work of passes: floating-point operations, memory traffic, kernels.
 * docs/theory/cost-model.md has the same as tables. */
#ifndef LHI_MODEL_WORK_H
#define LHI_MODEL_WORK_H

#include "format/job/model_size.h"
#include "model/shape.h"

/* One pass's work on one GPU, per microbatch. */
typedef struct lhi_work {
    double flops;             /* of matrix products */
    double fp8_flops;         /* part of flops in FP8 */
    double grouped_flops;     /* part of flops in grouped GEMMs (experts) */
    double padding_flops;     /* of partial tiles, in addition to flops */
    double fp8_padding_flops; /* the same in FP8; not in padding_flops */
    double bytes;             /* to and from memory */
    double kernels;
    /* Of unfused experts: dispatches of tokens, and experts on the GPU. */
    double dispatches, experts;
    /* Parts of bytes and kernels that context parallelism adds to a pass: */
    double ring_bytes, ring_kernels;
    /* Communication, in the units of timing.c: */
    double tensor_bytes; /* in all-gathers (or half all-reduces) */
    double tensor_calls; /* number of these collectives */
    double expert_bytes; /* in all-to-alls */
    double expert_calls;
    double sharing_bytes; /* gathered by the GPUs that share an expert */
    double sharing_calls;
    double context_bytes; /* around the context-parallel ring */
    double context_calls; /* steps around the ring */
    double core_flops;    /* of attention; with context parallelism only those
                           * during which the ring can transfer */
    /* Part of flops in flash attention's kernels, and the FLOPs that its
     * forward and backward kernels would compute in their time at their highest
     * rate. */
    double flash_flops, flash_f_flops, flash_d_flops;
} lhi_work;

/* The work of the F, D and W passes. */
typedef struct lhi_pass_work {
    lhi_work f, d, w;
} lhi_pass_work;

/* Adds the forward product of a linear map: m rows of k by `matrices` k x n
 * weights (experts; otherwise 1) that share these rows. FP8 includes the
 * input's quantisation. */
void lhi_work_linear(const lhi_shape *shape, double m, double k, double n,
                     double matrices, lhi_work *f);

/* Adds the forward work of a layer's core attention, without the
 * context-parallel ring, to `f`: products, memory traffic and kernels. */
void lhi_work_attention(const lhi_shape *shape, uint32_t layer, lhi_work *f);

/* Adds the work for the biases of experts' results, separate from the products:
 * for F, and for D without recomputation. Adds nothing if shape->adds_biases is
 * false. */
void lhi_work_biases(const lhi_shape *shape, lhi_work *f, lhi_work *d);

/* Adds the work for clamping the inputs of the routed experts' activation
 * function, in kernels of their own, to F and to D (NULL: not to D). Adds
 * nothing if shape->clamps_activations is false. */
void lhi_work_clamps(const lhi_shape *shape, lhi_work *f, lhi_work *d);

/* Adds the work *what, multiplied by `times`, to *to. */
void lhi_work_add(lhi_work *to, const lhi_work *what, double times);

/* Computes the work of one layer's F, D and W passes (FLOPs, memory traffic,
 * kernels, communication); D includes the recomputation. */
void lhi_work_layer(const lhi_shape *shape, uint32_t layer, lhi_pass_work *out);
/* The work of an expert layer beside which its token messages can run. The
 * shared experts' products and activation function are split into those before
 * and after the activation function's result. */
typedef struct lhi_expert_work {
    lhi_pass_work routed, shared_up, shared_down;
} lhi_expert_work;

/* Computes the work of an expert layer's routed and shared experts, without
 * recomputation. */
void lhi_work_experts(const lhi_shape *shape, lhi_expert_work *out);
/* Computes the work of the embedding's F and W passes: memory traffic, kernels
 * and tensor-parallel communication. */
void lhi_work_embedding(const lhi_shape *shape, lhi_pass_work *out);
/* Computes the work of norm, vocabulary matrix and loss, which multi-token
 * prediction modules share: once for the model and once per module. */
void lhi_work_head(const lhi_shape *shape, lhi_pass_work *out);
/* Computes the work of the multi-token prediction modules' F, D and W passes.
 * Each module combines the hidden state with the next token's embedding and
 * runs one more layer. */
void lhi_work_mtp(const lhi_shape *shape, lhi_pass_work *out);

/* Returns the average number of tokens that a token attends to in a layer, in a
 * sequence of `sequence` tokens. */
double lhi_compute_mean_attended_tokens(const lh_model *model, uint32_t layer,
                                        double sequence);

/* Tokens of a chunk in which gated delta networks are computed; the kernel's
 * default in flash-linear-attention. */
enum { LHI_LINEAR_CHUNK = 64 };

/* Tokens of a chunk in which Mamba-2 layers are computed; the default of
 * Megatron Core's MambaMixer and of Nemotron-H. */
enum { LHI_MAMBA_CHUNK = 128 };

/* Returns the columns of a Mamba-2 layer's input projection on one GPU: gates,
 * values, B, C and time steps. */
double lhi_count_mamba_inputs(const lhi_shape *shape);

/* Resident memory per microbatch, in bytes. */
typedef struct lhi_resident_memory {
    double activation;   /* bytes from F to D */
    double weight_input; /* bytes from D to W */
    double d_workspace;  /* bytes used by D in addition */
} lhi_resident_memory;

/* Returns the bytes per token that an indexer retains, 0 without one: queries,
 * key, weights, and the selected tokens as 32-bit numbers. */
double lhi_count_indexer_bytes(const lhi_shape *shape);
/* Computes a layer's resident activation memory per microbatch, in bytes,
 * into *out. */
void lhi_resident_memory_compute_layer(const lhi_shape *shape, uint32_t layer,
                                       lhi_resident_memory *out);
/* Returns the bytes of activations per microbatch that a layer keeps for its
 * backward pass, without the layer's input. */
double lhi_resident_memory_compute_within_layer(const lhi_shape *shape,
                                                uint32_t layer);
/* Computes the embedding's resident activation memory per microbatch, in bytes.
 */
void lhi_resident_memory_compute_embedding(const lhi_shape *shape,
                                           lhi_resident_memory *out);
/* Computes the head's resident activation memory per microbatch, in bytes. */
void lhi_resident_memory_compute_head(const lhi_shape *shape,
                                      lhi_resident_memory *out);
/* Computes the resident activation memory of the multi-token prediction modules
 * per microbatch, in bytes. */
void lhi_resident_memory_compute_mtp(const lhi_shape *shape,
                                     lhi_resident_memory *out);

/* Parameters on one GPU. `experts` is part of `total`, and so is `in_8_bits`:
 * the parameters other than experts that FSDP gathers in 8 bits. */
typedef struct lhi_params {
    double total, experts, in_8_bits;
} lhi_params;

/* Checks whether the layer range's end includes multi-token prediction modules.
 * */
bool lhi_slice_has_mtp(const lh_model *model, const lh_cost_layer_range *slice);

/* Counts the layers with experts in a layer range, with those of multi-token
 * prediction modules. */
uint32_t lhi_count_moe_layers(const lh_model *model,
                              const lh_cost_layer_range *slice);
/* Checks whether the layer range has parts after its layers: the head,
 * multi-token prediction modules, or both. */
bool lhi_slice_has_end(const lh_cost_layer_range *slice);

/* Counts the parameters of a layer range that one GPU holds, into *out: all,
 * and those of experts. */
void lhi_count_slice_params(const lhi_shape *shape,
                            const lh_cost_layer_range *slice, lhi_params *out);

#endif
