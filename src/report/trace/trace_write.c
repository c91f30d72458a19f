/* SPDX-License-Identifier: Apache-2.0 */
/* Writes traces as Chrome trace events, the JSON format for Perfetto and
 * chrome://tracing ("Trace Event Format", Google, 2016). A thread's slices
 * nest, flows start and end inside slices, and counters are numbers. */
#include "report/trace/trace_internal.h"

#include "base/arena.h"
#include "base/heap.h"
#include "base/text.h"
#include "report/trace/json_text.h"
#include "report/trace/trace_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writer state. Process and thread numbers begin at 1, because 0 means "idle"
 * to some viewers.
 *
 * - processes: one per site, then one for all links
 * - threads: one per device, per device's data-parallel link, per link, and one
 *   for messages without a link; with copies, a stream per device
 * - then further lanes, where slices overlap */
typedef struct writer {
    const lh_trace *t;
    lhi_arena *mem;
    lhi_text out;
    bool first; /* no event written yet */
    uint32_t *message_tids, *collective_tids, *copy_tids;
    uint32_t next_tid; /* for further lanes */
    lhi_run_index_entry *runs_by_pass;
} writer;

/* Returns a device's process number in the trace: its datacenter's. */
static uint32_t get_device_pid(const writer *w, uint32_t device)
{
    return w->t->devices[device].site + 1;
}

/* Returns the process number under which the trace shows the links. */
static uint32_t get_links_pid(const writer *w)
{
    return w->t->n_sites + 1;
}

/* Returns the thread number for a link's first lane; LH_NONE: messages without
 * a link. */
static uint32_t get_link_tid(const writer *w, uint32_t link)
{
    return 2 * w->t->n_devices + 1 + (link == LH_NONE ? w->t->n_links : link);
}

/* Returns the thread number for a device's copy stream. */
static uint32_t get_stream_tid(const writer *w, uint32_t device)
{
    return 2 * w->t->n_devices + w->t->n_links + 2 + device;
}

/* Returns a link's name, borrowed from the trace; "no link" for LH_NONE. */
static const char *get_link_name(const writer *w, uint32_t link)
{
    return link == LH_NONE ? "no link" : w->t->link_names[link];
}

/* --- single events ------------------------------------------------------- */

/* Appends a time in ns as exact microseconds, with up to 3 decimals. */
static void add_us(lhi_text *out, int64_t ns)
{
    lhi_text_printf(out, "%" PRId64, ns / 1000);
    int rest = (int)(ns % 1000);
    if (rest == 0)
        return;
    int digits = 3;
    while (rest % 10 == 0) {
        rest /= 10;
        digits--;
    }
    lhi_text_printf(out, ".%0*d", digits, rest);
}

/* Begins a trace event of phase `ph` ("X", "i", "C" and others), after a comma
 * unless it is the first. */
static void begin_event(writer *w, const char *ph)
{
    lhi_text_printf(&w->out, "%s{\"ph\":\"%s\",", w->first ? "" : ",\n", ph);
    w->first = false;
}

/* Begins a slice (complete event) from start_ns to end_ns on thread `tid` of
 * process `pid`, up to its args, which the caller appends; `cat`: its category.
 * The name must need no escapes. */
static void begin_slice(writer *w, int64_t start_ns, int64_t end_ns,
                        const char *name, const char *cat, uint32_t pid,
                        uint32_t tid)
{
    begin_event(w, "X");
    lhi_text_puts(&w->out, "\"ts\":");
    add_us(&w->out, start_ns);
    lhi_text_puts(&w->out, ",\"dur\":");
    add_us(&w->out, end_ns - start_ns);
    lhi_text_printf(&w->out,
                    ",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%" PRIu32
                    ",\"tid\":%" PRIu32 ",\"args\":{",
                    name, cat, pid, tid);
}

/* Begins a trace event of phase `ph` ("i", "C", "s" and others) at time `ns`,
 * without duration. */
static void begin_instant(writer *w, const char *ph, int64_t ns)
{
    begin_event(w, ph);
    lhi_text_puts(&w->out, "\"ts\":");
    add_us(&w->out, ns);
    lhi_text_puts(&w->out, ",");
}

/* Appends a metadata event `what` ("process_name" or "thread_name") that gives
 * process `pid`, or its thread `tid`, its name. */
