/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/families.h"

#include "base/fail.h"

#include <stdio.h>
#include <string.h>

/* ---- tensors ---- */

/* Width of a tensor's side, as a model dimension. */
typedef enum dimension {
    NONE,
    H,
    Q,
    KV,
    QKV,
    OUT, /* attention output */
    HEAD,
    Q_RANK,
    Q_INPUT, /* input to the query product */
    KV_RANK,
    KV_DOWN, /* with the rotary key */
    KV_UP,   /* non-rotary keys, and values */
    F,
    EXPERTS,
    EXPERT_F,
    SHARED_F,
    TWO_H, /* both inputs joined by an MTP module */
    ONE,
    VOCAB,
    POSITIONS
} dimension;

/* Condition under which a tensor exists. */
typedef enum condition {
    ALWAYS,
    IF_QKV_BIAS,
    IF_OUTPUT_BIAS,
    IF_MLP_BIAS,
    IF_QK_NORM,
    IF_Q_RANK,
    UNLESS_Q_RANK,
    IF_DENSE, /* dense layers only */
    IF_MOE
} condition;

/* One tensor in a family's table. */
typedef struct tensor_row {
    const char *name;
    dimension rows, columns;
    lhi_role role;
    condition need;
} tensor_row;

static const tensor_row llama_front[] = {
    {"model.embed_tokens.weight", VOCAB, H, LHI_ROLE_EMBEDDING, ALWAYS}};
/* Rows for attention weights, which most families share. */
#define ATTENTION_ROWS                                                         \
    {"input_layernorm.weight", H, NONE, LHI_ROLE_NORM1, ALWAYS},               \
        {"self_attn.q_proj.weight", Q, H, LHI_ROLE_QKV, ALWAYS},               \
        {"self_attn.k_proj.weight", KV, H, LHI_ROLE_CONTINUED, ALWAYS},        \
        {"self_attn.v_proj.weight", KV, H, LHI_ROLE_CONTINUED, ALWAYS},        \
        {"self_attn.q_norm.weight", HEAD, NONE, LHI_ROLE_Q_NORM, IF_QK_NORM},  \
        {"self_attn.k_norm.weight", HEAD, NONE, LHI_ROLE_K_NORM, IF_QK_NORM},  \
        {"self_attn.q_proj.bias", Q, NONE, LHI_ROLE_QKV_BIAS, IF_QKV_BIAS},    \
        {"self_attn.k_proj.bias", KV, NONE, LHI_ROLE_CONTINUED, IF_QKV_BIAS},  \
        {"self_attn.v_proj.bias", KV, NONE, LHI_ROLE_CONTINUED, IF_QKV_BIAS},  \
        {"self_attn.o_proj.weight", H, Q, LHI_ROLE_OUT, ALWAYS},               \
        {"self_attn.o_proj.bias", H, NONE, LHI_ROLE_OUT_BIAS, IF_OUTPUT_BIAS}, \
        {"post_attention_layernorm.weight", H, NONE, LHI_ROLE_NORM2, ALWAYS},
/* Dense layers in models that have experts elsewhere. */
#define DENSE_ROWS                                                             \
    {"mlp.gate_proj.weight", F, H, LHI_ROLE_GATE_UP, IF_DENSE},                \
        {"mlp.up_proj.weight", F, H, LHI_ROLE_CONTINUED, IF_DENSE},            \
        {"mlp.down_proj.weight", H, F, LHI_ROLE_DOWN, IF_DENSE},

/* Expert layers with a sigmoid router. */
#define SIGMOID_ROWS                                                           \
    {"mlp.gate.weight", EXPERTS, H, LHI_ROLE_ROUTER, IF_MOE},                  \
        {"mlp.gate.e_score_correction_bias", EXPERTS, NONE,                    \
         LHI_ROLE_ROUTER_BIAS, IF_MOE},                                        \
        {"mlp.shared_experts.gate_proj.weight", SHARED_F, H, LHI_ROLE_SHARED,  \
         IF_MOE},                                                              \
        {"mlp.shared_experts.up_proj.weight", SHARED_F, H, LHI_ROLE_CONTINUED, \
         IF_MOE},                                                              \
        {"mlp.shared_experts.down_proj.weight", H, SHARED_F,                   \
         LHI_ROLE_CONTINUED, IF_MOE},

