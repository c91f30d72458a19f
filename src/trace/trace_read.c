/* SPDX-License-Identifier: Apache-2.0 */
/* Traces read back. Slices of the categories "pass", "message" and
 * "collective" are the trace; metadata, flows and counters follow from them
 * and are passed over, as are events that others added. */
#include "trace/trace_own.h"

#include "base/arena.h"
#include "doc/doc.h"
#include "pipe/schedule_own.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TIME_NS (INT64_C(1) << 53)

/* A growing array of what was read, and the lines it stood on. */
typedef struct list {
    void *items;
    uint32_t *lines;
    uint32_t count, room;
    size_t item_size;
} list;

typedef struct reader {
    const lhi_doc *doc;
    lh_error *err;
    lhi_arena *mem;
    lh_trace t;
    list runs, messages, collectives;
} reader;

static void *append(list *l, uint32_t line)
{
    if (l->count == l->room) {
        uint32_t room = l->room ? l->room * 2 : 64;
        if (l->room > UINT32_MAX / 4)
            return NULL;
        void *items = realloc(l->items, room * l->item_size);
        if (!items)
            return NULL;
        l->items = items;
        uint32_t *lines = realloc(l->lines, room * sizeof *lines);
        if (!lines)
            return NULL;
        l->lines = lines;
        l->room = room;
    }
    l->lines[l->count] = line;
    return (char *)l->items + l->item_size * l->count++;
}

/* --- members of an event ------------------------------------------------- */

static lh_status get_time(const reader *r, const lhi_node *map, const char *key,
                          int64_t *out)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, r->err));
    return lhi_get_int(r->doc, node, 0, MAX_TIME_NS, out, r->err);
}

static lh_status get_times(const reader *r, const lhi_node *map,
                           const char *const *keys, int64_t *const *outs)
{
    for (size_t i = 0; keys[i]; i++)
        LHI_TRY(get_time(r, map, keys[i], outs[i]));
    return LH_OK;
}

static lh_status get_index(const reader *r, const lhi_node *map,
                           const char *key, uint32_t below, uint32_t *out)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, r->err));
    return lhi_get_u32(r->doc, node, 0, below - 1, out, r->err);
}

static lh_status get_pass(const reader *r, const lhi_node *map, const char *key,
                          lh_pass *out)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, r->err));
    if (node->kind != LHI_SCALAR || !lhi_pass_parse(node->text, out))
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "must be a pass, as 3F0, 3I0, 3B0 or 0W3:2/8");
    return LH_OK;
}

static bool differs(double us, int64_t ns)
{
    return fabs(us * 1000 - (double)ns) > 0.5 + fabs((double)ns) * 4e-16;
}

/* What viewers draw must be what the exact numbers say. */
static lh_status check_slice(const reader *r, const lhi_node *event,
                             int64_t start_ns, int64_t end_ns)
{
    const lhi_node *node;
    double us;
    LHI_TRY(lhi_need(r->doc, event, "ts", &node, r->err));
    LHI_TRY(lhi_get_number(r->doc, node, 0, 1e15, &us, r->err));
    if (differs(us, start_ns))
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "is not the %" PRId64 " ns that args give",
                            start_ns);
    LHI_TRY(lhi_need(r->doc, event, "dur", &node, r->err));
    LHI_TRY(lhi_get_number(r->doc, node, 0, 1e15, &us, r->err));
    if (differs(us, end_ns - start_ns))
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "is not the %" PRId64 " ns that args give",
                            end_ns - start_ns);
    return LH_OK;
}

static lh_status get_args(const reader *r, const lhi_node *event,
                          const char *const *keys, const lhi_node **args)
{
    static const char *const members[] = {"ph",  "ts",  "dur",  "name", "cat",
                                          "pid", "tid", "args", NULL};
    LHI_TRY(lhi_known_keys(r->doc, event, members, r->err));
    LHI_TRY(lhi_need(r->doc, event, "args", args, r->err));
    return lhi_known_keys(r->doc, *args, keys, r->err);
}

