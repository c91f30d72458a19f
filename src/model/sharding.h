/* SPDX-License-Identifier: Apache-2.0 */
/* Sharding of weights, gradients and optimizer state over data-parallel GPUs,
 * and its communication's time. */
#ifndef LHI_MODEL_SHARDING_H
#define LHI_MODEL_SHARDING_H

#include "model/groups.h"
#include "model/work.h"

/* A collective's time, in ns. */
typedef struct lhi_collective {
    double transfer, latency;
} lhi_collective;

/* The data-parallel collectives' times. */
typedef struct lhi_data_times {
    lhi_collective gather; /* parameters; 0 without sharding */
    lhi_collective reduce; /* gradients */
    /* With hybrid sharding, the sum between datacenters: once per iteration,
     * regardless of the reduction count inside. */
    lhi_collective between;
} lhi_data_times;

/* Computes the data-parallel collective times of `params` parameters of a layer
 * range, into *out. `options` must have its defaults filled in. `known`: cached
 * ECMP (multipath hashing) results. */
lh_status lhi_compute_data_times(const lh_job *job, const lh_layout *layout,
                                 const lh_cost_layer_range *slice,
                                 const lh_cost_options *options,
                                 const lhi_params *params,
                                 lhi_ecmp_cache *known, lhi_data_times *out,
                                 lh_error *err);

/* The times of each part of a layer range; 0 for absent parts. */
typedef struct lhi_part_times {
    lhi_data_times layers[LHI_LAYER_KINDS]; /* by lhi_find_layer_kind() */
    lhi_data_times embedding, head;
} lhi_part_times;

/* Computes the data-parallel collective times of each part of a layer range
 * into *out: each kind of layer, embedding, head. `options` must
 * have its defaults filled in; `known`: cached ECMP (multipath hashing)
 * results. */
lh_status lhi_compute_part_times(const lh_job *job, const lh_layout *layout,
                                 const lh_cost_layer_range *slice,
                                 const lh_cost_options *options,
                                 const lhi_shape *shape, lhi_ecmp_cache *known,
                                 lhi_part_times *out, lh_error *err);

/* Returns in *gather and *reduce the data-parallel times (ns) of the i-th part
 * of a layer range. In forward order, 0 is the embedding, 1 to n_layers are the
 * layers, then comes the head. */
void lhi_find_part_times(const lh_job *job, const lh_cost_layer_range *slice,
                         const lhi_part_times *times, uint32_t i,
                         double *gather, double *reduce);

/* The times for gathering or reducing a whole chunk layer by layer, one part
 * after another without computation in between, in ns. */
typedef struct lhi_sharding_times {
    double gather, reduce;
    double longest_gather, longest_reduce; /* maximum over the parts */
} lhi_sharding_times;

/* Computes the times to gather and to reduce a whole layer range part by part,
 * in ns, into *out. `options` as for lh_cost_chunk(); `known`: cached ECMP
 * (multipath hashing) results. */
lh_status lhi_compute_sharding_times(const lh_job *job, const lh_layout *layout,
                                     const lh_cost_layer_range *slice,
                                     const lh_cost_options *options,
                                     lhi_ecmp_cache *known,
                                     lhi_sharding_times *out, lh_error *err);

/* Computes the time that one more parameter (of an expert or, without
 * of_expert, of other layers) adds to a gather and to a reduction. `transfer`
 * is in ns per parameter; `latency` in ns does not depend on the size.
 * out->between is 0. `options` as for lh_cost_chunk(). */
lh_status lhi_compute_marginal_sharding_times(
    const lh_job *job, const lh_layout *layout,
    const lh_cost_layer_range *slice, bool of_expert,
    const lh_cost_options *options, lhi_data_times *out, lh_error *err);

/* A two-stage overlap. Layers pass through two stages, each with one layer at a
 * time; the first stage works one layer ahead. The stages are a pass's gathers
 * and its computation, or computation and gradient reductions. The first
 * layer's first stage and the last layer's second stage are exposed. Initialise
 * to {0}, and add layers in the pass's order, in ns. */
typedef struct lhi_stage_overlap {
    double last_second_start;    /* start of the last layer's second stage */
    double last_second_duration; /* duration of that stage */
} lhi_stage_overlap;

/* Adds a layer to a two-stage overlap, such as a gather and the pass that needs
 * it. Its `first` stage (ns) runs during the previous layer's `second` stage
 * (ns). */
void lhi_stage_overlap_add(lhi_stage_overlap *relay, double first,
                           double second);
/* Returns the total duration in ns of all layers added to a two-stage overlap.
 * */
double lhi_stage_overlap_compute_ns(const lhi_stage_overlap *relay);

/* Returns the ZeRO stage that describes when data parallelism communicates.
 * torchtitan's FSDP without resharding (ZeRO 2) in a pipeline gathers
 * parameters once and reduces gradients with the last microbatch
 * (backward_maybe_with_nosync() in torch/distributed/pipelining/stage.py): ZeRO
 * 1. */
uint32_t lhi_find_zero(const lh_job *job, const lh_layout *layout);

/* Checks whether gradients accumulate unsharded until the last microbatch, as
 * in torchtitan's pipelines. */
bool lhi_accumulates_whole_gradients(const lh_job *job,
                                     const lh_layout *layout);

/* Checks whether sharded parameters are the optimizer's fp32 ones, without
 * another copy in the type of the passes: torchtitan's FSDP with resharding. */
bool lhi_shards_fp32_parameters(const lh_job *job);

/* Checks whether the once-per-iteration gather of ZeRO 2 proceeds layer by
 * layer within the first microbatch, as torchtitan's FSDP does without a
 * pipeline. */
bool lhi_gathers_in_first_microbatch(const lh_job *job,
                                     const lh_layout *layout);

/* Returns how many GPUs shard the state of non-expert parameters (*shared) and
 * of experts (*experts), as seen from the layer range's datacenter. */
lh_status lhi_count_state_ranks(const lh_job *job, const lh_layout *layout,
                                const lh_cost_layer_range *slice,
                                double *shared, double *experts, lh_error *err);

#endif
