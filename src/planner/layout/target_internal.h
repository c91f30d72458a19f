/* SPDX-License-Identifier: Apache-2.0 */
/* The targets' features: target.c has the table, target_check.c the rules,
 * beside those of target_megatron.h and target_longhaul.h. */
#ifndef LHI_PLANNER_LAYOUT_TARGET_INTERNAL_H
#define LHI_PLANNER_LAYOUT_TARGET_INTERNAL_H

#include "planner/layout/target.h"

/* One bit for each value of an enum. */
#define LHI_TARGET_BIT(value) (1u << (value))
/* Bit set of all values of a dimension. */
#define LHI_TARGET_ALL_VALUES ((uint32_t)-1)

/* Features that a target supports. */
typedef struct lhi_target_capability {
    const char *shown, *version;
    const char *schedules[4]; /* none: every method */
    bool elastic;             /* groups, shares and recomputation per plan */
    /* microbatches run one by one on a single stage */
    bool one_by_one;
    uint32_t placements, recomputes, zeros, precisions;
    /* Reasons against other values; NULL if all are allowed. */
    const char *why_placement, *why_recompute, *why_zero;
} lhi_target_capability;

/* Returns the table entry with a target framework's capabilities. */
const lhi_target_capability *lhi_target_get_capability(lh_target target);

/* Fails with LH_EUNSUPPORTED and the message `why` after the target's name. */
lh_status lhi_target_fail(lh_target target, lh_error *err, const char *why);

/* Checks that the stages have one tensor degree, which every program needs;
 * PyTorch's pipelines leave the stages' parallelism to the user. */
lh_status lhi_target_check_tensors(lh_target target, const lh_layout *l,
                                   lh_error *err);

#endif
