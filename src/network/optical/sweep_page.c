/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a sweep's page: curves with confidence bands. */
#include "network/optical/figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 330,
    HEIGHT = 210,
    LEFT = 44,
    RIGHT = 12,
    TOP = 10,
    BOTTOM = 34,
    N_COLORS = 9,
    MAX_TICKS = 8,
};

/* Drawn measures. */
typedef enum measure { ITERATION, BUBBLE, BLOCKING, N_MEASURES } measure;

static const char *const measure_titles[N_MEASURES] = {
    "Iteration time, s", "Bubble, %", "Blocked requests, %"};

/* One group of charts: cells that differ on the x axis only. */
typedef struct chart {
    const lh_optical_sweep *s;
    uint32_t axis; /* of x */
    uint32_t cell; /* with its first value */
    uint32_t step; /* between neighbouring cells on the axis */
    double x0, x1; /* range of x */
    bool numeric, logarithmic;
} chart;

/* Parses `text` as a number into *out; false if any other character remains. */
static bool read_number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

/* Checks whether the axis (a varied scenario key) has at least two values and
 * all are numbers. */
static bool is_numeric(const lh_optical_axis *axis)
{
    double x;
    for (uint32_t i = 0; i < axis->n_values; i++)
        if (!read_number(axis->values[i], &x))
            return false;
    return axis->n_values > 1;
}

/* Returns the index of the axis (varied scenario key) that the charts use as x:
 * the first numeric one, else axis 0. */
static uint32_t choose_axis(const lh_optical_sweep *s)
{
    for (uint32_t a = 0; a < s->n_axes; a++)
        if (is_numeric(&s->axes[a]))
            return a;
    return 0;
}

/* Returns the unscaled x coordinate of value index `value` of the x axis: the
 * number or its logarithm, else the index itself. */
static double get_raw_x(const chart *c, uint32_t value)
{
    double x = value;
    if (c->numeric)
        read_number(c->s->axes[c->axis].values[value], &x);
    return c->logarithmic ? log(x) : x;
}

/* Chooses the chart's x scale and range: numbers, or list positions;
 * logarithmic if all are positive and the largest is at least 8 times the
 * smallest. */
static void scale_x(chart *c)
{
    const lh_optical_axis *axis = &c->s->axes[c->axis];
    c->numeric = is_numeric(axis);
    for (int pass = 0; pass < 2; pass++) {
        c->x0 = INFINITY;
        c->x1 = -INFINITY;
        for (uint32_t i = 0; i < axis->n_values; i++) {
            double x = get_raw_x(c, i);
            c->x0 = fmin(c->x0, x);
            c->x1 = fmax(c->x1, x);
        }
        if (pass == 0)
            c->logarithmic = c->numeric && c->x0 > 0 && c->x1 >= 8 * c->x0;
    }
}

/* Returns the x coordinate, in pixels, of value index `value` of the x axis. */
static double get_x(const chart *c, uint32_t value)
{
    double span = c->x1 - c->x0;
    double at = span > 0 ? (get_raw_x(c, value) - c->x0) / span : 0.5;
    return LEFT + at * (WIDTH - LEFT - RIGHT);
}

/* Returns the results of a policy (index) at value index `value` of the chart's
 * x axis. */
static const lh_optical_policy *get_policy(const chart *c, uint32_t value,
                                           uint32_t policy)
{
    return &c->s->cells[c->cell + value * c->step]->policies[policy];
}

/* Returns a policy's mean of measure `what` (seconds or per cent); *half: half
 * the width of its 95 % confidence interval. */
static double get_mean(const lh_optical_policy *p, measure what, double *half)
{
    double scale = what == ITERATION ? 1 : 100;
    double sd = what == ITERATION ? p->iteration_s_sd
                : what == BUBBLE  ? p->bubble_ratio_sd
                                  : p->blocking_probability_sd;
    double mean = what == ITERATION ? p->iteration_s
                  : what == BUBBLE  ? p->bubble_ratio
                                    : p->blocking_probability;
    *half = scale * lh_optical_half_width(sd, p->n_runs);
    return scale * mean;
}

/* Returns the upper end of a chart's y axis for measure `what`: a round number
 * above all means with their confidence intervals. */
static double get_top(const chart *c, measure what)
{
    double top = 0;
    for (uint32_t v = 0; v < c->s->axes[c->axis].n_values; v++)
        for (uint32_t k = 0; k < c->s->cells[0]->n_policies; k++) {
            double half, mean = get_mean(get_policy(c, v, k), what, &half);
            top = fmax(top, mean + half);
        }
    return top > 0 ? ceil(top / lhi_figure_round_up(top / 5)) *
                         lhi_figure_round_up(top / 5)
                   : 1;
}

