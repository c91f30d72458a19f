/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a timeline as text: a row per device and per used link, a character per
 * time interval. */
#include "report/page/report_internal.h"
#include "report/page/timeline_rows.h"

#include "base/format_units.h"
#include "base/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_KINDS = 4,
    MIN_WIDTH = 40,
    MAX_WIDTH = 1000,
    RIGHT = 6,
    MAX_LINKS = 8,  /* with their own rows */
    MAX_LABEL = 16, /* columns for a link's name */
    IDLE = -1,      /* column contents besides kinds */
    FLIGHT = -2,
};

/* Characters for the kinds: without colour by density, so that rows look
 * shaded; in ASCII by letter. */
static const char *const blocks[N_KINDS] = {
    [LH_F] = "\xe2\x96\x88", /* full block */
    [LH_D] = "\xe2\x96\x92", /* medium shade */
    [LH_W] = "\xe2\x96\x91", /* light shade */
    [LH_B] = "\xe2\x96\x93", /* dark shade */
};
static const char letters[] = "FDWB";
static const char *const names[N_KINDS] = {"forward", "input gradient",
                                           "weight gradient", "backward"};
/* Background and text colours, out of 256. */
static const int backgrounds[N_KINDS] = {25, 221, 72, 167};
/* Text colours on these backgrounds, of the 256 terminal colours. */
static const int inks[N_KINDS] = {231, 16, 16, 231};

/* Drawing state. */
typedef struct screen {
    lhi_text out;
    const lh_trace *t;
    lhi_timeline_rows rows;
    bool color, ascii;
    uint32_t width, left, columns;
    double *used;   /* [column][kind]: in the current row */
    double *flight; /* [column]: time with a message in flight */
    char *labels;   /* [column]: a microbatch's digit; 0: none */
} screen;

/* --- one row ------------------------------------------------------------- */

/* Returns the text column of a time in ns, with a fraction. */
static double get_column(const screen *s, int64_t ns)
{
    double span = s->t->makespan_ns > 0 ? (double)s->t->makespan_ns : 1;
    return (double)ns / span * s->columns;
}

/* Returns the column in the row that contains the fractional column `column`,
 * limited to the row's first and last. */
static uint32_t clamp_column(const screen *s, double column)
{
    if (column < 0)
        return 0;
    return column >= s->columns ? s->columns - 1 : (uint32_t)column;
}

/* Adds to sums[column * each], for each text column, the part of the column (0
 * to 1) that the time interval covers; `each`: numbers per column. */
static void add_time(const screen *s, double *sums, size_t each,
                     int64_t start_ns, int64_t end_ns)
{
    double from = get_column(s, start_ns), to = get_column(s, end_ns);
    uint32_t first = clamp_column(s, from), last = clamp_column(s, to);
    for (uint32_t c = first; c <= last; c++) {
        double a = from > c ? from : c, b = to < c + 1 ? to : c + 1;
        if (b > a)
            sums[c * each] += b - a;
    }
}

/* Adds the time from start_ns to end_ns, in which a `kind` pass runs, to the
 * sums of the current row's columns. */
static void add_use(screen *s, lh_pass_kind kind, int64_t start_ns,
                    int64_t end_ns)
{
    add_time(s, s->used + kind, N_KINDS, start_ns, end_ns);
}

/* Returns the pass kind that a column displays: the one with the largest share.
 * FLIGHT: messages in flight; IDLE: it is mostly empty. */
static int get_shown_kind(const screen *s, uint32_t column)
{
    const double *used = s->used + (size_t)column * N_KINDS;
    double sum = 0;
    int most = 0;
    for (int k = 0; k < N_KINDS; k++) {
        sum += used[k];
        if (used[k] > used[most])
            most = k;
    }
    return sum >= 0.5 ? most : s->flight[column] >= 0.5 ? FLIGHT : IDLE;
}

/* Writes the microbatch where a pass begins that is wide enough, into the
 * current row's labels. */
static void add_label(screen *s, const lh_trace_run *r)
{
    char digits[16];
    uint32_t n = (uint32_t)snprintf(digits, sizeof digits, "%" PRIu32,
                                    r->pass.microbatch);
    double from = get_column(s, r->start_ns), to = get_column(s, r->end_ns);
    uint32_t first = clamp_column(s, from + 0.5);
    uint32_t end = clamp_column(s, to + 0.5);
    if (end < first + n + 1 || r->pass.n_parts > 1)
        return;
    for (uint32_t i = 0; i < n; i++)
        if (get_shown_kind(s, first + i) == r->pass.kind)
            s->labels[first + i] = digits[i];
}

/* Appends the character for one column in the current row. Changes the
 * terminal's colour if the column's kind differs from *now, the last kind
 * written. */
