/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic pipelines for a layout of a job. Input: a layout's degrees and the
 * open features (chunks, groups, sharding, recomputation). Output: the fastest
 * pipeline and schedule, and the result without each feature.
 *     event_search.c    search over queues and sharding on equal stages
 *                       (lh_elastic_search_events()), by event simulation of
 *                       the plans that build_case.c builds
 *     pipeline.h        builds a pipeline from a plan, with the layout's own
 *                       times, links and memory
 *     shape_search.c    sets up that search for a layout and builds its result
 *     bound.h           lower bound for given chunks
 *     layout_search.c   every chunk count, sharding and queue
 *     choices.h         the best plan as rows of a plan's table, with ablations
 */
#ifndef LHI_PLANNER_ELASTIC_LAYOUT_SEARCH_H
#define LHI_PLANNER_ELASTIC_LAYOUT_SEARCH_H

#include "planner/layout/layout.h"

/* Name of the schedule method whose orders elastic plans use. */
#define LHI_ELASTIC "elastic"

/* Features that the search may use. */
typedef struct lhi_elastic_options {
    uint32_t shardings; /* bits 1 << lh_elastic_sharding; 0: all */
    bool recompute;     /* operations may be recomputed */
    bool breadth_first; /* all microbatches in one group */
    bool depth_first;   /* shortest groups: interleaved 1F1B */
    bool offload;       /* rather than recomputing: activations that do not fit
                         * wait in host memory */
    bool uneven;        /* the first chunks may have fewer layers */
    /* as PipeMesh's planner: chunks by its rule, then lh_elastic_choose()
     * without the conditions that the paper omits */
    bool published;
    const uint32_t *layers; /* per chunk; NULL: as even as possible */
    uint32_t chunks;        /* per device; 0: any */
    uint32_t queue;         /* microbatches in the first group; 0: any */
    int64_t below_ns; /* upper limit: iterations this long are useless; 0: no
                       * limit */
    /* As in lh_elastic_setting, for the whole layout. */
    bool (*stopped)(void *context, bool works);
    void *context;
} lhi_elastic_options;

/* Result of the search on one layout. */
typedef struct lhi_elastic_result {
    lhi_config config;      /* with its chunks per device */
    lhi_built_layout built; /* pipeline with the plan's communication */
    lh_schedule *schedule;
    const lh_plan_elastic *details; /* in the caller's arena */
    int64_t offloaded_bytes;        /* per device, peak */
    int64_t copying_ns;             /* host copies, out and back */
    int64_t makespan_ns;
    uint64_t work; /* search work, about microseconds */
} lhi_elastic_result;

/* Checks whether elastic plans are possible for this job and layout: the
 * training framework and requested schedule, sharding over replicas, and enough
 * microbatches. */
bool lhi_elastic_is_applicable(const lh_job *job, const lhi_config *config);

/* Checks whether the job requires an elastic plan if one exists, even when
 * other schedules are faster. */
bool lhi_elastic_is_required(const lh_job *job);

/* Finds the fastest elastic plan (microbatch groups, sharding, recomputation)
 * with the degrees, microbatch size and outermost parallelism of `like`.
 * LH_EINFEASIBLE, LH_EUNSUPPORTED: none exists; `err` has the reason. Release
 * out->built.pipeline and out->schedule. */
lh_status lhi_elastic_search_layout(const lh_job *job, const lhi_config *like,
                                    const lhi_elastic_options *freedom,
                                    lhi_arena *mem, lhi_elastic_result *out,
                                    lh_error *err);

/* Computes into *out_ns a lower bound on the iteration time of any plan that
 * lhi_elastic_search_layout() could find, over all queues, shardings and
 * recomputations; INT64_MAX: nothing fits. At or above freedom->below_ns the
 * bound may not be tight. Adds to *work, in the unit of lhi_elastic_result. */
lh_status lhi_elastic_compute_layout_bound(const lh_job *job,
                                           const lhi_config *like,
                                           const lhi_elastic_options *freedom,
                                           lhi_arena *mem, int64_t *out_ns,
                                           uint64_t *work, lh_error *err);

#endif
