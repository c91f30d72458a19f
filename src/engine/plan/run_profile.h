/* SPDX-License-Identifier: Apache-2.0 */
/* A run of a plan as a profile, from which the next plan predicts. */
#ifndef LHI_RUN_PROFILE_H
#define LHI_RUN_PROFILE_H

#include "engine/observe.h"

#include <longhaul/plan.h>

/* What was run of a plan: a pipeline with the plan's chunks. */
typedef struct lhi_plan_run {
    const lh_plan *plan;
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    const lh_exec_options *exec;
} lhi_plan_run;

lh_status lhi_run_profile(const lhi_plan_run *run, const lhi_observed *observed,
                          lh_profile **out, lh_error *err);

#endif
