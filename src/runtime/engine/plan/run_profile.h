/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a run of a plan to a profile, from which the next plan predicts. */
#ifndef LHI_RUNTIME_ENGINE_PLAN_RUN_PROFILE_H
#define LHI_RUNTIME_ENGINE_PLAN_RUN_PROFILE_H

#include "runtime/engine/observer.h"

#include <longhaul/experimental/plan.h>

/* The executed part of a plan: a pipeline with the plan's chunks. */
typedef struct lhi_plan_run {
    const lh_plan *plan;
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    const lh_exec_options *exec;
} lhi_plan_run;

/* Makes a planned run's profile from its mean durations `observed`, so that the
 * next plan uses measured times. Release with lh_profile_free(). */
lh_status lhi_run_profile_make(const lhi_plan_run *run,
                               const lhi_observed_means *observed,
                               lh_profile **out, lh_error *err);

#endif
