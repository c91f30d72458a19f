/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a timeline as a static picture. Coordinates are integers in 1/100 px,
 * so that no locale introduces a comma. */
#include "report/page/report_internal.h"
#include "report/page/timeline_rows.h"

#include "base/arena.h"
#include "base/format_units.h"
#include "base/options.h"
#include "report/trace/json_text.h"
#include "report/trace/trace_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEFT = 120,
    RIGHT = 24,
    TOP = 84, /* title, legend and axis */
    HEAD = 22,
    MAX_LABELS = 20000,
    MAX_FLIGHTS = 400, /* messages per link drawn individually */
    N_KINDS = 5,       /* pass kinds, then collectives */
    N_SHADES = 8,      /* per kind, for a device's chunks */
    N_FILLS = N_KINDS * N_SHADES,
};

static const char *const kind_colors[N_KINDS] = {[LH_F] = "#1f4e92",
                                                 [LH_D] = "#f5cf52",
                                                 [LH_W] = "#57b391",
                                                 [LH_B] = "#c24a30",
                                                 [4] = "#8c7bb8"};
static const char *const kind_texts[N_KINDS] = {
    [LH_F] = "F forward",
    [LH_D] = "D input gradient",
    [LH_W] = "W weight gradient",
    [LH_B] = "B backward",
    [4] = "data-parallel communication"};

/* A link row's vertical layout. */
typedef struct link_row {
    int32_t y, send, fly; /* fly, send: heights; 0: nothing to draw */
    uint32_t n_messages;
} link_row;

/* Picture state. */
typedef struct picture {
    lhi_text out;
    const lh_trace *t;
    const lh_report_analysis *analysis;
    lhi_arena *mem;
    int32_t width, height, plot, row_height;
    lhi_timeline_rows rows;
    int32_t *device_y, *dp_y; /* dp_y 0: none */
    int32_t quiet_y;          /* the quiet links' label; 0: none */
    link_row *links;          /* the last: messages without a link */
    uint32_t n_labels;
    int n_digits; /* in the highest microbatch */
} picture;

/* --- numbers and boxes ---------------------------------------------------- */

/* Returns the picture's x coordinate, in 1/100 px, of a time in ns. */
static int64_t get_x(const picture *p, int64_t ns)
{
    double span = p->t->makespan_ns > 0 ? (double)p->t->makespan_ns : 1;
    double share = (double)ns / span;
    return LEFT * 100 + llround(fmin(share, 1.5) * p->plot * 100);
}

/* Adds a rectangle to an SVG path: x to `right` and y to y + height, in 1/100
 * px. */
static void add_box(lhi_text *path, int64_t x, int64_t right, int64_t y,
                    int64_t height)
{
    lhi_text_puts(path, "M");
    lhi_svg_add_hundredths(path, x);
    lhi_text_puts(path, " ");
    lhi_svg_add_hundredths(path, y);
    lhi_text_puts(path, "H");
    lhi_svg_add_hundredths(path, right);
    lhi_text_puts(path, "V");
    lhi_svg_add_hundredths(path, y + height);
    lhi_text_puts(path, "H");
    lhi_svg_add_hundredths(path, x);
    lhi_text_puts(path, "z");
}

/* --- slices, merged if too narrow ----------------------------------------- */

/* One row's boxes, a path per kind. Slices narrower than half a pixel are
 * summed per half-pixel column. */
typedef struct row_boxes {
    lhi_text paths[N_FILLS]; /* [kind * N_SHADES + shade] */
    int64_t y, height;       /* 1/100 px */
    int64_t column;          /* -1: none */
    double used[N_KINDS];    /* in the column, 1/100 px */
    int open_fill;           /* growable box's path; -1: none */
    int64_t open_x, open_right;
} row_boxes;

/* Appends the rectangle that is being extended to the path for its row and
 * colour, if there is one. */
static void close_box(row_boxes *r)
{
    if (r->open_fill >= 0)
        add_box(&r->paths[r->open_fill], r->open_x, r->open_right, r->y,
                r->height);
    r->open_fill = -1;
}

/* Draws the current half-pixel column in the colour of the pass kind with the
 * largest share, or leaves it empty if passes fill less than half of its width.
 * Extends the previous rectangle if that has the same colour and is adjacent.
 */
