/* SPDX-License-Identifier: Apache-2.0 */
/* How much a search over layouts may do. Work is counted in units of about a
 * microsecond, so that what comes out is the same on every machine; only where
 * the caller asks for it a clock is looked at. */
#ifndef LHI_SEARCH_LIMITS_H
#define LHI_SEARCH_LIMITS_H

#include "plan/layout/space.h"

typedef struct lhi_search_limits {
    uint64_t most_work;
    double until_s; /* of the process's time; 0: no such limit */
} lhi_search_limits;

/* Of the process, all its threads together. */
double lhi_processor_s(void);

/* Work for a search over layouts, but for that of a quick plan. */
uint64_t lhi_layout_effort(const lh_plan_options *options);

/* As the options have it, of which a quick plan gets a part, and each of
 * `sharing` searches (0: one). */
lhi_search_limits lhi_search_limits_of(const lh_plan_options *options,
                                       uint32_t sharing);

/* Whether the last of `parts` parts out of `of` has begun. */
bool lhi_search_limits_reached(const lhi_search_limits *limits, uint64_t work,
                               uint32_t parts, uint32_t of);

/* What is done, as work. */
uint64_t lhi_work_of_bound(lhi_level level, uint32_t n_datacenters);
uint64_t lhi_work_of_pipeline(const lhi_config *config);
uint64_t lhi_work_of_schedules(const lhi_config *config, bool every_method);

#endif
