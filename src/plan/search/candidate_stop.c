/* SPDX-License-Identifier: Apache-2.0 */
/* Search stop conditions. */
#include "plan/search/candidate.h"
#include "plan/search/search_limits.h"

static bool is_late(const lhi_layout_search *s)
{
    return s->until_s > 0 && lhi_processor_s() >= s->until_s;
}

static bool wants_what_there_is(const lhi_layout_search *s, uint32_t total)
{
    const lh_plan_options *o = &s->options;
    if (s->stop && atomic_load(s->stop))
        return true;
    return !s->elsewhere && o->progress &&
           o->progress(o->context, (uint32_t)s->n_simulated, total,
                       s->best_ns == INT64_MAX ? -1 : s->best_ns);
}

bool lhi_layout_search_asked(lhi_layout_search *s, uint32_t total)
{
    s->asked = s->asked || wants_what_there_is(s, total);
    return s->asked;
}

bool lhi_layout_search_stopped(lhi_layout_search *s, uint32_t total, bool works)
{
    bool asked = lhi_layout_search_asked(s, total);
    if ((!asked && !is_late(s)) || (s->best_ns == INT64_MAX && !works))
        return false;
    s->options.quick = s->options.quick || asked;
    return true;
}
