/* SPDX-License-Identifier: Apache-2.0 */
#include "dev/families.h"

#include "base/fail.h"

#include <stdio.h>
#include <string.h>

/* --- which family ------------------------------------------------------------
 */

/* What no family has, or NULL. */
static const char *unknown_part(const lh_model *m, uint32_t sequence)
{
    if (m->attention_sinks)
        return "attention sinks";
    if (m->mtp_layers)
        return "multi-token prediction";
    if (m->sliding_window && m->sliding_window < sequence)
        return "a sliding window";
    return NULL;
}

/* --- experts, whatever attention is --- */

uint32_t lhi_first_moe_layer(const lh_model *m)
{
    uint32_t layer = 0;
    while (layer < m->layers && !lh_model_layer_is_moe(m, layer))
        layer++;
    return layer;
}

static bool has_dense_layers(const lh_model *m)
{
    return lh_model_moe_layers(m, 0, m->layers) < m->layers;
}

static const char *not_counted(const lh_model *m)
{
    if (m->norm != LH_NORM_RMS || m->positions || !m->gated)
        return "experts, and layer norm, learned positions or no gate";
    if (m->mlp_bias || m->router_bias)
        return "experts and biases";
    if (m->experts_per_token == 0 || m->experts_per_token > m->experts ||
        m->expert_ffn == 0)
        return "experts without a width, or no number of them that it has for "
               "each token";
    return NULL;
}

/* Why experts that are chosen by probabilities are not as others have them. */
static const char *not_by_softmax(const lh_model *m)
{
    if (m->expert_groups)
        return "groups of experts and a router without sigmoids";
    if (m->routed_scale != 0 && m->routed_scale != 1)
        return "a routed_scale and a router without sigmoids";
    return NULL;
}

/* Why experts are not DeepSeek-V3's. */
static const char *not_by_sigmoid(const lh_model *m)
{
    if (m->router != LH_ROUTER_SIGMOID)
        return "latent attention and a router without sigmoids";
    if (!m->shared_expert_ffn || m->shared_expert_gate ||
        m->shared_expert_ffn % m->expert_ffn != 0)
        return "a router of sigmoids, and no shared experts as wide as the "
               "others, or with a gate";
    uint32_t first = lhi_first_moe_layer(m), n = m->layers - first;
    return lh_model_moe_layers(m, first, n) == n
               ? NULL
               : "a router of sigmoids, and dense layers behind others";
}

static bool is_qwen2_moe(const lh_model *m)
{
    return m->qkv_bias || m->shared_expert_ffn || m->raw_shares ||
           has_dense_layers(m);
}

/* --- what attention is like --- */

/* Why a model whose attention and MLP are beside each other is not Falcon's. */
static const char *not_falcon(const lh_model *m)
{
    if (m->norm != LH_NORM_LAYER || m->gated || m->positions)
        return "a parallel block, and RMS norm, gated MLPs or learned "
               "positions";
    if (m->qkv_bias || m->output_bias || m->mlp_bias)
        return "a parallel block and biases";
    if (m->kv_heads != 1)
        return "a parallel block and more than one key and value head";
    if ((uint64_t)m->heads * m->head_dim != m->hidden)
        return "a parallel block and heads that do not add up to hidden";
    if (m->experts || m->qk_norm || m->kv_lora_rank)
        return "a parallel block, and experts, norms of queries and keys or "
               "latent attention";
    return NULL;
}

/* Why a model with latent attention is not DeepSeek's. */
static const char *not_deepseek(const lh_model *m)
{
    if (m->norm != LH_NORM_RMS || m->positions || !m->gated)
        return "latent attention, and layer norm, learned positions or no gate";
    if (m->qkv_bias || m->output_bias || m->mlp_bias)
        return "latent attention and biases";
    if (m->qk_norm)
        return "latent attention, and norms of queries and keys";
    if (!m->experts)
        return NULL;
    const char *what = not_counted(m);
    return what ? what : not_by_sigmoid(m);
}