/* --- events -------------------------------------------------------------- */

static lh_status read_run(reader *r, const lhi_node *event)
{
    static const char *const keys[] = {"start_ns", "end_ns",       "issued_ns",
                                       "memory",   "memory_after", "waits_for",
                                       NULL};
    const lhi_node *args, *node;
    lh_trace_run run = {.waits_for = LH_NONE};
    LHI_TRY(get_args(r, event, keys, &args));
    LHI_TRY(get_pass(r, event, "name", &run.pass));
    uint32_t tid;
    LHI_TRY(get_index(r, event, "tid", r->t.n_devices + 1, &tid));
    if (tid == 0)
        return lhi_doc_fail(r->doc, event, r->err, LH_EINPUT,
                            "tid must be the device + 1");
    run.device = tid - 1;
    LHI_TRY(get_time(r, args, "start_ns", &run.start_ns));
    LHI_TRY(get_time(r, args, "end_ns", &run.end_ns));
    run.issued_ns = run.end_ns;
    if (lhi_find(args, "issued_ns"))
        LHI_TRY(get_time(r, args, "issued_ns", &run.issued_ns));
    LHI_TRY(lhi_need(r->doc, args, "memory", &node, r->err));
    LHI_TRY(
        lhi_get_int(r->doc, node, INT64_MIN, INT64_MAX, &run.memory, r->err));
    LHI_TRY(lhi_need(r->doc, args, "memory_after", &node, r->err));
    LHI_TRY(lhi_get_int(r->doc, node, INT64_MIN, INT64_MAX, &run.memory_after,
                        r->err));
    if (lhi_find(args, "waits_for"))
        LHI_TRY(get_index(r, args, "waits_for", LH_NONE, &run.waits_for));
    LHI_TRY(check_slice(r, event, run.start_ns, run.end_ns));
    lh_trace_run *to = append(&r->runs, event->line);
    if (!to)
        return lhi_fail_nomem(r->err);
    *to = run;
    return LH_OK;
}

static lh_status read_message(reader *r, const lhi_node *event)
{
    static const char *const keys[] = {
        "producer", "consumer",  "from",    "to",        "link", "produced_ns",
        "ready_ns", "depart_ns", "sent_ns", "arrive_ns", NULL};
    const lhi_node *args;
    lh_trace_message m = {.link = LH_NONE};
    int64_t *const times[] = {&m.produced_ns, &m.ready_ns, &m.depart_ns,
                              &m.sent_ns, &m.arrive_ns};
    LHI_TRY(get_args(r, event, keys, &args));
    LHI_TRY(get_pass(r, args, "producer", &m.producer));
    LHI_TRY(get_pass(r, args, "consumer", &m.consumer));
    LHI_TRY(get_index(r, args, "from", r->t.n_devices, &m.from));
    LHI_TRY(get_index(r, args, "to", r->t.n_devices, &m.to));
    if (lhi_find(args, "link"))
        LHI_TRY(get_index(r, args, "link", LH_NONE, &m.link));
    LHI_TRY(get_times(r, args, keys + 5, times));
    LHI_TRY(check_slice(r, event, m.depart_ns, m.sent_ns));
    lh_trace_message *to = append(&r->messages, event->line);
    if (!to)
        return lhi_fail_nomem(r->err);
    *to = m;
    return LH_OK;
}

