/* SPDX-License-Identifier: Apache-2.0 */
/* FLOPs of layers and of the head. */
#ifndef LHI_MODEL_FLOP_COUNT_H
#define LHI_MODEL_FLOP_COUNT_H

#include <longhaul/experimental/cost.h>

/* Computes one layer's forward FLOPs for one sequence, all GPUs together: 2 per
 * parameter and token in matrix products, plus both products of causal
 * attention with 4 * (visible tokens) * heads * head_dim per token [Nar
 * appendix, with causal masking]. A backward pass needs twice as many: `linear`
 * each for D and W, and D also all of attention's. */
void lhi_cost_layer_flops(const lh_model *model, uint32_t layer,
                          uint32_t sequence, double *linear, double *attention);

/* Returns the forward FLOPs of the product with the vocabulary matrix for one
 * sequence. */
double lhi_cost_head_flops(const lh_model *model, uint32_t sequence);

/* Returns attention's fraction of the layers' forward FLOPs if sequences are
 * split into slices, for lh_pipeline_desc.slice_attention; otherwise 0. */
double lhi_find_slice_attention(const lh_job *job);

#endif
