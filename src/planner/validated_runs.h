/* SPDX-License-Identifier: Apache-2.0 */
/* The accuracy of predicted times: errors in published runs of their kind. */
#ifndef LHI_PLANNER_VALIDATED_RUNS_H
#define LHI_PLANNER_VALIDATED_RUNS_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* Finds the published runs of a job's kind, into *out, in `mem`: with the
 * properties of the job on `gpus` GPUs outside the range of these runs. *out is
 * NULL if there are no such runs. */
lh_status lhi_find_accuracy(lhi_arena *mem, const lh_job *job, uint32_t gpus,
                            const lh_validated_runs **out, lh_error *err);

#endif