/* Why a model with norms of queries and keys is not Qwen3's. */
static const char *not_qwen3(const lh_model *m)
{
    if (m->norm != LH_NORM_RMS || m->positions || !m->gated)
        return "norms of queries and keys, and layer norm, learned positions "
               "or no gate";
    if (m->qkv_bias != m->output_bias || m->mlp_bias)
        return "norms of queries and keys, and biases on some of attention's "
               "products alone or on MLPs";
    return NULL;
}

/* Why a model with layer norms is not GPT-2's. */
static const char *not_gpt2(const lh_model *m)
{
    if (m->gated)
        return "layer norm and gated MLPs";
    if (!m->positions)
        return "layer norm and rotary positions";
    if (!m->qkv_bias || !m->output_bias || !m->mlp_bias)
        return "layer norm and products without biases";
    if (m->kv_heads != m->heads)
        return "learned positions and heads that share keys";
    if ((uint64_t)m->heads * m->head_dim != m->hidden)
        return "learned positions and heads that do not add up to hidden";
    return NULL;
}

/* Why a model with RMS norms is neither Llama's nor Qwen2's. */
static const char *not_llama(const lh_model *m)
{
    if (!m->gated)
        return "RMS norm and MLPs without a gate";
    if (m->positions)
        return "RMS norm and learned positions";
    if (m->output_bias && !m->qkv_bias)
        return "a bias on attention's output alone";
    if (m->qkv_bias && !m->output_bias && m->mlp_bias)
        return "biases on MLPs and on queries, keys and values alone";
    return NULL;
}

/* Why a model with experts and without latents is none that is known. */
static const char *not_experts(const lh_model *m)
{
    const char *what = not_counted(m);
    if (what)
        return what;
    if (m->router == LH_ROUTER_SIGMOID)
        return m->output_bias ? "experts and biases" : not_by_sigmoid(m);
    if (m->qk_norm && m->shared_expert_ffn)
        return "norms of queries and keys, a router without sigmoids and shared "
               "experts";
    if (m->qk_norm)
        what = not_qwen3(m);
    else if (m->output_bias)
        what = "experts and biases";
    else if (is_qwen2_moe(m) && (!m->shared_expert_ffn || !m->shared_expert_gate))
        what = "experts with biases of queries, dense layers or scores as they "
               "are, and no shared expert with a gate";
    return what ? what : not_by_softmax(m);
}

lhi_family lhi_family_known(const lh_model *m)
{
    if (m->parallel_block)
        return LHI_FAMILY_FALCON;
    if (m->kv_lora_rank)
        return LHI_FAMILY_DEEPSEEK;
    if (m->experts && m->router == LH_ROUTER_SIGMOID)
        return LHI_FAMILY_GLM4_MOE;
    if (m->experts && m->qk_norm)
        return LHI_FAMILY_QWEN3_MOE;
    if (m->qk_norm && !m->experts)
        return LHI_FAMILY_QWEN3;
    if (m->experts)
        return is_qwen2_moe(m) ? LHI_FAMILY_QWEN2_MOE : LHI_FAMILY_MIXTRAL;
    if (m->norm == LH_NORM_LAYER)
        return LHI_FAMILY_GPT2;
    return m->qkv_bias && !m->output_bias ? LHI_FAMILY_QWEN2
                                          : LHI_FAMILY_LLAMA;
}

lh_status lhi_family_of(const lh_model *m, uint32_t sequence, lhi_family *out,
                        lh_error *err)
{
    const char *what = unknown_part(m, sequence);
    if (!what)
        what = m->parallel_block          ? not_falcon(m)
               : m->kv_lora_rank          ? not_deepseek(m)
               : m->experts               ? not_experts(m)
               : m->qk_norm               ? not_qwen3(m)
               : m->norm == LH_NORM_LAYER ? not_gpt2(m)
                                          : not_llama(m);
    if (what)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the cpu device trains models of the kinds of Llama, "
                        "Qwen2, Qwen3, GPT-2, Falcon, Mixtral, Qwen2-MoE, "
                        "Qwen3-MoE, GLM-4.5 and DeepSeek-V3; %s has %s, which "
                        "it does not know",
                        m->name ? m->name : "this model", what);
    if (m->positions && m->positions < sequence)
        return lhi_fail(err, LH_EINVAL,
                        "%s has %u positions, and a sequence %u tokens",
                        m->name ? m->name : "the model", m->positions,
                        sequence);
    *out = lhi_family_known(m);
    return LH_OK;
}

