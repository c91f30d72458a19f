/* SPDX-License-Identifier: Apache-2.0 */
/* Draws packet simulations over time: queue length, throughput and
 * retransmissions. */
#include "network/optical/figures.h"

#include <longhaul/experimental/packets.h>

#include <math.h>

enum {
    WIDTH = 330,
    HEIGHT = 210,
    LEFT = 44,
    RIGHT = 12,
    TOP = 10,
    BOTTOM = 34,
    TICKS = 5
};

/* Drawn measures. */
typedef enum measure {
    QUEUE,
    RATE,
    RETRANSMITTED,
    MISSING,
    N_MEASURES
} measure;

static const char *const titles[N_MEASURES] = {
    "Longest queue, MB", "Throughput, Gb/s", "Packets sent again",
    "Packets lost or dropped"};

/* Returns measure `what` of an interval of width_ps. */
static double get_value(const lh_packet_interval *x, measure what,
                        uint64_t width_ps)
{
    switch (what) {
    case QUEUE:
        return (double)x->queue_bytes * 1e-6;
    case RATE:
        return (double)x->delivered_bytes * 8e3 / (double)width_ps;
    case RETRANSMITTED:
        return (double)x->retransmitted;
    default:
        return (double)x->missing;
    }
}

/* Returns the upper end of an axis that ends at or above `most`. */
static double compute_top(double most)
{
    return most > 0 ? ceil(most / lhi_figure_round_up(most / TICKS)) *
                          lhi_figure_round_up(most / TICKS)
                    : 1;
}

/* Draws grid lines and labels; the axes end at `top` and, in ms, at `end`. */
static void draw_axes(lhi_text *out, double top, double end)
{
    double step = lhi_figure_round_up(top / TICKS),
           every = lhi_figure_round_up(end / TICKS);
    for (double v = 0; v <= top * 1.0001; v += step) {
        double y = HEIGHT - BOTTOM - v / top * (HEIGHT - TOP - BOTTOM);
        lhi_text_printf(out,
                        "<line class=cable x1=%d x2=%d y1=%.1f y2=%.1f />"
                        "<text class=id x=%d y=%.1f text-anchor=end>%.4g"
                        "</text>",
                        LEFT, WIDTH - RIGHT, y, y, LEFT - 4, y + 3, v);
    }
    for (double v = 0; v <= end * 1.0001; v += every)
        lhi_text_printf(out,
                        "<text class=id x=%.1f y=%d text-anchor=middle>%.4g"
                        "</text>",
                        LEFT + v / end * (WIDTH - LEFT - RIGHT),
                        HEIGHT - BOTTOM + 12, v);
    lhi_text_printf(out,
                    "<text class=id x=%d y=%d text-anchor=middle>ms</text>",
                    (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6);
}

/* Draws one measure of a record over time. */
static void draw_chart(lhi_text *out, const lh_packet_record *r, measure what)
{
    double most = 0, end = r->n * (double)r->width_ps * 1e-9;
    for (uint32_t i = 0; i < r->n; i++)
        most = fmax(most, get_value(&r->intervals[i], what, r->width_ps));
    double top = compute_top(most);
    lhi_text_printf(out,
                    "<div><h3>%s</h3><svg class=chart viewBox=\"0 0 %d %d\">",
                    titles[what], WIDTH, HEIGHT);
    draw_axes(out, top, end);
    lhi_text_printf(out, "<path class=curve style=\"stroke:var(--s%d)\" d=\"",
                    (int)what);
    for (uint32_t i = 0; i < r->n; i++) {
        double value = get_value(&r->intervals[i], what, r->width_ps);
        lhi_text_printf(out, "%c%.1f %.1f", i == 0 ? 'M' : 'L',
                        LEFT + (i + 0.5) / r->n * (WIDTH - LEFT - RIGHT),
                        HEIGHT - BOTTOM -
                            value / top * (HEIGHT - TOP - BOTTOM));
    }
    lhi_text_puts(out, "\"/></svg></div>");
}

/* Adds a panel with all charts of a simulation. */
static void add_panel(lhi_text *out, const lh_packet_picture *p)
{
    lhi_text_puts(out, "<section class=panel><div class=panel-head><h2>");
    lhi_html_text(out, p->name);
    lhi_text_puts(out, "</h2></div><div class=charts>");
    for (int what = 0; p->record->n > 0 && what < N_MEASURES; what++)
        draw_chart(out, p->record, (measure)what);
    lhi_text_puts(out, "</div></section>\n");
}

lh_status lh_packets_html(const char *title, const char *const *facts,
                          const lh_packet_picture *pictures, uint32_t n,
                          char **text, size_t *len, lh_error *err)
{
    lhi_text out = {0}, heading = {0}, lines = {0}, body = {0};
    lhi_html_text(&heading, title);
    for (uint32_t i = 0; facts[i]; i += 2) {
        lhi_text_puts(&lines, "<div><dt>");
        lhi_html_text(&lines, facts[i]);
        lhi_text_puts(&lines, "</dt><dd>");
        lhi_html_text(&lines, facts[i + 1]);
        lhi_text_puts(&lines, "</dd></div>");
    }
    lhi_text_puts(&body, "<p class=note>The first seed's packets, of all paths "
                         "and directions together: the longest queue, the sums "
                         "and the rate of each interval.</p>\n");
    for (uint32_t i = 0; i < n; i++)
        add_panel(&body, &pictures[i]);
    lhi_html_page(&out, &heading, &lines, &body);
    lh_status status = lhi_text_take(&out, text, len, err);
    lhi_text_fini(&out);
    lhi_text_fini(&heading);
    lhi_text_fini(&lines);
    lhi_text_fini(&body);
    return status;
}
