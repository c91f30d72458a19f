/* SPDX-License-Identifier: Apache-2.0 */
/* Builds an event timeline's states from its events. */
#include "resilience/event_timeline/timeline.h"
#include "base/options.h"
#include "resilience/placement/placement.h"
#include "resilience/placement/placement_internal.h"
#include "schedule/pipeline/link_names.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sets bit `i` of a bit set. */
static void set_bit(uint64_t *set, uint32_t i)
{
    set[i / 64] |= UINT64_C(1) << i % 64;
}

/* --- event targets ------------------------------------------------------- */

/* Prefixes the message in `err` with the event's file and line, or with its
 * index if a program made it; returns `status`. */
static lh_status fail_event(const lh_events *events, const lh_event *e,
                            lh_status status, lh_error *err)
{
    if (status != LH_OK && status != LH_ENOMEM && e->line > 0)
        lhi_fail_add_context(err, "%s:%" PRIu32, events->name, e->line);
    else if (status != LH_OK && status != LH_ENOMEM)
        lhi_fail_add_context(err, "event %zu", (size_t)(e - events->events));
    return status;
}

/* Fails with LH_EINPUT if the event multiplies a time that is 0 on all its
 * links, which would have no effect. */
static lh_status check_factors(const lh_link *links,
                               const lhi_event_effect *effect, lh_error *err)
{
    const lh_event *e = effect->event;
    bool has_latency = false, has_transfer = false;
    for (uint32_t i = 0; i < effect->n_links; i++) {
        const lh_link *link = &links[effect->links[i]];
        has_latency = has_latency || link->latency_ns > 0;
        has_transfer = has_transfer || link->transfer_ns > 0;
    }
    const char *key = e->latency_factor > 1 && !has_latency     ? "latency"
                      : e->transfer_factor > 1 && !has_transfer ? "transfer"
                      : e->slowdown > 1 && !has_latency && !has_transfer
                          ? "slower"
                          : NULL;
    if (!key)
        return LH_OK;
    return lhi_fail(err, LH_EINPUT,
                    "%s: a factor has no effect, because '%.60s' has no %s of "
                    "its own; give a time",
                    key, e->links[0],
                    *key == 's' ? "latency and no transfer time" : key);
}

/* Copies the indices i of all links with hit[i] set into effect->links,
 * allocated in `mem`. */
static lh_status store_links(const lhi_link_list *list,
                             lhi_event_effect *effect, const bool *hit,
                             lhi_arena *mem, lh_error *err)
{
    for (uint32_t i = 0; i < list->n_links; i++)
        effect->n_links += hit[i];
    effect->links = LHI_NEW(mem, uint32_t, effect->n_links);
    if (!effect->links)
        return lhi_fail_nomem(err);
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n_links; i++)
        if (hit[i])
            effect->links[n++] = i;
    return LH_OK;
}

/* Fails with LH_EUNSUPPORTED if data-parallel communication uses one of the
 * event's links too: an event slows only pipeline messages. */
static lh_status check_shared(const lhi_link_list *list,
                              const lhi_event_effect *effect, lh_error *err)
{
    const lh_pipeline *p = list->pipeline;
    for (uint32_t i = 0; i < effect->n_links; i++) {
        const uint32_t link = effect->links[i];
        if (link < p->n_links && lhi_is_shared_link(p, link))
            return lhi_fail(
                err, LH_EUNSUPPORTED,
                "links: data-parallel communication shares link '%.60s' "
                "('link' of data_parallel), and events on shared links are not "
                "supported; give it another name",
                p->resource_names[p->link_resources[link]]);
    }
    return LH_OK;
}

/* Sets effect->links to the indices of the links that its event names. `list`:
 * all links; `hit`: scratch, a flag per link. LH_EINPUT: a name matches no
 * link. */
static lh_status find_event_links(lhi_link_list *list, lhi_event_effect *effect,
                                  bool *hit, lhi_arena *mem, lh_error *err)
{
    const lh_event *e = effect->event;
    for (uint32_t i = 0; i < e->n_links; i++) {
        lh_status status = lhi_find_links_by_name(list, e->links[i], hit, err);
        if (status != LH_OK) {
            lhi_fail_add_context(err, "links");
            return status;
        }
    }
    LHI_TRY(store_links(list, effect, hit, mem, err));
    LHI_TRY(check_shared(list, effect, err));
    return check_factors(list->links, effect, err);
}

