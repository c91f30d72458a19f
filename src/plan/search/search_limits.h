/* SPDX-License-Identifier: Apache-2.0 */
/* How much a search over layouts may do. Work is counted in units of about a
 * microsecond, so that what comes out is the same on every machine; only where
 * the caller asks for it a clock is looked at. */
#ifndef LHI_SEARCH_LIMITS_H
#define LHI_SEARCH_LIMITS_H

#include "plan/layout/space.h"

/* What is over of the seconds that a plan may take when a part of its search
 * ends: the layouts, layers moved between their chunks, elastic plans; the rest
 * is for optimal schedules. Quick plans are searches of layouts alone. */
#define LHI_SHARE_OF_LAYOUTS 0.6
#define LHI_SHARE_WITH_LAYERS 0.8
#define LHI_SHARE_WITH_ELASTIC 0.9

/* With less work a search over layouts is hardly past the upper levels of its
 * tree, and what it has then is worse than what it finds where a dimension is
 * given. So effort below a thirtieth of the default does not take it away, and
 * a search with as much has so much for its dives, which find most of what
 * little work finds. */
#define LHI_LEAST_WORK UINT64_C(1000000)
#define LHI_LEAST_DIVES UINT64_C(3000000)

typedef struct lhi_search_limits {
    uint64_t most_work;
    double from_s, seconds; /* of the process's time; 0: no such limit */
} lhi_search_limits;

/* Of the process, all its threads together. */
double lhi_processor_s(void);

/* Work for a search over layouts, but for that of a quick plan: what the
 * options say, or by their effort LHI_LEAST_WORK at least. */
uint64_t lhi_layout_effort(const lh_plan_options *options);

/* As the options have it, of which a quick plan gets a part, and each of
 * `sharing` searches (0: one). */
lhi_search_limits lhi_search_limits_of(const lh_plan_options *options,
                                       uint32_t sharing);

/* Of the dives of a search that is no quick one. */
lhi_search_limits lhi_dive_limits_of(const lh_plan_options *options);

/* When so much of options->seconds is over, of which a quick plan gets a part;
 * 0: never. `from_s`: when the search began. */
double lhi_search_until(const lh_plan_options *options, double from_s,
                        double share);

/* Whether the last of `parts` parts out of `of` has begun. */
bool lhi_search_limits_reached(const lhi_search_limits *limits, uint64_t work,
                               uint32_t parts, uint32_t of);

/* Options of what is to end at a time. */
typedef struct lhi_deadline {
    const lh_plan_options *given;
    double until_s; /* of the process's time; 0: never */
} lhi_deadline;
/* As `options`, but `progress` says when it is over, too; they are good as long
 * as *out and `options` are. */
lh_plan_options lhi_options_until(const lh_plan_options *options,
                                  double until_s, lhi_deadline *out);

/* What is done, as work. */
uint64_t lhi_work_of_bound(lhi_level level, uint32_t n_datacenters);
uint64_t lhi_work_of_pipeline(const lhi_config *config);
uint64_t lhi_work_of_evening(const lhi_config *config); /* building it, too */
uint64_t lhi_work_of_schedules(const lhi_config *config, bool every_method);

#endif
