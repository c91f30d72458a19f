/* SPDX-License-Identifier: Apache-2.0 */
/* Where a plan's memory goes. */
#ifndef LHI_RANK_MEMORY_H
#define LHI_RANK_MEMORY_H

#include "base/arena.h"

#include <longhaul/plan.h>

/* Fills plan->rank_memory from plan->best, plan->pipeline and plan->schedule.
 */
lh_status lhi_plan_memory(const lh_job *job, lhi_arena *mem, lh_plan *plan,
                          lh_error *err);

/* What a device holds throughout, and the most that it ever holds, where its
 * passes follow each other as the schedule says. False: it has passes of no
 * chunk of the pipeline, or so many that no number says what they hold. */
bool lhi_rank_most(const lh_pipeline *pipeline, const lh_schedule *schedule,
                   uint32_t device, int64_t *throughout, int64_t *most);

#endif
