/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the train command's HTML report and its iterations as an image. */
#include "difference_view.h"
#include "train_internal.h"
#include "view.h"
#include "wrap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds the last iteration's schedule, data path and slow links to the report,
 * as the displayed iteration's heading. */
static lh_status add_last_facts(cli *c, const cli_view *began,
                                const lh_event_timeline *timeline,
                                const lh_train_result *r, lh_report *report)
{
    char text[CLI_SLOW_TEXT];
    uint64_t step = train_last_step(r);
    CLI_TRY(lh_report_add_fact(report, "schedule",
                               train_schedule_name_at(began, r, step, false),
                               &c->err));
    CLI_TRY(lh_report_add_fact(report, "path of messages",
                               train_path_name_at(c, r, step), &c->err));
    if (!timeline)
        return LH_OK;
    cli_slow_text(timeline, lh_event_timeline_state(timeline, step), text);
    return lh_report_add_fact(report, "slow in this iteration", text, &c->err);
}

/* Returns the event timeline's state number (active event set) at a step; 0
 * without events. */
static uint32_t get_state(const lh_event_timeline *timeline, uint64_t step)
{
    return timeline ? lh_event_timeline_state(timeline, step) : 0;
}

/* Buffer size for a schedule's name and data path, with the end mark. */
#define FOLLOWED_TEXT 160

/* Writes the schedule at a step to `text`, which it returns. If the run
 * switches data paths, the path follows, as in "slack, delegated" (sent by a
 * helper thread). */
static const char *format_schedule(cli *c, const cli_view *began,
                                   const lh_train_result *r, uint64_t step,
                                   char text[FOLLOWED_TEXT])
{
    uint32_t n;
    const lh_switch *rows = lh_train_switches(r, &n);
    bool switches = false;
    for (uint32_t i = 1; i < n; i++)
        switches = switches || rows[i].path != rows[0].path;
    if (n > 0)
        switches = switches || rows[0].path != LH_DATA_PATH_DIRECT;
    snprintf(text, FOLLOWED_TEXT, "%.120s%s%s",
             train_schedule_name_at(began, r, step, false),
             switches ? ", " : "",
             switches ? train_path_name_at(c, r, step) : "");
    return text;
}

/* Returns the end of the range of iterations from `first` on with the same
 * events and schedule; *mean_ns is its mean iteration time. */
static uint32_t find_span_end(cli *c, const cli_view *began,
                              const lh_event_timeline *timeline,
                              const lh_train_result *r, uint32_t first,
                              int64_t *mean_ns)
{
    const lh_iteration *all = r->iterations;
    char name[FOLLOWED_TEXT], other[FOLLOWED_TEXT];
    format_schedule(c, began, r, all[first].step, name);
    uint32_t state = get_state(timeline, all[first].step), end = first;
    int64_t sum = 0;
    while (
        end < r->n_iterations && get_state(timeline, all[end].step) == state &&
        strcmp(format_schedule(c, began, r, all[end].step, other), name) == 0)
        sum += all[end++].ns;
    *mean_ns = sum / (end - first);
    return end;
}

/* Adds a row to the report for each iteration range with the same events and
 * schedule. predicted_ns: per iteration; NULL without events. */
