/* SPDX-License-Identifier: Apache-2.0 */
/* The model from Megatron-LM's arguments, with the defaults of arguments.py and
 * transformer_config.py (core 0.16.1 and 0.20). */
#include "format/job/model_size.h"
#include "interop/import/layer_pattern.h"
#include "interop/import/megatron_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Checks that the model provider is gpt, or mamba or hybrid with a layer
 * pattern. LH_EUNSUPPORTED: another one; LH_EINPUT: the pattern is missing. */
static lh_status check_provider(const lhi_megatron *m, lh_error *err)
{
    const lhi_megatron_key key = LHI_ARG_MODEL_PROVIDER;
    if (!lhi_arg_is_given(m, key))
        return LH_OK;
    const char *name = m->args[key].values[0].text;
    const bool hybrid =
        strcmp(name, "mamba") == 0 || strcmp(name, "hybrid") == 0;
    if (!hybrid && strcmp(name, "gpt") != 0)
        return lhi_arg_fail(m, key, LH_EUNSUPPORTED, err,
                            "longhaul supports only gpt, mamba and hybrid, not "
                            "'%.40s'",
                            name);
    if (hybrid && !lhi_arg_is_given(m, lhi_megatron_pattern_key(m)))
        return lhi_arg_fail(m, key, LH_EINPUT, err,
                            "'%.40s' requires --hybrid-layer-pattern%s", name,
                            m->from_checkpoint
                                ? "; --use-checkpoint-args reads it from the "
                                  "checkpoint, which longhaul does not"
                                : "");
    return LH_OK;
}

/* Reads the hidden size and the numbers of layers, attention heads and
 * prediction layers; of a hybrid model the layers' kinds.
 * LH_EUNSUPPORTED: the model is of another kind. */
static lh_status read_sizes(const lhi_megatron *m, lhi_imported_job *in,
                            lh_error *err)
{
    lh_model *model = &in->model;
    bool hybrid;
    const lhi_megatron_key layers =
        lhi_arg_is_given(m, LHI_ARG_ENCODER_NUM_LAYERS)
            ? LHI_ARG_ENCODER_NUM_LAYERS
            : LHI_ARG_NUM_LAYERS;
    LHI_TRY(check_provider(m, err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_MTP_NUM_LAYERS, 0, LHI_MAX_LAYERS,
                                &model->mtp_layers, err));
    LHI_TRY(lhi_megatron_read_pattern(m, in, &hybrid, err));
    if (hybrid)
        lhi_arg_ignore(m, layers, in);
    else
        LHI_TRY(lhi_arg_require_integer(m, layers, 1, LHI_MAX_LAYERS,
                                        &model->layers, err));
    LHI_TRY(lhi_arg_require_integer(m, LHI_ARG_HIDDEN_SIZE, 1, LHI_MAX_WIDTH,
                                    &model->hidden, err));
    return lhi_arg_require_integer(m, LHI_ARG_NUM_ATTENTION_HEADS, 1,
                                   LHI_MAX_WIDTH, &model->heads, err);
}

/* Reads the head sizes and ranks of latent attention, with Megatron-LM's
 * defaults. */