static void close_column(row_boxes *r)
{
    double sum = 0;
    int most = 0;
    for (int k = 0; k < N_KINDS; k++) {
        sum += r->used[k];
        if (r->used[k] > r->used[most])
            most = k;
        if (k == N_KINDS - 1 && r->column >= 0 && sum >= 25) {
            int64_t x = r->column * 50;
            if (r->open_fill != most * N_SHADES || r->open_right != x) {
                close_box(r);
                r->open_fill = most * N_SHADES;
                r->open_x = x;
            }
            r->open_right = x + 50;
        }
    }
    memset(r->used, 0, sizeof r->used);
    r->column = -1;
}

/* Draws the interval from start_ns to end_ns in a row of the picture, in the
 * colour of pass kind `kind` and shade `shade`: as a box or, if it is narrower
 * than half a pixel, merged with other intervals of the half-pixel column. */
static void add_slice(picture *p, row_boxes *r, int kind, int shade,
                      int64_t start_ns, int64_t end_ns)
{
    int64_t x = get_x(p, start_ns), right = get_x(p, end_ns);
    if (right - x >= 50) {
        close_column(r);
        close_box(r);
        int64_t gap = right - x > 400 ? 60 : 0;
        add_box(&r->paths[kind * N_SHADES + shade], x, right - gap, r->y,
                r->height);
        return;
    }
    int64_t column = x / 50;
    if (column != r->column) {
        close_column(r);
        r->column = column;
    }
    r->used[kind] += (double)(end_ns - start_ns) /
                     (double)(p->t->makespan_ns ? p->t->makespan_ns : 1) *
                     p->plot * 100;
}

/* Starts an empty picture row at `y`; position and height in px. */
static void begin_row(row_boxes *r, int32_t y, int32_t height)
{
    *r = (row_boxes){
        .y = y * 100, .height = height * 100, .column = -1, .open_fill = -1};
}

/* Checks whether labels on pass kind `kind`'s fill colour are light: on F's and
 * B's. */
static bool has_light_label(int kind)
{
    return kind == LH_F || kind == LH_B;
}

/* Returns the shade for a chunk's passes, below N_SHADES; 0 for a device's
 * first chunk. */
static int get_shade(const picture *p, uint32_t chunk)
{
    const uint32_t most = p->rows.most_chunks,
                   turn = p->rows.chunk_positions[chunk];
    if (most <= 1)
        return 0;
    return (int)((uint64_t)turn * (N_SHADES - 1) / (most - 1));
}

/* Appends the fill colour of pass kind `kind` in hexadecimal: lighter or
 * darker by `shade` (0: unchanged; last: by 45 %), away from its labels'
 * colour. */
static void add_fill(lhi_text *out, int kind, int shade)
{
    const int to = has_light_label(kind) ? 0 : 255;
    const unsigned long color = strtoul(kind_colors[kind] + 1, NULL, 16);
    lhi_text_puts(out, "#");
    for (int shift = 16; shift >= 0; shift -= 8) {
        const int part = (int)(color >> shift & 255);
        lhi_text_printf(out, "%02x",
                        part + (to - part) * 45 * shade / (N_SHADES - 1) / 100);
    }
}

/* Writes the row's boxes as one SVG path per colour, and frees them. */
static void end_row(picture *p, row_boxes *r)
{
    close_column(r);
    close_box(r);
    for (int k = 0; k < N_FILLS; k++) {
        p->out.failed |= r->paths[k].failed;
        if (r->paths[k].len) {
            lhi_text_puts(&p->out, "<path fill=\"");
            add_fill(&p->out, k / N_SHADES, k % N_SHADES);
            lhi_text_puts(&p->out, "\" d=\"");
            lhi_text_add(&p->out, r->paths[k].data, r->paths[k].len);
            lhi_text_puts(&p->out, "\"/>\n");
        }
        lhi_text_fini(&r->paths[k]);
    }
}

/* --- shares, if slices are too numerous ----------------------------------- */

/* Allocates zeroed shares of the kinds of passes in each pixel-wide column of
 * the plot: [column][kind]. */