static const tensor_row llama_layer[] = {
    ATTENTION_ROWS{"mlp.gate_proj.weight", F, H, LHI_ROLE_GATE_UP, ALWAYS},
    {"mlp.up_proj.weight", F, H, LHI_ROLE_CONTINUED, ALWAYS},
    {"mlp.gate_proj.bias", F, NONE, LHI_ROLE_GATE_UP_BIAS, IF_MLP_BIAS},
    {"mlp.up_proj.bias", F, NONE, LHI_ROLE_CONTINUED, IF_MLP_BIAS},
    {"mlp.down_proj.weight", H, F, LHI_ROLE_DOWN, ALWAYS},
    {"mlp.down_proj.bias", H, NONE, LHI_ROLE_DOWN_BIAS, IF_MLP_BIAS},
};
static const tensor_row llama_back[] = {
    {"model.norm.weight", H, NONE, LHI_ROLE_NORM, ALWAYS},
    {"lm_head.weight", VOCAB, H, LHI_ROLE_HEAD, ALWAYS}};

static const tensor_row deepseek_layer[] = {
    {"input_layernorm.weight", H, NONE, LHI_ROLE_NORM1, ALWAYS},
    {"self_attn.q_a_proj.weight", Q_RANK, H, LHI_ROLE_Q_DOWN, IF_Q_RANK},
    {"self_attn.q_a_layernorm.weight", Q_RANK, NONE, LHI_ROLE_Q_NORM,
     IF_Q_RANK},
    {"self_attn.q_b_proj.weight", Q, Q_INPUT, LHI_ROLE_Q_UP, IF_Q_RANK},
    {"self_attn.q_proj.weight", Q, Q_INPUT, LHI_ROLE_Q_UP, UNLESS_Q_RANK},
    {"self_attn.kv_a_proj_with_mqa.weight", KV_DOWN, H, LHI_ROLE_KV_DOWN,
     ALWAYS},
    {"self_attn.kv_a_layernorm.weight", KV_RANK, NONE, LHI_ROLE_K_NORM, ALWAYS},
    {"self_attn.kv_b_proj.weight", KV_UP, KV_RANK, LHI_ROLE_KV_UP, ALWAYS},
    {"self_attn.o_proj.weight", H, OUT, LHI_ROLE_OUT, ALWAYS},
    {"post_attention_layernorm.weight", H, NONE, LHI_ROLE_NORM2, ALWAYS},
    DENSE_ROWS SIGMOID_ROWS};

static const tensor_row mixtral_layer[] = {
    ATTENTION_ROWS{"block_sparse_moe.gate.weight", EXPERTS, H, LHI_ROLE_ROUTER,
                   ALWAYS},
};
static const tensor_row mixtral_expert[] = {
    {"w1.weight", EXPERT_F, H, LHI_ROLE_EXPERTS, ALWAYS},
    {"w3.weight", EXPERT_F, H, LHI_ROLE_CONTINUED, ALWAYS},
    {"w2.weight", H, EXPERT_F, LHI_ROLE_CONTINUED, ALWAYS},
};

