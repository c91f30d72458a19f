/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a trace into the page's JSON. */
#include "report/page/page_json.h"

#include "base/integer_math.h"
#include "report/page/timeline_rows.h"
#include "report/trace/trace_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Conversion state. */
typedef struct columns {
    lhi_text *out;
    const lh_trace *t;
    lhi_run_index_entry *runs_by_pass;
    int64_t *values; /* current column's values */
    int64_t tick_ns;
} columns;

/* Returns the largest time unit (tick), in ns, that divides all times in a
 * trace and its analysis, so that the page stores small integers. */
static int64_t find_tick(const lh_trace *t, const lh_report_analysis *a)
{
    int64_t g = t->makespan_ns;
    for (uint32_t i = 0; i < t->n_runs && g != 1; i++) {
        const lh_trace_run *r = &t->runs[i];
        g = lhi_gcd(lhi_gcd(lhi_gcd(g, r->start_ns), r->end_ns), r->issued_ns);
    }
    for (uint32_t i = 0; i < t->n_messages && g != 1; i++) {
        const lh_trace_message *m = &t->messages[i];
        g = lhi_gcd(lhi_gcd(lhi_gcd(g, m->produced_ns), m->ready_ns),
                    m->depart_ns);
        g = lhi_gcd(lhi_gcd(g, m->sent_ns), m->arrive_ns);
    }
    for (uint32_t i = 0; i < t->n_collectives && g != 1; i++) {
        const lh_trace_collective *c = &t->collectives[i];
        g = lhi_gcd(lhi_gcd(g, c->ready_ns), c->depart_ns);
        g = lhi_gcd(lhi_gcd(g, c->sent_ns), c->arrive_ns);
    }
    for (uint32_t i = 0; i < a->n_segments && g != 1; i++)
        g = lhi_gcd(lhi_gcd(g, a->critical_path[i].start_ns),
                    a->critical_path[i].end_ns);
    return g ? g : 1;
}

/* Adds the n values in c->values as a JSON column; a single number if all are
 * equal. */
