/* SPDX-License-Identifier: Apache-2.0 */
/* Reads traces. Slices in the categories "pass", "message", "collective" and
 * "copy" form the trace. Metadata, flows and counters are derived from them and
 * are skipped, as are events that other programs added. */
#include "report/trace/trace_internal.h"

#include "report/trace/trace_keys.h"
#include "schedule/pipeline/schedule_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A growing array whose elements have source lines. */
typedef struct list {
    void *items;
    uint32_t *lines;
    uint32_t count, room;
    size_t item_size;
} list;

/* Reader state. */
typedef struct reader {
    const lhi_doc *doc;
    lh_error *err;
    lh_trace t;
    list runs, messages, collectives, copies;
} reader;

/* Appends a zeroed element, read from line `line` in the file, to the list and
 * returns its address; NULL on allocation failure. */
static void *append_element(list *l, uint32_t line)
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

/* --- events -------------------------------------------------------------- */

/* Checks whether a time in microseconds, as trace viewers read it, differs from
 * the exact time in ns by more than rounding of the double. */
static bool differs(double us, int64_t ns)
{
    return fabs(us * 1000 - (double)ns) > 0.5 + fabs((double)ns) * 4e-16;
}

/* Fails with LH_EINPUT if the event's value `us` at `key`, in microseconds,
 * differs from the exact time in ns. */
static lh_status check_us(const reader *r, const lhi_node *event,
                          const char *key, double us, int64_t ns)
{
    if (!differs(us, ns))
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(event, key), r->err, LH_EINPUT,
                        "differs from the %" PRId64 " ns given in args", ns);
}

/* Fails with LH_EINPUT unless a slice's start and duration in microseconds,
 * which trace viewers use, agree with its exact times start_ns and end_ns. */
static lh_status check_slice(const reader *r, const lhi_node *event,
                             const lhi_trace_slice *slice, int64_t start_ns,
                             int64_t end_ns)
{
    LHI_TRY(check_us(r, event, "ts", slice->start_us, start_ns));
    return check_us(r, event, "dur", slice->length_us, end_ns - start_ns);
}

/* Reads a slice (complete event) from a Chrome trace, and its args by schema
 * `table` into `args`. */
static lh_status read_slice(const reader *r, const lhi_node *event,
                            const lhi_schema *table, lhi_trace_slice *slice,
                            void *args)
{
    const lhi_read_context reading = {.doc = r->doc, .mem = r->doc->mem};
    LHI_TRY(lhi_schema_read(&reading, event, &lhi_trace_slice_table, slice,
                            r->err));
    return lhi_schema_read(&reading, lhi_node_find(event, "args"), table, args,
                           r->err);
}

/* Reads a run's pass from the slice's name and its device from the thread. */
static lh_status read_identity(const reader *r, const lhi_node *event,
                               lh_trace_run *run)
{
    const lhi_doc *doc = r->doc;
    const lhi_node *name, *tid;
    LHI_TRY(lhi_node_require(doc, event, "name", &name, r->err));
    if (name->kind != LHI_SCALAR || !lhi_parse_pass(name->text, &run->pass))
        return lhi_doc_fail(doc, name, r->err, LH_EINPUT,
                            "must be " LHI_PASS_FORM);
    LHI_TRY(lhi_node_require(doc, event, "tid", &tid, r->err));
    LHI_TRY(
        lhi_node_get_u32(doc, tid, 1, r->t.n_devices, &run->device, r->err));
    run->device--;
    return LH_OK;
}

/* Reads a slice of category "pass" and appends it to the passes. */
static lh_status read_run(reader *r, const lhi_node *event)
{
    lhi_trace_slice slice = {0};
    lh_trace_run run = {0};
    LHI_TRY(read_slice(r, event, &lhi_trace_run_table, &slice, &run));
    LHI_TRY(read_identity(r, event, &run));
    LHI_TRY(check_slice(r, event, &slice, run.start_ns, run.end_ns));
    lh_trace_run *to = append_element(&r->runs, event->line);
    if (!to)
        return lhi_fail_nomem(r->err);
    *to = run;
    return LH_OK;
}

/* Reads a slice of category "message" and appends it to the messages. */
static lh_status read_message(reader *r, const lhi_node *event)
{
    lhi_trace_slice slice = {0};
    lh_trace_message m = {0};
    LHI_TRY(read_slice(r, event, &lhi_trace_message_table, &slice, &m));
    LHI_TRY(check_slice(r, event, &slice, m.depart_ns, m.sent_ns));
    lh_trace_message *to = append_element(&r->messages, event->line);
    if (!to)
        return lhi_fail_nomem(r->err);
    *to = m;
    return LH_OK;
}

