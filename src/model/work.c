/* SPDX-License-Identifier: Apache-2.0 */
/* Floating-point operations, memory traffic and kernels of F, D and W.
 *
 * A matrix product of m x k by k x n takes 2mkn operations and moves its three
 * matrices once; D and W of a linear layer are one such product each. W adds
 * its result to the gradient in memory. In FP8 the factors have half the bytes,
 * and quantisation passes are added. All other work is memory-bound: each
 * operand is read or written once per kernel. */
#include "model/work.h"
#include "model/eager.h"

#include "format/job/parse.h"

#include <math.h>

/* Kernels of an unfused attention forward pass: two products, mask, softmax,
 * dropout, and the copies around them. */
enum { UNFUSED_KERNELS = 16 };

/* A product's result is computed in tiles, and partial tiles take as long as
 * whole ones. 64 x 64 is the smallest among cuBLAS's tiles and wastes least
 * (NVIDIA, Matrix Multiplication Background User's Guide, "Tile
 * Quantization"). */
enum { TILE = 64 };

/* Returns the FLOPs that an m x k by k x n product wastes on partial tiles. */
static double count_padding_flops(double m, double k, double n)
{
    double rows = ceil(m / TILE) * TILE, columns = ceil(n / TILE) * TILE;

    return 2 * k * (rows * columns - m * n);
}

/* Adds the FLOPs wasted on partial tiles in the three products (F, D, W) of a
 * linear map with m rows, from k to n columns; `fp8`: counts them as FP8 FLOPs.
 * D's result has k columns, W's k rows. */
static void add_padding(bool fp8, double m, double k, double n,
                        lhi_pass_work *out)
{
    double padding[] = {count_padding_flops(m, k, n),
                        count_padding_flops(m, n, k),
                        count_padding_flops(k, m, n)};
    lhi_work *pass[] = {&out->f, &out->d, &out->w};

    for (int i = 0; i < 3; i++)
        *(fp8 ? &pass[i]->fp8_padding_flops : &pass[i]->padding_flops) +=
            padding[i];
}

/* Adds the F, D and W products of a linear map: `matrices` weights of k x n
 * (experts; otherwise 1) that share m rows. */
static void add_linear(const lhi_shape *shape, lhi_pass_work *out, double m,
                       double k, double n, double matrices)
{
    double element = shape->element;
    double rows = m * (k + n) * element;
    double weights = matrices * k * n;

    out->f.flops += 2 * m * k * n;
    out->f.bytes += rows + weights * element;
    out->f.kernels += 1;
    out->d.flops += 2 * m * k * n;
    out->d.bytes += rows + weights * element;
    out->d.kernels += 1;
    out->w.flops += 2 * m * k * n;
    out->w.bytes += rows + weights * 2 * shape->gradient;
    out->w.kernels += 1;
    add_padding(false, m, k, n, out);
}

/* Adds `bytes` of memory traffic and `kernels` element-wise kernel launches to
 * the work. */
static void add_pointwise(lhi_work *work, double bytes, double kernels)
{
    work->bytes += bytes;
    work->kernels += kernels;
}

/* Adds a matrix product that may run in FP8: its FLOPs, `bytes` of memory
 * traffic and one kernel. */
static void add_product(lhi_work *work, double flops, double bytes)
{
    work->flops += flops;
    work->fp8_flops += flops;
    add_pointwise(work, bytes, 1);
}

/* Adds the quantisation of `elements` values from 16 bits to two FP8 copies,
 * along rows and along columns: products require a contiguous summation
 * dimension, and the blocks that share a scale follow it. A scale of a whole
 * tensor needs its own pass for the maximum. */
static void add_quantisation(const lhi_shape *shape, double elements,
                             lhi_work *work)
{
    add_pointwise(work,
                  elements * (shape->element + 2 * shape->product_element), 1);
    if (shape->scales_tensors)
        add_pointwise(work, elements * shape->element, 1);
}

/* Adds an FP8 linear map: `matrices` weights of k x n for m rows in all. The
 * optimizer already leaves the weights in 8 bits; products output 16 bits. F
 * quantises the input and D the output gradient; W reads the other copy of
 * both. */