static void add_name(writer *w, const char *what, uint32_t pid, uint32_t tid,
                     const char *name)
{
    begin_event(w, "M");
    lhi_json_add_members(&w->out,
                         json_pack("{s:s, s:I, s:I, s:{s:s}}", "name", what,
                                   "pid", (json_int_t)pid, "tid",
                                   (json_int_t)tid, "args", "name", name));
}

/* Appends a metadata event `what` ("process_sort_index" or "thread_sort_index")
 * with the position at which viewers show process `pid` or its thread `tid`. */
static void add_sort_index(writer *w, const char *what, uint32_t pid,
                           uint32_t tid, uint32_t place)
{
    begin_event(w, "M");
    lhi_json_add_members(&w->out, json_pack("{s:s, s:I, s:I, s:{s:I}}", "name",
                                            what, "pid", (json_int_t)pid, "tid",
                                            (json_int_t)tid, "args",
                                            "sort_index", (json_int_t)place));
}

/* Appends metadata events with the name of thread `tid` of process `pid` and
 * its display position: viewers show threads by number. */
static void add_thread(writer *w, uint32_t pid, uint32_t tid, const char *name)
{
    add_name(w, "thread_name", pid, tid, name);
    add_sort_index(w, "thread_sort_index", pid, tid, tid);
}

/* --- lanes: a thread's slices must not overlap --------------------------- */

/* A slice to place in a lane. */
typedef struct lane_item {
    uint32_t group, item;
    int64_t start_ns, end_ns;
} lane_item;

/* Compares slices by group, start, end and index, for sorting. */
static int compare_lane_items(const void *a, const void *b)
{
    const lane_item *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    if (x->end_ns != y->end_ns)
        return x->end_ns < y->end_ns ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

/* Assigns each item a lane (thread without overlaps) within its group: the
 * lane that has been free for the longest, else a new one. False on allocation
 * failure. */
static bool assign_lanes(lane_item *items, uint32_t n, uint32_t *lanes)
{
    lhi_heap busy = {0};
    uint32_t n_lanes = 0;
    bool ok = true;
    qsort(items, n, sizeof *items, compare_lane_items);
    for (uint32_t i = 0; ok && i < n; i++) {
        if (i > 0 && items[i].group != items[i - 1].group) {
            busy.count = 0;
            n_lanes = 0;
        }
        uint64_t lane = n_lanes;
        lhi_event top;
        if (busy.count > 0 && busy.items[0].time_ns <= items[i].start_ns) {
            lhi_heap_pop(&busy, &top);
            lane = top.payload;
        } else {
            n_lanes++;
        }
        lanes[items[i].item] = (uint32_t)lane;
        ok = lhi_heap_push(
            &busy, (lhi_event){.time_ns = items[i].end_ns, .payload = lane});
    }
    lhi_heap_fini(&busy);
    return ok;
}

/* Lane kinds. */
typedef enum lane_kind { OF_MESSAGES, OF_COLLECTIVES, OF_COPIES } lane_kind;

/* Returns the thread number of the first lane (row of slices without overlaps)
 * of group `group`: a link's messages, or a device's collectives or copies, by
 * `kind`. */
static uint32_t get_first_lane(const writer *w, uint32_t group, lane_kind kind)
{
    return kind == OF_MESSAGES      ? get_link_tid(w, group)
           : kind == OF_COLLECTIVES ? w->t->n_devices + 1 + group
                                    : get_stream_tid(w, group);
}

/* Converts lanes to thread numbers and adds names for the threads of further
 * lanes. `items` are sorted by group. */
static void name_lanes(writer *w, const lane_item *items, uint32_t n,
                       uint32_t *lanes, lane_kind kind)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        uint32_t group = items[i].group, n_lanes = 1;
        for (end = i; end < n && items[end].group == group; end++)
            if (lanes[items[end].item] >= n_lanes)
                n_lanes = lanes[items[end].item] + 1;
        uint32_t base = get_first_lane(w, group, kind);
        uint32_t pid =
            kind == OF_MESSAGES ? get_links_pid(w) : get_device_pid(w, group);
        uint32_t more = w->next_tid;
        for (uint32_t k = i; k < end; k++) {
            uint32_t lane = lanes[items[k].item];
            lanes[items[k].item] = lane == 0 ? base : more + lane - 1;
        }
        w->next_tid += n_lanes - 1;
        for (uint32_t lane = 1; lane < n_lanes; lane++) {
            char number[32];
            snprintf(number, sizeof number, "lane %" PRIu32, lane + 1);
            add_name(w, "thread_name", pid, more + lane - 1, number);
            add_sort_index(w, "thread_sort_index", pid, more + lane - 1, base);
        }
    }
}

