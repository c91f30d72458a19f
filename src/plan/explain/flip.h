/* SPDX-License-Identifier: Apache-2.0 */
/* How far the links may change until another layout is best. */
#ifndef LHI_FLIP_H
#define LHI_FLIP_H

#include "plan/explain/found_plans.h"

/* Fills plan->sensitivity, of the plan's job; left NULL where the caller's
 * progress() stops the search. Full searches know those of `known`, too. */
lh_status lhi_plan_flips(const lh_plan_options *options, lhi_arena *mem,
                         const lhi_found_plans *known, lh_plan *plan,
                         lh_error *err);

#endif
