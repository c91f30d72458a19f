/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul compare: all methods side by side, also over a range of
 * delays. */
#include "commands.h"
#include "comparison_view.h"

#include <inttypes.h>
#include <longhaul/experimental/pipeline.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *methods, *sweep, *html;
    uint32_t sub_blocks;
    bool replay;
    cli_model model;
    cli_jitter jitter;
    uint32_t by;
} settings;

/* Maximum number of compared pipelines; each has a block of rows. */
enum { MOST_PIPELINES = 16 };

/* Returns the name of choice i of --by; NULL: no more. */
static const char *get_by_name(uint32_t i)
{
    return lh_compare_criterion_name((lh_compare_criterion)i);
}

static const cli_option options[] = {
    {.name = "methods",
     .letter = 'm',
     .type = CLI_TEXT,
     .at = offsetof(settings, methods),
     .arg = "A,B,...",
     .example_argument = "1f1b,zb-h1",
     .help = "Compare only these methods (see Methods below; default: all).",
     .words = CLI_WORDS_METHODS},
    {.name = "sweep",
     .type = CLI_TEXT,
     .at = offsetof(settings, sweep),
     .arg = "latency=VALUES,transfer=VALUES",
     .example_argument = "latency=0:40ms:5ms",
     .help = "Also compare under these delays. VALUES is first:last:step or a "
             "list. A value with a unit (ns, us, ms, s) is a time; a plain "
             "number is a multiple of the forward time of one microbatch on a "
             "device, averaged over the devices."},
    CLI_SUB_BLOCKS_ROW(settings, CLI_SUB_BLOCKS),
    {.name = "replay",
     .type = CLI_FLAG,
     .at = offsetof(settings, replay),
     .help = "With --sweep: at every point of the sweep, keep the pass orders "
             "made for the file's delays instead of scheduling again."},
    CLI_OUTPUT_ROW(settings, html,
                   "Write an HTML report: table, timelines, curves."),
    CLI_MODEL_ROWS(settings),
    CLI_OBJECTIVE_ROW(settings),
    CLI_JITTER_ROWS(settings),
    {.name = "by",
     .type = CLI_CHOICE,
     .at = offsetof(settings, by),
     .arg = "NUMBER",
     .preset = "predicted",
     .choice_name = get_by_name,
     .help = "Rank methods by the prediction for the file's delays or, with "
             "--jitter, by the mean iteration or the time within which 95 % of "
             "the iterations end."},
};

static const cli_example examples[] = {
    {"longhaul compare pipeline.yaml",
     "Print a table of all applicable methods, fastest first."},
    {"longhaul compare job.yaml --html report.html",
     "Compare the methods on the best layout of a job; also write a report."},
    {"longhaul compare ud.yaml wave.yaml --sweep latency=0:2:0.25,transfer=0,1",
     "Print curves of all methods on two placements over latency, for two "
     "transfer times, in multiples of the forward time."},
    {"longhaul compare pipeline.yaml --sweep latency=0:40ms:5ms --json",
     "Sweep absolute latencies; print the results as JSON."},
    {"longhaul compare pipeline.yaml --jitter latency=0.5 --by p95",
     "Rank the methods by their 95th percentile when link latency varies."},
};

/* A comparison's inputs and results. */
typedef struct work {
    cli_problem problems[MOST_PIPELINES];
    uint32_t n;
    char names[MOST_PIPELINES][64];
    char *methods;            /* the words of --methods */
    const char **method_list; /* points into `methods`; NULL: all */
    uint32_t n_methods;
    lh_jitter jitter;
    cli_comparison x;
} comparison_work;

/* Frees the results, the pipelines and the lists of methods of a comparison;
 * keeps the struct. */
static void free_work(comparison_work *w)
{
    lh_comparison_free(w->x.all);
    for (uint32_t i = 0; i < w->n; i++)
        cli_problem_fini(&w->problems[i]);
    cli_sweep_fini(&w->x.sweep);
    free(w->methods);
    free(w->method_list);
}

/* --- inputs ------------------------------------------------------------- */

/* Copies the file name in `path` without folder and suffix to `out` (`room`
 * bytes): "wave" for "some/wave.yaml". */
