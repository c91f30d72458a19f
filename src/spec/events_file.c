/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and formatting event files. */
#include "spec/spec.h"

#include <longhaul/events.h>

#define MOST_STEP INT64_C(1000000000000)
#define MOST_TIMES 1e6

/* --- amounts: an added time, or "x4" -------------------------------------- */

static lh_status read_factor(const lhi_reading *r, const lhi_node *node,
                             double *times, lh_error *err)
{
    lhi_node number = *node;
    number.text++;
    number.quoted = false;
    LHI_TRY(lhi_get_number15(r->doc, &number, 1, MOST_TIMES, times, err));
    if (*times > 1)
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "x1 changes nothing; give more than 1");
}

static bool is_factor(const lhi_node *node)
{
    return node->kind == LHI_SCALAR && node->text[0] == 'x';
}

static lh_status read_amount(const lhi_reading *r, const lhi_node *node,
                             int64_t *more_ns, double *times, lh_error *err)
{
    if (is_factor(node))
        return read_factor(r, node, times, err);
    LHI_TRY(lhi_get_time(r->doc, node, r->unit_ns, more_ns, err));
    if (*more_ns > 0)
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "0 changes nothing; give a time, which is added to the "
                        "link's own, or a factor, as x4");
}

static json_t *write_amount(int64_t more_ns, double times)
{
    if (times > 1)
        return json_sprintf("x%.15g", times);
    return more_ns > 0 ? json_integer(more_ns) : json_null();
}

static lh_status read_latency(const lhi_reading *r, const lhi_node *node,
                              void *owner, lh_error *err)
{
    lh_event *e = owner;
    return read_amount(r, node, &e->latency_ns, &e->latency_times, err);
}

static json_t *write_latency(const void *owner, const void *context)
{
    const lh_event *e = owner;
    (void)context;
    return write_amount(e->latency_ns, e->latency_times);
}

static lh_status read_transfer(const lhi_reading *r, const lhi_node *node,
                               void *owner, lh_error *err)
{
    lh_event *e = owner;
    return read_amount(r, node, &e->transfer_ns, &e->transfer_times, err);
}

static json_t *write_transfer(const void *owner, const void *context)
{
    const lh_event *e = owner;
    (void)context;
    return write_amount(e->transfer_ns, e->transfer_times);
}

static lh_status read_slower(const lhi_reading *r, const lhi_node *node,
                             void *owner, lh_error *err)
{
    lh_event *e = owner;
    if (is_factor(node))
        return read_factor(r, node, &e->slower, err);
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "must be a factor, as x4");
}

static json_t *write_slower(const void *owner, const void *context)
{
    (void)context;
    return write_amount(0, ((const lh_event *)owner)->slower);
}

/* --- an event --------------------------------------------------------------
 */

static void start_event(const lhi_reading *r, void *it)
{
    lh_event *e = it;
    (void)r;
    e->latency_times = e->transfer_times = e->slower = 1;
}

/* The keys that a kind of event requires and rejects. */
typedef struct wants {
    const char *what;
    const char *needs[3], *refuses[7]; /* keys; NULL-terminated if shorter */
} wants;

static const wants of_links = {
    "links", {"from", "to", NULL}, {"at", "rank", "device", "rail", NULL}};
static const wants of_device = {
    "a device",
    {"from", "to", "slower"},
    {"at", "rank", "latency", "transfer", "links", "rail", NULL}};
static const wants of_rail = {
    "a rail",
    {"at", "rank", NULL},
    {"from", "to", "latency", "transfer", "slower", "links", "device"}};

static lh_status check_keys(const lhi_reading *r, const lhi_node *map,
                            const wants *w, lh_error *err)
{
    const lhi_node *node;
    for (uint32_t i = 0; i < 7 && w->refuses[i]; i++)
        if ((node = lhi_find(map, w->refuses[i])))
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "does not belong to an event of %s", w->what);
    for (uint32_t i = 0; i < 3 && w->needs[i]; i++)
        LHI_TRY(lhi_need(r->doc, map, w->needs[i], &node, err));
    return LH_OK;
}

static lh_status check_event(const lhi_reading *r, const lhi_node *map,
                             void *it, lh_error *err)
{
    lh_event *e = it;
    const lhi_node *at = lhi_find(map, "at"), *to = lhi_find(map, "to");
    const wants *w = e->n_links             ? &of_links
                     : e->device != LH_NONE ? &of_device
                     : e->rail              ? &of_rail
                                            : NULL;
    e->line = map->line;
    if (!w)
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "says nothing of what changes; give 'links', "
                            "'device' or 'rail'");
    LHI_TRY(check_keys(r, map, w, err));
    if (w == &of_rail)
        return lhi_get_int(r->doc, at, 0, MOST_STEP, &e->from, err);
    if (e->from >= e->to)
        return lhi_doc_fail(r->doc, to, err, LH_EINPUT,
                            "is the first step without the event, and so "
                            "above 'from'");
    if (w == &of_links && !lhi_find(map, "latency") &&
        !lhi_find(map, "transfer") && !lhi_find(map, "slower"))
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "says nothing of how slow; give 'latency', "
                            "'transfer' or 'slower'");
    return LH_OK;
}

