/* SPDX-License-Identifier: Apache-2.0 */
/* Plans whose datacenters have different values (docs/theory/unequal.md):
 * unequal microbatches, where replicas in datacenters with different GPUs
 * process different numbers of sequences per microbatch; and different tensor
 * degrees for the stages of a pipeline over datacenters. */
#ifndef LHI_PLANNER_SEARCH_UNEQUAL_BOUND_H
#define LHI_PLANNER_SEARCH_UNEQUAL_BOUND_H

#include "planner/search/lower_bound.h"

enum {
    LHI_UNEQUAL_MAX_SITES = 4,      /* more datacenters are not searched */
    LHI_UNEQUAL_MAX_MICRO_BATCH = 8 /* largest size searched, in sequences */
};

/* Checks whether the search for a plan also tries unequal microbatches: there
 * are few datacenters with different GPUs, and neither the job nor the options
 * exclude them. */
bool lhi_unequal_is_searched(const lh_job *job, const lh_plan_options *options);
/* Checks whether the search for a plan also tries different tensor degrees per
 * datacenter: the job requests them, and neither the job nor the options
 * exclude them. */
bool lhi_site_tensors_are_searched(const lh_job *job,
                                   const lh_plan_options *options);
/* Checks whether the search for a plan also tries plans whose datacenters have
 * different values, of either kind. */
bool lhi_differing_is_searched(const lh_job *job,
                               const lh_plan_options *options);
/* Computes in *ns a lower bound on the iteration time for all plans whose
 * datacenters have different values, as far as the search tries them. */
lh_status lhi_differing_compute_bound(const lh_job *job,
                                      const lh_plan_options *options,
                                      int64_t *ns, lh_error *err);

/* One microbatch's least pass times, without messages, with one set of tensor,
 * context and expert degrees. */
typedef struct lhi_unequal_times {
    lhi_config group; /* degrees up to LHI_LEVEL_GROUP, any micro_batch */
    uint32_t ranks[LHI_UNEQUAL_MAX_SITES]; /* pipeline ranks that fit */
    /* [datacenter][micro_batch - 1], in ns */
    int64_t ns[LHI_UNEQUAL_MAX_SITES][LHI_UNEQUAL_MAX_MICRO_BATCH];
} lhi_unequal_times;

/* Lists, for every set of degrees in the job's search space, the pass times by
 * datacenter and microbatch size, in `mem`; for plans with unequal
 * microbatches. */
lh_status lhi_unequal_list_times(const lh_job *job, lhi_arena *mem,
                                 lhi_unequal_times **out, uint32_t *n,
                                 lh_error *err);

/* Computes in *ns a lower bound on the iteration time for all plans with
 * unequal microbatches with at most LHI_UNEQUAL_MAX_MICRO_BATCH sequences: all
 * passes on all GPUs, each datacenter with its best size. */
lh_status lhi_unequal_compute_bound(const lh_job *job, int64_t *ns,
                                    lh_error *err);

#endif