static double *make_shares(picture *p)
{
    double *used = calloc((size_t)p->plot * N_KINDS, sizeof *used);
    p->out.failed |= !used;
    return used;
}

/* Adds the interval from start_ns to end_ns to used[column * kinds + kind], the
 * share of each pixel-wide column in which `kind` passes run. */
static void add_share(const picture *p, double *used, int kind,
                      int64_t start_ns, int64_t end_ns)
{
    double from = (double)get_x(p, start_ns) / 100 - LEFT;
    double to = (double)get_x(p, end_ns) / 100 - LEFT;
    for (double at = from; at < to && at < p->plot; at = floor(at) + 1)
        used[(size_t)at * N_KINDS + (size_t)kind] +=
            fmin(to, floor(at) + 1) - at;
}

/* Draws the stacked area of kinds 0 to k from their shares `used` of each
 * column, unless kind k has none; y and height of the row in px. */
static void add_area(picture *p, int k, int32_t y, int32_t height,
                     const double *used)
{
    int64_t bottom = (y + height) * 100, at = bottom;
    bool any = false;
    for (size_t c = 0; c < (size_t)p->plot && !any; c++)
        any = used[c * N_KINDS + (size_t)k] >
              (k ? used[c * N_KINDS + (size_t)k - 1] : 0);
    if (!any)
        return;
    lhi_text_printf(&p->out, "<path fill=\"%s\" d=\"M%d %d", kind_colors[k],
                    LEFT, (int)(y + height));
    for (size_t c = 0; c <= (size_t)p->plot; c++) {
        double share = c < (size_t)p->plot ? used[c * N_KINDS + (size_t)k] : 0;
        /* Half-pixel resolution suffices and keeps the path short. */
        int64_t top = bottom - llround(fmin(share, 1) * height * 2) * 50;
        if (top == at)
            continue;
        lhi_text_printf(&p->out, "H%dV", LEFT + (int)c);
        lhi_svg_add_hundredths(&p->out, top);
        at = top;
    }
    lhi_text_puts(&p->out, "z\"/>\n");
}

/* Draws the shares `used` of all kinds in each column as stacked areas and
 * frees them; y and height of the row in px. */
static void end_shares(picture *p, double *used, int32_t y, int32_t height)
{
    for (size_t c = 0; c < (size_t)p->plot; c++)
        for (size_t k = 1; k < N_KINDS; k++)
            used[c * N_KINDS + k] += used[c * N_KINDS + k - 1];
    for (int k = N_KINDS - 1; k >= 0; k--)
        add_area(p, k, y, height, used);
    free(used);
}

/* Checks whether a row has too many slices to draw them individually. */
static bool has_too_many(const picture *p, uint32_t n)
{
    return n > (uint32_t)p->plot / 2;
}

/* --- layout -------------------------------------------------------------- */

/* Returns a link's row data in the picture; LH_NONE: the row of messages
 * without a link. */
static link_row *find_link_row(const picture *p, uint32_t link)
{
    return &p->links[link == LH_NONE ? p->t->n_links : link];
}

/* Computes each link row's vertical position and height. */
static void lay_out_links(picture *p)
{
    const lh_trace *t = p->t;
    for (uint32_t i = 0; i < t->n_messages; i++) {
        const lh_trace_message *m = &t->messages[i];
        link_row *row = find_link_row(p, m->link);
        row->n_messages++;
        if (m->sent_ns > m->depart_ns)
            row->send = 9;
        if (m->arrive_ns > m->sent_ns)
            row->fly = 13;
    }
    if (p->rows.n_links > 0)
        p->height += HEAD;
    for (uint32_t i = 0; i < p->rows.n_links; i++) {
        link_row *row = find_link_row(p, p->rows.links[i].link);
        if (p->rows.links[i].is_quiet) {
            row->send = row->fly = 0;
            continue;
        }
        if (p->rows.links[i].is_between_sites && row->fly)
            row->fly = 20;
        if (row->send + row->fly == 0)
            row->send = 9; /* only queueing takes time */
        row->y = p->height;
        p->height += row->send + row->fly + 4;
    }
    if (p->rows.n_quiet > 0) {
        p->quiet_y = p->height;
        p->height += 14;
    }
}