static lh_status read_latent(const lhi_megatron *m, lhi_imported_job *in,
                             lh_error *err)
{
    lh_model *model = &in->model;
    model->kv_lora_rank = 32;
    model->qk_nope_head_dim = model->v_head_dim = 128;
    model->qk_rope_head_dim = 64;
    const struct {
        lhi_megatron_key key;
        uint32_t least, *to;
    } rows[] = {
        {LHI_ARG_Q_LORA_RANK, 0, &model->q_lora_rank},
        {LHI_ARG_KV_LORA_RANK, 1, &model->kv_lora_rank},
        {LHI_ARG_QK_HEAD_DIM, 1, &model->qk_nope_head_dim},
        {LHI_ARG_QK_POS_EMB_HEAD_DIM, 1, &model->qk_rope_head_dim},
        {LHI_ARG_V_HEAD_DIM, 1, &model->v_head_dim},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        LHI_TRY(lhi_arg_get_integer(m, rows[i].key, rows[i].least,
                                    LHI_MAX_WIDTH, rows[i].to, err));
    model->head_dim = model->qk_nope_head_dim + model->qk_rope_head_dim;
    model->kv_heads = model->heads;
    if (lhi_arg_is_given(m, LHI_ARG_GROUP_QUERY_ATTENTION))
        return lhi_arg_fail(m, LHI_ARG_GROUP_QUERY_ATTENTION, LH_EINPUT, err,
                            "cannot be combined with --multi-latent-attention");
    if (!lhi_arg_is_given(m, LHI_ARG_QK_LAYERNORM))
        lhi_import_note(in, "--multi-latent-attention: norms of the latents "
                            "are modelled, as with --qk-layernorm");
    return LH_OK;
}

/* Reads attention head sizes and the key/value head count, or those of latent
 * attention. */
static lh_status read_heads(const lhi_megatron *m, lhi_imported_job *in,
                            lh_error *err)
{
    lh_model *model = &in->model;
    if (lhi_arg_is_given(m, LHI_ARG_MULTI_LATENT_ATTENTION))
        return read_latent(m, in, err);
    model->qk_norm = lhi_arg_is_given(m, LHI_ARG_QK_LAYERNORM);
    if (!lhi_arg_is_given(m, LHI_ARG_KV_CHANNELS)) {
        if (model->hidden % model->heads != 0)
            return lhi_arg_fail(m, LHI_ARG_NUM_ATTENTION_HEADS, LH_EINPUT, err,
                                "%u does not divide --hidden-size %u; set "
                                "--kv-channels",
                                model->heads, model->hidden);
        model->head_dim = model->hidden / model->heads;
    }
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_KV_CHANNELS, 1, LHI_MAX_WIDTH,
                                &model->head_dim, err));
    model->kv_heads = model->heads;
    if (!lhi_arg_is_given(m, LHI_ARG_GROUP_QUERY_ATTENTION)) {
        if (lhi_arg_is_given(m, LHI_ARG_NUM_QUERY_GROUPS))
            lhi_import_note(in, "--num-query-groups: is ignored without "
                                "--group-query-attention; every head has its "
                                "own keys and values");
        return LH_OK;
    }
    model->kv_heads = 1;
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_NUM_QUERY_GROUPS, 1, LHI_MAX_WIDTH,
                                &model->kv_heads, err));
    if (model->heads % model->kv_heads != 0)
        return lhi_arg_fail(m, LHI_ARG_NUM_QUERY_GROUPS, LH_EINPUT, err,
                            "the %u heads are not divisible by %u groups",
                            model->heads, model->kv_heads);
    return LH_OK;
}

/* Reads the attention window, such as "127,0" or "(127, 0)" (tokens before and
 * after a token), and the layers that have it.
 * LH_EUNSUPPORTED: a job cannot express those layers. */
static lh_status read_window(const lhi_megatron *m, lhi_imported_job *in,
                             lh_error *err)
{
    lh_model *model = &in->model;
    uint32_t n = 0;
    const lhi_input_value *freq = &m->args[LHI_ARG_WINDOW_ATTN_SKIP_FREQ];
    bool *is = LHI_NEW(in->mem, bool, model->layers);
    if (!is)
        return lhi_fail_nomem(err);
    if (!lhi_arg_is_given(m, LHI_ARG_WINDOW_SIZE))
        return LH_OK;
    const char *text = m->args[LHI_ARG_WINDOW_SIZE].values[0].text;
    const char *at = text + (*text == '(');
    while (*at >= '0' && *at <= '9' && n < LHI_MAX_VOCAB)
        n = 10 * n + (uint32_t)(*at++ - '0');
    at += *at == ',';
    at += strspn(at, " ");
    if (n >= LHI_MAX_VOCAB || (strcmp(at, "0") && strcmp(at, "0)")))
        return lhi_arg_fail(m, LHI_ARG_WINDOW_SIZE, LH_EINPUT, err,
                            "'%.40s' is not N,0, where N is the number of "
                            "preceding tokens that each token attends to",
                            text);
    for (uint32_t i = 0; i < model->layers; i++)
        is[i] = true;
    if (freq->is_given && !lhi_layer_pattern_read(freq->values[0].text,
                                                  LHI_PATTERN_EXCEPT_MULTIPLES,
                                                  is, model->layers))
        return lhi_arg_fail(m, LHI_ARG_WINDOW_ATTN_SKIP_FREQ, LH_EINPUT, err,
                            "'%.60s' is neither a layer interval nor a list of "
                            "0 or 1 for each of %u layers, such as "
                            "([1]*3+[0])*8",
                            freq->values[0].text, model->layers);
    if (!lhi_layer_pattern_set_windows(is, n + 1, model))
        return lhi_arg_fail(m, LHI_ARG_WINDOW_ATTN_SKIP_FREQ, LH_EUNSUPPORTED,
                            err,
                            "longhaul supports full-attention layers only at "
                            "equal intervals");
    return LH_OK;
}