/* --- tensors -----------------------------------------------------------------
 */

/* A side of a tensor. */
typedef enum side {
    NONE,
    H,
    Q,
    KV,
    QKV,
    OUT, /* what attention makes */
    HEAD,
    Q_RANK,
    Q_FROM, /* what queries are made of */
    KV_RANK,
    KV_DOWN, /* with the key that is turned */
    KV_UP,   /* keys that are not, and values */
    F,
    EXPERTS,
    EXPERT_F,
    SHARED_F,
    ONE,
    VOCAB,
    POSITIONS
} side;

typedef enum need {
    ALWAYS,
    IF_QKV_BIAS,
    IF_OUTPUT_BIAS,
    IF_MLP_BIAS,
    IF_QK_NORM,
    IF_Q_RANK,
    UNLESS_Q_RANK,
    IF_DENSE, /* the layer */
    IF_MOE
} need;

typedef struct row {
    const char *name;
    side rows, columns;
    lhi_role role;
    need need;
} row;

static const row llama_front[] = {
    {"model.embed_tokens.weight", VOCAB, H, LHI_ROLE_EMBEDDING, ALWAYS}};
#define ATTENTION_ROWS                                                         \
    {"input_layernorm.weight", H, NONE, LHI_ROLE_NORM1, ALWAYS},               \
        {"self_attn.q_proj.weight", Q, H, LHI_ROLE_QKV, ALWAYS},               \
        {"self_attn.k_proj.weight", KV, H, LHI_ROLE_NEXT, ALWAYS},             \
        {"self_attn.v_proj.weight", KV, H, LHI_ROLE_NEXT, ALWAYS},             \
        {"self_attn.q_norm.weight", HEAD, NONE, LHI_ROLE_Q_NORM, IF_QK_NORM},  \
        {"self_attn.k_norm.weight", HEAD, NONE, LHI_ROLE_K_NORM, IF_QK_NORM},  \
        {"self_attn.q_proj.bias", Q, NONE, LHI_ROLE_QKV_BIAS, IF_QKV_BIAS},    \
        {"self_attn.k_proj.bias", KV, NONE, LHI_ROLE_NEXT, IF_QKV_BIAS},       \
        {"self_attn.v_proj.bias", KV, NONE, LHI_ROLE_NEXT, IF_QKV_BIAS},       \
        {"self_attn.o_proj.weight", H, Q, LHI_ROLE_OUT, ALWAYS},               \
        {"self_attn.o_proj.bias", H, NONE, LHI_ROLE_OUT_BIAS, IF_OUTPUT_BIAS}, \
        {"post_attention_layernorm.weight", H, NONE, LHI_ROLE_NORM2, ALWAYS},
/* Of dense layers where others have experts. */
#define DENSE_ROWS                                                             \
    {"mlp.gate_proj.weight", F, H, LHI_ROLE_GATE_UP, IF_DENSE},                \
        {"mlp.up_proj.weight", F, H, LHI_ROLE_NEXT, IF_DENSE},                 \
        {"mlp.down_proj.weight", H, F, LHI_ROLE_DOWN, IF_DENSE},

/* Of the others, with a router of sigmoids. */
#define SIGMOID_ROWS                                                           \
    {"mlp.gate.weight", EXPERTS, H, LHI_ROLE_ROUTER, IF_MOE},                  \
        {"mlp.gate.e_score_correction_bias", EXPERTS, NONE,                    \
         LHI_ROLE_ROUTER_BIAS, IF_MOE},                                        \
        {"mlp.shared_experts.gate_proj.weight", SHARED_F, H, LHI_ROLE_SHARED,  \
         IF_MOE},                                                              \
        {"mlp.shared_experts.up_proj.weight", SHARED_F, H, LHI_ROLE_NEXT,      \
         IF_MOE},                                                              \
        {"mlp.shared_experts.down_proj.weight", H, SHARED_F, LHI_ROLE_NEXT,    \
         IF_MOE},

