/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul simulate: computes an iteration's duration and its
 * critical path. */
#include "chakra_view.h"
#include "commands.h"
#include "data_paths.h"
#include "event_timeline_view.h"
#include "jitter_view.h"
#include "view.h"
#include "wrap.h"

#include <longhaul/experimental/json_output.h>
#include <longhaul/experimental/simulate.h>

#include <inttypes.h>
#include <string.h>

typedef struct settings {
    const char *schedule, *trace, *html, *svg, *host_memory, *path;
    uint32_t sub_blocks;
    cli_model model;
    cli_jitter jitter;
    cli_event_simulation play;
} settings;

static const cli_option options[] = {
    CLI_SCHEDULE_ROW(settings),
    CLI_SUB_BLOCKS_ROW(settings, CLI_SUB_BLOCKS),
    CLI_HOST_MEMORY_ROW(settings, "Prints the host memory used."),
    CLI_HOST_COPY_ROW(settings),
    CLI_OUTPUT_ROW(settings, trace, "Write Chrome trace events, for Perfetto."),
    CLI_OUTPUT_ROW(settings, html, "Write an HTML report that works offline."),
    CLI_OUTPUT_ROW(settings, svg,
                   "Write the timeline as an SVG picture; with --events "
                   "completed iterations over time."),
    CLI_MODEL_ROWS(settings),
    CLI_OBJECTIVE_ROW(settings),
    CLI_JITTER_ROWS(settings),
    CLI_EVENTS_ROW(settings, play.events,
                   "Simulate --steps consecutive iterations under the link and "
                   "device slowdowns and rail failures of FILE. The schedule "
                   "is made without them."),
    {.name = "steps",
     .letter = 'n',
     .type = CLI_COUNT,
     .at = offsetof(settings, play.steps),
     .arg = "N",
     .least = 1,
     .most = 1000000,
     .help = "With --events: number of iterations."},
    {.name = "log",
     .type = CLI_OUTPUT,
     .at = offsetof(settings, play.log),
     .arg = "FILE",
     .help = "With --events: write one JSON line per iteration.",
     .words = CLI_WORDS_FILES},
    {.name = "adapt",
     .type = CLI_FLAG,
     .at = offsetof(settings, play.adapt),
     .help = "With --events: switch to another schedule if the predicted "
             "iteration is shorter. With --coupled or --receives late, also "
             "switch to delegated sends (by host threads, without delaying "
             "passes)."},
    {.name = "same-sums",
     .type = CLI_FLAG,
     .at = offsetof(settings, play.same_sums),
     .help = "With --adapt: use only schedules that keep each chunk's gradient "
             "reduction order, so that training stays bit-identical."},
    CLI_REPLICAS_ROW(settings, play.replicas,
                     "With --events: number of data-parallel replicas."),
    {.name = "moving",
     .type = CLI_TIME,
     .at = offsetof(settings, play.migration_ns),
     .arg = "TIME",
     .example_argument = "400ms",
     .help =
         "With --adapt: migration time of a host's weights and moments over a "
         "link without slowdown. Lets hosts exchange their ranks (with "
         "--replicas) and layers migrate (with --layers) if that saves time."},
    {.name = "layers",
     .type = CLI_TEXT,
     .at = offsetof(settings, play.layers),
     .arg = "N,N,...",
     .example_argument = "8,8,8,8",
     .help = "With --adapt and --moving: layers of each chunk; layers migrate "
             "from slow devices, and back, if that pays off."},
    {.name = "restart",
     .type = CLI_COUNT,
     .at = offsetof(settings, play.restart),
     .arg = "N",
     .least = 1,
     .most = 1000000,
     .help = "With --events: each rank has one network connection (rail); if "
             "it fails, the run restarts from the last checkpoint, at a cost "
             "of N more iterations. Default: two rails, of which one replaces "
             "the other."},
    CLI_PATH_ROWS(settings, play.staging_ns,
                  "With --path or --adapt: time to copy a message to or from "
                  "host memory at each end."),
};