/* Reads the attention settings: heads, window, softmax type and L2 norms. */
static lh_status read_attention(const lhi_megatron *m, lhi_imported_job *in,
                                lh_error *err)
{
    static const char *const softmax[] = {"vanilla", "off-by-one", "learnable",
                                          NULL};
    uint32_t kind = 0;
    LHI_TRY(read_heads(m, in, err));
    LHI_TRY(read_window(m, in, err));
    LHI_TRY(lhi_megatron_read_mixers(m, in, err));
    LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_SOFTMAX_TYPE, softmax, &kind, err));
    in->model.attention_sinks = kind == 2;
    in->model.qk_l2_norm = lhi_arg_is_given(m, LHI_ARG_QK_L2_NORM);
    if (in->model.qk_l2_norm)
        lhi_import_note(in, "--qk-l2-norm: norms without weights are not "
                            "modelled");
    return LH_OK;
}

/* --- positions ------------------------------------------------------------ */

/* Reads the layers without rotary positions: a list, or every n-th layer. Notes
 * that they are modelled with them.
 * LH_EUNSUPPORTED: a job cannot express those layers. */
static lh_status read_no_rope(const lhi_megatron *m, lhi_imported_job *in,
                              lh_error *err)
{
    const lhi_input_value *freq = &m->args[LHI_ARG_NO_ROPE_FREQ];
    bool *is = LHI_NEW(in->mem, bool, in->model.layers);
    if (!is)
        return lhi_fail_nomem(err);
    if (!freq->is_given)
        return LH_OK;
    if (!lhi_layer_pattern_read(freq->values[0].text, LHI_PATTERN_LAST, is,
                                in->model.layers))
        return lhi_arg_fail(m, LHI_ARG_NO_ROPE_FREQ, LH_EINPUT, err,
                            "'%.60s' is neither a layer interval nor a list of "
                            "0 or 1 for each of %u layers, such as "
                            "([0]*3+[1])*8",
                            freq->values[0].text, in->model.layers);
    if (!lhi_layer_pattern_set_no_rope(is, &in->model))
        return lhi_arg_fail(m, LHI_ARG_NO_ROPE_FREQ, LH_EUNSUPPORTED, err,
                            "longhaul supports layers without positions only "
                            "at equal intervals");
    lhi_import_note(in, "--no-rope-freq: rotary positions are modelled in "
                        "every layer");
    return LH_OK;
}

/* Reads the rotary positions' scaling as in Llama 3.1, if it is used. */
static lh_status read_llama3_scaling(const lhi_megatron *m,
                                     lhi_imported_job *in, lh_error *err)
{
    if (!lhi_arg_is_given(m, LHI_ARG_USE_ROPE_SCALING)) {
        lhi_arg_ignore(m, LHI_ARG_ROPE_SCALING_FACTOR, in);
        return LH_OK;
    }
    lh_rope_scaling *s = LHI_NEW(in->mem, lh_rope_scaling, 1);
    if (!s)
        return lhi_fail_nomem(err);
    *s = lhi_megatron_llama3;
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_ROPE_SCALING_FACTOR, 1, 1e6, &s->factor,
                             err));
    if (s->factor != lhi_megatron_llama3.factor)
        lhi_import_note(in,
                        "--rope-scaling-factor: the job has %.12g; Megatron-LM "
                        "(core 0.16) builds the model with %.12g",
                        s->factor, lhi_megatron_llama3.factor);
    in->model.rope_scaling = s;
    return LH_OK;
}

/* Reads latent attention's YaRN scaling; a factor of 1 means none. Without
 * mscale_all_dim, mscale is a coefficient of attention_factor, which has 1 by
 * default. */
