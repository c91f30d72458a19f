/* SPDX-License-Identifier: Apache-2.0 */
/* Derives cells of PipeMesh's table IV from the published settings. */
#ifndef PIPEMESH_CELLS_H
#define PIPEMESH_CELLS_H

#include "pipemesh_models.h"

#include <longhaul/experimental/elastic.h>

#define MS 1e6 /* ns */
#define GIB 1073741824.0
#define HIDDEN 8192.0
#define TENSOR 8.0
/* Fraction of a node's link bandwidth that collectives reach, one value for the
 * whole page. Each row of table IV alone would need 0.680 to 0.701. */
#define LINK_EFFICIENCY 0.68

/* Derived columns of table IV: critical DP time; activations, gradients and
 * parameters in GiB; throughput. */
typedef struct pipemesh_columns {
    double dp_ms, a, g, p, tflops;
} pipemesh_columns;

/* Returns the microbatches per pipeline. */
uint32_t pipemesh_microbatches(const pipemesh_model *m);
/* Returns the parameters of a device. */
double pipemesh_params(const pipemesh_model *m);
/* Returns the bytes of one sbh on a device. */
double pipemesh_sbh(const pipemesh_model *m);
/* Returns a layer's activations in sbh, nothing recomputed but attention. */
double pipemesh_whole_layer(const pipemesh_model *m);
/* Returns a layer's forward FLOPs for one microbatch, over all devices. */
double pipemesh_layer_flops(const pipemesh_model *m);
/* Returns the duration of a whole chunk's gather or scatter: 2 bytes per
 * parameter over the device's eighth of its node's link. */
double pipemesh_chunk_comm_ns(const pipemesh_model *m, uint32_t M);
/* Returns the duration of an activation transfer between stages: every device
 * sends its part. */
double pipemesh_hop_ns(const pipemesh_model *m);
/* Builds a case from a row's published durations. */
lh_elastic_case pipemesh_case_of(const pipemesh_model *m,
                                 const pipemesh_published *row);
/* Plans a queue; exits with a message on failure. Release with
 * lh_elastic_plan_free(). */
lh_elastic_plan *pipemesh_plan_for(const lh_elastic_case *g, uint32_t q);
/* Returns the sum of a row's five published time columns, in ms. */
double pipemesh_iteration_ms(const pipemesh_published *row);
/* Returns a row's bubble, from its published compute times. */
double pipemesh_bubble_ms(const pipemesh_model *m,
                          const pipemesh_published *row);
/* Derives the cells of a model's row: 0 PipeMesh, 1 Megatron, 2 MegaScale, 3
 * Fold3D. */
pipemesh_columns pipemesh_derive(const pipemesh_model *m, uint32_t system);

#endif
