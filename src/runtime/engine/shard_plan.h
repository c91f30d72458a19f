/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the buffers for sharded parameters and gradients while passes run
 * (PipeMesh, section V): the buffers that all-gathers fill and reduce-scatters
 * drain, and the ones each pass uses. The plan is made in advance, so that
 * missing operations are reported before the run, and memory is known. */
#ifndef LHI_RUNTIME_ENGINE_SHARD_PLAN_H
#define LHI_RUNTIME_ENGINE_SHARD_PLAN_H

#include "runtime/device/device.h"
#include "runtime/engine/execution_plan.h"

/* Per communication in the rank's data stream. */
typedef struct lhi_shard_op {
    uint32_t buffer;  /* buffer for values or gradients; LH_NONE: nothing is
                       * sharded */
    bool accumulates; /* added to an earlier group's sums */
} lhi_shard_op;

/* Per pass of the rank. */
typedef struct lhi_shard_pass {
    uint32_t values, gradients;                /* buffers; LH_NONE: unused */
    uint32_t first_microbatch, n_microbatches; /* backward together */
    uint32_t n_required;                       /* communications to wait for */
} lhi_shard_pass;

/* One rank's plan. */
typedef struct lhi_shard_plan {
    lhi_arena *mem;
    lhi_shard_op *ops;
    lhi_shard_pass *passes;
    uint32_t n_values, n_gradients; /* buffers; at most two of gradients */
} lhi_shard_plan;

/* Plans which buffers a stage's passes and collectives use. `sharded`: sizes
 * per chunk of the pipeline. LH_EUNSUPPORTED: a pass would lack parameters, or
 * gradients would not be scattered in time; `err` names the case. Release with
 * lhi_shard_plan_fini(). */
lh_status lhi_shard_plan_make(const lh_pipeline *pipeline, const lh_exec *exec,
                              uint32_t stage,
                              const lhi_sharded_tensors *sharded,
                              lhi_shard_plan *out, lh_error *err);
/* Frees a shard plan; a zeroed struct is allowed. */
void lhi_shard_plan_fini(lhi_shard_plan *plan);

#endif