/* Checks whether the i-th device in display order is the first in its
 * datacenter. */
static bool is_first_of_site(const picture *p, uint32_t i)
{
    const uint32_t *devices = p->rows.devices;
    return i == 0 ||
           p->t->devices[devices[i]].site != p->t->devices[devices[i - 1]].site;
}

/* Computes the vertical positions of all rows and the picture's height; false
 * on allocation failure. */
static bool lay_out(picture *p)
{
    const lh_trace *t = p->t;
    p->device_y = LHI_NEW(p->mem, int32_t, t->n_devices);
    p->dp_y = LHI_NEW(p->mem, int32_t, t->n_devices);
    p->links = LHI_NEW(p->mem, link_row, (size_t)t->n_links + 1);
    if (!p->device_y || !p->dp_y || !p->links ||
        !lhi_timeline_rows_make(t, p->mem, &p->rows))
        return false;
    p->row_height = t->n_devices <= 16 ? 22 : t->n_devices <= 64 ? 12 : 7;
    int32_t gap = p->row_height > 10 ? 3 : 1;
    for (uint32_t i = 0; i < t->n_collectives; i++)
        p->dp_y[t->collectives[i].device] = 1;
    p->n_digits = 1;
    for (uint32_t i = 0; i < t->n_runs; i++)
        for (uint32_t m = t->runs[i].pass.microbatch, k = 1; m > 0; k++) {
            if ((int)k > p->n_digits)
                p->n_digits = (int)k;
            m /= 10;
        }
    p->height = TOP;
    for (uint32_t i = 0; i < t->n_devices; i++) {
        const uint32_t d = p->rows.devices[i];
        if (lhi_timeline_has_site_rows(t) && is_first_of_site(p, i))
            p->height += HEAD;
        p->device_y[d] = p->height;
        p->height += p->row_height + gap;
        if (!p->dp_y[d])
            continue;
        p->dp_y[d] = p->height;
        p->height += 6 + gap;
    }
    lay_out_links(p);
    p->height += 14;
    return true;
}

/* --- picture parts ------------------------------------------------- */

/* Appends an SVG text element at x, y in px; `attributes`: further SVG
 * attributes as text. */
static void add_text(picture *p, int32_t x, int32_t y, const char *attributes,
                     const char *text)
{
    lhi_text_printf(&p->out, "<text x=\"%d\" y=\"%d\"%s>", (int)x, (int)y,
                    attributes);
    lhi_report_add_markup(&p->out, text);
    lhi_text_puts(&p->out, "</text>\n");
}

/* Checks whether the trace contains a pass kind; kind 4: data-parallel
 * communication. */
static bool is_kind_used(const lh_trace *t, int kind)
{
    if (kind == 4)
        return t->n_collectives > 0;
    for (uint32_t i = 0; i < t->n_runs; i++)
        if (t->runs[i].pass.kind == kind)
            return true;
    return false;
}

/* Draws the title, the makespan and the legend of the kinds that occur. */
static void add_title(picture *p)
{
    const lh_trace *t = p->t;
    char makespan[LHI_FORMAT_DURATION_SIZE];
    lhi_format_duration(t->makespan_ns, makespan);
    add_text(p, 14, 27,
             " font-size=\"17\" font-weight=\"600\" fill=\"#1b2430\"",
             t->title[0] ? t->title : "Timeline");
    lhi_text_printf(&p->out,
                    "<text x=\"%d\" y=\"27\" text-anchor=\"end\">%s, makespan "
                    "%s</text>\n",
                    (int)(p->width - RIGHT), t->source, makespan);
    int32_t x = 14;
    for (int k = 0; k < N_KINDS; k++) {
        if (!is_kind_used(t, k))
            continue;
        lhi_text_printf(&p->out,
                        "<rect x=\"%d\" y=\"39\" width=\"12\" height=\"12\" "
                        "rx=\"2\" fill=\"%s\"/>\n",
                        (int)x, kind_colors[k]);
        add_text(p, x + 18, 49, "", kind_texts[k]);
        x += 34 + (int32_t)strlen(kind_texts[k]) * 6;
    }
    if (p->analysis && p->analysis->n_segments) {
        lhi_text_printf(&p->out,
                        "<rect x=\"%d\" y=\"43\" width=\"12\" height=\"4\" "
                        "fill=\"#c4006a\"/>\n",
                        (int)x);
        add_text(p, x + 18, 49, "", "critical path");
    }
}

