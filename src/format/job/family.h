/* SPDX-License-Identifier: Apache-2.0 */
/* The model families that the cpu device can train, used to reject other
 * models, also when planning for that device. */
#ifndef LHI_FORMAT_JOB_FAMILY_H
#define LHI_FORMAT_JOB_FAMILY_H

#include <longhaul/experimental/model.h>

/* The model families. */
typedef enum lhi_family {
    LHI_FAMILY_LLAMA,  /* RMS norms, rotary positions, SwiGLU */
    LHI_FAMILY_QWEN2,  /* Llama with query, key and value biases */
    LHI_FAMILY_GPT2,   /* layer norms, learned positions, GeLU, biases; weights
                        * stored as [in][out] */
    LHI_FAMILY_QWEN3,  /* Llama with query and key norms */
    LHI_FAMILY_FALCON, /* layer norms, rotary positions, one key-value head,
                        * GeLU, no biases; parallel attention and MLP */
    LHI_FAMILY_DEEPSEEK,  /* Llama, optionally with GLM-4.5's experts, with
                           * latent attention (DeepSeek-V3) */
    LHI_FAMILY_MIXTRAL,   /* Llama; every MLP consists of experts, of which a
                           * token uses some, weighted by a router */
    LHI_FAMILY_QWEN2_MOE, /* Qwen2; some or all MLPs have such experts and a
                           * gated shared one */
    LHI_FAMILY_QWEN3_MOE, /* Qwen3; some or all MLPs have such experts */
    /* Llama, Qwen2 or Qwen3; the first MLPs are dense, the others DeepSeek-V3's
     * experts: sigmoid router, groups, shared experts */
    LHI_FAMILY_GLM4_MOE,
} lhi_family;

/* Determines a model's family (Llama, Qwen, DeepSeek, ...). LH_EUNSUPPORTED: no
 * family matches, or the cpu device lacks a component, named in `err`.
 * `sequence`: tokens per attention sequence. */
lh_status lhi_family_find(const lh_model *model, uint32_t sequence,
                          lhi_family *out, lh_error *err);
/* Checks that training on the processor (the cpu device) supports the model's
 * family and sizes; LH_EUNSUPPORTED otherwise. `sequence`: tokens per attention
 * sequence. */
lh_status lhi_family_check(const lh_model *model, uint32_t sequence,
                           lh_error *err);
/* Returns the family of a model that lhi_family_find() accepts. */
lhi_family lhi_family_get(const lh_model *model);
/* Returns the first layer with experts; model->layers if there is none. */
uint32_t lhi_first_moe_layer(const lh_model *model);

/* Checks whether a layer has experts. Multi-token prediction modules
 * (lh_model's mtp_layers) have a layer like the model's last: layer
 * model->layers + k belongs to module k. */
static inline bool lhi_layer_is_moe(const lh_model *model, uint32_t layer)
{
    return lh_model_layer_is_moe(
        model, layer < model->layers ? layer : model->layers - 1);
}

/* Checks whether the chunk with the head also needs the embedding: as the
 * head's tied matrix, or for multi-token prediction modules, which share
 * embedding and head with the model (arXiv:2412.19437, section 2.2). */
static inline bool lhi_needs_second_embedding(const lh_model *model)
{
    return model->tied_embeddings || model->mtp_layers > 0;
}
/* Checks whether the embedding there is a separate tensor. */
static inline bool lhi_has_separate_embedding_copy(const lh_model *model)
{
    return model->mtp_layers > 0 && !model->tied_embeddings;
}

#endif
