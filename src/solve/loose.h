/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds where the parts of a W are not alike. */
#ifndef LHI_LOOSE_H
#define LHI_LOOSE_H

#include "solve/state/solver.h"

/* The windows of the loose shop (lhi_shop_make_loose()) raise r->bound_ns and
 * r->low. For restricted shops. */
lh_status lhi_bound_loosely(lhi_solver *r, lh_error *err);

#endif
