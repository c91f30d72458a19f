/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and formatting event files. */
#include "format/job/events_file.h"
#include "format/job/parse.h"

#include <longhaul/experimental/events.h>

/* Limits of an events file: step number, and factor of a slowdown. */
#define MOST_STEP INT64_C(1000000000000)
#define MOST_TIMES 1e6

/* --- amounts: an added time, or "x4" -------------------------------------- */

/* Reads a factor such as x4 into *times; LH_EINPUT: it is not above 1. */
static lh_status read_factor(const lhi_read_context *r, const lhi_node *node,
                             double *times, lh_error *err)
{
    lhi_node number = *node;
    number.text++;
    number.quoted = false;
    LHI_TRY(lhi_node_get_rounded_number(r->doc, &number, 1, MOST_TIMES, times,
                                        err));
    if (*times > 1)
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "x1 has no effect; use more than 1");
}

/* Checks whether a value is written as a factor, such as x4, not as a time.
 */
static bool is_factor(const lhi_node *node)
{
    return node->kind == LHI_SCALAR && node->text[0] == 'x';
}

/* Reads how an event changes a time: *more_ns, an added time in ns, or *times,
 * a factor such as x4. LH_EINPUT: it has no effect. */
static lh_status read_amount(const lhi_read_context *r, const lhi_node *node,
                             int64_t *more_ns, double *times, lh_error *err)
{
    if (is_factor(node))
        return read_factor(r, node, times, err);
    LHI_TRY(lhi_node_get_time(r->doc, node, r->unit_ns, more_ns, err));
    if (*more_ns > 0)
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "0 has no effect; use a time, which is added to the "
                        "link's own, or a factor, such as x4");
}

/* Converts a change of a time, more_ns added to it or a factor `times`, to
 * JSON; null if it has no effect. */
static json_t *write_amount(int64_t more_ns, double times)
{
    if (times > 1)
        return json_sprintf("x%.15g", times);
    return more_ns > 0 ? json_integer(more_ns) : json_null();
}

/* Reads an event's key `latency`, by how much links' latency grows: an added
 * time, or a factor such as x4 (schema callback). */
static lh_status read_latency(const lhi_read_context *r, const lhi_node *node,
                              void *owner, lh_error *err)
{
    lh_event *e = owner;
    return read_amount(r, node, &e->latency_ns, &e->latency_factor, err);
}

/* Writes an event's key `latency`, by how much links' latency grows; null: not
 * at all (schema callback). */
static json_t *write_latency(const void *owner, const void *context)
{
    const lh_event *e = owner;
    (void)context;
    return write_amount(e->latency_ns, e->latency_factor);
}

/* Reads an event's key `transfer`, by how much links' transfer times grow: an
 * added time, or a factor such as x4 (schema callback). */
static lh_status read_transfer(const lhi_read_context *r, const lhi_node *node,
                               void *owner, lh_error *err)
{
    lh_event *e = owner;
    return read_amount(r, node, &e->transfer_ns, &e->transfer_factor, err);
}

/* Writes an event's key `transfer`, by how much links' transfer times grow;
 * null: not at all (schema callback). */
static json_t *write_transfer(const void *owner, const void *context)
{
    const lh_event *e = owner;
    (void)context;
    return write_amount(e->transfer_ns, e->transfer_factor);
}

/* Reads an event's key `slower`, the factor by which links or a device become
 * slower, such as x4 (schema callback). */
static lh_status read_slower(const lhi_read_context *r, const lhi_node *node,
                             void *owner, lh_error *err)
{
    lh_event *e = owner;
    if (is_factor(node))
        return read_factor(r, node, &e->slowdown, err);
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "must be a factor, such as x4");
}

/* Writes an event's key `slower`, the factor by which links or a device become
 * slower (schema callback). */
static json_t *write_slower(const void *owner, const void *context)
{
    (void)context;
    return write_amount(0, ((const lh_event *)owner)->slowdown);
}

/* --- an event ------------------------------------------------------------- */

/* Sets an event's factors to 1, which has no effect, before its keys are
 * read. */
static void start_event(const lhi_read_context *r, void *it)
{
    lh_event *e = it;
    (void)r;
    e->latency_factor = e->transfer_factor = e->slowdown = 1;
}

/* The keys that a kind of event requires and rejects. */
typedef struct key_rules {
    const char *what;
    const char *needs[3], *refuses[9]; /* keys; NULL-terminated if shorter */
} key_rules;

static const key_rules link_rules = {
    "links",
    {"from", "to", NULL},
    {"at", "rank", "device", "rail", "process", "pause", NULL}};
static const key_rules device_rules = {"a device",
                                       {"from", "to", "slower"},
                                       {"at", "rank", "latency", "transfer",
                                        "links", "rail", "process", "pause",
                                        NULL}};
