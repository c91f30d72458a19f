/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the work of passes, shared by work.c, product_work.c,
 * attention_work.c and eager.c. */
#ifndef LHI_MODEL_WORK_INTERNAL_H
#define LHI_MODEL_WORK_INTERNAL_H

#include "model/work.h"

/* Adds `bytes` of memory traffic and `kernels` element-wise kernel launches to
 * the work. */
static inline void lhi_work_add_pointwise(lhi_work *work, double bytes,
                                          double kernels)
{
    work->bytes += bytes;
    work->kernels += kernels;
}

/* --- product_work.c ------------------------------------------------------ */

/* Adds the F, D and W products of a linear map: `matrices` k x n weights
 * (experts; otherwise 1) that share m rows. */
void lhi_work_add_linear(const lhi_shape *shape, lhi_pass_work *out, double m,
                         double k, double n, double matrices);

/* Adds the F, D and W products of a linear map inside a layer, in FP8 if the
 * job uses it there. The map has `matrices` k x n weights for m rows in all. */
void lhi_work_add_layer_linear(const lhi_shape *shape, lhi_pass_work *out,
                               double m, double k, double n, double matrices);

/* Adds the quantisation of `elements` values from 16 bits to FP8 to a pass. It
 * makes two copies, along rows and along columns: products require a contiguous
 * summation dimension, and the blocks that share a scale follow it. A scale of
 * a whole tensor needs its own pass for the maximum. */
void lhi_work_add_quantisation(const lhi_shape *shape, double elements,
                               lhi_work *work);

/* --- attention_work.c ---------------------------------------------------- */

/* Adds the work of `layer`'s attention block to the F, D and W passes: FLOPs,
 * memory traffic, kernels and communication. */
void lhi_work_add_attention_block(const lhi_shape *shape, uint32_t layer,
                                  lhi_pass_work *out);

/* Adds the work of flash attention in `layer` to F and D: two products forward,
 * five backward, since D recomputes the scores [Dao section 3.1]. Under context
 * parallelism each ring step is its own kernel, which reads the queries and
 * writes a partial result. Counts the ring's last rank, which has most traffic:
 * all queries in each step, all its own keys and values, and half the
 * others'. */
void lhi_work_add_flash_attention(const lhi_shape *shape, uint32_t layer,
                                  lhi_work *f, lhi_work *d);

/* Adds the work of unfused attention, with scores in memory, to F and D:
 * product, masked softmax, dropout, product. Copies that merge and split heads
 * are separate kernels, as biases are. */
void lhi_work_add_unfused_attention(const lhi_shape *shape, lhi_work *f,
                                    lhi_work *d);

/* Adds ring attention: c - 1 steps of F forward the keys and values of one
 * sequence shard during a step's attention, and the last step forwards nothing
 * (Liu et al., arXiv:2310.01889). In D the gradients follow one step behind:
 * the first step forwards only keys and values, the last one only gradients. */
void lhi_work_add_ring_attention(const lhi_shape *shape, lhi_pass_work *out);

/* Adds the chunkwise gated delta rule (Yang et al., arXiv:2412.06464, section
 * 3.3, after arXiv:2406.06484, equations 8 to 11) with chunks of C tokens and
 * heads with keys of k and values of v elements. Multiply-adds per token and
 * head of F: C k for K K', C^2 / 3 for the triangular matrix's inverse, C k and
 * C v for its products with keys and values, C k and C v for the outputs within
 * the chunk, and 3 k v for those from the state and its update. D has two
 * products for each of F, and recomputes the products with the inverse and the
 * states, which F does not keep. */
void lhi_work_add_delta_rule(const lhi_shape *shape, lhi_work *f, lhi_work *d);

/* Adds the work of the projections to keys and values to F, D and W. Includes
 * the queries of all heads if these come directly from the hidden state. */
void lhi_work_add_up_projections(const lhi_shape *shape, lhi_pass_work *out);

/* Adds the memory traffic and kernels of the rotary position embedding of
 * queries and keys to one pass. */
void lhi_work_add_rotation(const lhi_shape *shape, lhi_work *work);

#endif
