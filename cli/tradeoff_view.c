/* SPDX-License-Identifier: Apache-2.0 */
#include "tradeoff_view.h"

#include "values.h"
#include "view.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Builds the options of the memory-time trade-off into *out. It points to
 * *each, the solver options for each point; sub_blocks: parts per W pass. The
 * caller frees *start, the initial schedule, NULL without one. */
static lh_status make_options(cli *c, const cli_search *search,
                              const cli_model *model, uint32_t sub_blocks,
                              const cli_tradeoff *how, lh_tradeoff_options *out,
                              lh_solve_options *each, lh_schedule **start)
{
    *out = (lh_tradeoff_options){.size = sizeof *out,
                                 .points = how->points,
                                 .makespan_ns = how->makespan_ns,
                                 .solve_options = each};
    return cli_search_options(c, search, model, sub_blocks, each, start);
}

lh_status cli_least_memory(cli *c, const cli_search *search,
                           const cli_model *model, uint32_t sub_blocks,
                           const cli_tradeoff *how, const lh_pipeline *pipeline,
                           lh_memory_point *out)
{
    lh_tradeoff_options o;
    lh_solve_options each;
    lh_schedule *start = NULL;
    CLI_TRY(make_options(c, search, model, sub_blocks, how, &o, &each, &start));
    cli_search_begin(c);
    lh_status status = lh_minimise_memory(pipeline, &o, out, &c->err);
    cli_search_end();
    lh_schedule_free(start);
    return status;
}

/* --- curve -------------------------------------------------------------- */

/* Returns the relative difference between a point's makespan and its lower
 * bound; 0 without a bound. */
static double compute_gap(const lh_memory_point *point)
{
    return point->bound_ns > 0
               ? (double)(point->makespan_ns - point->bound_ns) /
                     (double)point->bound_ns
               : 0;
}

/* Prints the points of the memory-time curve as JSON: memory limit, makespan
 * and lower bound. */
static lh_status print_json(cli *c, const lh_pipeline *pipeline,
                            const lh_memory_curve *curve)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; rows && i < curve->n_points; i++) {
        const lh_memory_point *p = &curve->points[i];
        json_array_append_new(
            rows, json_pack("{s:I, s:I, s:o, s:o, s:f, s:s}", "memory_limit",
                            (json_int_t)p->limit, "memory_limit_bound",
                            (json_int_t)p->limit_bound, "makespan_s",
                            cli_seconds(p->makespan_ns), "lower_bound_s",
                            cli_seconds(p->bound_ns), "gap", compute_gap(p),
                            "status", lh_solve_status_name(p->status)));
    }
    return cli_put_json(
        c, json_pack("{s:o, s:b, s:o, s:s}", "rows", rows, "complete",
                     curve->complete, "infeasible_below",
                     curve->infeasible_below < 0
                         ? json_null()
                         : json_integer(curve->infeasible_below),
                     "memory_unit", lh_pipeline_memory_unit(pipeline)));
}

/* The curve in ascending memory, in plot format. */
typedef struct curve_data {
    lh_report_sweep sweep;
    double *xs;
    int64_t *ns;
    char x[80];
} curve_data;

static const char *const series[] = {"optimal"};

/* Builds the report's curve of makespan over memory limit; the caller frees
 * its arrays. */
static lh_status build_curve_data(cli *c, const lh_pipeline *pipeline,
                                  const lh_memory_curve *curve, curve_data *out)
{
    const char *unit = lh_pipeline_memory_unit(pipeline);
    bool bytes = strcmp(unit, "bytes") == 0;
    *out = (curve_data){0};
    out->xs = calloc(curve->n_points, sizeof *out->xs);
    out->ns = calloc(curve->n_points, sizeof *out->ns);
    if (!out->xs || !out->ns)
        return cli_no_memory(c);
    snprintf(out->x, sizeof out->x, "memory limit%s%.40s%s", *unit ? " (" : "",
             bytes ? "GiB" : unit, *unit ? ")" : "");
    for (uint32_t i = 0; i < curve->n_points; i++) {
        const lh_memory_point *p = &curve->points[curve->n_points - 1 - i];
        out->xs[i] = bytes ? (double)p->limit / (1 << 30) : (double)p->limit;
        out->ns[i] = p->makespan_ns;
    }
    out->sweep = (lh_report_sweep){.size = sizeof out->sweep,
                                   .x = out->x,
                                   .n_points = curve->n_points,
                                   .xs = out->xs,
                                   .n_series = 1,
                                   .series = series,
                                   .makespan_ns = out->ns};
    return LH_OK;
}