static void extract_base_name(char *out, size_t room, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    int len = (int)(dot && dot > name ? (size_t)(dot - name) : strlen(name));
    snprintf(out, room, "%.*s", len, name);
}

/* Reads all operands as problems (pipelines, plans or a job); fails for a job
 * among several files. */
static lh_status read_problems(cli *c, comparison_work *w)
{
    for (uint32_t i = 0; i < c->n_operands; i++) {
        w->n = i + 1;
        CLI_TRY(cli_problem_read(c, c->operands[i], true, &w->problems[i]));
        if (w->problems[i].from_job && c->n_operands > 1)
            return cli_usage(c, "a job cannot be compared with other files; "
                                "several files must be pipelines or plans");
        extract_base_name(w->names[i], sizeof w->names[i], c->operands[i]);
    }
    return LH_OK;
}

/* Parses the words in --methods and checks --sub-blocks against them; without
 * the option the list stays empty. */
static lh_status read_methods(cli *c, comparison_work *w)
{
    const settings *s = c->settings;
    if (!s->methods)
        return LH_OK;
    size_t len = strlen(s->methods);
    w->methods = malloc(len + 1);
    w->method_list = calloc(len + 1, sizeof *w->method_list);
    if (!w->methods || !w->method_list)
        return cli_no_memory(c);
    memcpy(w->methods, s->methods, len + 1);
    for (char *p = w->methods; *p;) {
        size_t item = strcspn(p, ",");
        bool last = !p[item];
        p[item] = '\0';
        CLI_TRY(cli_check_method(c, "--methods", p));
        w->method_list[w->n_methods++] = p;
        p += item + !last;
    }
    for (uint32_t i = 0; i < w->n_methods; i++)
        if (cli_has_word(CLI_SPLITTING_METHODS, w->method_list[i]))
            return LH_OK;
    return cli_check_sub_blocks(c, w->method_list[0], s->sub_blocks);
}

/* Parses --jitter before any computation starts. Checks that the statistic
 * which --by selects (mean or 95th percentile) is available with it. */
static lh_status read_jitter(cli *c, comparison_work *w)
{
    const settings *s = c->settings;
    CLI_TRY(cli_check_jitter(c, &s->jitter));
    if (s->jitter.spec)
        CLI_TRY(cli_read_jitter(c, &s->jitter, &w->jitter));
    else if (s->by != LH_COMPARE_BY_PREDICTED)
        return cli_usage(c, "--by %s requires --jitter", get_by_name(s->by));
    return LH_OK;
}

/* Shows how many of the sweep's n_points points are computed. Always returns
 * false: the sweep continues (callback). */
static bool show_point(void *context, uint32_t point, uint32_t n_points)
{
    cli_progress(context, "comparing: point %" PRIu32 " of %" PRIu32, point + 1,
                 n_points);
    return false;
}

/* Prints a note if the pipelines run different numbers of microbatches: then
 * the fastest need not be the best. */
static lh_status note_batches(cli *c, const comparison_work *w)
{
    uint64_t first = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        lh_pipeline_desc desc = {.size = sizeof desc};
        CLI_TRY(lh_pipeline_describe(cli_problem_pipeline(&w->problems[i]),
                                     &desc, &c->err));
        uint64_t n = (uint64_t)desc.n_microbatches *
                     (desc.n_copies ? desc.n_copies : desc.bidirectional + 1u);
        if (i > 0 && n != first) {
            cli_note(c,
                     "the files have different batches: %s runs %" PRIu64
                     " microbatches, %s %" PRIu64,
                     cli_utf8_name(c, w->names[0]), first,
                     cli_utf8_name(c, w->names[i]), n);
            return LH_OK;
        }
        first = n;
    }
    return LH_OK;
}

/* Compares the methods on one plan or on up to MOST_PIPELINES pipelines. */
static lh_status compare_problems(cli *c, comparison_work *w,
                                  const lh_compare_options *how)
{
    const lh_plan *plan = w->problems[0].plan;
    lh_compare_base bases[MOST_PIPELINES] = {0};
    if (plan && w->n == 1)
        return lh_compare_plan(plan, how, &w->x.all, &c->err);
    CLI_TRY(note_batches(c, w));
    for (uint32_t i = 0; i < w->n; i++) {
        bases[i].name = cli_utf8_name(c, w->names[i]);
        bases[i].pipeline = cli_problem_pipeline(&w->problems[i]);
    }
    return lh_compare(w->n, bases, how, &w->x.all, &c->err);
}