static const tensor_row qwen2_moe_layer[] = {
    ATTENTION_ROWS DENSE_ROWS{"mlp.gate.weight", EXPERTS, H, LHI_ROLE_ROUTER,
                              IF_MOE},
    {"mlp.shared_expert.gate_proj.weight", SHARED_F, H, LHI_ROLE_SHARED,
     IF_MOE},
    {"mlp.shared_expert.up_proj.weight", SHARED_F, H, LHI_ROLE_CONTINUED,
     IF_MOE},
    {"mlp.shared_expert.down_proj.weight", H, SHARED_F, LHI_ROLE_CONTINUED,
     IF_MOE},
    {"mlp.shared_expert_gate.weight", ONE, H, LHI_ROLE_SHARED_GATE, IF_MOE},
};
static const tensor_row qwen3_moe_layer[] = {
    ATTENTION_ROWS DENSE_ROWS{"mlp.gate.weight", EXPERTS, H, LHI_ROLE_ROUTER,
                              IF_MOE},
};
static const tensor_row glm4_moe_layer[] = {
    ATTENTION_ROWS DENSE_ROWS SIGMOID_ROWS};
/* Tensors of an MTP module around its layer, named as in DeepSeek-V3's
 * checkpoints. */
static const tensor_row module_front[] = {
    {"enorm.weight", H, NONE, LHI_ROLE_ENORM, ALWAYS},
    {"hnorm.weight", H, NONE, LHI_ROLE_HNORM, ALWAYS},
    {"eh_proj.weight", H, TWO_H, LHI_ROLE_MTP_JOIN, ALWAYS},
};
static const tensor_row module_back[] = {
    {"shared_head.norm.weight", H, NONE, LHI_ROLE_MODULE_NORM, ALWAYS},
};
/* Tensors of each expert in these families. */
static const tensor_row mlp_expert[] = {
    {"gate_proj.weight", EXPERT_F, H, LHI_ROLE_EXPERTS, ALWAYS},
    {"up_proj.weight", EXPERT_F, H, LHI_ROLE_CONTINUED, ALWAYS},
    {"down_proj.weight", H, EXPERT_F, LHI_ROLE_CONTINUED, ALWAYS},
};

static const tensor_row gpt2_front[] = {
    {"transformer.wte.weight", VOCAB, H, LHI_ROLE_EMBEDDING, ALWAYS},
    {"transformer.wpe.weight", POSITIONS, H, LHI_ROLE_POSITIONS, ALWAYS}};
static const tensor_row gpt2_layer[] = {
    {"ln_1.weight", H, NONE, LHI_ROLE_NORM1, ALWAYS},
    {"ln_1.bias", H, NONE, LHI_ROLE_CONTINUED, ALWAYS},
    {"attn.c_attn.weight", H, QKV, LHI_ROLE_QKV, ALWAYS},
    {"attn.c_attn.bias", QKV, NONE, LHI_ROLE_QKV_BIAS, ALWAYS},
    {"attn.c_proj.weight", Q, H, LHI_ROLE_OUT, ALWAYS},
    {"attn.c_proj.bias", H, NONE, LHI_ROLE_OUT_BIAS, ALWAYS},
    {"ln_2.weight", H, NONE, LHI_ROLE_NORM2, ALWAYS},
    {"ln_2.bias", H, NONE, LHI_ROLE_CONTINUED, ALWAYS},
    {"mlp.c_fc.weight", H, F, LHI_ROLE_GATE_UP, ALWAYS},
    {"mlp.c_fc.bias", F, NONE, LHI_ROLE_GATE_UP_BIAS, ALWAYS},
    {"mlp.c_proj.weight", F, H, LHI_ROLE_DOWN, ALWAYS},
    {"mlp.c_proj.bias", H, NONE, LHI_ROLE_DOWN_BIAS, ALWAYS},
};
static const tensor_row gpt2_back[] = {
    {"transformer.ln_f.weight", H, NONE, LHI_ROLE_NORM, ALWAYS},
    {"transformer.ln_f.bias", H, NONE, LHI_ROLE_CONTINUED, ALWAYS},
    {"lm_head.weight", VOCAB, H, LHI_ROLE_HEAD, ALWAYS}};

static const tensor_row falcon_front[] = {{"transformer.word_embeddings.weight",
                                           VOCAB, H, LHI_ROLE_EMBEDDING,
                                           ALWAYS}};
