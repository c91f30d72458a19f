/* SPDX-License-Identifier: Apache-2.0 */
/* Floating-point operations, memory traffic and kernels of F, D and W: layers,
 * their MLPs, experts, norms and recomputation, and the model's ends.
 * product_work.c has the matrix products, attention_work.c the attention. All
 * other work is memory-bound: each operand is read or written once per kernel.
 */
#include "model/eager.h"
#include "model/work_internal.h"

#include "format/job/parse.h"

/* Adds the activation function's work between an MLP's matrices, for `rows`
 * tokens of `width` values, to F and to D (NULL: not to D). */
static void add_activation(const lhi_shape *shape, double rows, double width,
                           lhi_work *f, lhi_work *d)
{
    double values = rows * width * shape->element;

    lhi_work_add_pointwise(f, (shape->model->gated ? 3 : 2) * values, 1);
    if (d)
        lhi_work_add_pointwise(d, (shape->model->gated ? 5 : 3) * values, 1);
}

/* Adds the work of `matrices` MLPs, each `local` wide on a GPU, on `rows`
 * tokens in all, of `h` values each, to the F, D and W passes. */
static void add_mlp(const lhi_shape *shape, double rows, double h, double local,
                    double matrices, lhi_pass_work *out)
{

    lhi_work_add_layer_linear(shape, out, rows, h,
                              (shape->model->gated ? 2 : 1) * local, matrices);
    add_activation(shape, rows, local, &out->f, &out->d);
    lhi_work_add_layer_linear(shape, out, rows, local, h, matrices);
}

/* Adds the messages of separately partitioned experts (`moved` bytes), equal in
 * F and D: dispatch and combine. GPUs that share an expert gather its tokens
 * and reduce-scatter the sums. Without sequence parallelism, every GPU in a
 * tensor-parallel group has all tokens: it sends its share and gathers the
 * combined tokens (DeepSpeed-TED, arXiv:2303.06318, section 5). */
static void add_token_messages(const lhi_shape *shape, double moved,
                               lhi_work *out)
{
    if (shape->expert > 1) {
        out->expert_bytes +=
            moved * (1 + shape->dispatch_element / shape->element);
        out->expert_calls += 2;
    }
    if (shape->expert_tensor > 1) {
        out->sharing_bytes += 2 * moved * shape->expert_tensor;
        out->sharing_calls += 2;
    }
    if (shape->tensor > 1 && !(shape->norm_share < 1)) {
        out->tensor_bytes += shape->tokens *
                             lhi_model_expert_input(shape->model) *
                             shape->element;
        out->tensor_calls += 1;
    }
}

/* Adds the work of the shared experts, which process all tokens, to F, D and
 * W. */
static void add_shared_experts(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;

    if (m->shared_expert_ffn)
        add_mlp(shape, shape->tokens, m->hidden,
                (double)m->shared_expert_ffn / shape->tensor, 1, out);
}

/* Adds the experts' matrix products in `products` to the work *to, and counts
 * their FLOPs as grouped GEMMs. */
static void add_grouped(lhi_work *to, const lhi_work *products)
{
    lhi_work_add(to, products, 1);
    to->grouped_flops += products->flops;
}

/* Adds the work for the biases of the experts' results in fp32, which the
 * products do not include: results + bias * weight for each expert, one copy
 * that concatenates them, and the conversion to training precision.
 * - F: product, sum, copy, conversion.
 * - D: two conversions; for the gradients of bias and weight a product and a
 * sum each; the concatenating copy. */
void lhi_work_biases(const lhi_shape *shape, lhi_work *f, lhi_work *d)
{
    const lh_model *m = shape->model;
    double values =
        shape->tokens * shape->expert_rows * lhi_model_expert_input(m);
    double experts = (double)m->experts / shape->expert;
    double e = shape->element;

    if (!shape->adds_biases)
        return;
    lhi_work_add_pointwise(f, values * (4 + (e + 8) + 8 + (4 + e)),
                           2 * experts + 2);
    lhi_work_add_pointwise(d, values * ((e + 4) + (4 + e) + 2 * 12 + 2 * e),
                           5 * experts + 2);
}

