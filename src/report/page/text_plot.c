/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a sweep's curves as text. */
#include "report/page/report_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lines of the plot; columns of the axis on its left. */
enum { HEIGHT = 16, LEFT = 9 };

static const char marks[] = "o+x*#@%&$=abcdefghijklmnpqrstuvwyz";

/* Plot state. */
typedef struct plot {
    lhi_text out;
    const lh_report_sweep *sweep;
    uint32_t columns;
    char *cells; /* [HEIGHT][columns], row 0 at the top; 0: empty */
    double baseline, low, high;
} plot;

/* Returns a point's makespan relative to the baseline; -1 if the series has no
 * value there. */
static double get_slowdown(const plot *p, uint32_t series, uint32_t point)
{
    size_t i = (size_t)series * p->sweep->n_points + point;
    int64_t ns = p->sweep->makespan_ns[i];
    return ns < 0 ? -1 : (double)ns / p->baseline;
}

/* Computes the slowdown range on the vertical axis, which includes 1. */
static void find_range(plot *p)
{
    p->low = 1;
    p->high = 1;
    for (uint32_t s = 0; s < p->sweep->n_series; s++)
        for (uint32_t i = 0; i < p->sweep->n_points; i++) {
            double v = get_slowdown(p, s, i);
            if (v >= 0 && v < p->low)
                p->low = v;
            if (v > p->high)
                p->high = v;
        }
    if (p->high < p->low + 0.01)
        p->high = p->low + 0.01;
}

/* Returns the text column in the plot that corresponds to the x value `x`. */
static uint32_t get_column(const plot *p, double x)
{
    const double *xs = p->sweep->xs;
    double span = xs[p->sweep->n_points - 1] - xs[0];
    double share = span > 0 ? (x - xs[0]) / span : 0;
    return (uint32_t)lround(share * (p->columns - 1));
}

/* Writes `mark` into the plot's cell at a column and `value`'s row; only empty
 * cells and dots are overwritten. */
static void put_mark(plot *p, uint32_t column, double value, char mark)
{
    double share = (value - p->low) / (p->high - p->low);
    uint32_t row = HEIGHT - 1 - (uint32_t)lround(share * (HEIGHT - 1));
    char *cell = &p->cells[(size_t)row * p->columns + column];
    if (!*cell || *cell == '.')
        *cell = mark;
}

/* Draws the text plot's series number `s`: its mark at each point, and dots on
 * the lines between them. */
static void draw_series(plot *p, uint32_t s)
{
    const double *xs = p->sweep->xs;
    char mark = marks[s % (sizeof marks - 1)];
    for (uint32_t i = 0; i < p->sweep->n_points; i++) {
        double v = get_slowdown(p, s, i), next;
        if (v < 0)
            continue;
        put_mark(p, get_column(p, xs[i]), v, mark);
        if (i + 1 == p->sweep->n_points ||
            (next = get_slowdown(p, s, i + 1)) < 0)
            continue;
        uint32_t from = get_column(p, xs[i]), to = get_column(p, xs[i + 1]);
        for (uint32_t c = from + 1; c < to; c++)
            put_mark(p, c, v + (next - v) * (c - from) / (to - from), '.');
    }
}

/* Appends the text plot's rows, each with its label on the vertical axis. */
static void add_rows(plot *p)
{
    for (uint32_t row = 0; row < HEIGHT; row++) {
        double v = p->high - (p->high - p->low) * row / (HEIGHT - 1);
        if (row % 5 == 0)
            lhi_text_printf(&p->out, "%*.3f |", LEFT - 2, v);
        else
            lhi_text_printf(&p->out, "%*s|", LEFT - 1, "");
        const char *cells = p->cells + (size_t)row * p->columns;
        uint32_t end = p->columns;
        while (end > 0 && !cells[end - 1])
            end--;
        for (uint32_t c = 0; c < end; c++)
            lhi_text_printf(&p->out, "%c", cells[c] ? cells[c] : ' ');
        lhi_text_puts(&p->out, "\n");
    }
}

/* Adds the plot's horizontal axis with its labels, and the legend below it. */
static void add_below(plot *p)
{
    const lh_report_sweep *s = p->sweep;
    char first[32], last[32];
    int n = snprintf(first, sizeof first, "%g", s->xs[0]);
    int m = snprintf(last, sizeof last, "%g", s->xs[s->n_points - 1]);
    lhi_text_printf(&p->out, "%*s+", LEFT - 1, "");
    for (uint32_t c = 0; c < p->columns; c++)
        lhi_text_puts(&p->out, "-");
    lhi_text_printf(&p->out, "\n%*s%s", LEFT, "", first);
    uint32_t used = (uint32_t)n + (uint32_t)m + 2;
    uint32_t room = p->columns > used ? p->columns - used : 0;
    uint32_t shown = (uint32_t)lhi_count_escaped_columns(s->x);
    shown = shown < room ? shown : room;
    lhi_text_printf(&p->out, " %*s", (int)((room - shown) / 2), "");
    lhi_text_add_escaped(&p->out, s->x, room);
    lhi_text_printf(&p->out, "%*s %s\n",
                    (int)(room - shown - (room - shown) / 2), "", last);
    for (uint32_t i = 0; i < s->n_series; i++) {
        lhi_text_printf(&p->out, "%*s%c ", LEFT, "",
                        marks[i % (sizeof marks - 1)]);
        lhi_text_add_escaped(&p->out, s->series[i], p->columns - 2);
        lhi_text_puts(&p->out, "\n");
    }
}

/* Adds the whole plot: title, curves, axes and legend. */
static void add_all(plot *p)
{
    const lh_report_sweep *s = p->sweep;
    find_range(p);
    for (uint32_t i = 0; i < s->n_series; i++)
        draw_series(p, i);
    lhi_text_puts(&p->out, s->title ? "slowdown, " : "slowdown");
    lhi_text_add_escaped(&p->out, s->title ? s->title : "", p->columns - 2);
    lhi_text_puts(&p->out, "\n");
    add_rows(p);
    add_below(p);
}

lh_status lh_report_terminal_plot(const lh_report_sweep *sweep,
                                  const lh_terminal_options *options,
                                  char **text, size_t *len, lh_error *err)
{
    lh_terminal_options o;
    lh_report_sweep all;
    LHI_TRY(lhi_report_copy_terminal_options(options, &o, err));
    LHI_TRY(lhi_report_copy_sweep(sweep, &all, err));
    if (all.n_points == 0)
        return lhi_fail(err, LH_EINVAL, "a sweep without points");
    plot p = {.sweep = &all,
              .columns = o.width - LEFT,
              .baseline = (double)lhi_report_sweep_baseline(&all)};
    p.cells = calloc(HEIGHT, p.columns);
    if (p.cells)
        add_all(&p);
    else
        p.out.failed = true;
    free(p.cells);
    return lhi_text_take(&p.out, text, len, err);
}