/* Fills in the comparison's options, with sweep and jitter, and compares all
 * pipelines under all methods. */
static lh_status run_comparison(cli *c, comparison_work *w)
{
    const settings *s = c->settings;
    lh_sim_options sim = cli_sim_options(&s->model);
    lh_compare_options how = {
        .size = sizeof how,
        .n_methods = w->n_methods,
        .methods = w->method_list,
        .latency = &w->x.sweep.axes[CLI_LATENCY].delays,
        .transfer = &w->x.sweep.axes[CLI_TRANSFER].delays,
        .fixed_schedules = s->replay,
        .sub_blocks = s->sub_blocks,
        .sim = &sim,
        .objective = (lh_solve_objective)s->model.objective,
        .jitter = s->jitter.spec ? &w->jitter : NULL,
        .by = (lh_compare_criterion)s->by,
        .progress = show_point,
        .context = c,
    };
    CLI_TRY(compare_problems(c, w, &how));
    cli_progress_end();
    const lh_comparison *all = w->x.all;
    for (uint32_t i = 0; i < all->n_left_out; i++)
        cli_note(c, "%s placement is not possible for this layout: %s",
                 lh_placement_name(all->left_out[i].placement),
                 all->left_out[i].why);
    w->x.first_device = s->model.objective == LH_SOLVE_OBJECTIVE_FIRST_DEVICE;
    w->x.number = s->by == LH_COMPARE_BY_MEAN  ? "mean"
                  : s->by == LH_COMPARE_BY_P95 ? "95 % within"
                  : w->x.first_device          ? "first device"
                  : all->iterations            ? "iteration"
                                               : "makespan";
    return LH_OK;
}

/* --- report ------------------------------------------------------------- */

/* More passes make the report slow to open. */
enum { MOST_PASSES_SHOWN = 60000 };

/* Simulates contender `i` (a pipeline with a method) and adds its timeline to
 * the report if it is the first one or the sum of passes so far is at most
 * MOST_PASSES_SHOWN. *passes: that sum, increased here. */
static lh_status add_timeline(cli *c, const cli_comparison *x, uint32_t i,
                              uint64_t *passes, lh_report *report)
{
    const settings *s = c->settings;
    const lh_contender *who = &x->all->contenders[i];
    cli_view view = {.pipeline = x->all->bases[who->base].pipeline,
                     .schedule = lh_comparison_schedule(x->all, i),
                     .method = who->method};
    lh_status status = LH_OK;
    if (!view.schedule)
        status =
            cli_view_schedule(c, &view, who->method, &s->model, s->sub_blocks);
    if (status == LH_OK)
        status = cli_view_simulate(c, &view, &s->model, who->label);
    bool first = *passes == 0;
    if (status == LH_OK) {
        *passes += view.trace->n_runs;
        if (first || *passes <= MOST_PASSES_SHOWN)
            status = lh_report_add_trace(report, view.trace, who->label,
                                         view.shown, &c->err);
        if (status == LH_OK && first)
            status = cli_view_add_whatif(c, &view, &s->model, NULL, report);
    }
    cli_view_fini(&view);
    return status;
}

/* Adds a row per contender in ranking order, with its timeline, to a single
 * point's report. */
static lh_status add_point(cli *c, const cli_comparison *x,
                           const uint32_t *ranking, lh_report *report)
{
    uint64_t passes = 0;
    for (uint32_t i = 0; i < x->all->n_contenders; i++) {
        const lh_contender *who = &x->all->contenders[ranking[i]];
        const lh_outcome *o = lh_comparison_at(x->all, 0, 0, ranking[i]);
        lh_report_row row = {
            .method = who->label,
            .status = lh_outcome_status_name(o),
            .makespan_ns = o->ns,
            .bubble_ratio = o->status == LH_OK ? o->bubble_ratio : -1,
            .peak_memory = o->status == LH_OK ? o->peak_memory : -1,
            .why = *o->why ? o->why : NULL,
        };
        CLI_TRY(lh_report_add_row(report, &row, &c->err));
        if (o->status == LH_OK)
            CLI_TRY(add_timeline(c, x, ranking[i], &passes, report));
    }
    return LH_OK;
}