/* With f values in each half of the input per token and expert:
 * - F: each half is read, clamped and written; both are copied together.
 * - D: each half's gradient and input are read, and its gradient written; both
 * gradients are copied together. */
void lhi_work_clamps(const lhi_shape *shape, lhi_work *f, lhi_work *d)
{
    double half = shape->tokens * shape->expert_rows *
                  (double)shape->model->expert_ffn / shape->expert_tensor *
                  shape->element;

    if (!shape->clamps_activations)
        return;
    lhi_work_add_pointwise(f, (2 * 2 + 4) * half, 3);
    if (d)
        lhi_work_add_pointwise(d, (2 * 3 + 4) * half, 3);
}

/* Adds the routed experts' work, on the GPU that receives most tokens, to F, D
 * and W. */
static void add_routed_experts(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    lhi_pass_work all = {0};

    add_mlp(shape, shape->tokens * shape->expert_rows,
            lhi_model_expert_input(m),
            (double)m->expert_ffn / shape->expert_tensor,
            (double)m->experts / shape->expert, &all);
    if (!shape->fused_experts)
        all.f.experts = all.d.experts = all.w.experts =
            (double)m->experts / shape->expert;
    add_grouped(&out->f, &all.f);
    add_grouped(&out->d, &all.d);
    add_grouped(&out->w, &all.w);
    lhi_work_biases(shape, &out->f, &out->d);
    lhi_work_clamps(shape, &out->f, &out->d);
}

/* Adds the work of router, dispatch, experts and combine to F, D and W. A GPU
 * sends the mean token count; the GPU with the most tokens, for which all
 * others wait, receives imbalance times as many, and returns as many. */
static void add_experts(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double each = shape->tokens * lhi_model_expert_input(m) * shape->element;
    double moved = each * shape->dispatched;
    double received = each * shape->received;
    double own = shape->tokens * shape->norm_share;

    lhi_work_add_linear(shape, out, own, m->hidden, m->experts, 1);
    if (m->expert_latent) { /* replicated, to the latent and back */
        lhi_work_add_layer_linear(shape, out, own, m->hidden, m->expert_latent,
                                  1);
        lhi_work_add_layer_linear(shape, out, own, m->expert_latent, m->hidden,
                                  1);
    }
    lhi_work_add_pointwise(&out->f, 4 * moved, 4);
    lhi_work_add_pointwise(&out->d, 4 * moved, 4);
    if (shape->sorts_tokens) {
        double sorted = 4 * received * shape->expert_tensor;

        lhi_work_add_pointwise(&out->f, sorted, 2);
        lhi_work_add_pointwise(&out->d, sorted, 2);
    }
    if (!shape->fused_experts) {
        out->f.dispatches += 1;
        out->d.dispatches += 1;
    }
    if (shape->dispatches_tokens) {
        add_token_messages(shape, received, &out->f);
        add_token_messages(shape, received, &out->d);
    }
    add_routed_experts(shape, out);
    add_shared_experts(shape, out);
}

void lhi_work_experts(const lhi_shape *shape, lhi_expert_work *out)
{
    const lh_model *m = shape->model;
    const double local = (double)m->shared_expert_ffn / shape->tensor;

    *out = (lhi_expert_work){0};
    add_routed_experts(shape, &out->routed);
    if (!m->shared_expert_ffn)
        return;
    lhi_work_add_layer_linear(shape, &out->shared_up, shape->tokens, m->hidden,
                              (m->gated ? 2 : 1) * local, 1);
    add_activation(shape, shape->tokens, local, &out->shared_up.f,
                   &out->shared_up.d);
    lhi_work_add_layer_linear(shape, &out->shared_down, shape->tokens, local,
                              m->hidden, 1);
}

/* Adds the memory traffic and kernels of the norms and residual additions
 * around attention and MLP to F and D. */
static void add_norms(const lhi_shape *shape, lhi_pass_work *out)
{
    double values = shape->tokens * shape->norm_share * shape->model->hidden;
    double norm = 2 * values * shape->element;
    double residual =
        3 * values * shape->element + (shape->dropout ? values : 0);

    double times = lhi_model_count_norms(shape->model);
    double sums = shape->model->layer_pattern ? 1 : 2;

    lhi_work_add_pointwise(&out->f, times * norm + sums * residual,
                           times + sums);
    lhi_work_add_pointwise(&out->d, times * 1.5 * norm + sums * residual,
                           times + sums);
}