static lh_status read_yarn(const lhi_megatron *m, lhi_imported_job *in,
                           lh_error *err)
{
    lh_rope_scaling *s = LHI_NEW(in->mem, lh_rope_scaling, 1);
    if (!s)
        return lhi_fail_nomem(err);
    *s = lhi_megatron_yarn;
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_ROTARY_SCALING_FACTOR, 1, 1e6,
                             &s->factor, err));
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_MSCALE, 0, 1e6, &s->mscale, err));
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_MSCALE_ALL_DIM, 0, 1e6,
                             &s->mscale_all_dim, err));
    if (s->factor == 1)
        return LH_OK;
    if (s->mscale_all_dim > 0 && s->mscale == 0)
        return lhi_arg_fail(m, LHI_ARG_MSCALE, LH_EUNSUPPORTED, err,
                            "longhaul does not support 0 with "
                            "--mscale-all-dim above 0");
    if (s->mscale_all_dim == 0) {
        if (s->mscale != 1)
            s->attention_factor = 0.1 * s->mscale * log(s->factor) + 1;
        s->mscale = 0;
    }
    in->model.rope_scaling = s;
    return LH_OK;
}

/* Reads base, rotated fraction and scaling of rotary positions, and the layers
 * without them. Latent attention rotates whole vectors. */
static lh_status read_rotary(const lhi_megatron *m, lhi_imported_job *in,
                             lh_error *err)
{
    static const char *const types[] = {"rope", "yarn", NULL};
    lh_model *model = &in->model;
    uint32_t type = model->kv_lora_rank > 0;
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_ROTARY_BASE, 1, INT32_MAX,
                                &model->rope_theta, err));
    LHI_TRY(read_no_rope(m, in, err));
    LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_ROPE_TYPE, types, &type, err));
    if (type == 1 && model->kv_lora_rank) {
        lhi_arg_ignore(m, LHI_ARG_ROTARY_PERCENT, in);
        return read_yarn(m, in, err);
    }
    lhi_arg_ignore(m, LHI_ARG_ROTARY_SCALING_FACTOR, in);
    lhi_arg_ignore(m, LHI_ARG_MSCALE, in);
    lhi_arg_ignore(m, LHI_ARG_MSCALE_ALL_DIM, in);
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_ROTARY_PERCENT, 1e-6, 1,
                             &model->partial_rotary_factor, err));
    if (model->partial_rotary_factor == 1)
        model->partial_rotary_factor = 0; /* the default */
    return model->kv_lora_rank ? LH_OK : read_llama3_scaling(m, in, err);
}

/* Records as ignored the arguments for rotary positions, for a model that has
 * learned ones. */
static void ignore_rotary(const lhi_megatron *m, lhi_imported_job *in)
{
    static const lhi_megatron_key keys[] = {
        LHI_ARG_ROTARY_BASE,      LHI_ARG_ROTARY_PERCENT,
        LHI_ARG_USE_ROPE_SCALING, LHI_ARG_ROPE_SCALING_FACTOR,
        LHI_ARG_ROPE_TYPE,        LHI_ARG_ROTARY_SCALING_FACTOR,
        LHI_ARG_MSCALE,           LHI_ARG_MSCALE_ALL_DIM,
        LHI_ARG_NO_ROPE_FREQ};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        lhi_arg_ignore(m, keys[i], in);
}

/* Reads the kind of position embedding, and the rotary position settings.
 * MRoPE and YaRN count as rotary.
 * LH_EUNSUPPORTED: relative positions. */
static lh_status read_positions(const lhi_megatron *m, lhi_imported_job *in,
                                lh_error *err)
{
    lh_model *model = &in->model;
    static const char *const kinds[] = {
        "learned_absolute", "rope", "mrope", "relative", "none", "yarn", NULL};
    uint32_t kind = 0, positions = 0;
    LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_POSITION_EMBEDDING_TYPE, kinds, &kind,
                               err));
    if (lhi_arg_is_given(m, LHI_ARG_USE_ROTARY_POSITION_EMBEDDINGS))
        kind = 1;
    if (kind == 3)
        return lhi_arg_fail(m, LHI_ARG_POSITION_EMBEDDING_TYPE, LH_EUNSUPPORTED,
                            err,
                            "longhaul does not support relative position "
                            "biases in attention");
    if (kind == 0)
        LHI_TRY(lhi_arg_require_integer(m, LHI_ARG_MAX_POSITION_EMBEDDINGS, 1,
                                        LHI_MAX_VOCAB, &positions, err));
    model->positions = positions;
    if (kind == 5 && !model->kv_lora_rank)
        lhi_import_note(in, "--position-embedding-type: positions are "
                            "modelled without YaRN, which is imported only "
                            "with --multi-latent-attention");
    if (kind == 4) {
        model->no_rope_interval = 1;
        lhi_import_note(in, "--position-embedding-type: rotary positions are "
                            "modelled in every layer");
    }
    if (kind == 0 || kind == 4) {
        ignore_rotary(m, in);
        return LH_OK;
    }
    return read_rotary(m, in, err);
}

