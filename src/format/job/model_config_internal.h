/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the readers of Hugging Face config.json files. Input: the file's
 * tree. Output: an lh_model.
 *
 *     model_config.c            the files, and the Llama-like families
 *     model_config_families.c   families with other keys or layers
 *     model_config_hybrid.c     families with Mamba-2 layers
 *     model_config_keys.c       keys that several families share
 */
#ifndef LHI_FORMAT_JOB_MODEL_CONFIG_INTERNAL_H
#define LHI_FORMAT_JOB_MODEL_CONFIG_INTERNAL_H

#include "format/job/parse.h"

/* The families with different keys. */
typedef enum style {
    LLAMA,
    MISTRAL,
    MIXTRAL,
    QWEN2,
    QWEN3,
    QWEN2_MOE,
    QWEN3_MOE,
    DEEPSEEK,
    GLM4_MOE,
    GPT_OSS,
    GPT2,
    FALCON,
    PHI3,
    OLMO2,
    NEMOTRON,
    COHERE2,
    GEMMA3,
    MINIMAX_M2,
    LLAMA4,
    GROK,
    QWEN3_NEXT,
    NEMOTRON_H,
} style;

/* A configuration class's sizes. */
typedef struct family {
    const char *type; /* model_type */
    style style;
    uint32_t vocab, hidden, ffn, layers, heads, kv_heads;
} family;

/* The reader's state. */
typedef struct reader {
    const lhi_doc *doc;
    const lhi_node *map;   /* the language model's map */
    const lhi_node *outer; /* the file's root; equals `map` unless nested */
    const family *family;
    lhi_arena *mem;
    lh_model model;
} reader;

/* Marks a mandatory key. */
#define REQUIRED UINT32_MAX

/* Reads the integer `key` of a config.json, at most `most`, into *out; `absent`
 * if it is missing or null. */
lh_status lhi_config_read_number(const reader *r, const char *key,
                                 uint32_t most, uint32_t absent, uint32_t *out,
                                 lh_error *err);
/* Reads a size of a config.json, from 1 to `most`, into *out. The key is
 * required, unless the model's class has the default class_has (0: none). */
lh_status lhi_config_read_size(const reader *r, const char *key, uint32_t most,
                               uint32_t class_has, uint32_t *out,
                               lh_error *err);
/* Reads a config.json boolean; keeps *out if it is missing or null. */
lh_status lhi_config_read_flag(const reader *r, const lhi_node *map,
                               const char *key, bool *out, lh_error *err);
/* Reads the rotary positions' base from "rope_theta", or as transformers 5
 * writes it in "rope_parameters", where "10000.0" counts as an integer. The
 * default is 10000, which lh_model stores as unspecified; some classes differ.
 */
lh_status lhi_config_read_rope_theta(reader *r, lh_error *err);
/* Reads an attention head's size; by default the hidden size divided by the
 * heads. */
lh_status lhi_config_read_head_dim(reader *r, lh_error *err);
/* Reads layer_types, which lists the layers that attend to all tokens; by
 * default every `absent`-th layer does. */
lh_status lhi_config_read_layer_types(reader *r, uint32_t absent,
                                      lh_error *err);

/* Reads a GPT-2 config: its size keys have other names, embeddings are tied by
 * default, and the MLP is by default four times as wide. */
lh_status lhi_config_read_gpt2(reader *r, lh_error *err);
/* Reads a Falcon 7B config. LH_EUNSUPPORTED: Falcon 40B and 180B, whose layers
 * have two norms and keys shared by groups of heads. */
lh_status lhi_config_read_falcon(reader *r, lh_error *err);
/* Reads the sizes of DeepSeek-V3.2's indexer, which selects the tokens for
 * sparse attention: heads, their width, and selected tokens. */
lh_status lhi_config_read_indexer(reader *r, lh_error *err);
/* Reads the sizes of Qwen3-Next's gated delta networks and the interval of its
 * layers with gated attention. */
lh_status lhi_config_read_qwen3_next(reader *r, lh_error *err);
/* Reads Nemotron-H's sizes, layer pattern and Mamba-2 layers. */
lh_status lhi_config_read_nemotron_h(reader *r, lh_error *err);
/* Reads the expert sizes that only Nemotron-H has: the latent width and the
 * shared experts' width. */
lh_status lhi_config_read_nemotron_experts(reader *r, lh_error *err);
/* Sets the features in which the config's model family differs from Llama, such
 * as norms and experts; nothing for families with Llama's layers. */
lh_status lhi_config_read_variant(reader *r, lh_error *err);
/* Fails for a config.json with an unknown model_type `type`: with a model map
 * for the job to edit, or with the reason why no map can describe the model. */
lh_status lhi_config_fail_family(const reader *r, const lhi_node *node,
                                 const char *type, lh_error *err);

#endif
