/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a layer's attention block: flash and unfused attention, the ring
 * of context parallelism, multi-head latent attention, gated delta networks,
 * Mamba-2 and sparse attention. */
#include "model/work_internal.h"

#include <math.h>

/* An unfused attention forward pass's kernels: two products, mask, softmax,
 * dropout, and the copies around them. */
enum { UNFUSED_KERNELS = 16 };

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

/* Adds `bytes` of memory traffic and `kernels` kernels to a pass, and also to
 * its subtotals for context parallelism (ring_bytes, ring_kernels). */
static void add_ring_kernels(lhi_work *work, double bytes, double kernels)
{
    lhi_work_add_pointwise(work, bytes, kernels);
    work->ring_bytes += bytes;
    work->ring_kernels += kernels;
}

/* cuDNN's attention kernels, by NVIDIA's measurements on H200, GB200 and GB300
 * (cudnn-frontend 3929da2, benchmark/sdpa_benchmark_training/results, bf16,
 * causal mask): a token that attends to n others on average, of 2 n before it,
 * reaches 2 n / (2 n + RAMP) of the highest rate. A window adds the part of its
 * first and last tile of keys that is masked. Heads of at most 64 values reach
 * less: F and D (gpt_oss beside llama3.1, H200). */
enum { CUDNN_RAMP = 900, CUDNN_TILE = 128, SMALL_HEAD = 64 };
static const double SMALL_HEAD_F = 0.82, SMALL_HEAD_D = 0.93;

/* Rates of cuDNN's kernels for 8-bit values with a scale per block, relative to
 * those of its 16-bit kernels in the model, by the same measurements (mxfp8,
 * means of GB200 and GB300 and of 2,048 to 32,768 tokens): heads with more than
 * 128 values, with 65 to 128, and with at most 64. */
static const struct {
    double qk_dim, f, d;
} fp8_rates[] = {{128, 1.56, 1.21}, {64, 1.39, 0.98}, {0, 0.89, 0.60}};

/* Returns the time that cuDNN's kernels take for their FLOPs, relative to the
 * highest rate of a 16-bit kernel, with `visible` tokens per token. */
static double compute_slowdown(const lhi_shape *shape, double visible)
{
    const double ramp = (2 * visible + CUDNN_RAMP) / (2 * visible);

    return visible < shape->sequence / 2
               ? ramp * (visible + CUDNN_TILE) / visible
               : ramp;
}

/* Adds FLOPs of flash attention's kernels to a pass, `visible` tokens per
 * token: `f` in forward kernels and `d` in backward kernels, one of which is 0.
 * In 8 bits the backward kernel computes the tokens outside a window, too. */
static void add_flash_flops(const lhi_shape *shape, double visible, double f,
                            double d, lhi_work *work)
{
    size_t row = 0;

    work->flops += f + d;
    work->core_flops += f + d;
    work->flash_flops += f + d;
    if (!shape->cudnn_attention) {
        work->flash_f_flops += f;
        work->flash_d_flops += d;
        return;
    }
    f *= compute_slowdown(shape, visible);
    if (shape->fp8_attention) {
        while (shape->qk_dim <= fp8_rates[row].qk_dim)
            row++;
        f /= fp8_rates[row].f;
        d *= shape->sequence / 2 / visible / fp8_rates[row].d *
             compute_slowdown(shape, shape->sequence / 2);
    } else {
        d *= compute_slowdown(shape, visible);
        if (shape->qk_dim <= SMALL_HEAD) {
            f /= SMALL_HEAD_F;
            d /= SMALL_HEAD_D;
        }
    }
    work->flash_f_flops += f;
    work->flash_d_flops += d;
}