static const row llama_layer[] = {
    ATTENTION_ROWS
    {"mlp.gate_proj.weight", F, H, LHI_ROLE_GATE_UP, ALWAYS},
    {"mlp.up_proj.weight", F, H, LHI_ROLE_NEXT, ALWAYS},
    {"mlp.gate_proj.bias", F, NONE, LHI_ROLE_GATE_UP_BIAS, IF_MLP_BIAS},
    {"mlp.up_proj.bias", F, NONE, LHI_ROLE_NEXT, IF_MLP_BIAS},
    {"mlp.down_proj.weight", H, F, LHI_ROLE_DOWN, ALWAYS},
    {"mlp.down_proj.bias", H, NONE, LHI_ROLE_DOWN_BIAS, IF_MLP_BIAS},
};
static const row llama_back[] = {
    {"model.norm.weight", H, NONE, LHI_ROLE_NORM, ALWAYS},
    {"lm_head.weight", VOCAB, H, LHI_ROLE_HEAD, ALWAYS}};

static const row deepseek_layer[] = {
    {"input_layernorm.weight", H, NONE, LHI_ROLE_NORM1, ALWAYS},
    {"self_attn.q_a_proj.weight", Q_RANK, H, LHI_ROLE_Q_DOWN, IF_Q_RANK},
    {"self_attn.q_a_layernorm.weight", Q_RANK, NONE, LHI_ROLE_Q_NORM,
     IF_Q_RANK},
    {"self_attn.q_b_proj.weight", Q, Q_FROM, LHI_ROLE_Q_UP, IF_Q_RANK},
    {"self_attn.q_proj.weight", Q, Q_FROM, LHI_ROLE_Q_UP, UNLESS_Q_RANK},
    {"self_attn.kv_a_proj_with_mqa.weight", KV_DOWN, H, LHI_ROLE_KV_DOWN,
     ALWAYS},
    {"self_attn.kv_a_layernorm.weight", KV_RANK, NONE, LHI_ROLE_K_NORM, ALWAYS},
    {"self_attn.kv_b_proj.weight", KV_UP, KV_RANK, LHI_ROLE_KV_UP, ALWAYS},
    {"self_attn.o_proj.weight", H, OUT, LHI_ROLE_OUT, ALWAYS},
    {"post_attention_layernorm.weight", H, NONE, LHI_ROLE_NORM2, ALWAYS},
    DENSE_ROWS SIGMOID_ROWS
};

static const row mixtral_layer[] = {
    ATTENTION_ROWS
    {"block_sparse_moe.gate.weight", EXPERTS, H, LHI_ROLE_ROUTER, ALWAYS},
};
static const row mixtral_expert[] = {
    {"w1.weight", EXPERT_F, H, LHI_ROLE_EXPERTS, ALWAYS},
    {"w3.weight", EXPERT_F, H, LHI_ROLE_NEXT, ALWAYS},
    {"w2.weight", H, EXPERT_F, LHI_ROLE_NEXT, ALWAYS},
};

static const row qwen2_moe_layer[] = {
    ATTENTION_ROWS DENSE_ROWS
    {"mlp.gate.weight", EXPERTS, H, LHI_ROLE_ROUTER, IF_MOE},
    {"mlp.shared_expert.gate_proj.weight", SHARED_F, H, LHI_ROLE_SHARED,
     IF_MOE},
    {"mlp.shared_expert.up_proj.weight", SHARED_F, H, LHI_ROLE_NEXT, IF_MOE},
    {"mlp.shared_expert.down_proj.weight", H, SHARED_F, LHI_ROLE_NEXT, IF_MOE},
    {"mlp.shared_expert_gate.weight", ONE, H, LHI_ROLE_SHARED_GATE, IF_MOE},
};
static const row qwen3_moe_layer[] = {
    ATTENTION_ROWS DENSE_ROWS
    {"mlp.gate.weight", EXPERTS, H, LHI_ROLE_ROUTER, IF_MOE},
};
static const row glm4_moe_layer[] = {ATTENTION_ROWS DENSE_ROWS SIGMOID_ROWS};
/* Of each expert of all these. */
static const row mlp_expert[] = {
    {"gate_proj.weight", EXPERT_F, H, LHI_ROLE_EXPERTS, ALWAYS},
    {"up_proj.weight", EXPERT_F, H, LHI_ROLE_NEXT, ALWAYS},
    {"down_proj.weight", H, EXPERT_F, LHI_ROLE_NEXT, ALWAYS},
};

