/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bound on the iteration time with elastic plans on given chunks:
 * docs/theory/elastic.md. */
#ifndef LHI_PLANNER_ELASTIC_BOUND_H
#define LHI_PLANNER_ELASTIC_BOUND_H

#include "planner/elastic/layout_search.h"

/* Lower bound for elastic plans on one set of chunks. */
typedef struct lhi_elastic_lower_bound {
    int64_t makespan_ns; /* INT64_MAX: nothing fits */
    int64_t after_ns;    /* optimizer and fixed iteration overhead */
} lhi_elastic_lower_bound;

/* Computes a lower bound over every elastic plan (queue length, sharding and
 * recomputation) that `freedom` allows on `config`'s chunks. `job` uses ZeRO-1.
 * Stops early once no iteration can be below freedom->below_ns; 0 with
 * offloading. LH_EINFEASIBLE, LH_EUNSUPPORTED: no such pipeline exists; `err`
 * has the reason. */
lh_status lhi_elastic_compute_bound(const lh_job *job, const lhi_config *config,
                                    const lhi_elastic_options *freedom,
                                    lhi_elastic_lower_bound *out,
                                    lh_error *err);

/* Returns the estimated time of lhi_elastic_compute_bound(), in work units
 * (about microseconds). */
uint64_t lhi_elastic_estimate_bound_work(const lhi_config *config);

#endif