/* Fails with LH_EINPUT if the event's device, which means a host in a timeline
 * with a host placement, is not one of its hosts. */
static lh_status find_host(const lh_event_timeline *c, const lh_event *e,
                           lh_error *err)
{
    uint32_t n = lhi_host_placement_n_hosts(c->placement);
    if (e->device < n)
        return LH_OK;
    return lhi_fail(err, LH_EINPUT,
                    "device: there is no host %" PRIu32
                    "; the placement has 0 to %" PRIu32,
                    e->device, n - 1);
}

/* Fails with LH_EINPUT if an event's device is absent or has no passes. */
static lh_status find_device(const lh_pipeline *p, const lh_event *e,
                             lh_error *err)
{
    uint32_t n = lh_pipeline_n_devices(p);
    if (e->device >= n)
        return lhi_fail(err, LH_EINPUT,
                        "device: there is no device %" PRIu32
                        "; the pipeline has 0 to %" PRIu32,
                        e->device, n - 1);
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(p); c++) {
        const lh_chunk *k = lh_pipeline_chunk(p, c);
        if (k->device == e->device && (k->f_ns || k->d_ns || k->w_ns))
            return LH_OK;
    }
    return lhi_fail(err, LH_EINPUT,
                    "device: device %" PRIu32 " has no passes that could be "
                    "slowed down",
                    e->device);
}

/* Checks the ranges of an event's numbers, as the file reader does, for events
 * that a program made. */
static lh_status check_numbers(const lh_event *e, lh_error *err)
{
    bool more = e->latency_ns > 0 || e->transfer_ns > 0 ||
                e->latency_factor > 1 || e->transfer_factor > 1;
    if (e->first_step < 0 || e->end_step <= e->first_step)
        return lhi_fail(err, LH_EINPUT,
                        "from %" PRId64 ", to %" PRId64
                        ": both must be steps, the second one later",
                        e->first_step, e->end_step);
    if (e->latency_ns < 0 || e->transfer_ns < 0 || !(e->latency_factor >= 1) ||
        !(e->transfer_factor >= 1) || !(e->slowdown >= 1))
        return lhi_fail(err, LH_EINPUT,
                        "times must be at least 0, factors at least 1");
    if (more && e->n_links == 0)
        return lhi_fail(err, LH_EINPUT,
                        "a device has no latency and no transfer time");
    if (!more && e->slowdown <= 1)
        return lhi_fail(err, LH_EINPUT, "it has no effect");
    return LH_OK;
}

/* Stores all links from and to the rank whose rail (network connection) fails
 * or is restored in the effect; `hit`: scratch, a flag per link. Fails with
 * LH_EINPUT if there are none. */
static lh_status find_rail_links(lhi_link_list *list, lhi_event_effect *effect,
                                 bool *hit, lhi_arena *mem, lh_error *err)
{
    uint32_t rank = effect->event->rank;
    uint32_t n = lh_pipeline_n_devices(list->pipeline);
    if (effect->event->first_step < 0)
        return lhi_fail(err, LH_EINPUT,
                        "at %" PRId64 ": a step must be at "
                        "least 0",
                        effect->event->first_step);
    if (rank >= n)
        return lhi_fail(err, LH_EINPUT,
                        "rank: there is no rank %" PRIu32
                        "; the pipeline has 0 to %" PRIu32,
                        rank, n - 1);
    bool any = false;
    for (uint32_t i = 0; i < list->n_links; i++) {
        hit[i] = list->links[i].from == rank || list->links[i].to == rank;
        any = any || hit[i];
    }
    if (!any)
        return lhi_fail(err, LH_EINPUT,
                        "rank: rank %" PRIu32 " has no links that a rail "
                        "failure could affect",
                        rank);
    return store_links(list, effect, hit, mem, err);
}

/* Fails with LH_EINPUT unless the event on a rank's process has a step of at
 * least 0, and a pause exactly if the process is stopped rather than killed.
 * The run checks the rank. */
