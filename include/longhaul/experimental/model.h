/* SPDX-License-Identifier: Apache-2.0 */
/* Transformer architecture: the dimensions that the cost model needs, and
 * parameter counts. docs/models.md gives each preset's source.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_MODEL_H
#define LONGHAUL_EXPERIMENTAL_MODEL_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Normalisation layers. */
typedef enum lh_norm {
    LH_NORM_RMS,            /* one weight per feature */
    LH_NORM_LAYER,          /* weight and bias per feature */
    LH_NORM_LAYER_UNBIASED, /* Command A: layer norm without bias */
} lh_norm;

/* Norms for a layer's attention and MLP. */
typedef enum lh_norm_placement {
    LH_NORM_PLACEMENT_PRE,  /* of their inputs */
    LH_NORM_PLACEMENT_POST, /* of their outputs (OLMo 2) */
    LH_NORM_PLACEMENT_BOTH, /* of both (Gemma 3) */
} lh_norm_placement;

/* Router score function, applied before experts are selected. */
typedef enum lh_router {
    LH_ROUTER_SOFTMAX, /* probabilities over all experts */
    /* independent score per expert; selection adds a bias that training adjusts
     * until the load is balanced (DeepSeek-V3, arXiv:2412.19437, section 2.1.2)
     */
    LH_ROUTER_SIGMOID,
} lh_router;

/* MLP activation functions. */
typedef enum lh_activation {
    LH_ACTIVATION_UNSET, /* gated MLPs: SiLU; others: the program's GeLU */
    LH_ACTIVATION_SILU,
    LH_ACTIVATION_GELU,       /* with the error function */
    LH_ACTIVATION_GELU_TANH,  /* its approximation with tanh */
    LH_ACTIVATION_QUICK_GELU, /* x * sigmoid(1.702 * x) */
    LH_ACTIVATION_RELU2,      /* squared ReLU */
} lh_activation;

/* Scales rotary positions for longer sequences, as in the rope_scaling of a
 * Hugging Face config.json. */
typedef enum lh_rope_type {
    LH_ROPE_LINEAR, /* positions divided by `factor` */
    LH_ROPE_LLAMA3, /* Llama 3.1: low frequencies divided by `factor` */
    LH_ROPE_YARN,   /* Peng et al., arXiv:2309.00071 */
} lh_rope_type;

/* Rotary scaling; 0 means "unset" unless noted. */
typedef struct lh_rope_scaling {
    lh_rope_type type;
    double factor;
    uint32_t original_positions; /* positions before scaling; not with linear */
    double low_freq_factor, high_freq_factor; /* llama3 */
    /* YaRN: rotations between which frequencies change from unscaled to
     * scaled. */
    double beta_fast, beta_slow;
    /* YaRN: coefficients of the attention's temperature (DeepSeek) */
    double mscale, mscale_all_dim;
    double attention_factor; /* YaRN; 0: 0.1 * ln(factor) + 1 */
    bool fractional_range;   /* YaRN: the frequency range is not rounded to
                              * whole dimensions */
} lh_rope_scaling;

/* Model dimensions. Immutable; 0 means "none" unless noted. A layer is
 * attention, then an MLP, each after a norm, or both after one norm
 * (parallel_block). A dense layer's MLP has width `ffn`. A mixture-of-experts
 * (MoE) layer has a router, `experts` MLPs with width `expert_ffn`, and shared
 * experts for every token with total width `shared_expert_ffn`. */
