/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds for pipelines with unequal W parts. */
#ifndef LHI_SCHEDULE_SOLVER_RELAXATION_H
#define LHI_SCHEDULE_SOLVER_RELAXATION_H

#include "schedule/solver/state/solver.h"

/* Raises r->bound_ns and r->low_units by the time windows of the relaxed job
 * shop (lhi_shop_make_relaxed()). Needed if the job shop is restricted: it then
 * runs unequal W parts in a fixed order, so its own bounds are not general. */
lh_status lhi_relaxation_raise_bound(lhi_solver *r, lh_error *err);

#endif
