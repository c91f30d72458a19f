/* SPDX-License-Identifier: Apache-2.0 */
/* What the tensors of the models that the cpu device trains are called, shaped
 * and ordered in the files that the transformers library reads. */
#ifndef LHI_FAMILIES_H
#define LHI_FAMILIES_H

#include "dev/slices.h"
#include "spec/family.h"

#include <stddef.h>

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
    /* Of modules that predict further tokens, beside those of their layer: */
    LHI_ROLE_EMBEDDING_COPY, /* of all of them, where the head is none */
    LHI_ROLE_ENORM,
    LHI_ROLE_HNORM,
    LHI_ROLE_JOIN, /* columns for the embedding, then those for the state */
    LHI_ROLE_MODULE_NORM,
} lhi_role;

typedef struct lhi_model_tensor {
    char name[96];
    uint32_t rows, columns; /* columns 0: a vector */
    size_t n;
    lhi_role role;
    bool is_bias; /* starts at 0 */
    uint32_t expert; /* UINT32_MAX: of none */
    uint32_t layer;  /* likewise; model->layers + k: of module k */
    bool copies;     /* the same tensor as the embedding, kept as that alone */
    /* How tensor parallelism cuts it: a side that is as wide as heads, MLP or
     * vocabulary. */
    lhi_cut cut;
    uint32_t parts; /* of that side */
    uint32_t most;  /* slices that there can be; 0: any number */
    uint32_t common; /* rows of keys and values that are not cut */
} lhi_model_tensor;

/* Tensors in the model's order: those before the layers, of each layer, behind
 * them, of modules. A tied head is counted, and the embedding's copy for
 * modules. */
uint32_t lhi_n_front_tensors(const lh_model *model);
uint32_t lhi_n_layer_tensors(const lh_model *model, uint32_t layer);
uint32_t lhi_n_model_tensors(const lh_model *model);
/* The index of a layer's first one; `layer` = model->layers: of the norm before
 * the head. */
uint32_t lhi_layer_tensor_index(const lh_model *model, uint32_t layer);
/* Likewise of a module, its layer's among them. */
uint32_t lhi_module_tensor_index(const lh_model *model, uint32_t module);
void lhi_model_tensor_of(const lh_model *model, uint32_t index,
                         lhi_model_tensor *out);
/* What rank `mine` of `ranks` that share the model has of it; `most`, if there
 * are any, and `ranks` divide each other. */
lhi_slice lhi_model_slice(const lhi_model_tensor *tensor, uint32_t ranks,
                          uint32_t mine);
/* The values of tensors `first` to `first + n - 1`, without overflow. */
double lhi_count_values(const lh_model *model, uint32_t first, uint32_t n);

#endif