static const row gpt2_front[] = {
    {"transformer.wte.weight", VOCAB, H, LHI_ROLE_EMBEDDING, ALWAYS},
    {"transformer.wpe.weight", POSITIONS, H, LHI_ROLE_POSITIONS, ALWAYS}};
static const row gpt2_layer[] = {
    {"ln_1.weight", H, NONE, LHI_ROLE_NORM1, ALWAYS},
    {"ln_1.bias", H, NONE, LHI_ROLE_NEXT, ALWAYS},
    {"attn.c_attn.weight", H, QKV, LHI_ROLE_QKV, ALWAYS},
    {"attn.c_attn.bias", QKV, NONE, LHI_ROLE_QKV_BIAS, ALWAYS},
    {"attn.c_proj.weight", Q, H, LHI_ROLE_OUT, ALWAYS},
    {"attn.c_proj.bias", H, NONE, LHI_ROLE_OUT_BIAS, ALWAYS},
    {"ln_2.weight", H, NONE, LHI_ROLE_NORM2, ALWAYS},
    {"ln_2.bias", H, NONE, LHI_ROLE_NEXT, ALWAYS},
    {"mlp.c_fc.weight", H, F, LHI_ROLE_GATE_UP, ALWAYS},
    {"mlp.c_fc.bias", F, NONE, LHI_ROLE_GATE_UP_BIAS, ALWAYS},
    {"mlp.c_proj.weight", F, H, LHI_ROLE_DOWN, ALWAYS},
    {"mlp.c_proj.bias", H, NONE, LHI_ROLE_DOWN_BIAS, ALWAYS},
};
static const row gpt2_back[] = {
    {"transformer.ln_f.weight", H, NONE, LHI_ROLE_NORM, ALWAYS},
    {"transformer.ln_f.bias", H, NONE, LHI_ROLE_NEXT, ALWAYS},
    {"lm_head.weight", VOCAB, H, LHI_ROLE_HEAD, ALWAYS}};

static const row falcon_front[] = {
    {"transformer.word_embeddings.weight", VOCAB, H, LHI_ROLE_EMBEDDING,
     ALWAYS}};
static const row falcon_layer[] = {
    {"input_layernorm.weight", H, NONE, LHI_ROLE_NORM1, ALWAYS},
    {"input_layernorm.bias", H, NONE, LHI_ROLE_NEXT, ALWAYS},
    {"self_attention.query_key_value.weight", QKV, H, LHI_ROLE_QKV, ALWAYS},
    {"self_attention.dense.weight", H, Q, LHI_ROLE_OUT, ALWAYS},
    {"mlp.dense_h_to_4h.weight", F, H, LHI_ROLE_GATE_UP, ALWAYS},
    {"mlp.dense_4h_to_h.weight", H, F, LHI_ROLE_DOWN, ALWAYS},
};

typedef struct rows {
    const row *rows;
    uint32_t n;
} rows;

typedef struct names {
    const char *layers; /* before a layer's number */
    rows front, layer, back;
    const char *experts; /* within a layer, before an expert's number */
    rows expert;         /* of each, behind the rows of a layer */
} names;

#define ROWS(list)                                                             \
    {                                                                          \
        (list), sizeof(list) / sizeof *(list)                                  \
    }

static const names llama = {"model.layers", ROWS(llama_front),
                            ROWS(llama_layer), ROWS(llama_back),
                            NULL,           {NULL, 0}};
static const names gpt2 = {"transformer.h", ROWS(gpt2_front), ROWS(gpt2_layer),
                           ROWS(gpt2_back),  NULL,             {NULL, 0}};
static const names falcon = {
    "transformer.h", ROWS(falcon_front), ROWS(falcon_layer),
    ROWS(gpt2_back), NULL,               {NULL, 0}};