/* Assigns each message, collective and copy a thread on which slices do not
 * overlap; false on allocation failure. */
static bool lay_out(writer *w)
{
    const lh_trace *t = w->t;
    uint32_t most =
        t->n_messages > t->n_collectives ? t->n_messages : t->n_collectives;
    most = most > t->n_copies ? most : t->n_copies;
    lane_item *items = LHI_NEW(w->mem, lane_item, most);
    w->message_tids = LHI_NEW(w->mem, uint32_t, t->n_messages);
    w->collective_tids = LHI_NEW(w->mem, uint32_t, t->n_collectives);
    w->copy_tids = LHI_NEW(w->mem, uint32_t, t->n_copies);
    if (!items || !w->message_tids || !w->collective_tids || !w->copy_tids)
        return false;
    w->next_tid = get_stream_tid(w, t->n_copies ? t->n_devices : 0);
    for (uint32_t i = 0; i < t->n_messages; i++)
        items[i] = (lane_item){t->messages[i].link, i, t->messages[i].depart_ns,
                               t->messages[i].sent_ns};
    if (!assign_lanes(items, t->n_messages, w->message_tids))
        return false;
    name_lanes(w, items, t->n_messages, w->message_tids, OF_MESSAGES);
    for (uint32_t i = 0; i < t->n_collectives; i++)
        items[i] =
            (lane_item){t->collectives[i].device, i,
                        t->collectives[i].depart_ns, t->collectives[i].sent_ns};
    if (!assign_lanes(items, t->n_collectives, w->collective_tids))
        return false;
    name_lanes(w, items, t->n_collectives, w->collective_tids, OF_COLLECTIVES);
    for (uint32_t i = 0; i < t->n_copies; i++)
        items[i] = (lane_item){t->copies[i].device, i, t->copies[i].depart_ns,
                               t->copies[i].end_ns};
    if (!assign_lanes(items, t->n_copies, w->copy_tids))
        return false;
    name_lanes(w, items, t->n_copies, w->copy_tids, OF_COPIES);
    return true;
}

/* --- header -------------------------------------------------------------- */

/* Adds the trace's heading keys: a line per key and per list item. */
static void add_heading(writer *w)
{
    const char *key, *sep = "{";
    json_t *value, *item;
    size_t i;
    json_t *heading = lhi_schema_write(&lhi_trace_table, w->t, NULL);
    w->out.failed |= !heading;
    json_object_foreach(heading, key, value)
    {
        lhi_text_printf(&w->out, "%s\"%s\":", sep, key);
        sep = ",\n";
        if (strcmp(key, "traceEvents") == 0) {
            lhi_text_puts(&w->out, "[\n");
        } else if (json_is_array(value)) {
            lhi_text_puts(&w->out, "[");
            json_array_foreach(value, i, item)
            {
                lhi_text_puts(&w->out, i ? ",\n " : "");
                lhi_json_add(&w->out, json_incref(item));
            }
            lhi_text_puts(&w->out, "]");
        } else {
            lhi_json_add(&w->out, json_incref(value));
        }
    }
    json_decref(heading);
}

/* Adds the thread on which the trace shows a device's data-parallel link. */
static void add_dp_thread(writer *w, uint32_t device)
{
    const char *link = w->t->devices[device].dp_link;
    lhi_text name = {0};
    lhi_text_printf(&name, "device %" PRIu32 " data-parallel link%s%s", device,
                    link ? ": " : "", link ? link : "");
    w->out.failed |= name.failed;
    if (!name.failed)
        add_thread(w, get_device_pid(w, device), w->t->n_devices + device + 1,
                   name.data);
    lhi_text_fini(&name);
}

/* Adds the names of the processes and of the first lane (thread) of every link
 * and device. */
