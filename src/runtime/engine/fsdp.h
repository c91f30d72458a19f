/* SPDX-License-Identifier: Apache-2.0 */
/* FSDP: layer-by-layer sharding inside passes (FSDP2 in PyTorch,
 * arXiv:2304.11277). This is ZeRO 2 and 3 without separate operations in the
 * pipeline. A pass gathers a layer's parameters while it computes the previous
 * layer, and reduce-scatters its gradients while it computes the next one. All
 * communications complete by the pass's end. At most two parameter parts and
 * two gradient parts are resident. */
#ifndef LHI_RUNTIME_ENGINE_FSDP_H
#define LHI_RUNTIME_ENGINE_FSDP_H

#include "runtime/engine/elastic_sharding.h"
#include "runtime/engine/part_collectives.h"

typedef struct lhi_fsdp lhi_fsdp;

/* Creates FSDP (per-layer sharding) rather than the elastic sharding, with the
 * same options. */
lh_status lhi_fsdp_make(const lhi_sharding_options *options, lhi_fsdp **out,
                        lh_error *err);
/* Ends FSDP's communication thread; after a failure, call it once all ranks are
 * notified. */
void lhi_fsdp_stop(lhi_fsdp *l);
/* Frees the FSDP state; NULL is allowed. */
void lhi_fsdp_free(lhi_fsdp *l);

/* Starts a step: clears records and wait times, and queues the first part's
 * all-gather or, if parameters are not sharded, those of all chunks. */
void lhi_fsdp_begin_step(lhi_fsdp *l, uint64_t step);
/* Prepares pass `i` of the rank: before a chunk's first pass, waits for its
 * all-gather if parameters are not sharded. */
lh_status lhi_fsdp_prepare_pass(lhi_fsdp *l, uint32_t i, lhi_step_kind kind,
                                lh_error *err);
/* Waits until all reduce-scatters and sums of the step are complete. */
lh_status lhi_fsdp_end_step(lhi_fsdp *l, lh_error *err);
/* Returns the records of those collectives in the last step that the pipeline
 * models, *n of them; borrowed. */
const lhi_collective_record *lhi_fsdp_collectives(const lhi_fsdp *l,
                                                  uint32_t *n);
/* Returns the wait time inside each pass of the last step, in ns. */
const int64_t *lhi_fsdp_wait_times(const lhi_fsdp *l);
/* Switches FSDP to the execution plan `exec` between steps: its passes and
 * collectives. */
void lhi_fsdp_set_plan(lhi_fsdp *l, const lh_exec *exec);

/* All-gathers the parameters if they are not sharded between steps. All
 * replicas call it, with a new `turn` each time. */
lh_status lhi_fsdp_gather_values(lhi_fsdp *l, uint64_t turn, lh_error *err);
/* Gathers one sharded tensor until the next call, on all replicas; LH_NONE
 * releases the buffer. */
lh_status lhi_fsdp_gather_tensor(lhi_fsdp *l, uint32_t chunk, uint32_t tensor,
                                 lh_error *err);

/* Adds the bytes of FSDP's parameter and gradient buffers and exchange arrays
 * to bytes[], by memory kind. */
void lhi_fsdp_add_memory(const lhi_fsdp *l, int64_t bytes[LH_N_MEMORY_KINDS]);
/* Predicts the bytes of FSDP's buffers, without the exchange arrays, for chunks
 * with at most `n_parts` parts (layers, embedding, head) whose largest has
 * `largest_part` parameters. shards_values: parameters are sharded, not only
 * gradients. */
double lhi_fsdp_predict_bytes(double largest_part, uint32_t n_parts,
                              bool shards_values);

#endif
