/* SPDX-License-Identifier: Apache-2.0 */
/* The model among Megatron-LM's arguments. Names, meanings and defaults:
 * megatron/training/arguments.py and gpt_builders.py (core 0.16.1). inexact.c
 * lists the settings that they cannot express. */
#include "format/job/parse.h"
#include "interop/export/export_internal.h"

#include <inttypes.h>

/* Adds a pattern such as "([1]*12+[0]*20)" over model `m`'s layers: 1 for
 * each layer for which is_one() is true, as runs of equal layers. */
static void put_layer_pattern(lhi_text *out, const lh_model *m,
                              bool is_one(const lh_model *m, uint32_t layer))
{
    lhi_text_puts(out, "(");
    for (uint32_t i = 0, first = 0; i < m->layers; first = i) {
        bool one = is_one(m, first);
        while (i < m->layers && is_one(m, i) == one)
            i++;
        lhi_text_printf(out, "%s[%d]*%" PRIu32, first ? "+" : "", one,
                        i - first);
    }
    lhi_text_puts(out, ")\n");
}

/* Checks whether a layer attends only to a window of tokens. */
static bool has_window(const lh_model *m, uint32_t layer)
{
    return lh_model_layer_window(m, layer) > 0;
}

/* Checks whether a layer has no rotary positions; the model must have such
 * layers. */
static bool lacks_positions(const lh_model *m, uint32_t layer)
{
    return layer % m->no_rope_interval == m->no_rope_interval - 1;
}

/* Adds the attention window, counted in tokens before the current one, and the
 * pattern of layers that have it. Adds nothing without windows. */
static void put_windows(lhi_text *out, const lh_model *m)
{
    if (!m->sliding_window)
        return;
    lhi_text_printf(out,
                    "--window-size %" PRIu32 ",0\n"
                    "--window-attn-skip-freq ",
                    m->sliding_window - 1);
    put_layer_pattern(out, m, has_window);
}

/* Adds a line "--NAME VALUE" with 12 significant digits of a real number. */
static void put_number(lhi_text *out, const char *name, double value)
{
    lhi_text_printf(out, "--%s %.12g\n", name, value);
}

/* Adds Megatron-LM's arguments for latent attention's position scaling. For a
 * model without scaling they give factor 1, since the fused kernel requires
 * YaRN. Hugging Face ignores one of mscale and mscale_all_dim without the
 * other. */
static void put_latent_scaling(lhi_text *out, const lh_rope_scaling *s)
{
    const lh_rope_scaling *plain = &lhi_megatron_yarn;
    const bool both = s && s->mscale > 0 && s->mscale_all_dim > 0;
    lhi_text_puts(out, "--rope-type yarn\n");
    put_number(out, "rotary-scaling-factor", s ? s->factor : plain->factor);
    put_number(out, "mscale", both ? s->mscale : plain->mscale);
    put_number(out, "mscale-all-dim",
               both ? s->mscale_all_dim : plain->mscale_all_dim);
}

/* Adds the arguments for rotary positions: base, rotated fraction and scaling.
 */
static void put_rotary(lhi_text *out, const lh_model *m)
{
    const lh_rope_scaling *s = m->rope_scaling;
    lhi_text_puts(out, "--position-embedding-type rope\n");
    if (m->rope_theta)
        lhi_export_add_option(out, "rotary-base", m->rope_theta);
    if (m->partial_rotary_factor > 0)
        put_number(out, "rotary-percent", m->partial_rotary_factor);
    if (m->no_rope_interval) {
        lhi_text_puts(out, "--no-rope-freq ");
        put_layer_pattern(out, m, lacks_positions);
    }
    if (m->kv_lora_rank) {
        put_latent_scaling(out, s && s->type == LH_ROPE_YARN ? s : NULL);
    } else if (s && s->type == LH_ROPE_LLAMA3) {
        lhi_text_puts(out, "--use-rope-scaling\n");
        put_number(out, "rope-scaling-factor", s->factor);
    }
}

/* Adds the arguments for attention: head sizes, query and key norms, windows,
 * and positions. */