static void add_tracks(writer *w)
{
    const lh_trace *t = w->t;
    char text[64];
    bool unlinked = false;
    for (uint32_t i = 0; i < t->n_sites; i++) {
        const char *name = t->site_names[i];
        add_name(w, "process_name", i + 1, 0, name[0] ? name : "devices");
        add_sort_index(w, "process_sort_index", i + 1, 0, i + 1);
    }
    for (uint32_t d = 0; d < t->n_devices; d++) {
        snprintf(text, sizeof text, "device %" PRIu32, d);
        add_thread(w, get_device_pid(w, d), d + 1, text);
    }
    bool *has = LHI_NEW(w->mem, bool, t->n_devices);
    for (uint32_t i = 0; has && i < t->n_collectives; i++)
        has[t->collectives[i].device] = true;
    for (uint32_t d = 0; has && d < t->n_devices; d++) {
        if (has[d])
            add_dp_thread(w, d);
    }
    for (uint32_t d = 0; has && d < t->n_devices; d++)
        has[d] = false;
    for (uint32_t i = 0; has && i < t->n_copies; i++)
        has[t->copies[i].device] = true;
    for (uint32_t d = 0; has && d < t->n_devices; d++) {
        snprintf(text, sizeof text, "device %" PRIu32 " offload", d);
        if (has[d])
            add_thread(w, get_device_pid(w, d), get_stream_tid(w, d), text);
    }
    w->out.failed |= !has;
    for (uint32_t i = 0; i < t->n_messages; i++)
        unlinked |= t->messages[i].link == LH_NONE;
    if (t->n_links || unlinked) {
        add_name(w, "process_name", get_links_pid(w), 0, "links");
        add_sort_index(w, "process_sort_index", get_links_pid(w), 0,
                       get_links_pid(w));
    }
    for (uint32_t i = 0; i < t->n_links; i++)
        add_thread(w, get_links_pid(w), get_link_tid(w, i), t->link_names[i]);
    if (unlinked)
        add_thread(w, get_links_pid(w), get_link_tid(w, LH_NONE), "no link");
}

/* --- events -------------------------------------------------------------- */

/* Ends a slice with its args: the struct's fields at `it`, as schema
 * `table` describes them. */
static void end_slice(writer *w, const lhi_schema *table, const void *it)
{
    lhi_schema_add_text(&w->out, table, it);
    lhi_text_puts(&w->out, "}}");
}

/* Appends a slice (complete event) for each pass, with its args. */
static void add_runs(writer *w)
{
    char name[LH_PASS_TEXT_SIZE];
    for (uint32_t i = 0; i < w->t->n_runs && !w->out.failed; i++) {
        const lh_trace_run *r = &w->t->runs[i];
        begin_slice(w, r->start_ns, r->end_ns, lh_pass_format(&r->pass, name),
                    "pass", get_device_pid(w, r->device), r->device + 1);
        end_slice(w, &lhi_trace_run_table, r);
    }
}

/* Appends a slice (complete event) for each data-parallel collective, for its
 * transfer time. */
static void add_collectives(writer *w)
{
    for (uint32_t i = 0; i < w->t->n_collectives && !w->out.failed; i++) {
        const lh_trace_collective *c = &w->t->collectives[i];
        char name[48];
        const char *what = c->kind != LH_DP_ANY   ? lh_dp_kind_name(c->kind)
                           : c->is_reduce_scatter ? "reduce-scatter"
                                                  : "all-gather";
        int len = snprintf(name, sizeof name, "%s %" PRIu32, what, c->chunk);
        if (c->n_buckets > 0 && len > 0)
            snprintf(name + len, sizeof name - (size_t)len,
                     " %" PRIu32 "/%" PRIu32, c->bucket, c->n_buckets);
        begin_slice(w, c->depart_ns, c->sent_ns, name, "collective",
                    get_device_pid(w, c->device), w->collective_tids[i]);
        end_slice(w, &lhi_trace_collective_table, c);
    }
}

/* Appends a slice (complete event) for each copy to or from host memory. */
static void add_copies(writer *w)
{
    for (uint32_t i = 0; i < w->t->n_copies && !w->out.failed; i++) {
        const lh_trace_offload *c = &w->t->copies[i];
        char name[64];
        snprintf(name, sizeof name, "%s of %" PRIu32 "F%" PRIu32,
                 c->is_reload ? "back" : "out", c->chunk, c->microbatch);
        begin_slice(w, c->depart_ns, c->end_ns, name, "copy",
                    get_device_pid(w, c->device), w->copy_tids[i]);
        end_slice(w, &lhi_trace_copy_table, c);
    }
}

