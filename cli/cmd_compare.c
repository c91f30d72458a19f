/* SPDX-License-Identifier: Apache-2.0 */
/* longhaul compare: all methods side by side, also over a range of delays. */
#include "commands.h"
#include "compare.h"

#include <longhaul/bounds.h>

#include <inttypes.h>
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

enum { BY_PREDICTED, BY_MEAN, BY_P95 };
static const char *const numbers[] = {"predicted", "mean", "p95", NULL};

/* For `optimal` in a comparison, in units of about a microsecond. */
enum { SEARCH_EFFORT = 200000 };

static const cli_option options[] = {
    {.name = "methods",
     .letter = 'm',
     .type = CLI_TEXT,
     .at = offsetof(settings, methods),
     .arg = "A,B,...",
     .help = "Only these methods; see Methods below. Without it: all.",
     .words = CLI_WORDS_METHODS},
    {.name = "sweep",
     .type = CLI_TEXT,
     .at = offsetof(settings, sweep),
     .arg = "latency=VALUES,transfer=VALUES",
     .help = "Compare under these delays, too. VALUES is first:last:step or a "
             "list of values. With a unit (ns, us, ms, s) a value is a time; "
             "a plain number is a multiple of the forward time of one "
             "microbatch on a device, the mean of all devices."},
    {.name = "sub-blocks",
     .type = CLI_COUNT,
     .at = offsetof(settings, sub_blocks),
     .arg = "N",
     .preset = "1",
     .least = 1,
     .most = LH_MAX_PARTS,
     .help = "greedy: cut every weight-gradient pass into N parts."},
    {.name = "replay",
     .type = CLI_FLAG,
     .at = offsetof(settings, replay),
     .help = "In a sweep, keep the schedules made for the delays of the file "
             "in place of making new ones at every point."},
    {.name = "html",
     .type = CLI_OUTPUT,
     .at = offsetof(settings, html),
     .arg = "FILE",
     .help = "Write a report for the browser: table, timelines, curves.",
     .words = CLI_WORDS_FILES},
    CLI_MODEL_ROWS(settings),
    CLI_OBJECTIVE_ROW(settings),
    CLI_JITTER_ROWS(settings),
    {.name = "by",
     .type = CLI_CHOICE,
     .at = offsetof(settings, by),
     .arg = "NUMBER",
     .preset = "predicted",
     .choices = numbers,
     .help = "What methods are compared by: the prediction for the delays of "
             "the file or, with --jitter, the mean of all iterations or what "
             "95 % of them keep."},
};

static const cli_example examples[] = {
    {"longhaul compare pipeline.yaml",
     "A table of all methods that suit the pipeline, the fastest first."},
    {"longhaul compare job.yaml --html report.html",
     "The same for the best layout of a job; also as a report."},
    {"longhaul compare ud.yaml wave.yaml --sweep latency=0:2:0.25,transfer=0,1",
     "Curves of all methods on two placements over latency, for two transfer "
     "times, in multiples of the forward time."},
    {"longhaul compare pipeline.yaml --sweep latency=0:40ms:5ms --json",
     "Numbers of a sweep over absolute latencies."},
    {"longhaul compare pipeline.yaml --jitter latency=0.5 --by p95",
     "Which method suits links that vary, by its unlucky iterations."},
};

static void fini(cli_comparison *x)
{
    for (uint32_t i = 0; i < x->n_bases; i++) {
        lh_pipeline_free(x->bases[i].pipeline);
    }
    free(x->bases);
    free(x->contenders);
    size_t n = (size_t)x->n_latencies * x->n_transfers * x->n_contenders;
    for (size_t i = 0; x->outcomes && i < n; i++)
        json_decref(x->outcomes[i].peaks);
    free(x->outcomes);
    cli_sweep_fini(&x->sweep);
}

/* --- what is compared
 * ---------------------------------------------------------- */

/* "wave" of "some/wave.yaml". */
static void name_base(cli_base *base, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    int len = (int)(dot && dot > name ? (size_t)(dot - name) : strlen(name));
    snprintf(base->name, sizeof base->name, "%.*s", len, name);
}

static lh_status copy_pipeline(cli *c, const lh_pipeline *from,
                               lh_pipeline **out)
{
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_pipeline_format(from, &text, &len, &c->err));
    lh_status status = lh_pipeline_parse(text, len, "plan", out, &c->err);
    lh_text_free(text);
    return status;
}

/* The plan's own pipeline, whose chunks may be uneven, where the placement is
 * the plan's. */