static lh_status read_collective(reader *r, const lhi_node *event)
{
    static const char *const keys[] = {
        "op",      "chunk",     "device", "ready_ns", "depart_ns",
        "sent_ns", "arrive_ns", "bucket", "buckets",  NULL};
    static const char *const time_keys[] = {"ready_ns", "depart_ns", "sent_ns",
                                            "arrive_ns", NULL};
    static const char *const ops[] = {"all-gather", "reduce-scatter", NULL};
    const lhi_node *args, *node;
    lh_trace_collective c = {0};
    int64_t *const times[] = {&c.ready_ns, &c.depart_ns, &c.sent_ns,
                              &c.arrive_ns};
    uint32_t op;
    LHI_TRY(get_args(r, event, keys, &args));
    LHI_TRY(lhi_need(r->doc, args, "op", &node, r->err));
    LHI_TRY(lhi_get_choice(r->doc, node, ops, &op, r->err));
    c.is_reduce_scatter = op == 1;
    LHI_TRY(get_index(r, args, "chunk", LH_MAX_CHUNKS, &c.chunk));
    LHI_TRY(get_index(r, args, "device", r->t.n_devices, &c.device));
    LHI_TRY(get_times(r, args, time_keys, times));
    LHI_TRY(check_slice(r, event, c.depart_ns, c.sent_ns));
    if ((node = lhi_find(args, "buckets"))) {
        LHI_TRY(lhi_get_u32(r->doc, node, 1, LH_MAX_MICROBATCHES, &c.n_buckets,
                            r->err));
        LHI_TRY(get_index(r, args, "bucket", c.n_buckets, &c.bucket));
    }
    lh_trace_collective *to = append(&r->collectives, event->line);
    if (!to)
        return lhi_fail_nomem(r->err);
    *to = c;
    return LH_OK;
}

static bool is_text(const lhi_node *node, const char *text)
{
    return node && node->kind == LHI_SCALAR && strcmp(node->text, text) == 0;
}

static lh_status read_event(reader *r, const lhi_node *event)
{
    LHI_TRY(lhi_want_map(r->doc, event, r->err));
    if (!is_text(lhi_find(event, "ph"), "X"))
        return LH_OK;
    const lhi_node *cat = lhi_find(event, "cat");
    if (is_text(cat, "pass"))
        return read_run(r, event);
    if (is_text(cat, "message"))
        return read_message(r, event);
    if (is_text(cat, "collective"))
        return read_collective(r, event);
    return LH_OK;
}

/* --- the heading --------------------------------------------------------- */

/* Unlike lhi_get_string(), takes an empty text. */
static lh_status get_text(const reader *r, const lhi_node *node,
                          const char **out)
{
    if (node->kind != LHI_SCALAR || !node->quoted)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "must be a text in quotes");
    *out = node->text;
    return LH_OK;
}

static lh_status need_text(const reader *r, const char *key, const char **out)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, r->doc->root, key, &node, r->err));
    return get_text(r, node, out);
}

static lh_status read_names(const reader *r, const char *key,
                            const char *const **out, uint32_t *n)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, r->doc->root, key, &node, r->err));
    LHI_TRY(lhi_want_list(r->doc, node, r->err));
    const char **names = LHI_NEW(r->mem, const char *, node->n_items);
    if (!names)
        return lhi_fail_nomem(r->err);
    for (const lhi_node *item = node->first; item; item = item->next)
        LHI_TRY(get_text(r, item, &names[item->index]));
    *out = names;
    *n = node->n_items;
    return LH_OK;
}

static lh_status read_device(const reader *r, const lhi_node *map,
                             lh_trace_device *out)
{
    static const char *const keys[] = {"site", "memory_static", "memory_limit",
                                       NULL};
    const lhi_node *node;
    LHI_TRY(lhi_known_keys(r->doc, map, keys, r->err));
    LHI_TRY(get_index(r, map, "site", LH_MAX_DEVICES, &out->site));
    LHI_TRY(lhi_need(r->doc, map, "memory_static", &node, r->err));
    LHI_TRY(lhi_get_int(r->doc, node, INT64_MIN, INT64_MAX, &out->memory_static,
                        r->err));
    out->memory_limit = LH_NO_LIMIT;
    if ((node = lhi_find(map, "memory_limit")))
        return lhi_get_int(r->doc, node, INT64_MIN, INT64_MAX - 1,
                           &out->memory_limit, r->err);
    return LH_OK;
}

