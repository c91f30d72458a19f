/* SPDX-License-Identifier: Apache-2.0 */
/* Shaving: an order that leaves some operation no time is not so, and what
 * follows from its contrary may refute a deadline that windows alone do not
 * (docs/theory/optimal.md, "Shaving"). */
#ifndef LHI_SHAVE_H
#define LHI_SHAVE_H

#include "solve/bound/windows.h"

/* After lhi_windows_set() has left a deadline open, for about so many ticks:
 * takes off the ends of how many operations of one stream may come before one
 * of another. The windows that are left hold until they are set again.
 * *open = false: no schedule is done by the deadline; stopped by the budget it
 * is true. Machines without a lattice are left alone. */
lh_status lhi_shave(lhi_windows *windows, uint64_t ticks, lhi_budget *budget,
                    bool *open, lh_error *err);

#endif