static void add_fp8_linear(const lhi_shape *shape, lhi_pass_work *out, double m,
                           double k, double n, double matrices)
{
    double flops = 2 * m * k * n, weights = matrices * k * n;

    add_quantisation(shape, m * k, &out->f);
    add_product(&out->f, flops,
                (m * k + weights) * shape->product_element +
                    m * n * shape->element);
    add_quantisation(shape, m * n, &out->d);
    add_product(&out->d, flops,
                (m * n + weights) * shape->product_element +
                    m * k * shape->element);
    add_product(&out->w, flops,
                m * (k + n) * shape->product_element +
                    weights * 2 * shape->gradient);
    add_padding(true, m, k, n, out);
}

/* Adds the F, D and W products of a linear map inside a layer, in FP8 if the
 * job uses it there: `matrices` weights of k x n for m rows in all. */
static void add_layer_linear(const lhi_shape *shape, lhi_pass_work *out,
                             double m, double k, double n, double matrices)
{
    if (shape->fp8)
        add_fp8_linear(shape, out, m, k, n, matrices);
    else
        add_linear(shape, out, m, k, n, matrices);
}

void lhi_work_linear(const lhi_shape *shape, double m, double k, double n,
                     double matrices, lhi_work *f)
{
    lhi_pass_work all = {0};

    add_layer_linear(shape, &all, m, k, n, matrices);
    lhi_work_add(f, &all.f, 1);
}

double lhi_compute_mean_attended_tokens(const lh_model *model, uint32_t layer,
                                        double sequence)
{
    double window = model->index_topk ? model->index_topk
                                      : lh_model_layer_window(model, layer);

    /* In chunks: the mean over the tokens of whole chunks and of the rest. */
    if (model->chunked_attention && window > 0 && window < sequence) {
        double rest = fmod(sequence, window);
        return ((sequence - rest) * window + rest * rest) / (2 * sequence);
    }
    /* A causal token at position i attends to i tokens, or to the last `window`
     * of them. */
    if (window > 0 && window < sequence)
        return window - window * window / (2 * sequence);
    return sequence / 2;
}

/* Adds `bytes` of memory traffic and `kernels` kernels that only context
 * parallelism needs, both to the pass and to its share that the ring causes. */
static void add_ring_kernels(lhi_work *work, double bytes, double kernels)
{
    add_pointwise(work, bytes, kernels);
    work->ring_bytes += bytes;
    work->ring_kernels += kernels;
}

/* Adds flash attention, which keeps the scores on chip and recomputes them in
 * D: two products forward, five backward [Dao section 3.1]. Under context
 * parallelism each step of the ring is its own kernel, which reads the queries
 * and writes a partial result; add_ring_attention() has the rest. Of the c
 * ranks the last one has most traffic: all queries in each step, with all its
 * own keys and values and half of the others'. */
static void add_flash_attention(const lhi_shape *shape, uint32_t layer,
                                lhi_work *f, lhi_work *d)
{
    double visible =
        lhi_compute_mean_attended_tokens(shape->model, layer, shape->sequence);
    double pairs = 2 * shape->tokens * visible * shape->heads;
    double values = (shape->qk_dim + shape->v_dim) * shape->tokens;
    double qo = shape->heads * values * shape->element;
    double kv = shape->kv_heads * values * shape->element;
    double more = shape->context - 1;

    f->flops += pairs * (shape->qk_dim + shape->v_dim);
    f->core_flops += pairs * (shape->qk_dim + shape->v_dim);
    f->flash_f_flops += pairs * (shape->qk_dim + shape->v_dim);
    add_pointwise(f, qo + kv, 1);
    add_ring_kernels(f, more * (qo + kv / 2), more);
    d->flops += pairs * (3 * shape->qk_dim + 2 * shape->v_dim);
    d->core_flops += pairs * (3 * shape->qk_dim + 2 * shape->v_dim);
    d->flash_d_flops += pairs * (3 * shape->qk_dim + 2 * shape->v_dim);
    add_pointwise(d, 2 * (qo + kv), 2);
    add_ring_kernels(d, 2 * more * (qo + kv / 2), 2 * more);
}

/* Adds unfused attention with scores in memory: product, masked softmax,
 * dropout, product. The copies that merge and split heads need separate
 * kernels, as biases do. */
