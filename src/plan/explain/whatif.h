/* SPDX-License-Identifier: Apache-2.0 */
/* A plan where the links are others. */
#ifndef LHI_WHATIF_H
#define LHI_WHATIF_H

#include "base/arena.h"

#include <longhaul/plan.h>

/* Answers options->questions for a plan that is complete but for them. */
lh_status lhi_plan_answer(const lh_plan_options *options, lhi_arena *mem,
                          lh_plan *plan, lh_error *err);

#endif