/* Appends a slice (complete event) for each message, for its transfer time on
 * the link. */
static void add_messages(writer *w)
{
    char name[LH_PASS_TEXT_SIZE];
    for (uint32_t i = 0; i < w->t->n_messages && !w->out.failed; i++) {
        const lh_trace_message *m = &w->t->messages[i];
        begin_slice(w, m->depart_ns, m->sent_ns,
                    lh_pass_format(&m->producer, name), "message",
                    get_links_pid(w), w->message_tids[i]);
        end_slice(w, &lhi_trace_message_table, m);
    }
}

/* Appends a point of message `message`'s flow arrow at time `ns` on thread
 * `tid` of process `pid`: `ph` is "s" (start), "t" (step) or "f" (end). */
static void add_flow(writer *w, const char *ph, int64_t ns, uint32_t message,
                     uint32_t pid, uint32_t tid)
{
    begin_instant(w, ph, ns);
    lhi_text_printf(&w->out,
                    "\"name\":\"message\",\"cat\":\"flow\",\"id\":%" PRIu64
                    ",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 "%s}",
                    (uint64_t)message + 1, pid, tid,
                    ph[0] == 'f' ? ",\"bp\":\"e\"" : "");
}

/* Adds flows from the producer's last nanosecond, because a slice excludes its
 * end, over the link to the consumer's start. */
static void add_flows(writer *w)
{
    const lh_trace *t = w->t;
    for (uint32_t i = 0; i < t->n_messages && !w->out.failed; i++) {
        const lh_trace_message *m = &t->messages[i];
        const lh_trace_run *from = &t->runs[lhi_run_index_find(
            w->runs_by_pass, t->n_runs, &m->producer)];
        const lh_trace_run *to = &t->runs[lhi_run_index_find(
            w->runs_by_pass, t->n_runs, &m->consumer)];
        int64_t leave = from->end_ns - (from->end_ns > from->start_ns);
        add_flow(w, "s", leave, i, get_device_pid(w, m->from), m->from + 1);
        if (m->sent_ns > m->depart_ns && m->depart_ns > leave &&
            m->depart_ns < to->start_ns)
            add_flow(w, "t", m->depart_ns, i, get_links_pid(w),
                     w->message_tids[i]);
        add_flow(w, "f", to->start_ns, i, get_device_pid(w, m->to), m->to + 1);
    }
}

/* --- counters ------------------------------------------------------------ */

/* Adds a counter event with a device's memory `value` at time ns; `unit`: the
 * memory unit as JSON. */
static void add_memory_at(writer *w, const char *unit, uint32_t device,
                          int64_t ns, int64_t value)
{
    begin_instant(w, "C", ns);
    lhi_text_printf(&w->out,
                    "\"name\":\"memory, device %" PRIu32 "\",\"pid\":%" PRIu32
                    ",\"args\":{%s:%" PRId64 "}}",
                    device, get_device_pid(w, device), unit, value);
}

/* Adds a counter event at each change in a device's memory; nothing if it is
 * always 0. */
static void add_memory(writer *w, const char *unit, uint32_t device,
                       const lh_trace_run *runs, uint32_t n)
{
    int64_t now = w->t->devices[device].memory_static;
    bool any = now != 0;
    for (uint32_t i = 0; i < n; i++)
        any |= runs[i].memory != 0 || runs[i].memory_after != 0;
    if (!any)
        return;
    if (n == 0 || runs[0].start_ns > 0)
        add_memory_at(w, unit, device, 0, now);
    for (uint32_t i = 0; i < n && !w->out.failed; i++) {
        const lh_trace_run *r = &runs[i];
        bool joined = i + 1 < n && runs[i + 1].start_ns == r->end_ns;
        if (r->memory != now || r->start_ns == 0)
            add_memory_at(w, unit, device, r->start_ns, r->memory);
        now = r->memory;
        if (!joined && r->memory_after != now) {
            add_memory_at(w, unit, device, r->end_ns, r->memory_after);
            now = r->memory_after;
        }
    }
}

/* A change in a link's counters. */
typedef struct change {
    uint32_t link;
    int64_t ns;
    int8_t waiting, sending, flying;
} change;

