/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic pipelines for a layout of a job. In: a layout's degrees and what is
 * free (chunks, groups, sharding, recomputation). Out: the fastest pipeline and
 * schedule of these, and what they would be without each part.
 *
 *   elastic_events.c   the search over queues and sharding on equal stages
 *                      (lh_elastic_search_events()), by event runs of what
 *                      elastic_build.c makes of a plan
 *   elastic_made.h     from what a plan says to a pipeline with the layout's
 *                      own times, links and memory
 *   elastic_shape.c    from a layout to such a search, and what it finds made
 *                      so
 *   elastic_bound.h    what no plan with given chunks is below
 *   elastic_layout.c   every number of chunks, sharding and queue by that
 *   elastic_choices.h  the best of all as rows of a plan, and what it would be
 *                      without each of its parts */
#ifndef LHI_ELASTIC_LAYOUT_H
#define LHI_ELASTIC_LAYOUT_H

#include "plan/layout/layout.h"

/* The method whose orders elastic plans are of. */
#define LHI_ELASTIC "elastic"

/* What is free in the search. */
typedef struct lhi_elastic_freedom {
    uint32_t shardings; /* bits 1 << lh_elastic_sharding; 0: all */
    bool recompute;     /* operations may be recomputed */
    bool breadth_first; /* all microbatches in one group */
    bool depth_first;   /* groups as short as can be: interleaved 1F1B */
    bool offload;       /* in place of recomputing: activations that do not fit
                           wait in the host's memory */
    bool uneven;        /* the first chunks may have fewer layers */
    bool published;     /* as PipeMesh's planner has it: chunks by its rule, and
                           what lh_elastic_choose() gives for these without
                           the conditions that the paper leaves out */
    const uint32_t *layers; /* of each chunk; NULL: as even as can be */
    uint32_t chunks;        /* per device; 0: any */
    uint32_t queue;         /* microbatches of the first group; 0: any */
    int64_t below_ns; /* iterations that take as long or longer are of no use;
                         0: all are */
    /* As in lh_elastic_setting, of the whole layout. */
    bool (*stopped)(void *context, bool works);
    void *context;
} lhi_elastic_freedom;

typedef struct lhi_elastic_result {
    lhi_config config; /* with its chunks per device */
    lhi_built built;   /* its pipeline communicates as the plan says */
    lh_schedule *schedule;
    const lh_plan_elastic *details; /* in the arena given */
    int64_t offloaded_bytes;        /* per device, at most at once */
    int64_t copying_ns; /* of these to the host, and of these back */
    int64_t makespan_ns;
    uint64_t work; /* what was done to find it, in about microseconds */
} lhi_elastic_result;

/* Whether elastic plans are for this job and layout at all. */
bool lhi_elastic_suits(const lh_job *job, const lhi_config *config);

/* Whether the job's plan is an elastic one, where there is one, though others
 * may be faster. */
bool lhi_elastic_alone(const lh_job *job);

/* The fastest elastic plan on the degrees, micro-batch and outermost
 * parallelism of `like`. LH_EINFEASIBLE, LH_EUNSUPPORTED: there is none; `err`
 * says why. Release out->built.pipeline and out->schedule. */
lh_status lhi_elastic_layout(const lh_job *job, const lhi_config *like,
                             const lhi_elastic_freedom *freedom, lhi_arena *mem,
                             lhi_elastic_result *out, lh_error *err);

/* What no iteration is below of a plan that lhi_elastic_layout() could find,
 * whatever the queue, the sharding and what is recomputed; INT64_MAX: nothing
 * fits. What is no less than freedom->below_ns may be lower than it could be.
 * Adds to *work as lhi_elastic_result has it. */
lh_status lhi_elastic_layout_floor(const lh_job *job, const lhi_config *like,
                                   const lhi_elastic_freedom *freedom,
                                   lhi_arena *mem, int64_t *out_ns,
                                   uint64_t *work, lh_error *err);

#endif