typedef struct lh_model {
    const char *name; /* preset's name or source file */
    uint32_t layers, hidden, ffn, vocab;
    uint32_t heads, kv_heads, head_dim; /* with MLA: kv_heads = heads */
    bool gated; /* MLPs have three matrices (SwiGLU), else two */
    /* Falcon: attention and MLP use the same norm's output and both add to the
     * layer's input; no experts */
    bool parallel_block;
    bool tied_embeddings;       /* head and embedding share a matrix */
    bool qkv_bias, output_bias; /* attention's projection biases */
    bool mlp_bias;
    bool qk_norm;           /* Qwen3: norms of head_dim on queries and keys */
    bool qk_norm_all_heads; /* OLMo 2: one norm over all heads together */
    bool qk_l2_norm;        /* Llama 4: norms without weights */
    bool attention_sinks;   /* gpt-oss: a learned score per head */
    lh_norm norm;
    lh_norm_placement norm_placement;
    bool norm_zero_centered; /* the factor is 1 + weight, no effect on time */
    uint32_t positions;      /* learned position embeddings; 0: rotary */
    uint32_t rope_theta;     /* rotary position base, no effect on time; 0: not
                              * given, see lh_model_rope_theta() */
    uint32_t no_rope_interval; /* layers with i % n == n - 1 have no positions,
                                * no effect on time; 0: none */
    double norm_epsilon; /* added to the mean square in norms, no effect on
                          * time; 0: not given, see lh_model_norm_epsilon() */
    /* Constants without an effect on time, for exports. The cpu device rejects
     * models with values other than the defaults. */
    lh_activation activation;
    double glu_linear_offset;     /* gpt-oss: added to the linear half of gated
                                   * MLPs */
    double swiglu_limit;          /* gpt-oss: both halves' limit; 0: none */
    double partial_rotary_factor; /* a head's rotated fraction; 0: 1 */
    const lh_rope_scaling *rope_scaling; /* NULL: none */
    double initializer_range; /* initial weights' standard deviation; 0: not
                               * given, 0.02 */
    /* The experts' load-balancing loss coefficient, the default of a job's
     * balance_loss. */
    bool aux_loss_given;
    double aux_loss;
    /* Features in the model's config.json without a member here: file and keys.
     * They do not affect time, but the cpu device cannot train such a model.
     * NULL: none. */
    const char *unsupported_keys;

    /* Sliding-window attention: at most this many visible tokens, from layer
     * `window_first_layer` on; 0: all. Layers with i % full_interval ==
     * full_interval - 1 see all tokens; 0: no such layers. Use
     * lh_model_layer_window(). */
    uint32_t sliding_window, window_first_layer, full_interval;
    bool chunked_attention; /* Llama 4: not the last `sliding_window` tokens are
                             * visible, but those of the same chunk of as many
                             * tokens */

    /* Gated delta networks (Qwen3-Next; Yang et al., arXiv:2412.06464) in place
     * of attention: enabled if linear_value_heads > 0, in layers with i %
     * full_interval != full_interval - 1. Use lh_model_layer_is_linear(). */
    uint32_t linear_key_heads, linear_value_heads;
    uint32_t linear_key_head_dim, linear_value_head_dim;
    uint32_t linear_conv_kernel; /* tokens of the convolution of queries, keys
                                  * and values */
    bool attention_gate; /* Qwen3-Next: attention's output is multiplied by a
                          * gate with as many outputs as the queries */

    /* Hybrid models (Nemotron-H, arXiv:2504.03624): one letter per layer, which
     * is then a single block after one norm: 'M' Mamba-2, 'G' gated delta
     * network, '*' attention, '-' dense MLP, 'E' experts. With multi-token
     * prediction '/' and the layers of one module follow, as in "MEM-*-/ME".
     * NULL: each layer is attention, then an MLP. */
    const char *layer_pattern;
    /* Mamba-2 (Dao and Gu, arXiv:2405.21060): heads, groups of heads that share
     * B and C, states per channel, tokens of the convolution. */
    uint32_t mamba_heads, mamba_head_dim, mamba_groups, mamba_state_dim;
    uint32_t mamba_conv_kernel;

    /* Sparse attention (DeepSeek-V3.2, arXiv:2512.02556, section 2.1): enabled
     * if index_topk > 0. An indexer with these heads scores all tokens;
     * attention is to the `index_topk` tokens with the highest scores. With
     * latent attention only. */
    uint32_t index_heads, index_head_dim, index_topk;

    /* Experts. Use lh_model_layer_is_moe() instead of the pattern: layer i is
     * MoE if i >= dense_layers, i % moe_interval == moe_phase and i is not in
     * dense_list. moe_interval is at least 1 if there are experts. */
    uint32_t experts, experts_per_token, expert_ffn, shared_expert_ffn;
    uint32_t expert_latent;  /* Nemotron 3 Super: width to which tokens are
                              * projected for the routed experts; 0: `hidden` */
    bool shared_expert_gate; /* Qwen2-MoE: gate with `hidden` weights */
    bool router_bias;        /* gpt-oss: one per expert */
    lh_router router;
    bool unnormalised_scores; /* expert outputs are weighted by raw scores; else
                               * by scores normalised over the selected experts
                               */
    double routed_scale;      /* factor on the experts' output; 0: 1 */
    /* Node-limited routing (DeepSeek-V2, arXiv:2405.04434, section 2.1.3):
     * number of equal expert groups, and groups that a token may use. 0:
     * disabled. */
    uint32_t expert_groups, groups_per_token;
    uint32_t dense_layers, moe_interval, moe_phase;
    uint32_t n_dense_list;
    const uint32_t *dense_list;

    /* Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1):
     * enabled if kv_lora_rank > 0. q_lora_rank 0: uncompressed queries.
     * head_dim = qk_nope_head_dim + qk_rope_head_dim. */
    uint32_t q_lora_rank, kv_lora_rank;
    uint32_t qk_nope_head_dim, qk_rope_head_dim, v_head_dim;

    /* Multi-token prediction modules (DeepSeek-V3, arXiv:2412.19437, section
     * 2.2) after the last layer; not part of `layers`. */
    uint32_t mtp_layers;
} lh_model;