static lh_status make_base(cli *c, const lh_plan *plan, lh_placement placement,
                           uint32_t chunks, cli_base *base)
{
    const lh_choice *best = &plan->best;
    lh_layout layout = best->layout;
    if (placement == best->placement && chunks == layout.chunks_per_device &&
        best->chunk_layers) {
        base->after_ns = best->optimizer_ns + best->overhead_ns;
        return copy_pipeline(c, plan->pipeline, &base->pipeline);
    }
    layout.chunks_per_device = chunks;
    return lh_plan_pipeline(plan->job, &layout, placement, best->recompute,
                            &base->pipeline, &base->after_ns, &c->err);
}

/* The placements that the best layout of a plan can take, each with the chunks
 * per device that it needs, unless the job fixes those. */
static lh_status add_layouts(cli *c, const lh_plan *plan, cli_comparison *x)
{
    const settings *s = c->settings;
    const lh_layout *best = &plan->best.layout;
    uint32_t fixed = plan->job->layout.chunks_per_device;
    uint32_t loop = best->chunks_per_device > 2 ? best->chunks_per_device : 2;
    const struct {
        lh_placement placement;
        uint32_t chunks;
    } ways[] = {{LH_PLACEMENT_UD, 1},
                {LH_PLACEMENT_LOOP, loop},
                {LH_PLACEMENT_WAVE, 2}};
    for (uint32_t i = 0; i < 3; i++) {
        if (fixed && fixed != ways[i].chunks)
            continue;
        cli_base *base = &x->bases[x->n_bases];
        lh_status status =
            make_base(c, plan, ways[i].placement, ways[i].chunks, base);
        if (status == LH_EUNSUPPORTED || status == LH_EINFEASIBLE) {
            cli_note(c, "no %s placement of this layout: %s",
                     lh_placement_name(ways[i].placement), c->err.text);
            continue;
        }
        if (status != LH_OK)
            return status;
        base->forward_ns = cli_forward_ns(base->pipeline);
        snprintf(base->name, sizeof base->name, "%s",
                 lh_placement_name(ways[i].placement));
        x->n_bases++;
    }
    x->iterations = true;
    if (s->jitter.spec) {
        CLI_TRY(cli_read_jitter(c, &s->jitter, &x->jitter));
        x->jitter = lh_plan_jitter(plan->job, &plan->best, &x->jitter);
    }
    return LH_OK;
}

static lh_status read_bases(cli *c, cli_comparison *x)
{
    x->bases = calloc(c->n_operands + (size_t)3, sizeof *x->bases);
    if (!x->bases)
        return cli_no_memory(c);
    for (uint32_t i = 0; i < c->n_operands; i++) {
        cli_problem problem = {0};
        CLI_TRY(cli_problem_read(c, c->operands[i], true, &problem));
        if (problem.plan && c->n_operands > 1) {
            cli_problem_fini(&problem);
            return cli_usage(c, "a job or a plan is compared on its own; "
                                "several files have to be pipelines");
        }
        if (problem.plan) {
            lh_status status = add_layouts(c, problem.plan, x);
            cli_problem_fini(&problem);
            return status;
        }
        cli_base *base = &x->bases[x->n_bases++];
        base->pipeline = problem.pipeline;
        base->forward_ns = cli_forward_ns(base->pipeline);
        name_base(base, c->operands[i]);
    }
    return LH_OK;
}

/* `auto` is the best of the others: it would only repeat a row. Searching takes
 * its time, so in a sweep `optimal` has to be asked for. */
static bool is_wanted(const settings *s, const char *method)
{
    if (!s->methods)
        return strcmp(method, "auto") != 0 &&
               (strcmp(method, "optimal") != 0 || !s->sweep);
    size_t len = strlen(method);
    for (const char *p = s->methods; *p;) {
        size_t item = strcspn(p, ",");
        if (item == len && strncmp(p, method, len) == 0)
            return true;
        p += item + (p[item] == ',');
    }
    return false;
}

static lh_status check_methods(cli *c, const char *list)
{
    for (const char *p = list; p && *p;) {
        char name[64];
        size_t len = strcspn(p, ",");
        snprintf(name, sizeof name, "%.*s", (int)(len < 60 ? len : 60), p);
        CLI_TRY(cli_check_method(c, "--methods", name));
        p += len + (p[len] == ',');
    }
    return LH_OK;
}

