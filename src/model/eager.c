/* SPDX-License-Identifier: Apache-2.0 */
/* Work of programs that run a model through PyTorch, beyond that of fused
 * kernels. */
#include "model/eager.h"

#include "format/job/parse.h"
#include "model/work_internal.h"

double lhi_eager_count_activations(const lhi_shape *shape, uint32_t layer)
{
    const lh_model *m = shape->model;
    double t = shape->tensor;

    if (!lhi_model_layer_has_mlp(m, layer))
        return 0;
    if (!lh_model_layer_is_moe(m, layer))
        return shape->tokens * m->ffn / t;
    return shape->tokens *
           (shape->expert_rows * m->expert_ffn / shape->expert_tensor +
            m->shared_expert_ffn / t);
}

/* Adds the memory traffic and kernels by which torchtitan rotates queries and
 * keys: conversion to fp32, product of complex numbers, conversion back
 * (apply_rotary_emb()). One fused kernel reads and writes 16 bits. */
static void add_rotation(const lhi_shape *shape, lhi_work *work)
{
    double values =
        (shape->heads + shape->kv_heads) * shape->qk_dim * shape->tokens;

    if (!shape->model->positions)
        lhi_work_add_pointwise(work, values * 16, 5);
}

/* Adds the extra memory traffic and launch of silu(a) * b in a forward pass of
 * `layer` without fusion: two kernels rather than one. */
static void add_activation(const lhi_shape *shape, uint32_t layer, lhi_work *f)
{
    if (shape->model->gated)
        lhi_work_add_pointwise(
            f, 2 * lhi_eager_count_activations(shape, layer) * shape->element,
            1);
}

void lhi_eager_add_forward(const lhi_shape *shape, uint32_t layer, lhi_work *f)
{
    add_rotation(shape, f);
    add_activation(shape, layer, f);
}

void lhi_eager_add_layer(const lhi_shape *shape, uint32_t layer,
                         lhi_pass_work *out)
{
    double hidden = shape->tokens * shape->model->hidden * shape->element;

    lhi_eager_add_forward(shape, layer, &out->f);
    add_rotation(shape, &out->d);
    if (!shape->model->gated)
        return;
    /* Both factors' gradients and that of silu: three kernels rather than one.
     */
    lhi_work_add_pointwise(
        &out->d, 4 * lhi_eager_count_activations(shape, layer) * shape->element,
        2);
    /* Autograd adds the gradients of an input that several products share: of
     * queries, keys and values, and of the first two matrices of the MLP. */
    lhi_work_add_pointwise(&out->d, 3 * 3 * hidden, 3);
}

double lhi_eager_count_retained_bytes(const lhi_shape *shape, uint32_t layer)
{
    const lh_model *m = shape->model;
    double e = shape->element;
    double hidden = e * m->hidden * shape->norm_share;
    double out = e * shape->heads * shape->v_dim;
    double values = e * shape->kv_heads * shape->v_dim;
    double kept = hidden + e * shape->heads * shape->qk_dim + values + out +
                  4 * shape->heads; /* log-sum-exp */

    kept += e * lhi_eager_count_activations(shape, layer) / shape->tokens;
    if (shape->tensor > 1)
        kept += hidden; /* attention's reduce-scatter */
    if (shape->eager)
        kept += hidden; /* output of the MLP, which no gradient needs */
    return kept;
}

void lhi_eager_add_copies(const lhi_shape *shape, const lhi_params *params,
                          lhi_pass_work *out)
{
    if (shape->copies_gathers) {
        double gathered = 2 * (params->total * shape->element -
                               params->in_8_bits * (shape->element - 1));
        /* Launched with the collective, not as a kernel of the layer. */
        lhi_work_add_pointwise(&out->f, gathered, 0);
        lhi_work_add_pointwise(&out->d, gathered, 0);
    }
    if (!shape->copies_sequence)
        return;
    lhi_work_add_pointwise(&out->f, 2 * out->f.tensor_bytes,
                           out->f.tensor_calls);
    lhi_work_add_pointwise(&out->d, 2 * out->d.tensor_bytes,
                           out->d.tensor_calls);
}

/* Adds the memory traffic and kernels of the cross entropy to F and D, as
 * torchtitan's cross_entropy_loss() runs it or, with tensor parallelism,
 * _LossParallelCrossEntropy. */
void lhi_eager_add_loss(const lhi_shape *shape, lhi_pass_work *out)
{
    double logits = shape->tokens * shape->vocab, e = shape->element;
    bool parallel = shape->tensor > 1;

    /* Bytes per logit, with logits of `e` bytes:
     * - both convert logits to fp32 (e + 4) and gradients back (4 + e).
     * - PyTorch's log_softmax reads its input three times and writes (16).
     *   Backward: zeros for the gradients of the selected values (4);
     *   log_softmax reads the gradients twice and its result once, and writes
     *   (16).
     * - With tensor parallelism forward: maximum (4), difference (8),
     *   exponential (8), sum (4), difference (8). Backward: zeros (4),
     *   exponential (8), sum (12), product (8). */
    lhi_work_add_pointwise(&out->f, logits * (e + 4 + (parallel ? 32 : 16)),
                           parallel ? 6 : 2);
    lhi_work_add_pointwise(&out->d, logits * (4 + e + (parallel ? 32 : 20)),
                           parallel ? 5 : 3);
}

/* Returns the bytes per logit, in fp32, that the loss holds at once in the
 * backward. Without tensor parallelism these are logarithms of the
 * probabilities, gradients of the selected ones, and of the logits. With it:
 * logarithms, zeros, their sum with the exponentials, and the exponentials or
 * the product. */
double lhi_eager_count_loss_bytes(const lhi_shape *shape)
{
    return shape->tensor > 1 ? 16 : 12;
}
