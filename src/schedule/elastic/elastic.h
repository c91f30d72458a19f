/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans in closed form, with their operations and pass order. */
#ifndef LHI_SCHEDULE_ELASTIC_ELASTIC_H
#define LHI_SCHEDULE_ELASTIC_ELASTIC_H

#include <longhaul/experimental/elastic.h>

/* Builds an elastic plan from the group sizes, sharded parameters and bucket
 * counts in `wanted`, whose derived values are ignored. LH_EINPUT: groups do
 * not add up or are too small, or more is sharded than exists; `err` gives the
 * amount. Release with lh_elastic_plan_free(). */
lh_status lhi_elastic_plan_make(const lh_elastic_case *given,
                                const lh_elastic_plan *wanted,
                                lh_elastic_plan **out, lh_error *err);

/* Computes the iteration time in ns by equation 1 in the PipeMesh paper.
 * `recompute_ns` lengthens every pass on a chunk but, as in that paper, not the
 * windows in which communication is hidden. */
int64_t lhi_elastic_iteration_ns(const lh_elastic_case *given,
                                 const lh_elastic_plan *plan,
                                 int64_t recompute_ns);

/* Lists the data-parallel communication for the plan's passes, for a pipeline
 * whose chunk (c - 1) P + i - 1 is chunk c on stage i. Excludes operations on
 * each stage's first chunk at the iteration's start and end: see lh_chunk.
 * Release *ops with lhi_elastic_ops_free(). */
lh_status lhi_elastic_operations(const lh_elastic_case *given,
                                 const lh_elastic_plan *plan, lh_dp_op **ops,
                                 uint32_t *n_ops, lh_error *err);
void lhi_elastic_ops_free(lh_dp_op *ops); /* frees; NULL is a no-op */

/* Writes the elastic plan's pass order on stage `stage` (1..P) to `passes`:
 * warm-up forwards, alternating forward and backward, remaining backwards.
 * `passes` must hold 2 M B entries, for M chunks per stage and B microbatches.
 * */
void lhi_elastic_order(const lh_elastic_case *given,
                       const lh_elastic_plan *plan, uint32_t stage,
                       lh_pass *passes);

#endif
