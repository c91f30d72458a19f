/* SPDX-License-Identifier: Apache-2.0 */
/* Search stop conditions. */
#include "planner/search/candidate.h"
#include "planner/search/search_budget.h"

bool lhi_layout_search_is_late(const lhi_layout_search *s)
{
    return s->until_s > 0 && lhi_read_processor_seconds() >= s->until_s;
}

/* Checks whether another thread or the caller asks to stop. Reports progress
 * over `total` layouts, but not from worker threads. */
static bool is_asked_to_stop(const lhi_layout_search *s, uint32_t total)
{
    const lh_plan_options *o = &s->options;
    if (s->stop && atomic_load(s->stop))
        return true;
    return !s->on_worker_thread && o->progress &&
           o->progress(o->context, (uint32_t)s->n_simulated, total,
                       s->best_ns == INT64_MAX ? -1 : s->best_ns);
}

bool lhi_layout_search_is_cancelled(lhi_layout_search *s, uint32_t total)
{
    s->cancelled = s->cancelled || is_asked_to_stop(s, total);
    return s->cancelled;
}

bool lhi_layout_search_should_stop(lhi_layout_search *s, uint32_t total,
                                   bool works)
{
    bool asked = lhi_layout_search_is_cancelled(s, total);
    if (!asked && !lhi_layout_search_is_late(s))
        return false;
    /* Jobs that require idle GPUs are searched beside a plan. */
    if (s->best_ns == INT64_MAX && !works && !(asked && s->job->min_gpus))
        return false;
    s->options.quick = s->options.quick || asked;
    return true;
}