/* Adds the tensor-parallel communication of `layer` to F, D and W. Forward: two
 * all-reduces of the activations [Nar section 2.3], or as many bytes in two
 * all-gathers and two reduce-scatters [Kor section 4.2.2]; backward the same.
 * Parallel blocks need half, since attention and MLP share input and sum. W's
 * second all-gather of its input overlaps with D. If experts are partitioned
 * separately, only attention and shared experts communicate here. */
static void add_tensor_communication(const lhi_shape *shape, uint32_t layer,
                                     lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double bytes = shape->tokens * m->hidden * shape->element;
    double calls = m->parallel_block || m->layer_pattern ? 2 : 4;

    if (shape->scales_tensors) /* gathers are of 8 bits */
        bytes *= (1 + shape->product_element / shape->element) / 2;
    if (shape->tensor == 1)
        return;
    if (shape->dispatches_tokens && lh_model_layer_is_moe(m, layer) &&
        !m->shared_expert_ffn)
        calls -= 2;
    out->f.tensor_bytes += calls * bytes;
    out->f.tensor_calls += calls;
    out->d.tensor_bytes += calls * bytes;
    out->d.tensor_calls += calls;
}

/* Adds the recomputation of the norms before attention and MLP to a dgrad pass.
 */
static void recompute_norms(const lhi_shape *shape, lhi_work *d)
{
    double values = shape->tokens * shape->norm_share * shape->model->hidden;

    double times = lhi_model_count_norms(shape->model);

    lhi_work_add_pointwise(d, times * 2 * values * shape->element, times);
}

/* Adds the recomputation of the routed experts' activation function to a dgrad
 * pass. */
static void recompute_routed_activation(const lhi_shape *shape, lhi_work *d)
{
    add_activation(shape, shape->tokens * shape->expert_rows,
                   (double)shape->model->expert_ffn / shape->expert_tensor, d,
                   NULL);
    lhi_work_clamps(shape, d, NULL);
}

/* Adds `layer`'s selective recomputation to the dgrad pass: with unfused
 * attention, its core [Kor section 5]; with flash attention, which recomputes
 * the core anyway, norms and activations. */
static void recompute_selective(const lhi_shape *shape, uint32_t layer,
                                lhi_work *d)
{
    const lh_model *m = shape->model;
    lhi_work ignored = {0};

    if (shape->unfused) {
        if (lhi_model_layer_mixer(m, layer) == LHI_MIXER_ATTENTION)
            lhi_work_add_unfused_attention(shape, d, &ignored);
        return;
    }
    recompute_norms(shape, d);
    if (lh_model_layer_is_moe(m, layer)) {
        recompute_routed_activation(shape, d);
        if (m->shared_expert_ffn)
            add_activation(shape, shape->tokens,
                           (double)m->shared_expert_ffn / shape->tensor, d,
                           NULL);
    } else if (lhi_model_layer_has_mlp(m, layer)) {
        add_activation(shape, shape->tokens, (double)m->ffn / shape->tensor, d,
                       NULL);
    }
}

/* Adds torchtitan's selective recomputation to the dgrad pass `d`: all
 * operations except saved products. Its _get_custom_policy() saves the first of
 * every two products in the order of the model's code: queries, keys, values,
 * output of attention, gate, up, down. Reduce-scatters are saved, but not
 * gathers. */
static void recompute_unsaved_products(const lhi_shape *shape, uint32_t layer,
                                       lhi_work *d)
{
    const lh_model *m = shape->model;
    double h = m->hidden, t = shape->tokens;

    recompute_norms(shape, d);
    lhi_work_add_rotation(shape, d);
    lhi_work_linear(shape, t, h, shape->kv_heads * shape->qk_dim, 1, d);
    lhi_work_linear(shape, t, shape->heads * shape->v_dim, h, 1, d);
    if (m->gated && !lh_model_layer_is_moe(m, layer))
        lhi_work_linear(shape, t, h, (double)m->ffn / shape->tensor, 1, d);
    add_activation(shape, lhi_eager_count_activations(shape, layer), 1, d,
                   NULL);
    if (shape->eager)
        lhi_eager_add_forward(shape, layer, d);
    if (shape->tensor == 1)
        return;
    d->tensor_bytes += 2 * t * h * shape->product_element;
    d->tensor_calls += 2;
}