static const names deepseek = {
    "model.layers",   ROWS(llama_front), ROWS(deepseek_layer),
    ROWS(llama_back), "mlp.experts",     ROWS(mlp_expert)};
static const names mixtral = {"model.layers",
                              ROWS(llama_front),
                              ROWS(mixtral_layer),
                              ROWS(llama_back),
                              "block_sparse_moe.experts",
                              ROWS(mixtral_expert)};
static const names qwen2_moe = {"model.layers",        ROWS(llama_front),
                                ROWS(qwen2_moe_layer), ROWS(llama_back),
                                "mlp.experts",         ROWS(mlp_expert)};
static const names qwen3_moe = {"model.layers",        ROWS(llama_front),
                                ROWS(qwen3_moe_layer), ROWS(llama_back),
                                "mlp.experts",         ROWS(mlp_expert)};
static const names glm4_moe = {"model.layers",       ROWS(llama_front),
                               ROWS(glm4_moe_layer), ROWS(llama_back),
                               "mlp.experts",        ROWS(mlp_expert)};

static const names *names_of(const lh_model *m)
{
    switch (lhi_family_known(m)) {
    case LHI_FAMILY_GPT2:
        return &gpt2;
    case LHI_FAMILY_FALCON:
        return &falcon;
    case LHI_FAMILY_DEEPSEEK:
        return &deepseek;
    case LHI_FAMILY_MIXTRAL:
        return &mixtral;
    case LHI_FAMILY_QWEN2_MOE:
        return &qwen2_moe;
    case LHI_FAMILY_QWEN3_MOE:
        return &qwen3_moe;
    case LHI_FAMILY_GLM4_MOE:
        return &glm4_moe;
    default:
        return &llama;
    }
}

/* `layer`: any for rows outside of layers. */
static bool is_needed(const lh_model *m, uint32_t layer, const row *r)
{
    switch (r->need) {
    case IF_DENSE:
        return !lh_model_layer_is_moe(m, layer);
    case IF_MOE:
        return lh_model_layer_is_moe(m, layer);
    case IF_QKV_BIAS:
        return m->qkv_bias;
    case IF_OUTPUT_BIAS:
        return m->output_bias;
    case IF_MLP_BIAS:
        return m->mlp_bias;
    case IF_QK_NORM:
        return m->qk_norm;
    case IF_Q_RANK:
        return m->q_lora_rank > 0;
    case UNLESS_Q_RANK:
        return m->q_lora_rank == 0;
    default:
        return true;
    }
}

static uint32_t count_rows(const lh_model *m, uint32_t layer, rows list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list.n; i++)
        n += is_needed(m, layer, &list.rows[i]);
    return n;
}

static const row *find_row(const lh_model *m, uint32_t layer, rows list,
                           uint32_t number)
{
    uint32_t i = 0;
    while (!is_needed(m, layer, &list.rows[i]) || number-- > 0)
        i++;
    return &list.rows[i];
}

static uint32_t width_of(const lh_model *m, side of)
{
    uint32_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    switch (of) {
    case H:
        return m->hidden;
    case Q:
        return q;
    case KV:
        return kv;
    case QKV:
        return q + 2 * kv;
    case OUT:
        return m->heads * m->v_head_dim;
    case HEAD:
        return m->head_dim;
    case Q_RANK:
        return m->q_lora_rank;
    case Q_FROM:
        return m->q_lora_rank ? m->q_lora_rank : m->hidden;
    case KV_RANK:
        return m->kv_lora_rank;
    case KV_DOWN:
        return m->kv_lora_rank + m->qk_rope_head_dim;
    case KV_UP:
        return m->heads * (m->qk_nope_head_dim + m->v_head_dim);
    case F:
        return m->ffn;
    case EXPERTS:
        return m->experts;
    case EXPERT_F:
        return m->expert_ffn;
    case SHARED_F:
        return m->shared_expert_ffn;
    case ONE:
        return 1;
    case VOCAB:
        return m->vocab;
    case POSITIONS:
        return m->positions;
    default:
        return 0;
    }
}