static const key_rules rail_rules = {"a rail",
                                     {"at", "rank", NULL},
                                     {"from", "to", "latency", "transfer",
                                      "slower", "links", "device", "process",
                                      "pause"}};
static const key_rules killed_rules = {"a killed process",
                                       {"at", "rank", NULL},
                                       {"from", "to", "latency", "transfer",
                                        "slower", "links", "device", "rail",
                                        "pause"}};
static const key_rules stopped_rules = {"a stopped process",
                                        {"at", "rank", "pause"},
                                        {"from", "to", "latency", "transfer",
                                         "slower", "links", "device", "rail",
                                         NULL}};

/* Checks whether an event happens as a step begins (`at`), and has no end. */
static bool is_moment(const lh_event *e)
{
    return e->rail || e->process;
}

/* Returns the rules that say which keys an event may have, by its target
 * (links, device, rail or process); NULL: it has no target. */
static const key_rules *find_rules(const lh_event *e)
{
    return e->n_links                         ? &link_rules
           : e->device != LH_NONE             ? &device_rules
           : e->rail                          ? &rail_rules
           : e->process == LH_PROCESS_STOPPED ? &stopped_rules
           : e->process                       ? &killed_rules
                                              : NULL;
}

/* Checks the keys of an event against the rules `w` of its kind (links, device,
 * rail or process): rejects keys of other kinds and requires its own. */
static lh_status check_keys(const lhi_read_context *r, const lhi_node *map,
                            const key_rules *w, lh_error *err)
{
    const lhi_node *node;
    for (uint32_t i = 0; i < 9 && w->refuses[i]; i++)
        if ((node = lhi_node_find(map, w->refuses[i])))
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "is not valid in an event on %s", w->what);
    for (uint32_t i = 0; i < 3 && w->needs[i]; i++)
        LHI_TRY(lhi_node_require(r->doc, map, w->needs[i], &node, err));
    return LH_OK;
}

/* Checks that an event has one target (links, device, rail or process), the
 * keys for it, a period and an effect. */
static lh_status check_event(const lhi_read_context *r, const lhi_node *map,
                             void *it, lh_error *err)
{
    lh_event *e = it;
    const lhi_node *at = lhi_node_find(map, "at"),
                   *to = lhi_node_find(map, "to");
    const key_rules *w = find_rules(e);
    e->line = map->line;
    if (!w)
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "has no target; set 'links', 'device', 'rail' or "
                            "'process'");
    LHI_TRY(check_keys(r, map, w, err));
    if (is_moment(e))
        return lhi_node_get_int(r->doc, at, 0, MOST_STEP, &e->first_step, err);
    if (e->first_step >= e->end_step)
        return lhi_doc_fail(r->doc, to, err, LH_EINPUT,
                            "must be above 'from': it is the first step "
                            "without the event");
    if (w == &link_rules && !lhi_node_find(map, "latency") &&
        !lhi_node_find(map, "transfer") && !lhi_node_find(map, "slower"))
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "has no effect; set 'latency', 'transfer' or "
                            "'slower'");
    return LH_OK;
}

/* Writes the training step of an event without an end; null for other events
 * (schema callback). */
static json_t *write_step(const void *owner, const void *context)
{
    const lh_event *e = owner;
    (void)context;
    return is_moment(e) ? json_integer(e->first_step) : json_null();
}

/* Writes the first training step of an event with an end; null for other events
 * (schema callback). */
static json_t *write_from(const void *owner, const void *context)
{
    const lh_event *e = owner;
    (void)context;
    return is_moment(e) ? json_null() : json_integer(e->first_step);
}

/* Reads an event's key `pause`, the time for which a process is stopped (schema
 * callback). */
static lh_status read_pause(const lhi_read_context *r, const lhi_node *node,
                            void *owner, lh_error *err)
{
    lh_event *e = owner;
    LHI_TRY(lhi_node_get_time(r->doc, node, r->unit_ns, &e->pause_ns, err));
    return e->pause_ns > 0 ? LH_OK
                           : lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                          "0 has no effect; use a time");
}

/* Writes an event's key `pause`, the time for which a process is stopped
 * (schema callback). */
static json_t *write_pause(const void *owner, const void *context)
{
    (void)context;
    return write_amount(((const lh_event *)owner)->pause_ns, 1);
}

/* Reads the first training step in which an event has effect (schema callback).
 * */
static lh_status read_from(const lhi_read_context *r, const lhi_node *node,
                           void *owner, lh_error *err)
{
    return lhi_node_get_int(r->doc, node, 0, MOST_STEP,
                            &((lh_event *)owner)->first_step, err);
}

static const char *const rails[] = {"down", "up", NULL};
static const char *const processes[] = {"killed", "stopped", "lost", NULL};