/* Adds to a pass the tensor-parallel all-gather before an MLP and the
 * reduce-scatter after it, which recomputation of the MLP repeats. */
static void add_tensor_around(const lhi_shape *shape, lhi_work *work)
{
    if (shape->tensor == 1)
        return;
    work->tensor_bytes +=
        2 * shape->tokens * shape->model->hidden * shape->element;
    work->tensor_calls += 2;
}

/* Adds an expert layer's recomputation to a dgrad pass: all of it, or its
 * recomputed modules. */
static void recompute_experts(const lhi_shape *shape, lhi_work *d)
{
    lhi_pass_work once = {0};
    bool all = lhi_is_module_recomputed(shape, LH_MODULE_MOE);
    bool shared = shape->model->shared_expert_ffn != 0;

    if (all)
        add_experts(shape, &once);
    else if (lhi_is_module_recomputed(shape, LH_MODULE_SHARED_EXPERTS))
        add_shared_experts(shape, &once);
    if (!all && lhi_is_module_recomputed(shape, LH_MODULE_MOE_ACT))
        recompute_routed_activation(shape, d);
    if (all ? shared || !shape->dispatches_tokens
            : shared &&
                  lhi_is_module_recomputed(shape, LH_MODULE_SHARED_EXPERTS))
        add_tensor_around(shape, &once.f);
    lhi_work_add(d, &once.f, 1);
}

/* Adds the recomputation of the job's modules in `layer` to a dgrad pass
 * [transformer_config.py of Megatron Core 0.16: recompute_modules]. */
static void recompute_modules(const lhi_shape *shape, uint32_t layer,
                              lhi_work *d)
{
    const lh_model *m = shape->model;
    lhi_pass_work once = {0};
    const lhi_mixer mixer = lhi_model_layer_mixer(m, layer);

    if (lhi_is_module_recomputed(shape, LH_MODULE_CORE_ATTN) &&
        (mixer == LHI_MIXER_ATTENTION || mixer == LHI_MIXER_LINEAR)) {
        if (mixer == LHI_MIXER_LINEAR)
            lhi_work_add_delta_rule(shape, &once.f, &once.w);
        else if (shape->unfused)
            lhi_work_add_unfused_attention(shape, &once.f, &once.w);
        else
            lhi_work_add_flash_attention(shape, layer, &once.f, &once.w);
        if (shape->context > 1)
            lhi_work_add_ring_attention(shape, &once);
    }
    if (lhi_is_module_recomputed(shape, LH_MODULE_LAYERNORM))
        recompute_norms(shape, d);
    if (lhi_is_module_recomputed(shape, LH_MODULE_MLA_UP_PROJ) &&
        m->kv_lora_rank) {
        lhi_work_add_up_projections(shape, &once);
        lhi_work_add_rotation(shape, &once.f);
    }
    if (lh_model_layer_is_moe(m, layer)) {
        recompute_experts(shape, d);
    } else if (lhi_is_module_recomputed(shape, LH_MODULE_MLP) &&
               lhi_model_layer_has_mlp(m, layer)) {
        add_mlp(shape, shape->tokens, m->hidden, (double)m->ffn / shape->tensor,
                1, &once);
        add_tensor_around(shape, &once.f);
    }
    lhi_work_add(d, &once.f, 1);
}