static lh_status line_up(cli *c, cli_comparison *x)
{
    const settings *s = c->settings;
    size_t room = (size_t)x->n_bases * lh_n_best();
    x->contenders = calloc(room + 1, sizeof *x->contenders);
    if (!x->contenders)
        return cli_no_memory(c);
    for (uint32_t b = 0; b < x->n_bases; b++)
        for (uint32_t m = 0; m < lh_n_best(); m++) {
            const char *method = lh_best_name(m);
            if (!is_wanted(s, method))
                continue;
            cli_contender *who = &x->contenders[x->n_contenders++];
            who->method = method;
            who->base = b;
            snprintf(who->label, sizeof who->label, "%s%s%s", method,
                     x->n_bases > 1 ? " " : "",
                     x->n_bases > 1 ? x->bases[b].name : "");
        }
    return LH_OK;
}

/* --- working it out
 * --------------------------------------------------------------- */

/* What a method may answer without the comparison failing. */
static bool is_answer(lh_status status)
{
    return status == LH_OK || status == LH_EINFEASIBLE ||
           status == LH_EUNSUPPORTED || status == LH_EDEADLOCK;
}

static lh_status simulate(cli *c, const settings *s, const lh_pipeline *p,
                          const lh_schedule *schedule, int64_t after_ns,
                          const lh_jitter *jitter, cli_outcome *o)
{
    lh_sim_options sim = cli_sim_options(&s->model);
    lh_timeline *t = NULL;
    CLI_TRY(lh_simulate(p, schedule, &sim, &t, &c->err));
    o->ns = cli_objective_ns(&s->model, t) + after_ns;
    o->makespan_ns = lh_timeline_makespan(t);
    o->bubble_ratio = lh_timeline_bubble_ratio(t);
    o->peak_memory = cli_highest_peak(t, NULL);
    o->peaks = cli_peak_memory(t);
    o->fits = lh_timeline_fits(t, NULL);
    lh_timeline_free(t);
    if (!o->peaks)
        return cli_no_memory(c);
    if (!s->jitter.spec)
        return LH_OK;
    CLI_TRY(lh_jitter_run(p, schedule, &sim, jitter, &o->jitter, &c->err));
    if (s->by == BY_MEAN)
        o->ns = (int64_t)o->jitter.mean_ns + after_ns;
    if (s->by == BY_P95)
        o->ns = o->jitter.p95_ns + after_ns;
    return LH_OK;
}

/* One contender on `p`; its schedule is made for `made_for`. */
static lh_status contend(cli *c, const cli_comparison *x,
                         const cli_contender *who, const lh_pipeline *p,
                         const lh_pipeline *made_for, cli_outcome *o)
{
    const settings *s = c->settings;
    lh_sim_options sim = cli_sim_options(&s->model);
    lh_method_options method = {
        .size = sizeof method, .sub_blocks = s->sub_blocks, .sim = &sim};
    lh_best_options how = {
        .size = sizeof how, .method = &method, .effort = SEARCH_EFFORT};
    lh_best best = {0};
    lh_bound bound;
    CLI_TRY(lh_lower_bound(p, &bound, &c->err));
    *o = (cli_outcome){.ns = -1, .bound_ns = bound.ns, .fits = true};
    lh_status status =
        lh_best_schedule(who->method, made_for, &how, &best, &c->err);
    if (status == LH_OK)
        status = simulate(c, s, p, best.schedule, x->bases[who->base].after_ns,
                          &x->jitter, o);
    if (status == LH_OK && p == made_for && best.bound_ns > o->bound_ns)
        o->bound_ns = best.bound_ns;
    lh_best_fini(&best);
    if (!is_answer(status))
        return status;
    o->status = status;
    o->bound_ns += x->bases[who->base].after_ns;
    if (status == LH_OK)
        return LH_OK;
    /* The row has the method's name already. */
    size_t len = strlen(who->method);
    const char *why = c->err.text;
    if (strncmp(why, who->method, len) == 0 && why[len] == ':')
        why += len + strspn(why + len, ": ");
    snprintf(o->why, sizeof o->why, "%.190s", why);
    return LH_OK;
}

/* All contenders at one point. */
static lh_status work_out_point(cli *c, cli_comparison *x, uint32_t l,
                                uint32_t t)
{
    const settings *s = c->settings;
    lh_status status = LH_OK;
    for (uint32_t b = 0; status == LH_OK && b < x->n_bases; b++) {
        const cli_base *base = &x->bases[b];
        const lh_pipeline *as_is = base->pipeline;
        lh_pipeline *other = NULL;
        if (cli_comparison_swept(x))
            status = cli_sweep_pipeline(
                c, as_is,
                cli_axis_ns(&x->sweep.axes[CLI_LATENCY], l, base->forward_ns),
                cli_axis_ns(&x->sweep.axes[CLI_TRANSFER], t, base->forward_ns),
                &other);
        const lh_pipeline *p = other ? other : as_is;
        for (uint32_t i = 0; status == LH_OK && i < x->n_contenders; i++)
            if (x->contenders[i].base == b)
                status =
                    contend(c, x, &x->contenders[i], p, s->replay ? as_is : p,
                            (cli_outcome *)cli_comparison_at(x, l, t, i));
        lh_pipeline_free(other);
    }
    return status;
}

