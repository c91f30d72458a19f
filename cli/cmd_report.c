/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul report: HTML from plans and traces; predicted against
 * measured. */
#include "commands.h"
#include "difference_view.h"
#include "plan_comparison.h"
#include "plan_explanation.h"
#include "view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct settings {
    const char *predicted, *measured, *log, *title;
} settings;

static const cli_option options[] = {
    {.name = "predicted",
     .type = CLI_TEXT,
     .at = offsetof(settings, predicted),
     .arg = "FILE",
     .help = "Predicted iteration (a trace or a plan) to compare with "
             "--measured.",
     .words = CLI_WORDS_FILES},
    {.name = "measured",
     .type = CLI_TEXT,
     .at = offsetof(settings, measured),
     .arg = "FILE",
     .help =
         "Measured iteration (a trace) to compare with --predicted, pass by "
         "pass.",
     .words = CLI_WORDS_FILES},
    {.name = "log",
     .type = CLI_TEXT,
     .at = offsetof(settings, log),
     .arg = "FILE",
     .help = "With --measured: log of train --log; compares every iteration of "
             "its last run with the prediction.",
     .words = CLI_WORDS_FILES},
    {.name = "title",
     .type = CLI_TEXT,
     .at = offsetof(settings, title),
     .arg = "TEXT",
     .help = "Heading of the report (default: the first file's name)."},
};

static const cli_example examples[] = {
    {"longhaul report plan.json",
     "Write report.html with the plan's timeline and comparisons."},
    {"longhaul report a.json b.json c.json -o all.html",
     "Show traces one below the other on a common time axis."},
    {"longhaul report before.json after.json -o both.html",
     "Show two plans side by side, with a table of differences."},
    {"longhaul report --predicted a.json --measured b.json",
     "Compare a run with its prediction, pass by pass."},
};

/* Comparison between --predicted and --measured. */
typedef struct comparison {
    lh_trace_difference difference;
    char how[160];   /* measurement method, from the trace's title */
    lh_run_log *log; /* NULL: not given */
} comparison;

/* One input file: a trace, or a plan with its simulation. */
typedef struct source {
    cli_problem problem;
    cli_view view;
    lh_trace *trace; /* from a trace file */
} source;

/* Frees one input file's data: its trace, its schedule and timeline, and its
 * pipeline or plan. */
static void source_fini(source *s)
{
    lh_trace_free(s->trace);
    cli_view_fini(&s->view);
    cli_problem_fini(&s->problem);
}

/* Returns the input's trace: the one read from a trace file, or else the
 * simulated one of a plan. The source keeps ownership. */
static const lh_trace *get_trace(const source *s)
{
    return s->trace ? s->trace : s->view.trace;
}

/* Reads a trace from the opened input, or from its file if its text is not in
 * memory. */
static lh_status read_trace(cli *c, const cli_input *input, lh_trace **out)
{
    if (input->text)
        return lh_trace_parse(input->text, input->len, input->path, out,
                              &c->err);
    return lh_trace_read(input->path, out, &c->err);
}

/* Simulates the plan's own schedule, and stores schedule and timeline in the
 * input's view. */
static lh_status simulate_plan(cli *c, source *s)
{
    const lh_plan *plan = s->problem.plan;
    s->view.pipeline = plan->pipeline;
    s->view.schedule = plan->schedule;
    s->view.method = plan->best.layout.schedule;
    return cli_view_simulate(c, &s->view, &(cli_model){0}, plan->name);
}

/* Reads a plan, which is simulated, or a trace; rejects other formats. */
static lh_status read_source(cli *c, const char *path, source *out)
{
    cli_input input;
    lh_status status = cli_input_open(c, path, &input);
    if (status == LH_OK && strcmp(input.kind, "plan") == 0) {
        status = cli_input_plan(c, &input, &out->problem.plan);
        if (status == LH_OK)
            status = simulate_plan(c, out);
    } else if (status == LH_OK && cli_input_is_other(&input, "trace")) {
        status = cli_reject_input(c, &input, "plans and traces");
    } else if (status == LH_OK) {
        status = read_trace(c, &input, &out->trace);
    }
    cli_input_close(&input);
    return status;
}

/* Adds a plan's facts and alternatives, if the input is a plan, and the input's
 * timeline called `label` to the report. */
static lh_status add_source(cli *c, const source *s, const char *label,
                            lh_report *report)
{
    if (s->problem.plan) {
        CLI_TRY(cli_plan_facts(c, s->problem.plan, report));
        CLI_TRY(cli_plan_rows(c, s->problem.plan, report));
        CLI_TRY(cli_plan_reasons(c, s->problem.plan, report));
    }
    return lh_report_add_trace(report, get_trace(s), label, s->view.shown,
                               &c->err);
}

/* Adds an input's timeline to the report, and its file name as a fact (a
 * labelled line) called `name`. */
static lh_status add_named(cli *c, const source *s, const char *name,
                           lh_report *report)
{
    CLI_TRY(lh_report_add_fact(report, "input", name, &c->err));
    return add_source(c, s, name, report);
}

/* Adds the file at `path` to the report. If it is the `first` one and a plan,
 * the page gets controls for what-if questions. */
static lh_status add_file(cli *c, const char *path, bool first,
                          lh_report *report)
{
    source s = {0};
    const char *name = cli_utf8_name(c, path);
    lh_status status = read_source(c, path, &s);
    if (status == LH_OK)
        status = add_named(c, &s, name, report);
    if (status == LH_OK && first && s.problem.plan)
        status = cli_view_add_whatif(c, &s.view, &(cli_model){0},
                                     s.problem.plan, report);
    source_fini(&s);
    return status;
}