/* Returns the y coordinate, in pixels, of a value if the axis ends at `top`. */
static double get_y(double value, double top)
{
    return HEIGHT - BOTTOM - fmax(0, value) / top * (HEIGHT - TOP - BOTTOM);
}

/* Draws a chart's grid lines and axis labels; `top`: upper end of the y
 * axis. */
static void draw_axes(lhi_text *out, const chart *c, double top)
{
    const lh_optical_axis *axis = &c->s->axes[c->axis];
    uint32_t every = (axis->n_values + MAX_TICKS - 1) / MAX_TICKS;
    double step = lhi_figure_round_up(top / 5);
    for (double y = 0; y <= top * 1.0001; y += step)
        lhi_text_printf(out,
                        "<line class=cable x1=%d x2=%d y1=%.1f y2=%.1f />"
                        "<text class=id x=%d y=%.1f text-anchor=end>%.4g"
                        "</text>",
                        LEFT, WIDTH - RIGHT, get_y(y, top), get_y(y, top),
                        LEFT - 4, get_y(y, top) + 3, y);
    for (uint32_t v = 0; v < axis->n_values; v += every) {
        lhi_text_printf(out, "<text class=id x=%.1f y=%d text-anchor=middle>",
                        get_x(c, v), HEIGHT - BOTTOM + 12);
        lhi_html_text(out, axis->values[v]);
        lhi_text_puts(out, "</text>");
    }
    lhi_text_printf(out, "<text class=id x=%d y=%d text-anchor=middle>",
                    (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6);
    lhi_html_text(out, axis->key);
    lhi_text_puts(out, "</text>");
}

/* Draws a policy's curve of measure `what` over the x axis, with points and a
 * band for the confidence interval; `top`: upper end of the y axis. */
static void draw_curve(lhi_text *out, const chart *c, measure what, double top,
                       uint32_t policy)
{
    uint32_t n = c->s->axes[c->axis].n_values, color = policy % N_COLORS;
    double half;
    lhi_text_printf(
        out, "<path class=band style=\"fill:var(--s%" PRIu32 ")\" d=\"", color);
    for (uint32_t i = 0; i < 2 * n; i++) {
        uint32_t v = i < n ? i : 2 * n - 1 - i;
        double mean = get_mean(get_policy(c, v, policy), what, &half);
        lhi_text_printf(out, "%c%.1f %.1f", i == 0 ? 'M' : 'L', get_x(c, v),
                        get_y(i < n ? mean + half : mean - half, top));
    }
    lhi_text_printf(out,
                    "Z\"/><path class=curve style=\"stroke:var(--s%" PRIu32
                    ")%s\" d=\"",
                    color, policy < N_COLORS ? "" : ";stroke-dasharray:4 3");
    for (uint32_t v = 0; v < n; v++)
        lhi_text_printf(
            out, "%c%.1f %.1f", v == 0 ? 'M' : 'L', get_x(c, v),
            get_y(get_mean(get_policy(c, v, policy), what, &half), top));
    lhi_text_puts(out, "\"/>");
    for (uint32_t v = 0; v < n; v++) {
        const lh_optical_policy *p = get_policy(c, v, policy);
        double mean = get_mean(p, what, &half);
        lhi_text_printf(out,
                        "<circle style=\"fill:var(--s%" PRIu32
                        ")\" cx=%.1f cy=%.1f r=2.5><title>",
                        color, get_x(c, v), get_y(mean, top));
        lhi_html_text(out, p->name);
        lhi_text_printf(out, ": %.4g \xc2\xb1 %.2g</title></circle>", mean,
                        half);
    }
}

/* Adds a legend: the name of each policy beside its curves' colour. */
static void add_legend(lhi_text *out, const lh_optical_sweep *s)
{
    lhi_text_puts(out, "<p class=legend>");
    for (uint32_t k = 0; k < s->cells[0]->n_policies; k++) {
        lhi_text_printf(
            out, "<span><i style=\"background:var(--s%" PRIu32 ")\"></i>",
            k % N_COLORS);
        lhi_html_text(out, s->cells[0]->policies[k].name);
        lhi_text_puts(out, "</span>");
    }
    lhi_text_puts(out, "</p>");
}

/* Adds a panel with three charts (iteration time, bubble, blocking) of the
 * cells that differ only in the x axis's value. */
static void add_charts(lhi_text *out, const chart *c)
{
    lhi_text_puts(out, "<section class=panel><div class=panel-head><h2>");
    bool any = false;
    for (uint32_t a = 0; a < c->s->n_axes; a++) {
        const lh_optical_axis *axis = &c->s->axes[a];
        if (a == c->axis)
            continue;
        lhi_text_puts(out, any ? ", " : "");
        lhi_html_text(out, axis->key);
        lhi_text_puts(out, ": ");
        lhi_html_text(out,
                      axis->values[lh_optical_sweep_value(c->s, c->cell, a)]);
        any = true;
    }
    lhi_text_puts(out, any ? "</h2></div>" : "All policies</h2></div>");
    add_legend(out, c->s);
    lhi_text_puts(out, "<div class=charts>");
    for (int what = 0; what < N_MEASURES; what++) {
        double top = get_top(c, (measure)what);
        lhi_text_printf(out,
                        "<div><h3>%s</h3><svg class=chart viewBox=\"0 0 %d "
                        "%d\">",
                        measure_titles[what], WIDTH, HEIGHT);
        draw_axes(out, c, top);
        for (uint32_t k = 0; k < c->s->cells[0]->n_policies; k++)
            draw_curve(out, c, (measure)what, top, k);
        lhi_text_puts(out, "</svg></div>");
    }
    lhi_text_puts(out, "</div></section>\n");
}

/* Adds an HTML table with the mean results of every cell (combination of
 * values) and policy. */
static void add_table(lhi_text *out, const lh_optical_sweep *s)
{
    lhi_text_puts(out, "<details class=panel><summary>All numbers</summary>"
                       "<div class=scroll><table><thead><tr>");
    for (uint32_t a = 0; a < s->n_axes; a++) {
        lhi_text_puts(out, "<th scope=col>");
        lhi_html_text(out, s->axes[a].key);
    }
    lhi_text_puts(out, "<th scope=col>Policy<th class=num scope=col>Iteration, "
                       "s<th class=num scope=col>Bubble, %<th class=num "
                       "scope=col>Blocked, %<th class=num scope=col>Slots held"
                       "</tr></thead><tbody>\n");
    for (uint32_t c = 0; c < s->n_cells; c++)
        for (uint32_t k = 0; k < s->cells[c]->n_policies; k++) {
            const lh_optical_policy *p = &s->cells[c]->policies[k];
            lhi_text_puts(out, "<tr>");
            for (uint32_t a = 0; a < s->n_axes; a++) {
                lhi_text_puts(out, "<td>");
                lhi_html_text(
                    out, s->axes[a].values[lh_optical_sweep_value(s, c, a)]);
            }
            lhi_text_puts(out, "<td>");
            lhi_html_text(out, p->name);
            for (int what = 0; what < N_MEASURES; what++) {
                double half, mean = get_mean(p, (measure)what, &half);
                lhi_text_printf(out, "<td class=num>%.*f \xc2\xb1 %.*f",
                                what == ITERATION ? 3 : 2, mean,
                                what == ITERATION ? 3 : 2, half);
            }
            lhi_text_printf(out, "<td class=num>%.0f</tr>\n", p->slots_held);
        }
    lhi_text_puts(out, "</tbody></table></div></details>\n");
}

lh_status lh_optical_sweep_html(const lh_optical_sweep *sweep, char **text,
                                size_t *len, lh_error *err)
{
    lhi_text out = {0}, title = {0}, facts = {0}, body = {0};
    chart c = {.s = sweep, .axis = choose_axis(sweep), .step = 1};
    for (uint32_t a = c.axis + 1; a < sweep->n_axes; a++)
        c.step *= sweep->axes[a].n_values;
    scale_x(&c);
    lhi_text_puts(&title, "Policies over ");
    lhi_html_text(&title, sweep->axes[c.axis].key);
    lhi_text_printf(&facts,
                    "<div><dt>combinations</dt><dd>%" PRIu32 "</dd></div>"
                    "<div><dt>seeds</dt><dd>%" PRIu32 "</dd></div>",
                    sweep->n_cells, sweep->cells[0]->policies[0].n_runs);
    lhi_text_puts(&body, "<p class=note>Lines are means over the seeds; bands "
                         "are 95 % confidence intervals of the mean.</p>\n");
    for (c.cell = 0; c.cell < sweep->n_cells; c.cell++)
        if (lh_optical_sweep_value(sweep, c.cell, c.axis) == 0)
            add_charts(&body, &c);
    add_table(&body, sweep);
    lhi_html_page(&out, &title, &facts, &body);
    lh_status status = lhi_text_take(&out, text, len, err);
    lhi_text_fini(&out);
    lhi_text_fini(&title);
    lhi_text_fini(&facts);
    lhi_text_fini(&body);
    return status;
}
