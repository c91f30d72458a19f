/* SPDX-License-Identifier: Apache-2.0 */
/* Model configuration parser; layer and parameter counts. */
#ifndef LHI_FORMAT_JOB_MODEL_SIZE_H
#define LHI_FORMAT_JOB_MODEL_SIZE_H

#include <longhaul/experimental/model.h>

/* Parses a Hugging Face config.json of the Llama, Mistral, Mixtral, Qwen2,
 * Qwen3, Qwen2-MoE, Qwen3-MoE, DeepSeek-V2, DeepSeek-V3, gpt-oss, GPT-2,
 * Falcon (7B), Phi-3, OLMo 2, Nemotron, Command A, Gemma 3, MiniMax-M2, Llama
 * 4, Grok-1, DeepSeek-V3.2 or Qwen3-Next family. Release with lh_model_free().
 * LH_EINPUT: `err` gives line and key; LH_EUNSUPPORTED: another family. */
lh_status lhi_model_parse(const char *text, size_t len, const char *name,
                          lh_model **out, lh_error *err);

/* A layer's part before its MLP. */
typedef enum lhi_mixer {
    LHI_MIXER_NONE, /* the layer is only an MLP */
    LHI_MIXER_ATTENTION,
    LHI_MIXER_LINEAR, /* gated delta network */
    LHI_MIXER_MAMBA,
} lhi_mixer;

/* Returns a layer's mixer: attention, gated delta network, Mamba-2 or none.
 * `layer` may be a layer of multi-token prediction, as numbered by
 * lhi_model_mtp_layers(). */
lhi_mixer lhi_model_layer_mixer(const lh_model *model, uint32_t layer);
/* Returns true if the layer has an MLP or experts. */
bool lhi_model_layer_has_mlp(const lh_model *model, uint32_t layer);
/* Returns the layer count in each multi-token prediction module. *first: number
 * of the first one, as argument of the functions that describe one layer; all
 * modules have the same layers. */
uint32_t lhi_model_mtp_layers(const lh_model *model, uint32_t *first);
/* Returns a layer's kind, below LHI_LAYER_KINDS: by its mixer, with or without
 * a window, and by its MLP or experts. Same-kind layers have equal costs and
 * parameter counts. */
uint32_t lhi_find_layer_kind(const lh_model *model, uint32_t layer);
enum { LHI_LAYER_KINDS = 3 * (LHI_MIXER_MAMBA + 2) };

/* Returns the length of the run of same-kind layers that begins with `layer`,
 * at most n_layers (at least 1). Callers compute each run once. */
uint32_t lhi_count_equal_layers(const lh_model *model, uint32_t layer,
                                uint32_t n_layers);

/* Returns the width of the routed experts' input. */
uint32_t lhi_model_expert_input(const lh_model *model);

/* Returns the number of MoE layers among first..first+n_layers-1. */
uint32_t lhi_model_moe_layers(const lh_model *model, uint32_t first,
                              uint32_t n_layers);

/* Returns one layer's parameter counts by component: attention, norms, MLP,
 * router and experts. */
lh_layer_params lhi_model_layer_params(const lh_model *model, uint32_t layer);

/* Returns the parameter counts of the layers first..first+n_layers-1 by
 * component: attention, norms, MLP, router and experts. */
lh_layer_params lhi_model_range_params(const lh_model *model, uint32_t first,
                                       uint32_t n_layers);

/* Returns the parameters of the token (and learned position) embeddings. */
uint64_t lhi_model_embedding_params(const lh_model *model);

/* Returns the parameters of the final norm and the vocabulary matrix. A tied
 * matrix counts too, because a head on another device holds its own copy. */
uint64_t lhi_model_head_params(const lh_model *model);

/* Returns the parameter counts of one multi-token prediction module's layers.
 */
lh_layer_params lhi_model_module_params(const lh_model *model);
/* Returns the parameters of the multi-token prediction modules, without the
 * shared embedding and head. By DeepSeek-V3 (arXiv:2412.19437) equation 21,
 * a module normalises the hidden state and the next token's embedding and
 * combines them with a 2h x h matrix. The layers of
 * lhi_model_mtp_layers() and a norm follow. */
uint64_t lhi_model_mtp_params(const lh_model *model);

#endif