static void add_unfused_attention(const lhi_shape *shape, lhi_work *f,
                                  lhi_work *d)
{
    double scores = shape->tokens * shape->sequence * shape->heads;
    double dims = shape->qk_dim + shape->v_dim;
    double qkvo = (shape->heads + shape->kv_heads) * dims * shape->tokens;
    double softmax = 2 * scores * shape->element;
    double drop = shape->dropout ? scores * (2 * shape->element + 1) : 0;

    f->flops += 2 * scores * dims;
    f->core_flops += 2 * scores * dims;
    add_pointwise(f, (2 * scores + 3 * qkvo) * shape->element + softmax + drop,
                  UNFUSED_KERNELS);
    d->flops += 4 * scores * dims;
    d->core_flops += 4 * scores * dims;
    add_pointwise(
        d, (4 * scores + 6 * qkvo) * shape->element + 1.5 * softmax + drop,
        2 * UNFUSED_KERNELS);
}

/* Adds the work to merge the partial results of the context-parallel ring's
 * steps on its last rank, counted from Transformer Engine
 * (AttnFuncWithCPAndKVP2P in context_parallel.py, d0067d0):
 * - F: each step but the first merges its fp32 softmax statistics (two reads, a
 * write). In the end the first partial result is rescaled (a read, a write) and
 * each other one is added (two reads, a write), each with the statistics of its
 * step and of all.
 * - D: the queries' gradient is copied in the first step and added to in the
 * others. Gradients of keys and values: half of them are copied in the first
 * step and half added to in the others, all in the last. */
static void merge_ring_steps(const lhi_shape *shape, lhi_pass_work *out)
{
    double c = shape->context, e = shape->element, t = shape->tokens;
    double statistics = 4 * shape->heads * t;
    double result = shape->heads * shape->v_dim * t * e;
    double query = shape->heads * shape->qk_dim * t * e;
    double kv = shape->kv_heads * (shape->qk_dim + shape->v_dim) * t * e;

    add_ring_kernels(&out->f, 3 * statistics * (c - 1), c - 1);
    add_ring_kernels(&out->f, (3 * c - 1) * result + 2 * c * statistics, c);
    add_ring_kernels(&out->d, (3 * c - 1) * query, c);
    add_ring_kernels(&out->d, (1.5 * c + 1) * kv, 2 * c);
}

/* Adds the exchange of keys and values as PyTorch's context parallelism does it
 * (torch/distributed/tensor/experimental/_context_parallel/_attention.py): one
 * all-gather, which overlaps with the first of c steps. In D the gradients, in
 * fp32, follow one step behind around a ring of c exchanges, the last of which
 * has no step to overlap with. */
static void add_gathered_attention(const lhi_shape *shape, lhi_pass_work *out)
{
    double c = shape->context;
    double values = shape->attention_kv_heads * (shape->qk_dim + shape->v_dim) *
                    shape->tokens;

    out->f.context_bytes += (c - 1) * values * shape->element;
    out->f.context_calls += c - 1;
    out->f.core_flops /= c;
    out->d.context_bytes += (c - 1) * values * shape->element + c * values * 4;
    out->d.context_calls += 2 * c - 1;
    out->d.core_flops *= (c - 1) / c;
    merge_ring_steps(shape, out);
}

/* Adds ring attention: c - 1 steps of F forward the keys and values of one
 * sequence shard during a step's attention, and the last step forwards nothing
 * (Liu et al., arXiv:2310.01889). In D the gradients follow one step behind:
 * the first step forwards only keys and values, the last one only gradients. */
static void add_ring_attention(const lhi_shape *shape, lhi_pass_work *out)
{
    double kv = shape->kv_heads * (shape->qk_dim + shape->v_dim) *
                shape->tokens * shape->element;
    double c = shape->context;

    if (shape->gathers_context) {
        add_gathered_attention(shape, out);
        return;
    }
    out->f.context_bytes += (c - 1) * kv;
    out->f.context_calls += c - 1;
    out->f.core_flops *= (c - 1) / c;
    out->d.context_bytes += 2 * (c - 1) * kv;
    out->d.context_calls += c;
    merge_ring_steps(shape, out);
}

