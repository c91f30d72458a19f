/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a comparison's tables and curves. */
#include "comparison_view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool cli_comparison_is_sweep(const cli_comparison *x)
{
    return x->sweep.axes[CLI_LATENCY].delays.n_values ||
           x->sweep.axes[CLI_TRANSFER].delays.n_values;
}

/* --- one point ---------------------------------------------------------- */

/* Returns the label column's width in terminal columns: that of the longest
 * contender's label, at least the heading's. */
static int get_label_width(const cli_comparison *x)
{
    int width = (int)strlen("method");
    for (uint32_t i = 0; i < x->all->n_contenders; i++)
        if ((int)cli_columns(x->all->contenders[i].label) > width)
            width = (int)cli_columns(x->all->contenders[i].label);
    return width;
}

/* Prints one row: contender i (a pipeline with a method) as a label of `width`
 * columns, its time, ratio to best_ns, bubble and peak memory, or the reason
 * why it has none. */
static void print_row(cli *c, const cli_comparison *x, uint32_t i, int width,
                      int64_t best_ns)
{
    char time[CLI_TIME_TEXT], memory[CLI_MEMORY_TEXT];
    const lh_outcome *o = lh_comparison_at(x->all, 0, 0, i);
    const lh_contender *who = &x->all->contenders[i];
    const char *unit =
        lh_pipeline_memory_unit(x->all->bases[who->base].pipeline);
    if (o->status != LH_OK) {
        cli_print(c, "%-*s  %s\n", width, who->label, o->why);
        return;
    }
    cli_print(c, "%-*s  %14s  %6.3f  %6.2f %%  %12s%s\n", width, who->label,
              cli_time_text(o->ns, time),
              best_ns > 0 ? (double)o->ns / (double)best_ns : 1.0,
              100 * o->bubble_ratio,
              cli_memory_text(o->peak_memory, unit, memory),
              o->fits ? "" : "  over the limit");
}

/* Prints one lower bound per pipeline, which holds for all its schedules, after
 * a label of `width` columns. */
static void print_bounds(cli *c, const cli_comparison *x, int width)
{
    const lh_comparison *all = x->all;
    for (uint32_t b = 0; b < all->n_bases; b++) {
        char time[CLI_TIME_TEXT], label[80];
        uint32_t i = 0;
        while (i < all->n_contenders &&
               (all->contenders[i].base != b ||
                lh_comparison_at(all, 0, 0, i)->bound_ns <= 0))
            i++;
        if (i == all->n_contenders)
            continue;
        const char *own = all->n_bases > 1 ? all->bases[b].name : "";
        snprintf(label, sizeof label, "lower bound%s%.60s", *own ? " " : "",
                 own);
        cli_print(c, "%-*s  %14s  no %s\n", width, label,
                  cli_time_text(lh_comparison_at(all, 0, 0, i)->bound_ns, time),
                  x->first_device ? "makespan is shorter"
                                  : "schedule is faster");
    }
}

/* Prints all contenders in ranking order, then the lower bounds. */
static lh_status print_table(cli *c, const cli_comparison *x)
{
    uint32_t *ranking =
        calloc(x->all->n_contenders + (size_t)1, sizeof *ranking);
    if (!ranking)
        return cli_no_memory(c);
    lh_comparison_rank(x->all, 0, 0, ranking);
    int width = get_label_width(x);
    int64_t best_ns = lh_comparison_at(x->all, 0, 0, ranking[0])->ns;
    cli_print(c, "%-*s  %14s  %6s  %8s  %12s\n", width, "method", x->number,
              "ratio", "bubble", "peak memory");
    for (uint32_t i = 0; i < x->all->n_contenders; i++)
        print_row(c, x, ranking[i], width, best_ns);
    print_bounds(c, x, width);
    free(ranking);
    return LH_OK;
}

/* --- sweeps ------------------------------------------------------------- */

/* Returns the curves' x axis: latency, or transfer if latency is constant. */
static cli_axis_kind get_x_axis(const cli_comparison *x)
{
    return x->sweep.axes[CLI_LATENCY].delays.n_values ? CLI_LATENCY
                                                      : CLI_TRANSFER;
}

uint32_t cli_comparison_n_curves(const cli_comparison *x)
{
    return get_x_axis(x) == CLI_LATENCY ? x->all->n_transfers : 1;
}

/* Returns contender `contender`'s result at point `point` of the x axis in
 * curve sheet `which` (a set of curves for one transfer time). */
static const lh_outcome *get_outcome(const cli_comparison *x, uint32_t which,
                                     uint32_t point, uint32_t contender)
{
    return get_x_axis(x) == CLI_LATENCY
               ? lh_comparison_at(x->all, point, which, contender)
               : lh_comparison_at(x->all, 0, point, contender);
}

/* Writes the x axis's label and the title of curve sheet `which` (a set of
 * curves for one transfer time) to *out. */
static void name_curves(const cli_comparison *x, uint32_t which,
                        cli_curves *out)
{
    const cli_axis *axis = &x->sweep.axes[get_x_axis(x)];
    const cli_axis *other = &x->sweep.axes[CLI_TRANSFER];
    char value[CLI_TIME_TEXT];
    snprintf(out->x, sizeof out->x, "%s (%s)", cli_axis_names[get_x_axis(x)],
             axis->delays.relative ? "forward times" : "ms");
    if (get_x_axis(x) == CLI_LATENCY && other->delays.n_values)
        snprintf(out->title, sizeof out->title, "transfer %s%s",
                 cli_axis_text(other, which, value),
                 other->delays.relative ? " forward times" : "");
}

