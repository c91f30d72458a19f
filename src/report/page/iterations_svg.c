/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a run's iterations over time: the rate, slowdowns, and starts of other
 * schedules (Adaptra, arXiv:2504.19232, Fig. 21). */
#include "report/page/report_internal.h"

#include "base/options.h"
#include "report/trace/json_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    MARGIN_LEFT = 64,
    MARGIN_RIGHT = 16,
    MARGIN_TOP = 62, /* series, event and schedule names */
    MARGIN_BOTTOM = 38,
    PLOT_HEIGHT = 220,
    LETTER_WIDTH = 7, /* character width, px */
    MAX_SERIES = 6,
    MAX_TICKS = 6,
    MAX_POINTS = 4000 /* points per line drawn individually */
};

/* Attributes of a line in the picture. */
#define LINE "fill=\"none\" stroke=\"currentColor\""

/* Colours in report.css for light pages; a page overrides them. */
static const char *const colors[MAX_SERIES] = {"#0096f0", "#c38769", "#2d964b",
                                               "#781e69", "#96964b", "#d27896"};

/* Drawing state. */
typedef struct drawing {
    lhi_text out;
    const lh_report_iterations *c;
    int32_t plot; /* plot width */
    double most;  /* iterations per unit at the top */
    double unit_ns;
    const char *unit;
    bool in_page;
} drawing;

/* Adds the stroke colour of series number `series` as an SVG attribute; pages
 * also define it for dark mode. */
static void add_stroke(drawing *d, uint32_t series)
{
    lhi_text_printf(&d->out, "stroke=\"%s\"", colors[series]);
    if (d->in_page)
        lhi_text_printf(&d->out, " style=\"stroke:var(--s%u)\"",
                        (unsigned)series);
}

/* Returns the x coordinate, in 1/100 px, at which iteration number `at` begins
 * in the chart. */
static int64_t get_x(const drawing *d, uint64_t at)
{
    double share = ((double)at - (double)d->c->first) / d->c->n_iterations;
    share = fmin(fmax(share, 0), 1);
    return MARGIN_LEFT * 100 + llround(share * d->plot * 100);
}

/* Returns the y coordinate of a rate (iterations per time) in 1/100 px, limited
 * to the plot's top. */
static int64_t get_y(const drawing *d, double rate)
{
    return (MARGIN_TOP + PLOT_HEIGHT) * 100 -
           llround(fmin(rate / d->most, 1) * PLOT_HEIGHT * 100);
}

/* Returns iteration `i`'s time in a series in ns. */
static int64_t get_time(const drawing *d, uint32_t series, uint32_t i)
{
    return d->c->ns[(size_t)series * d->c->n_iterations + i];
}

/* Chooses the time unit so that the fastest iteration's rate has one to three
 * digits. */
static void find_scale(drawing *d)
{
    static const struct {
        double ns;
        const char *name;
    } units[] = {{1e9, "second"}, {6e10, "minute"}, {3.6e12, "hour"}};
    int64_t least = INT64_MAX;
    for (uint32_t s = 0; s < d->c->n_series; s++)
        for (uint32_t i = 0; i < d->c->n_iterations; i++)
            if (get_time(d, s, i) > 0 && get_time(d, s, i) < least)
                least = get_time(d, s, i);
    size_t u = 0;
    while (u < 2 && units[u].ns / (double)least < 2)
        u++;
    d->unit_ns = units[u].ns;
    d->unit = units[u].name;
    d->most = 1.08 * d->unit_ns / (double)least;
}

/* Appends the SVG attribute `name` with a length, given in 1/100 px, in px. */
static void add_attribute(drawing *d, const char *name, int64_t hundredths)
{
    lhi_text_printf(&d->out, " %s=\"", name);
    lhi_svg_add_hundredths(&d->out, hundredths);
    lhi_text_puts(&d->out, "\"");
}

/* Appends an SVG text element at x, y in 1/100 px; `anchor`: the attribute
 * text-anchor (start, middle or end). */
static void add_text(drawing *d, int64_t x, int64_t y, const char *anchor,
                     const char *text)
{
    lhi_text_puts(&d->out, "<text");
    add_attribute(d, "x", x);
    add_attribute(d, "y", y);
    lhi_text_printf(&d->out, " text-anchor=\"%s\">", anchor);
    lhi_report_add_markup(&d->out, text);
    lhi_text_puts(&d->out, "</text>\n");
}

/* Returns a tick distance of 1, 2 or 5 times a power of ten, with few ticks up
 * to `most`. */
static double choose_tick(double most)
{
    double tick = 1;
    for (int i = 0; most / tick > MAX_TICKS; i++)
        tick *= i % 3 == 1 ? 2.5 : 2;
    return tick;
}