static json_t *write_at(const void *owner, const void *context)
{
    const lh_event *e = owner;
    (void)context;
    return e->rail ? json_integer(e->from) : json_null();
}

static json_t *write_from(const void *owner, const void *context)
{
    const lh_event *e = owner;
    (void)context;
    return e->rail ? json_null() : json_integer(e->from);
}

static lh_status read_from(const lhi_reading *r, const lhi_node *node,
                           void *owner, lh_error *err)
{
    return lhi_get_int(r->doc, node, 0, MOST_STEP, &((lh_event *)owner)->from,
                       err);
}

static const char *const rails[] = {"down", "up", NULL};

static const lhi_field event_rows[] = {
    {"from", LHI_OWN(lh_event), .read = read_from, .write = write_from,
     .when = LHI_LEFT_OUT},
    {"to", LHI_WHOLE(lh_event, to), .most = MOST_STEP, .when = LHI_LEFT_OUT,
     .absent = -1},
    /* read by `check`, into `from` */
    {"at", LHI_OWN(lh_event), .write = write_at, .when = LHI_LEFT_OUT},
    {"links", LHI_LIST(lh_event, links, n_links), .of = LHI_F_TEXT, .least = 1,
     .fewest = 1, .longest = LH_MAX_EVENT_LINKS, .when = LHI_LEFT_OUT},
    {"latency", LHI_OWN(lh_event), .read = read_latency, .write = write_latency,
     .when = LHI_LEFT_OUT},
    {"transfer", LHI_OWN(lh_event), .read = read_transfer,
     .write = write_transfer, .when = LHI_LEFT_OUT},
    {"device", LHI_WHOLE(lh_event, device), .most = LH_MAX_DEVICES - 1,
     .when = LHI_LEFT_OUT, .absent = LH_NONE},
    {"slower", LHI_OWN(lh_event), .read = read_slower, .write = write_slower,
     .when = LHI_LEFT_OUT},
    {"rank", LHI_WHOLE(lh_event, rank), .most = LH_MAX_DEVICES - 1,
     .when = LHI_LEFT_OUT, .absent = LH_NONE},
    {"rail", LHI_NAME(lh_event, rail), .least = LH_RAIL_DOWN, .names = rails,
     .when = LHI_LEFT_OUT, .absent = LH_RAIL_AS_IT_IS},
};
static const lhi_table event_table = {LHI_ROWS("event", lh_event, event_rows),
                                      .start = start_event,
                                      .check = check_event};

/* --- file -------------------------------------------------------------------
 */

static lh_status check_events(const lhi_reading *r, const lhi_node *map,
                              void *it, lh_error *err)
{
    const lh_events *events = it;
    uint64_t n = 0;
    for (uint32_t i = 0; i < events->n_events; i++)
        n += events->events[i].n_links;
    if (n > LH_MAX_EVENT_LINKS)
        return lhi_doc_fail(r->doc, lhi_find(map, "events"), err, LH_EINPUT,
                            "name more than %u links", LH_MAX_EVENT_LINKS);
    return LH_OK;
}

static const lhi_field events_rows[] = {
    {"longhaul", LHI_ALSO(lh_events), .form = "events/1"},
    {"time_unit", LHI_OWN(lh_events), .form = "ns", .when = LHI_KEPT},
    {"events", LHI_LIST(lh_events, events, n_events), .table = &event_table,
     .longest = LH_MAX_EVENTS},
};
const lhi_table lhi_events_table = {LHI_ROWS("events", lh_events, events_rows),
                                    .check = check_events};

static lh_status fill_events(const lhi_doc *doc, lhi_arena *mem, void *value,
                             lh_error *err)
{
    lh_events *events = value;
    lhi_reading r = {.doc = doc, .mem = mem};
    LHI_TRY(lhi_want_format(doc, "events", 1, err));
    LHI_TRY(lhi_get_time_unit(doc, doc->root, &r.unit_ns, err));
    LHI_TRY(lhi_fields_read(&r, doc->root, &lhi_events_table, events, err));
    events->name = lhi_arena_strdup(mem, doc->file);
    return events->name ? LH_OK : lhi_fail_nomem(err);
}

lh_status lh_events_parse(const char *text, size_t len, const char *name,
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

lh_status lh_events_format(const lh_events *events, char **text, size_t *len,
                           lh_error *err)
{
    return lhi_json_text(lhi_fields_write(&lhi_events_table, events, NULL),
                         text, len, err);
}
