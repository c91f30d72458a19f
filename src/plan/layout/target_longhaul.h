/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of LH_TARGET_LONGHAUL, by what a configuration has decided; for
 * target.c. */
#ifndef LHI_TARGET_LONGHAUL_H
#define LHI_TARGET_LONGHAUL_H

#include "base/fail.h"
#include "plan/layout/layout.h"

/* LH_EUNSUPPORTED: the cpu device does not train it; `err` says why. */
lh_status lhi_longhaul_job(const lh_job *job, lh_error *err);
lh_status lhi_longhaul_group(const lh_job *job, const lh_layout *layout,
                             lh_error *err);
lh_status lhi_longhaul_state(const lh_job *job, const lhi_config *config,
                             lh_error *err);

#endif
