/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of LH_TARGET_LONGHAUL by decided level; used by target_check.c. */
#ifndef LHI_PLANNER_LAYOUT_TARGET_LONGHAUL_H
#define LHI_PLANNER_LAYOUT_TARGET_LONGHAUL_H

#include "base/fail.h"
#include "planner/layout/layout.h"

/* Checks whether longhaul's engine can train the job's model on its cpu device.
 * LH_EUNSUPPORTED: it cannot; `err` has the reason. */
lh_status lhi_longhaul_job(const lh_job *job, lh_error *err);
/* Checks that longhaul's engine supports the tensor and context degrees of a
 * layout. LH_EUNSUPPORTED otherwise. */
lh_status lhi_longhaul_group(const lh_job *job, const lh_layout *layout,
                             lh_error *err);
/* Checks that longhaul's engine supports each datacenter's tensor degree, if
 * they differ. LH_EUNSUPPORTED otherwise. */
lh_status lhi_longhaul_placed(const lh_job *job, const lh_layout *layout,
                              lh_error *err);
/* Checks that longhaul's engine supports the configuration's hybrid sharding.
 * LH_EUNSUPPORTED otherwise. */
lh_status lhi_longhaul_state(const lh_job *job, const lhi_config *config,
                             lh_error *err);

#endif
