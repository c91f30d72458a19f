/* SPDX-License-Identifier: Apache-2.0 */
/* A plan and the memory it owns. */
#ifndef LHI_PLANNER_PLAN_INTERNAL_H
#define LHI_PLANNER_PLAN_INTERNAL_H

#include "base/arena.h"

#include <longhaul/experimental/plan.h>

/* The public part is first: every lh_plan is one of these. */
typedef struct lhi_plan {
    lh_plan plan;
    lhi_arena *mem;
    lh_job *job;
    lh_pipeline *pipeline;
    lh_schedule *schedule;
} lhi_plan;

extern const char *const lhi_choice_status_names[], *const lhi_plan_by_names[];

/* Size of plan->input_hash, which identifies a job by its text from
 * lh_job_format(). */
enum { LHI_HASH_TEXT = 32 };
/* Writes to `out` a job text's hash (FNV-1a), which is enough to detect a
 * changed input. */
void lhi_plan_hash(const char *text, size_t len, char out[LHI_HASH_TEXT]);

/* Returns the gap between a plan candidate's makespan and the lower bound on
 * its layout's schedules, as a share of the bound; 0: optimal. */
double lhi_choice_gap(const lh_choice *choice);

#endif
