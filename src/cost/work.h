/* SPDX-License-Identifier: Apache-2.0 */
/* The work of passes: floating-point operations, bytes through memory, kernels.
 * docs/theory/cost-model.md has the same as tables. */
#ifndef LHI_WORK_H
#define LHI_WORK_H

#include "cost/shape.h"

typedef struct lhi_work {
    double flops;         /* of matrix products */
    double fp8_flops;     /* of these, in 8 bits */
    double grouped_flops; /* of flops: of many matrices at once, experts' */
    double bytes;         /* to and from memory */
    double kernels;
    /* Communication, in units that prices.c prices: */
    double tensor_bytes; /* through all-gathers (or half all-reduces) */
    double tensor_calls; /* how many of these */
    double expert_bytes; /* through all-to-alls */
    double expert_calls;
    double sharing_bytes; /* gathered by the GPUs that share an expert */
    double sharing_calls;
    double context_bytes; /* around the ring of context parallelism */
    double context_calls; /* steps of it */
    double core_flops;    /* of flops: attention's, behind which they hide */
} lhi_work;

typedef struct lhi_passes {
    lhi_work f, d, w;
} lhi_passes;

/* The forward product of a layer's linear map: m rows of k by `matrices` of
 * k x n (experts; 1 else), which these rows share. In FP8 with the pass over
 * its input that makes it so. */
void lhi_work_linear(const lhi_shape *shape, double m, double k, double n,
                     double matrices, lhi_work *f);

/* What it takes to add the biases of experts' results, apart from the products:
 * F, and D without it; nothing where shape->adds_biases is false. */
void lhi_work_biases(const lhi_shape *shape, lhi_work *f, lhi_work *d);

void lhi_work_add(lhi_work *to, const lhi_work *what, double times);

/* One layer; what recomputation repeats is in d. */
void lhi_work_layer(const lhi_shape *shape, uint32_t layer, lhi_passes *out);
void lhi_work_embedding(const lhi_shape *shape, lhi_passes *out);
/* Norm, vocabulary matrix, loss, which multi-token prediction modules share:
 * once for the model and once for each of them. */
void lhi_work_head(const lhi_shape *shape, lhi_passes *out);
/* Those modules. */
void lhi_work_mtp(const lhi_shape *shape, lhi_passes *out);

/* Norms of a layer; and, with tensor parallelism, how often what its products
 * make is summed. */
double lhi_norms_of(const lh_model *model);

/* Tokens that each token of a layer attends to on average. */
double lhi_visible(const lh_model *model, uint32_t layer, double sequence);

typedef struct lhi_held {
    double activation;   /* bytes from F to D */
    double weight_input; /* from D to W */
    double passing;      /* of D, beyond these */
} lhi_held;

void lhi_held_layer(const lhi_shape *shape, uint32_t layer, lhi_held *out);
/* Of a layer's activations all but its input. */
double lhi_held_within(const lhi_shape *shape, uint32_t layer);
void lhi_held_embedding(const lhi_shape *shape, lhi_held *out);
void lhi_held_head(const lhi_shape *shape, lhi_held *out);
void lhi_held_mtp(const lhi_shape *shape, lhi_held *out);

/* Parameters on one GPU. `experts` is part of `total`. */
typedef struct lhi_params {
    double total, experts;
} lhi_params;

/* Whether multi-token prediction modules are in the slice. */
bool lhi_slice_has_mtp(const lh_model *model, const lh_cost_slice *slice);
/* Whether it has something behind its layers: head, such modules, or both. */
bool lhi_slice_has_end(const lh_cost_slice *slice);

void lhi_params_slice(const lhi_shape *shape, const lh_cost_slice *slice,
                      lhi_params *out);

#endif
