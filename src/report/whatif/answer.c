/* SPDX-License-Identifier: Apache-2.0 */
#include "report/whatif/whatif.h"

#include "base/arena.h"
#include "report/comparison/compare_internal.h"
#include "report/page/page_json.h"
#include "schedule/pipeline/file/schedule_csv.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/analysis.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/report.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/scheduler.h>

#include <inttypes.h>
#include <string.h>

/* The iteration under the changes, with all displayed results. */
typedef struct answer {
    lhi_whatif_pipeline now;
    lh_scheduler_result best; /* owns the schedule if a method made it */
    const lh_schedule *schedule;
    const char *method;
    lh_timeline *timeline;
    lh_analysis *analysis;
    lh_trace *trace;
    lh_report_analysis *shown;
} answer;

/* Frees a what-if answer's contents. */
static void answer_fini(answer *a)
{
    lh_report_analysis_free(a->shown);
    lh_trace_free(a->trace);
    lh_analysis_free(a->analysis);
    lh_timeline_free(a->timeline);
    lh_scheduler_result_fini(&a->best);
    lhi_whatif_pipeline_fini(&a->now);
}

/* Determines the changed pipeline's schedule as `longhaul simulate` does: the
 * given one, or the chosen method's result. LH_EINPUT: the given one has
 * another number of microbatches. */
static lh_status find_schedule(const lhi_whatif_base *q, answer *a,
                               lh_error *err)
{
    a->schedule = q->schedule;
    a->method = q->method;
    if (!a->now.method[0]) {
        if (lh_pipeline_n_microbatches(a->now.pipeline) !=
            lh_pipeline_n_microbatches(q->pipeline))
            return lhi_fail(err, LH_EINPUT,
                            "the pipeline's order is for %" PRIu32
                            " microbatches; choose a schedule method",
                            lh_pipeline_n_microbatches(q->pipeline));
        return LH_OK;
    }
    lh_method_options how = {.size = sizeof how, .sim = &a->now.sim_options};
    lh_scheduler_options o = {.size = sizeof o, .method = &how};
    LHI_TRY(
        lh_scheduler_run(a->now.method, a->now.pipeline, &o, &a->best, err));
    a->schedule = a->best.schedule;
    a->method = a->best.method;
    return LH_OK;
}

/* Applies the changes in `line`, makes the schedule, simulates it and analyses
 * the result. */
static lh_status evaluate(const lhi_whatif_base *q, const char *line, answer *a,
                          lh_error *err)
{
    LHI_TRY(lhi_whatif_apply_changes(q->pipeline, &q->sim, line, &a->now, err));
    const lh_pipeline *p = a->now.pipeline;
    LHI_TRY(find_schedule(q, a, err));
    LHI_TRY(
        lh_simulate(p, a->schedule, &a->now.sim_options, &a->timeline, err));
    LHI_TRY(lh_analysis_make(p, a->schedule, a->timeline, &a->analysis, err));
    LHI_TRY(lh_trace_make(p, a->timeline, a->method, &a->trace, err));
    return lh_report_analysis_make(a->trace, a->analysis, &a->shown, err);
}

/* --- JSON output ---------------------------------------------------------- */

/* Adds each stage boundary's slackness, delay and delay tolerance; times in
 * ns. */
static void add_slack(const lh_analysis *analysis, lhi_text *out)
{
    uint32_t n;
    const lh_slack *s = lh_analysis_slack(analysis, &n);
    lhi_text_puts(out, ",\n\"slack\":[");
    for (uint32_t i = 0; i < n; i++) {
        lhi_text_printf(out,
                        "%s{\"warmup\":%" PRIu32 ",\"slackness\":%" PRId64
                        ",\"delay\":%" PRId64 ",\"tolerates\":",
                        i ? "," : "", s[i].warmup, s[i].slackness,
                        s[i].delay_ns);
        if (s[i].tolerance_ns == LH_NO_LIMIT)
            lhi_text_puts(out, "\"any\"}");
        else if (s[i].tolerance_ns < 0)
            lhi_text_puts(out, "null}");
        else
            lhi_text_printf(out, "%" PRId64 "}", s[i].tolerance_ns);
    }
    lhi_text_puts(out, "]");
}

/* Adds the changed pipeline's fields that replace those in the original
 * pipeline file. */