static const tensor_row falcon_layer[] = {
    {"input_layernorm.weight", H, NONE, LHI_ROLE_NORM1, ALWAYS},
    {"input_layernorm.bias", H, NONE, LHI_ROLE_CONTINUED, ALWAYS},
    {"self_attention.query_key_value.weight", QKV, H, LHI_ROLE_QKV, ALWAYS},
    {"self_attention.dense.weight", H, Q, LHI_ROLE_OUT, ALWAYS},
    {"mlp.dense_h_to_4h.weight", F, H, LHI_ROLE_GATE_UP, ALWAYS},
    {"mlp.dense_4h_to_h.weight", H, F, LHI_ROLE_DOWN, ALWAYS},
};

/* A table section. */
typedef struct rows {
    const tensor_row *rows;
    uint32_t n;
} rows;

/* One model family's table. */
typedef struct family_table {
    const char *layers; /* prefix before the layer's number */
    rows front, layer, back;
    const char *experts; /* within a layer, before the expert's number */
    rows expert;         /* per expert, after the layer's rows */
} family_table;

#define ROWS(list)                                                             \
    {                                                                          \
        (list), sizeof(list) / sizeof *(list)                                  \
    }

static const family_table llama = {
    "model.layers", ROWS(llama_front), ROWS(llama_layer), ROWS(llama_back),
    NULL,           {NULL, 0}};
static const family_table gpt2 = {
    "transformer.h", ROWS(gpt2_front), ROWS(gpt2_layer), ROWS(gpt2_back), NULL,
    {NULL, 0}};
static const family_table falcon = {"transformer.h",
                                    ROWS(falcon_front),
                                    ROWS(falcon_layer),
                                    ROWS(gpt2_back),
                                    NULL,
                                    {NULL, 0}};
static const family_table deepseek = {"model.layers",       ROWS(llama_front),
                                      ROWS(deepseek_layer), ROWS(llama_back),
                                      "mlp.experts",        ROWS(mlp_expert)};
static const family_table mixtral = {
    "model.layers",   ROWS(llama_front),          ROWS(mixtral_layer),
    ROWS(llama_back), "block_sparse_moe.experts", ROWS(mixtral_expert)};
static const family_table qwen2_moe = {"model.layers",        ROWS(llama_front),
                                       ROWS(qwen2_moe_layer), ROWS(llama_back),
                                       "mlp.experts",         ROWS(mlp_expert)};
static const family_table qwen3_moe = {"model.layers",        ROWS(llama_front),
                                       ROWS(qwen3_moe_layer), ROWS(llama_back),
                                       "mlp.experts",         ROWS(mlp_expert)};
static const family_table glm4_moe = {"model.layers",       ROWS(llama_front),
                                      ROWS(glm4_moe_layer), ROWS(llama_back),
                                      "mlp.experts",        ROWS(mlp_expert)};

/* Returns the table of parameter tensors of the model's family (Llama, GPT-2,
 * Falcon). */
