/* SPDX-License-Identifier: Apache-2.0 */
/* Memory breakdown. */
#ifndef LHI_PLANNER_EXPLAIN_RANK_MEMORY_H
#define LHI_PLANNER_EXPLAIN_RANK_MEMORY_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Fills plan->rank_memory, the memory breakdown per pipeline rank, from
 * plan->best, plan->pipeline and plan->schedule. */
lh_status lhi_plan_explain_memory(const lh_job *job, lhi_arena *mem,
                                  lh_plan *plan, lh_error *err);

/* Computes a device's memory under the schedule's pass order, in bytes:
 * *throughout, the static memory, and *most, the peak. Returns false if the
 * schedule has passes of unknown chunks, or if the memory overflows. */
bool lhi_rank_compute_peak_memory(const lh_pipeline *pipeline,
                                  const lh_schedule *schedule, uint32_t device,
                                  int64_t *throughout, int64_t *most);

#endif
