/* SPDX-License-Identifier: Apache-2.0 */
/* What no elastic plan with given chunks is below: docs/theory/elastic.md. */
#ifndef LHI_ELASTIC_BOUND_H
#define LHI_ELASTIC_BOUND_H

#include "plan/elastic/elastic_layout.h"

/* What none of them is below. */
typedef struct lhi_elastic_floor {
    int64_t makespan_ns; /* INT64_MAX: none fits */
    int64_t after_ns;    /* optimizer and what an iteration costs in any case */
} lhi_elastic_floor;

/* Of every queue, sharding and recomputation that `freedom` has on the chunks
 * of `config`. `job` is one with ZeRO-1, as lhi_elastic_shape() takes it.
 * LH_EINFEASIBLE, LH_EUNSUPPORTED: there is no such pipeline; `err` says why.
 * With offloading nothing is known: 0. Once it is clear that no iteration is
 * below freedom->below_ns, it is no higher than that says. */
lh_status lhi_elastic_floor_of(const lh_job *job, const lhi_config *config,
                               const lhi_elastic_freedom *freedom,
                               lhi_elastic_floor *out, lh_error *err);

/* What that takes, in about microseconds. */
uint64_t lhi_elastic_work_of_floor(const lhi_config *config);

#endif
