/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds for pipelines with unequal W parts. */
#ifndef LHI_SCHEDULE_SOLVER_RELAXATION_H
#define LHI_SCHEDULE_SOLVER_RELAXATION_H

#include "schedule/solver/state/solver.h"

/* Raises r->bound_ns and r->low_units by the windows of the relaxed job shop
 * (lhi_shop_make_relaxed()). For restricted job shops. */
lh_status lhi_relaxation_raise_bound(lhi_solver *r, lh_error *err);

#endif