/* Adds the work of the projections to keys and values, and to queries of all
 * heads if these come directly from the hidden state. */
static void add_up_projections(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double heads = shape->heads;

    add_layer_linear(shape, out, shape->tokens,
                     m->q_lora_rank ? m->q_lora_rank : m->hidden,
                     heads * shape->qk_dim, 1);
    add_layer_linear(shape, out, shape->tokens, m->kv_lora_rank,
                     heads * (m->qk_nope_head_dim + shape->v_dim), 1);
}

/* Adds the work of multi-head latent attention's projections (arXiv:2405.04434,
 * 2.1); the down-projections are replicated on every GPU. */
static void add_latent_projections(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double h = m->hidden;

    if (m->q_lora_rank)
        add_layer_linear(shape, out, shape->tokens, h, m->q_lora_rank, 1);
    add_layer_linear(shape, out, shape->tokens, h,
                     (double)m->kv_lora_rank + m->qk_rope_head_dim, 1);
    add_up_projections(shape, out);
    add_layer_linear(shape, out, shape->tokens, shape->heads * shape->v_dim, h,
                     1);
}

/* --- gated delta networks ----------------------------------------------------
 */

/* Adds the chunkwise gated delta rule (Yang et al., arXiv:2412.06464, section
 * 3.3, after arXiv:2406.06484, equations 8 to 11) with chunks of C tokens and
 * heads with keys of k and values of v elements. Multiply-adds per token and
 * head of F: C k for K K', C^2 / 3 for the inverse of the triangular matrix, C
 * k and C v for its products with keys and values, C k and C v for the outputs
 * within the chunk, and 3 k v for those from the state and its update. D has
 * two products for each of F, and recomputes the products with the inverse and
 * the states, which F does not keep. */
static void add_delta_rule(const lhi_shape *shape, lhi_work *f, lhi_work *d)
{
    const lh_model *m = shape->model;
    double heads = (double)m->linear_value_heads / shape->tensor;
    double k = m->linear_key_head_dim, v = m->linear_value_head_dim;
    double c = LHI_LINEAR_CHUNK, t = shape->tokens * heads;
    double forward = 2 * t * (c * (3 * k + 2 * v) + c * c / 3 + 3 * k * v);
    double again = 2 * t * (c * (k + v) + 2 * k * v);
    /* Queries, keys, values and outputs; the inverse, its two products; a state
     * per chunk. Each is written and read once. */
    double bytes = t * shape->element *
                   (2 * k + 2 * v + 2 * c + 2 * (k + v) + 2 * k * v / c);

    f->flops += forward;
    f->core_flops += forward;
    add_pointwise(f, bytes, 6);
    d->flops += 2 * forward + again;
    d->core_flops += 2 * forward + again;
    add_pointwise(d, 2 * bytes, 9);
}

/* Adds the element-wise operations of a gated delta network to F and to D
 * (NULL: not to D): convolution and activation of queries, keys and values,
 * norms of queries and keys, decays, and the gated norm of the outputs. */
static void add_linear_pointwise(const lhi_shape *shape, lhi_work *f,
                                 lhi_work *d)
{
    const lh_model *m = shape->model;
    double keys = (double)m->linear_key_heads * m->linear_key_head_dim;
    double values = (double)m->linear_value_heads * m->linear_value_head_dim;
    double bytes = shape->tokens * shape->element / shape->tensor *
                   (2 * (2 * keys + values) + 4 * keys + 3 * values);

    add_pointwise(f, bytes, 5);
    if (d)
        add_pointwise(d, 1.5 * bytes, 5);
}

/* Adds a gated delta network; tensor parallelism divides its heads. */
static void add_linear_attention(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double keys = (double)m->linear_key_heads * m->linear_key_head_dim;
    double heads = m->linear_value_heads;
    double values = heads * m->linear_value_head_dim;

    add_layer_linear(shape, out, shape->tokens, m->hidden,
                     (2 * keys + 2 * values) / shape->tensor, 1);
    add_layer_linear(shape, out, shape->tokens, m->hidden,
                     2 * heads / shape->tensor, 1);
    add_layer_linear(shape, out, shape->tokens, values / shape->tensor,
                     m->hidden, 1);
    add_linear_pointwise(shape, &out->f, &out->d);
    add_delta_rule(shape, &out->f, &out->d);
}

