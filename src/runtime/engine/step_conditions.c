/* SPDX-License-Identifier: Apache-2.0 */
/* Applies the event timeline to a step. Rank 0 sets the emulated links for all
 * ranks; every timed device gets its pass durations; training gets its
 * data-parallel durations. Nothing is in flight between two steps, so one step
 * runs under one set of conditions. */
#include "runtime/engine/migration_target.h"

#include "resilience/event_timeline/timeline.h"
#include "resilience/placement/placement.h"
#include "resilience/placement/placement_internal.h"
#include "runtime/device/timed.h"
#include "runtime/transport/handshake.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sets the latency and transfer time of all emulated links to those of the
 * pipeline `now`. */
static lh_status set_links(const lhi_job *job, const lh_pipeline *now,
                           lhi_net *net, lh_error *err)
{
    lhi_job then = *job;
    then.pipeline = now;
    uint32_t n = (uint32_t)lhi_job_count_links(&then);
    lhi_net_link *links = calloc(n + (size_t)1, sizeof *links);
    lh_status status =
        links ? lhi_job_list_links(&then, links, err) : lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < n; i++)
        status = lhi_net_set_link(net, i, &links[i], err);
    free(links);
    return status;
}

lh_status lhi_job_make_step_pipeline(const lhi_job *job, uint64_t step,
                                     const lhi_rank_assignment *assignment,
                                     lh_pipeline **out, lh_error *err)
{
    const lh_event_timeline *timeline = job->o.event_timeline;
    lh_pipeline *now = NULL, *shared = NULL;
    *out = NULL;
    if (timeline)
        LHI_TRY(lh_event_timeline_pipeline_with_hosts(
            timeline, lh_event_timeline_state(timeline, step),
            assignment && timeline->placement ? assignment->ranks : NULL, &now,
            err));
    lh_status status = lhi_rank_assignment_make_pipeline(
        job, now ? now : job->pipeline, assignment, &shared, err);
    if (status != LH_OK || shared) {
        lh_pipeline_free(now);
        now = shared;
    }
    *out = now;
    return status;
}

lh_status lhi_job_apply_conditions(const lhi_job *job, uint64_t step,
                                   const lhi_rank_assignment *assignment,
                                   lhi_net *net, lhi_device *device,
                                   lhi_training *training, uint32_t *state,
                                   lh_error *err)
{
    const lh_event_timeline *timeline = job->o.event_timeline;
    uint32_t next = timeline ? lh_event_timeline_state(timeline, step) : 0;
    if (next == *state || job->rerouting.exec) /* no slow links or devices */
        return LH_OK;
    lh_pipeline *made;
    LHI_TRY(lhi_job_make_step_pipeline(job, step, assignment, &made, err));
    const lh_pipeline *now = made ? made : job->pipeline;
    lh_status status = LH_OK;
    if (timeline && job->emulates && lhi_net_rank(net) == 0)
        status = set_links(job, now, net, err);
    if (!job->model)
        lhi_timed_set_pipeline(device, now);
    if (training)
        lhi_training_set_times(training, now);
    lh_pipeline_free(made);
    if (status == LH_OK)
        *state = next;
    return status;
}

/* Suspends, from begin_ns on, the emulated links that a failed rail (network
 * connection of a rank) blocks in state number `state` of the event
 * timeline. */
lh_status lhi_job_hold_links(const lhi_job *job, uint32_t state, lhi_net *net,
                             int64_t begin_ns, lh_error *err)
{
    const lh_event_timeline *timeline = job->o.event_timeline;
    if (!timeline || !job->emulates ||
        !lhi_event_timeline_count_failures(timeline, state))
        return LH_OK;
    lh_pipeline *now;
    LHI_TRY(lh_event_timeline_pipeline(timeline, state, &now, err));
    lh_status status = LH_OK;
    for (uint32_t i = 0;
         i < now->n_resources * lhi_grid_count_copies(&job->grid); i++) {
        int64_t held_ns = now->blocked_until_ns[i % now->n_resources];
        if (status == LH_OK && held_ns > 0)
            status = lhi_net_suspend_link(net, i, begin_ns + held_ns, err);
    }
    lh_pipeline_free(now);
    return status;
}

/* Checks that the event timeline's hosts are the run's ranks, one rank per
 * host. */
static lh_status check_hosts(const lhi_job *job, lh_error *err)
{
    const lh_event_timeline *timeline = job->o.event_timeline;
    const lhi_grid *g = &job->grid;
    bool transfers = false;
    if (g->tensor * g->context * g->expert > 1)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the events affect hosts with one rank each, but ranks "
                        "compute passes together (tensor %" PRIu32
                        ", context %" PRIu32 ", expert %" PRIu32
                        "): plan with 1 of each, or use events for devices",
                        g->tensor, g->context, g->expert);
    if (lhi_host_placement_n_hosts(timeline->placement) !=
        lhi_grid_count_ranks(g))
        return lhi_fail(err, LH_EINVAL,
                        "the events are for %" PRIu32
                        " hosts, but the run has %" PRIu32 " ranks",
                        lhi_host_placement_n_hosts(timeline->placement),
                        lhi_grid_count_ranks(g));
    for (uint32_t i = 0; i < timeline->n_effects; i++) {
        const lh_event *e = timeline->effects[i].event;
        transfers = transfers || e->transfer_ns > 0 || e->slowdown > 1 ||
                    e->transfer_factor > 1;
    }
    return transfers ? lhi_host_placement_check_state(timeline->placement, err)
                     : LH_OK;
}

/* Fails with LH_EUNSUPPORTED if a rail fails on a link that data-parallel
 * communication shares: such an emulated link cannot be suspended. */
