/* SPDX-License-Identifier: Apache-2.0 */
/* Work of programs that run a model through PyTorch, beyond that of fused
 * kernels: operations that run one by one, and copies around collectives.
 * docs/theory/cost-model.md has the bytes as a table with their sources. */
#ifndef LHI_MODEL_EAGER_H
#define LHI_MODEL_EAGER_H

#include "model/work.h"

/* Adds the memory traffic of a layer whose element-wise operations run one by
 * one, beyond that of fused kernels. */
void lhi_eager_add_layer(const lhi_shape *shape, uint32_t layer,
                         lhi_pass_work *out);

/* Adds the extra work of a repeated forward pass of `layer` (recomputation)
 * whose element-wise operations run one by one: rotation and activation. */
void lhi_eager_add_forward(const lhi_shape *shape, uint32_t layer, lhi_work *f);

/* Returns the value count per microbatch that a layer's activation functions
 * produce on one GPU. */
double lhi_eager_count_activations(const lhi_shape *shape, uint32_t layer);

/* Adds the copies into and out of the buffers of a layer's collectives: gathers
 * of its parameters `params`, and sequence-parallel exchanges. */
void lhi_eager_add_copies(const lhi_shape *shape, const lhi_params *params,
                          lhi_pass_work *out);

/* Adds the cross entropy of a vocabulary whose operations run one by one. */
void lhi_eager_add_loss(const lhi_shape *shape, lhi_pass_work *out);

/* Returns the largest byte count per logit that this cross entropy allocates at
 * once. */
double lhi_eager_count_loss_bytes(const lhi_shape *shape);

/* Returns the bytes per token of a layer that torchtitan's selective
 * recomputation retains. */
double lhi_eager_count_retained_bytes(const lhi_shape *shape, uint32_t layer);

#endif