/* Writes the curve as an HTML report to `path`. */
static lh_status write_report(cli *c, const curve_data *s, const char *path)
{
    lh_report *report = NULL;
    CLI_TRY(lh_report_make(cli_utf8_name(c, c->operands[0]), &report, &c->err));
    lh_status status = lh_report_add_sweep(report, &s->sweep, &c->err);
    if (status == LH_OK)
        status = cli_write_html(c, report, path);
    lh_report_free(report);
    return status;
}

/* Prints a table row per curve point: limit, makespan, lower bound and gap. */
static void print_table(cli *c, const lh_pipeline *pipeline,
                        const lh_memory_curve *curve)
{
    const char *unit = lh_pipeline_memory_unit(pipeline);
    char a[CLI_MEMORY_TEXT], b[CLI_TIME_TEXT], d[CLI_TIME_TEXT];
    cli_print(c, "%16s  %12s  %12s  %8s\n", "memory limit", "makespan",
              "lower bound", "gap");
    for (uint32_t i = 0; i < curve->n_points; i++) {
        const lh_memory_point *p = &curve->points[i];
        cli_print(c, "%16s  %12s  %12s  %6.2f %%%s%s\n",
                  cli_memory_text(p->limit, unit, a),
                  cli_time_text(p->makespan_ns, b),
                  cli_time_text(p->bound_ns, d), 100 * compute_gap(p),
                  p->status == LH_SOLVE_OPTIMAL ? "  optimal" : "",
                  p->limit_bound < p->limit ? ", less memory may suffice" : "");
    }
    if (curve->infeasible_below > 0)
        cli_print(c, "No schedule exists with less than %s.\n",
                  cli_memory_text(curve->infeasible_below, unit, a));
    if (!curve->complete)
        cli_print(c, "Incomplete: stopped, or more points than --points.\n");
}

/* Writes the report and prints the curve as JSON, or as a table and a plot. */
static lh_status print_curve(cli *c, const cli_tradeoff *how,
                             const lh_pipeline *pipeline,
                             const lh_memory_curve *curve)
{
    curve_data s;
    char *text = NULL;
    lh_status status = build_curve_data(c, pipeline, curve, &s);
    if (status == LH_OK && how->html)
        status = write_report(c, &s, how->html);
    if (status == LH_OK && c->common.json) {
        status = print_json(c, pipeline, curve);
    } else if (status == LH_OK) {
        print_table(c, pipeline, curve);
        if (curve->n_points > 1) {
            lh_terminal_options terminal = cli_terminal(c);
            status = lh_report_terminal_plot(&s.sweep, &terminal, &text, NULL,
                                             &c->err);
        }
        if (status == LH_OK && text)
            cli_put_chart(c, text);
    }
    lh_text_free(text);
    free(s.xs);
    free(s.ns);
    return status;
}

lh_status cli_print_pareto_curve(cli *c, const cli_search *search,
                                 const cli_model *model, uint32_t sub_blocks,
                                 const cli_tradeoff *how,
                                 const lh_pipeline *pipeline)
{
    lh_tradeoff_options o;
    lh_solve_options each;
    lh_memory_curve curve;
    lh_schedule *start = NULL;
    CLI_TRY(make_options(c, search, model, sub_blocks, how, &o, &each, &start));
    cli_search_begin(c);
    lh_status status = lh_memory_curve_make(pipeline, &o, &curve, &c->err);
    cli_search_end();
    lh_schedule_free(start);
    if (status != LH_OK)
        return status;
    status = print_curve(c, how, pipeline, &curve);
    lh_memory_curve_fini(&curve);
    return status;
}