static lh_status add_iterations(cli *c, const cli_view *began,
                                const lh_event_timeline *timeline,
                                const int64_t *predicted_ns,
                                const lh_train_result *r, lh_report *report)
{
    static const char *const with[] = {"iterations", "slow", "schedule",
                                       "#predicted", "#measured, mean"};
    static const char *const without[] = {"iterations", "schedule",
                                          "#measured, mean"};
    char steps[48], slow[CLI_SLOW_TEXT], was[CLI_TIME_TEXT], is[CLI_TIME_TEXT];
    char what[FOLLOWED_TEXT];
    const lh_iteration *all = r->iterations;
    int64_t mean_ns;
    cli_table t = {0};
    static const char *const slow_alone[] = {"iterations", "slow", "schedule",
                                             "#measured, mean"};
    if (timeline)
        cli_table_row(&t, predicted_ns ? 5 : 4,
                      predicted_ns ? with : slow_alone);
    else
        cli_table_row(&t, 3, without);
    for (uint32_t i = 0, end; i < r->n_iterations; i = end) {
        end = find_span_end(c, began, timeline, r, i, &mean_ns);
        snprintf(steps, sizeof steps, "%" PRIu64 " to %" PRIu64, all[i].step,
                 all[end - 1].step);
        const char *name = format_schedule(c, began, r, all[i].step, what);
        const char *plain[] = {steps, name, cli_time_text(mean_ns, is)};
        if (!timeline) {
            cli_table_row(&t, 3, plain);
            continue;
        }
        cli_slow_text(timeline, lh_event_timeline_state(timeline, all[i].step),
                      slow);
        const char *alone[] = {steps, slow, name, is};
        if (!predicted_ns) {
            cli_table_row(&t, 4, alone);
            continue;
        }
        const char *cells[] = {steps, slow, name,
                               cli_time_text(predicted_ns[i], was), is};
        cli_table_row(&t, 5, cells);
    }
    return cli_table_report(c,
                            timeline ? "Iterations and their events"
                                     : "Iterations and their schedules",
                            &t, report);
}

/* Returns the report's label for a migration, which names whether layers, ranks
 * or both move. */
static const char *get_migration_label(const lh_migration *m)
{
    if (m->n_chunks && m->n_places)
        return "layers and ranks move";
    return m->n_chunks ? "layers move" : "ranks change";
}

/* A mark's label in the chart of iterations. */
typedef char mark_label[160];

/* Fills in `marks` by the run's restarts, schedule switches and migrations, in
 * order and one per iteration, with their labels. Returns their number. */
static uint32_t fill_marks(const cli_view *began, const lh_train_result *r,
                           lh_report_mark *marks, mark_label *labels)
{
    uint32_t n_switches, n = 0, restart = 0;
    const lh_switch *rows = lh_train_switches(r, &n_switches);
    for (uint32_t i = 0; i <= n_switches; i++) {
        const uint64_t step = i < n_switches ? rows[i].step : UINT64_MAX;
        for (; restart < r->n_restarts && r->restarts[restart].step <= step;
             restart++) {
            const uint64_t at = r->restarts[restart].step;
            if (n > 0 && marks[n - 1].step == at)
                continue;
            snprintf(labels[n], sizeof *labels, "restart");
            marks[n] = (lh_report_mark){at, labels[n]};
            n++;
        }
        if (i == n_switches || rows[i].refused)
            continue;
        const lh_migration *moved = lh_train_migration(r, i);
        const bool is_restart = n > 0 && marks[n - 1].step == step &&
                                strcmp(labels[n - 1], "restart") == 0;
        n -= is_restart;
        snprintf(labels[n], sizeof *labels, "%s%s",
                 is_restart ? "restart, " : "",
                 moved ? get_migration_label(moved)
                       : train_schedule_name(began, rows[i].to));
        marks[n] = (lh_report_mark){step, labels[n]};
        n++;
    }
    return n;
}

lh_status train_draw_iterations(cli *c, const cli_view *began,
                                const lh_event_timeline *timeline,
                                const int64_t *predicted_ns,
                                const lh_train_result *r, lh_report *report)
{
    const train_settings *s = c->settings;
    const char *const names[] = {"measured", "predicted"};
    uint32_t n_switches, n = r->n_iterations;
    lh_train_switches(r, &n_switches);
    cli_slow_spans spans = {0};
    const size_t n_changes = n_switches + r->n_restarts + (size_t)1;
    lh_report_mark *marks = calloc(n_changes, sizeof *marks);
    mark_label *labels = calloc(n_changes, sizeof *labels);
    int64_t *ns = calloc(2 * (size_t)n + 1, sizeof *ns);
    lh_report_iterations drawn = {.size = sizeof drawn,
                                  .title = "Iterations",
                                  .first = n ? r->iterations[0].step : 0,
                                  .n_iterations = n,
                                  .n_series = predicted_ns ? 2 : 1,
                                  .series = names,
                                  .ns = ns,
                                  .marks = marks};
    lh_status status =
        marks && labels && ns
            ? cli_find_slow_spans(c, timeline, drawn.first, n, &spans)
            : cli_no_memory(c);
    for (uint32_t i = 0; status == LH_OK && i < n; i++) {
        ns[i] = r->iterations[i].ns;
        ns[n + i] = predicted_ns ? predicted_ns[i] : 0;
    }
    if (status == LH_OK)
        drawn.n_marks = fill_marks(began, r, marks, labels);
    drawn.spans = spans.all;
    drawn.n_spans = spans.n;
    if (status == LH_OK)
        status = report ? lh_report_add_iterations(report, &drawn, &c->err)
                        : cli_write_event_timeline(c, &drawn, s->svg);
    cli_slow_spans_fini(&spans);
    free(labels);
    free(marks);
    free(ns);
    return status;
}