static const cli_example examples[] = {
    {"longhaul simulate pipeline.yaml --schedule zb-h1",
     "Show the timeline of the zero-bubble H1 schedule and its idle time by "
     "cause."},
    {"longhaul simulate pipeline.yaml -s s.csv --receives late --html r.html",
     "Simulate a schedule file under rendezvous transfers; also write a "
     "report."},
    {"longhaul simulate plan.json --json --trace t.json",
     "Print numbers of a plan as JSON, and write a trace for Perfetto."},
    {"longhaul simulate plan.0.et",
     "Replay Chakra execution traces of all ranks."},
    {"longhaul simulate plan.json --jitter latency=0.2,degraded=0.01x3",
     "Also print the distribution of iteration times when links vary."},
    {"longhaul simulate pipeline.yaml -s zb-h2 --events events.yaml --steps 90",
     "Simulate ninety iterations, some of them with slow links."},
    {"longhaul simulate pipeline.yaml -s zb-h2 --events events.yaml -n 90 "
     "--adapt",
     "Also switch schedules when that pays off."},
};

/* The command's inputs and results. */
typedef struct work {
    cli_problem problem;
    cli_paths paths;
    cli_view view;
    lh_bound bound;
    lh_jitter_result jitter; /* samples 0: not requested */
    lh_jitter drawn;         /* jitter model that was sampled */
    double straggler_rate;   /* as given; for a plan: per GPU */
} work;

/* --- numbers ------------------------------------------------------------ */

/* Returns the iteration time in ns: the makespan, and for a plan also the
 * optimizer step and the fixed overhead after the pipeline. */
static int64_t get_iteration_ns(const work *w)
{
    if (!w->problem.plan)
        return lh_timeline_makespan(w->view.timeline);
    const lh_choice *best = &w->problem.plan->best;
    return lh_timeline_makespan(w->view.timeline) + best->optimizer_ns +
           best->overhead_ns;
}

/* Returns by which fraction the makespan exceeds the lower bound on it; 0
 * without a bound. */
static double compute_gap(const work *w)
{
    int64_t ns = lh_timeline_makespan(w->view.timeline), bound = w->bound.ns;
    return bound > 0 ? (double)(ns - bound) / (double)bound : 0;
}

/* Collects pointers to the simulation's results for the JSON writer; `w` keeps
 * ownership of them. */
static lh_simulated make_simulated(const work *w, const settings *s)
{
    const cli_view *v = &w->view;
    return (lh_simulated){.size = sizeof(lh_simulated),
                          .name = v->method,
                          .pipeline = v->pipeline,
                          .schedule = v->schedule,
                          .timeline = v->timeline,
                          .analysis = v->analysis,
                          .plan = w->problem.plan,
                          .jitter = w->jitter.samples ? &w->jitter : NULL,
                          .objective = (lh_solve_objective)s->model.objective};
}

/* Prints the simulation's results as JSON. */
static lh_status print_json(cli *c, const work *w)
{
    const lh_simulated all = make_simulated(w, c->settings);
    char *text = NULL;
    size_t len = 0;
    CLI_TRY(lh_simulated_format(&all, &text, &len, &c->err));
    cli_put_owned_text(c, text, len);
    return LH_OK;
}

/* --- text --------------------------------------------------------------- */

enum { MAX_ROWS = 16 }; /* rows per table; JSON lists all */

/* Prints how many of `count` rows were omitted from a table because of its row
 * limit, if any. */
static void print_omitted_rows(cli *c, uint32_t count)
{
    if (count > MAX_ROWS)
        cli_print(c, "  ... and %" PRIu32 " more: see --json\n",
                  count - MAX_ROWS);
}

/* Prints the idle time of all devices by cause (warm-up, communication, memory
 * and others), in percent of the makespan. */