/* --- sparse attention --- */

/* Adds DeepSeek-V3.2's indexer (arXiv:2512.02556, section 2.1), replicated on
 * the GPUs of a tensor-parallel group. F scores all tokens (equation 1), in
 * fp32 in memory for the selection. D and W train it: the loss (equation 4) is
 * over the selected tokens, and no gradient enters the layer's input. */
static void add_indexer(const lhi_shape *shape, uint32_t layer,
                        lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    lhi_pass_work maps = {0};
    double t = shape->tokens, h = m->hidden;
    double width = (double)m->index_heads * m->index_head_dim;
    double all = t * shape->sequence / 2;
    double chosen =
        t * lhi_compute_mean_attended_tokens(m, layer, shape->sequence);

    add_layer_linear(shape, &maps, t, m->q_lora_rank ? m->q_lora_rank : h,
                     width, 1);
    add_layer_linear(shape, &maps, t, h, m->index_head_dim, 1);
    add_layer_linear(shape, &maps, t, h, m->index_heads, 1);
    lhi_work_add(&out->f, &maps.f, 1);
    lhi_work_add(&out->w, &maps.w, 1);
    out->f.flops += 2 * all * width;
    out->f.core_flops += 2 * all * width;
    add_pointwise(&out->f, 2 * 4 * all, 2);
    out->d.flops += 6 * chosen * width;
    out->d.core_flops += 6 * chosen * width;
    add_pointwise(&out->d, 3 * 4 * chosen, 3);
}

/* Adds the memory traffic and kernels of the rotary position embedding. */
static void add_rotation(const lhi_shape *shape, lhi_work *work)
{
    double rotated = 2 * (shape->heads + shape->kv_heads) * shape->qk_dim *
                     shape->tokens * shape->element;

    if (!shape->model->positions)
        add_pointwise(work, rotated, 1);
}

void lhi_work_attention(const lhi_shape *shape, uint32_t layer, lhi_work *f)
{
    lhi_pass_work once = {0};

    if (lh_model_layer_is_linear(shape->model, layer)) {
        add_linear_pointwise(shape, &once.f, NULL);
        add_delta_rule(shape, &once.f, &once.d);
    } else if (shape->unfused) {
        add_unfused_attention(shape, &once.f, &once.d);
    } else {
        add_flash_attention(shape, layer, &once.f, &once.d);
    }
    if (shape->model->index_topk)
        add_indexer(shape, layer, &once);
    if (shape->context > 1)
        merge_ring_steps(shape, &once);
    lhi_work_add(f, &once.f, 1);
}

/* Adds the work of `layer`'s attention block to the forward, dgrad and wgrad
 * passes. */
static void add_attention(const lhi_shape *shape, uint32_t layer,
                          lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double queries = shape->heads * shape->qk_dim;

    if (lh_model_layer_is_linear(m, layer)) {
        add_linear_attention(shape, out);
        return;
    }
    if (m->index_topk)
        add_indexer(shape, layer, out);
    if (m->kv_lora_rank) {
        add_latent_projections(shape, out);
    } else {
        add_layer_linear(shape, out, shape->tokens, m->hidden,
                         (m->attention_gate ? 2 : 1) * queries +
                             2 * shape->kv_heads * shape->qk_dim,
                         1);
        if (m->attention_gate) {
            double gate = queries * shape->tokens * shape->element;
            add_pointwise(&out->f, 3 * gate, 1);
            add_pointwise(&out->d, 5 * gate, 1);
        }
        add_layer_linear(shape, out, shape->tokens, shape->heads * shape->v_dim,
                         m->hidden, 1);
    }
    add_rotation(shape, &out->f);
    add_rotation(shape, &out->d);
    if (shape->unfused)
        add_unfused_attention(shape, &out->f, &out->d);
    else
        add_flash_attention(shape, layer, &out->f, &out->d);
    if (shape->context > 1)
        add_ring_attention(shape, out);
}

/* Adds the work of the activation function between an MLP's matrices, for
 * `rows` tokens of `width` values, to F and to D (NULL: not to D). */
