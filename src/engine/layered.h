/* SPDX-License-Identifier: Apache-2.0 */
/* Sharding that passes do by themselves, layer by layer (FSDP2 of PyTorch,
 * arXiv:2304.11277): what ZeRO 2 and 3 are without operations of their own in
 * the pipeline. A pass gathers a layer's parameters while it computes the one
 * before, and has gradients reduced while it computes the next; at its end all
 * of that is through. Two parts of parameters and two of gradients are there at
 * a time at most. */
#ifndef LHI_LAYERED_H
#define LHI_LAYERED_H

#include "engine/part_exchange.h"
#include "engine/sharded.h"

typedef struct lhi_layered lhi_layered;

/* The same options as of lhi_shards, in whose place this is. */
lh_status lhi_layered_make(const lhi_shards_options *options, lhi_layered **out,
                           lh_error *err);
/* After a failure, once all ranks have been told: ends the thread. */
void lhi_layered_stop(lhi_layered *l);
void lhi_layered_free(lhi_layered *l); /* NULL is fine */

/* A step begins. */
void lhi_layered_begin(lhi_layered *l, uint64_t step);
/* Pass `i` of the rank is next. */
lh_status lhi_layered_pass(lhi_layered *l, uint32_t i, lhi_step_kind kind,
                           lh_error *err);
/* After the passes: sums are complete. */
lh_status lhi_layered_end(lhi_layered *l, lh_error *err);
/* What the pipeline has an operation for. */
const lhi_played *lhi_layered_played(const lhi_layered *l, uint32_t *n);
/* Of the last step, per pass of the rank: how long it waited inside. */
const int64_t *lhi_layered_waited(const lhi_layered *l);
/* Between steps: the next ones follow `exec`. */
void lhi_layered_reschedule(lhi_layered *l, const lh_exec *exec);

/* Between steps, on all replicas, with another `turn` each time: what is not
 * sharded is whole; and one tensor, where it is, until the next call. */
lh_status lhi_layered_gather(lhi_layered *l, uint64_t turn, lh_error *err);
lh_status lhi_layered_show(lhi_layered *l, uint32_t chunk, uint32_t tensor,
                           lh_error *err);

/* Bytes of rooms and of arrays to exchange, added to bytes[]; and as predicted,
 * without these arrays, of chunks whose largest part has so many values, with at most n_parts.
 */
void lhi_layered_held(const lhi_layered *l, int64_t bytes[LH_N_MEMORY_KINDS]);
double lhi_layered_bytes(double largest_part, uint32_t n_parts,
                         bool shards_values);

#endif
