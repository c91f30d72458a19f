/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline as text: a row per device, a character per stretch of time. */
#include "report/parts.h"

#include "base/take_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_KINDS = 4, LEAST_WIDTH = 40, MOST_WIDTH = 1000, RIGHT = 6 };

/* What stands for a kind: without colour by its density, so that rows read as
 * shades; in ASCII by its letter. */
static const char *const blocks[N_KINDS] = {
    [LH_F] = "\xe2\x96\x88", /* full block */
    [LH_D] = "\xe2\x96\x92", /* medium shade */
    [LH_W] = "\xe2\x96\x91", /* light shade */
    [LH_B] = "\xe2\x96\x93", /* dark shade */
};
static const char letters[] = "FDWB";
static const char *const names[N_KINDS] = {"forward", "input gradient",
                                           "weight gradient", "backward"};
/* Background and text, of the 256 colours. */
static const int backgrounds[N_KINDS] = {25, 221, 72, 167};
static const int inks[N_KINDS] = {231, 16, 16, 231};

typedef struct screen {
    lhi_text out;
    const lh_trace *t;
    bool color, ascii;
    uint32_t width, left, columns;
    double *used; /* [column][kind]: of the row being drawn */
    char *labels; /* [column]: a digit of a microbatch, 0: none */
} screen;

char *lhi_time_text(int64_t ns, char *buffer)
{
    static const struct {
        int64_t size;
        const char *name;
    } units[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};
    size_t i = 0;
    while (i < 3 && ns < units[i].size)
        i++;
    /* Four digits that count: `scale` steps to the unit, then as few decimals
     * as say the same. */
    int64_t size = units[i].size, scale = 1;
    int decimals = 0;
    while (scale < size && ns / size * scale < 1000 && decimals < 3) {
        scale *= 10;
        decimals++;
    }
    int64_t step = size / scale;
    int64_t steps = ns / step + (ns % step >= step - ns % step);
    int64_t whole = steps / scale, rest = steps % scale;
    while (decimals > 0 && rest % 10 == 0) {
        rest /= 10;
        decimals--;
    }
    if (decimals == 0)
        snprintf(buffer, LHI_TIME_TEXT, "%" PRId64 " %s", whole, units[i].name);
    else
        snprintf(buffer, LHI_TIME_TEXT, "%" PRId64 ".%0*" PRId64 " %s", whole,
                 decimals, rest, units[i].name);
    return buffer;
}

/* --- one row ------------------------------------------------------------- */

static double column_of(const screen *s, int64_t ns)
{
    double span = s->t->makespan_ns > 0 ? (double)s->t->makespan_ns : 1;
    return (double)ns / span * s->columns;
}

static uint32_t clamp_column(const screen *s, double column)
{
    if (column < 0)
        return 0;
    return column >= s->columns ? s->columns - 1 : (uint32_t)column;
}

static void add_use(screen *s, const lh_trace_run *r)
{
    double from = column_of(s, r->start_ns), to = column_of(s, r->end_ns);
    uint32_t first = clamp_column(s, from), last = clamp_column(s, to);
    for (uint32_t c = first; c <= last; c++) {
        double a = from > c ? from : c, b = to < c + 1 ? to : c + 1;
        if (b > a)
            s->used[(size_t)c * N_KINDS + r->pass.kind] += b - a;
    }
}

/* The kind that a column shows, -1: the device idles for most of it. */
static int shown_kind(const screen *s, uint32_t column)
{
    const double *used = s->used + (size_t)column * N_KINDS;
    double sum = 0;
    int most = 0;
    for (int k = 0; k < N_KINDS; k++) {
        sum += used[k];
        if (used[k] > used[most])
            most = k;
    }
    return sum >= 0.5 ? most : -1;
}

/* Puts the microbatch at the beginning of a pass that leaves room for it. */
static void add_label(screen *s, const lh_trace_run *r)
{
    char digits[16];
    uint32_t n = (uint32_t)snprintf(digits, sizeof digits, "%" PRIu32,
                                    r->pass.microbatch);
    double from = column_of(s, r->start_ns), to = column_of(s, r->end_ns);
    uint32_t first = clamp_column(s, from + 0.5);
    uint32_t end = clamp_column(s, to + 0.5);
    if (end < first + n + 1 || r->pass.n_parts > 1)
        return;
    for (uint32_t i = 0; i < n; i++)
        if (shown_kind(s, first + i) == r->pass.kind)
            s->labels[first + i] = digits[i];
}

static void add_cell(screen *s, uint32_t column, int *now)
{
    int kind = shown_kind(s, column);
    char label = s->labels[column];
    if (s->color && kind != *now) {
        if (kind < 0)
            lhi_text_puts(&s->out, "\033[0m");
        else
            lhi_text_printf(&s->out, "\033[48;5;%d;38;5;%dm", backgrounds[kind],
                            inks[kind]);
        *now = kind;
    }
    if (kind < 0)
        lhi_text_puts(&s->out, s->ascii ? "." : "\xc2\xb7");
    else if (label)
        lhi_text_printf(&s->out, "%c", label);
    else if (s->ascii)
        lhi_text_printf(&s->out, "%c", letters[kind]);
    else
        lhi_text_puts(&s->out, s->color ? " " : blocks[kind]);
}

