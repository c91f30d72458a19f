/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output for `longhaul schedule` for a schedule that it made. */
#include "base/fail.h"
#include "base/options.h"
#include "format/document/schema.h"
#include "report/json/json_parts.h"

#include <longhaul/experimental/json_output.h>
#include <longhaul/experimental/simulate.h>

/* Builds the JSON list of the solver's engines (search algorithms): for each
 * whether it is on, its work, calls, improvements and time gained. */
static json_t *engines_json(const lh_scheduled *s)
{
    json_t *all = json_array();
    for (uint32_t i = 0; all && i < s->n_engines; i++) {
        const lh_solve_engine *e = &s->engines[i];
        all = lhi_json_append(
            all,
            json_pack("{s:s, s:b, s:I, s:I, s:I, s:o}", "name", e->name, "on",
                      e->on, "effort", (json_int_t)e->effort, "calls",
                      (json_int_t)e->calls, "improved", (json_int_t)e->improved,
                      "gained_s", lhi_json_seconds(e->gained_ns)));
    }
    return all;
}

/* Builds the JSON output of `schedule` if no schedule fits the memory limits:
 * times are null, the status is "infeasible". */
static json_t *infeasible_json(const lh_scheduled *s)
{
    return json_pack(
        "{s:s, s:s, s:n, s:n, s:n, s:s, s:s, s:n, s:n, s:s, s:f, s:o}",
        "method", s->method, "requested", s->requested, "makespan_s",
        "lower_bound_s", "gap", "limited_by", s->limited_by, "status",
        "infeasible", "bubble_ratio", "peak_memory", "memory_unit",
        lh_pipeline_memory_unit(s->pipeline), "seconds", s->seconds, "engines",
        engines_json(s));
}

/* Adds a search's result for the least memory limit to JSON object `j`: the
 * limit, its lower bound, and whether it is proven optimal; false on allocation
 * failure. */
static bool add_memory(json_t *j, const lh_memory_point *p)
{
    const bool proven = p->limit_bound == p->limit;
    return lhi_json_set(j, "objective", json_string("memory")) &&
           lhi_json_set(j, "memory_limit", json_integer(p->limit)) &&
           lhi_json_set(j, "memory_limit_bound",
                        json_integer(p->limit_bound)) &&
           lhi_json_set(j, "memory_status",
                        json_string(proven ? "optimal" : "feasible"));
}

/* Adds the members that only some schedules have (such as host memory, makespan
 * with first in, first out) to JSON object `j`; false on allocation failure. */
static bool add_optional_members(json_t *j, const lh_scheduled *s)
{
    bool ok = j != NULL;
    if (lh_pipeline_has_host(s->pipeline))
        ok = ok &&
             lhi_json_set(j, "host_memory",
                          lhi_json_host_memory(
                              s->pipeline, json_object_get(j, "peak_memory")));
    if (s->fifo_ns > 0)
        ok = ok &&
             lhi_json_set(j, "fifo_makespan_s", lhi_json_seconds(s->fifo_ns));
    if (s->split_ns > 0)
        ok = ok &&
             lhi_json_set(j, "whole_cost_s",
                          lhi_json_seconds(lh_timeline_makespan(s->timeline) -
                                           s->split_ns));
    if (s->certificate && s->proof)
        ok = ok && lhi_json_set(j, "certificate",
                                json_pack("{s:s, s:s}", "file", s->certificate,
                                          "proof", s->proof));
    if (s->n_engines > 0)
        ok = ok && lhi_json_set(j, "engines", engines_json(s));
    return ok && (!s->memory || add_memory(j, s->memory));
}

/* Builds the JSON output for a schedule with its makespan, lower bound and
 * memory. */
static json_t *scheduled_json(const lh_scheduled *s)
{
    const lh_timeline *t = s->timeline;
    const int64_t ns = s->objective == LH_SOLVE_OBJECTIVE_FIRST_DEVICE
                           ? lh_timeline_first_device_end(t)
                           : lh_timeline_makespan(t);
    const int64_t bound = s->bound_ns;
    json_t *j = json_pack(
        "{s:s, s:s, s:o, s:o, s:f, s:s, s:s, s:f, s:o, s:s, s:f}", "method",
        s->method, "requested", s->requested, "makespan_s",
        lhi_json_seconds(lh_timeline_makespan(t)), "lower_bound_s",
        lhi_json_seconds(bound), "gap",
        bound > 0 ? (double)(ns - bound) / (double)bound : 0.0, "limited_by",
        s->limited_by, "status", ns == bound ? "optimal" : "feasible",
        "bubble_ratio", lh_timeline_bubble_ratio(t), "peak_memory",
        lhi_json_peak_memory(t), "memory_unit",
        lh_pipeline_memory_unit(s->pipeline), "seconds", s->seconds);
    return lhi_json_finish(j, add_optional_members(j, s));
}

lh_status lh_scheduled_format(const lh_scheduled *scheduled, char **text,
                              size_t *len, lh_error *err)
{
    lh_scheduled s;
    LHI_TRY(LHI_OPTIONS_COPY(lh_scheduled, &s, scheduled, err));
    if (!s.requested || !s.method || !s.pipeline || !s.limited_by ||
        (s.n_engines && !s.engines))
        return lhi_fail(err, LH_EINVAL,
                        "lh_scheduled: requested, method, pipeline, limited_by "
                        "and its engines are required");
    return lhi_json_format_indented(s.timeline ? scheduled_json(&s)
                                               : infeasible_json(&s),
                                    2, text, len, err);
}