static void print_bubble(cli *c, const cli_view *v)
{
    const int64_t *idle = lh_analysis_idle(v->analysis, LH_NONE);
    double all = (double)lh_timeline_makespan(v->timeline) *
                 lh_timeline_n_devices(v->timeline);
    cli_print(c, "\n"
                 "Idle time of all devices, by cause\n");
    for (uint32_t i = 0; i < LH_N_CAUSES; i++)
        if (idle[i] > 0)
            cli_print(c, "  %5.1f %%  %-14s %s\n", 100 * (double)idle[i] / all,
                      lh_cause_name((lh_cause)i), lh_cause_about((lh_cause)i));
}

/* Prints the number and total time of the critical path's segments, by kind. */
static void print_path(cli *c, const cli_view *v)
{
    uint32_t count;
    const lh_segment *path = lh_analysis_critical_path(v->analysis, &count);
    int64_t sums[LH_SEGMENT_COPY + 1] = {0};
    uint32_t counts[LH_SEGMENT_COPY + 1] = {0};
    for (uint32_t i = 0; i < count; i++) {
        sums[path[i].kind] += path[i].end_ns - path[i].start_ns;
        counts[path[i].kind]++;
    }
    char time[CLI_TIME_TEXT];
    const char *between = "";
    cli_print(c, "\nCritical path: ");
    for (uint32_t k = 0; k <= LH_SEGMENT_COPY; k++)
        if (counts[k]) {
            cli_print(c, "%s%s %s (%" PRIu32 ")", between,
                      lh_segment_name((lh_segment_kind)k),
                      cli_time_text(sums[k], time), counts[k]);
            between = ", ";
        }
    cli_print(c, "\n");
}

/* Formats a delay tolerance into `buffer` or static storage: LH_NO_LIMIT is
 * 'any delay', a negative value 'not known'. */
static const char *format_tolerance(int64_t ns, char *buffer)
{
    return ns < 0              ? "not known"
           : ns == LH_NO_LIMIT ? "any delay"
                               : cli_time_text(ns, buffer);
}

/* Prints, for each pair of neighbouring devices, the slackness (difference of
 * their warm-up forward passes) and the message delay that it hides. */
static void print_slack(cli *c, const cli_view *v)
{
    uint32_t count;
    const lh_slack *slack = lh_analysis_slack(v->analysis, &count);
    if (count == 0)
        return;
    char a[CLI_TIME_TEXT], b[CLI_TIME_TEXT];
    cli_print(c,
              "\n"
              "Slackness: delay between devices that the schedule absorbs\n"
              "  %-11s %9s %9s %12s %12s\n",
              "between", "warm-up", "slackness", "tolerates", "delay");
    for (uint32_t i = 0; i < count && i < MAX_ROWS; i++) {
        char between[32];
        int64_t most = slack[i].tolerance_ns;
        snprintf(between, sizeof between, "%" PRIu32 " and %" PRIu32, i, i + 1);
        cli_print(c, "  %-11s %9" PRIu32 " %9" PRId64 " %12s %12s%s\n", between,
                  slack[i].warmup, slack[i].slackness,
                  format_tolerance(most, a),
                  cli_time_text(slack[i].delay_ns, b),
                  most >= 0 && slack[i].delay_ns > most ? "  too much" : "");
    }
    print_omitted_rows(c, count);
    if (slack[0].tolerance_ns < 0)
        cli_print(c, "  tolerated delays: too many simulations for a pipeline "
                     "of this size\n");
}

