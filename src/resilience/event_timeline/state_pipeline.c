/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the pipeline in a state of an event timeline: the slowdowns and rail
 * failures of the state's active events, on devices or hosts. */
#include "resilience/event_timeline/timeline.h"
#include "resilience/placement/placement.h"
#include "resilience/placement/placement_internal.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Multiplies a time in ns by `factor`; a result above the limit for pipeline
 * times becomes a value that a later check rejects. */
static int64_t multiply_time(int64_t ns, double factor)
{
    double product = round((double)ns * factor);
    return product < 0x1p62 ? (int64_t)product : INT64_MAX / 2;
}

/* Adds two non-negative times in ns; limits the sum to INT64_MAX / 2. */
static int64_t add_times(int64_t a, int64_t b)
{
    return a > INT64_MAX / 2 - b ? INT64_MAX / 2 : a + b;
}

/* Multiplies all passes' times on the event's device by the slowdown
 * factor of event `e`. */
static void slow_passes(const lh_event *e, lh_chunk *chunks, uint32_t n_chunks)
{
    for (uint32_t i = 0; i < n_chunks; i++) {
        lh_chunk *k = &chunks[i];
        if (k->device != e->device)
            continue;
        k->f_ns = multiply_time(k->f_ns, e->slowdown);
        k->d_ns = multiply_time(k->d_ns, e->slowdown);
        k->w_ns = multiply_time(k->w_ns, e->slowdown);
    }
}

/* Checks whether event effect number `k`, `x`, is active (in the bit set `set`)
 * and slows its links or device. Rail failures do not: they block links for a
 * time. */
static bool is_slowdown(const uint64_t *set, uint32_t k,
                        const lhi_event_effect *x)
{
    return lhi_event_set_has(set, k) && x->block_ns == 0;
}

/* Applies the active slowdowns (bit set `set` of effects) to the links: first
 * all factors on times, then all added times, so that the result does not
 * depend on the event order. */
static void slow_links(const lh_event_timeline *c, const uint64_t *set,
                       lh_link *links)
{
    for (uint32_t k = 0; k < c->n_effects; k++) {
        const lhi_event_effect *x = &c->effects[k];
        for (uint32_t i = 0; is_slowdown(set, k, x) && i < x->n_links; i++) {
            lh_link *link = &links[x->links[i]];
            link->latency_ns =
                multiply_time(link->latency_ns,
                              x->event->slowdown * x->event->latency_factor);
            link->transfer_ns =
                multiply_time(link->transfer_ns,
                              x->event->slowdown * x->event->transfer_factor);
        }
    }
    for (uint32_t k = 0; k < c->n_effects; k++) {
        const lhi_event_effect *x = &c->effects[k];
        for (uint32_t i = 0; is_slowdown(set, k, x) && i < x->n_links; i++) {
            lh_link *link = &links[x->links[i]];
            link->latency_ns =
                add_times(link->latency_ns, x->event->latency_ns / c->speed);
            link->transfer_ns =
                add_times(link->transfer_ns, x->event->transfer_ns / c->speed);
        }
    }
}

/* Blocks the links of each active rail failure (a lost network connection; bit
 * set `set` of effects) in pipeline `p`, from the step's start until ranks
 * detect it. */
static lh_status block_links(const lh_event_timeline *c, const uint64_t *set,
                             lh_pipeline *p, lh_error *err)
{
    for (uint32_t k = 0; k < c->n_effects; k++) {
        const lhi_event_effect *x = &c->effects[k];
        for (uint32_t i = 0;
             lhi_event_set_has(set, k) && x->block_ns && i < x->n_links; i++)
            LHI_TRY(lhi_pipeline_block_link(p, x->links[i], x->block_ns, err));
    }
    return LH_OK;
}

uint32_t lhi_event_timeline_count_failures(const lh_event_timeline *timeline,
                                           uint32_t state)
{
    const uint64_t *set =
        timeline->active_sets + (size_t)state * timeline->n_words;
    uint32_t n = 0;
    for (uint32_t k = 0; k < timeline->n_effects; k++)
        n += lhi_event_set_has(set, k) && timeline->effects[k].block_ns > 0;
    return n;
}

lh_status lhi_event_timeline_host_slowdowns(const lh_event_timeline *c,
                                            uint32_t state, lhi_arena *mem,
                                            lh_host_slowdowns *out,
                                            lh_error *err)
{
    uint32_t n = c->n_host_links,
             n_hosts = lhi_host_placement_n_hosts(c->placement);
    const uint64_t *set = c->active_sets + (size_t)state * c->n_words;
    lh_link *links = LHI_NEW(mem, lh_link, n);
    lh_host_link_delay *more = LHI_NEW(mem, lh_host_link_delay, n);
    double *slower = LHI_NEW(mem, double, n_hosts);
    if (!links || !more || !slower)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        links[i] = c->host_links[i];
    slow_links(c, set, links);
    for (uint32_t i = 0; i < n; i++) {
        const lh_link *usual = &c->host_links[i];
        more[i] = (lh_host_link_delay){
            links[i].from, links[i].to, links[i].latency_ns - usual->latency_ns,
            links[i].transfer_ns - usual->transfer_ns};
    }
    for (uint32_t h = 0; h < n_hosts; h++)
        slower[h] = 1;
    for (uint32_t k = 0; k < c->n_effects; k++)
        if (lhi_event_set_has(set, k) && lhi_event_slows_device(&c->effects[k]))
            slower[c->effects[k].event->device] *=
                c->effects[k].event->slowdown;
    *out = (lh_host_slowdowns){.size = sizeof *out,
                               .n_links = n,
                               .links = more,
                               .pass_factors = slower};
    return LH_OK;
}