/* Experts, latents and blocks whose MLP is beside attention are not cut so. */
static bool is_cut(side of)
{
    return of == Q || of == KV || of == QKV || of == F || of == VOCAB;
}

uint32_t lhi_n_front_tensors(const lh_model *m)
{
    return count_rows(m, 0, names_of(m)->front);
}

uint32_t lhi_n_layer_tensors(const lh_model *m, uint32_t layer)
{
    const names *lists = names_of(m);
    uint32_t n = count_rows(m, layer, lists->layer);
    if (lh_model_layer_is_moe(m, layer))
        n += m->experts * lists->expert.n;
    return n;
}

uint32_t lhi_layer_tensor_index(const lh_model *m, uint32_t layer)
{
    uint32_t index = lhi_n_front_tensors(m);
    for (uint32_t i = 0; i < layer; i++)
        index += lhi_n_layer_tensors(m, i);
    return index;
}

uint32_t lhi_n_model_tensors(const lh_model *m)
{
    return lhi_layer_tensor_index(m, m->layers) +
           count_rows(m, 0, names_of(m)->back);
}

static const row *row_of(const lh_model *m, uint32_t index, uint32_t *layer,
                         uint32_t *expert)
{
    const names *lists = names_of(m);
    uint32_t front = lhi_n_front_tensors(m), at = 0, n;
    *layer = *expert = UINT32_MAX;
    if (index < front)
        return find_row(m, 0, lists->front, index);
    index -= front;
    while (at < m->layers && index >= (n = lhi_n_layer_tensors(m, at))) {
        index -= n;
        at++;
    }
    if (at == m->layers)
        return find_row(m, 0, lists->back, index);
    *layer = at;
    uint32_t common = count_rows(m, at, lists->layer);
    if (index < common)
        return find_row(m, at, lists->layer, index);
    *expert = (index - common) / lists->expert.n;
    return &lists->expert.rows[(index - common) % lists->expert.n];
}

void lhi_model_tensor_of(const lh_model *m, uint32_t index,
                         lhi_model_tensor *out)
{
    uint32_t layer, expert;
    const names *lists = names_of(m);
    const row *r = row_of(m, index, &layer, &expert);
    bool tied = r->role == LHI_ROLE_HEAD && m->tied_embeddings;
    const char *name = tied ? lists->front.rows[0].name : r->name;
    size_t length = strlen(name);
    if (layer == UINT32_MAX)
        snprintf(out->name, sizeof out->name, "%s", name);
    else if (expert == UINT32_MAX)
        snprintf(out->name, sizeof out->name, "%s.%u.%s", lists->layers, layer,
                 name);
    else
        snprintf(out->name, sizeof out->name, "%s.%u.%s.%u.%s", lists->layers,
                 layer, lists->experts, expert, name);
    out->rows = width_of(m, r->rows);
    out->columns = width_of(m, r->columns);
    out->n = (size_t)out->rows * (out->columns ? out->columns : 1);
    out->expert = expert;
    out->role = r->role;
    out->cut = is_cut(r->rows)      ? LHI_CUT_ROWS
               : is_cut(r->columns) ? LHI_CUT_COLUMNS
                                    : LHI_CUT_NOT;
    out->parts = r->rows == QKV || r->columns == QKV ? 3 : 1;
    out->is_bias = r->role == LHI_ROLE_ROUTER_BIAS ||
                   (length > 5 && strcmp(name + length - 5, ".bias") == 0);
}

lhi_slice lhi_model_slice(const lhi_model_tensor *t, uint32_t ranks,
                          uint32_t mine)
{
    return (lhi_slice){.cut = t->cut,
                       .parts = t->parts,
                       .ranks = ranks,
                       .mine = mine,
                       .rows = t->rows,
                       .columns = t->columns};
}

double lhi_count_values(const lh_model *m, uint32_t first, uint32_t n)
{
    double values = 0;
    for (uint32_t i = first; i < first + n; i++) {
        uint32_t layer, expert;
        const row *r = row_of(m, i, &layer, &expert);
        double columns = r->columns ? width_of(m, r->columns) : 1;
        values += width_of(m, r->rows) * columns;
    }
    return values;
}