static void add_file(const lh_pipeline *p, lhi_text *out)
{
    lhi_text_printf(out,
                    ",\n\"file\":{\"microbatches\":%" PRIu32 ",\"chunks\":[",
                    lh_pipeline_n_microbatches(p));
    for (uint32_t i = 0; i < lh_pipeline_n_chunks(p); i++) {
        const lh_chunk *c = lh_pipeline_chunk(p, i);
        lhi_text_printf(out, "%s[%" PRId64 ",%" PRId64 ",%" PRId64 "]",
                        i ? "," : "", c->f_ns, c->d_ns, c->w_ns);
    }
    lhi_text_puts(out, "],\"links\":[");
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++) {
        const lh_link *l = lh_pipeline_link(p, i);
        lhi_text_printf(out, "%s[%" PRId64 ",%" PRId64 "]", i ? "," : "",
                        l->latency_ns, l->transfer_ns);
    }
    lhi_text_puts(out, "],\"limits\":");
    lhi_text_puts(out, p->has_limits ? "[" : "null");
    for (uint32_t d = 0; p->has_limits && d < p->n_devices; d++)
        lhi_text_printf(out, "%s%" PRId64, d ? "," : "",
                        lh_pipeline_memory_limit(p, d));
    lhi_text_puts(out, p->has_limits ? "]}" : "}");
}

/* Adds the schedule's text: pass order per device, and message order per link.
 */
static lh_status add_schedule(const answer *a, lhi_text *out, lh_error *err)
{
    char *rows = NULL, *links = NULL;
    lh_status status = lh_schedule_format(a->schedule, &rows, NULL, err);
    if (status == LH_OK)
        status = lhi_schedule_format_links(a->schedule, &links, NULL, err);
    if (status == LH_OK) {
        lhi_text_puts(out, ",\n\"schedule\":[");
        lhi_json_add_string(out, rows);
        lhi_text_puts(out, ",");
        lhi_json_add_string(out, links ? links : "");
        lhi_text_puts(out, "]");
    }
    lh_text_free(rows);
    lh_text_free(links);
    return status;
}

/* Adds the command-line options with which `longhaul simulate` reproduces the
 * result. */
static void add_options(const answer *a, lhi_text *out)
{
    const lh_sim_options *sim = &a->now.sim_options;
    lhi_text_puts(out, ",\n\"options\":\"");
    if (a->now.method[0])
        lhi_text_printf(out, " --schedule %s", a->now.method);
    if (sim->override_receives || sim->receives != LH_RECEIVES_EARLY)
        lhi_text_printf(out, " --receives %s", lh_receives_name(sim->receives));
    if (sim->coupled_queue)
        lhi_text_printf(out, " --coupled %" PRIu32, sim->coupled_queue);
    lhi_text_puts(out, sim->fifo ? " --fifo\"" : "\"");
}

/* Adds the resulting iteration as a JSON object: makespan, trace, slack,
 * pipeline fields, options and schedule. */
static lh_status add_answer(const answer *a, lhi_text *out, lh_error *err)
{
    lh_report_analysis shown;
    LHI_TRY(lhi_report_copy_analysis(a->trace, a->shown, &shown, err));
    lhi_text_printf(out, "{\"makespan\":%" PRId64 ",\"fits\":%s,\"method\":",
                    lh_timeline_makespan(a->timeline),
                    lh_timeline_fits(a->timeline, NULL) ? "true" : "false");
    lhi_json_add_string(out, a->method);
    lhi_text_puts(out, ",\n\"trace\":");
    LHI_TRY(lhi_page_add_trace(out, a->trace, a->method, &shown, err));
    add_slack(a->analysis, out);
    add_file(a->now.pipeline, out);
    add_options(a, out);
    if (!a->now.method[0])
        LHI_TRY(add_schedule(a, out, err));
    lhi_text_puts(out, "}");
    return out->failed ? lhi_fail_nomem(err) : LH_OK;
}

lh_status lhi_whatif(const lhi_whatif_base *question, const char *line,
                     lhi_text *out, lh_error *err)
{
    answer a = {0};
    lh_status status = evaluate(question, line, &a, err);
    if (status == LH_OK)
        status = add_answer(&a, out, err);
    answer_fini(&a);
    return status;
}

/* --- schedule table ------------------------------------------------------- */