/* Prints every link's messages, use and queueing. */
static void print_links(cli *c, const cli_view *v)
{
    uint32_t count;
    const lh_link_use *links = lh_analysis_links(v->analysis, &count);
    if (count == 0)
        return;
    static const char *const head[] = {"", "#messages", "#in use", "#queued",
                                       "#at once"};
    char queued[CLI_TIME_TEXT], used[20], messages[20], most[20];
    double total = (double)lh_timeline_makespan(v->timeline);
    cli_table t = {0};
    cli_print(c, "\nLinks\n");
    cli_table_row(&t, 5, head);
    for (uint32_t i = 0; i < count && i < MAX_ROWS; i++) {
        snprintf(messages, sizeof messages, "%" PRIu32, links[i].n_messages);
        snprintf(used, sizeof used, "%.1f %%",
                 total > 0 ? 100 * (double)links[i].busy_ns / total : 0.0);
        snprintf(most, sizeof most, "%" PRIu32, links[i].max_queue);
        const char *cells[] = {links[i].name, messages, used,
                               cli_time_text(links[i].queued_ns, queued), most};
        cli_table_row(&t, 5, cells);
    }
    cli_table_print(c, "", &t);
    print_omitted_rows(c, count);
}

/* Checks whether two devices use the same data-parallel link. */
static bool same_dp_link(const lh_pipeline *p, uint32_t a, uint32_t b)
{
    const char *x = lh_pipeline_dp_link(p, a), *y = lh_pipeline_dp_link(p, b);
    return x && y ? strcmp(x, y) == 0 : x == y;
}

/* Prints one row per run of consecutive devices whose data-parallel links share
 * a name. */
static void print_dp_links(cli *c, const cli_view *v)
{
    const lh_pipeline *p = v->pipeline;
    uint32_t P = lh_pipeline_n_devices(p), rows = 0;
    for (uint32_t d = 0, end; d < P; d = end) {
        const char *name = lh_pipeline_dp_link(p, d);
        for (end = d + 1; end < P && same_dp_link(p, d, end);)
            end++;
        if (!name)
            continue;
        if (rows++ == 0)
            cli_print(c, "\nData-parallel links\n");
        if (rows > MAX_ROWS)
            continue;
        char devices[32];
        snprintf(devices, sizeof devices, "device %" PRIu32, d);
        if (end - d > 1)
            snprintf(devices, sizeof devices, "devices %" PRIu32 "-%" PRIu32, d,
                     end - 1);
        cli_print(c, "  %-20s %s%s\n", devices, name,
                  lh_pipeline_shares_links(p, d) ? ", shared with messages"
                                                 : "");
    }
    print_omitted_rows(c, rows);
}

/* Prints mean and percentiles of the sampled iteration times. */
static void print_jitter(cli *c, const work *w)
{
    const lh_jitter_result *r = &w->jitter;
    const int64_t after =
        get_iteration_ns(w) - lh_timeline_makespan(w->view.timeline);
    char mean[CLI_TIME_TEXT], p50[CLI_TIME_TEXT], p95[CLI_TIME_TEXT],
        p99[CLI_TIME_TEXT], slow[CLI_STRAGGLER_TEXT];
    cli_wrap(c, "jitter",
             "mean %s, median %s, 95 %% within %s, 99 %% within %s (%" PRIu32
             " samples%s)",
             cli_time_text((int64_t)r->mean_ns + after, mean),
             cli_time_text(r->p50_ns + after, p50),
             cli_time_text(r->p95_ns + after, p95),
             cli_time_text(r->p99_ns + after, p99), r->samples,
             w->problem.plan ? " of the iteration" : "");
    if (w->problem.plan &&
        *cli_straggler_text(w->straggler_rate, lh_plan_gpus(w->problem.plan),
                            slow))
        cli_wrap(c, "", "%s", slow);
}

/* Prints schedule, makespan or first device's end, lower bound, bubble and
 * peak memory. */
