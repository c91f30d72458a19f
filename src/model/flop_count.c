/* SPDX-License-Identifier: Apache-2.0 */
/* Floating-point operations that a model needs, independent of hardware and
 * framework. */
#include "model/flop_count.h"
#include "model/work.h"

/* Returns the parameters of a layer's mixer (attention, gated delta network or
 * Mamba-2) that take part in matrix products for each token. */
static double count_multiplied_mixer_params(const lh_model *m, uint32_t layer)
{
    double h = m->hidden, heads = m->heads, attention;
    double keys = (double)m->linear_key_heads * m->linear_key_head_dim;
    double values = (double)m->linear_value_heads * m->linear_value_head_dim;
    double channels = (double)m->mamba_heads * m->mamba_head_dim;
    double q = heads * m->head_dim;

    switch (lhi_model_layer_mixer(m, layer)) {
    case LHI_MIXER_NONE:
        return 0;
    case LHI_MIXER_LINEAR:
        return h * (2 * keys + 3 * values + 2.0 * m->linear_value_heads);
    case LHI_MIXER_MAMBA:
        return h * (3 * channels + 2.0 * m->mamba_groups * m->mamba_state_dim +
                    m->mamba_heads);
    case LHI_MIXER_ATTENTION:
        break;
    }
    if (!m->kv_lora_rank)
        return 2 * h * m->head_dim * (heads + m->kv_heads) +
               (m->attention_gate ? h * q : 0);
    attention = m->q_lora_rank ? m->q_lora_rank * (h + q) : h * q;
    attention += h * ((double)m->kv_lora_rank + m->qk_rope_head_dim);
    attention +=
        m->kv_lora_rank * heads * ((double)m->qk_nope_head_dim + m->v_head_dim);
    attention += heads * m->v_head_dim * h;
    attention += (m->q_lora_rank ? m->q_lora_rank : h) * m->index_heads *
                 (double)m->index_head_dim;
    return attention + h * ((double)m->index_head_dim + m->index_heads);
}

/* Returns the number of a layer's parameters that take part in matrix products
 * for each token (of the experts only those that a token uses). */
static double count_multiplied_params(const lh_model *m, uint32_t layer)
{
    double h = m->hidden, matrices = m->gated ? 3 : 2;
    double mixer = count_multiplied_mixer_params(m, layer);

    if (lh_model_layer_is_moe(m, layer))
        return mixer + h * m->experts + 2 * h * m->expert_latent +
               matrices * ((double)m->experts_per_token * m->expert_ffn *
                               lhi_model_expert_input(m) +
                           h * m->shared_expert_ffn);
    return lhi_model_layer_has_mlp(m, layer) ? mixer + matrices * h * m->ffn
                                             : mixer;
}

void lhi_cost_layer_flops(const lh_model *model, uint32_t layer,
                          uint32_t sequence, double *linear, double *attention)
{
    double s = sequence;
    double v = model->kv_lora_rank ? model->v_head_dim : model->head_dim;

    *linear = 2 * s * count_multiplied_params(model, layer);
    /* A state of k x v per head: decayed and read by the key, updated, read by
     * the query (arXiv:2412.06464, equation 10). */
    switch (lhi_model_layer_mixer(model, layer)) {
    case LHI_MIXER_NONE:
        *attention = 0;
        return;
    case LHI_MIXER_LINEAR:
        *attention = 6 * s * model->linear_value_heads *
                     (double)model->linear_key_head_dim *
                     model->linear_value_head_dim;
        return;
    case LHI_MIXER_MAMBA: /* updated and read (arXiv:2405.21060, section 2) */
        *attention = 4 * s * model->mamba_heads *
                     (double)model->mamba_head_dim * model->mamba_state_dim;
        return;
    case LHI_MIXER_ATTENTION:
        break;
    }
    *attention = s * s * model->index_heads * (double)model->index_head_dim *
                 (model->index_topk > 0);
    *attention += 2 * s * lhi_compute_mean_attended_tokens(model, layer, s) *
                  model->heads * (model->head_dim + v);
}

double lhi_cost_head_flops(const lh_model *model, uint32_t sequence)
{
    return 2.0 * sequence * model->hidden * model->vocab;
}

double lh_cost_iteration_flops(const lh_job *job)
{
    const lh_model *m = job->model;
    uint32_t s = job->training.sequence;
    double sum = lhi_cost_head_flops(m, s) * (1.0 + m->mtp_layers);
    double linear, attention;

    for (uint32_t i = 0; i < m->layers; i++) {
        lhi_cost_layer_flops(m, i, s, &linear, &attention);
        sum += linear + attention;
    }
    uint32_t first, n = m->mtp_layers ? lhi_model_mtp_layers(m, &first) : 0;
    for (uint32_t i = 0; i < n; i++) {
        lhi_cost_layer_flops(m, first + i, s, &linear, &attention);
        sum += m->mtp_layers * (linear + attention);
    }
    sum += m->mtp_layers * 4.0 * s * m->hidden * m->hidden;
    return 3 * sum * job->training.global_batch;
}

double lhi_find_slice_attention(const lh_job *job)
{
    const lh_model *m = job->model;
    double all = 0, in_attention = 0, linear, attention;
    if (!job->layout.slices)
        return 0;
    for (uint32_t i = 0; i < m->layers; i++) {
        lhi_cost_layer_flops(m, i, job->training.sequence, &linear, &attention);
        all += linear + attention;
        in_attention += attention;
    }
    return in_attention / all;
}