void lhi_work_add_flash_attention(const lhi_shape *shape, uint32_t layer,
                                  lhi_work *f, lhi_work *d)
{
    double visible =
        lhi_compute_mean_attended_tokens(shape->model, layer, shape->sequence);
    double pairs = 2 * shape->tokens * visible * shape->heads;
    double values = (shape->qk_dim + shape->v_dim) * shape->tokens;
    double qo = shape->heads * values * shape->element;
    double kv = shape->kv_heads * values * shape->element;
    double more = shape->context - 1;

    if (shape->fp8_attention) { /* queries, keys, values; output gradient */
        double results = shape->heads * shape->v_dim * shape->tokens;
        lhi_work_add_quantisation(shape, (qo + kv) / shape->element - results,
                                  f);
        lhi_work_add_quantisation(shape, results, d);
    }
    add_flash_flops(shape, visible, pairs * (shape->qk_dim + shape->v_dim), 0,
                    f);
    lhi_work_add_pointwise(f, qo + kv, 1);
    add_ring_kernels(f, more * (qo + kv / 2), more);
    add_flash_flops(shape, visible, 0,
                    pairs * (3 * shape->qk_dim + 2 * shape->v_dim), d);
    lhi_work_add_pointwise(d, 2 * (qo + kv), 2);
    add_ring_kernels(d, 2 * more * (qo + kv / 2), 2 * more);
}