static void add_activation(const lhi_shape *shape, double rows, double width,
                           lhi_work *f, lhi_work *d)
{
    double values = rows * width * shape->element;

    add_pointwise(f, (shape->model->gated ? 3 : 2) * values, 1);
    if (d)
        add_pointwise(d, (shape->model->gated ? 5 : 3) * values, 1);
}

/* Adds the work of `matrices` MLPs, each `local` wide on a GPU, on `rows`
 * tokens in all to the F, D and W passes. */
static void add_mlp(const lhi_shape *shape, double rows, double local,
                    double matrices, lhi_pass_work *out)
{
    double h = shape->model->hidden;

    add_layer_linear(shape, out, rows, h, (shape->model->gated ? 2 : 1) * local,
                     matrices);
    add_activation(shape, rows, local, &out->f, &out->d);
    add_layer_linear(shape, out, rows, local, h, matrices);
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
        out->tensor_bytes +=
            shape->tokens * shape->model->hidden * shape->element;
        out->tensor_calls += 1;
    }
}

/* Adds the work of the shared experts, which process all tokens. */
static void add_shared_experts(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;

    if (m->shared_expert_ffn)
        add_mlp(shape, shape->tokens,
                (double)m->shared_expert_ffn / shape->tensor, 1, out);
}

/* Adds the matrix products in `products`, those of experts, to the work *to,
 * and counts their FLOPs as grouped GEMMs. */
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
    double values = shape->tokens * shape->expert_rows * m->hidden;
    double experts = (double)m->experts / shape->expert;
    double e = shape->element;

    if (!shape->adds_biases)
        return;
    add_pointwise(f, values * (4 + (e + 8) + 8 + (4 + e)), 2 * experts + 2);
    add_pointwise(d, values * ((e + 4) + (4 + e) + 2 * 12 + 2 * e),
                  5 * experts + 2);
}

/* Adds the work of the routed experts on the GPU that receives the most tokens.
 */
static void add_routed_experts(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    lhi_pass_work all = {0};

    add_mlp(shape, shape->tokens * shape->expert_rows,
            (double)m->expert_ffn / shape->expert_tensor,
            (double)m->experts / shape->expert, &all);
    add_grouped(&out->f, &all.f);
    add_grouped(&out->d, &all.d);
    add_grouped(&out->w, &all.w);
    lhi_work_biases(shape, &out->f, &out->d);
}

/* Adds the work of router, dispatch, experts and combine. A GPU sends the mean
 * token count; the GPU with the most tokens, for which all others wait,
 * receives imbalance times as many, and returns as many. */
static void add_experts(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double moved =
        shape->tokens * shape->dispatched * m->hidden * shape->element;
    double received =
        shape->tokens * shape->received * m->hidden * shape->element;

    add_linear(shape, out, shape->tokens * shape->norm_share, m->hidden,
               m->experts, 1);
    add_pointwise(&out->f, 4 * moved, 4);
    add_pointwise(&out->d, 4 * moved, 4);
    if (shape->dispatches_tokens) {
        add_token_messages(shape, received, &out->f);
        add_token_messages(shape, received, &out->d);
    }
    add_routed_experts(shape, out);
    add_shared_experts(shape, out);
}

double lhi_count_norms(const lh_model *model)
{
    return lhi_model_count_norms(model);
}

/* Adds the memory traffic and kernels of the norms and residual additions
 * around attention and MLP to F and D. */
static void add_norms(const lhi_shape *shape, lhi_pass_work *out)
{
    double values = shape->tokens * shape->norm_share * shape->model->hidden;
    double norm = 2 * values * shape->element;
    double residual =
        3 * values * shape->element + (shape->dropout ? values : 0);

    double times = lhi_count_norms(shape->model);

    add_pointwise(&out->f, times * norm + 2 * residual, times + 2);
    add_pointwise(&out->d, times * 1.5 * norm + 2 * residual, times + 2);
}

/* Adds the tensor-parallel communication. Forward per layer: two all-reduces of
 * the activations [Nar section 2.3], or as many bytes in two all-gathers and
 * two reduce-scatters [Kor section 4.2.2]; backward the same. Parallel blocks
 * need half, since attention and MLP share input and sum. W's second all-gather
 * of its input overlaps with D. If experts are partitioned separately, only
 * attention and shared experts communicate here. */
