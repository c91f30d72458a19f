/* SPDX-License-Identifier: Apache-2.0 */
/* A plan and what it owns. */
#ifndef LHI_PLAN_OWN_H
#define LHI_PLAN_OWN_H

#include "base/arena.h"

#include <longhaul/plan.h>

/* The public part first: an lh_plan is always one of these. */
typedef struct lhi_plan {
    lh_plan plan;
    lhi_arena *mem;
    lh_job *job;
    lh_pipeline *pipeline;
    lh_schedule *schedule;
} lhi_plan;

extern const char *const lhi_choice_status_names[], *const lhi_plan_by_names[];

/* Names a job by its text, as lh_job_format() has it: plan->input_hash. */
enum { LHI_HASH_TEXT = 32 };
void lhi_plan_hash(const char *text, size_t len, char out[LHI_HASH_TEXT]);

/* How far the makespan is above the bound for this layout, as a share of that
 * bound; 0: optimal. */
double lhi_choice_gap(const lh_choice *choice);

#endif