static const lhi_schema_field event_rows[] = {
    {"from", LHI_CUSTOM(lh_event), .read = read_from, .write = write_from,
     .when = LHI_OPTIONAL},
    {"to", LHI_INTEGER(lh_event, end_step), .most = MOST_STEP,
     .when = LHI_OPTIONAL, .absent = -1},
    /* read by `check`, into `from` */
    {"at", LHI_CUSTOM(lh_event), .write = write_step, .when = LHI_OPTIONAL},
    {"links", LHI_LIST(lh_event, links, n_links), .item_type = LHI_FIELD_STRING,
     .least = 1, .min_items = 1, .max_items = LH_MAX_EVENT_LINKS,
     .when = LHI_OPTIONAL},
    {"latency", LHI_CUSTOM(lh_event), .read = read_latency,
     .write = write_latency, .when = LHI_OPTIONAL},
    {"transfer", LHI_CUSTOM(lh_event), .read = read_transfer,
     .write = write_transfer, .when = LHI_OPTIONAL},
    {"device", LHI_INTEGER(lh_event, device), .most = LH_MAX_DEVICES - 1,
     .when = LHI_OPTIONAL, .absent = LH_NONE},
    {"slower", LHI_CUSTOM(lh_event), .read = read_slower, .write = write_slower,
     .when = LHI_OPTIONAL},
    {"rank", LHI_INTEGER(lh_event, rank), .most = LH_MAX_DEVICES - 1,
     .when = LHI_OPTIONAL, .absent = LH_NONE},
    {"rail", LHI_ENUM(lh_event, rail), .least = LH_RAIL_DOWN, .names = rails,
     .when = LHI_OPTIONAL, .absent = LH_RAIL_UNCHANGED},
    {"process", LHI_ENUM(lh_event, process), .least = LH_PROCESS_KILLED,
     .names = processes, .when = LHI_OPTIONAL, .absent = LH_PROCESS_UNCHANGED},
    {"pause", LHI_CUSTOM(lh_event), .read = read_pause, .write = write_pause,
     .when = LHI_OPTIONAL},
};
static const lhi_schema event_table = {LHI_ROWS("event", lh_event, event_rows),
                                       .start = start_event,
                                       .check = check_event};

/* --- file ----------------------------------------------------------------- */

/* Checks the total number of links that the events name. LH_EINPUT: there are
 * too many. */
static lh_status check_events(const lhi_read_context *r, const lhi_node *map,
                              void *it, lh_error *err)
{
    const lh_events *events = it;
    uint64_t n = 0;
    for (uint32_t i = 0; i < events->n_events; i++)
        n += events->events[i].n_links;
    if (n > LH_MAX_EVENT_LINKS)
        return lhi_doc_fail(r->doc, lhi_node_find(map, "events"), err,
                            LH_EINPUT, "have more than %u links in total",
                            LH_MAX_EVENT_LINKS);
    return LH_OK;
}

static const lhi_schema_field events_rows[] = {
    {"longhaul", LHI_DERIVED(lh_events), .description = "events/1"},
    {"time_unit", LHI_CUSTOM(lh_events), .description = "ns",
     .when = LHI_DEFAULTED},
    {"events", LHI_LIST(lh_events, events, n_events), .table = &event_table,
     .max_items = LH_MAX_EVENTS},
};
const lhi_schema lhi_events_schema = {
    LHI_ROWS("events", lh_events, events_rows), .check = check_events};

/* Reads a parsed document of format events/1 into an lh_events. */
static lh_status fill_events(const lhi_doc *doc, lhi_arena *mem, void *value,
                             lh_error *err)
{
    lh_events *events = value;
    lhi_read_context r = {.doc = doc, .mem = mem};
    LHI_TRY(lhi_doc_check_format(doc, "events", 1, err));
    LHI_TRY(lhi_node_get_time_unit(doc, doc->root, &r.unit_ns, err));
    LHI_TRY(lhi_schema_read(&r, doc->root, &lhi_events_schema, events, err));
    events->name = lhi_arena_strdup(mem, doc->file);
    return events->name ? LH_OK : lhi_fail_nomem(err);
}

lh_status lhi_events_parse(const char *text, size_t len, const char *name,
                           lh_events **out, lh_error *err)
{
    void *events;
    LHI_TRY(lhi_value_parse(text, len, name, LHI_INPUT_EVENTS,
                            sizeof(lh_events), fill_events, &events, err));
    *out = events;
    return LH_OK;
}

lh_status lh_events_read(const char *path, lh_events **out, lh_error *err)
{
    void *events;
    LHI_TRY(lhi_value_read(path, LHI_INPUT_EVENTS, sizeof(lh_events),
                           fill_events, &events, err));
    *out = events;
    return LH_OK;
}

void lh_events_free(lh_events *events)
{
    lhi_value_free(events);
}

lh_status lhi_events_format(const lh_events *events, char **text, size_t *len,
                            lh_error *err)
{
    return lhi_json_format(lhi_schema_write(&lhi_events_schema, events, NULL),
                           text, len, err);
}