static void print_head(cli *c, const work *w)
{
    const cli_view *v = &w->view;
    const lh_bound *bound = &w->bound;
    const settings *s = c->settings;
    const lh_timeline *t = v->timeline;
    const char *unit = lh_pipeline_memory_unit(v->pipeline);
    char a[CLI_TIME_TEXT], b[CLI_MEMORY_TEXT], hosted[CLI_HOST_MEMORY_TEXT];
    uint32_t device = 0;
    int64_t most = cli_highest_peak(t, &device);
    cli_print(c, "schedule      %s\n", v->method);
    if (s->model.objective == CLI_FIRST_DEVICE)
        cli_print(c, "first device  %s\n",
                  cli_time_text(lh_timeline_first_device_end(t), a));
    cli_print(c, "makespan      %s\n",
              cli_time_text(lh_timeline_makespan(t), a));
    if (w->problem.plan)
        cli_print(c, "iteration     %s with optimizer and overhead\n",
                  cli_time_text(get_iteration_ns(w), a));
    cli_print(c, "lower bound   %s: %s\n", cli_time_text(bound->ns, a),
              bound->text);
    if (s->model.objective == CLI_MAKESPAN && lh_timeline_fits(t, NULL))
        cli_print(c, "gap           %.2f %%%s\n", 100 * compute_gap(w),
                  lh_timeline_makespan(t) == bound->ns ? ", optimal" : "");
    cli_print(c, "bubble        %.2f %%\n", 100 * lh_timeline_bubble_ratio(t));
    cli_print(c, "peak memory   %s on device %" PRIu32 "%s\n",
              cli_memory_text(most, unit, b), device,
              lh_timeline_fits(t, NULL) ? "" : ", over the limit");
    if (s->host_memory)
        cli_print(
            c, "host memory   %s\n",
            cli_host_memory_text(v->pipeline, cli_timeline_peak, t, hosted));
    if (w->jitter.samples)
        print_jitter(c, w);
}

/* Prints the whole analysis as text, with the timeline as a chart. */
static lh_status print_text(cli *c, const work *w)
{
    const cli_view *v = &w->view;
    print_head(c, w);
    lh_terminal_options terminal = cli_terminal(c);
    char *text = NULL;
    CLI_TRY(lh_report_terminal(v->trace, &terminal, &text, NULL, &c->err));
    cli_put_chart(c, text);
    lh_text_free(text);
    print_bubble(c, v);
    print_path(c, v);
    print_slack(c, v);
    print_links(c, v);
    print_dp_links(c, v);
    return LH_OK;
}

/* --- command ------------------------------------------------------------ */

/* Adds a histogram of the iterations under --jitter to the report; nothing
 * without the option. */
static lh_status report_jitter(cli *c, const work *w, lh_report *report)
{
    const settings *s = c->settings;
    const lh_sim_options sim = cli_sim_options(&s->model);
    const int64_t usual_ns = get_iteration_ns(w);
    const cli_jitter_report_input varied = {
        .pipeline = w->view.pipeline,
        .schedule = w->view.schedule,
        .sim = &sim,
        .jitter = &w->drawn,
        .after_ns = usual_ns - lh_timeline_makespan(w->view.timeline),
        .base_ns = usual_ns};
    return w->jitter.samples ? cli_jitter_report(c, &varied, report) : LH_OK;
}

/* Fills in the report on a simulation: key figures, timeline, histogram of
 * random iterations, and data for what-if questions. */
static lh_status fill_report(cli *c, const work *w, lh_report *report)
{
    char time[CLI_TIME_TEXT];
    const cli_view *v = &w->view;
    cli_time_text(lh_timeline_makespan(v->timeline), time);
    CLI_TRY(lh_report_add_fact(report, "input",
                               cli_utf8_name(c, c->operands[0]), &c->err));
    CLI_TRY(lh_report_add_fact(report, "schedule", v->method, &c->err));
    CLI_TRY(lh_report_add_fact(report, "makespan", time, &c->err));
    CLI_TRY(lh_report_add_fact(report, "longhaul", lh_version(), &c->err));
    CLI_TRY(cli_view_report(c, v, report, v->method));
    CLI_TRY(report_jitter(c, w, report));
    const settings *s = c->settings;
    return s->path || s->host_memory
               ? LH_OK
               : cli_view_add_whatif(c, v, &s->model, NULL, report);
}

