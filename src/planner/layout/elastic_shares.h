/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic-plan communication on a layout. */
#ifndef LHI_PLANNER_LAYOUT_ELASTIC_SHARES_H
#define LHI_PLANNER_LAYOUT_ELASTIC_SHARES_H

#include "planner/layout/layout.h"

/* Layer-by-layer gather and reduction of a chunk, in ns, without overlapping
 * computation, in the slowest datacenter. */
typedef struct lhi_chunk_sharded {
    int64_t gather_ns, scatter_ns;
} lhi_chunk_sharded;

/* Computes every chunk's times to gather parameters and reduce gradients
 * layer by layer, in ns. */
lh_status lhi_layout_compute_sharded_times(const lh_job *job,
                                           const lhi_config *config,
                                           lhi_chunk_sharded *chunks,
                                           lh_error *err);

/* Computes the data-parallel communication of elastic plan `plan` (its groups,
 * shares and buckets) on `plain`, the layout's pipeline with ZeRO-1, with the
 * times `sharded` of sharded state. Updates only the communication in `chunks`;
 * *ops must be released with lhi_elastic_ops_free(). */
lh_status lhi_elastic_compute_communication(const lh_pipeline *plain,
                                            const lhi_chunk_sharded *sharded,
                                            const lh_plan_elastic *plan,
                                            lhi_arena *mem, lh_chunk *chunks,
                                            lh_dp_op **ops, uint32_t *n_ops,
                                            lh_error *err);

#endif
