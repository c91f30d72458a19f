/* SPDX-License-Identifier: Apache-2.0 */
/* Validates, sorts and copies traces. */
#include "report/trace/trace_internal.h"

#include "base/arena.h"
#include "report/trace/json_text.h"
#include "report/trace/trace_keys.h"

#include <longhaul/experimental/schedule.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Maximum link count of a trace. */
enum { MAX_LINKS = 1 << 24 };

/* The caller's trace with its memory. */
typedef struct owned_trace {
    lh_trace trace;
    lhi_arena *mem;
} owned_trace;

/* A trace's parts. */
typedef enum part { RUN, MESSAGE, COLLECTIVE, COPY } part;

/* Validation state. */
typedef struct checker {
    const lh_trace *t;
    const lhi_trace_source_lines *origin;
    lh_error *err;
} checker;

static lh_status fail_part(const checker *c, part p, uint32_t i,
                           const char *format, ...) LHI_PRINTF(4, 5);

/* Fails with a formatted message about element `i` of part `p` (passes,
 * messages and others) of the trace; names the file line if known. */
static lh_status fail_part(const checker *c, part p, uint32_t i,
                           const char *format, ...)
{
    static const char *const names[] = {"runs", "messages", "collectives",
                                        "copies"};
    char text[sizeof c->err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!c->origin)
        return lhi_fail(c->err, LH_EINVAL, "%s[%" PRIu32 "]: %s", names[p], i,
                        text);
    const uint32_t *const lines[] = {
        c->origin->run_lines, c->origin->message_lines,
        c->origin->collective_lines, c->origin->copy_lines};
    return lhi_fail(c->err, LH_EINPUT, "%s:%" PRIu32 ": %s", c->origin->file,
                    lines[p][i], text);
}

/* Fails with a message about the trace as a whole, not about one element. */
static lh_status fail_trace(const checker *c, const char *why)
{
    if (!c->origin)
        return lhi_fail(c->err, LH_EINVAL, "%s", why);
    return lhi_fail(c->err, LH_EINPUT, "%s:1: %s", c->origin->file, why);
}

/* --- runs by pass ------------------------------------------------------- */

/* Packs a valid pass into an integer that is unique for it, for sorting. */
static uint64_t make_pass_key(const lh_pass *pass)
{
    return (uint64_t)pass->chunk << 46 | (uint64_t)pass->microbatch << 26 |
           (uint64_t)pass->kind << 24 | (uint64_t)(pass->n_parts - 1) << 12 |
           pass->part;
}

/* Compares index entries by pass key, then by run number, for sorting. */
static int compare_keys(const void *a, const void *b)
{
    const lhi_run_index_entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->run > y->run) - (x->run < y->run);
}

lhi_run_index_entry *lhi_run_index_build(const lh_trace_run *runs, uint32_t n)
{
    lhi_run_index_entry *index = malloc((n ? (size_t)n : 1) * sizeof *index);
    if (!index)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        index[i] = (lhi_run_index_entry){make_pass_key(&runs[i].pass), i};
    qsort(index, n, sizeof *index, compare_keys);
    return index;
}