void lhi_work_add_unfused_attention(const lhi_shape *shape, lhi_work *f,
                                    lhi_work *d)
{
    double scores = shape->tokens * shape->sequence * shape->heads;
    double dims = shape->qk_dim + shape->v_dim;
    double qkvo = (shape->heads + shape->kv_heads) * dims * shape->tokens;
    double softmax = 2 * scores * shape->element;
    double drop = shape->dropout ? scores * (2 * shape->element + 1) : 0;

    f->flops += 2 * scores * dims;
    f->core_flops += 2 * scores * dims;
    lhi_work_add_pointwise(
        f, (2 * scores + 3 * qkvo) * shape->element + softmax + drop,
        UNFUSED_KERNELS);
    d->flops += 4 * scores * dims;
    d->core_flops += 4 * scores * dims;
    lhi_work_add_pointwise(
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

void lhi_work_add_ring_attention(const lhi_shape *shape, lhi_pass_work *out)
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

void lhi_work_add_up_projections(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double heads = shape->heads;

    lhi_work_add_layer_linear(shape, out, shape->tokens,
                              m->q_lora_rank ? m->q_lora_rank : m->hidden,
                              heads * shape->qk_dim, 1);
    lhi_work_add_layer_linear(shape, out, shape->tokens, m->kv_lora_rank,
                              heads * (m->qk_nope_head_dim + shape->v_dim), 1);
}

/* Adds to F, D and W the work of multi-head latent attention's projections
 * (arXiv:2405.04434, 2.1); every GPU has a copy of the down-projections. */
static void add_latent_projections(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double h = m->hidden;

    if (m->q_lora_rank)
        lhi_work_add_layer_linear(shape, out, shape->tokens, h, m->q_lora_rank,
                                  1);
    lhi_work_add_layer_linear(shape, out, shape->tokens, h,
                              (double)m->kv_lora_rank + m->qk_rope_head_dim, 1);
    lhi_work_add_up_projections(shape, out);
    lhi_work_add_layer_linear(shape, out, shape->tokens,
                              shape->heads * shape->v_dim, h, 1);
}

/* --- gated delta networks ------------------------------------------------- */

void lhi_work_add_delta_rule(const lhi_shape *shape, lhi_work *f, lhi_work *d)
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
    lhi_work_add_pointwise(f, bytes, 6);
    d->flops += 2 * forward + again;
    d->core_flops += 2 * forward + again;
    lhi_work_add_pointwise(d, 2 * bytes, 9);
}

/* Adds the work of a gated delta network's element-wise operations to F and to
 * D (NULL: not to D). They are convolution and activation of queries, keys and
 * values, query and key norms, decays, and the outputs' gated norm. */
static void add_linear_pointwise(const lhi_shape *shape, lhi_work *f,
                                 lhi_work *d)
{
    const lh_model *m = shape->model;
    double keys = (double)m->linear_key_heads * m->linear_key_head_dim;
    double values = (double)m->linear_value_heads * m->linear_value_head_dim;
    double bytes = shape->tokens * shape->element / shape->tensor *
                   (2 * (2 * keys + values) + 4 * keys + 3 * values);

    lhi_work_add_pointwise(f, bytes, 5);
    if (d)
        lhi_work_add_pointwise(d, 1.5 * bytes, 5);
}

/* Adds the work of a gated delta network (linear attention) to F, D and W;
 * tensor parallelism divides its heads. */
static void add_linear_attention(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double keys = (double)m->linear_key_heads * m->linear_key_head_dim;
    double heads = m->linear_value_heads;
    double values = heads * m->linear_value_head_dim;

    lhi_work_add_layer_linear(shape, out, shape->tokens, m->hidden,
                              (2 * keys + 2 * values) / shape->tensor, 1);
    lhi_work_add_layer_linear(shape, out, shape->tokens, m->hidden,
                              2 * heads / shape->tensor, 1);
    lhi_work_add_layer_linear(shape, out, shape->tokens, values / shape->tensor,
                              m->hidden, 1);
    add_linear_pointwise(shape, &out->f, &out->d);
    lhi_work_add_delta_rule(shape, &out->f, &out->d);
}

/* --- Mamba-2 --- */

/* Adds Mamba-2's core, after its input projection and before its output
 * projection: convolution, state space dual form (SSD) and gated norm.
 *
 * SSD (arXiv:2405.21060, section 6) computes chunks of Q tokens. For each token
 * and group the scores with B and C of its chunk: QN products; for each token
 * and head the chunk's own outputs from these scores: QP; its part of the
 * chunk's state: NP; and the state's output before the chunk: NP. D multiplies
 * twice as often, and first computes scores and states again, as the kernels of
 * mamba_ssm do (ssd_combined.py, 2.2). States are in fp32. */
static void add_mamba_core(const lhi_shape *shape, lhi_work *f, lhi_work *d)
{
    const lh_model *m = shape->model;
    double heads = (double)m->mamba_heads / shape->tensor;
    /* GPUs that share a group compute its scores for all their tokens. */
    double groups = fmax(m->mamba_groups / shape->tensor, shape->context);
    double p = m->mamba_head_dim, n = m->mamba_state_dim, q = LHI_MAMBA_CHUNK;
    double t = shape->tokens, e = shape->element, values = heads * p;
    double scores = 2 * t * groups * q * n;
    double states = 2 * t * heads * n * p;
    double forward = scores + 2 * t * heads * q * p + 2 * states;
    double mixed = values + 2 * groups * n; /* values, B and C */
    /* Scores of a chunk, and its state, which is written, passed on and read.
     */
    double chunk = 4 * t * (2 * groups * q + 4 * heads * n * p / q);

    f->flops += forward;
    f->core_flops += forward;
    /* Convolution; SSD reads values twice, B and C three times, and writes the
     * outputs; the norm reads them and the gates. */
    lhi_work_add_pointwise(f,
                           t * e * (2 * mixed + 3 * mixed + values) + chunk +
                               t * e * 3 * values,
                           7);
    d->flops += 2 * forward + scores + states;
    d->core_flops += 2 * forward + scores + states;
    lhi_work_add_pointwise(d,
                           t * e * (4 * mixed + 7 * mixed + 3 * values) +
                               2.5 * chunk + t * e * 5 * values,
                           16);
}

/* Adds the all-to-alls of context parallelism around a Mamba-2 core to F or D
 * (Megatron Core, mamba_context_parallel.py). Every GPU gets all tokens of a
 * share of the heads, and returns its outputs. `width`: values per token before
 * and after the core. */
static void add_head_exchange(const lhi_shape *shape, double width,
                              lhi_work *work)
{
    double others = shape->context - 1;

    work->context_bytes +=
        others / shape->context * shape->tokens * width * shape->element;
    work->context_calls += 2 * others;
    lhi_work_add_pointwise(work, 2 * shape->tokens * width * shape->element, 2);
}

/* Adds a Mamba-2 layer's work to F, D and W; tensor and context parallelism
 * divide its heads and groups. */
static void add_mamba(const lhi_shape *shape, lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double values = (double)m->mamba_heads * m->mamba_head_dim / shape->tensor;
    double inputs = lhi_count_mamba_inputs(shape);

    lhi_work_add_layer_linear(shape, out, shape->tokens, m->hidden, inputs, 1);
    add_mamba_core(shape, &out->f, &out->d);
    lhi_work_add_layer_linear(shape, out, shape->tokens, values, m->hidden, 1);
    if (shape->context > 1) {
        /* Nothing overlaps with the exchange. */
        out->f.core_flops = out->d.core_flops = 0;
        add_head_exchange(shape, inputs + values, &out->f);
        add_head_exchange(shape, inputs + values, &out->d);
    }
}

double lhi_count_mamba_inputs(const lhi_shape *shape)
{
    const lh_model *m = shape->model;

    return (m->mamba_heads * (2.0 * m->mamba_head_dim + 1) +
            2.0 * m->mamba_groups * m->mamba_state_dim) /
           shape->tensor;
}

/* --- sparse attention --- */

/* Adds DeepSeek-V3.2's indexer (arXiv:2512.02556, section 2.1), replicated on
 * a tensor-parallel group's GPUs. F scores all tokens (equation 1), in fp32 in
 * memory for the selection. D and W train it: the loss (equation 4) is over the
 * selected tokens, and no gradient enters the layer's input. */
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

    lhi_work_add_layer_linear(shape, &maps, t,
                              m->q_lora_rank ? m->q_lora_rank : h, width, 1);
    lhi_work_add_layer_linear(shape, &maps, t, h, m->index_head_dim, 1);
    lhi_work_add_layer_linear(shape, &maps, t, h, m->index_heads, 1);
    lhi_work_add(&out->f, &maps.f, 1);
    lhi_work_add(&out->w, &maps.w, 1);
    out->f.flops += 2 * all * width;
    out->f.core_flops += 2 * all * width;
    lhi_work_add_pointwise(&out->f, 2 * 4 * all, 2);
    out->d.flops += 6 * chosen * width;
    out->d.core_flops += 6 * chosen * width;
    lhi_work_add_pointwise(&out->d, 3 * 4 * chosen, 3);
}