/* --- MLPs and norms ------------------------------------------------------- */

/* Reads the activation function, its offset and its limit. GeLU fused with a
 * bias is the approximation with tanh, the job's default; else it is exact. */
static lh_status read_activation(const lhi_megatron *m, lhi_imported_job *in,
                                 lh_error *err)
{
    lh_model *model = &in->model;
    const bool quick = lhi_arg_is_given(m, LHI_ARG_QUICK_GEGLU);
    const bool squared = lhi_arg_is_given(m, LHI_ARG_SQUARED_RELU);
    const bool unfused = lhi_arg_is_given(m, LHI_ARG_NO_BIAS_GELU_FUSION);
    if (squared && model->gated)
        return lhi_arg_fail(m, LHI_ARG_SQUARED_RELU, LH_EINPUT, err,
                            "cannot be combined with %s",
                            quick ? "--quick-geglu" : "--swiglu");
    if (quick)
        model->activation = LH_ACTIVATION_QUICK_GELU;
    else if (squared)
        model->activation = LH_ACTIVATION_RELU2;
    else if (unfused && model->mlp_bias && !model->gated)
        model->activation = LH_ACTIVATION_GELU;
    if (squared)
        lhi_import_note(in, "--squared-relu: activation functions are modelled "
                            "as fused GELU");
    if (unfused)
        lhi_import_note(in,
                        "--no-bias-gelu-fusion: kernels are modelled as fused");
    if (!model->gated) {
        lhi_arg_ignore(m, LHI_ARG_GLU_LINEAR_OFFSET, in);
        lhi_arg_ignore(m, LHI_ARG_ACTIVATION_FUNC_CLAMP_VALUE, in);
        return LH_OK;
    }
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_GLU_LINEAR_OFFSET, 0, 1e6,
                             &model->glu_linear_offset, err));
    return lhi_arg_get_real(m, LHI_ARG_ACTIVATION_FUNC_CLAMP_VALUE, 1e-6, 1e6,
                            &model->swiglu_limit, err);
}

/* Reads the kind of norm, its epsilon, and the range of initial weights. Leaves
 * the job's default values unset. */
static lh_status read_norms(const lhi_megatron *m, lh_model *model,
                            lh_error *err)
{
    static const char *const norms[] = {"RMSNorm", "LayerNorm", NULL};
    static const lh_model plain;
    uint32_t norm = LH_NORM_LAYER;
    LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_NORMALIZATION, norms, &norm, err));
    model->norm = (lh_norm)norm;
    model->norm_zero_centered = lhi_arg_is_given(m, LHI_ARG_APPLY_LAYERNORM_1P);
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_NORM_EPSILON, LHI_MIN_EPSILON,
                             LHI_MAX_EPSILON, &model->norm_epsilon, err));
    if (model->norm_epsilon == lh_model_norm_epsilon(&plain))
        model->norm_epsilon = 0;
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_INIT_METHOD_STD, 1e-9, 1e3,
                             &model->initializer_range, err));
    if (model->initializer_range == 0.02)
        model->initializer_range = 0;
    return LH_OK;
}

/* Reads the MLPs' width, gating, biases and activation function. The width
 * defaults to Megatron-LM's. */
static lh_status read_mlp(const lhi_megatron *m, lhi_imported_job *in,
                          lh_error *err)
{
    lh_model *model = &in->model;
    const bool swiglu = lhi_arg_is_given(m, LHI_ARG_SWIGLU);
    const uint64_t wide = 4 * (uint64_t)model->hidden;
    model->gated = swiglu || lhi_arg_is_given(m, LHI_ARG_QUICK_GEGLU);
    model->ffn = (uint32_t)(swiglu ? wide * 2 / 3 / 64 * 64 : wide);
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_FFN_HIDDEN_SIZE, 1, LHI_MAX_VOCAB,
                                &model->ffn, err));
    const bool biased = !lhi_arg_is_given(m, LHI_ARG_DISABLE_BIAS_LINEAR);
    model->output_bias = model->mlp_bias = biased;
    model->qkv_bias = biased || lhi_arg_is_given(m, LHI_ARG_ADD_QKV_BIAS);
    return read_activation(m, in, err);
}