/* Adds an axis with ticks at 1, 2 or 5 times a power of ten nanoseconds. */
static void add_axis(picture *p)
{
    static const int64_t factors[] = {1, 2, 5};
    int64_t span = p->t->makespan_ns, power = 1, step = 1;
    if (span <= 0)
        return;
    for (int i = 0; step < span / (p->plot / 100 + 1) + 1; i++) {
        if (i > 0 && i % 3 == 0)
            power *= 10;
        step = power * factors[i % 3];
    }
    for (int64_t ns = 0; ns <= span; ns += step) {
        char text[LHI_FORMAT_DURATION_SIZE];
        int64_t x = get_x(p, ns);
        lhi_text_puts(&p->out, "<path stroke=\"#dfe3e9\" d=\"M");
        lhi_svg_add_hundredths(&p->out, x);
        lhi_text_printf(&p->out, " %dV%d\"/>\n", TOP - 8,
                        (int)(p->height - 10));
        lhi_text_puts(&p->out, "<text text-anchor=\"middle\" x=\"");
        lhi_svg_add_hundredths(&p->out, x);
        lhi_text_printf(&p->out, "\" y=\"%d\">%s</text>\n", TOP - 13,
                        ns ? lhi_format_duration(ns, text) : "0");
    }
}

/* Draws a row's background rectangle at `y` with its height, in px. */
static void add_track(picture *p, int32_t y, int32_t height)
{
    lhi_text_printf(&p->out,
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                    "fill=\"#f0f2f6\"/>\n",
                    LEFT, (int)y, (int)p->plot, (int)height);
}

/* Draws a pass's label at `y` (px): its name or, if that is too wide, its
 * microbatch; none if that does not fit either. */
static void add_label(picture *p, const lh_trace_run *r, int32_t y)
{
    char text[LH_PASS_TEXT_SIZE];
    int64_t x = get_x(p, r->start_ns), right = get_x(p, r->end_ns);
    int64_t room = (right - x) * 10 / 58; /* in 1/100 digit */
    if (r->pass.n_parts > 1 || p->n_labels >= MAX_LABELS)
        return;
    lh_pass_format(&r->pass, text);
    size_t kind = strcspn(text, "FIWB");
    text[kind] = lhi_pass_letter(&r->pass);
    const char *shown = text;
    if (room < (int64_t)strlen(text) * 100 + 70)
        shown = text + kind + 1;
    if (room < p->n_digits * 100 + 10)
        return;
    lhi_text_puts(&p->out, "<text x=\"");
    lhi_svg_add_hundredths(&p->out, (x + right) / 2);
    lhi_text_printf(
        &p->out, "\" y=\"%d\"%s>%s</text>\n", (int)(y + p->row_height / 2 + 4),
        has_light_label(r->pass.kind) ? " fill=\"#fff\"" : "", shown);
    p->n_labels++;
}

/* Adds a device's row: its passes, or their shares per pixel if there are too
 * many, and their labels. */
static void add_device(picture *p, uint32_t d)
{
    row_boxes row;
    uint32_t n;
    const lh_trace_run *runs = lhi_trace_device_runs(p->t, d, &n);
    char label[LHI_ROW_LABEL];
    int32_t y = p->device_y[d];
    double *used = has_too_many(p, n) ? make_shares(p) : NULL;
    add_track(p, y, p->row_height);
    begin_row(&row, y, p->row_height);
    for (uint32_t i = 0; i < n && !p->out.failed; i++) {
        const lh_trace_run *r = &runs[i];
        if (used)
            add_share(p, used, r->pass.kind, r->start_ns, r->end_ns);
        else
            add_slice(p, &row, r->pass.kind, get_shade(p, r->pass.chunk),
                      r->start_ns, r->end_ns);
    }
    end_row(p, &row);
    if (used)
        end_shares(p, used, y, p->row_height);
    if (p->row_height < 12)
        return;
    lhi_text_puts(&p->out, "<g font-size=\"10\" text-anchor=\"middle\" "
                           "fill=\"#20262e\">\n");
    for (uint32_t i = 0; i < n && !p->out.failed; i++)
        add_label(p, &runs[i], y);
    lhi_text_puts(&p->out, "</g>\n");
    add_text(p, 14, y + p->row_height / 2 + 4, "", lhi_device_label(d, label));
}

