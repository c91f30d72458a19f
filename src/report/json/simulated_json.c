/* SPDX-License-Identifier: Apache-2.0 */
/* JSON output for `longhaul simulate` for one iteration. */
#include "base/fail.h"
#include "base/options.h"
#include "format/document/schema.h"
#include "report/json/json_parts.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/json_output.h>
#include <longhaul/experimental/simulate.h>

#include <stdio.h>

/* Builds the JSON object of one critical-path segment: its kind, pass or
 * message, start and end. */
static json_t *segment_json(const lh_timeline *timeline, const lh_segment *s)
{
    char pass[LH_PASS_TEXT_SIZE];
    json_t *j =
        json_pack("{s:s, s:o, s:o, s:I}", "kind", lh_segment_name(s->kind),
                  "start_s", lhi_json_seconds(s->start_ns), "end_s",
                  lhi_json_seconds(s->end_ns), "device", (json_int_t)s->device);
    bool ok = s->kind == LH_SEGMENT_COLLECTIVE
                  ? lhi_json_set(j, "chunk", json_integer(s->pass.chunk))
                  : lhi_json_set(j, "pass",
                                 json_string(lh_pass_format(&s->pass, pass)));
    if (s->kind == LH_SEGMENT_COPY)
        ok = ok && lhi_json_set(j, "back", json_boolean(s->pass.kind != LH_F));
    if (s->kind == LH_SEGMENT_TRANSFER || s->kind == LH_SEGMENT_LATENCY) {
        uint32_t n;
        const lh_message *m = &lh_timeline_messages(timeline, &n)[s->message];
        if (m->resource != LH_NONE)
            ok = ok && lhi_json_set(j, "link",
                                    json_string(lh_timeline_resource_name(
                                        timeline, m->resource)));
    }
    return lhi_json_finish(j, ok);
}

/* Builds the critical path as a segment list. */
static json_t *path_json(const lh_simulated *s)
{
    uint32_t n;
    const lh_segment *path = lh_analysis_critical_path(s->analysis, &n);
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        list = lhi_json_append(list, segment_json(s->timeline, &path[i]));
    return list;
}

/* Builds the JSON object with idle time by cause, in seconds, summed over all
 * devices. */
static json_t *bubble_json(const lh_simulated *s)
{
    const int64_t *idle = lh_analysis_idle(s->analysis, LH_NONE);
    json_t *map = json_object();
    bool ok = map != NULL;
    for (uint32_t i = 0; ok && i < LH_N_CAUSES; i++)
        ok = lhi_json_set(map, lh_cause_name((lh_cause)i),
                          lhi_json_seconds(idle[i]));
    return lhi_json_finish(map, ok);
}

/* Lists links in JSON: for each its messages, busy time, utilisation (share of
 * the makespan) and queueing time. */
static json_t *links_json(const lh_simulated *s)
{
    uint32_t n;
    const lh_link_use *links = lh_analysis_links(s->analysis, &n);
    double total = (double)lh_timeline_makespan(s->timeline);
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        list = lhi_json_append(
            list,
            json_pack("{s:s, s:I, s:o, s:f, s:o, s:I}", "name", links[i].name,
                      "messages", (json_int_t)links[i].n_messages, "busy_s",
                      lhi_json_seconds(links[i].busy_ns), "utilisation",
                      total > 0 ? (double)links[i].busy_ns / total : 0.0,
                      "queued_s", lhi_json_seconds(links[i].queued_ns),
                      "max_queue", (json_int_t)links[i].max_queue));
    return list;
}

/* Builds the JSON object for the boundary between stages i and i + 1: slackness
 * (difference of their warm-up counts), message delay and tolerated delay. The
 * latter is null if it was not computed or any delay is tolerated (key
 * tolerates_any). */
static json_t *boundary_json(const lh_slack *slack, uint32_t i)
{
    const int64_t most = slack->tolerance_ns;
    const bool any = most == LH_NO_LIMIT;
    json_t *j =
        json_pack("{s:[I, I], s:I, s:I, s:o, s:o}", "between", (json_int_t)i,
                  (json_int_t)i + 1, "warmup", (json_int_t)slack->warmup,
                  "slackness", (json_int_t)slack->slackness, "tolerates_s",
                  any || most < 0 ? json_null() : lhi_json_seconds(most),
                  "delay_s", lhi_json_seconds(slack->delay_ns));
    const bool ok =
        j && (!any || lhi_json_set(j, "tolerates_any", json_true()));
    return lhi_json_finish(j, ok);
}

/* Builds the JSON list of stage boundaries with their slackness (difference of
 * warm-up counts) and the message delay that they tolerate. */
static json_t *slack_json(const lh_simulated *s)
{
    uint32_t n;
    const lh_slack *slack = lh_analysis_slack(s->analysis, &n);
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        list = lhi_json_append(list, boundary_json(&slack[i], i));
    return list;
}

/* Builds the JSON list with data-parallel link names per device; null if
 * unnamed. */
static json_t *dp_links_json(const lh_pipeline *p)
{
    json_t *list = json_array();
    for (uint32_t d = 0; list && d < lh_pipeline_n_devices(p); d++) {
        const char *name = lh_pipeline_dp_link(p, d);
        list = lhi_json_append(list, name ? json_string(name) : json_null());
    }
    return list;
}

/* Checks whether any device has a named data-parallel link. */
static bool has_dp_links(const lh_pipeline *p)
{
    for (uint32_t d = 0; d < lh_pipeline_n_devices(p); d++)
        if (lh_pipeline_dp_link(p, d))
            return true;
    return false;
}