static lh_status check_process(const lh_event *e, lh_error *err)
{
    if (e->first_step >= 0 &&
        (e->pause_ns > 0) == (e->process == LH_PROCESS_STOPPED))
        return LH_OK;
    return lhi_fail(err, LH_EINPUT,
                    "at %" PRId64 ": a step must be at least 0; a pause is "
                    "required for a stopped process and rejected otherwise",
                    e->first_step);
}

/* For a timeline with a host placement: sets the effect's links between hosts,
 * or checks the event's host number if the event names no links. LH_EINPUT: a
 * name or number is invalid. */
static lh_status find_host_targets(lh_event_timeline *c,
                                   lhi_event_effect *effect, lh_error *err)
{
    if (effect->event->n_links == 0)
        return find_host(c, effect->event, err);
    lh_status status = lhi_event_find_host_links(c, effect, err);
    if (status != LH_OK) {
        lhi_fail_add_context(err, "links");
        return status;
    }
    return check_factors(c->host_links, effect, err);
}

/* Checks one event and resolves the links, device, host, rail or rank that it
 * names to indices in `effect`. */
static lh_status resolve_event(lh_event_timeline *c, lhi_link_list *list,
                               lhi_event_effect *effect, bool *hit,
                               lh_error *err)
{
    const lh_event *e = effect->event;
    if (e->process)
        return check_process(e, err);
    if (e->rail != LH_RAIL_UNCHANGED && c->placement)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "rail: rail failures of hosts are not simulated; "
                        "remove the event, or use device events only");
    if (e->rail != LH_RAIL_UNCHANGED)
        return find_rail_links(list, effect, hit, c->mem, err);
    LHI_TRY(check_numbers(e, err));
    if (c->placement)
        return find_host_targets(c, effect, err);
    if (e->n_links == 0)
        return find_device(list->pipeline, e, err);
    return find_event_links(list, effect, hit, c->mem, err);
}

/* Checks that a rail (network connection) failure or restoration is possible:
 * each rank has two rails, and at most one may be down, unless the run restarts
 * after failures (`restarts`). */
static lh_status check_rail(const lh_events *events, const lh_event *e,
                            bool restarts, lh_error *err)
{
    const lh_event *before = NULL;
    for (uint32_t i = 0; i < events->n_events; i++) {
        const lh_event *x = &events->events[i];
        if (x->rail == LH_RAIL_UNCHANGED || x->rank != e->rank || x == e)
            continue;
        if (x->first_step == e->first_step)
            return lhi_fail(err, LH_EINPUT,
                            "rail: two events of rank %" PRIu32
                            " at step %" PRId64,
                            e->rank, e->first_step);
        if (x->first_step < e->first_step &&
            (!before || x->first_step > before->first_step))
            before = x;
    }
    bool down = before && before->rail == LH_RAIL_DOWN;
    if (e->rail == LH_RAIL_UP && !down)
        return lhi_fail(err, LH_EINPUT,
                        "rail: none of rank %" PRIu32 " is down at step "
                        "%" PRId64,
                        e->rank, e->first_step);
    if (e->rail == LH_RAIL_DOWN && down && !restarts)
        return lhi_fail(err, LH_EINPUT,
                        "rail: the last rail of rank %" PRIu32
                        " goes down at step "
                        "%" PRId64 ", and a run cannot continue without one; "
                        "bring another rail up first",
                        e->rank, e->first_step);
    return LH_OK;
}

/* Checks all events and resolves the links and devices that they name, those of
 * rails last. Replaces list->links by a copy with the links added for them,
 * which the caller frees. */
