/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/search_budget.h"

#include <math.h>
#include <time.h>

enum {
    WORK_PER_EFFORT = 75,      /* work for layouts per effort: about 30 s */
    QUICK_DIVISOR = 15,        /* a quick plan has 1/QUICK_DIVISOR */
    MIN_SHARED = 10,           /* plan searches that share work can make */
    BUILDS_PER_REBALANCE = 10, /* pipeline builds per rebalancing */
};

double lhi_read_processor_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

uint64_t lhi_get_effort(const lh_plan_options *options)
{
    return options->effort ? options->effort : LHI_DEFAULT_EFFORT;
}

uint64_t lhi_scale_by_effort(const lh_plan_options *options, uint64_t work)
{
    const uint64_t effort = lhi_get_effort(options);
    const double times = (double)effort / (double)LHI_DEFAULT_EFFORT;
    if (times <= 1)
        return work;
    return times * (double)work < (double)INT64_MAX
               ? (uint64_t)(times * (double)work)
               : INT64_MAX;
}

uint64_t lhi_compute_layout_work(const lh_plan_options *options)
{
    const uint64_t effort = lhi_get_effort(options);
    if (options->layout_effort)
        return options->layout_effort;
    if (effort <= LHI_MIN_SEARCH_WORK / WORK_PER_EFFORT)
        return LHI_MIN_SEARCH_WORK;
    return effort < UINT64_MAX / WORK_PER_EFFORT ? effort * WORK_PER_EFFORT
                                                 : UINT64_MAX;
}

bool lhi_may_double_work(const lh_plan_options *options, uint64_t given,
                         bool gained)
{
    const uint64_t all = lhi_compute_layout_work(options);
    const uint64_t effort = lhi_get_effort(options);
    const uint64_t saved =
        effort > LHI_DEFAULT_EFFORT ? all / effort * LHI_DEFAULT_EFFORT : all;
    return given < (gained ? all : all - saved);
}

lhi_search_limits lhi_local_search_limits(const lh_plan_options *options)
{
    enum { SHARE = 3 }; /* local search: 1/SHARE of the work for layouts */
    lhi_search_limits limits = lhi_search_limits_from_options(options, SHARE);
    bool whole = lhi_compute_layout_work(options) >= LHI_MIN_SEARCH_WORK;
    if (whole && limits.most_work < LHI_MIN_LOCAL_SEARCH_WORK)
        limits.most_work = LHI_MIN_LOCAL_SEARCH_WORK;
    return limits;
}

lhi_search_limits lhi_search_limits_from_options(const lh_plan_options *options,
                                                 uint32_t sharing)
{
    uint32_t parts =
        (options->quick ? QUICK_DIVISOR : 1) * (sharing ? sharing : 1);
    if (options->seconds > 0)
        return (lhi_search_limits){
            .most_work = UINT64_MAX,
            .from_s = lhi_read_processor_seconds(),
            .seconds = options->seconds / parts *
                       (options->quick ? 1 : LHI_SHARE_OF_LAYOUTS)};
    return (lhi_search_limits){
        .most_work = lhi_compute_layout_work(options) / parts + 1};
}

double lhi_compute_search_deadline(const lh_plan_options *options,
                                   double from_s, double share)
{
    double seconds = options->seconds / (options->quick ? QUICK_DIVISOR : 1);
    return options->seconds > 0 ? from_s + share * seconds : 0;
}

bool lhi_search_limits_are_reached(const lhi_search_limits *limits,
                                   uint64_t work, uint32_t parts, uint32_t of)
{
    if (work > limits->most_work / of * parts)
        return true;
    return limits->seconds > 0 &&
           lhi_read_processor_seconds() >=
               limits->from_s + limits->seconds * parts / of;
}

lh_plan_options lhi_options_for_questions(const lh_plan_options *options)
{
    /* work relative to the plan's: docs/theory/plan-search.md */
    const double parts[] = {
        0.1 * options->n_questions, options->sensitivity ? 2 : 0,
        options->curves ? 2 : 0, options->pareto_front ? 4.0 / 3 : 0};
    lh_plan_options with = *options;
    double most = 0, all = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        most = fmax(most, parts[i]);
        all += parts[i];
    }
    if (!(all > most))
        return with;
    /* Every search for a question has the minimum of a plan. */
    const uint64_t whole = lhi_compute_layout_work(options);
    const uint64_t least = MIN_SHARED * LHI_MIN_SEARCH_WORK;
    const uint64_t part = (uint64_t)((double)whole * most / all);
    if (whole > least)
        with.layout_effort = part > least ? part : least;
    with.seconds *= most / all;
    return with;
}

void lhi_ensure_quick_work(lh_plan_options *options)
{
    const uint64_t least = QUICK_DIVISOR * LHI_MIN_SEARCH_WORK;
    const uint64_t work = lhi_compute_layout_work(options);
    if (work >= MIN_SHARED * LHI_MIN_SEARCH_WORK && work < least)
        options->layout_effort = least;
}

/* Checks whether the deadline has passed or the caller asks to stop. Progress
 * callback. */
static bool is_over(void *context, uint32_t done, uint32_t total,
                    int64_t best_ns)
{
    const lhi_deadline *d = context;
    const lh_plan_options *o = d->given;
    return (d->until_s > 0 && lhi_read_processor_seconds() >= d->until_s) ||
           (o->progress && o->progress(o->context, done, total, best_ns));
}

/* Passes the progress over layouts on to the caller's callback. Returns true if
 * it asks to stop. */
static bool is_watched(void *context, const lh_plan_progress *now)
{
    const lhi_deadline *d = context;
    return d->given->layout_progress &&
           d->given->layout_progress(d->given->context, now);
}

lh_plan_options lhi_options_with_deadline(const lh_plan_options *options,
                                          double until_s, lhi_deadline *out)
{
    lh_plan_options with = *options;
    *out = (lhi_deadline){options, until_s};
    with.progress = is_over;
    with.layout_progress = is_watched;
    with.context = out;
    return with;
}

uint64_t lhi_estimate_bound_work(lhi_level level, uint32_t n_datacenters)
{
    return level < LHI_LEVEL_DEGREES    ? 10
           : level == LHI_LEVEL_DEGREES ? 1
                                        : 8 * (1 + (uint64_t)n_datacenters);
}

/* Returns the total chunk count of a configuration: pipeline degree times
 * chunks per device. */
static uint64_t count_chunks(const lhi_config *config)
{
    return (uint64_t)config->layout.pipeline * config->layout.chunks_per_device;
}

uint64_t lhi_estimate_pipeline_work(const lhi_config *config)
{
    return 20 + 2 * count_chunks(config);
}

uint64_t lhi_estimate_rebalance_work(const lhi_config *config)
{
    return BUILDS_PER_REBALANCE * lhi_estimate_pipeline_work(config);
}

uint64_t lhi_estimate_schedule_work(const lhi_config *config, bool every_method)
{
    uint64_t passes = 3 * count_chunks(config) * config->microbatches;
    return lhi_estimate_pipeline_work(config) + passes / (every_method ? 2 : 5);
}