static void put_attention(lhi_text *out, const lh_model *m)
{
    lhi_export_add_option(out, "num-attention-heads", m->heads);
    if (m->kv_lora_rank) {
        lhi_text_puts(out, "--multi-latent-attention\n");
        if (m->q_lora_rank)
            lhi_export_add_option(out, "q-lora-rank", m->q_lora_rank);
        lhi_export_add_option(out, "kv-lora-rank", m->kv_lora_rank);
        lhi_export_add_option(out, "qk-head-dim", m->qk_nope_head_dim);
        lhi_export_add_option(out, "qk-pos-emb-head-dim", m->qk_rope_head_dim);
        lhi_export_add_option(out, "v-head-dim", m->v_head_dim);
    } else {
        lhi_export_add_option(out, "kv-channels", m->head_dim);
        if (m->kv_heads != m->heads) {
            lhi_text_puts(out, "--group-query-attention\n");
            lhi_export_add_option(out, "num-query-groups", m->kv_heads);
        }
    }
    if (m->qk_norm || m->kv_lora_rank) /* with MLA: of the compressed vectors */
        lhi_text_puts(out, "--qk-layernorm\n");
    if (m->qk_l2_norm)
        lhi_text_puts(out, "--qk-l2-norm\n");
    if (m->attention_sinks)
        lhi_text_puts(out, "--softmax-type learnable\n");
    put_windows(out, m);
    if (m->positions) {
        lhi_text_puts(out, "--position-embedding-type learned_absolute\n");
        lhi_export_add_option(out, "max-position-embeddings", m->positions);
    } else {
        put_rotary(out, m);
    }
}

/* Adds the expert router's arguments, which do not affect time or memory.
 * Sigmoid scores come with a balancing bias, a loss per sequence and fp32
 * routing, as in DeepSeek-V3. With one expert per token, softmax over all
 * experts comes first. */
static void put_router(lhi_text *out, const lh_model *m)
{
    bool sigmoid = m->router == LH_ROUTER_SIGMOID;
    if (sigmoid)
        lhi_text_puts(out, "--moe-router-score-function sigmoid\n"
                           "--moe-router-enable-expert-bias\n");
    else if (m->experts_per_token == 1 || m->unnormalised_scores)
        lhi_text_puts(out, "--moe-router-pre-softmax\n");
    if (m->expert_groups) {
        lhi_export_add_option(out, "moe-router-num-groups", m->expert_groups);
        lhi_export_add_option(out, "moe-router-group-topk",
                              m->groups_per_token);
    }
    if (m->routed_scale != 0)
        put_number(out, "moe-router-topk-scaling-factor", m->routed_scale);
    if (sigmoid)
        lhi_text_puts(out, "--moe-router-load-balancing-type seq_aux_loss\n"
                           "--moe-router-dtype fp32\n");
}

/* Adds the arguments for balancing tokens between experts: loss, bias and
 * capacity. Megatron-LM's default is no loss. */
static void put_load_balancing(lhi_text *out, const lh_job *job)
{
    const lh_training *t = &job->training;
    if (job->model->experts)
        put_number(out, "moe-aux-loss-coeff", lhi_job_balance_loss(job));
    if (job->model->router == LH_ROUTER_SIGMOID)
        put_number(out, "moe-router-bias-update-rate",
                   lhi_job_balance_bias(job));
    if (t->expert_capacity > 0)
        lhi_text_printf(out,
                        "--moe-expert-capacity-factor %.12g\n"
                        "--moe-token-drop-policy position\n",
                        t->expert_capacity);
}

/* Adds the arguments for the activation function. Megatron-LM's GeLU is the
 * approximation with tanh if fused with a bias, else exact. Its fusion rejects
 * other functions. For experts with quick_gelu it applies the limit before the
 * bias. */