void lhi_work_add_rotation(const lhi_shape *shape, lhi_work *work)
{
    double rotated = 2 * (shape->heads + shape->kv_heads) * shape->qk_dim *
                     shape->tokens * shape->element;

    if (!shape->model->positions)
        lhi_work_add_pointwise(work, rotated, 1);
}

void lhi_work_attention(const lhi_shape *shape, uint32_t layer, lhi_work *f)
{
    lhi_pass_work once = {0};
    const lhi_mixer mixer = lhi_model_layer_mixer(shape->model, layer);

    if (mixer == LHI_MIXER_MAMBA) {
        add_mamba_core(shape, &once.f, &once.d);
    } else if (mixer == LHI_MIXER_LINEAR) {
        add_linear_pointwise(shape, &once.f, NULL);
        lhi_work_add_delta_rule(shape, &once.f, &once.d);
    } else if (shape->unfused) {
        lhi_work_add_unfused_attention(shape, &once.f, &once.d);
    } else {
        lhi_work_add_flash_attention(shape, layer, &once.f, &once.d);
    }
    if (shape->model->index_topk)
        add_indexer(shape, layer, &once);
    if (shape->context > 1 && mixer == LHI_MIXER_ATTENTION)
        merge_ring_steps(shape, &once);
    lhi_work_add(f, &once.f, 1);
}

void lhi_work_add_attention_block(const lhi_shape *shape, uint32_t layer,
                                  lhi_pass_work *out)
{
    const lh_model *m = shape->model;
    double queries = shape->heads * shape->qk_dim;

    switch (lhi_model_layer_mixer(m, layer)) {
    case LHI_MIXER_NONE:
        return;
    case LHI_MIXER_LINEAR:
        add_linear_attention(shape, out);
        return;
    case LHI_MIXER_MAMBA:
        add_mamba(shape, out);
        return;
    case LHI_MIXER_ATTENTION:
        break;
    }
    if (m->index_topk)
        add_indexer(shape, layer, out);
    if (m->kv_lora_rank) {
        add_latent_projections(shape, out);
    } else {
        lhi_work_add_layer_linear(shape, out, shape->tokens, m->hidden,
                                  (m->attention_gate ? 2 : 1) * queries +
                                      2 * shape->kv_heads * shape->qk_dim,
                                  1);
        if (m->attention_gate) {
            double gate = queries * shape->tokens * shape->element;
            lhi_work_add_pointwise(&out->f, 3 * gate, 1);
            lhi_work_add_pointwise(&out->d, 5 * gate, 1);
        }
        lhi_work_add_layer_linear(shape, out, shape->tokens,
                                  shape->heads * shape->v_dim, m->hidden, 1);
    }
    lhi_work_add_rotation(shape, &out->f);
    lhi_work_add_rotation(shape, &out->d);
    if (shape->unfused)
        lhi_work_add_unfused_attention(shape, &out->f, &out->d);
    else
        lhi_work_add_flash_attention(shape, layer, &out->f, &out->d);
    if (shape->context > 1)
        lhi_work_add_ring_attention(shape, out);
}