void lhi_work_layer(const lhi_shape *shape, uint32_t layer, lhi_pass_work *out)
{
    lhi_params params;

    *out = (lhi_pass_work){0};
    add_norms(shape, out);
    lhi_work_add_attention_block(shape, layer, out);
    if (lh_model_layer_is_moe(shape->model, layer))
        add_experts(shape, out);
    else if (lhi_model_layer_has_mlp(shape->model, layer))
        add_mlp(shape, shape->tokens, shape->model->hidden,
                (double)shape->model->ffn / shape->tensor, 1, out);
    add_tensor_communication(shape, layer, out);
    if (shape->eager)
        lhi_eager_add_layer(shape, layer, out);
    if (shape->recompute == LH_RECOMPUTE_FULL)
        lhi_work_add(&out->d, &out->f, 1);
    else if (shape->saves_products)
        recompute_unsaved_products(shape, layer, &out->d);
    else if (shape->recompute == LH_RECOMPUTE_SELECTIVE)
        recompute_selective(shape, layer, &out->d);
    else if (shape->recompute == LH_RECOMPUTE_MODULES)
        recompute_modules(shape, layer, &out->d);
    lhi_count_slice_params(
        shape, &(lh_cost_layer_range){.first_layer = layer, .n_layers = 1},
        &params);
    lhi_eager_add_copies(shape, &params, out);
}

void lhi_work_embedding(const lhi_shape *shape, lhi_pass_work *out)
{
    double values = shape->tokens * shape->model->hidden;

    *out = (lhi_pass_work){0};
    lhi_work_add_pointwise(&out->f, 2 * values * shape->element, 1);
    if (shape->dropout)
        lhi_work_add_pointwise(&out->f, values * (2 * shape->element + 1), 1);
    lhi_work_add_pointwise(&out->w,
                           values * (shape->element + 2 * shape->gradient), 1);
    if (shape->tensor > 1) {
        /* Each GPU holds a part of the vocabulary [Nar section 2.3]. */
        out->f.tensor_bytes = 2 * values * shape->element;
        out->f.tensor_calls = 2;
    }
}

/* Adds the work of the cross entropy to F and D: 14 bytes per logit forward
 * (conversion to fp32, maximum, exponential and sum), 10 backward. Tensor
 * parallelism splits the vocabulary. */
static void add_vocabulary(const lhi_shape *shape, lhi_pass_work *out)
{
    double logits = shape->tokens * shape->vocab;
    double h = shape->model->hidden;
    double values = shape->tokens * shape->norm_share * h * shape->element;

    lhi_work_add_pointwise(&out->f, 2 * values, 1);
    lhi_work_add_pointwise(&out->d, 3 * values, 1);
    if (shape->fp8_head)
        lhi_work_add_layer_linear(shape, out, shape->tokens, h, shape->vocab,
                                  1);
    else
        lhi_work_add_linear(shape, out, shape->tokens, h, shape->vocab, 1);
    if (shape->loss != LH_LOSS_FUSED) {
        lhi_eager_add_loss(shape, out);
    } else {
        lhi_work_add_pointwise(&out->f, 14 * logits, 3);
        lhi_work_add_pointwise(&out->d, 10 * logits, 2);
    }
    if (shape->tensor > 1) {
        out->d.tensor_bytes += 2 * shape->tokens * h * shape->element;
        out->d.tensor_calls += 2;
    }
}

/* Computes the work of the F, D and W passes of final norm, vocabulary matrix
 * and loss. With multi-token prediction, the head processes the model's output
 * and each module's (arXiv:2412.19437, section 2.2). */
void lhi_work_head(const lhi_shape *shape, lhi_pass_work *out)
{
    *out = (lhi_pass_work){0};
    for (uint32_t i = 0; i <= shape->model->mtp_layers; i++)
        add_vocabulary(shape, out);
}

void lhi_work_mtp(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    uint32_t first, n = lhi_model_mtp_layers(m, &first);
    lhi_pass_work module = {0}, layer;

    *out = (lhi_pass_work){0};
    if (!m->mtp_layers)
        return;
    for (uint32_t i = 0; i < n; i++) {
        lhi_work_layer(shape, first + i, &layer);
        lhi_work_add(&module.f, &layer.f, 1);
        lhi_work_add(&module.d, &layer.d, 1);
        lhi_work_add(&module.w, &layer.w, 1);
    }
    for (uint32_t i = 0; i < m->mtp_layers; i++) {
        lhi_work_add(&out->f, &module.f, 1);
        lhi_work_add(&out->d, &module.d, 1);
        lhi_work_add(&out->w, &module.w, 1);
        lhi_work_add_layer_linear(shape, out, shape->tokens, 2.0 * m->hidden,
                                  (double)m->hidden / shape->tensor, 1);
    }
}