static void add_device(screen *s, uint32_t device, const lh_trace_run *runs,
                       uint32_t n)
{
    int64_t busy_ns = 0;
    int now = -1;
    memset(s->used, 0, (size_t)s->columns * N_KINDS * sizeof *s->used);
    memset(s->labels, 0, s->columns);
    for (uint32_t i = 0; i < n; i++) {
        add_use(s, &runs[i]);
        busy_ns += runs[i].end_ns - runs[i].start_ns;
    }
    for (uint32_t i = 0; i < n; i++)
        add_label(s, &runs[i]);
    lhi_text_printf(&s->out, "%*" PRIu32 " ", (int)s->left - 1, device);
    for (uint32_t c = 0; c < s->columns; c++)
        add_cell(s, c, &now);
    if (now >= 0)
        lhi_text_puts(&s->out, "\033[0m");
    double span = s->t->makespan_ns > 0 ? (double)s->t->makespan_ns : 1;
    lhi_text_printf(&s->out, "%5.0f%%\n", 100 * (double)busy_ns / span);
}

/* --- around the rows ------------------------------------------------------ */

static void add_axis(screen *s)
{
    char text[LHI_TIME_TEXT];
    uint32_t used = 0, n_labels = s->columns / 18 + 1;
    lhi_text_printf(&s->out, "%*s", (int)s->left, "");
    for (uint32_t i = 0; i < n_labels; i++) {
        uint32_t at = (uint32_t)((uint64_t)s->columns * i / n_labels);
        int64_t ns = s->t->makespan_ns / n_labels * i;
        lhi_text_printf(&s->out, "%*s", (int)(at - used), "");
        if (i > 0)
            lhi_time_text(ns, text);
        else
            snprintf(text, sizeof text, "0");
        lhi_text_printf(&s->out, "|%s", text);
        used = at + 1 + (uint32_t)strlen(text);
    }
    /* The end, flush right, where it does not touch the last label. */
    lhi_time_text(s->t->makespan_ns, text);
    uint32_t len = (uint32_t)strlen(text) + 1;
    if (used + len < s->columns)
        lhi_text_printf(&s->out, "%*s%s|", (int)(s->columns - used - len), "",
                        text);
    lhi_text_puts(&s->out, "\n");
}

static void add_legend(screen *s)
{
    bool used[N_KINDS] = {false};
    uint32_t at = s->left;
    for (uint32_t i = 0; i < s->t->n_runs; i++)
        used[s->t->runs[i].pass.kind] = true;
    lhi_text_printf(&s->out, "%*s", (int)s->left, "");
    for (int k = 0; k < N_KINDS; k++) {
        uint32_t len = (uint32_t)strlen(names[k]) + 5;
        if (!used[k])
            continue;
        if (at + len > s->width) {
            lhi_text_printf(&s->out, "\n%*s", (int)s->left, "");
            at = s->left;
        }
        at += len;
        if (s->color)
            lhi_text_printf(&s->out, "\033[48;5;%d;38;5;%dm%c\033[0m",
                            backgrounds[k], inks[k], letters[k]);
        else if (s->ascii)
            lhi_text_printf(&s->out, "%c", letters[k]);
        else
            lhi_text_puts(&s->out, blocks[k]);
        if (s->color || s->ascii)
            lhi_text_printf(&s->out, " %s  ", names[k]);
        else
            lhi_text_printf(&s->out, " %c %s  ", letters[k], names[k]);
    }
    lhi_text_puts(&s->out, "\n");
}

static void add_all(screen *s)
{
    const lh_trace *t = s->t;
    bool grouped = t->n_sites > 1 || t->site_names[0][0];
    add_axis(s);
    for (uint32_t site = 0; site < t->n_sites; site++) {
        bool first = grouped;
        for (uint32_t d = 0, i = 0, end; d < t->n_devices; d++, i = end) {
            end = i;
            while (end < t->n_runs && t->runs[end].device == d)
                end++;
            if (t->devices[d].site != site || s->out.failed)
                continue;
            if (first) {
                lhi_text_add_shown(&s->out, t->site_names[site], s->width);
                lhi_text_puts(&s->out, "\n");
                first = false;
            }
            add_device(s, d, t->runs + i, end - i);
        }
    }
    add_legend(s);
}

lh_status lhi_take_terminal(const lh_terminal_options *given,
                            lh_terminal_options *mine, lh_error *err)
{
    lh_terminal_options o;
    LHI_TRY(LHI_OPTIONS_TAKE(lh_terminal_options, &o, given, err));
    if (o.width == 0)
        o.width = 80;
    if (o.width < LEAST_WIDTH || o.width > MOST_WIDTH)
        return lhi_fail(err, LH_EINVAL,
                        "a terminal %" PRIu32 " columns wide; choose %d to %d",
                        o.width, LEAST_WIDTH, MOST_WIDTH);
    *mine = o;
    return LH_OK;
}

lh_status lh_report_terminal(const lh_trace *trace,
                             const lh_terminal_options *options, char **text,
                             size_t *len, lh_error *err)
{
    lh_terminal_options o;
    LHI_TRY(lhi_take_terminal(options, &o, err));
    screen s = {
        .t = trace, .color = o.color, .ascii = o.ascii, .width = o.width};
    s.left = (uint32_t)snprintf(NULL, 0, "%" PRIu32, trace->n_devices - 1) + 3;
    s.columns = o.width - s.left - RIGHT;
    s.used = malloc((size_t)s.columns * N_KINDS * sizeof *s.used);
    s.labels = malloc(s.columns);
    if (s.used && s.labels)
        add_all(&s);
    else
        s.out.failed = true;
    free(s.used);
    free(s.labels);
    return lhi_text_take(&s.out, text, len, err);
}
