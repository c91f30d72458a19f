/* SPDX-License-Identifier: Apache-2.0 */
/* Values that a job may fix although the search never tries them. With such a
 * value left open, the plan may be slower. */
#ifndef LHI_PLANNER_LAYOUT_OUTSIDE_SPACE_H
#define LHI_PLANNER_LAYOUT_OUTSIDE_SPACE_H

#include "planner/layout/space.h"

/* Lists the values that the job fixes outside the search space. *out is in
 * `mem`: "tensor 3, context 4 (1024 tokens a GPU)"; NULL: all values are
 * inside. */
lh_status lhi_space_list_outside_values(const lhi_space *space, lhi_arena *mem,
                                        const char **out, lh_error *err);

#endif