/* Reads which layers have experts.
 * LH_EINPUT: the pattern is invalid, or no layer has experts. */
static lh_status read_expert_layers(const lhi_megatron *m, lhi_imported_job *in,
                                    lh_error *err)
{
    lh_model *model = &in->model;
    const lhi_input_value *freq = &m->args[LHI_ARG_MOE_LAYER_FREQ];
    bool *is = LHI_NEW(in->mem, bool, model->layers);
    if (!is)
        return lhi_fail_nomem(err);
    if (model->layer_pattern)
        lhi_arg_ignore(m, LHI_ARG_MOE_LAYER_FREQ, in);
    if (!freq->is_given || model->layer_pattern)
        return LH_OK;
    if (!lhi_layer_pattern_read(freq->values[0].text, LHI_PATTERN_MULTIPLES, is,
                                model->layers))
        return lhi_arg_fail(m, LHI_ARG_MOE_LAYER_FREQ, LH_EINPUT, err,
                            "'%.60s' is neither a layer interval nor a list of "
                            "0 or 1 for each of %u layers, such as "
                            "([0]*3+[1]*58)",
                            freq->values[0].text, model->layers);
    if (!lhi_layer_pattern_set_experts(is, in->mem, model))
        return lhi_fail_nomem(err);
    if (lhi_model_moe_layers(model, 0, model->layers) == 0)
        return lhi_arg_fail(m, LHI_ARG_MOE_LAYER_FREQ, LH_EINPUT, err,
                            "no layer has experts; remove --num-experts");
    return LH_OK;
}

/* Reads the expert router: score function, normalisation, scaling and groups of
 * experts. */
static lh_status read_router(const lhi_megatron *m, lh_model *model,
                             lh_error *err)
{
    static const char *const scores[] = {"softmax", "sigmoid", NULL};
    uint32_t router = LH_ROUTER_SOFTMAX;
    LHI_TRY(lhi_arg_get_choice(m, LHI_ARG_MOE_ROUTER_SCORE_FUNCTION, scores,
                               &router, err));
    model->router = (lh_router)router;
    model->unnormalised_scores =
        router == LH_ROUTER_SOFTMAX && model->experts_per_token > 1 &&
        lhi_arg_is_given(m, LHI_ARG_MOE_ROUTER_PRE_SOFTMAX);
    LHI_TRY(lhi_arg_get_real(m, LHI_ARG_MOE_ROUTER_TOPK_SCALING_FACTOR, 0, 1e6,
                             &model->routed_scale, err));
    if (!lhi_arg_is_given(m, LHI_ARG_MOE_ROUTER_NUM_GROUPS))
        return LH_OK;
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_MOE_ROUTER_NUM_GROUPS, 1,
                                model->experts, &model->expert_groups, err));
    model->groups_per_token = model->expert_groups;
    return lhi_arg_get_integer(m, LHI_ARG_MOE_ROUTER_GROUP_TOPK, 1,
                               model->expert_groups, &model->groups_per_token,
                               err);
}

/* Reads the experts: their number, widths, router and layers. */
static lh_status read_experts(const lhi_megatron *m, lhi_imported_job *in,
                              lh_error *err)
{
    lh_model *model = &in->model;
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_NUM_EXPERTS, 0, LHI_MAX_WIDTH,
                                &model->experts, err));
    if (model->experts == 0)
        return LH_OK;
    model->experts_per_token = 2;
    model->expert_ffn = model->ffn;
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_MOE_ROUTER_TOPK, 1, model->experts,
                                &model->experts_per_token, err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_MOE_FFN_HIDDEN_SIZE, 1,
                                LHI_MAX_VOCAB, &model->expert_ffn, err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_MOE_SHARED_EXPERT_INTERMEDIATE_SIZE,
                                1, LHI_MAX_VOCAB, &model->shared_expert_ffn,
                                err));
    LHI_TRY(lhi_arg_get_integer(m, LHI_ARG_MOE_LATENT_SIZE, 1, LHI_MAX_WIDTH,
                                &model->expert_latent, err));
    model->shared_expert_gate =
        model->shared_expert_ffn &&
        lhi_arg_is_given(m, LHI_ARG_MOE_SHARED_EXPERT_GATE);
    model->router_bias = model->mlp_bias;
    LHI_TRY(read_router(m, model, err));
    if (!lhi_arg_is_given(m, LHI_ARG_MOE_GROUPED_GEMM))
        lhi_import_note(in, "--num-experts: expert matrix products are "
                            "modelled as with --moe-grouped-gemm");
    return read_expert_layers(m, in, err);
}