lh_status lhi_whatif_add_row(const lhi_whatif_base *question, const char *line,
                             const char *method, lhi_text *out, lh_error *err)
{
    lhi_whatif_pipeline now;
    lh_outcome o;
    LHI_TRY(lhi_whatif_apply_changes(question->pipeline, &question->sim, line,
                                     &now, err));
    lh_compare_options how = {.size = sizeof how, .sim = &now.sim_options};
    lhi_compare_case on = {.pipeline = now.pipeline,
                           .schedule_pipeline = now.pipeline};
    lhi_arena *mem = lhi_arena_make(0);
    lh_status status =
        mem ? lhi_compare_evaluate_method(&how, method, &on, mem, &o, err)
            : lhi_fail_nomem(err);
    if (status == LH_OK) {
        bool ok = o.status == LH_OK;
        lh_report_row row = {.method = method,
                             .status = lh_outcome_status_name(&o),
                             .makespan_ns = o.ns,
                             .bubble_ratio = ok ? o.bubble_ratio : -1,
                             .peak_memory = ok ? o.peak_memory : -1,
                             .why = o.why};
        lhi_page_add_row(out, &row);
        if (out->failed)
            status = lhi_fail_nomem(err);
    }
    lhi_arena_free(mem);
    lhi_whatif_pipeline_fini(&now);
    return status;
}

/* --- controls ------------------------------------------------------------- */

/* Returns the first link that uses resource `resource` (links that share
 * bandwidth have one) and connects datacenters; NULL if there is none. */
static const lh_link *first_site_link(const lh_pipeline *p, uint32_t resource)
{
    for (uint32_t i = 0; i < p->n_links; i++)
        if (p->link_resources[i] == resource &&
            lhi_link_is_inter_site(p, lh_pipeline_link(p, i)))
            return lh_pipeline_link(p, i);
    return NULL;
}

/* Appends the links between datacenters as a JSON list, with their latency and
 * transfer time in ns. */
static void add_site_links(const lh_pipeline *p, lhi_text *out)
{
    const char *between = "";
    lhi_text_puts(out, ",\n\"links\":[");
    for (uint32_t r = 0; r < p->n_resources; r++) {
        const lh_link *link = first_site_link(p, r);
        if (!link)
            continue;
        lhi_text_printf(out, "%s{\"name\":", between);
        lhi_json_add_string(out, p->resource_names[r]);
        lhi_text_printf(out,
                        ",\"latency\":%" PRId64 ",\"transfer\":%" PRId64 "}",
                        link->latency_ns, link->transfer_ns);
        between = ",";
    }
    lhi_text_puts(out, "]");
}

/* Appends scheduling methods with descriptions as a JSON list. Member
 * "row": whether the table of schedules computes the method; false for slow
 * searches. */
static void add_methods(lhi_text *out)
{
    lhi_text_puts(out, ",\n\"methods\":[");
    for (uint32_t i = 0; i < lh_n_schedulers(); i++) {
        const char *name = lh_scheduler_name(i);
        lhi_text_printf(out, "%s{\"name\":\"%s\",\"about\":", i ? "," : "",
                        name);
        lhi_json_add_string(out, lh_scheduler_about(i));
        lhi_text_printf(out, ",\"row\":%s}",
                        lh_scheduler_is_search(name) || lh_method_is_auto(name)
                            ? "false"
                            : "true");
    }
    lhi_text_puts(out, "]");
}

lh_status lhi_whatif_add_controls(const lhi_whatif_base *question,
                                  lhi_text *out, lh_error *err)
{
    const lh_pipeline *p = question->pipeline;
    const lh_sim_options *sim = &question->sim;
    lh_receives receives =
        sim->override_receives || sim->receives ? sim->receives : p->receives;
    lhi_text_printf(out,
                    "{\"devices\":%" PRIu32 ",\"microbatches\":%" PRIu32
                    ",\"fixed\":%s,\"limits\":%s,\"receives\":\"%s\""
                    ",\"coupled\":%" PRIu32 ",\"method\":",
                    p->n_devices, p->n_microbatches,
                    p->n_dp_ops || p->n_enqueue ? "true" : "false",
                    p->has_limits ? "true" : "false",
                    lh_receives_name(receives), sim->coupled_queue);
    lhi_json_add_string(out, question->method);
    add_site_links(p, out);
    add_methods(out);
    lhi_text_puts(out, "}");
    return out->failed ? lhi_fail_nomem(err) : LH_OK;
}