static const family_table *find_family_table(const lh_model *m)
{
    switch (lhi_family_get(m)) {
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

static const rows module_rows[2] = {ROWS(module_front), ROWS(module_back)};

/* Checks whether the model has the tensor that table row `r` describes, by the
 * row's condition (bias, QK norm, experts). `layer` is ignored for tensors
 * outside layers. */
static bool has_tensor(const lh_model *m, uint32_t layer, const tensor_row *r)
{
    switch (r->need) {
    case IF_DENSE:
        return !lhi_layer_is_moe(m, layer);
    case IF_MOE:
        return lhi_layer_is_moe(m, layer);
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

/* Counts the tensors in a table list that the model has in layer `layer`. */
static uint32_t count_tensors(const lh_model *m, uint32_t layer, rows list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list.n; i++)
        n += has_tensor(m, layer, &list.rows[i]);
    return n;
}

/* Returns the table row of tensor number `number`, counting only the tensors in
 * `list` that the model has in layer `layer`. */
static const tensor_row *find_tensor_row(const lh_model *m, uint32_t layer,
                                         rows list, uint32_t number)
{
    uint32_t i = 0;
    while (!has_tensor(m, layer, &list.rows[i]) || number-- > 0)
        i++;
    return &list.rows[i];
}

/* Returns the model's size in the dimension `of`, such as hidden size or
 * vocabulary. */
static uint32_t get_dimension_size(const lh_model *m, dimension of)
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
    case Q_INPUT:
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
    case TWO_H:
        return 2 * m->hidden;
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

/* Checks whether tensor parallelism slices this dimension of a matrix. Latents
 * are complete on each rank; experts may be sliced. */
static bool is_sharded_dimension(dimension of)
{
    return of == Q || of == KV || of == QKV || of == KV_UP || of == OUT ||
           of == F || of == SHARED_F || of == EXPERT_F || of == VOCAB;
}

uint32_t lhi_count_front_tensors(const lh_model *m)
{
    return count_tensors(m, 0, find_family_table(m)->front);
}

uint32_t lhi_count_layer_tensors(const lh_model *m, uint32_t layer)
{
    const family_table *lists = find_family_table(m);
    uint32_t n = count_tensors(m, layer, lists->layer);
    if (lhi_layer_is_moe(m, layer))
        n += m->experts * lists->expert.n;
    if (layer >= m->layers)
        n += module_rows[0].n + module_rows[1].n;
    return n;
}

uint32_t lhi_layer_tensor_index(const lh_model *m, uint32_t layer)
{
    uint32_t index = lhi_count_front_tensors(m);
    for (uint32_t i = 0; i < layer; i++)
        index += lhi_count_layer_tensors(m, i);
    return index;
}

/* Returns the model-wide index of a multi-token prediction module's first
 * tensor. Modules follow the head, which they share; if the head is not tied,
 * a copy of the embedding precedes them. */
uint32_t lhi_module_tensor_index(const lh_model *m, uint32_t module)
{
    uint32_t index = lhi_layer_tensor_index(m, m->layers) +
                     count_tensors(m, 0, find_family_table(m)->back) +
                     lhi_has_separate_embedding_copy(m);
    for (uint32_t k = 0; k < module; k++)
        index += lhi_count_layer_tensors(m, m->layers + k);
    return index;
}

uint32_t lhi_count_model_tensors(const lh_model *m)
{
    return lhi_module_tensor_index(m, m->mtp_layers);
}

/* Returns the table row for tensor `index` of a layer or of a multi-token
 * prediction module. Sets *expert if the tensor belongs to an expert. */
static const tensor_row *find_layer_row(const lh_model *m, uint32_t layer,
                                        uint32_t index, uint32_t *expert)
{
    const family_table *lists = find_family_table(m);
    uint32_t before = layer >= m->layers ? module_rows[0].n : 0;
    uint32_t common = count_tensors(m, layer, lists->layer);
    uint32_t experts =
        lhi_layer_is_moe(m, layer) ? m->experts * lists->expert.n : 0;
    if (index < before)
        return &module_rows[0].rows[index];
    index -= before;
    if (index < common)
        return find_tensor_row(m, layer, lists->layer, index);
    index -= common;
    if (index >= experts)
        return &module_rows[1].rows[index - experts];
    *expert = index / lists->expert.n;
    return &lists->expert.rows[index % lists->expert.n];
}

/* Returns the table row for the model's tensor `index`, and its layer and
 * expert; UINT32_MAX: outside layers, no expert. */
static const tensor_row *find_model_row(const lh_model *m, uint32_t index,
                                        uint32_t *layer, uint32_t *expert)
{
    static const tensor_row copy = {NULL, VOCAB, H, LHI_ROLE_EMBEDDING_COPY,
                                    ALWAYS};
    const family_table *lists = find_family_table(m);
    uint32_t front = lhi_count_front_tensors(m), at = 0, n;
    uint32_t back = count_tensors(m, 0, lists->back);
    *layer = *expert = UINT32_MAX;
    if (index < front)
        return find_tensor_row(m, 0, lists->front, index);
    index -= front;
    while (at < m->layers && index >= (n = lhi_count_layer_tensors(m, at))) {
        index -= n;
        at++;
    }
    if (at == m->layers && index < back)
        return find_tensor_row(m, 0, lists->back, index);
    if (at == m->layers) {
        index -= back;
        if (lhi_has_separate_embedding_copy(m) && index-- == 0)
            return &copy;
        while (index >= (n = lhi_count_layer_tensors(m, at))) {
            index -= n;
            at++;
        }
    }
    *layer = at;
    return find_layer_row(m, at, index, expert);
}

void lhi_describe_model_tensor(const lh_model *m, uint32_t index,
                               lhi_model_tensor *out)
{
    uint32_t layer, expert;
    const family_table *lists = find_family_table(m);
    const tensor_row *r = find_model_row(m, index, &layer, &expert);
    bool copies = (r->role == LHI_ROLE_HEAD && m->tied_embeddings) ||
                  r->role == LHI_ROLE_EMBEDDING_COPY;
    const char *name = copies ? lists->front.rows[0].name : r->name;
    size_t length = strlen(name);
    if (layer == UINT32_MAX)
        snprintf(out->name, sizeof out->name, "%s", name);
    else if (expert == UINT32_MAX)
        snprintf(out->name, sizeof out->name, "%s.%u.%s", lists->layers, layer,
                 name);
    else
        snprintf(out->name, sizeof out->name, "%s.%u.%s.%u.%s", lists->layers,
                 layer, lists->experts, expert, name);
    out->rows = get_dimension_size(m, r->rows);
    out->columns = get_dimension_size(m, r->columns);
    out->n = (size_t)out->rows * (out->columns ? out->columns : 1);
    out->expert = expert;
    out->layer = layer;
    out->role = r->role;
    out->is_tied_copy = copies;
    out->cut = is_sharded_dimension(r->rows)      ? LHI_CUT_ROWS
               : is_sharded_dimension(r->columns) ? LHI_CUT_COLUMNS
                                                  : LHI_CUT_NOT;
    /* A parallel block (Falcon) has one key and value head. */
    bool fused = r->rows == QKV || r->columns == QKV;
    out->parts = fused && !m->parallel_block ? 3 : 1;
    out->n_common_rows =
        fused && m->parallel_block ? 2 * m->kv_heads * m->head_dim : 0;
    out->max_slices = r->rows == KV ? m->kv_heads : 0;
    out->is_bias = r->role == LHI_ROLE_ROUTER_BIAS ||
                   (length > 5 && strcmp(name + length - 5, ".bias") == 0);
}

lhi_slice lhi_model_slice(const lhi_model_tensor *t, uint32_t ranks,
                          uint32_t mine)
{
    uint32_t n = t->max_slices && t->max_slices < ranks ? t->max_slices : ranks;
    if (t->cut == LHI_CUT_NOT)
        n = 1;
    const lhi_slice first = {.cut = t->cut,
                             .parts = t->parts,
                             .ranks = n,
                             .sharers = ranks / n,
                             .n_common_rows = t->n_common_rows,
                             .rows = t->rows,
                             .columns = t->columns};
    return lhi_slice_for_rank(&first, mine);
}

double lhi_count_values(const lh_model *m, uint32_t first, uint32_t n)
{
    double values = 0;
    for (uint32_t i = first; i < first + n; i++) {
        uint32_t layer, expert;
        const tensor_row *r = find_model_row(m, i, &layer, &expert);
        double columns = r->columns ? get_dimension_size(m, r->columns) : 1;
        values += get_dimension_size(m, r->rows) * columns;
    }
    return values;
}
