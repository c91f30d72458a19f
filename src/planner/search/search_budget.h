/* SPDX-License-Identifier: Apache-2.0 */
/* Work budget for a layout search. Work is counted in units near a microsecond,
 * so that results are the same on every machine; the clock is only read if the
 * caller sets a time limit. */
#ifndef LHI_PLANNER_SEARCH_SEARCH_BUDGET_H
#define LHI_PLANNER_SEARCH_SEARCH_BUDGET_H

#include "planner/layout/space.h"

/* Share of a plan's time limit that is used when a search part ends: layouts,
 * moved layers, elastic plans; the rest is for optimal schedules. Quick plans
 * only search layouts. */
#define LHI_SHARE_OF_LAYOUTS 0.6
#define LHI_SHARE_WITH_LAYERS 0.8
#define LHI_SHARE_WITH_ELASTIC 0.9

/* Default effort of a plan; lh_plan_options.effort. */
#define LHI_DEFAULT_EFFORT UINT64_C(400000)

/* Minimum work. With less, a search over layouts hardly passes its tree's upper
 * levels, and its results are worse than those of searches with a fixed
 * dimension. Effort below a thirtieth of the default therefore does not reduce
 * it. A search with that effort has this much for local search, which finds
 * most results at low effort. */
#define LHI_MIN_SEARCH_WORK UINT64_C(1000000)
#define LHI_MIN_LOCAL_SEARCH_WORK UINT64_C(3000000)

/* Work and time limits. */
typedef struct lhi_search_limits {
    uint64_t most_work;
    double from_s, seconds; /* process time; 0: no time limit */
} lhi_search_limits;

/* Returns the processor time of the process over all threads, in seconds. */
double lhi_read_processor_seconds(void);

/* Returns the options' effort, or the default. */
uint64_t lhi_get_effort(const lh_plan_options *options);

/* Returns `work`, the limit of a search at the default effort, in proportion to
 * an effort above the default; with less effort, `work` itself. */
uint64_t lhi_scale_by_effort(const lh_plan_options *options, uint64_t work);

/* Returns the work budget of a search over layouts, in work units (about a
 * microsecond): from the options, or by their effort, at least
 * LHI_MIN_SEARCH_WORK. */
uint64_t lhi_compute_layout_work(const lh_plan_options *options);

/* Checks whether a search that has had `given` of a plan's work for layouts may
 * have as much again: below all that work, if the last work `gained`; without a
 * gain, below the part of it that exceeds the default effort's. */
bool lhi_may_double_work(const lh_plan_options *options, uint64_t given,
                         bool gained);

/* Returns the options' work and time limits; a quick plan gets a part of them,
 * and so does each of `sharing` searches (0: one). */
lhi_search_limits lhi_search_limits_from_options(const lh_plan_options *options,
                                                 uint32_t sharing);

/* Returns the options for the searches that answer what-if questions,
 * sensitivity, Pareto front and curves. All requested ones together have the
 * work and time that the largest of them has alone. */
lh_plan_options lhi_options_for_questions(const lh_plan_options *options);

/* Raises the work in the options if needed, so that the part of it that a quick
 * plan gets is the minimum of a plan search; unless the caller asked for very
 * little. */
void lhi_ensure_quick_work(lh_plan_options *options);

/* Returns the work and time limits of the local search in a plan's search. */
lhi_search_limits lhi_local_search_limits(const lh_plan_options *options);

/* Returns the processor time, in seconds, at which the share `share` of
 * options->seconds is over; a quick plan gets a part. 0: no time limit.
 * `from_s`: processor time at the search's start. */
double lhi_compute_search_deadline(const lh_plan_options *options,
                                   double from_s, double share);

/* Checks whether `parts` out of `of` equal parts of the work or time limit are
 * used up. */
bool lhi_search_limits_are_reached(const lhi_search_limits *limits,
                                   uint64_t work, uint32_t parts, uint32_t of);

/* Options with a deadline. */
typedef struct lhi_deadline {
    const lh_plan_options *given;
    double until_s; /* process time; 0: never */
} lhi_deadline;
/* Returns `options` with a `progress` callback that also stops once the
 * processor time reaches `until_s`; valid as long as *out and `options`. */
lh_plan_options lhi_options_with_deadline(const lh_plan_options *options,
                                          double until_s, lhi_deadline *out);

/* Returns the estimated work for one lower bound on `level` (depth in the
 * search tree) in a job with n_datacenters datacenters, in work units (about a
 * microsecond). */
uint64_t lhi_estimate_bound_work(lhi_level level, uint32_t n_datacenters);
/* Returns the estimated work of building a pipeline, in work units. */
uint64_t lhi_estimate_pipeline_work(const lhi_config *config);
/* Returns the estimated work of building a pipeline and rebalancing its layers,
 * in work units. */
uint64_t lhi_estimate_rebalance_work(const lhi_config *config);
/* Returns the estimated work of running one schedule method or `every_method`,
 * in work units. */
uint64_t lhi_estimate_schedule_work(const lhi_config *config,
                                    bool every_method);

#endif
