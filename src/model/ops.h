/* SPDX-License-Identifier: Apache-2.0 */
/* A layer as separate operations: work.c sums their times and resident_memory.c
 * their memory. tests/unit/test_ops.c checks that the three agree. */
#ifndef LHI_MODEL_OPS_H
#define LHI_MODEL_OPS_H

#include "model/work.h"

#include <longhaul/experimental/cost.h>

/* One operation of a layer. */
typedef struct lhi_layer_op {
    const char *name;        /* static string */
    double stored;           /* bytes per GPU and microbatch */
    bool not_recomputable;   /* not recomputable from other stored data */
    lhi_work recompute_work; /* work to recompute it */
} lhi_layer_op;

/* Lists a layer's operations in `ops`, an array of LH_COST_MAX_OPS; returns
 * their number. */
uint32_t lhi_list_layer_ops(const lhi_shape *shape, uint32_t layer,
                            lhi_layer_op *ops);

/* Lists `layer`'s operations, which must be in the range, ignoring the job's
 * recomputation. The operations' stored bytes add up to the lh_cost_chunk()
 * value for a layer without recomputation. Writes *n_ops entries, at most
 * LH_COST_MAX_OPS.
 */
lh_status lhi_cost_layer_ops(const lh_job *job, const lh_layout *layout,
                             const lh_cost_layer_range *slice, uint32_t layer,
                             const lh_cost_options *options, lh_cost_op *ops,
                             uint32_t *n_ops, lh_error *err);

#endif
