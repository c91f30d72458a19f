/* SPDX-License-Identifier: Apache-2.0 */
/* Lattice of pass kinds: a relaxation of a device's lattice that does not
 * distinguish chunks (docs/theory/optimal.md, "Lattice of pass kinds"). */
#ifndef LHI_SCHEDULE_SOLVER_BOUND_KIND_LATTICE_H
#define LHI_SCHEDULE_SOLVER_BOUND_KIND_LATTICE_H

#include "schedule/solver/bound/windows.h"

/* Checks whether the relaxation applies to machine m: a device with several
 * chunks whose passes of each kind have equal times and equal memory. */
bool lhi_kind_lattice_is_applicable(const lhi_shop *shop, uint32_t m);

/* Checks by the relaxation whether machine m may have an order within the time
 * windows, which are not empty. Sets *possible = false if it
 * has none; leaves *possible unchanged if stopped by the budget. Memory for
 * the states is in `mem`, and free again on return. */
lh_status lhi_kind_lattice_check(const lhi_windows *windows, uint32_t m,
                                 lhi_budget *budget, lhi_arena *mem,
                                 bool *possible, lh_error *err);

#endif