/* Computes the time in ns to exchange hosts (from[i] to to[i] at place i),
 * under the slowdowns of state number `state`. vias[i]: relay of place i's
 * transfer; NULL: the fastest ones, written to ways[i] unless NULL. */
static lh_status compute_migration_time(const lh_event_timeline *c,
                                        uint32_t state, const uint32_t *from,
                                        const uint32_t *to,
                                        const uint32_t *vias, uint32_t *ways,
                                        int64_t *out_ns, lh_error *err)
{
    lh_host_slowdowns now;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status =
        lhi_event_timeline_host_slowdowns(c, state, mem, &now, err);
    if (status == LH_OK)
        status = lhi_host_placement_migration(c->placement, &now, from, to,
                                              vias, ways, out_ns, err);
    lhi_arena_free(mem);
    return status;
}

lh_status lhi_event_timeline_migration(const lh_event_timeline *timeline,
                                       uint32_t state, const uint32_t *from,
                                       const uint32_t *to, const uint32_t *vias,
                                       int64_t *out_ns, lh_error *err)
{
    return compute_migration_time(timeline, state, from, to, vias, NULL, out_ns,
                                  err);
}

/* Fails with LH_EINVAL: the timeline was made without a host placement. */
static lh_status fail_no_hosts(lh_error *err)
{
    return lhi_fail(err, LH_EINVAL, "the event timeline has no host placement");
}

lh_status lh_event_timeline_migration(const lh_event_timeline *timeline,
                                      uint32_t state, const uint32_t *from,
                                      const uint32_t *to, uint32_t *vias,
                                      int64_t *out_ns, lh_error *err)
{
    if (!timeline->placement)
        return fail_no_hosts(err);
    return compute_migration_time(timeline, state, from, to, NULL, vias, out_ns,
                                  err);
}

/* Builds the pipeline in state number `state` (an active event set), with host
 * hosts[i] at place i (a device of a replica). */
static lh_status build_host_pipeline(const lh_event_timeline *c, uint32_t state,
                                     const uint32_t *hosts, lh_pipeline **out,
                                     lh_error *err)
{
    lh_host_slowdowns now;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status =
        lhi_event_timeline_host_slowdowns(c, state, mem, &now, err);
    if (status == LH_OK)
        status =
            lh_host_placement_pipeline(c->placement, &now, hosts, out, err);
    lhi_arena_free(mem);
    return status;
}

lh_status lh_event_timeline_pipeline(const lh_event_timeline *timeline,
                                     uint32_t state, lh_pipeline **out,
                                     lh_error *err)
{
    return lh_event_timeline_pipeline_with_hosts(timeline, state, NULL, out,
                                                 err);
}

lh_status
lh_event_timeline_pipeline_with_hosts(const lh_event_timeline *timeline,
                                      uint32_t state, const uint32_t *hosts,
                                      lh_pipeline **out, lh_error *err)
{
    if (timeline->placement)
        return build_host_pipeline(timeline, state, hosts, out, err);
    if (hosts)
        return fail_no_hosts(err);
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_pipeline *made = NULL;
    const uint64_t *set =
        timeline->active_sets + (size_t)state * timeline->n_words;
    LHI_TRY(lh_pipeline_describe(timeline->base, &desc, err));
    lh_link *links = calloc(desc.n_links + (size_t)1, sizeof *links);
    lh_chunk *chunks = calloc(desc.n_chunks, sizeof *chunks);
    lh_status status = links && chunks ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK) {
        memcpy(chunks, desc.chunks, desc.n_chunks * sizeof *chunks);
        if (desc.n_links)
            memcpy(links, desc.links, desc.n_links * sizeof *links);
        for (uint32_t k = 0; k < timeline->n_effects; k++)
            if (lhi_event_set_has(set, k) &&
                lhi_event_slows_device(&timeline->effects[k]))
                slow_passes(timeline->effects[k].event, chunks, desc.n_chunks);
        slow_links(timeline, set, links);
        desc.links = links;
        desc.chunks = chunks;
        status = lhi_pipeline_rebuild(timeline->base, &desc, &made, err);
    }
    free(links);
    free(chunks);
    if (status == LH_OK && timeline->restart_steps == 0)
        status = block_links(timeline, set, made, err);
    if (status == LH_OK)
        *out = made;
    else
        lh_pipeline_free(made);
    return status;
}
