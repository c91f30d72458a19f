/* SPDX-License-Identifier: Apache-2.0 */
/* Lattice of pass kinds: a relaxation of a device's lattice that does not
 * distinguish chunks (docs/theory/optimal.md, "Lattice of pass kinds"). */
#ifndef LHI_SCHEDULE_SOLVER_BOUND_KIND_LATTICE_H
#define LHI_SCHEDULE_SOLVER_BOUND_KIND_LATTICE_H

#include "schedule/solver/bound/heads.h"

/* Returns the i-th machine to which the relaxation is to be applied: the first
 * and the last one begin, whose heads and tails often give the largest
 * bounds. */
uint32_t lhi_kind_lattice_pick_machine(const lhi_shop *shop, uint32_t i);

/* Checks whether the relaxation applies to machine m: a device with several
 * chunks whose passes of each kind have equal times and equal memory, and whose
 * states take at most an eighth of `memory`, the bytes for all tables. */
bool lhi_kind_lattice_is_applicable(const lhi_shop *shop, uint32_t m,
                                    size_t memory);

/* Checks by the relaxation whether machine m may have an order in a schedule
 * that meets `deadline` (job-shop time), given heads and tails. Sets *possible
 * = false if it has none; leaves *possible unchanged if stopped by the budget.
 * Memory for the states is in `mem`, and free again on return. */
lh_status lhi_kind_lattice_check(const lhi_shop *shop, const lhi_heads *heads,
                                 uint32_t m, int64_t deadline,
                                 lhi_budget *budget, lhi_arena *mem,
                                 bool *possible, lh_error *err);

#endif
