/* SPDX-License-Identifier: Apache-2.0 */
/* What methods make of pipelines, and what is known of that. Layouts
 * that differ in nothing that counts (state that is divided otherwise and is
 * gathered just as fast, chunks that were moved and moved back) have pipelines
 * that are alike, and a search comes to the same ones again and again: a third
 * of all that it would simulate. What is remembered is what would be found
 * again, so no plan depends on it. */
#ifndef LHI_TRIED_H
#define LHI_TRIED_H

#include "base/arena.h"
#include "pipe/pipeline_own.h"

#include <longhaul/plan.h>

/* Of one search, as all that is tried has the same sub-blocks. May be used on
 * several threads. */
typedef struct lhi_tried lhi_tried;
lh_status lhi_tried_make(lhi_tried **out, lh_error *err);
void lhi_tried_free(lhi_tried *tried); /* NULL is fine */

typedef struct lhi_method_outcome {
    lh_choice_status status; /* OK, MEMORY or FAILED */
    int64_t makespan_ns;     /* this and what follows: of what works */
    int64_t peak_memory_bytes, memory_limit_bytes;
    double bubble_ratio;
    const char *why; /* of what does not; "" of what does */
} lhi_method_outcome;

/* By the method's name; `tried` may be NULL: nothing is remembered. out->why
 * lives in `mem`. *schedule, of what works, is the caller's; `schedule` is NULL
 * where it is not wanted: only then need what is known not be made again. */
lh_status lhi_tried_find(lhi_tried *tried, const lh_pipeline *pipeline,
                         const char *method, uint32_t sub_blocks,
                         lhi_arena *mem, lhi_method_outcome *out,
                         lh_schedule **schedule, lh_error *err);

#endif
