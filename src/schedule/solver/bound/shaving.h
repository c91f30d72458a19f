/* SPDX-License-Identifier: Apache-2.0 */
/* Shaving: an order that leaves an operation no time is impossible, and its
 * negation may refute a deadline that windows alone do not
 * (docs/theory/optimal.md, "Shaving"). */
#ifndef LHI_SCHEDULE_SOLVER_BOUND_SHAVING_H
#define LHI_SCHEDULE_SOLVER_BOUND_SHAVING_H

#include "schedule/solver/bound/windows.h"

/* Shaves (tightens by refutation) the time windows after lhi_windows_set() has
 * left a deadline open, for about `ticks`. It tightens how many operations of
 * one stream may precede an operation of another. The windows hold until the
 * next lhi_windows_set(). *open = false: no schedule meets the deadline.
 * Machines without a lattice (machine state graph) are skipped. */
lh_status lhi_shaving_run(lhi_windows *windows, uint64_t ticks,
                          lhi_budget *budget, bool *open, lh_error *err);

#endif