static void add_cell(screen *s, uint32_t column, int *now)
{
    int kind = get_shown_kind(s, column);
    char label = s->labels[column];
    if (s->color && kind != *now) {
        if (kind < 0)
            lhi_text_puts(&s->out, "\033[0m");
        else
            lhi_text_printf(&s->out, "\033[48;5;%d;38;5;%dm", backgrounds[kind],
                            inks[kind]);
        *now = kind;
    }
    if (kind == FLIGHT)
        lhi_text_puts(&s->out, s->ascii ? "-" : "\xe2\x94\x80");
    else if (kind == IDLE)
        lhi_text_puts(&s->out, s->ascii ? "." : "\xc2\xb7");
    else if (label)
        lhi_text_printf(&s->out, "%c", label);
    else if (s->ascii)
        lhi_text_printf(&s->out, "%c", letters[kind]);
    else
        lhi_text_puts(&s->out, s->color ? " " : blocks[kind]);
}

/* Clears the text timeline's current row: the sums per column and the
 * labels. */
static void begin_row(screen *s)
{
    memset(s->used, 0, (size_t)s->columns * N_KINDS * sizeof *s->used);
    memset(s->flight, 0, s->columns * sizeof *s->flight);
    memset(s->labels, 0, s->columns);
}

/* Writes the current row with its name, and its busy time as a percentage of
 * the makespan. */
static void end_row(screen *s, const char *name, double busy_ns)
{
    int now = IDLE;
    size_t room = s->left - 3, len = lhi_count_escaped_columns(name);
    lhi_text_puts(&s->out, "  ");
    lhi_text_add_escaped(&s->out, name, room);
    lhi_text_printf(&s->out, "%*s", (int)(len < room ? room - len : 0) + 1, "");
    for (uint32_t c = 0; c < s->columns; c++)
        add_cell(s, c, &now);
    if (now >= 0)
        lhi_text_puts(&s->out, "\033[0m");
    double span = s->t->makespan_ns > 0 ? (double)s->t->makespan_ns : 1;
    lhi_text_printf(&s->out, "%5.0f%%\n", 100 * busy_ns / span);
}

/* Adds a device's row: its passes by kind, and its busy time. */
static void add_device(screen *s, uint32_t device)
{
    uint32_t n;
    const lh_trace_run *runs = lhi_trace_device_runs(s->t, device, &n);
    char label[LHI_ROW_LABEL];
    double busy_ns = 0;
    begin_row(s);
    for (uint32_t i = 0; i < n; i++) {
        const lh_trace_run *r = &runs[i];
        add_use(s, r->pass.kind, r->start_ns, r->end_ns);
        busy_ns += (double)(r->end_ns - r->start_ns);
    }
    for (uint32_t i = 0; i < n; i++)
        add_label(s, &runs[i]);
    end_row(s, lhi_device_label(device, label), busy_ns);
}

/* Adds a link's row, in which each column has the kind of pass whose messages
 * the link transfers. */
static void add_link(screen *s, uint32_t link)
{
    double busy_ns = 0;
    begin_row(s);
    for (uint32_t i = 0; i < s->t->n_messages; i++) {
        const lh_trace_message *m = &s->t->messages[i];
        if (m->link != link)
            continue;
        add_use(s, m->producer.kind, m->depart_ns, m->sent_ns);
        add_time(s, s->flight, 1, m->sent_ns, m->arrive_ns);
        busy_ns += (double)(m->sent_ns - m->depart_ns);
    }
    end_row(s, lhi_link_label(s->t, link), busy_ns);
}

/* --- axis and legend ----------------------------------------------------- */

/* Adds the time axis: evenly spaced labels and the makespan at the right. */
static void add_axis(screen *s)
{
    char text[LHI_FORMAT_DURATION_SIZE];
    uint32_t used = 0, n_labels = s->columns / 18 + 1;
    lhi_text_printf(&s->out, "%*s", (int)s->left, "");
    for (uint32_t i = 0; i < n_labels; i++) {
        uint32_t at = (uint32_t)((uint64_t)s->columns * i / n_labels);
        int64_t ns = s->t->makespan_ns / n_labels * i;
        lhi_text_printf(&s->out, "%*s", (int)(at - used), "");
        if (i > 0)
            lhi_format_duration(ns, text);
        else
            snprintf(text, sizeof text, "0");
        lhi_text_printf(&s->out, "|%s", text);
        used = at + 1 + (uint32_t)strlen(text);
    }
    /* The end time, right-aligned unless it would touch the last label. */
    lhi_format_duration(s->t->makespan_ns, text);
    uint32_t len = (uint32_t)strlen(text) + 1;
    if (used + len < s->columns)
        lhi_text_printf(&s->out, "%*s%s|", (int)(s->columns - used - len), "",
                        text);
    lhi_text_puts(&s->out, "\n");
}

/* Starts a new legend line if the next item's `columns` characters do not fit;
 * *at: characters in the line so far. */
static void next_item(screen *s, uint32_t *at, uint32_t columns)
{
    const bool first = *at == 0;
    if (first || *at + 2 + columns > s->width) {
        lhi_text_printf(&s->out, "%s%*s", first ? "" : "\n", (int)s->left, "");
        *at = s->left;
    } else {
        lhi_text_puts(&s->out, "  ");
        *at += 2;
    }
    *at += columns;
}

