/* SPDX-License-Identifier: Apache-2.0 */
/* The families of models that the cpu device trains: what it refuses, and what
 * a plan for it must not have. */
#ifndef LHI_FAMILY_H
#define LHI_FAMILY_H

#include <longhaul/model.h>

typedef enum lhi_family {
    LHI_FAMILY_LLAMA, /* RMS norms, rotary positions, SwiGLU */
    LHI_FAMILY_QWEN2, /* the same, queries, keys and values with biases */
    LHI_FAMILY_GPT2,  /* layer norms, learned positions, GeLU, biases; products
                         are kept as [in][out] */
    LHI_FAMILY_QWEN3, /* as Llama, a norm for each query and key */
    LHI_FAMILY_FALCON, /* layer norms, rotary positions, one key and value head,
                          GeLU, no biases; attention and MLP beside each other */
    LHI_FAMILY_DEEPSEEK, /* as Llama, or with the experts of GLM-4.5, latent
                            attention (DeepSeek-V3) */
    LHI_FAMILY_MIXTRAL, /* as Llama, every MLP several experts of which a token
                           passes some, weighed by a router */
    LHI_FAMILY_QWEN2_MOE, /* as Qwen2, some or all MLPs such experts and a shared
                             one with a gate */
    LHI_FAMILY_QWEN3_MOE, /* as Qwen3, some or all MLPs such experts */
    LHI_FAMILY_GLM4_MOE, /* as Llama, Qwen2 or Qwen3, the first MLPs dense, the others
                            experts as DeepSeek-V3's: a router of sigmoids,
                            groups, shared experts */
} lhi_family;

/* LH_EUNSUPPORTED: of none of them, or with what the device does not know;
 * `err` says what. `sequence`: tokens that attention is to see. */
lh_status lhi_family_of(const lh_model *model, uint32_t sequence,
                        lhi_family *out, lh_error *err);
/* And whether its sizes are ones that the device computes. */
lh_status lhi_family_check(const lh_model *model, uint32_t sequence,
                           lh_error *err);
/* Of a model that lhi_family_of() takes. */
lhi_family lhi_family_known(const lh_model *model);
/* model->layers: there is none. */
uint32_t lhi_first_moe_layer(const lh_model *model);

/* Modules that predict further tokens (lh_model's mtp_layers) have a layer like
 * the model's last: layer model->layers + k is that of module k. */
static inline bool lhi_layer_is_moe(const lh_model *model, uint32_t layer)
{
    return lh_model_layer_is_moe(
        model, layer < model->layers ? layer : model->layers - 1);
}

/* Whether the chunk with the head has the embedding, too: as the head, or for
 * modules that predict further tokens, which have the embedding and the head in
 * common with the model (arXiv:2412.19437, section 2.2). */
static inline bool lhi_embeds_twice(const lh_model *model)
{
    return model->tied_embeddings || model->mtp_layers > 0;
}
/* Whether that is a tensor of its own there. */
static inline bool lhi_copies_embedding(const lh_model *model)
{
    return model->mtp_layers > 0 && !model->tied_embeddings;
}

#endif