/* --- presets -------------------------------------------------------------- */

/* Checks whether two models have equal sizes and features, except MLPs and the
 * expert settings. */
static bool has_same_sizes(const lh_model *a, const lh_model *b)
{
    const uint32_t pairs[][2] = {
        {a->layers, b->layers},
        {a->hidden, b->hidden},
        {a->vocab, b->vocab},
        {a->heads, b->heads},
        {a->kv_heads, b->kv_heads},
        {a->head_dim, b->head_dim},
        {a->gated, b->gated},
        {a->parallel_block, b->parallel_block},
        {a->tied_embeddings, b->tied_embeddings},
        {a->qkv_bias, b->qkv_bias},
        {a->output_bias, b->output_bias},
        {a->mlp_bias, b->mlp_bias},
        {a->qk_norm, b->qk_norm},
        {a->attention_sinks, b->attention_sinks},
        {a->norm, b->norm},
        {a->positions, b->positions},
        {a->experts, b->experts},
        {a->q_lora_rank, b->q_lora_rank},
        {a->kv_lora_rank, b->kv_lora_rank},
        {a->qk_nope_head_dim, b->qk_nope_head_dim},
        {a->qk_rope_head_dim, b->qk_rope_head_dim},
        {a->v_head_dim, b->v_head_dim},
        {a->mtp_layers, b->mtp_layers},
        {a->attention_gate, b->attention_gate},
        {a->linear_value_heads, b->linear_value_heads},
        {a->index_topk, b->index_topk},
        {a->expert_latent, b->expert_latent},
        {a->layer_pattern != NULL, b->layer_pattern != NULL},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i][0] != pairs[i][1])
            return false;
    return true;
}

/* Checks whether two models choose experts for tokens in the same way. */
static bool has_same_router(const lh_model *a, const lh_model *b)
{
    return a->router == b->router &&
           a->unnormalised_scores == b->unnormalised_scores &&
           a->routed_scale == b->routed_scale &&
           a->expert_groups == b->expert_groups &&
           a->groups_per_token == b->groups_per_token;
}

/* Checks whether two models have equal experts per token, expert widths and
 * routers. True if `a` has no experts. */
static bool has_same_experts(const lh_model *a, const lh_model *b)
{
    return a->experts == 0 ||
           (a->experts_per_token == b->experts_per_token &&
            a->expert_ffn == b->expert_ffn &&
            a->shared_expert_ffn == b->shared_expert_ffn &&
            a->shared_expert_gate == b->shared_expert_gate &&
            a->router_bias == b->router_bias && has_same_router(a, b));
}

/* Checks whether two models have experts and windows in the same layers, and
 * dense layers of the same width, if any. */
static bool has_same_layers(const lh_model *a, const lh_model *b)
{
    bool dense = false;
    for (uint32_t i = 0; i < a->layers; i++) {
        dense = dense || !lh_model_layer_is_moe(a, i);
        if (lh_model_layer_is_moe(a, i) != lh_model_layer_is_moe(b, i) ||
            lh_model_layer_window(a, i) != lh_model_layer_window(b, i))
            return false;
    }
    return !dense || a->ffn == b->ffn;
}

/* Checks whether two models have the same rotary base; an unset base matches
 * any. */
static bool has_same_rotary_base(const lh_model *a, const lh_model *b)
{
    return !a->rope_theta || !b->rope_theta || a->rope_theta == b->rope_theta;
}

bool lhi_has_same_shape(const lh_model *a, const lh_model *b)
{
    return has_same_sizes(a, b) && has_same_rotary_base(a, b) &&
           has_same_experts(a, b) && has_same_layers(a, b);
}

