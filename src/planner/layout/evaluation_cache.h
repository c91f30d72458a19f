/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation cache: outcomes of schedule methods on pipelines. Layouts may
 * differ only in irrelevant ways (state divided differently but gathered as
 * fast; layers moved and moved back) and then have identical pipelines. A
 * search meets the same ones again and again: a third of all it would simulate.
 * Searches for other links share many, too. A cached outcome equals the
 * recomputed one, so plans do not depend on the cache. */
#ifndef LHI_PLANNER_LAYOUT_EVALUATION_CACHE_H
#define LHI_PLANNER_LAYOUT_EVALUATION_CACHE_H

#include "base/arena.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/plan.h>

/* A cache in which all evaluations have the same sub-blocks. Thread-safe. */
typedef struct lhi_evaluation_cache lhi_evaluation_cache;
/* Creates an empty cache of schedule results: outcomes of methods by the
 * fingerprint of pipeline and method. */
lh_status lhi_evaluation_cache_make(lhi_evaluation_cache **out, lh_error *err);
/* Frees a cache of schedule results; NULL is allowed. */
void lhi_evaluation_cache_free(lhi_evaluation_cache *tried);

/* Outcome of a method on a pipeline. */
typedef struct lhi_method_outcome {
    lh_choice_status status; /* OK, MEMORY or FAILED */
    bool is_useless;         /* FAILED: the makespan is makespan_ns or more */
    int64_t makespan_ns;     /* this and the next: valid if OK */
    int64_t peak_memory_bytes, memory_limit_bytes;
    double bubble_ratio;
    const char *why; /* reason of failure; "" if OK */
} lhi_method_outcome;

/* Runs a schedule method on a pipeline, or returns the cached result; `tried`
 * may be NULL: no cache. `sub_blocks`: parts per W pass. useless_ns (0: none):
 * a makespan of this or more need not be computed, and is_useless may be set
 * instead. out->why is in `mem`. The caller owns *schedule, set if the status
 * is OK. With `schedule` NULL a cached result avoids running the method. */
lh_status lhi_evaluation_cache_run_method(
    lhi_evaluation_cache *tried, const lh_pipeline *pipeline,
    const char *method, uint32_t sub_blocks, int64_t useless_ns, lhi_arena *mem,
    lhi_method_outcome *out, lh_schedule **schedule, lh_error *err);

#endif
