/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_DISPATCH_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_DISPATCH_H

#include "schedule/solver/model/machine_orders.h"

/* Builds `orders` by dispatching the operation with the earliest
 * due date due[op]. *ok is false if memory blocked it. */
lh_status lhi_dispatch_by_due_date(lhi_machine_orders *orders,
                                   const int64_t *due, bool *ok, lhi_arena *mem,
                                   lh_error *err);

#endif