/* Adds the inputs and either the ranking or the sweep's curves to the
 * report. */
static lh_status add_all(cli *c, const cli_comparison *x, lh_report *report)
{
    for (uint32_t i = 0; i < c->n_operands; i++)
        CLI_TRY(lh_report_add_fact(report, "input",
                                   cli_utf8_name(c, c->operands[i]), &c->err));
    CLI_TRY(lh_report_add_fact(report, "longhaul", lh_version(), &c->err));
    if (!cli_comparison_is_sweep(x)) {
        uint32_t *ranking =
            calloc(x->all->n_contenders + (size_t)1, sizeof *ranking);
        if (!ranking)
            return cli_no_memory(c);
        lh_comparison_rank(x->all, 0, 0, ranking);
        lh_status status = add_point(c, x, ranking, report);
        free(ranking);
        return status;
    }
    for (uint32_t i = 0; i < cli_comparison_n_curves(x); i++) {
        cli_curves curves;
        lh_status status = cli_curves_build(c, x, i, &curves);
        if (status == LH_OK)
            status = lh_report_add_sweep(report, &curves.sweep, &c->err);
        cli_curves_fini(&curves);
        if (status != LH_OK)
            return status;
    }
    return LH_OK;
}

/* Writes the comparison's HTML report to `path`. */
static lh_status write_html(cli *c, const cli_comparison *x, const char *path)
{
    lh_report *report = NULL;
    CLI_TRY(lh_report_make(cli_utf8_name(c, c->operands[0]), &report, &c->err));
    lh_status status = add_all(c, x, report);
    if (status == LH_OK)
        status = cli_write_html(c, report, path);
    lh_report_free(report);
    return status;
}

/* Prints all contenders' results and lower bounds as JSON. */
static lh_status print_json(cli *c, const lh_comparison *all)
{
    char *text = NULL;
    size_t len = 0;
    CLI_TRY(lh_comparison_format(all, &text, &len, &c->err));
    cli_put_owned_text(c, text, len);
    return LH_OK;
}

/* Reads methods, sweep, jitter and the pipelines or plans, compares, and writes
 * the results. */
static lh_status compare(cli *c, comparison_work *w)
{
    const settings *s = c->settings;
    CLI_TRY(read_methods(c, w));
    if (s->sweep)
        CLI_TRY(cli_sweep_parse(c, s->sweep, &w->x.sweep));
    CLI_TRY(read_problems(c, w));
    CLI_TRY(read_jitter(c, w));
    CLI_TRY(run_comparison(c, w));
    if (s->html)
        CLI_TRY(write_html(c, &w->x, s->html));
    return c->common.json ? print_json(c, w->x.all)
                          : cli_comparison_text(c, &w->x);
}

/* Runs 'longhaul compare' and frees its results. */
static lh_status run_compare(cli *c)
{
    comparison_work w = {0};
    lh_status status = compare(c, &w);
    free_work(&w);
    return status;
}

const cli_command cmd_compare = {
    .name = "compare",
    .operands = "PIPELINE|PLAN|JOB ...",
    .least_operands = 1,
    .most_operands = MOST_PIPELINES,
    .operand_words = CLI_WORDS_FILES,
    .about = "Compare all methods, optionally over a range of delays",
    .description =
        "Makes a schedule with every method, simulates it, and prints a table, "
        "fastest first. For a job or a plan, the methods compete on the plan's "
        "layout; the plan's own schedule has the time that the plan predicts, "
        "and an elastic plan is listed as \"elastic plan\". For several "
        "pipelines (the same model with several placements, for instance), all "
        "methods of all pipelines compete. A plan among several files "
        "contributes its pipeline.\n"
        "\n"
        "--sweep changes the latencies and transfer times of the links between "
        "sites (of all links, if the pipeline names no sites) and prints a "
        "column per latency and a table per transfer time. Values are one-way. "
        "Plain numbers are multiples of the forward time, as in CrossPipe's "
        "figures: latency=0:2:0.25 is 0, 0.25, ... 2 times a device's forward "
        "time for one microbatch.\n"
        "\n"
        "The row of a method that does not support the placement, or finds no "
        "schedule within the memory limits, contains the reason.",
    .output_help = "Write the results to FILE instead of printing them.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_compare,
};