/* Adds the legend for the kinds that occur, and for messages in flight. */
static void add_legend(screen *s)
{
    bool used[N_KINDS] = {false};
    const bool marked = s->color || s->ascii; /* by letter */
    uint32_t at = 0;
    for (uint32_t i = 0; i < s->t->n_runs; i++)
        used[s->t->runs[i].pass.kind] = true;
    for (int k = 0; k < N_KINDS; k++) {
        if (!used[k])
            continue;
        next_item(s, &at, (uint32_t)strlen(names[k]) + (marked ? 2 : 4));
        if (s->color)
            lhi_text_printf(&s->out, "\033[48;5;%d;38;5;%dm%c\033[0m",
                            backgrounds[k], inks[k], letters[k]);
        else if (s->ascii)
            lhi_text_printf(&s->out, "%c", letters[k]);
        else
            lhi_text_printf(&s->out, "%s %c", blocks[k], letters[k]);
        lhi_text_printf(&s->out, " %s", names[k]);
    }
    if (s->rows.n_links > s->rows.n_quiet) {
        next_item(s, &at, 11);
        lhi_text_puts(&s->out,
                      s->ascii ? "- in flight" : "\xe2\x94\x80 in flight");
    }
    lhi_text_puts(&s->out, "\n");
}

/* Adds the rows of all devices, with a line for each datacenter's name. */
static void add_devices(screen *s)
{
    const lh_trace *t = s->t;
    for (uint32_t i = 0, last = LH_NONE; i < t->n_devices; i++) {
        const uint32_t d = s->rows.devices[i], site = t->devices[d].site;
        if (lhi_timeline_has_site_rows(t) && site != last) {
            lhi_text_add_escaped(&s->out, lhi_site_label(t, site), s->width);
            lhi_text_puts(&s->out, "\n");
        }
        last = site;
        if (!s->out.failed)
            add_device(s, d);
    }
}

/* Appends the rows of the links in use; only counts quiet links (busy for less
 * than 5 % of the makespan) and those beyond the limit. */
static void add_links(screen *s)
{
    char label[LHI_ROW_LABEL];
    const uint32_t n = s->rows.n_links - s->rows.n_quiet;
    if (s->rows.n_links == 0)
        return;
    lhi_text_puts(&s->out, "Links\n");
    for (uint32_t i = 0; i < n && i < MAX_LINKS && !s->out.failed; i++)
        add_link(s, s->rows.links[i].link);
    if (n > MAX_LINKS)
        lhi_text_printf(&s->out, "  ... %" PRIu32 " more\n", n - MAX_LINKS);
    if (s->rows.n_quiet > 0)
        lhi_text_printf(&s->out, "  %s\n",
                        lhi_quiet_label(s->rows.n_quiet, label));
}

/* Adds the text timeline's axis, rows and legend. */
static void add_all(screen *s)
{
    add_axis(s);
    add_devices(s);
    add_links(s);
    add_legend(s);
}

/* Returns the label column's width: all device names, and at least the
 * beginning of link names. */
static uint32_t get_label_width(const screen *s)
{
    char label[LHI_ROW_LABEL];
    size_t most = strlen(lhi_device_label(s->t->n_devices - 1, label));
    for (uint32_t i = 0; i < s->rows.n_links; i++) {
        size_t len = lhi_count_escaped_columns(
            lhi_link_label(s->t, s->rows.links[i].link));
        len = len < MAX_LABEL ? len : MAX_LABEL;
        if (!s->rows.links[i].is_quiet && i < MAX_LINKS && len > most &&
            s->width >= 60)
            most = len;
    }
    return (uint32_t)most + 3;
}

lh_status lhi_report_copy_terminal_options(const lh_terminal_options *given,
                                           lh_terminal_options *mine,
                                           lh_error *err)
{
    lh_terminal_options o;
    LHI_TRY(LHI_OPTIONS_COPY(lh_terminal_options, &o, given, err));
    if (o.width == 0)
        o.width = 80;
    if (o.width < MIN_WIDTH || o.width > MAX_WIDTH)
        return lhi_fail(err, LH_EINVAL,
                        "a terminal %" PRIu32
                        " columns wide; expected %d to %d",
                        o.width, MIN_WIDTH, MAX_WIDTH);
    *mine = o;
    return LH_OK;
}

lh_status lh_report_terminal(const lh_trace *trace,
                             const lh_terminal_options *options, char **text,
                             size_t *len, lh_error *err)
{
    lh_terminal_options o;
    LHI_TRY(lhi_report_copy_terminal_options(options, &o, err));
    screen s = {
        .t = trace, .color = o.color, .ascii = o.ascii, .width = o.width};
    lhi_arena *mem = lhi_arena_make(0);
    if (mem && lhi_timeline_rows_make(trace, mem, &s.rows)) {
        s.left = get_label_width(&s);
        s.columns = o.width - s.left - RIGHT;
        s.used = LHI_NEW(mem, double, (size_t)s.columns *N_KINDS);
        s.flight = LHI_NEW(mem, double, s.columns);
        s.labels = LHI_NEW(mem, char, s.columns);
    }
    if (s.used && s.flight && s.labels)
        add_all(&s);
    else
        s.out.failed = true;
    lhi_arena_free(mem);
    return lhi_text_take(&s.out, text, len, err);
}