/* Adds two files to the report: two plans side by side with their differences,
 * other files one after the other. */
static lh_status add_two_files(cli *c, lh_report *report)
{
    static const source none;
    source s[2] = {none, none};
    const char *names[2] = {0};
    lh_status status = LH_OK;
    for (int i = 0; status == LH_OK && i < 2; i++) {
        names[i] = cli_utf8_name(c, c->operands[i]);
        status = read_source(c, c->operands[i], &s[i]);
    }
    const lh_plan *const plans[2] = {s[0].problem.plan, s[1].problem.plan};
    if (status == LH_OK && plans[0] && plans[1])
        status = cli_compare_plans(c, plans, names, report);
    for (int i = 0; status == LH_OK && i < 2; i++)
        status = plans[0] && plans[1]
                     ? lh_report_add_trace(report, get_trace(&s[i]), names[i],
                                           s[i].view.shown, &c->err)
                     : add_named(c, &s[i], names[i], report);
    if (status == LH_OK && plans[0])
        status = cli_view_add_whatif(c, &s[0].view, &(cli_model){0}, plans[0],
                                     report);
    source_fini(&s[0]);
    source_fini(&s[1]);
    return status;
}

/* Compares the traces of --predicted and --measured, and adds both and their
 * difference to the report. `x` keeps both, for the caller to free. */
static lh_status add_pair(cli *c, lh_report *report, comparison *x)
{
    const settings *s = c->settings;
    source predicted = {0}, measured = {0};
    lh_status status = read_source(c, s->predicted, &predicted);
    if (status == LH_OK)
        status = read_source(c, s->measured, &measured);
    if (status == LH_OK)
        status = lh_trace_compare(get_trace(&predicted), get_trace(&measured),
                                  &x->difference, &c->err);
    if (status == LH_OK)
        snprintf(x->how, sizeof x->how, "%s", get_trace(&measured)->title);
    if (status == LH_OK && s->log)
        status = lh_run_log_read(s->log, &x->log, &c->err);
    if (status == LH_OK)
        status =
            cli_difference_facts(c, &x->difference, x->how, x->log, report);
    if (status == LH_OK)
        status = add_source(c, &predicted, "predicted", report);
    if (status == LH_OK)
        status = add_source(c, &measured, "measured", report);
    source_fini(&predicted);
    source_fini(&measured);
    return status;
}

/* Checks that inputs are given and that options that depend on each other come
 * together. */
static lh_status check_usage(cli *c)
{
    const settings *s = c->settings;
    if (!s->predicted != !s->measured)
        return cli_usage(c, "--predicted and --measured are required together");
    if (s->log && !s->measured)
        return cli_usage(c, "--log requires --measured");
    if (!s->predicted && c->n_operands == 0)
        return cli_usage(c, "no input; name plans or traces");
    return LH_OK;
}

/* Adds all inputs to the report and writes it. */
static lh_status write_report(cli *c, lh_report *report, comparison *x)
{
    const settings *s = c->settings;
    const char *path =
        c->common.output ? c->common.output : cli_default_output(c);
    if (s->predicted)
        CLI_TRY(add_pair(c, report, x));
    const bool two = c->n_operands == 2 && !s->predicted;
    if (two)
        CLI_TRY(add_two_files(c, report));
    for (uint32_t i = 0; i < c->n_operands && !two; i++)
        CLI_TRY(add_file(c, c->operands[i], i == 0, report));
    CLI_TRY(cli_write_html(c, report, path));
    if (c->common.json)
        return cli_put_json(
            c, cli_difference_json(s->predicted ? &x->difference : NULL, x->log,
                                   x->how, cli_utf8_name(c, path)));
    if (s->predicted)
        cli_difference_text(c, &x->difference, x->how, x->log);
    cli_print(c, "report        %s\n", path);
    return LH_OK;
}

/* Runs 'longhaul report' and frees its results. */
static lh_status run_report(cli *c)
{
    const settings *s = c->settings;
    CLI_TRY(check_usage(c));
    char both[400];
    const char *title = s->title       ? cli_utf8_name(c, s->title)
                        : s->predicted ? "predicted and measured"
                                       : cli_utf8_name(c, c->operands[0]);
    lh_report *report = NULL;
    comparison x = {0};
    if (!s->title && !s->predicted && c->n_operands == 2) {
        snprintf(both, sizeof both, "%s and %s", title,
                 cli_utf8_name(c, c->operands[1]));
        title = both;
    }
    CLI_TRY(lh_report_make(title, &report, &c->err));
    lh_status status = write_report(c, report, &x);
    lh_run_log_free(x.log);
    lh_report_free(report);
    return status;
}

const cli_command cmd_report = {
    .name = "report",
    .operands = "[PLAN|TRACE ...]",
    .most_operands = 16,
    .operand_words = CLI_WORDS_FILES,
    .about = "Write an HTML report from plans and traces",
    .description =
        "Writes one HTML file that works offline: timelines with zoom, search "
        "and the critical path, memory over time, tables, link utilisation. "
        "Several files are shown one below the other on a common time axis; "
        "for two plans a table lists the differences.\n"
        "\n"
        "With --predicted and --measured, compares two traces of the same "
        "passes: difference of the makespans, of the pass durations by kind, "
        "and of the start times; with --log, also all iterations of the run.",
    .output_help = "Write the report to FILE (default: report.html).",
    .handles_output = true,
    .default_output = "report.html",
    .default_signature = "content=\"longhaul\"",
    .default_with_json = true,
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_report,
};