/* Returns a model preset with static lifetime; NULL: no such preset. `name` may
 * be an alias (docs/models.md), such as "llama3.3-70b". */
LH_API const lh_model *lh_model_preset(const char *name);
/* Returns the model preset names, NULL-terminated; static storage. */
LH_API const char *const *lh_model_presets(void);

/* Reads and parses a Hugging Face config.json. LH_EINPUT: invalid, or of
 * an unsupported class; `err` names file, line and key. LH_EIO: it cannot be
 * read. */
LH_API lh_status lh_model_read(const char *path, lh_model **out, lh_error *err);
/* Frees a model from a file; NULL is a no-op. Presets must not be freed. */
LH_API void lh_model_free(lh_model *model);

/* Returns the model's rotary position base; default 10000. */
LH_API double lh_model_rope_theta(const lh_model *model);
/* Returns the model's norm epsilon; default 1e-5. */
LH_API double lh_model_norm_epsilon(const lh_model *model);
/* Returns how many tokens at most are visible to a token in the
 * layer's attention; 0: all. */
LH_API uint32_t lh_model_layer_window(const lh_model *model, uint32_t layer);
/* Returns true if the layer has a gated delta network in place of attention. */
LH_API bool lh_model_layer_is_linear(const lh_model *model, uint32_t layer);
/* Returns true if the layer has experts. */
LH_API bool lh_model_layer_is_moe(const lh_model *model, uint32_t layer);

/* Parameter counts of one layer, or of several added up. */
typedef struct lh_layer_params {
    uint64_t attention; /* projections, their biases, inner norms */
    uint64_t norms;     /* before attention and before the MLP */
    uint64_t mlp;       /* dense MLP; MoE: the shared experts */
    uint64_t router;    /* MoE */
    uint64_t experts;   /* MoE: all experts */
    uint64_t total;     /* the five above, summed */
    uint64_t active;    /* active per token: `total` with only experts_per_token
                         * experts */
} lh_layer_params;

/* Returns the model's parameters, a tied matrix counted once, without
 * multi-token prediction. */
LH_API uint64_t lh_model_params(const lh_model *model);
/* Returns the model's parameters that one token uses: only its experts count, a
 * tied matrix once, multi-token prediction not. */
LH_API uint64_t lh_model_active_params(const lh_model *model);

/* Activations stored for the backward in addition to the layer's input: outputs
 * of its operations, in execution order. */
typedef enum lh_layer_part {
    LH_PART_ATTENTION_NORM,
    LH_PART_QKV, /* queries, keys and values */
    LH_PART_ATTENTION,
    LH_PART_ATTENTION_OUTPUT,
    LH_PART_MLP_NORM,
    LH_PART_GATE_UP,    /* gate and up; only up if ungated; routed experts */
    LH_PART_ACTIVATION, /* after the activation function, same scope */
    /* Appended so that the values above stay stable. Latent attention, before
     * LH_PART_QKV: compressed values and their norms' outputs. Shared experts:
     * counterparts of the routed experts' two entries above. */
    LH_PART_LATENT,
    LH_PART_SHARED_GATE_UP,
    LH_PART_SHARED_ACTIVATION,
    LH_N_LAYER_PARTS
} lh_layer_part;

/* Bit set for all layer parts. */
enum { LH_PART_ALL = (1 << LH_N_LAYER_PARTS) - 1 };

#ifdef __cplusplus
}
#endif
#endif