/* Reads a slice of category "collective" and appends it to the collectives. */
static lh_status read_collective(reader *r, const lhi_node *event)
{
    lhi_trace_slice slice = {0};
    lh_trace_collective c = {0};
    LHI_TRY(read_slice(r, event, &lhi_trace_collective_table, &slice, &c));
    LHI_TRY(check_slice(r, event, &slice, c.depart_ns, c.sent_ns));
    lh_trace_collective *to = append_element(&r->collectives, event->line);
    if (!to)
        return lhi_fail_nomem(r->err);
    *to = c;
    return LH_OK;
}

/* Reads a slice of category "copy" and appends it to the offload copies. */
static lh_status read_copy(reader *r, const lhi_node *event)
{
    lhi_trace_slice slice = {0};
    lh_trace_offload c = {0};
    LHI_TRY(read_slice(r, event, &lhi_trace_copy_table, &slice, &c));
    LHI_TRY(check_slice(r, event, &slice, c.depart_ns, c.end_ns));
    lh_trace_offload *to = append_element(&r->copies, event->line);
    if (!to)
        return lhi_fail_nomem(r->err);
    *to = c;
    return LH_OK;
}

/* Checks whether a node is a scalar with exactly that text; false for NULL. */
static bool is_text(const lhi_node *node, const char *text)
{
    return node && node->kind == LHI_SCALAR && strcmp(node->text, text) == 0;
}

/* Reads a trace event by its category; skips events that are no complete slices
 * of a known category. */
static lh_status read_event(reader *r, const lhi_node *event)
{
    LHI_TRY(lhi_node_check_map(r->doc, event, r->err));
    if (!is_text(lhi_node_find(event, "ph"), "X"))
        return LH_OK;
    const lhi_node *cat = lhi_node_find(event, "cat");
    if (is_text(cat, "pass"))
        return read_run(r, event);
    if (is_text(cat, "message"))
        return read_message(r, event);
    if (is_text(cat, "collective"))
        return read_collective(r, event);
    if (is_text(cat, "copy"))
        return read_copy(r, event);
    return LH_OK;
}

/* --- file ---------------------------------------------------------------- */

/* Reads the trace's top-level keys. LH_EINPUT: the file is another program's
 * Chrome trace. */
static lh_status read_heading(reader *r)
{
    const lhi_doc *doc = r->doc;
    const lhi_read_context reading = {.doc = doc, .mem = doc->mem};
    if (lhi_node_find(doc->root, "traceEvents") &&
        !lhi_node_find(doc->root, "longhaul"))
        return lhi_doc_fail(doc, doc->root, r->err, LH_EINPUT,
                            "a Chrome trace, but not one of longhaul's: key "
                            "'longhaul' (trace/1) is missing");
    LHI_TRY(lhi_doc_check_format(doc, "trace", 1, r->err));
    return lhi_schema_read(&reading, doc->root, &lhi_trace_table, &r->t,
                           r->err);
}

/* Reads the heading and all events, and builds the trace. */
static lh_status read_all(reader *r, lh_trace **out)
{
    LHI_TRY(read_heading(r));
    const lhi_node *events = lhi_node_find(r->doc->root, "traceEvents");
    LHI_TRY(lhi_node_check_list(r->doc, events, r->err));
    for (const lhi_node *e = events->first; e; e = e->next)
        LHI_TRY(read_event(r, e));
    r->t.runs = r->runs.items;
    r->t.messages = r->messages.items;
    r->t.collectives = r->collectives.items;
    r->t.n_runs = r->runs.count;
    r->t.n_messages = r->messages.count;
    r->t.n_collectives = r->collectives.count;
    r->t.copies = r->copies.items;
    r->t.n_copies = r->copies.count;
    lhi_trace_source_lines origin = {r->doc->file, r->runs.lines,
                                     r->messages.lines, r->collectives.lines,
                                     r->copies.lines};
    return lhi_trace_build(&r->t, &origin, out, r->err);
}

/* Frees a list's arrays. */
static void list_fini(list *l)
{
    free(l->items);
    free(l->lines);
}

/* Builds a trace from a parsed document, and frees the document. */
static lh_status build_from_doc(lhi_doc *doc, lh_trace **out, lh_error *err)
{
    reader r = {.doc = doc,
                .err = err,
                .runs.item_size = sizeof(lh_trace_run),
                .messages.item_size = sizeof(lh_trace_message),
                .collectives.item_size = sizeof(lh_trace_collective),
                .copies.item_size = sizeof(lh_trace_offload)};
    lh_status status = read_all(&r, out);
    list_fini(&r.runs);
    list_fini(&r.messages);
    list_fini(&r.collectives);
    list_fini(&r.copies);
    lhi_doc_free(doc);
    return status;
}

lh_status lh_trace_parse(const char *text, size_t len, const char *name,
                         lh_trace **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, LHI_INPUT_TRACE, &doc, err));
    return build_from_doc(doc, out, err);
}

lh_status lh_trace_read(const char *path, lh_trace **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, LHI_INPUT_TRACE, &doc, err));
    return build_from_doc(doc, out, err);
}