/* Adds the rows for all devices with headings for datacenters, and for
 * data-parallel communication. */
static void add_devices(picture *p)
{
    const lh_trace *t = p->t;
    for (uint32_t i = 0; i < t->n_devices; i++) {
        const uint32_t d = p->rows.devices[i];
        if (lhi_timeline_has_site_rows(t) && is_first_of_site(p, i))
            add_text(p, 14, p->device_y[d] - 7,
                     " font-weight=\"600\" fill=\"#1b2430\"",
                     lhi_site_label(t, t->devices[d].site));
        add_device(p, d);
        if (!p->dp_y[d])
            continue;
        row_boxes row;
        add_track(p, p->dp_y[d], 6);
        begin_row(&row, p->dp_y[d], 6);
        for (uint32_t k = 0; k < t->n_collectives; k++)
            if (t->collectives[k].device == d)
                add_slice(p, &row, 4, 0, t->collectives[k].depart_ns,
                          t->collectives[k].sent_ns);
        end_row(p, &row);
    }
}

/* Adds a line for a message's latency, from its transfer's end to its
 * arrival. */
static void add_flight(picture *p, const lh_trace_message *m,
                       const link_row *row)
{
    lhi_text_printf(&p->out, "<path fill=\"none\" stroke=\"%s\" d=\"M",
                    kind_colors[m->producer.kind]);
    lhi_svg_add_hundredths(&p->out, get_x(p, m->sent_ns));
    lhi_text_printf(&p->out, " %dL", (int)(row->y + row->send + 1));
    lhi_svg_add_hundredths(&p->out, get_x(p, m->arrive_ns));
    lhi_text_printf(&p->out, " %d\"/>\n",
                    (int)(row->y + row->send + row->fly - 1));
}

/* Adds a link's row: transfers as boxes, or as shares if there are too many,
 * and latencies as lines. */
static void add_link(picture *p, uint32_t link)
{
    const lh_trace *t = p->t;
    const link_row *row = &p->links[link];
    uint32_t id = link == t->n_links ? LH_NONE : link;
    row_boxes send;
    double *used = has_too_many(p, row->n_messages) ? make_shares(p) : NULL;
    add_track(p, row->y, row->send + row->fly);
    add_text(p, 14, row->y + (row->send + row->fly) / 2 + 4, "",
             lhi_link_label(t, id));
    begin_row(&send, row->y, row->send ? row->send - 1 : 0);
    for (uint32_t i = 0; i < t->n_messages && !p->out.failed; i++) {
        const lh_trace_message *m = &t->messages[i];
        if (m->link != id)
            continue;
        if (used)
            add_share(p, used, m->producer.kind, m->depart_ns, m->sent_ns);
        else if (row->send)
            add_slice(p, &send, m->producer.kind, 0, m->depart_ns, m->sent_ns);
        if (row->fly && row->n_messages <= MAX_FLIGHTS)
            add_flight(p, m, row);
    }
    end_row(p, &send);
    if (used)
        end_shares(p, used, row->y, row->send);
}

/* Draws the rows of all links in use, and a label that counts the quiet links
 * (busy for less than 5 % of the makespan). */
static void add_links(picture *p)
{
    char label[LHI_ROW_LABEL];
    const lhi_timeline_rows *rows = &p->rows;
    for (uint32_t i = 0; i < rows->n_links && !p->out.failed; i++) {
        const uint32_t link = rows->links[i].link;
        if (i == 0)
            add_text(p, 14,
                     (rows->links[i].is_quiet ? p->quiet_y
                                              : find_link_row(p, link)->y) -
                         7,
                     " font-weight=\"600\" fill=\"#1b2430\"", "Links");
        if (!rows->links[i].is_quiet)
            add_link(p, link == LH_NONE ? p->t->n_links : link);
    }
    if (rows->n_quiet > 0)
        add_text(p, 14, p->quiet_y + 9, "",
                 lhi_quiet_label(rows->n_quiet, label));
}

