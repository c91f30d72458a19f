/* SPDX-License-Identifier: Apache-2.0 */
/* What each GPU of a group sees of a model: the sizes that the formulas for
 * work and memory are written in.
 *
 * The cost model is pure formulas. In: a job, a layout, a slice of the model.
 * Out: times, bytes and memory (longhaul/cost.h).
 *
 *   shape.h       sizes per GPU, and the constants of the model
 *   work.h        operations and bytes of passes: work.c; what they keep in
 *                 memory: held.c; both, operation by operation: ops.h
 *   prices.h      prices: path_prices.c of what is sent, prices.c of all work
 *   slice_sums.h  a slice's parts and their sums
 *   data_passes.h when data parallelism communicates, and what waits for it
 *   chunk.c       a slice becomes lh_cost
 *   measured.h    what a profile measured in place of that
 *   cost_links.h  paths between GPUs: cost_links.c; what their settings do to
 *                 them: cost_network.c, by the rates of transport.c
 *   fold.h        which GPUs share experts and which hold the same ones
 *   groups.h      which GPUs take part in any other collective
 *   collective.c  collectives over one path; all_to_all.h over several
 *   sharding.h    data parallelism: who shares what, and what it sends
 *   count.c       operations that a model needs, whatever runs it */
#ifndef LHI_SHAPE_H
#define LHI_SHAPE_H

#include <longhaul/cost.h>

typedef struct lhi_shape {
    const lh_model *model;
    uint32_t tensor, context, expert, expert_tensor;
    /* Experts are spread otherwise than the rest, so that tokens go to them:
     * each GPU sends 1/tensor of what its tensor-parallel group has. */
    bool folded;
    /* The router's weights are applied to the experts' results, as DeepSpeed
     * does, which keeps these for the weights' gradients; else between the
     * experts' products (Megatron Core, weighted_bias_swiglu_impl()). */
    bool weighs_results;
    /* The biases of experts' results are added expert by expert, as Megatron
     * Core does (TEGroupedMLP._apply_bias()) where experts are not fused. */
    bool adds_biases;
    double dispatched;  /* copies of a token, of `tokens`, that a GPU sends */
    double expert_rows; /* and that its experts work on */
    double tokens;      /* per GPU and microbatch */
    double norm_share;  /* of those, tokens that norms, residuals see:
                           1/tensor with sequence parallelism */
    double sequence;    /* tokens that attention may look at */
    double element;     /* bytes */
    bool fp8;           /* products of layers are in 8 bits */
    double factor;      /* bytes of an element of what these multiply */
    double dispatch;    /* bytes of one on its way to an expert */
    double gradient;    /* bytes of a gradient element in memory */
    double heads, kv_heads; /* per GPU */
    double qk_dim, v_dim;   /* of one head */
    double vocab;           /* per GPU */
    double added_words;     /* by the framework, of all GPUs */
    double expert_divisor;  /* GPUs over which a layer's experts are divided */
    bool unfused, dropout;
    lh_recompute recompute;
    uint32_t modules; /* with LH_RECOMPUTE_MODULES: 1 << lh_module, added up */
} lhi_shape;

/* Whether `module` is one of those that are named to be made again. */
bool lhi_recomputes(const lhi_shape *shape, lh_module module);

/* LH_EINVAL, LH_EUNSUPPORTED as lh_cost_chunk(). */
lh_status lhi_shape_make(const lh_job *job, const lh_layout *layout,
                         const lh_cost_options *options, lhi_shape *out,
                         lh_error *err);

/* The constants that hold for a job. */
const lh_cost_constants *lhi_constants_of(const lh_job *job);
/* Whether the job's profile has measured all that follows the pipeline, the
 * optimizer and tied embeddings included. */
bool lhi_end_measured(const lh_job *job);
/* What comes once per iteration; with the optimizer if that was measured. */
int64_t lhi_iteration_ns(const lh_job *job);

/* The options with their defaults, and what they leave to the job, filled in.
 * LH_EINVAL: a wrong size or a constant out of range. */
lh_status lhi_cost_options(const lh_job *job, const lh_cost_options *in,
                           lh_cost_options *out, lh_error *err);

/* A rounded-up whole number of bytes or ns; LH_EUNSUPPORTED past 2^62. */
lh_status lhi_whole(double value, const char *what, int64_t *out,
                    lh_error *err);

#endif
