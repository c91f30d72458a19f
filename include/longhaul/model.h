/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of a transformer: what the cost model needs to know about it, and
 * how many parameters it has. docs/models.md names each preset's source. */
#ifndef LONGHAUL_MODEL_H
#define LONGHAUL_MODEL_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lh_norm {
    LH_NORM_RMS,   /* a weight per feature */
    LH_NORM_LAYER, /* a weight and a bias per feature */
} lh_norm;

/* What a router makes of its product with a token, before it chooses experts. */
typedef enum lh_router {
    LH_ROUTER_SOFTMAX, /* how likely each expert is, of all of them */
    LH_ROUTER_SIGMOID, /* each expert for itself; where experts are chosen, a
                          bias comes on top that training moves until all are
                          in use (DeepSeek-V3, arXiv:2412.19437, section 2.1.2) */
} lh_router;

/* Plain numbers, immutable; 0 means "has none" unless said otherwise. Every
 * layer is attention, then an MLP, each behind a norm, or both behind one
 * (parallel_block). The MLP of a dense layer is `ffn` wide; that of a
 * mixture-of-experts (MoE) layer is a router, `experts` MLPs of `expert_ffn` and
 * shared ones that every token passes, together `shared_expert_ffn` wide. */
typedef struct lh_model {
    const char *name; /* of a preset, or of the file it came from */
    uint32_t layers, hidden, ffn, vocab;
    uint32_t heads, kv_heads, head_dim; /* with MLA: kv_heads = heads */
    bool gated;           /* MLPs have three matrices (SwiGLU), else two */
    bool parallel_block;  /* Falcon: a layer's attention and MLP take the same
                             norm's output, and both add to its input; without
                             experts */
    bool tied_embeddings; /* the head's matrix is the embedding's */
    bool qkv_bias, output_bias; /* of attention's projections */
    bool mlp_bias;
    bool qk_norm;         /* Qwen3: norms of head_dim on queries and keys */
    bool attention_sinks; /* gpt-oss: a learned score per head */
    lh_norm norm;
    uint32_t positions;  /* learned position embeddings; 0: rotary */
    uint32_t rope_theta; /* base of rotary positions, on which no time depends;
                            0: not said, lh_model_rope_theta() */
    double norm_epsilon; /* what norms add to the mean square, on which no time
                            depends; 0: not said, lh_model_norm_epsilon() */
    /* What the model's config.json says and this struct has no members for
     * (scaled or partial rotary positions, another activation function): the
     * file and its keys. No time depends on it, and the cpu device does not
     * train such a model. NULL: nothing. */
    const char *uncomputed;

    /* Attention sees at most this many tokens, from layer
     * `window_first_layer` on; 0: all of them. Every `full_interval`th layer
     * of the model (as i % full_interval == full_interval - 1) sees all of them
     * nevertheless; 0: none does. Use lh_model_layer_window(). */
    uint32_t sliding_window, window_first_layer, full_interval;

    /* Experts. Use lh_model_layer_is_moe() rather than the pattern: layer i
     * is MoE if i >= dense_layers, i % moe_interval == moe_phase and i is not
     * in dense_list. moe_interval is at least 1 where there are experts. */
    uint32_t experts, experts_per_token, expert_ffn, shared_expert_ffn;
    bool shared_expert_gate; /* Qwen2-MoE: a hidden-wide gate */
    bool router_bias;        /* gpt-oss: one per expert */
    lh_router router;
    bool raw_shares; /* an expert's result counts by its score; else by its part
                        of the sum of those that were chosen */
    double routed_scale; /* times what the experts make; 0: 1 */
    /* Node-limited routing (DeepSeek-V2, arXiv:2405.04434, section 2.1.3):
     * experts in so many groups of equal size, of which a token uses some. 0:
     * there are none. */
    uint32_t expert_groups, groups_per_token;
    uint32_t dense_layers, moe_interval, moe_phase;
    uint32_t n_dense_list;
    const uint32_t *dense_list;

    /* Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1):
     * used where kv_lora_rank > 0. q_lora_rank 0: queries are not compressed.
     * head_dim = qk_nope_head_dim + qk_rope_head_dim. */
    uint32_t q_lora_rank, kv_lora_rank;
    uint32_t qk_nope_head_dim, qk_rope_head_dim, v_head_dim;

    /* Multi-token prediction modules (DeepSeek-V3, arXiv:2412.19437, section
     * 2.2) after the last layer; not part of `layers`. */
    uint32_t mtp_layers;
} lh_model;