/* Writes the simulation's HTML report to `path`. */
static lh_status write_html(cli *c, const work *w, const char *path)
{
    lh_report *report = NULL;
    CLI_TRY(lh_report_make(cli_utf8_name(c, c->operands[0]), &report, &c->err));
    lh_status status = fill_report(c, w, report);
    if (status == LH_OK)
        status = cli_write_html(c, report, path);
    lh_report_free(report);
    return status;
}

/* Writes the trace, the SVG and the HTML report that the options ask for. */
static lh_status write_files(cli *c, const work *w)
{
    const settings *s = c->settings;
    const cli_view *v = &w->view;
    if (s->trace)
        CLI_TRY(cli_write_trace(c, v->trace, s->trace));
    if (s->svg)
        CLI_TRY(cli_write_svg(c, v, s->svg));
    if (s->html)
        CLI_TRY(write_html(c, w, s->html));
    return LH_OK;
}

/* Reads the --jitter settings into *out for a plan's devices, whose GPU counts
 * scale them. */
static lh_status read_plan_jitter(cli *c, work *w, lh_jitter *out)
{
    const settings *s = c->settings;
    CLI_TRY(cli_read_jitter(c, &s->jitter, out));
    w->straggler_rate = out->straggler_probability;
    if (!w->problem.plan)
        return LH_OK;
    return lh_plan_jitter(w->problem.plan->job, &w->problem.plan->best, out,
                          out, &c->err);
}

/* Simulates the schedule many times under the random delays of --jitter, and
 * stores the statistics in `w`. */
static lh_status sample_jitter(cli *c, work *w)
{
    const settings *s = c->settings;
    lh_sim_options sim = cli_sim_options(&s->model);
    CLI_TRY(read_plan_jitter(c, w, &w->drawn));
    cli_progress(c, "drawing %" PRIu32 " iterations", w->drawn.samples);
    return lh_jitter_run(w->view.pipeline, w->view.schedule, &sim, &w->drawn,
                         &w->jitter, &c->err);
}

/* Rejects options for a single iteration with --events, which simulates
 * several; and options that require --events. */
static lh_status check_events(cli *c)
{
    const settings *s = c->settings;
    static const char *const of_one[] = {"trace", "objective", "samples"};
    if (!s->play.events && s->play.steps)
        return cli_usage(c, "--steps requires --events");
    if (!s->play.events && s->play.log)
        return cli_usage(c, "--log requires --events");
    if (!s->play.events && s->play.adapt)
        return cli_usage(c, "--adapt requires --events");
    if (s->play.same_sums && !s->play.adapt)
        return cli_usage(c, "--same-sums requires --adapt");
    if (!s->play.events && s->play.replicas)
        return cli_usage(c, "--replicas requires --events");
    if (s->play.replicas && s->path)
        return cli_usage(c, "--replicas cannot be combined with --path");
    if (s->play.migration_ns &&
        !((s->play.replicas || s->play.layers) && s->play.adapt))
        return cli_usage(c, "--moving requires --adapt with --replicas or "
                            "--layers");
    if (s->play.layers && !s->play.migration_ns)
        return cli_usage(c, "--layers requires --moving");
    if (s->play.migration_ns && s->play.staging_ns)
        return cli_usage(c, "--moving cannot be combined with --staging: copy "
                            "times after a migration are not predicted");
    if (!s->play.events && s->play.restart)
        return cli_usage(c, "--restart requires --events");
    if (s->play.restart && (s->play.adapt || s->path))
        return cli_usage(c, "--restart is for runs without a second rail; it "
                            "cannot be combined with --adapt or --path");
    if (s->model.host_copy_ns && !s->host_memory)
        return cli_usage(c, "--host-copy requires --host-memory");
    if (s->play.staging_ns && !s->play.adapt && !s->path)
        return cli_usage(c, "--staging requires --path or --adapt");
    if (s->path && s->play.adapt)
        return cli_usage(c, "--path cannot be combined with --adapt, which "
                            "chooses the path");
    if (!s->play.events)
        return LH_OK;
    if (!s->play.steps)
        return cli_usage(c, "--events requires --steps, the number of "
                            "iterations");
    for (uint32_t i = 0; i < CLI_COUNT_OF(of_one); i++)
        if (cli_is_given(c, of_one[i]))
            return cli_usage(c,
                             "--%s applies to a single iteration; it cannot "
                             "be combined with --events",
                             of_one[i]);
    if (s->jitter.spec && !s->play.adapt)
        return cli_usage(c, "--jitter with --events requires --adapt");
    return LH_OK;
}