static lh_status check_rails(const lh_event_timeline *timeline, lh_error *err)
{
    const lh_pipeline *p = timeline->base;
    for (uint32_t i = 0; i < timeline->n_effects; i++) {
        const lhi_event_effect *effect = &timeline->effects[i];
        for (uint32_t k = 0; effect->block_ns > 0 && k < effect->n_links; k++)
            if (lhi_is_shared_link(p, effect->links[k]))
                return lhi_fail(
                    err, LH_EUNSUPPORTED,
                    "the rail of rank %" PRIu32 " fails at step %" PRId64
                    " on link '%.60s', which data-parallel communication "
                    "shares: runs cannot close shared links; simulate the "
                    "event, or give the link of data_parallel another name",
                    effect->event->rank, effect->event->first_step,
                    p->resource_names[p->link_resources[effect->links[k]]]);
    }
    return LH_OK;
}

lh_status lhi_job_check_events(const lhi_job *job, lh_error *err)
{
    const lh_event_timeline *timeline = job->o.event_timeline;
    const lh_pipeline *p = job->pipeline;
    if (!timeline)
        return LH_OK;
    LHI_TRY(lhi_job_check_process_events(job, err));
    if (timeline->base->n_devices != p->n_devices ||
        timeline->base->n_chunks != p->n_chunks ||
        timeline->base->n_links != p->n_links ||
        timeline->base->n_resources != p->n_resources)
        return lhi_fail(err, LH_EINVAL,
                        "the event timeline belongs to another pipeline; run "
                        "its pipeline of state 0");
    bool links = false, devices = false;
    for (uint32_t i = 0; i < timeline->n_effects; i++) {
        links = links || timeline->effects[i].n_links > 0;
        devices = devices || lhi_event_slows_device(&timeline->effects[i]);
    }
    if (links && !job->emulates)
        return lhi_fail(
            err, LH_EUNSUPPORTED,
            "the events slow links or fail rails, which requires emulated "
            "links; use emulated links, or remove these events");
    LHI_TRY(check_rails(timeline, err));
    if (timeline->restart_steps)
        return lhi_fail(err, LH_EINVAL,
                        "a run continues when a rail fails: an event timeline "
                        "with restarts can only be simulated");
    if (devices && job->model)
        return lhi_fail(
            err, LH_EUNSUPPORTED,
            "the events slow devices, which only the timed device supports: on "
            "the cpu device passes take their real duration");
    return timeline->placement && job->model ? check_hosts(job, err) : LH_OK;
}

/* Extends the digest `sum` by a text. */
static void digest_text(unsigned char sum[32], const char *text, size_t len)
{
    unsigned char both[64];
    memcpy(both, sum, 32);
    lhi_compute_sha256(text, len, both + 32);
    lhi_compute_sha256(both, sizeof both, sum);
}

/* Extends the digest `sum` by the slowdowns of links between hosts in state
 * number `state`, which affect the run once hosts exchange places. */
static lh_status digest_hosts(const lh_event_timeline *timeline, uint32_t state,
                              unsigned char sum[32], lh_error *err)
{
    lh_host_slowdowns now;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status =
        lhi_event_timeline_host_slowdowns(timeline, state, mem, &now, err);
    for (uint32_t i = 0; status == LH_OK && i < now.n_links; i++) {
        char link[96];
        const lh_host_link_delay *l = &now.links[i];
        int n = snprintf(link, sizeof link,
                         "%" PRIu32 " %" PRIu32 " %" PRId64 " %" PRId64,
                         l->from, l->to, l->latency_ns, l->transfer_ns);
        digest_text(sum, link, (size_t)n);
    }
    lhi_arena_free(mem);
    return status;
}

/* Extends the digest `sum` by one timeline state: its pipeline, suspended
 * links and host links. */
static lh_status digest_state(const lh_event_timeline *timeline, uint32_t state,
                              unsigned char sum[32], lh_error *err)
{
    lh_pipeline *p;
    char *text = NULL;
    size_t len = 0;
    LHI_TRY(lh_event_timeline_pipeline(timeline, state, &p, err));
    lh_status status = lh_pipeline_format(p, &text, &len, err);
    if (p->blocked_until_ns)
        digest_text(sum, (const char *)p->blocked_until_ns,
                    p->n_resources * sizeof *p->blocked_until_ns);
    lh_pipeline_free(p);
    LHI_TRY(status);
    digest_text(sum, text, len);
    lh_text_free(text);
    return timeline->placement ? digest_hosts(timeline, state, sum, err)
                               : LH_OK;
}

lh_status lhi_job_digest_events(const lhi_job *job, unsigned char sum[32],
                                lh_error *err)
{
    const lh_event_timeline *timeline = job->o.event_timeline;
    char span[80];
    for (uint32_t i = 0; timeline && i < timeline->n_intervals; i++) {
        int n = snprintf(span, sizeof span, "%" PRId64 " %" PRIu32,
                         timeline->starts[i], timeline->states[i]);
        digest_text(sum, span, (size_t)n);
    }
    for (uint32_t s = 0; timeline && s < timeline->n_states; s++)
        LHI_TRY(digest_state(timeline, s, sum, err));
    for (uint32_t i = 0; timeline && i < timeline->n_effects; i++) {
        const lh_event *e = timeline->effects[i].event;
        int n =
            snprintf(span, sizeof span, "%d %" PRId64 " %" PRIu32 " %" PRId64,
                     (int)e->process, e->first_step, e->rank, e->pause_ns);
        if (e->process)
            digest_text(sum, span, (size_t)n);
    }
    return LH_OK;
}