/* Adds both axes: rate lines with their labels, and iteration numbers. */
static void add_axes(drawing *d)
{
    char text[64];
    double tick = choose_tick(d->most);
    for (double v = 0; v <= d->most; v += tick) {
        int64_t y = get_y(d, v);
        lhi_text_puts(&d->out, "<path " LINE " opacity=\".25\" d=\"M");
        lhi_svg_add_hundredths(&d->out, MARGIN_LEFT * 100);
        lhi_text_puts(&d->out, " ");
        lhi_svg_add_hundredths(&d->out, y);
        lhi_text_printf(&d->out, "h%" PRId32 "\"/>\n", d->plot);
        snprintf(text, sizeof text, "%.0f", v);
        add_text(d, (MARGIN_LEFT - 6) * 100, y + 400, "end", text);
    }
    snprintf(text, sizeof text, "iterations per %s", d->unit);
    lhi_text_printf(&d->out, "<g transform=\"translate(14 %d) rotate(-90)\">",
                    MARGIN_TOP + PLOT_HEIGHT / 2);
    add_text(d, 0, 0, "middle", text);
    lhi_text_puts(&d->out, "</g>\n");
    tick = choose_tick(d->c->n_iterations);
    for (double v = 0; v <= d->c->n_iterations; v += tick) {
        snprintf(text, sizeof text, "%.0f", (double)d->c->first + v);
        add_text(d, get_x(d, d->c->first + (uint64_t)v),
                 (MARGIN_TOP + PLOT_HEIGHT + 16) * 100, "middle", text);
    }
    add_text(d, (MARGIN_LEFT + d->plot / 2) * 100,
             (MARGIN_TOP + PLOT_HEIGHT + 32) * 100, "middle", "iteration");
}

/* Checks whether a name drawn from x coordinate `from` on does not overlap the
 * previous one, which ends at *free. If so, sets *free to its end. */
static bool has_place(const char *name, int64_t from, int64_t *free)
{
    if (from < *free)
        return false;
    *free = from + (int64_t)strlen(name) * LETTER_WIDTH * 100 + 400;
    return true;
}

/* Draws the periods with a slowdown as shaded rectangles, with names where they
 * fit. */
static void add_spans(drawing *d)
{
    int64_t free = 0;
    for (uint32_t i = 0; i < d->c->n_spans; i++) {
        const lh_report_span *s = &d->c->spans[i];
        int64_t x = get_x(d, s->from), right = get_x(d, s->to);
        lhi_text_puts(&d->out, "<rect fill=\"#8a5a00\" opacity=\".16\"");
        add_attribute(d, "x", x);
        add_attribute(d, "width", right - x);
        add_attribute(d, "y", MARGIN_TOP * 100);
        add_attribute(d, "height", PLOT_HEIGHT * 100);
        lhi_text_puts(&d->out, "><title>slow: ");
        lhi_report_add_markup(&d->out, s->name);
        lhi_text_puts(&d->out, "</title></rect>\n");
        if (has_place(s->name, x, &free))
            add_text(d, x, (MARGIN_TOP - 20) * 100, "start", s->name);
    }
}

/* Draws a dashed vertical line at every iteration in which the schedule
 * changed, with its name where it fits. */
static void add_marks(drawing *d)
{
    int64_t free = 0;
    for (uint32_t i = 0; i < d->c->n_marks; i++) {
        const lh_report_mark *m = &d->c->marks[i];
        int64_t x = get_x(d, m->step);
        lhi_text_puts(&d->out, "<path " LINE " stroke-dasharray=\"4 3\" d=\"M");
        lhi_svg_add_hundredths(&d->out, x);
        lhi_text_printf(&d->out, " %dv%d\"><title>", MARGIN_TOP - 4,
                        PLOT_HEIGHT + 4);
        lhi_report_add_markup(&d->out, m->name);
        lhi_text_puts(&d->out, "</title></path>\n");
        if (has_place(m->name, x, &free))
            add_text(d, x, (MARGIN_TOP - 7) * 100, "start", m->name);
    }
}

/* Appends the point x, y (1/100 px) to an SVG path: a line from the previous
 * point if *is_on, else a new start. Sets *is_on. */
static void add_point(drawing *d, bool *is_on, int64_t x, int64_t y)
{
    lhi_text_puts(&d->out, *is_on ? "L" : "M");
    lhi_svg_add_hundredths(&d->out, x);
    lhi_text_puts(&d->out, " ");
    lhi_svg_add_hundredths(&d->out, y);
    *is_on = true;
}

/* Draws iteration rate series number `s`. Too many iterations are merged into
 * groups: the slowest, then the fastest of each. */