lh_status cli_curves_build(cli *c, const cli_comparison *x, uint32_t which,
                           cli_curves *out)
{
    const cli_axis *axis = &x->sweep.axes[get_x_axis(x)];
    uint32_t points = axis->delays.n_values, series = x->all->n_contenders;
    *out = (cli_curves){0};
    out->xs = calloc(points, sizeof *out->xs);
    out->series = calloc(series + (size_t)1, sizeof *out->series);
    out->makespan_ns =
        calloc((size_t)series * points + 1, sizeof *out->makespan_ns);
    if (!out->xs || !out->series || !out->makespan_ns)
        return cli_no_memory(c);
    for (uint32_t p = 0; p < points; p++)
        out->xs[p] =
            axis->delays.relative ? axis->values[p] : axis->values[p] / 1e6;
    uint32_t n = 0;
    for (uint32_t i = 0; i < series; i++) {
        bool any = false;
        for (uint32_t p = 0; p < points; p++) {
            int64_t ns = get_outcome(x, which, p, i)->ns;
            out->makespan_ns[(size_t)n * points + p] = ns;
            any = any || ns >= 0;
        }
        out->series[n] = x->all->contenders[i].label;
        n += any; /* omit curves without any valid point */
    }
    name_curves(x, which, out);
    out->sweep = (lh_report_sweep){
        .size = sizeof out->sweep,
        .title = *out->title ? out->title : NULL,
        .x = out->x,
        .n_points = points,
        .xs = out->xs,
        .n_series = n,
        .series = out->series,
        .makespan_ns = out->makespan_ns,
    };
    return LH_OK;
}

void cli_curves_fini(cli_curves *curves)
{
    free(curves->xs);
    free(curves->series);
    free(curves->makespan_ns);
    *curves = (cli_curves){0};
}

enum { COLUMN = 14 }; /* "9999.123 ms" and its separator */

/* Returns the width of the sheet's label column; `along` (`room` bytes)
 * receives the x axis's label. It ends with "(forward times)" if the values are
 * multiples of the forward time. */
static int compute_sheet_width(const cli_comparison *x, char *along,
                               size_t room)
{
    const int width = get_label_width(x);
    const int len = snprintf(
        along, room, "%s%s", cli_axis_names[get_x_axis(x)],
        x->sweep.axes[get_x_axis(x)].delays.relative ? " (forward times)" : "");
    return len > width ? len : width;
}

/* Prints a table of the points first..first+count-1 in curve sheet `which`: a
 * row per contender, a column per point. */
static void print_points(cli *c, const cli_comparison *x, uint32_t which,
                         uint32_t first, uint32_t count)
{
    char text[CLI_TIME_TEXT], along[60];
    const cli_axis *axis = &x->sweep.axes[get_x_axis(x)];
    const int width = compute_sheet_width(x, along, sizeof along);
    cli_print(c, "\n%-*s", width, along);
    for (uint32_t p = first; p < first + count; p++)
        cli_print(c, "%*s", COLUMN, cli_axis_text(axis, p, text));
    cli_print(c, "\n");
    for (uint32_t i = 0; i < x->all->n_contenders; i++) {
        cli_print(c, "%-*s", width, x->all->contenders[i].label);
        for (uint32_t p = first; p < first + count; p++) {
            const lh_outcome *o = get_outcome(x, which, p, i);
            if (o->ns < 0)
                cli_print(c, "%*s", COLUMN, "-");
            else
                cli_print(c, "%*s", COLUMN, cli_time_text(o->ns, text));
        }
        cli_print(c, "\n");
    }
}

/* Prints the sweep's sheet `which`: tables that fit the terminal, and a plot.
 */
static lh_status print_sheet(cli *c, const cli_comparison *x, uint32_t which)
{
    cli_curves curves;
    lh_status status = cli_curves_build(c, x, which, &curves);
    if (status == LH_OK) {
        if (curves.sweep.title)
            cli_print(c, which ? "\n%s\n" : "%s\n", curves.title);
        uint32_t width = cli_width(), points = curves.sweep.n_points;
        char along[60];
        uint32_t labels = (uint32_t)compute_sheet_width(x, along, sizeof along);
        uint32_t fit = width > labels + COLUMN ? (width - labels) / COLUMN : 1;
        for (uint32_t p = 0; p < points; p += fit)
            print_points(c, x, which, p, points - p < fit ? points - p : fit);
    }
    if (status == LH_OK && curves.sweep.n_points > 1 &&
        curves.sweep.n_series > 0) {
        lh_terminal_options terminal = cli_terminal(c);
        char *text = NULL;
        status = lh_report_terminal_plot(&curves.sweep, &terminal, &text, NULL,
                                         &c->err);
        if (status == LH_OK)
            cli_put_chart(c, text);
        lh_text_free(text);
    }
    cli_curves_fini(&curves);
    return status;
}

lh_status cli_comparison_text(cli *c, const cli_comparison *x)
{
    if (!cli_comparison_is_sweep(x))
        return print_table(c, x);
    for (uint32_t i = 0; i < cli_comparison_n_curves(x); i++)
        CLI_TRY(print_sheet(c, x, i));
    return LH_OK;
}