/* Simulates many iterations under a list of network events and prints them. */
static lh_status simulate_events(cli *c, work *w)
{
    const settings *s = c->settings;
    CLI_TRY(cli_check_replicas(c, s->play.replicas, w->problem.plan));
    cli_view *v = &w->view;
    lh_jitter jitter;
    cli_event_simulation play = s->play;
    play.html = s->html;
    play.svg = s->svg;
    if (w->paths.pipeline) {
        /* Events refer to network links only: use the pipeline without copies.
         */
        v->pipeline = cli_problem_pipeline(&w->problem);
        play.path = &w->paths.delegation;
    }
    if (s->jitter.spec) {
        CLI_TRY(read_plan_jitter(c, w, &jitter));
        play.jitter = &jitter;
    }
    return cli_event_simulation_run(c, &play, v, &s->model,
                                    get_iteration_ns(w) -
                                        lh_timeline_makespan(v->timeline));
}

/* Reads the pipeline or plan and the schedule, checks the options, simulates,
 * and prints the result. */
static lh_status simulate(cli *c, work *w)
{
    settings *s = c->settings;
    cli_view *v = &w->view;
    CLI_TRY(cli_problem_read(c, c->operands[0], false, &w->problem));
    CLI_TRY(cli_problem_add_host_memory(c, s->host_memory, &w->problem));
    v->pipeline = cli_problem_pipeline(&w->problem);
    if (s->play.adapt && s->play.staging_ns &&
        !cli_paths_have_effect(&s->model, v->pipeline))
        return cli_usage(c, "--staging has no effect: without --coupled or "
                            "--receives late no send blocks, and --adapt "
                            "delegates none");
    CLI_TRY(cli_paths_check(c, s->path, s->play.staging_ns, v->pipeline,
                            &s->model));
    CLI_TRY(cli_paths_read(c, s->path, s->play.staging_ns, v->pipeline,
                           &s->model, &w->paths));
    if (w->paths.pipeline)
        v->pipeline = w->paths.pipeline;
    cli_progress(c, "simulating");
    CLI_TRY(cli_view_find_schedule(c, v, &w->problem, s->schedule, &s->model,
                                   s->sub_blocks));
    CLI_TRY(cli_view_simulate(c, v, &s->model, c->operands[0]));
    if (s->jitter.spec && !s->play.events)
        CLI_TRY(sample_jitter(c, w));
    if (!s->play.events)
        CLI_TRY(write_files(c, w));
    cli_progress_end();
    if (s->play.events)
        return simulate_events(c, w);
    uint32_t device;
    if (!lh_timeline_fits(v->timeline, &device))
        cli_note(c,
                 "the schedule exceeds the memory limit on device %" PRIu32
                 " and perhaps others",
                 device);
    const lh_simulated all = make_simulated(w, s);
    CLI_TRY(lh_simulated_bound(&all, &w->bound, &c->err));
    return c->common.json ? print_json(c, w) : print_text(c, w);
}

/* Runs 'longhaul simulate' and frees its results. */
static lh_status run_simulate(cli *c)
{
    work w = {0};
    const settings *s = c->settings;
    lh_jitter jitter;
    if (cli_is_chakra(c->operands[0]))
        return cli_chakra_replay(c, c->operands[0]);
    CLI_TRY(check_events(c));
    CLI_TRY(cli_check_jitter(c, &s->jitter));
    if (s->jitter.spec)
        CLI_TRY(cli_read_jitter(c, &s->jitter, &jitter));
    lh_status status = simulate(c, &w);
    cli_progress_end();
    cli_view_fini(&w.view);
    cli_paths_fini(&w.paths);
    cli_problem_fini(&w.problem);
    return status;
}