static lh_status resolve_events(lh_event_timeline *c, const lh_events *events,
                                lhi_link_list *list, lh_error *err)
{
    size_t room = list->n_links;
    for (uint32_t i = 0; i < events->n_events; i++)
        room += 2 * (size_t)events->events[i].n_links;
    lh_link *links = calloc(room + 1, sizeof *links);
    bool *hit = calloc(room + 1, sizeof *hit);
    lh_status status = links && hit ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK && list->n_links)
        memcpy(links, list->links, list->n_links * sizeof *links);
    list->links = links;
    /* Rails last: they affect all links, including those that other events add.
     */
    for (uint32_t i = 0; status == LH_OK && i < 2 * c->n_effects; i++) {
        const lh_event *e = &events->events[i % c->n_effects];
        bool rails = i >= c->n_effects;
        if ((e->rail != LH_RAIL_UNCHANGED) != rails)
            continue;
        memset(hit, 0, room);
        status =
            resolve_event(c, list, &c->effects[i % c->n_effects], hit, err);
        if (status == LH_OK && rails)
            status = check_rail(events, e, c->restart_steps > 0, err);
        fail_event(events, e, status, err);
    }
    free(hit);
    return status;
}

/* --- states -------------------------------------------------------------- */

/* Compares two step numbers, for qsort(). */
static int compare_steps(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Stores the sorted steps at which events begin or end in `c`. Between two such
 * steps the same events are active. */
static lh_status build_intervals(lh_event_timeline *c, lh_error *err)
{
    int64_t *at = c->starts =
        LHI_NEW(c->mem, int64_t, 2 * (size_t)c->n_effects + 1);
    if (!at)
        return lhi_fail_nomem(err);
    uint32_t n = 1;
    for (uint32_t i = 0; i < c->n_effects; i++) {
        at[n++] = c->effects[i].event->first_step;
        at[n++] = c->effects[i].event->end_step;
    }
    qsort(at, n, sizeof *at, compare_steps);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || at[i] != at[c->n_intervals - 1])
            at[c->n_intervals++] = at[i];
    return LH_OK;
}

/* Returns the number of the state (set of active effects) equal to the set
 * stored after the last state; adds that set as a new state if there is none.
 * */
static uint32_t find_or_add_state(lh_event_timeline *c)
{
    const uint64_t *set = c->active_sets + (size_t)c->n_states * c->n_words;
    for (uint32_t s = 0; s < c->n_states; s++)
        if (memcmp(c->active_sets + (size_t)s * c->n_words, set,
                   c->n_words * sizeof *set) == 0)
            return s;
    return c->n_states++;
}

/* Determines the state number (set of active effects) of each interval between
 * event boundaries. Intervals with equal sets share one state. */
static lh_status build_states(lh_event_timeline *c, lh_error *err)
{
    LHI_TRY(build_intervals(c, err));
    c->n_words = c->n_effects / 64 + 1;
    c->states = LHI_NEW(c->mem, uint32_t, c->n_intervals);
    /* One slot more than there can be states: the set under lookup. */
    c->active_sets =
        LHI_NEW(c->mem, uint64_t, ((size_t)c->n_intervals + 2) * c->n_words);
    if (!c->states || !c->active_sets)
        return lhi_fail_nomem(err);
    c->n_states = 1; /* without any event */
    for (uint32_t i = 0; i < c->n_intervals; i++) {
        uint64_t *set = c->active_sets + (size_t)c->n_states * c->n_words;
        memset(set, 0, c->n_words * sizeof *set);
        for (uint32_t k = 0; k < c->n_effects; k++) {
            const lh_event *e = c->effects[k].event;
            if (e->first_step <= c->starts[i] && c->starts[i] < e->end_step)
                set_bit(set, k);
        }
        c->states[i] = find_or_add_state(c);
    }
    return LH_OK;
}

/* --- names --------------------------------------------------------------- */

/* Sets *out to the index of the display name `name` in c->names; appends the
 * name if it is missing. */
static lh_status find_name(lh_event_timeline *c, const char *name,
                           uint32_t *out, lh_error *err)
{
    for (*out = 0; *out < c->n_names; (*out)++)
        if (strcmp(c->names[*out], name) == 0)
            return LH_OK;
    if (!(c->names[*out] = lhi_arena_strdup(c->mem, name)))
        return lhi_fail_nomem(err);
    c->n_names++;
    return LH_OK;
}

/* Stores the display names of the links, device, rail or rank that event effect
 * `x` slows or stops. */
