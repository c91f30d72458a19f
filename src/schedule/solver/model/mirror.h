/* SPDX-License-Identifier: Apache-2.0 */
/* A job shop with time reversed: arcs are reversed, heads and tails are
 * swapped, and operations that release memory allocate it. */
#ifndef LHI_SCHEDULE_SOLVER_MODEL_MIRROR_H
#define LHI_SCHEDULE_SOLVER_MODEL_MIRROR_H

#include "schedule/solver/model/machine_orders.h"

/* Builds the reversed job shop in `mem`; valid as long as `shop`. */
lh_status lhi_mirror_make(const lhi_shop *shop, lhi_arena *mem, lhi_shop **out,
                          lh_error *err);
/* Returns the number that operation o has in the mirrored (time-reversed) job
 * shop, and vice versa. */
uint32_t lhi_mirror_get_operation(const lhi_shop *shop, uint32_t op);
/* Converts the machine orders `from` to those of the mirrored (time-reversed)
 * job shop, `to`; works in either direction. */
void lhi_mirror_convert_orders(lhi_machine_orders *to,
                               const lhi_machine_orders *from);

#endif