/* Checks whether a model has YaRN scaling without latent attention, for which
 * Megatron-LM has no arguments. */
static bool has_unimported_yarn(const lh_model *m)
{
    return m->rope_scaling && m->rope_scaling->type == LH_ROPE_YARN &&
           !m->kv_lora_rank;
}

/* Checks whether two rotary scalings are equal; NULL: no scaling. */
static bool has_same_scaling(const lh_rope_scaling *a, const lh_rope_scaling *b)
{
    return !a || !b
               ? a == b
               : a->type == b->type && a->factor == b->factor &&
                     a->original_positions == b->original_positions &&
                     a->low_freq_factor == b->low_freq_factor &&
                     a->high_freq_factor == b->high_freq_factor &&
                     a->beta_fast == b->beta_fast &&
                     a->beta_slow == b->beta_slow && a->mscale == b->mscale &&
                     a->mscale_all_dim == b->mscale_all_dim &&
                     a->attention_factor == b->attention_factor &&
                     a->fractional_range == b->fractional_range;
}

/* Checks whether a preset has the same constants without effect on time or
 * memory (such as epsilons) as the arguments give. Ignores YaRN scaling that no
 * arguments express. */
static bool has_same_constants(const lh_model *preset, const lh_model *model)
{
    return lh_model_norm_epsilon(preset) == lh_model_norm_epsilon(model) &&
           preset->norm_zero_centered == model->norm_zero_centered &&
           preset->activation == model->activation &&
           preset->glu_linear_offset == model->glu_linear_offset &&
           preset->swiglu_limit == model->swiglu_limit &&
           preset->partial_rotary_factor == model->partial_rotary_factor &&
           preset->no_rope_interval == model->no_rope_interval &&
           preset->qk_l2_norm == model->qk_l2_norm &&
           preset->initializer_range == model->initializer_range &&
           (has_unimported_yarn(preset)
                ? !model->rope_scaling
                : has_same_scaling(preset->rope_scaling, model->rope_scaling));
}

void lhi_import_name_model(lhi_imported_job *in,
                           bool is_same(const lh_model *preset,
                                        const lh_model *model))
{
    for (const char *const *name = lh_model_presets(); *name; name++) {
        const lh_model *preset = lh_model_preset(*name);
        if (lhi_has_same_shape(preset, &in->model) &&
            (!is_same || is_same(preset, &in->model))) {
            in->model_name = preset->name;
            in->model = *preset;
            return;
        }
    }
}

lh_status lhi_megatron_build_model(const lhi_megatron *m, const lh_model *given,
                                   lhi_imported_job *in, lh_error *err)
{
    lh_model *model = &in->model;
    if (given) {
        *model = *given;
        lhi_import_name_model(in, NULL);
        if (lhi_arg_is_given(m, LHI_ARG_NUM_LAYERS))
            lhi_import_note(in, "--num-layers: is replaced by the model that "
                                "--model names");
        return LH_OK;
    }
    *model = (lh_model){.name = "imported", .moe_interval = 1};
    LHI_TRY(read_sizes(m, in, err));
    LHI_TRY(read_attention(m, in, err));
    LHI_TRY(read_positions(m, in, err));
    LHI_TRY(read_mlp(m, in, err));
    LHI_TRY(read_experts(m, in, err));
    if (model->layer_pattern && !strchr(model->layer_pattern, '-'))
        model->ffn = 0;
    LHI_TRY(lhi_megatron_read_vocabulary(m, in, err));
    LHI_TRY(read_norms(m, model, err));
    model->tied_embeddings =
        !lhi_arg_is_given(m, LHI_ARG_UNTIE_EMBEDDINGS_AND_OUTPUT_WEIGHTS);
    lhi_import_name_model(in, has_same_constants);
    if (has_unimported_yarn(model))
        lhi_import_note(
            in,
            "rope_scaling: is that of %s; YaRN is imported only with "
            "--multi-latent-attention",
            model->name);
    if (model->rope_theta && model->rope_theta != 10000 &&
        !lhi_arg_is_given(m, LHI_ARG_ROTARY_BASE))
        lhi_import_note(in,
                        "--rotary-base: is not set and defaults to 10000 in "
                        "Megatron-LM; exports write the value of %s, %" PRIu32,
                        model->name, model->rope_theta);
    return LH_OK;
}