/* Adds the differences between the passes of the last iteration and those of
 * its simulation, the trace `predicted`, to the report. */
static lh_status add_passes(cli *c, const lh_trace *predicted,
                            const lh_train_result *r, lh_report *report)
{
    static const char name[] = "passes of the last iteration";
    char text[TRAIN_PREDICTION_TEXT], a[CLI_TIME_TEXT], b[CLI_TIME_TEXT];
    lh_trace_difference d;
    if (!r->trace)
        return lh_report_add_fact(report, name, "not recorded", &c->err);
    CLI_TRY(lh_trace_compare(predicted, r->trace, &d, &c->err));
    if (r->trace->title[0])
        CLI_TRY(lh_report_add_fact(report, "clock", r->trace->title, &c->err));
    snprintf(text, sizeof text, "%s simulated, %s measured",
             cli_time_text(d.predicted_ns, a), cli_time_text(d.measured_ns, b));
    CLI_TRY(lh_report_add_fact(report, name, text, &c->err));
    return cli_deviation_facts(c, &d, report);
}

/* Adds the terminal's prediction and measurement of the iterations, and the
 * wall time by `clock`, to the report. */
static lh_status add_times(cli *c, const lh_plan *plan,
                           const train_clock *clock, const lh_train_result *r,
                           lh_report *report)
{
    char text[TRAIN_PREDICTION_TEXT];
    train_prediction_text(c, plan, r, text);
    CLI_TRY(lh_report_add_fact(report, "predicted", text, &c->err));
    train_measured_text(r, text);
    CLI_TRY(lh_report_add_fact(report, "measured", text, &c->err));
    train_elapsed_text(clock, r, text);
    CLI_TRY(lh_report_add_fact(report, "elapsed", text, &c->err));
    if (train_restarts_text(r, text))
        CLI_TRY(lh_report_add_fact(report, "restarts", text, &c->err));
    return train_load_text(c, clock, r, text)
               ? lh_report_add_fact(report, "load", text, &c->err)
               : LH_OK;
}

lh_status train_write_html(cli *c, const cli_view *began, const cli_view *v,
                           const lh_plan *plan, const train_changes *changes,
                           const int64_t *predicted_ns,
                           const lh_train_result *r)
{
    const lh_event_timeline *timeline = changes->event_timeline;
    const train_settings *s = c->settings;
    lh_report *report = NULL;
    uint32_t n_switches;
    lh_train_switches(r, &n_switches);
    CLI_TRY(lh_report_make(cli_utf8_name(c, c->operands[0]), &report, &c->err));
    lh_status status = add_times(c, plan, &changes->clock, r, report);
    if (status == LH_OK)
        status = add_passes(c, v->trace, r, report);
    if (status == LH_OK)
        status = add_last_facts(c, began, timeline, r, report);
    if (status == LH_OK)
        status =
            train_draw_iterations(c, began, timeline, predicted_ns, r, report);
    if (status == LH_OK && s->adapt)
        status = train_notices_report(c, r, report);
    if (status == LH_OK)
        status = train_migrations_report(c, r, report);
    if (status == LH_OK && (timeline || n_switches))
        status = add_iterations(c, began, timeline, predicted_ns, r, report);
    if (status == LH_OK)
        status = lh_report_add_trace(report, v->trace, "predicted", v->shown,
                                     &c->err);
    if (status == LH_OK && r->trace)
        status =
            lh_report_add_trace(report, r->trace, "measured", NULL, &c->err);
    if (status == LH_OK)
        status = cli_write_html(c, report, s->html);
    lh_report_free(report);
    return status;
}