static lh_status name_effect(lh_event_timeline *c, lhi_event_effect *x,
                             lh_error *err)
{
    const lh_event *e = x->event;
    char device[32];
    if (e->process)
        snprintf(device, sizeof device, "rank %" PRIu32 " %s", e->rank,
                 e->process == LH_PROCESS_KILLED ? "killed"
                 : e->process == LH_PROCESS_LOST ? "lost"
                                                 : "stopped");
    else if (e->rail == LH_RAIL_UNCHANGED)
        snprintf(device, sizeof device, "%s %" PRIu32,
                 c->placement ? "host" : "device", e->device);
    else
        snprintf(device, sizeof device, "rail of rank %" PRIu32, e->rank);
    x->n_names = e->n_links ? e->n_links : 1;
    x->names = LHI_NEW(c->mem, uint32_t, x->n_names);
    if (!x->names)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < x->n_names; i++)
        LHI_TRY(
            find_name(c, e->n_links ? e->links[i] : device, &x->names[i], err));
    return LH_OK;
}

/* Stores the display names of the links, devices, rails and ranks that each
 * event affects. */
static lh_status build_names(lh_event_timeline *c, lh_error *err)
{
    size_t most = 0;
    for (uint32_t k = 0; k < c->n_effects; k++)
        most += c->effects[k].event->n_links + 1u;
    if (!(c->names = LHI_NEW(c->mem, const char *, most)))
        return lhi_fail_nomem(err);
    for (uint32_t k = 0; k < c->n_effects; k++)
        LHI_TRY(name_effect(c, &c->effects[k], err));
    return LH_OK;
}

/* --- construction -------------------------------------------------------- */

/* Fails with LH_EINPUT if there are too many events, or an event names too many
 * links. */
static lh_status check_size(const lh_events *events, lh_error *err)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < events->n_events; i++)
        n += events->events[i].n_links;
    if (events->n_events <= LH_MAX_EVENTS && n <= LH_MAX_EVENT_LINKS)
        return LH_OK;
    return lhi_fail(err, LH_EINPUT,
                    "%" PRIu32 " events name %" PRIu64
                    " links; at most %u and %u are possible",
                    events->n_events, n, LH_MAX_EVENTS, LH_MAX_EVENT_LINKS);
}

/* Fails with LH_EINVAL if the timeline's host placement was made for a pipeline
 * with other chunks or links than `pipeline`. */
static lh_status check_places(const lh_event_timeline *c,
                              const lh_pipeline *pipeline, lh_error *err)
{
    const lh_pipeline *p = c->placement ? c->placement->pipeline : pipeline;
    if (p->n_devices == pipeline->n_devices &&
        p->n_chunks == pipeline->n_chunks &&
        p->n_microbatches == pipeline->n_microbatches)
        return LH_OK;
    return lhi_fail(err, LH_EINVAL,
                    "lh_event_timeline_options: the host placement is for "
                    "another pipeline");
}

/* Copies the events and resolves the links and devices that they name. Builds
 * c->base, the pipeline to whose links the indices refer. */
static lh_status copy_events(lh_event_timeline *c, const lh_events *events,
                             const lh_pipeline *given, lh_error *err)
{
    LHI_TRY(check_places(c, given, err));
    const lh_pipeline *pipeline = c->placement ? c->placement->pipeline : given;
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(check_size(events, err));
    LHI_TRY(lh_pipeline_describe(pipeline, &desc, err));
    /* Read-only until resolve_events() replaces the array with a copy. */
    lhi_link_list list = {pipeline, (lh_link *)(uintptr_t)desc.links,
                          desc.n_links};
    c->n_effects = events->n_events;
    c->effects = LHI_NEW(c->mem, lhi_event_effect, c->n_effects);
    lh_event *own = LHI_NEW(c->mem, lh_event, c->n_effects);
    if (!c->effects || !own)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < c->n_effects; i++) {
        own[i] = events->events[i];
        c->effects[i].event = &own[i];
        if (own[i].rail == LH_RAIL_UNCHANGED && !own[i].process)
            continue;
        /* A failure affects its step only; a recovery affects none. */
        own[i].end_step = own[i].first_step + (own[i].rail != LH_RAIL_UP);
        own[i].latency_factor = own[i].transfer_factor = own[i].slowdown = 1;
        own[i].latency_ns = own[i].transfer_ns = 0;
        if (own[i].process)
            own[i].device = LH_NONE;
        else
            c->effects[i].block_ns = LH_RAIL_DETECTION_NS / c->speed;
    }
    lh_status status = resolve_events(c, events, &list, err);
    desc.links = list.links;
    desc.n_links = list.n_links;
    if (status == LH_OK)
        status = lhi_pipeline_rebuild(pipeline, &desc, &c->base, err);
    free(list.links);
    LHI_TRY(status);
    LHI_TRY(build_states(c, err));
    LHI_TRY(build_names(c, err));
    for (uint32_t i = 0; i < c->n_effects; i++)
        own[i].links = NULL; /* owned by the caller */
    return LH_OK;
}