static void put_activation(lhi_text *out, const lh_model *m)
{
    const lh_activation function = m->activation;
    if (function == LH_ACTIVATION_QUICK_GELU)
        lhi_text_puts(out, "--quick-geglu\n");
    else if (function == LH_ACTIVATION_RELU2)
        lhi_text_puts(out, "--squared-relu\n");
    else if (m->gated)
        lhi_text_puts(out, "--swiglu\n");
    if (m->glu_linear_offset > 0)
        put_number(out, "glu-linear-offset", m->glu_linear_offset);
    if (m->swiglu_limit > 0)
        put_number(out, "activation-func-clamp-value", m->swiglu_limit);
    if (m->mlp_bias &&
        (function == LH_ACTIVATION_GELU || function == LH_ACTIVATION_RELU2 ||
         function == LH_ACTIVATION_QUICK_GELU))
        lhi_text_puts(out, "--no-bias-gelu-fusion\n");
}

/* Adds the arguments for MLP widths, the activation function and experts. */
static void put_mlps(lhi_text *out, const lh_model *m)
{
    lhi_export_add_option(out, "ffn-hidden-size",
                          m->ffn ? m->ffn : m->expert_ffn);
    put_activation(out, m);
    if (!m->experts)
        return;
    lhi_export_add_option(out, "num-experts", m->experts);
    lhi_export_add_option(out, "moe-router-topk", m->experts_per_token);
    lhi_export_add_option(out, "moe-ffn-hidden-size", m->expert_ffn);
    if (m->shared_expert_ffn)
        lhi_export_add_option(out, "moe-shared-expert-intermediate-size",
                              m->shared_expert_ffn);
    if (m->shared_expert_gate)
        lhi_text_puts(out, "--moe-shared-expert-gate\n");
    lhi_text_puts(out, "--moe-layer-freq ");
    put_layer_pattern(out, m, lh_model_layer_is_moe);
    lhi_text_puts(out, "--moe-grouped-gemm\n");
    put_router(out, m);
}

/* Adds the vocabulary size, the multiple to which Megatron-LM pads it with
 * `tensor` tensor-parallel ranks, and a comment if padding changes it. */
static void put_vocabulary(lhi_text *out, const lh_job *job, uint32_t tensor)
{
    const uint32_t vocab = job->model->vocab;
    uint32_t multiple;
    const uint32_t words = lhi_megatron_padded_vocab(vocab, tensor, &multiple);
    if (words != vocab)
        lhi_text_printf(out,
                        "# Megatron-LM pads the vocabulary to %" PRIu32
                        " tokens, as the plan assumes\n",
                        words);
    lhi_export_add_option(out, "vocab-size", vocab);
    if (multiple < 128)
        lhi_export_add_option(out, "make-vocab-size-divisible-by", multiple);
}

void lhi_export_put_megatron_model(lhi_text *out, const lh_job *job,
                                   uint32_t tensor)
{
    const lh_model *m = job->model;
    lhi_export_add_option(out, "num-layers", m->layers);
    lhi_export_add_option(out, "hidden-size", m->hidden);
    put_attention(out, m);
    put_mlps(out, m);
    lhi_text_printf(out, "--normalization %s\n",
                    m->norm == LH_NORM_RMS ? "RMSNorm" : "LayerNorm");
    put_number(out, "norm-epsilon", lh_model_norm_epsilon(m));
    if (m->norm_zero_centered)
        lhi_text_puts(out, "--apply-layernorm-1p\n");
    if (!m->output_bias && !m->mlp_bias)
        lhi_text_puts(out, "--disable-bias-linear\n");
    if (m->qkv_bias)
        lhi_text_puts(out, "--add-qkv-bias\n");
    if (!m->tied_embeddings)
        lhi_text_puts(out, "--untie-embeddings-and-output-weights\n");
    put_vocabulary(out, job, tensor);
    if (m->mtp_layers)
        lhi_export_add_option(out, "mtp-num-layers", m->mtp_layers);
    if (m->initializer_range > 0)
        put_number(out, "init-method-std", m->initializer_range);
    /* Megatron-LM's default is 0.1. */
    if (lhi_job_dropout(job) != 0.1)
        lhi_text_printf(out,
                        "--hidden-dropout %.12g\n--attention-dropout %.12g\n",
                        lhi_job_dropout(job), lhi_job_dropout(job));
    put_load_balancing(out, job);
    lhi_export_add_option(out, "seq-length", job->training.sequence);
    if (!m->positions)
        lhi_export_add_option(out, "max-position-embeddings",
                              job->training.sequence);
}
