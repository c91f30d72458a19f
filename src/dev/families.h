/* SPDX-License-Identifier: Apache-2.0 */
/* The families of models that the cpu device trains, and what their tensors
 * are called, shaped and ordered in the files that the transformers library
 * reads. */
#ifndef LHI_FAMILIES_H
#define LHI_FAMILIES_H

#include "dev/slices.h"

#include <longhaul/model.h>

#include <stddef.h>

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
/* Of a model that lhi_family_of() takes. */
lhi_family lhi_family_known(const lh_model *model);
/* model->layers: there is none. */
uint32_t lhi_first_moe_layer(const lh_model *model);

/* What a tensor is to the device. */
typedef enum lhi_role {
    LHI_ROLE_NEXT, /* right behind the one before, and one with it */
    LHI_ROLE_EMBEDDING,
    LHI_ROLE_POSITIONS,
    LHI_ROLE_NORM1, /* weight; biases follow */
    LHI_ROLE_QKV,
    LHI_ROLE_QKV_BIAS,
    LHI_ROLE_Q_NORM, /* of each head, or of the latent of queries */
    LHI_ROLE_K_NORM, /* likewise; of the latent of keys and values */
    LHI_ROLE_Q_DOWN, /* latents: lhi_cpu_weights of cpu.h */
    LHI_ROLE_Q_UP,
    LHI_ROLE_KV_DOWN,
    LHI_ROLE_KV_UP,
    LHI_ROLE_OUT,
    LHI_ROLE_OUT_BIAS,
    LHI_ROLE_NORM2,
    LHI_ROLE_GATE_UP, /* up alone where MLPs have no gate */
    LHI_ROLE_GATE_UP_BIAS,
    LHI_ROLE_DOWN,
    LHI_ROLE_DOWN_BIAS,
    LHI_ROLE_ROUTER,
    LHI_ROLE_ROUTER_BIAS, /* what balances experts that are chosen */
    LHI_ROLE_SHARED,      /* gate, up and down of the shared experts */
    LHI_ROLE_SHARED_GATE,
    LHI_ROLE_EXPERTS, /* one's gate, up and down; those of the next follow */
    LHI_ROLE_NORM,
    LHI_ROLE_HEAD,
} lhi_role;

typedef struct lhi_model_tensor {
    char name[96];
    uint32_t rows, columns; /* columns 0: a vector */
    size_t n;
    lhi_role role;
    bool is_bias; /* starts at 0 */
    uint32_t expert; /* UINT32_MAX: of none */
    /* How tensor parallelism cuts it: a side that is as wide as heads, MLP or
     * vocabulary. */
    lhi_cut cut;
    uint32_t parts; /* of that side */
} lhi_model_tensor;

/* Tensors in the model's order: those before the layers, of each layer, behind
 * them. A tied head is counted. */
uint32_t lhi_n_front_tensors(const lh_model *model);
uint32_t lhi_n_layer_tensors(const lh_model *model, uint32_t layer);
uint32_t lhi_n_model_tensors(const lh_model *model);
/* The index of a layer's first one; `layer` = model->layers: of the norm before
 * the head. */
uint32_t lhi_layer_tensor_index(const lh_model *model, uint32_t layer);
void lhi_model_tensor_of(const lh_model *model, uint32_t index,
                         lhi_model_tensor *out);
/* What rank `mine` of `ranks` that share the model has of it. */
lhi_slice lhi_model_slice(const lhi_model_tensor *tensor, uint32_t ranks,
                          uint32_t mine);
/* The values of tensors `first` to `first + n - 1`, without overflow. */
double lhi_count_values(const lh_model *model, uint32_t first, uint32_t n);

#endif