/* Finds the row of a critical-path segment: its top *y and height in px.
 * Returns false if the picture has no row for it. */
static bool find_row(const picture *p, const lh_report_segment *s, int32_t *y,
                     int32_t *height)
{
    const lh_trace *t = p->t;
    if (s->step == LH_STEP_PASS) {
        *y = p->device_y[t->runs[s->index].device];
        *height = p->row_height;
        return true;
    }
    if (s->step == LH_STEP_COLLECTIVE) {
        *y = p->dp_y[t->collectives[s->index].device];
        *height = 6;
        return true;
    }
    if (s->step == LH_STEP_BLOCKED || s->step == LH_STEP_WAIT)
        return false;
    const link_row *row = find_link_row(p, t->messages[s->index].link);
    bool flies = s->step == LH_STEP_LATENCY;
    *y = row->y + (flies ? row->send : 0);
    *height = flies ? row->fly : row->send;
    return *height > 0;
}

/* Adds the critical path as one line; skips segments too short to
 * distinguish. */
static void add_critical_path(picture *p)
{
    const lh_report_analysis *a = p->analysis;
    if (a->n_segments == 0)
        return;
    int32_t y, height;
    int64_t last = -1;
    bool pen = false;
    lhi_text_puts(&p->out,
                  "<path fill=\"none\" stroke=\"#c4006a\" stroke-width=\"2\" "
                  "stroke-linejoin=\"round\" d=\"");
    for (uint32_t i = 0; i < a->n_segments && !p->out.failed; i++) {
        const lh_report_segment *s = &a->critical_path[i];
        int64_t x = get_x(p, s->start_ns), right = get_x(p, s->end_ns);
        if (!find_row(p, s, &y, &height) || right < last + 25)
            continue; /* too close to distinguish */
        bool flies = s->step == LH_STEP_LATENCY;
        lhi_text_puts(&p->out, pen ? "L" : "M");
        lhi_svg_add_hundredths(&p->out, x);
        lhi_text_printf(&p->out, " %dL", (int)(flies ? y : y + height - 1));
        lhi_svg_add_hundredths(&p->out, right);
        lhi_text_printf(&p->out, " %d", (int)(y + height - 1));
        last = right;
        pen = true;
    }
    lhi_text_puts(&p->out, pen ? "\"/>\n" : "M0 0\"/>\n");
}

/* Appends the complete SVG document: title, axis, rows of devices and links,
 * and critical path. */
static void add_all(picture *p)
{
    lhi_text_printf(&p->out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                    "height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" "
                    "font-family=\"system-ui, 'Segoe UI', 'Helvetica Neue', "
                    "'DejaVu Sans', sans-serif\" font-size=\"11\" "
                    "fill=\"#5b6675\">\n<title>",
                    (int)p->width, (int)p->height, (int)p->width,
                    (int)p->height);
    lhi_report_add_markup(&p->out, p->t->title[0] ? p->t->title : "Timeline");
    lhi_text_puts(&p->out, "</title>\n<rect width=\"100%\" height=\"100%\" "
                           "fill=\"#fff\"/>\n");
    add_title(p);
    add_axis(p);
    add_devices(p);
    add_links(p);
    add_critical_path(p);
    lhi_text_puts(&p->out, "</svg>\n");
}

lh_status lh_report_svg(const lh_trace *trace, const lh_svg_options *options,
                        char **text, size_t *len, lh_error *err)
{
    lh_svg_options o;
    LHI_TRY(lhi_report_copy_svg_options(options, &o, err));
    const uint32_t width = o.width;
    lh_report_analysis analysis;
    LHI_TRY(lhi_report_copy_analysis(trace, o.analysis, &analysis, err));
    picture p = {.t = trace,
                 .analysis = &analysis,
                 .mem = lhi_arena_make(0),
                 .width = (int32_t)width,
                 .plot = (int32_t)width - LEFT - RIGHT};
    if (p.mem && lay_out(&p))
        add_all(&p);
    else
        p.out.failed = true;
    lhi_arena_free(p.mem);
    return lhi_text_take(&p.out, text, len, err);
}
