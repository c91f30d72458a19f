/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank has sharded parameters and gradients while its passes run
 * (PipeMesh, section V): the rooms that all-gathers fill and reduce-scatters
 * empty, and which of them each pass takes. Made beforehand, so that what a
 * plan's operations do not bring is said before anything runs, and memory is
 * known. */
#ifndef LHI_SHARD_PLAN_H
#define LHI_SHARD_PLAN_H

#include "dev/dev.h"
#include "engine/exec.h"

/* By communication of the rank's data stream. */
typedef struct lhi_shard_op {
    uint32_t room; /* that values go to, or gradients come from; LH_NONE: none,
                      nothing of it is sharded */
    bool adds;     /* to the sums of an earlier group of microbatches */
} lhi_shard_op;

/* By pass of the rank. */
typedef struct lhi_shard_pass {
    uint32_t values, gradients; /* rooms; LH_NONE: not looked at */
    uint32_t first_microbatch, n_microbatches; /* that go backward together */
    uint32_t needs;             /* so many communications are through */
} lhi_shard_pass;

typedef struct lhi_shard_plan {
    lhi_arena *mem;
    lhi_shard_op *ops;
    lhi_shard_pass *passes;
    uint32_t n_values, n_gradients; /* rooms; a pass finds at most two of
                                       gradients */
} lhi_shard_plan;

/* `sharded`: of each chunk of the pipeline. LH_EUNSUPPORTED: a pass would find
 * no parameters, gradients would not be scattered, or not in time; `err` says
 * which. Release with lhi_shard_plan_fini(). */
lh_status lhi_shard_plan_make(const lh_pipeline *pipeline, const lh_exec *exec,
                              uint32_t stage,
                              const lhi_sharded_tensors *sharded,
                              lhi_shard_plan *out, lh_error *err);
void lhi_shard_plan_fini(lhi_shard_plan *plan); /* zeroed is fine */

#endif