static void add_line(drawing *d, uint32_t s)
{
    const lh_report_iterations *c = d->c;
    const uint32_t each = (c->n_iterations + MAX_POINTS - 1) / MAX_POINTS;
    bool is_on = false;
    lhi_text_puts(&d->out, "<path fill=\"none\" ");
    add_stroke(d, s);
    lhi_text_printf(&d->out, " stroke-width=\"%s\" d=\"",
                    s == 0 ? "1.8" : "1.2");
    for (uint32_t i = 0, end; i < c->n_iterations; i = end) {
        int64_t least = INT64_MAX, most = 0;
        end = c->n_iterations - i < each ? c->n_iterations : i + each;
        for (uint32_t k = i; k < end; k++) {
            const int64_t ns = get_time(d, s, k);
            least = ns > 0 && ns < least ? ns : least;
            most = ns > most ? ns : most;
        }
        if (most == 0) { /* no iteration in this group */
            is_on = false;
            continue;
        }
        const int64_t low = get_y(d, d->unit_ns / (double)most);
        const int64_t high = get_y(d, d->unit_ns / (double)least);
        add_point(d, &is_on, get_x(d, c->first + i), low);
        add_point(d, &is_on, get_x(d, c->first + end), high);
    }
    lhi_text_puts(&d->out, "\"/>\n");
}

/* Adds the chart's legend: a line sample and a name per series. */
static void add_names(drawing *d)
{
    int64_t x = MARGIN_LEFT * 100;
    for (uint32_t s = 0; s < d->c->n_series; s++) {
        lhi_text_puts(&d->out, "<path fill=\"none\" ");
        add_stroke(d, s);
        lhi_text_puts(&d->out, " stroke-width=\"2\" d=\"M");
        lhi_svg_add_hundredths(&d->out, x);
        lhi_text_puts(&d->out, " 12h18\"/>\n");
        add_text(d, x + 2400, 1600, "start", d->c->series[s]);
        x += 4400 + (int64_t)strlen(d->c->series[s]) * LETTER_WIDTH * 100;
    }
}

lh_status lhi_report_copy_iterations(const lh_report_iterations *given,
                                     lh_report_iterations *c, lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_report_iterations, c, given, err));
    if (c->n_iterations == 0 || c->n_series == 0 || c->n_series > MAX_SERIES)
        return lhi_fail(err, LH_EINVAL,
                        "a run requires iterations and 1 to %d series of times",
                        MAX_SERIES);
    bool any = false;
    for (size_t i = 0; i < (size_t)c->n_series * c->n_iterations; i++)
        any = any || c->ns[i] > 0;
    if (!any)
        return lhi_fail(err, LH_EINVAL, "no iteration of the run has a time");
    for (uint32_t i = 0; i < c->n_spans; i++)
        if (c->spans[i].from >= c->spans[i].to)
            return lhi_fail(err, LH_EINVAL,
                            "a period of slowdown ends before it begins");
    return LH_OK;
}

lh_status lhi_report_draw_iterations(const lh_report_iterations *c,
                                     uint32_t width, bool in_page,
                                     lhi_text *out, lh_error *err)
{
    drawing d = {.c = c,
                 .in_page = in_page,
                 .plot = (int32_t)width - MARGIN_LEFT - MARGIN_RIGHT};
    const int height = MARGIN_TOP + PLOT_HEIGHT + MARGIN_BOTTOM;
    find_scale(&d);
    lhi_text_printf(&d.out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 "
                    "%u %d\" ",
                    (unsigned)width, height);
    if (in_page)
        lhi_text_puts(&d.out, "class=\"course\"");
    else
        lhi_text_printf(&d.out, "width=\"%u\" height=\"%d\"", (unsigned)width,
                        height);
    lhi_text_puts(&d.out, " font-family=\"sans-serif\" font-size=\"12\" "
                          "fill=\"currentColor\">\n<title>");
    lhi_report_add_markup(&d.out, c->title ? c->title : "iterations");
    lhi_text_puts(&d.out, "</title>\n");
    add_spans(&d);
    add_axes(&d);
    for (uint32_t s = c->n_series; s-- > 0;)
        add_line(&d, s);
    add_marks(&d);
    add_names(&d);
    lhi_text_puts(&d.out, "</svg>\n");
    out->failed = out->failed || d.out.failed;
    if (!d.out.failed)
        lhi_text_add(out, d.out.data, d.out.len);
    lhi_text_fini(&d.out);
    return out->failed ? lhi_fail_nomem(err) : LH_OK;
}

lh_status lh_report_iterations_svg(const lh_report_iterations *iterations,
                                   const lh_svg_options *options, char **text,
                                   size_t *len, lh_error *err)
{
    lh_report_iterations c;
    lh_svg_options o;
    lhi_text out = {0};
    LHI_TRY(lhi_report_copy_iterations(iterations, &c, err));
    LHI_TRY(lhi_report_copy_svg_options(options, &o, err));
    lh_status status =
        lhi_report_draw_iterations(&c, o.width, false, &out, err);
    if (status == LH_OK)
        status = lhi_text_take(&out, text, len, err);
    lhi_text_fini(&out);
    return status;
}