uint32_t lhi_run_index_find(const lhi_run_index_entry *index, uint32_t n,
                            const lh_pass *pass)
{
    uint64_t key = make_pass_key(pass);
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (index[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && index[low].key == key ? index[low].run : LH_NONE;
}

/* --- checks -------------------------------------------------------------- */

/* Checks whether a pass has valid numbers; only W may be split into parts. */
static bool is_pass_valid(const lh_pass *p)
{
    bool whole = p->n_parts == 1 && p->part == 0;
    bool cut = p->kind == LH_W && p->n_parts > 1 &&
               p->n_parts <= LH_MAX_PARTS && p->part < p->n_parts;
    return p->kind <= LH_B && p->chunk < LH_MAX_CHUNKS &&
           p->microbatch < LH_MAX_MICROBATCHES && (whole || cut);
}

/* Checks that times are non-decreasing and within 0 to LHI_TRACE_MOST_NS. */
static bool are_times_valid(const int64_t *times, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (times[i] < (i ? times[i - 1] : 0) || times[i] > LHI_TRACE_MOST_NS)
            return false;
    return true;
}

/* Fails with LH_EINPUT or LH_EINVAL unless the pass, device, awaited message
 * and times of the trace's i-th run are valid. */
static lh_status check_run(const checker *c, uint32_t i)
{
    const lh_trace_run *r = &c->t->runs[i];
    if (!is_pass_valid(&r->pass))
        return fail_part(c, RUN, i, "is not a valid pass");
    if (r->device >= c->t->n_devices)
        return fail_part(c, RUN, i,
                         "device %" PRIu32
                         " is out of range; the trace has %" PRIu32,
                         r->device, c->t->n_devices);
    if (r->waits_for != LH_NONE && r->waits_for >= c->t->n_messages)
        return fail_part(c, RUN, i,
                         "waits for message %" PRIu32
                         ", but the trace has %" PRIu32,
                         r->waits_for, c->t->n_messages);
    const int64_t times[] = {r->start_ns, r->end_ns, r->issued_ns};
    if (!are_times_valid(times, 3))
        return fail_part(
            c, RUN, i,
            "start, end and issued must be non-decreasing, from 0 to 2^53 ns");
    return LH_OK;
}

/* Fails unless the passes, devices, link and times of the trace's i-th message
 * are valid. */
static lh_status check_message(const checker *c, uint32_t i)
{
    const lh_trace_message *m = &c->t->messages[i];
    if (!is_pass_valid(&m->producer) || !is_pass_valid(&m->consumer))
        return fail_part(c, MESSAGE, i, "connects passes that are not valid");
    if (m->from >= c->t->n_devices || m->to >= c->t->n_devices)
        return fail_part(c, MESSAGE, i,
                         "from device %" PRIu32 " to device %" PRIu32
                         "; the trace has %" PRIu32 " devices",
                         m->from, m->to, c->t->n_devices);
    if (m->link != LH_NONE && m->link >= c->t->n_links)
        return fail_part(c, MESSAGE, i,
                         "link %" PRIu32
                         " is out of range; the trace has %" PRIu32,
                         m->link, c->t->n_links);
    const int64_t times[] = {m->produced_ns, m->ready_ns, m->depart_ns,
                             m->sent_ns, m->arrive_ns};
    if (!are_times_valid(times, 5))
        return fail_part(c, MESSAGE, i,
                         "produced, ready, depart, sent and arrive must be "
                         "non-decreasing, from 0 to 2^53 ns");
    return LH_OK;
}

/* Fails unless the chunk, device, times, kind and bucket number of the trace's
 * i-th collective are valid. */
static lh_status check_collective(const checker *c, uint32_t i)
{
    const lh_trace_collective *x = &c->t->collectives[i];
    if (x->chunk >= LH_MAX_CHUNKS || x->device >= c->t->n_devices)
        return fail_part(c, COLLECTIVE, i,
                         "chunk %" PRIu32 " on device %" PRIu32
                         " is out of range; the trace has %" PRIu32 " devices",
                         x->chunk, x->device, c->t->n_devices);
    const int64_t times[] = {x->ready_ns, x->depart_ns, x->sent_ns,
                             x->arrive_ns};
    if (!are_times_valid(times, 4))
        return fail_part(c, COLLECTIVE, i,
                         "ready, depart, sent and arrive must be "
                         "non-decreasing, from 0 to 2^53 ns");
    bool scatters = x->kind == LH_DP_RSG || x->kind == LH_DP_RSO;
    if ((unsigned)x->kind > LH_DP_RSO ||
        (x->kind != LH_DP_ANY && scatters != x->is_reduce_scatter))
        return fail_part(c, COLLECTIVE, i, "its kind is not one of a%s",
                         x->is_reduce_scatter ? " reduce-scatter"
                                              : "n all-gather");
    if (x->n_buckets > LH_MAX_MICROBATCHES ||
        (x->n_buckets ? x->bucket >= x->n_buckets : x->bucket > 0))
        return fail_part(c, COLLECTIVE, i,
                         "bucket %" PRIu32
                         " is out of range; the collective has %" PRIu32,
                         x->bucket, x->n_buckets);
    return LH_OK;
}

/* Fails unless the chunk, microbatch, device and times of the trace's i-th copy
 * to or from host memory are valid. */
static lh_status check_copy(const checker *c, uint32_t i)
{
    const lh_trace_offload *x = &c->t->copies[i];
    if (x->chunk >= LH_MAX_CHUNKS || x->microbatch >= LH_MAX_MICROBATCHES ||
        x->device >= c->t->n_devices)
        return fail_part(c, COPY, i,
                         "chunk %" PRIu32 ", microbatch %" PRIu32
                         " on device %" PRIu32
                         " is out of range; the trace has %" PRIu32 " devices",
                         x->chunk, x->microbatch, x->device, c->t->n_devices);
    const int64_t times[] = {x->ready_ns, x->depart_ns, x->end_ns};
    if (!are_times_valid(times, 3))
        return fail_part(c, COPY, i,
                         "ready, depart and end must be non-decreasing, from 0 "
                         "to 2^53 ns");
    return LH_OK;
}

/* Checks that all names in a trace are UTF-8. */
static bool are_texts_valid(const lh_trace *t)
{
    bool ok = lhi_is_utf8(t->title) && lhi_is_utf8(t->source) &&
              lhi_is_utf8(t->memory_unit);
    for (uint32_t i = 0; ok && i < t->n_sites; i++)
        ok = lhi_is_utf8(t->site_names[i]);
    for (uint32_t i = 0; ok && i < t->n_links; i++)
        ok = lhi_is_utf8(t->link_names[i]);
    for (uint32_t i = 0; ok && i < t->n_devices; i++)
        ok = !t->devices[i].dp_link || lhi_is_utf8(t->devices[i].dp_link);
    return ok;
}

/* Checks the trace's counts and names, and each element on its own. */
static lh_status check_parts(const checker *c)
{
    const lh_trace *t = c->t;
    if (t->n_devices < 1 || t->n_devices > LH_MAX_DEVICES)
        return fail_trace(c, "the number of devices must be 1 to 65536");
    if (t->n_sites < 1 || t->n_sites > LH_MAX_DEVICES)
        return fail_trace(c, "the number of sites must be 1 to 65536");
    if (t->n_links > MAX_LINKS)
        return fail_trace(c, "too many links");
    if (t->makespan_ns < 0 || t->makespan_ns > LHI_TRACE_MOST_NS)
        return fail_trace(c, "the makespan must be 0 to 2^53 ns");
    if (strcmp(t->source, "simulated") != 0 &&
        strcmp(t->source, "measured") != 0)
        return fail_trace(c, "the source must be 'simulated' or 'measured'");
    if (!are_texts_valid(t))
        return fail_trace(c, "a name is not UTF-8 text");
    for (uint32_t i = 0; i < t->n_devices; i++)
        if (t->devices[i].site >= t->n_sites)
            return fail_trace(c,
                              "a device refers to a site that does not exist");
    for (uint32_t i = 0; i < t->n_runs; i++)
        LHI_TRY(check_run(c, i));
    for (uint32_t i = 0; i < t->n_messages; i++)
        LHI_TRY(check_message(c, i));
    for (uint32_t i = 0; i < t->n_collectives; i++)
        LHI_TRY(check_collective(c, i));
    for (uint32_t i = 0; i < t->n_copies; i++)
        LHI_TRY(check_copy(c, i));
    return LH_OK;
}

/* Checks that a pass runs once, and that messages connect passes that ran. */
static lh_status check_passes(const checker *c,
                              const lhi_run_index_entry *index)
{
    char text[LH_PASS_TEXT_SIZE];
    const lh_trace *t = c->t;
    for (uint32_t i = 1; i < t->n_runs; i++)
        if (index[i].key == index[i - 1].key)
            return fail_part(c, RUN, index[i].run, "pass %s appears twice",
                             lh_pass_format(&t->runs[index[i].run].pass, text));
    for (uint32_t i = 0; i < t->n_messages; i++) {
        const lh_trace_message *m = &t->messages[i];
        uint32_t p = lhi_run_index_find(index, t->n_runs, &m->producer);
        uint32_t q = lhi_run_index_find(index, t->n_runs, &m->consumer);
        if (p == LH_NONE || t->runs[p].device != m->from)
            return fail_part(c, MESSAGE, i,
                             "its producer %s did not run on device %" PRIu32,
                             lh_pass_format(&m->producer, text), m->from);
        if (q == LH_NONE || t->runs[q].device != m->to)
            return fail_part(c, MESSAGE, i,
                             "its consumer %s did not run on device %" PRIu32,
                             lh_pass_format(&m->consumer, text), m->to);
    }
    for (uint32_t i = 0; i < t->n_runs; i++) {
        uint32_t m = t->runs[i].waits_for;
        if (m != LH_NONE && make_pass_key(&t->messages[m].consumer) !=
                                make_pass_key(&t->runs[i].pass))
            return fail_part(
                c, RUN, i,
                "waits for message %" PRIu32 ", which is for another pass", m);
    }
    return LH_OK;
}

/* --- order --------------------------------------------------------------- */

/* An element's sort keys. */
typedef struct sort_item {
    uint32_t group;
    int64_t first_ns, second_ns;
    uint32_t index; /* in the input order */
} sort_item;

/* Compares elements by group, both times and input position, for qsort(). */
static int compare_items(const void *a, const void *b)
{
    const sort_item *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->first_ns != y->first_ns)
        return x->first_ns < y->first_ns ? -1 : 1;
    if (x->second_ns != y->second_ns)
        return x->second_ns < y->second_ns ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Copies the messages by ready time. (*places)[i]: the new index of input
 * message `i`, allocated in `mem`. */
static lh_status order_messages(const lh_trace *from, lhi_arena *mem,
                                sort_item *items, lh_trace_message *to,
                                uint32_t **places, lh_error *err)
{
    uint32_t n = from->n_messages;
    *places = LHI_NEW(mem, uint32_t, n);
    if (!*places)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        items[i] = (sort_item){0, from->messages[i].ready_ns, 0, i};
    qsort(items, n, sizeof *items, compare_items);
    for (uint32_t i = 0; i < n; i++) {
        to[i] = from->messages[items[i].index];
        (*places)[items[i].index] = i;
    }
    return LH_OK;
}

/* Copies the runs by device and start, and renumbers the messages they wait
 * for. Fails if two runs overlap on a device. */
static lh_status order_runs(const checker *c, sort_item *items,
                            const uint32_t *places, lh_trace_run *to)
{
    const lh_trace_run *runs = c->t->runs;
    char a[LH_PASS_TEXT_SIZE], b[LH_PASS_TEXT_SIZE];
    for (uint32_t i = 0; i < c->t->n_runs; i++)
        items[i] =
            (sort_item){runs[i].device, runs[i].start_ns, runs[i].end_ns, i};
    qsort(items, c->t->n_runs, sizeof *items, compare_items);
    for (uint32_t i = 0; i < c->t->n_runs; i++) {
        to[i] = runs[items[i].index];
        if (i > 0 && to[i].device == to[i - 1].device &&
            to[i].start_ns < to[i - 1].end_ns)
            return fail_part(c, RUN, items[i].index,
                             "%s starts before %s ends on device %" PRIu32,
                             lh_pass_format(&to[i].pass, a),
                             lh_pass_format(&to[i - 1].pass, b), to[i].device);
        if (to[i].waits_for != LH_NONE)
            to[i].waits_for = places[to[i].waits_for];
    }
    return LH_OK;
}

/* Copies the collectives of `from` to to[] by departure, then device; `items`
 * is scratch. */
static void order_collectives(const lh_trace *from, sort_item *items,
                              lh_trace_collective *to)
{
    for (uint32_t i = 0; i < from->n_collectives; i++)
        items[i] = (sort_item){0, from->collectives[i].depart_ns,
                               from->collectives[i].device, i};
    qsort(items, from->n_collectives, sizeof *items, compare_items);
    for (uint32_t i = 0; i < from->n_collectives; i++)
        to[i] = from->collectives[items[i].index];
}

/* Copies the copies to and from host memory of `from` to to[] by departure,
 * then device; `items` is scratch. */
static void order_copies(const lh_trace *from, sort_item *items,
                         lh_trace_offload *to)
{
    for (uint32_t i = 0; i < from->n_copies; i++)
        items[i] = (sort_item){0, from->copies[i].depart_ns,
                               from->copies[i].device, i};
    qsort(items, from->n_copies, sizeof *items, compare_items);
    for (uint32_t i = 0; i < from->n_copies; i++)
        to[i] = from->copies[items[i].index];
}

/* --- assembly ------------------------------------------------------------ */

/* Copies n names into `mem`; NULL on allocation failure. */
static const char *const *copy_names(lhi_arena *mem, const char *const *names,
                                     uint32_t n)
{
    const char **copy = LHI_NEW(mem, const char *, n);
    for (uint32_t i = 0; copy && i < n; i++)
        if (!(copy[i] = lhi_arena_strdup(mem, names[i])))
            return NULL;
    return copy;
}

/* Copies the devices and all names into `mem`; false on allocation failure. */
static bool copy_heading(lhi_arena *mem, const lh_trace *from, lh_trace *to)
{
    lh_trace_device *devices = LHI_NEW(mem, lh_trace_device, from->n_devices);
    if (devices)
        memcpy(devices, from->devices, from->n_devices * sizeof *devices);
    for (uint32_t d = 0; devices && d < from->n_devices; d++) {
        const char *link = devices[d].dp_link;
        if (!link || !link[0])
            devices[d].dp_link = NULL;
        else if (!(devices[d].dp_link = lhi_arena_strdup(mem, link)))
            return false;
    }
    to->devices = devices;
    to->title = lhi_arena_strdup(mem, from->title);
    to->source = lhi_arena_strdup(mem, from->source);
    to->memory_unit = lhi_arena_strdup(mem, from->memory_unit);
    to->site_names = copy_names(mem, from->site_names, from->n_sites);
    to->link_names = copy_names(mem, from->link_names, from->n_links);
    return devices && to->title && to->source && to->memory_unit &&
           to->site_names && to->link_names;
}

/* Copies a trace into `mem` with its elements sorted; `scratch` holds temporary
 * arrays. */
static lh_status copy_in_order(const checker *c, lhi_arena *mem,
                               lhi_arena *scratch, lh_trace *to)
{
    const lh_trace *from = c->t;
    uint32_t most =
        from->n_runs > from->n_messages ? from->n_runs : from->n_messages;
    if (most < from->n_collectives)
        most = from->n_collectives;
    if (most < from->n_copies)
        most = from->n_copies;
    sort_item *items = LHI_NEW(scratch, sort_item, most);
    lh_trace_run *runs = LHI_NEW(mem, lh_trace_run, from->n_runs);
    lh_trace_message *messages =
        LHI_NEW(mem, lh_trace_message, from->n_messages);
    lh_trace_collective *collectives =
        LHI_NEW(mem, lh_trace_collective, from->n_collectives);
    lh_trace_offload *copies = LHI_NEW(mem, lh_trace_offload, from->n_copies);
    *to = *from;
    if (!items || !runs || !messages || !collectives || !copies ||
        !copy_heading(mem, from, to))
        return lhi_fail_nomem(c->err);
    uint32_t *places;
    LHI_TRY(order_messages(from, scratch, items, messages, &places, c->err));
    LHI_TRY(order_runs(c, items, places, runs));
    order_collectives(from, items, collectives);
    order_copies(from, items, copies);
    to->copies = copies;
    to->runs = runs;
    to->messages = messages;
    to->collectives = collectives;
    return LH_OK;
}

/* Checks the whole trace: its elements, and the passes that messages and runs
 * refer to. */
static lh_status check_trace(const checker *c)
{
    LHI_TRY(check_parts(c));
    lhi_run_index_entry *index = lhi_run_index_build(c->t->runs, c->t->n_runs);
    if (!index)
        return lhi_fail_nomem(c->err);
    lh_status status = check_passes(c, index);
    free(index);
    return status;
}

lh_status lhi_trace_build(const lh_trace *from,
                          const lhi_trace_source_lines *origin, lh_trace **out,
                          lh_error *err)
{
    lh_trace given = *from;
    given.title = from->title ? from->title : "";
    given.source = from->source ? from->source : "";
    given.memory_unit = from->memory_unit ? from->memory_unit : "";
    checker c = {&given, origin, err};
    LHI_TRY(check_trace(&c));
    lhi_arena *mem = lhi_arena_make(0), *scratch = lhi_arena_make(0);
    owned_trace *owned = mem ? LHI_NEW(mem, owned_trace, 1) : NULL;
    lh_status status = owned && scratch ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK) {
        owned->mem = mem;
        status = copy_in_order(&c, mem, scratch, &owned->trace);
    }
    lhi_arena_free(scratch);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    *out = &owned->trace;
    return LH_OK;
}

lh_status lh_trace_copy(const lh_trace *from, lh_trace **out, lh_error *err)
{
    return lhi_trace_build(from, NULL, out, err);
}

/* Frees a trace; ignores NULL. */
void lh_trace_free(lh_trace *trace)
{
    if (trace)
        lhi_arena_free(((owned_trace *)trace)->mem);
}