/* The model that a preset names, which lives for ever; NULL: no such preset.
 * `name` may be an alias (docs/models.md), as "llama3.3-70b". */
LH_API const lh_model *lh_model_preset(const char *name);
/* The presets' names, NULL-terminated. */
LH_API const char *const *lh_model_presets(void);

/* Reads a Hugging Face config.json of the Llama, Mistral, Mixtral, Qwen2,
 * Qwen3, Qwen2-MoE, Qwen3-MoE, DeepSeek-V2, DeepSeek-V3, gpt-oss, GPT-2 or
 * Falcon (7B) family.
 * Release with lh_model_free(). LH_EINPUT: `err` says which key of which line
 * is wrong; LH_EUNSUPPORTED: another family. */
LH_API lh_status lh_model_parse(const char *text, size_t len, const char *name,
                                lh_model **out, lh_error *err);
LH_API lh_status lh_model_read(const char *path, lh_model **out, lh_error *err);
LH_API void lh_model_free(lh_model *model); /* NULL is fine; never a preset */

/* The base of rotary positions: 10000 where the model does not say. */
LH_API double lh_model_rope_theta(const lh_model *model);
/* What norms add to the mean square: 1e-5 where the model does not say. */
LH_API double lh_model_norm_epsilon(const lh_model *model);
/* How many tokens the attention of this layer sees at most; 0: all. */
LH_API uint32_t lh_model_layer_window(const lh_model *model, uint32_t layer);
LH_API bool lh_model_layer_is_moe(const lh_model *model, uint32_t layer);
/* How many of the layers first..first+n_layers-1 are MoE. */
LH_API uint32_t lh_model_moe_layers(const lh_model *model, uint32_t first,
                                    uint32_t n_layers);

/* The parameters of one layer, or of several added up. */
typedef struct lh_layer_params {
    uint64_t attention; /* projections, their biases, norms inside */
    uint64_t norms;     /* before attention and before the MLP */
    uint64_t mlp;       /* the dense MLP; of an MoE layer the shared experts */
    uint64_t router;    /* MoE */
    uint64_t experts;   /* MoE: all of them together */
    uint64_t total;     /* the five above */
    uint64_t active;    /* what one token passes: `total` with only
                           experts_per_token of the experts */
} lh_layer_params;

LH_API lh_layer_params lh_model_layer_params(const lh_model *model,
                                             uint32_t layer);
/* The sum over layers first..first+n_layers-1. */
LH_API lh_layer_params lh_model_range_params(const lh_model *model,
                                             uint32_t first, uint32_t n_layers);
/* Token (and learned position) embeddings. */
LH_API uint64_t lh_model_embedding_params(const lh_model *model);
/* The final norm and the vocabulary matrix; the matrix is counted also where
 * it is tied, because a head away from the embedding holds its own copy. */
LH_API uint64_t lh_model_head_params(const lh_model *model);
/* All multi-token prediction modules together, without the embedding and head
 * that they share with the model. */
LH_API uint64_t lh_model_mtp_params(const lh_model *model);
/* The whole model, a tied matrix once, without multi-token prediction. */
LH_API uint64_t lh_model_params(const lh_model *model);
/* The same, of experts only those that one token passes. */
LH_API uint64_t lh_model_active_params(const lh_model *model);

/* What a layer keeps for its backward, beside its input: outputs of its
 * operations, in their order. */
typedef enum lh_layer_part {
    LH_PART_ATTENTION_NORM,
    LH_PART_QKV, /* queries, keys and values */
    LH_PART_ATTENTION,
    LH_PART_ATTENTION_OUTPUT,
    LH_PART_MLP_NORM,
    LH_PART_GATE_UP, /* both; up alone without a gate; of routed experts */
    LH_PART_ACTIVATION, /* likewise */
    /* Not in the order, so that the others keep their numbers: of latent
     * attention, before LH_PART_QKV, what is compressed and its norms' outputs;
     * of shared experts what the routed ones have in the two above. */
    LH_PART_LATENT,
    LH_PART_SHARED_GATE_UP,
    LH_PART_SHARED_ACTIVATION,
    LH_N_LAYER_PARTS
} lh_layer_part;

enum { LH_PART_ALL = (1 << LH_N_LAYER_PARTS) - 1 };

#ifdef __cplusplus
}
#endif
#endif