static lh_status read_devices(reader *r)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, r->doc->root, "devices", &node, r->err));
    LHI_TRY(lhi_want_list(r->doc, node, r->err));
    if (node->n_items < 1 || node->n_items > LH_MAX_DEVICES)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "must name 1 to %u devices", LH_MAX_DEVICES);
    lh_trace_device *devices = LHI_NEW(r->mem, lh_trace_device, node->n_items);
    if (!devices)
        return lhi_fail_nomem(r->err);
    for (const lhi_node *item = node->first; item; item = item->next)
        LHI_TRY(read_device(r, item, &devices[item->index]));
    r->t.devices = devices;
    r->t.n_devices = node->n_items;
    return LH_OK;
}

static lh_status read_heading(reader *r)
{
    static const char *const keys[] = {
        "longhaul",        "title",       "source", "makespan_ns",
        "memory_unit",     "sites",       "links",  "devices",
        "displayTimeUnit", "traceEvents", NULL};
    const lhi_doc *doc = r->doc;
    if (lhi_find(doc->root, "traceEvents") && !lhi_find(doc->root, "longhaul"))
        return lhi_doc_fail(doc, doc->root, r->err, LH_EINPUT,
                            "a Chrome trace, but not one of longhaul's: key "
                            "'longhaul' (trace/1) is missing");
    LHI_TRY(lhi_want_format(doc, "trace", 1, r->err));
    LHI_TRY(lhi_known_keys(doc, doc->root, keys, r->err));
    LHI_TRY(need_text(r, "title", &r->t.title));
    LHI_TRY(need_text(r, "source", &r->t.source));
    LHI_TRY(need_text(r, "memory_unit", &r->t.memory_unit));
    LHI_TRY(get_time(r, doc->root, "makespan_ns", &r->t.makespan_ns));
    LHI_TRY(read_names(r, "sites", &r->t.site_names, &r->t.n_sites));
    LHI_TRY(read_names(r, "links", &r->t.link_names, &r->t.n_links));
    return read_devices(r);
}

static lh_status read_all(reader *r, lh_trace **out)
{
    const lhi_node *events;
    LHI_TRY(read_heading(r));
    LHI_TRY(lhi_need(r->doc, r->doc->root, "traceEvents", &events, r->err));
    LHI_TRY(lhi_want_list(r->doc, events, r->err));
    for (const lhi_node *e = events->first; e; e = e->next)
        LHI_TRY(read_event(r, e));
    r->t.runs = r->runs.items;
    r->t.messages = r->messages.items;
    r->t.collectives = r->collectives.items;
    r->t.n_runs = r->runs.count;
    r->t.n_messages = r->messages.count;
    r->t.n_collectives = r->collectives.count;
    lhi_trace_origin origin = {r->doc->file, r->runs.lines, r->messages.lines,
                               r->collectives.lines};
    return lhi_trace_build(&r->t, &origin, out, r->err);
}

static void list_fini(list *l)
{
    free(l->items);
    free(l->lines);
}

static lh_status from_doc(lhi_doc *doc, lh_trace **out, lh_error *err)
{
    reader r = {.doc = doc,
                .err = err,
                .mem = doc->mem,
                .runs.item_size = sizeof(lh_trace_run),
                .messages.item_size = sizeof(lh_trace_message),
                .collectives.item_size = sizeof(lh_trace_collective)};
    lh_status status = read_all(&r, out);
    list_fini(&r.runs);
    list_fini(&r.messages);
    list_fini(&r.collectives);
    lhi_doc_free(doc);
    return status;
}

lh_status lh_trace_parse(const char *text, size_t len, const char *name,
                         lh_trace **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, &doc, err));
    return from_doc(doc, out, err);
}

lh_status lh_trace_read(const char *path, lh_trace **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, &doc, err));
    return from_doc(doc, out, err);
}
