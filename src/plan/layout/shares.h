/* SPDX-License-Identifier: Apache-2.0 */
/* What an elastic plan communicates on a layout. */
#ifndef LHI_SHARES_H
#define LHI_SHARES_H

#include "plan/layout/layout.h"

/* Gather and reduction of a chunk layer by layer, in ns, with nothing computed
 * in between, where that is slowest. */
typedef struct lhi_chunk_sharded {
    int64_t gather_ns, scatter_ns;
} lhi_chunk_sharded;

/* Of every chunk of a configuration. */
lh_status lhi_layout_sharded(const lh_job *job, const lhi_config *config,
                             lhi_chunk_sharded *chunks, lh_error *err);

/* The data-parallel communication of `plan` (its groups, shares and buckets) on
 * `plain`, the layout's pipeline with ZeRO-1, whose chunks take `sharded`: into
 * `chunks`, that are otherwise left as they are, and *ops, to be released with
 * lh_elastic_ops_free(). */
lh_status lhi_shares_sent(const lh_pipeline *plain,
                          const lhi_chunk_sharded *sharded,
                          const lh_plan_elastic *plan, lhi_arena *mem,
                          lh_chunk *chunks, lh_dp_op **ops, uint32_t *n_ops,
                          lh_error *err);

#endif