static void add_tensor_communication(const lhi_shape *shape, uint32_t layer,
                                     lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double bytes = shape->tokens * m->hidden * shape->element;
    double calls = 2 * lhi_count_norms(m);

    if (shape->scales_tensors) /* gathers are of 8 bits */
        bytes *= (1 + shape->product_element / shape->element) / 2;
    if (shape->tensor == 1)
        return;
    if (shape->dispatches_tokens && lh_model_layer_is_moe(m, layer) &&
        !m->shared_expert_ffn)
        calls = 2;
    out->f.tensor_bytes += calls * bytes;
    out->f.tensor_calls += calls;
    out->d.tensor_bytes += calls * bytes;
    out->d.tensor_calls += calls;
}

void lhi_work_add(lhi_work *to, const lhi_work *what, double times)
{
    to->flops += times * what->flops;
    to->fp8_flops += times * what->fp8_flops;
    to->grouped_flops += times * what->grouped_flops;
    to->padding_flops += times * what->padding_flops;
    to->fp8_padding_flops += times * what->fp8_padding_flops;
    to->bytes += times * what->bytes;
    to->kernels += times * what->kernels;
    to->ring_bytes += times * what->ring_bytes;
    to->ring_kernels += times * what->ring_kernels;
    to->tensor_bytes += times * what->tensor_bytes;
    to->tensor_calls += times * what->tensor_calls;
    to->expert_bytes += times * what->expert_bytes;
    to->expert_calls += times * what->expert_calls;
    to->sharing_bytes += times * what->sharing_bytes;
    to->sharing_calls += times * what->sharing_calls;
    to->context_bytes += times * what->context_bytes;
    to->context_calls += times * what->context_calls;
    to->core_flops += times * what->core_flops;
    to->flash_f_flops += times * what->flash_f_flops;
    to->flash_d_flops += times * what->flash_d_flops;
}

/* Adds the recomputation of the norms before attention and MLP to a dgrad pass.
 */
static void recompute_norms(const lhi_shape *shape, lhi_work *d)
{
    double values = shape->tokens * shape->norm_share * shape->model->hidden;

    double times = lhi_count_norms(shape->model);

    add_pointwise(d, times * 2 * values * shape->element, times);
}

/* Adds the recomputation of the routed experts' activation function to a dgrad
 * pass. */
static void recompute_routed_activation(const lhi_shape *shape, lhi_work *d)
{
    add_activation(shape, shape->tokens * shape->expert_rows,
                   (double)shape->model->expert_ffn / shape->expert_tensor, d,
                   NULL);
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
        if (!lh_model_layer_is_linear(m, layer))
            add_unfused_attention(shape, d, &ignored);
        return;
    }
    recompute_norms(shape, d);
    if (lh_model_layer_is_moe(m, layer)) {
        recompute_routed_activation(shape, d);
        if (m->shared_expert_ffn)
            add_activation(shape, shape->tokens,
                           (double)m->shared_expert_ffn / shape->tensor, d,
                           NULL);
    } else {
        add_activation(shape, shape->tokens, (double)m->ffn / shape->tensor, d,
                       NULL);
    }
}

/* Adds torchtitan's selective recomputation. Its _get_custom_policy() saves the
 * first of every two products in the order of the model's code: queries, keys,
 * values, output of attention, gate, up, down. Reduce-scatters are saved, but
 * not gathers. */
