/* SPDX-License-Identifier: Apache-2.0 */
/* The published settings and rows of PipeMesh's table IV. */
#ifndef PIPEMESH_MODELS_H
#define PIPEMESH_MODELS_H

#include <longhaul/experimental/cost.h>

#include <stdint.h>

/* Published row of table IV: times in ms, memory in GiB. */
typedef struct pipemesh_published {
    const char *system;
    uint32_t M;
    double fwd, bwd, bubble, dp, pp; /* ms */
    double gpu, a, g, p;             /* GiB */
    double tflops, mfu;
} pipemesh_published;

/* A model with its cluster, layout and published rows. */
typedef struct pipemesh_model {
    const char *name;
    lh_family family;
    uint32_t layers, sequence, batch, P, D, devices, q;
    double gbps, peak_tflops;
    double stored;       /* sbh per layer under PipeMesh's recomputation */
    const char *dropped; /* recomputed tensors */
    pipemesh_published rows[4]; /* PipeMesh, Megatron, MegaScale, Fold3D */
} pipemesh_model;

extern const pipemesh_model pipemesh_models[4];

/* Throughput over Megatron's, by the paper's text: one of a cluster's models.
 */
typedef struct pipemesh_gain {
    const char *subject;
    double published; /* ratio */
} pipemesh_gain;

enum { PIPEMESH_GAINS = 3 };

extern const pipemesh_gain pipemesh_gains[PIPEMESH_GAINS];

/* Returns the computed ratio of gain `k`, from the ratios of all models. */
double pipemesh_find_gain(int k, const double ratios[4]);

#endif