/* Compares changes in a link's counters by link, then by time, for sorting. */
static int compare_changes(const void *a, const void *b)
{
    const change *x = a, *y = b;
    if (x->link != y->link)
        return x->link < y->link ? -1 : 1;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

/* Adds a counter event at time `ns` with counts[3]: a link's messages queued,
 * in transfer and in flight. `name`: the link's name as a JSON string. */
static void add_link_at(writer *w, const char *name, int64_t ns,
                        const int64_t counts[3])
{
    begin_instant(w, "C", ns);
    lhi_text_printf(&w->out,
                    "\"name\":%s,\"pid\":%" PRIu32
                    ",\"args\":{\"waiting\":%" PRId64 ",\"sending\":%" PRId64
                    ",\"in flight\":%" PRId64 "}}",
                    name, get_links_pid(w), counts[0], counts[1], counts[2]);
}

/* Adds counter events for each link: messages queued, in transfer and in
 * flight. */
static void add_link_use(writer *w)
{
    const lh_trace *t = w->t;
    size_t n = 0;
    change *changes = LHI_NEW(w->mem, change, 4 * (size_t)t->n_messages);
    if (!changes) {
        w->out.failed = true;
        return;
    }
    for (uint32_t i = 0; i < t->n_messages; i++) {
        const lh_trace_message *m = &t->messages[i];
        changes[n++] = (change){m->link, m->ready_ns, 1, 0, 0};
        changes[n++] = (change){m->link, m->depart_ns, -1, 1, 0};
        changes[n++] = (change){m->link, m->sent_ns, 0, -1, 1};
        changes[n++] = (change){m->link, m->arrive_ns, 0, 0, -1};
    }
    qsort(changes, n, sizeof *changes, compare_changes);
    int64_t now[3] = {0}, shown[3] = {0};
    lhi_text name = {0};
    for (size_t i = 0; i < n && !w->out.failed; i++) {
        const change *c = &changes[i];
        if (i == 0 || c->link != changes[i - 1].link) {
            lhi_text_fini(&name);
            lhi_json_add_string(&name, get_link_name(w, c->link));
            w->out.failed |= name.failed;
        }
        now[0] += c->waiting;
        now[1] += c->sending;
        now[2] += c->flying;
        bool last = i + 1 == n || compare_changes(c, c + 1) != 0;
        if (last && !name.failed && memcmp(now, shown, sizeof now) != 0) {
            add_link_at(w, name.data, c->ns, now);
            memcpy(shown, now, sizeof now);
        }
    }
    lhi_text_fini(&name);
}

/* Adds the counter events of devices' memory and of links' messages. */
static void add_counters(writer *w)
{
    const lh_trace *t = w->t;
    lhi_text unit = {0};
    lhi_json_add_string(&unit, t->memory_unit[0] ? t->memory_unit : "amount");
    w->out.failed |= unit.failed;
    for (uint32_t d = 0, i = 0, end; d < t->n_devices && !unit.failed;
         d++, i = end) {
        end = i;
        while (end < t->n_runs && t->runs[end].device == d)
            end++;
        add_memory(w, unit.data, d, t->runs + i, end - i);
    }
    lhi_text_fini(&unit);
    add_link_use(w);
}

/* Appends the whole trace as a Chrome trace JSON object: heading, names,
 * slices, flow arrows and counters. */
static void add_all(writer *w)
{
    add_heading(w);
    add_tracks(w);
    if (!lay_out(w)) {
        w->out.failed = true;
        return;
    }
    add_runs(w);
    add_collectives(w);
    add_copies(w);
    add_messages(w);
    add_flows(w);
    add_counters(w);
    lhi_text_puts(&w->out, "\n]}\n");
}

lh_status lh_trace_format(const lh_trace *trace, char **text, size_t *len,
                          lh_error *err)
{
    writer w = {.t = trace, .first = true, .mem = lhi_arena_make(0)};
    w.runs_by_pass = lhi_run_index_build(trace->runs, trace->n_runs);
    if (w.mem && w.runs_by_pass)
        add_all(&w);
    else
        w.out.failed = true;
    free(w.runs_by_pass);
    lhi_arena_free(w.mem);
    return lhi_text_take(&w.out, text, len, err);
}