static void recompute_unsaved_products(const lhi_shape *shape, uint32_t layer,
                                       lhi_work *d)
{
    const lh_model *m = shape->model;
    double h = m->hidden, t = shape->tokens;

    recompute_norms(shape, d);
    add_rotation(shape, d);
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

/* Adds the tensor-parallel all-gather before an MLP and the reduce-scatter
 * after it, for its recomputation. */
static void add_tensor_around(const lhi_shape *shape, lhi_work *work)
{
    if (shape->tensor == 1)
        return;
    work->tensor_bytes +=
        2 * shape->tokens * shape->model->hidden * shape->element;
    work->tensor_calls += 2;
}

/* Adds the recomputation of an expert layer to a dgrad pass: all of it, or its
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

    if (lhi_is_module_recomputed(shape, LH_MODULE_CORE_ATTN)) {
        if (lh_model_layer_is_linear(m, layer))
            add_delta_rule(shape, &once.f, &once.w);
        else if (shape->unfused)
            add_unfused_attention(shape, &once.f, &once.w);
        else
            add_flash_attention(shape, layer, &once.f, &once.w);
        if (shape->context > 1)
            add_ring_attention(shape, &once);
    }
    if (lhi_is_module_recomputed(shape, LH_MODULE_LAYERNORM))
        recompute_norms(shape, d);
    if (lhi_is_module_recomputed(shape, LH_MODULE_MLA_UP_PROJ) &&
        m->kv_lora_rank) {
        add_up_projections(shape, &once);
        add_rotation(shape, &once.f);
    }
    if (lh_model_layer_is_moe(m, layer)) {
        recompute_experts(shape, d);
    } else if (lhi_is_module_recomputed(shape, LH_MODULE_MLP)) {
        add_mlp(shape, shape->tokens, (double)m->ffn / shape->tensor, 1, &once);
        add_tensor_around(shape, &once.f);
    }
    lhi_work_add(d, &once.f, 1);
}

void lhi_work_layer(const lhi_shape *shape, uint32_t layer, lhi_pass_work *out)
{
    lhi_params params;

    *out = (lhi_pass_work){0};
    add_norms(shape, out);
    add_attention(shape, layer, out);
    if (lh_model_layer_is_moe(shape->model, layer))
        add_experts(shape, out);
    else
        add_mlp(shape, shape->tokens, (double)shape->model->ffn / shape->tensor,
                1, out);
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
    add_pointwise(&out->f, 2 * values * shape->element, 1);
    if (shape->dropout)
        add_pointwise(&out->f, values * (2 * shape->element + 1), 1);
    add_pointwise(&out->w, values * (shape->element + 2 * shape->gradient), 1);
    if (shape->tensor > 1) {
        /* Each GPU holds a part of the vocabulary [Nar section 2.3]. */
        out->f.tensor_bytes = 2 * values * shape->element;
        out->f.tensor_calls = 2;
    }
}

/* Adds the work of the cross entropy over a vocabulary split by tensor
 * parallelism: 14 bytes per logit forward (conversion to fp32, maximum,
 * exponential and sum), 10 backward. */
static void add_vocabulary(const lhi_shape *shape, lhi_pass_work *out)
{
    double logits = shape->tokens * shape->vocab;
    double h = shape->model->hidden;
    double values = shape->tokens * shape->norm_share * h * shape->element;

    add_pointwise(&out->f, 2 * values, 1);
    add_pointwise(&out->d, 3 * values, 1);
    add_linear(shape, out, shape->tokens, h, shape->vocab, 1);
    if (shape->loss != LH_LOSS_FUSED) {
        lhi_eager_add_loss(shape, out);
    } else {
        add_pointwise(&out->f, 14 * logits, 3);
        add_pointwise(&out->d, 10 * logits, 2);
    }
    if (shape->tensor > 1) {
        out->d.tensor_bytes += 2 * shape->tokens * h * shape->element;
        out->d.tensor_calls += 2;
    }
}

/* Computes the work of norm, vocabulary matrix and loss. With multi-token
 * prediction, the head processes the model's output and each module's
 * (arXiv:2412.19437, section 2.2). */
void lhi_work_head(const lhi_shape *shape, lhi_pass_work *out)
{
    *out = (lhi_pass_work){0};
    for (uint32_t i = 0; i <= shape->model->mtp_layers; i++)
        add_vocabulary(shape, out);
}

void lhi_work_mtp(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    lhi_pass_work layer;

    *out = (lhi_pass_work){0};
    if (!m->mtp_layers)
        return;
    lhi_work_layer(shape, m->layers - 1, &layer);
    for (uint32_t i = 0; i < m->mtp_layers; i++) {
        lhi_work_add(&out->f, &layer.f, 1);
        lhi_work_add(&out->d, &layer.d, 1);
        lhi_work_add(&out->w, &layer.w, 1);
        add_layer_linear(shape, out, shape->tokens, 2.0 * m->hidden,
                         (double)m->hidden / shape->tensor, 1);
    }
}