static void add_column(columns *c, const char *key, uint32_t n)
{
    bool all_equal = true;
    for (uint32_t i = 1; i < n && all_equal; i++)
        all_equal = c->values[i] == c->values[0];
    lhi_text_printf(c->out, ",\"%s\":", key);
    if (all_equal) {
        lhi_text_printf(c->out, "%" PRId64, n ? c->values[0] : 0);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        lhi_text_printf(c->out, "%c%" PRId64, i ? ',' : '[', c->values[i]);
    lhi_text_puts(c->out, "]");
}

/* Appends a JSON member `key` whose value is the list of n names. */
static void add_names(lhi_text *out, const char *key, const char *const *names,
                      uint32_t n)
{
    lhi_text_printf(out, ",\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++) {
        lhi_text_puts(out, i ? "," : "");
        lhi_json_add_string(out, names[i]);
    }
    lhi_text_puts(out, "]");
}

/* Appends a JSON member `key` whose value is the string `value`. */
static void add_text(lhi_text *out, const char *key, const char *value)
{
    lhi_text_printf(out, ",\"%s\":", key);
    lhi_json_add_string(out, value);
}

#define COLUMN(c, key, n, value)                                               \
    do {                                                                       \
        for (uint32_t i = 0; i < (n); i++)                                     \
            (c)->values[i] = (value);                                          \
        add_column((c), (key), (n));                                           \
    } while (0)

/* Adds the devices' columns: datacenter, static memory, memory limit and
 * data-parallel link. */
static void add_devices(columns *c)
{
    const lh_trace *t = c->t;
    COLUMN(c, "site", t->n_devices, t->devices[i].site);
    COLUMN(c, "static", t->n_devices, t->devices[i].memory_static);
    lhi_text_puts(c->out, ",\"limit\":[");
    for (uint32_t d = 0; d < t->n_devices; d++) {
        lhi_text_puts(c->out, d ? "," : "");
        if (t->devices[d].memory_limit == LH_NO_LIMIT)
            lhi_text_puts(c->out, "null");
        else
            lhi_text_printf(c->out, "%" PRId64, t->devices[d].memory_limit);
    }
    lhi_text_puts(c->out, "],\"dpLink\":[");
    for (uint32_t d = 0; d < t->n_devices; d++) {
        const char *link = t->devices[d].dp_link;
        lhi_text_puts(c->out, d ? "," : "");
        lhi_json_add_string(c->out, link ? link : "");
    }
    lhi_text_puts(c->out, "]");
}

/* Returns the time in ns between the previous run's end on the device and run
 * i. */
static int64_t get_gap(const lh_trace *t, uint32_t i)
{
    const lh_trace_run *r = &t->runs[i];
    bool first = i == 0 || r[-1].device != r->device;
    return r->start_ns - (first ? 0 : r[-1].end_ns);
}

/* Adds the pass columns; times in ticks, starts as gaps after the device's
 * previous pass. */
static void add_runs(columns *c)
{
    const lh_trace *t = c->t;
    const lh_trace_run *r = t->runs;
    for (uint32_t i = 0; i < t->n_devices; i++)
        c->values[i] = 0;
    for (uint32_t i = 0; i < t->n_runs; i++)
        c->values[r[i].device]++;
    lhi_text_puts(c->out, ",\"runs\":{\"n\":");
    lhi_text_printf(c->out, "%" PRIu32, t->n_runs);
    add_column(c, "of", t->n_devices);
    lhi_text_puts(c->out, ",\"kind\":\"");
    for (uint32_t i = 0; i < t->n_runs; i++)
        lhi_text_printf(c->out, "%c", lhi_pass_letter(&r[i].pass));
    lhi_text_puts(c->out, "\"");
    COLUMN(c, "chunk", t->n_runs, r[i].pass.chunk);
    COLUMN(c, "mb", t->n_runs, r[i].pass.microbatch);
    COLUMN(c, "part", t->n_runs, r[i].pass.part);
    COLUMN(c, "parts", t->n_runs, r[i].pass.n_parts);
    COLUMN(c, "gap", t->n_runs, get_gap(t, i) / c->tick_ns);
    COLUMN(c, "time", t->n_runs, (r[i].end_ns - r[i].start_ns) / c->tick_ns);
    COLUMN(c, "held", t->n_runs, (r[i].issued_ns - r[i].end_ns) / c->tick_ns);
    COLUMN(c, "mem", t->n_runs, r[i].memory);
    COLUMN(c, "after", t->n_runs, r[i].memory_after);
    COLUMN(c, "waits", t->n_runs,
           r[i].waits_for == LH_NONE ? -1 : (int64_t)r[i].waits_for);
    lhi_text_puts(c->out, "}");
}

/* Adds the message columns; times in ticks, each relative to the message's
 * previous phase. */
static void add_messages(columns *c)
{
    const lh_trace *t = c->t;
    const lh_trace_message *m = t->messages;
    int64_t tick = c->tick_ns;
    lhi_text_printf(c->out, ",\"messages\":{\"n\":%" PRIu32, t->n_messages);
    COLUMN(c, "link", t->n_messages,
           m[i].link == LH_NONE ? -1 : (int64_t)m[i].link);
    COLUMN(c, "from", t->n_messages,
           lhi_run_index_find(c->runs_by_pass, t->n_runs, &m[i].producer));
    COLUMN(c, "to", t->n_messages,
           lhi_run_index_find(c->runs_by_pass, t->n_runs, &m[i].consumer));
    COLUMN(c, "made", t->n_messages, m[i].produced_ns / tick);
    COLUMN(c, "post", t->n_messages, (m[i].ready_ns - m[i].produced_ns) / tick);
    COLUMN(c, "queue", t->n_messages, (m[i].depart_ns - m[i].ready_ns) / tick);
    COLUMN(c, "send", t->n_messages, (m[i].sent_ns - m[i].depart_ns) / tick);
    COLUMN(c, "fly", t->n_messages, (m[i].arrive_ns - m[i].sent_ns) / tick);
    lhi_text_puts(c->out, "}");
}

/* Adds the data-parallel collective columns; times in ticks, each relative to
 * the previous phase. */
static void add_collectives(columns *c)
{
    const lh_trace *t = c->t;
    const lh_trace_collective *x = t->collectives;
    uint32_t n = t->n_collectives;
    int64_t tick = c->tick_ns;
    lhi_text_printf(c->out, ",\"collectives\":{\"n\":%" PRIu32, n);
    COLUMN(c, "chunk", n, x[i].chunk);
    COLUMN(c, "device", n, x[i].device);
    COLUMN(c, "rs", n, x[i].is_reduce_scatter);
    COLUMN(c, "made", n, x[i].ready_ns / tick);
    COLUMN(c, "queue", n, (x[i].depart_ns - x[i].ready_ns) / tick);
    COLUMN(c, "send", n, (x[i].sent_ns - x[i].depart_ns) / tick);
    COLUMN(c, "fly", n, (x[i].arrive_ns - x[i].sent_ns) / tick);
    lhi_text_puts(c->out, "}");
}

/* Appends the critical path's segments as JSON columns: kinds, indices of
 * passes or messages, and times in ticks. */
static void add_path(columns *c, const lh_report_analysis *a)
{
    static const char letters[] = "pqtlcbw"; /* in the enum's order */
    const lh_report_segment *s = a->critical_path;
    lhi_text_printf(c->out, ",\"path\":{\"n\":%" PRIu32 ",\"step\":\"",
                    a->n_segments);
    for (uint32_t i = 0; i < a->n_segments; i++)
        lhi_text_printf(c->out, "%c", letters[s[i].step]);
    lhi_text_puts(c->out, "\"");
    COLUMN(c, "index", a->n_segments, s[i].index);
    COLUMN(c, "gap", a->n_segments,
           (s[i].start_ns - (i ? s[i - 1].end_ns : 0)) / c->tick_ns);
    COLUMN(c, "time", a->n_segments,
           (s[i].end_ns - s[i].start_ns) / c->tick_ns);
    lhi_text_puts(c->out, "}");
}

/* Adds the devices' idle time by cause, in ns rather than ticks: shares of
 * idle time need not be multiples of the tick. */
static void add_causes(columns *c, const lh_report_analysis *a)
{
    lhi_text *out = c->out;
    uint64_t n = (uint64_t)a->n_causes * c->t->n_devices;
    add_names(out, "causes", a->cause_names, a->n_causes);
    lhi_text_puts(out, ",\"idle\":[");
    for (uint64_t i = 0; i < n; i++)
        lhi_text_printf(out, "%s%" PRId64, i ? "," : "", a->bubble_ns[i]);
    lhi_text_puts(out, "]");
}

/* Appends a JSON member `key` whose value is a list of n integers, and a
 * comma. */
static void add_numbers(lhi_text *out, const char *key, const uint32_t *numbers,
                        uint32_t n)
{
    lhi_text_printf(out, "\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++)
        lhi_text_printf(out, "%s%" PRIu32, i ? "," : "", numbers[i]);
    lhi_text_puts(out, "],");
}

/* Adds the lists of timeline rows in display order: datacenters, devices and
 * links. */
static void add_rows(columns *c, const lhi_timeline_rows *rows)
{
    const lh_trace *t = c->t;
    char label[LHI_ROW_LABEL];
    lhi_text *out = c->out;
    lhi_text_puts(out, ",\"rows\":{");
    add_numbers(out, "sites", rows->sites, rows->n_sites);
    add_numbers(out, "devices", rows->devices, t->n_devices);
    add_numbers(out, "turns", rows->chunk_positions, rows->n_chunks);
    lhi_text_printf(out, "\"most\":%" PRIu32 ",\"grouped\":%s,\"heads\":[",
                    rows->most_chunks,
                    lhi_timeline_has_site_rows(t) ? "true" : "false");
    for (uint32_t i = 0; i < rows->n_sites; i++) {
        lhi_text_puts(out, i ? "," : "");
        lhi_json_add_string(out, lhi_site_label(t, rows->sites[i]));
    }
    lhi_text_puts(out, "],\"labels\":[");
    for (uint32_t d = 0; d < t->n_devices; d++)
        lhi_text_printf(out, "%s\"%s\"", d ? "," : "",
                        lhi_device_label(d, label));
    lhi_text_puts(out, "],\"links\":[");
    for (uint32_t i = 0; i < rows->n_links; i++) {
        const lhi_link_row *row = &rows->links[i];
        lhi_text_printf(out, "%s[%" PRId64 ",", i ? "," : "",
                        row->link == LH_NONE ? -1 : (int64_t)row->link);
        lhi_json_add_string(out, lhi_link_label(t, row->link));
        lhi_text_printf(out, ",%d,%d]", row->is_between_sites, row->is_quiet);
    }
    lhi_text_printf(out, "],\"quiet\":\"%s\"}",
                    lhi_quiet_label(rows->n_quiet, label));
}

/* Adds the trace as one JSON object: names, rows, columns, and the analysis if
 * there is one. */
static void add_all(columns *c, const char *label,
                    const lhi_timeline_rows *rows, const lh_report_analysis *a)
{
    const lh_trace *t = c->t;
    lhi_text_printf(c->out,
                    "{\"tick\":%" PRId64 ",\"makespan\":%" PRId64
                    ",\"devices\":%" PRIu32,
                    c->tick_ns, t->makespan_ns / c->tick_ns, t->n_devices);
    add_text(c->out, "label", label);
    add_text(c->out, "title", t->title);
    add_text(c->out, "source", t->source);
    add_text(c->out, "unit", t->memory_unit);
    add_names(c->out, "sites", t->site_names, t->n_sites);
    add_names(c->out, "links", t->link_names, t->n_links);
    add_rows(c, rows);
    add_devices(c);
    add_runs(c);
    add_messages(c);
    add_collectives(c);
    if (a->n_segments)
        add_path(c, a);
    if (a->n_causes)
        add_causes(c, a);
    lhi_text_puts(c->out, "}");
}

lh_status lhi_page_add_trace(lhi_text *out, const lh_trace *trace,
                             const char *label,
                             const lh_report_analysis *analysis, lh_error *err)
{
    size_t most = trace->n_devices;
    most = most > trace->n_runs ? most : trace->n_runs;
    most = most > trace->n_messages ? most : trace->n_messages;
    most = most > trace->n_collectives ? most : trace->n_collectives;
    if (most < analysis->n_segments)
        most = analysis->n_segments;
    columns c = {.out = out,
                 .t = trace,
                 .runs_by_pass =
                     lhi_run_index_build(trace->runs, trace->n_runs),
                 .values = malloc(most * sizeof *c.values),
                 .tick_ns = find_tick(trace, analysis)};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_timeline_rows rows;
    if (c.runs_by_pass && c.values && mem &&
        lhi_timeline_rows_make(trace, mem, &rows))
        add_all(&c, label, &rows, analysis);
    else
        out->failed = true;
    lhi_arena_free(mem);
    free(c.runs_by_pass);
    free(c.values);
    return out->failed ? lhi_fail_nomem(err) : LH_OK;
}
