/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of LH_TARGET_MEGATRON; used by target_check.c. */
#ifndef LHI_PLANNER_LAYOUT_TARGET_MEGATRON_H
#define LHI_PLANNER_LAYOUT_TARGET_MEGATRON_H

#include "base/fail.h"
#include "planner/layout/space.h"

/* Checks that Megatron-LM supports the job's model and settings.
 * LH_EUNSUPPORTED: it does not; `err` has the reason. */
lh_status lhi_megatron_job(const lh_job *job, lh_error *err);
/* Checks the values that a configuration decides on `level`, its depth in the
 * search tree. LH_EUNSUPPORTED: Megatron-LM cannot run them. */
lh_status lhi_megatron_level(const lh_job *job, lhi_level level,
                             const lhi_config *config, lh_error *err);

#endif