/* Copies the caller's input struct. LH_EINVAL: a required member is missing. */
static lh_status copy_input(const lh_simulated *given, lh_simulated *s,
                            lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_simulated, s, given, err));
    if (!s->name || !s->pipeline || !s->schedule || !s->timeline ||
        !s->analysis)
        return lhi_fail(err, LH_EINVAL,
                        "lh_simulated: name, pipeline, schedule, timeline and "
                        "analysis are required");
    return LH_OK;
}

/* Computes the lower bound on the makespan; for a plan takes the higher one
 * that its search may have proven. */
static lh_status find_bound(const lh_simulated *s, lh_bound *out, lh_error *err)
{
    LHI_TRY(lhi_compute_closed_form_bound(s->pipeline, out, err));
    if (!s->plan || s->schedule != s->plan->schedule ||
        lh_pipeline_has_host(s->pipeline))
        return LH_OK;
    const lh_choice *best = &s->plan->best;
    int64_t ns = best->lower_bound_ns - best->optimizer_ns - best->overhead_ns;
    if (ns <= out->ns)
        return LH_OK;
    out->ns = ns;
    snprintf(out->text, sizeof out->text, "by the planner's search");
    return LH_OK;
}

lh_status lh_simulated_bound(const lh_simulated *simulated, lh_bound *out,
                             lh_error *err)
{
    lh_simulated s;
    lh_bound bound;
    LHI_TRY(copy_input(simulated, &s, err));
    LHI_TRY(find_bound(&s, &bound, err));
    *out = bound;
    return LH_OK;
}

/* Returns the time in ns that a plan's iteration takes after the pipeline, for
 * the optimizer and overhead; 0 without a plan. */
static int64_t get_after_ns(const lh_simulated *s)
{
    return s->plan ? s->plan->best.optimizer_ns + s->plan->best.overhead_ns : 0;
}

/* Builds the JSON statistics of simulations under jitter. For a plan, adds the
 * optimizer and overhead time to every statistic except the sample count, so
 * that they refer to whole iterations. */
static json_t *jitter_json(const lh_simulated *s)
{
    const int64_t after = get_after_ns(s);
    const lh_jitter_result r = {.samples = s->jitter->samples,
                                .mean_ns = s->jitter->mean_ns + (double)after,
                                .min_ns = s->jitter->min_ns + after,
                                .p50_ns = s->jitter->p50_ns + after,
                                .p95_ns = s->jitter->p95_ns + after,
                                .p99_ns = s->jitter->p99_ns + after,
                                .max_ns = s->jitter->max_ns + after};
    json_t *j = lhi_json_jitter(&r);
    if (j && !lhi_json_set(j, "of",
                           json_string(s->plan ? "iteration" : "makespan"))) {
        json_decref(j);
        return NULL;
    }
    return j;
}

/* Adds the members that only some simulations have (such as gap to the
 * lower bound, host memory, jitter) to JSON object `j`; false on allocation
 * failure. */
static bool add_optional_members(json_t *j, const lh_simulated *s,
                                 const lh_bound *bound)
{
    const int64_t ns = lh_timeline_makespan(s->timeline);
    bool ok = j != NULL;
    if (s->objective == LH_SOLVE_OBJECTIVE_MAKESPAN &&
        lh_timeline_fits(s->timeline, NULL)) {
        double gap =
            bound->ns > 0 ? (double)(ns - bound->ns) / (double)bound->ns : 0;
        ok = ok && lhi_json_set(j, "gap", json_real(gap)) &&
             lhi_json_set(j, "limited_by", json_string(bound->text));
    }
    if (lh_pipeline_has_host(s->pipeline))
        ok = ok &&
             lhi_json_set(j, "host_memory",
                          lhi_json_host_memory(
                              s->pipeline, json_object_get(j, "peak_memory")));
    if (s->plan)
        ok = ok && lhi_json_set(j, "iteration_s",
                                lhi_json_seconds(ns + get_after_ns(s)));
    if (has_dp_links(s->pipeline))
        ok = ok && lhi_json_set(j, "dp_links", dp_links_json(s->pipeline));
    if (s->jitter)
        ok = ok && lhi_json_set(j, "jitter", jitter_json(s));
    return ok;
}

lh_status lh_simulated_format(const lh_simulated *simulated, char **text,
                              size_t *len, lh_error *err)
{
    lh_simulated s;
    lh_bound bound;
    LHI_TRY(copy_input(simulated, &s, err));
    LHI_TRY(find_bound(&s, &bound, err));
    const lh_timeline *t = s.timeline;
    const bool first = s.objective == LH_SOLVE_OBJECTIVE_FIRST_DEVICE;
    const int64_t first_ns = lh_timeline_first_device_end(t);
    json_t *j = json_pack(
        "{s:s, s:o, s:o, s:s, s:o, s:o, s:f, s:o, s:s, s:b, s:o, s:o, s:o, "
        "s:o}",
        "schedule", s.name, "makespan_s",
        lhi_json_seconds(lh_timeline_makespan(t)), "first_device_s",
        lhi_json_seconds(first_ns), "objective",
        first ? "first-device" : "makespan", "objective_s",
        lhi_json_seconds(first ? first_ns : lh_timeline_makespan(t)),
        "lower_bound_s", lhi_json_seconds(bound.ns), "bubble_ratio",
        lh_timeline_bubble_ratio(t), "peak_memory", lhi_json_peak_memory(t),
        "memory_unit", lh_pipeline_memory_unit(s.pipeline), "fits",
        lh_timeline_fits(t, NULL), "bubble_s", bubble_json(&s), "links",
        links_json(&s), "slack", slack_json(&s), "critical_path",
        path_json(&s));
    return lhi_json_format_indented(
        lhi_json_finish(j, add_optional_members(j, &s, &bound)), 2, text, len,
        err);
}