/* --by says what of --jitter, which is read before anything is worked out. */
static lh_status check_jitter(cli *c, cli_comparison *x)
{
    const settings *s = c->settings;
    CLI_TRY(cli_check_jitter(c, &s->jitter));
    x->number = x->iterations ? "iteration" : "makespan";
    if (s->jitter.spec && !x->jitter.size)
        CLI_TRY(cli_read_jitter(c, &s->jitter, &x->jitter));
    else if (!s->jitter.spec && s->by != BY_PREDICTED)
        return cli_usage(c, "--by %s needs --jitter", numbers[s->by]);
    if (s->by != BY_PREDICTED)
        x->number = s->by == BY_MEAN ? "mean" : "95 % within";
    return LH_OK;
}

static lh_status work_out(cli *c, cli_comparison *x)
{
    CLI_TRY(check_jitter(c, x));
    uint32_t n_l = x->sweep.axes[CLI_LATENCY].n_values;
    uint32_t n_t = x->sweep.axes[CLI_TRANSFER].n_values;
    x->n_latencies = n_l ? n_l : 1;
    x->n_transfers = n_t ? n_t : 1;
    size_t points = (size_t)x->n_latencies * x->n_transfers;
    x->outcomes = calloc(points * x->n_contenders, sizeof *x->outcomes);
    if (!x->outcomes)
        return cli_no_memory(c);
    for (uint32_t t = 0; t < x->n_transfers; t++)
        for (uint32_t l = 0; l < x->n_latencies; l++) {
            cli_progress(c, "comparing: point %zu of %zu",
                         (size_t)t * x->n_latencies + l + 1, points);
            CLI_TRY(work_out_point(c, x, l, t));
        }
    cli_progress_end();
    return LH_OK;
}

/* The methods that suit no point of one base but suit another are left out
 * there: of three placements, most methods suit one. */
static bool never_suits(const cli_comparison *x, uint32_t contender)
{
    for (uint32_t t = 0; t < x->n_transfers; t++)
        for (uint32_t l = 0; l < x->n_latencies; l++)
            if (cli_comparison_at(x, l, t, contender)->status !=
                LH_EUNSUPPORTED)
                return false;
    return true;
}

static bool suits_elsewhere(const cli_comparison *x, uint32_t contender)
{
    for (uint32_t i = 0; i < x->n_contenders; i++)
        if (strcmp(x->contenders[i].method, x->contenders[contender].method) ==
                0 &&
            !never_suits(x, i))
            return true;
    return false;
}

static lh_status leave_out(cli *c, cli_comparison *x)
{
    bool *out = calloc(x->n_contenders + (size_t)1, sizeof *out);
    if (!out)
        return cli_no_memory(c);
    for (uint32_t i = 0; i < x->n_contenders; i++)
        out[i] = never_suits(x, i) && suits_elsewhere(x, i);
    size_t points = (size_t)x->n_latencies * x->n_transfers, kept = 0;
    for (size_t i = 0; i < points * x->n_contenders; i++)
        if (!out[i % x->n_contenders])
            x->outcomes[kept++] = x->outcomes[i];
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n_contenders; i++)
        if (!out[i])
            x->contenders[n++] = x->contenders[i];
    x->n_contenders = n;
    free(out);
    return LH_OK;
}

/* --- the report
 * ----------------------------------------------------------------------- */

/* More passes than this make the report slow to open. */
enum { MOST_PASSES_SHOWN = 60000 };

static lh_status add_timeline(cli *c, const cli_comparison *x,
                              const cli_contender *who, uint64_t *passes,
                              lh_report *report)
{
    const settings *s = c->settings;
    cli_view view = {.pipeline = x->bases[who->base].pipeline};
    lh_status status =
        cli_view_schedule(c, &view, who->method, &s->model, s->sub_blocks);
    if (status == LH_OK)
        status = cli_view_simulate(c, &view, &s->model, who->label);
    bool first = *passes == 0;
    if (status == LH_OK) {
        *passes += view.trace->n_runs;
        if (first || *passes <= MOST_PASSES_SHOWN)
            status = lh_report_add_trace(report, view.trace, who->label,
                                         view.shown, &c->err);
    }
    cli_view_fini(&view);
    return status;
}