/* Checks that in every state (active event set) every pipeline time is within
 * the limits. */
static lh_status check_states(const lh_event_timeline *c,
                              const lh_events *events, lh_error *err)
{
    for (uint32_t s = 0; s < c->n_states; s++) {
        lh_pipeline *p;
        lh_status status = lh_event_timeline_pipeline(c, s, &p, err);
        if (status != LH_OK) {
            lhi_fail_add_context(err, "%s",
                                 events->name ? events->name : "events");
            return status;
        }
        lh_pipeline_free(p);
    }
    return LH_OK;
}

/* Builds the event timeline: resolves the links, devices and hosts that events
 * name, and numbers the sets of events that are active together (states). The
 * header lists the errors. */
lh_status lh_event_timeline_make(const lh_pipeline *pipeline,
                                 const lh_events *events,
                                 const lh_event_timeline_options *options,
                                 lh_event_timeline **out, lh_error *err)
{
    lh_event_timeline_options o;
    LHI_TRY(LHI_OPTIONS_COPY(lh_event_timeline_options, &o, options, err));
    lhi_arena *mem = lhi_arena_make(0);
    lh_event_timeline *c = mem ? LHI_NEW(mem, lh_event_timeline, 1) : NULL;
    if (!c) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    c->mem = mem;
    c->speed = o.time_divisor ? o.time_divisor : 1;
    c->placement = o.placement;
    c->restart_steps = o.restart_steps;
    lh_status status = copy_events(c, events, pipeline, err);
    if (status == LH_OK)
        status = check_states(c, events, err);
    if (status != LH_OK) {
        lh_event_timeline_free(c);
        return status;
    }
    *out = c;
    return LH_OK;
}

/* Frees a timeline with its copy of the events; ignores NULL. */
void lh_event_timeline_free(lh_event_timeline *timeline)
{
    if (!timeline)
        return;
    lh_pipeline_free(timeline->base);
    free(timeline->host_links);
    lhi_arena_free(timeline->mem);
}

/* --- queries ------------------------------------------------------------- */

uint32_t lh_event_timeline_n_states(const lh_event_timeline *timeline)
{
    return timeline->n_states;
}

uint32_t lh_event_timeline_state(const lh_event_timeline *timeline,
                                 uint64_t step)
{
    uint32_t lo = 0, hi = timeline->n_intervals;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((uint64_t)timeline->starts[mid] <= step)
            lo = mid;
        else
            hi = mid;
    }
    return timeline->states[lo];
}

uint32_t lh_event_timeline_slow_components(const lh_event_timeline *timeline,
                                           uint32_t state, const char **names,
                                           uint32_t room)
{
    uint64_t seen[(LH_MAX_EVENTS + LH_MAX_EVENT_LINKS) / 64 + 1] = {0};
    uint32_t n = 0;
    const uint64_t *set =
        timeline->active_sets + (size_t)state * timeline->n_words;
    for (uint32_t k = 0; k < timeline->n_effects; k++) {
        const lhi_event_effect *x = &timeline->effects[k];
        for (uint32_t i = 0; lhi_event_set_has(set, k) && i < x->n_names; i++) {
            if (lhi_event_set_has(seen, x->names[i]))
                continue;
            set_bit(seen, x->names[i]);
            if (n++ < room)
                names[n - 1] = timeline->names[x->names[i]];
        }
    }
    return n;
}