const cli_command cmd_simulate = {
    .name = "simulate",
    .operands = "PIPELINE|PLAN|PREFIX.0.et",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about = "Predict the time of one iteration, and its causes",
    .description =
        "Runs a schedule through the performance model and computes the start "
        "and end of every pass and message. Prints the timeline as wide as the "
        "terminal, idle time by cause, the critical path, the delay between "
        "devices that the schedule tolerates, and the utilisation of every "
        "link.\n"
        "\n"
        "PREFIX.0.et is the execution trace of rank 0, in the format of "
        "MLCommons Chakra; the traces of all ranks are replayed by their "
        "dependencies and durations.\n"
        "\n"
        "With --jitter every sample is an iteration with its own link delays "
        "and device speeds, under the same schedule; --seed changes the "
        "samples. For a plan the times cover the whole iteration, with "
        "optimizer and overhead, as in plan --jitter; for a pipeline they are "
        "makespans. In the JSON, the key \"of\" of jitter is iteration or "
        "makespan accordingly.\n"
        "\n"
        "With --events iterations are simulated in virtual time with the link "
        "and device slowdowns of the events; the output has the time of each "
        "and the total. Iterations do not overlap. The JSON has total_s; "
        "iterations, each with step, seconds (for a plan including the work "
        "after the pipeline), schedule, path and slow, the active slowdowns; "
        "and switches. The path is direct with --coupled, where sends block "
        "passes, otherwise delegated.\n"
        "\n"
        "With --replicas events refer to hosts and to links between hosts, and "
        "the slowest replica determines the iteration. With --moving hosts "
        "exchange their ranks: all orders are evaluated for up to 8 hosts, "
        "improving pairs for more. The JSON has exchanges, each with step (the "
        "first iteration after it), hosts (the host of each rank), moves, "
        "before_s and predicted_s of an iteration, move_s (extra time of the "
        "first iteration), and why; the iteration has its exchange. With "
        "--layers layers also migrate from slow devices: the JSON has "
        "layer_moves, with layers (of each chunk) instead of hosts, and the "
        "iteration has its layers.\n"
        "\n"
        "With --path messages are delegated: copied to host memory and sent "
        "from there, so that no pass waits for a send and no send for a "
        "receive; --staging is the time of each copy.\n"
        "\n"
        "With --adapt a monitor receives the measurements of each iteration. A "
        "change detected after one iteration is decided on during the next, "
        "agreed on during the one after that, and then in effect. With "
        "--coupled or --receives late the delegated path may be chosen, for "
        "all messages or, if --staging gives the copy time, for those of slow "
        "links (mixed). Each of the switches has step (the first iteration "
        "after it), from and to (the schedules' names), path, before_s, "
        "predicted_s and bound_s (iteration time without the switch, with it, "
        "and its lower bound), and why. --jitter varies each iteration.\n"
        "\n"
        "In the JSON, times are in seconds and memory is in the unit of the "
        "file; peak_memory has a number per device; critical_path lists the "
        "consecutive passes, transfers and latencies from the start to the "
        "makespan; iteration_s of a plan is the makespan plus the work after "
        "the pipeline. tolerates_s of slack is the largest delay, including "
        "the current one, that lengthens an iteration by no more than one "
        "traversal in each direction, found by simulation; null with "
        "tolerates_any if any delay does, null without it if too many "
        "simulations "
        "are needed. A schedule from a file that exceeds the memory limit is "
        "shown with a warning: fits is false, the exit status 0. A method "
        "whose schedule exceeds it is an error.",
    .output_help = "Write the results to FILE instead of printing them.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_simulate,
};