static lh_status add_point(cli *c, const cli_comparison *x,
                           const uint32_t *ranking, lh_report *report)
{
    uint64_t passes = 0;
    for (uint32_t i = 0; i < x->n_contenders; i++) {
        const cli_contender *who = &x->contenders[ranking[i]];
        const cli_outcome *o = cli_comparison_at(x, 0, 0, ranking[i]);
        lh_report_row row = {
            .method = who->label,
            .status = cli_outcome_word(o),
            .makespan_ns = o->ns,
            .bubble_ratio = o->status == LH_OK ? o->bubble_ratio : -1,
            .peak_memory = o->status == LH_OK ? o->peak_memory : -1,
            .why = *o->why ? o->why : NULL,
        };
        CLI_TRY(lh_report_add_row(report, &row, &c->err));
        if (o->status == LH_OK)
            CLI_TRY(add_timeline(c, x, who, &passes, report));
    }
    return LH_OK;
}

static lh_status fill_report(cli *c, const cli_comparison *x, lh_report *report)
{
    for (uint32_t i = 0; i < c->n_operands; i++)
        CLI_TRY(lh_report_add_fact(report, "input", c->operands[i], &c->err));
    CLI_TRY(lh_report_add_fact(report, "longhaul", lh_version(), &c->err));
    if (!cli_comparison_swept(x)) {
        uint32_t *ranking =
            calloc(x->n_contenders + (size_t)1, sizeof *ranking);
        if (!ranking)
            return cli_no_memory(c);
        cli_comparison_rank(x, 0, 0, ranking);
        lh_status status = add_point(c, x, ranking, report);
        free(ranking);
        return status;
    }
    for (uint32_t i = 0; i < cli_comparison_n_curves(x); i++) {
        cli_curves curves;
        lh_status status = cli_curves_make(c, x, i, &curves);
        if (status == LH_OK)
            status = lh_report_add_sweep(report, &curves.sweep, &c->err);
        cli_curves_fini(&curves);
        if (status != LH_OK)
            return status;
    }
    return LH_OK;
}

static lh_status write_html(cli *c, const cli_comparison *x, const char *path)
{
    lh_report *report = NULL;
    CLI_TRY(lh_report_make(c->operands[0], &report, &c->err));
    lh_status status = fill_report(c, x, report);
    if (status == LH_OK)
        status = cli_write_html(c, report, path);
    lh_report_free(report);
    return status;
}

static lh_status compare(cli *c, cli_comparison *x)
{
    const settings *s = c->settings;
    CLI_TRY(check_methods(c, s->methods));
    if (s->sweep)
        CLI_TRY(cli_sweep_parse(c, s->sweep, &x->sweep));
    CLI_TRY(read_bases(c, x));
    CLI_TRY(line_up(c, x));
    CLI_TRY(work_out(c, x));
    CLI_TRY(leave_out(c, x));
    if (s->html)
        CLI_TRY(write_html(c, x, s->html));
    return c->common.json ? cli_comparison_json(c, x)
                          : cli_comparison_text(c, x);
}

static lh_status run(cli *c)
{
    cli_comparison x = {0};
    lh_status status = compare(c, &x);
    fini(&x);
    return status;
}

const cli_command cmd_compare = {
    .name = "compare",
    .operands = "PIPELINE|JOB ...",
    .least_operands = 1,
    .most_operands = 16,
    .operand_words = CLI_WORDS_FILES,
    .about = "Compare all methods side by side, also over a range of delays",
    .description =
        "Makes a schedule by every method, simulates it, and prints a table, "
        "the fastest first. Of a job, the methods compete on its best layout. "
        "Of several pipelines, such as the same model placed in several ways, "
        "all methods of all of them compete.\n\n"
        "With --sweep the links between sites (all links, where the pipeline "
        "names no sites) get other latencies and transfer times, and there is "
        "a column per latency and a table per transfer time. A value is one "
        "way. Plain numbers are multiples of the forward time, as in "
        "CrossPipe's figures: latency=0:2:0.25 is 0, 0.25, ... 2 times the "
        "time that a device takes for the forward work of one microbatch.\n\n"
        "Methods that do not suit the placement, or find no schedule within "
        "the memory limits, say so in their row.",
    .output_help = "Write what would be printed to FILE.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run,
};
