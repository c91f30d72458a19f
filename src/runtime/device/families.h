/* SPDX-License-Identifier: Apache-2.0 */
/* Names, shapes and order of the tensors of the supported model families, as in
 * files for the transformers library. */
#ifndef LHI_RUNTIME_DEVICE_FAMILIES_H
#define LHI_RUNTIME_DEVICE_FAMILIES_H

#include "format/job/family.h"
#include "runtime/device/tensor_slices.h"

#include <stddef.h>

/* A tensor's role on the device. */
typedef enum lhi_role {
    LHI_ROLE_CONTINUED, /* contiguous with, and part of, the one before */
    LHI_ROLE_EMBEDDING,
    LHI_ROLE_POSITIONS,
    LHI_ROLE_NORM1, /* weight; biases follow */
    LHI_ROLE_QKV,
    LHI_ROLE_QKV_BIAS,
    LHI_ROLE_Q_NORM, /* per head, or of the queries' latent */
    LHI_ROLE_K_NORM, /* per head, or of the keys' and values' latent */
    LHI_ROLE_Q_DOWN, /* latents: see lhi_cpu_weights in cpu.h */
    LHI_ROLE_Q_UP,
    LHI_ROLE_KV_DOWN,
    LHI_ROLE_KV_UP,
    LHI_ROLE_OUT,
    LHI_ROLE_OUT_BIAS,
    LHI_ROLE_NORM2,
    LHI_ROLE_GATE_UP, /* only up for MLPs without a gate */
    LHI_ROLE_GATE_UP_BIAS,
    LHI_ROLE_DOWN,
    LHI_ROLE_DOWN_BIAS,
    LHI_ROLE_ROUTER,
    LHI_ROLE_ROUTER_BIAS, /* bias for load balancing */
    LHI_ROLE_SHARED,      /* the shared experts' gate, up and down */
    LHI_ROLE_SHARED_GATE,
    LHI_ROLE_EXPERTS, /* an expert's gate, up, down; next experts follow */
    LHI_ROLE_NORM,
    LHI_ROLE_HEAD,
    /* Multi-token prediction modules, besides their layers' tensors: */
    /* shared by all modules; if the head is not tied */
    LHI_ROLE_EMBEDDING_COPY,
    LHI_ROLE_ENORM,
    LHI_ROLE_HNORM,
    LHI_ROLE_MTP_JOIN, /* columns for the embedding, then for the state */
    LHI_ROLE_MODULE_NORM,
} lhi_role;

/* A model tensor: name, shape, role and cut. */
typedef struct lhi_model_tensor {
    char name[96];
    uint32_t rows, columns; /* columns 0: a vector */
    size_t n;
    lhi_role role;
    bool is_bias;      /* initial value 0 */
    uint32_t expert;   /* UINT32_MAX: none */
    uint32_t layer;    /* UINT32_MAX: none; model->layers + k: module k */
    bool is_tied_copy; /* tied to the embedding and stored only as that */
    /* How tensor parallelism cuts the tensor: along a side as wide as heads,
     * MLP or vocabulary. */
    lhi_cut cut;
    uint32_t parts;         /* matrices along that side */
    uint32_t max_slices;    /* maximum slices; 0: unlimited */
    uint32_t n_common_rows; /* uncut rows, of keys and values */
} lhi_model_tensor;

/* Counts the tensors before the layers. The model's order has next the tensors
 * in layers, those after the layers, and those of the multi-token prediction
 * modules; a tied head and the modules' copy of the embedding are their own
 * tensors. */
uint32_t lhi_count_front_tensors(const lh_model *model);
/* Counts model layer `layer`'s parameter tensors. */
uint32_t lhi_count_layer_tensors(const lh_model *model, uint32_t layer);
/* Counts a model's parameter tensors. */
uint32_t lhi_count_model_tensors(const lh_model *model);
/* Returns the model-wide index of a layer's first tensor; for `layer` =
 * model->layers, the norm's before the head. */
uint32_t lhi_layer_tensor_index(const lh_model *model, uint32_t layer);
/* Returns the index of a module's first tensor, its layer's tensors included.
 */
uint32_t lhi_module_tensor_index(const lh_model *model, uint32_t module);
/* Describes the model's tensor `index` in *out: name, sizes, role (kind of
 * weight), layer, expert, and how tensor parallelism slices it. */
void lhi_describe_model_tensor(const lh_model *model, uint32_t index,
                               lhi_model_tensor *out);
/* Returns the slice of a tensor that rank `mine` of `ranks` has. A tensor with
 * at most n slices is shared: `ranks` / n ranks then have the same slice. */
lhi_slice lhi_model_slice(const lhi_model_tensor *tensor, uint32_t ranks,
                          uint32_t mine);
/* Counts the parameters in the model's tensors `first` to `first + n - 1`, as
 * a double because integers could overflow. */
double lhi_count_values(const lh_model *model, uint32_t first, uint32_t n);

#endif
