/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/migration_decider.h"

#include "base/fail.h"
#include "base/text.h"
#include "resilience/event_timeline/timeline.h"
#include "resilience/placement/layers_search.h"
#include "resilience/placement/placement_internal.h"
#include "schedule/pipeline/schedule_internal.h"

#include <stdlib.h>
#include <string.h>

/* State of the migration decider. */
struct lhi_migration_decider {
    const lhi_job *job;
    lhi_migration_history tried;
    uint32_t spot;            /* counts migrations */
    lhi_slow_hosts *slow;     /* NULL: hosts stay */
    double *pass_ns, *hop_ns; /* emulated measurements */
    /* Current hosts and layer counts; NULL: as at the start. */
    uint32_t *hosts, *layer_counts;
    uint32_t *relays; /* relays in the open exchange, per place */
    /* Current schedule. */
    lh_schedule *schedule; /* NULL: the initial schedule */
    char name[LHI_SWITCH_NAME];
    lh_data_path path;
    bool *links; /* mixed path: per link; else NULL */
    /* The open proposal, if any. */
    lhi_migration open;
};

bool lhi_job_can_migrate(const lhi_job *job)
{
    const lh_train_adapt *a = &job->adapt;
    return job->o.adapt && (a->moves_hosts || a->moves_layers);
}

uint32_t lhi_job_count_hops(const lhi_job *job)
{
    return job->o.adapt && job->adapt.moves_hosts && job->model &&
                   !job->emulates
               ? lhi_grid_group_size(&job->grid, LHI_GRID_DATA, 0)
               : 0;
}

lh_status lhi_job_check_migration(const lhi_job *job, lh_error *err)
{
    const lh_train_adapt *a = &job->adapt;
    const bool hosts =
        job->o.event_timeline && job->o.event_timeline->placement;
    if (!job->o.adapt)
        return LH_OK;
    if (a->moves_hosts && !hosts)
        return lhi_fail(err, LH_EINVAL,
                        "lh_train_adapt: moving hosts requires an event "
                        "timeline with hosts");
    if (a->moves_hosts && !job->model && !job->emulates)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "timed ranks run one replica, so hosts cannot be "
                        "compared over real links; use emulated links, or "
                        "train on the cpu device");
    if (a->moves_hosts && job->assignment_limits.n_places == 0)
        return lhi_rank_assignment_fail_places(&job->assignment_limits, err);
    if (a->moves_layers && !job->assignment_limits.layers)
        return lhi_rank_assignment_fail_layers(&job->assignment_limits, err);
    if (a->layer_ns < 0)
        return lhi_fail(err, LH_EINVAL,
                        "lh_train_adapt: layer_ns must be at least 0");
    return LH_OK;
}

/* Creates the search for slow hosts and links, and the arrays for its
 * measurements per place and hop. */
static lh_status make_slow_hosts(lhi_migration_decider *m, lh_error *err)
{
    uint32_t n;
    const lh_host_placement *places = m->job->o.event_timeline->placement;
    LHI_TRY(lhi_slow_hosts_make(places, &m->slow, err));
    lhi_slow_hosts_hops(m->slow, &n);
    m->pass_ns = calloc(places->n_hosts, sizeof *m->pass_ns);
    m->hop_ns = calloc(n + (size_t)1, sizeof *m->hop_ns);
    return m->pass_ns && m->hop_ns ? LH_OK : lhi_fail_nomem(err);
}

/* Computes the pass and message times that emulated hosts and links would
 * measure in step `step` under the event timeline, into m->pass_ns and
 * m->hop_ns. */
static lh_status emulate_hosts(lhi_migration_decider *m, uint64_t step,
                               lh_error *err)
{
    lh_host_slowdowns actual;
    const lh_event_timeline *timeline = m->job->o.event_timeline;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_event_timeline_host_slowdowns(
        timeline, lh_event_timeline_state(timeline, step), mem, &actual, err);
    if (status == LH_OK)
        status = lhi_slow_hosts_emulate(m->slow, &actual, m->pass_ns, m->hop_ns,
                                        err);
    lhi_arena_free(mem);
    return status;
}

lh_status lhi_migration_decider_observe(lhi_migration_decider *m, uint64_t step,
                                        const lhi_measured_iteration *whole,
                                        lh_error *err)
{
    if (!m->slow)
        return LH_OK;
    if (m->job->emulates) {
        LHI_TRY(emulate_hosts(m, step, err));
        lhi_slow_hosts_add(m->slow, m->pass_ns, m->hop_ns);
    } else {
        lhi_slow_hosts_add(m->slow, whole->pass_ns, whole->hop_ns);
    }
    return LH_OK;
}

const lhi_slow_hosts *
lhi_migration_decider_slow_hosts(const lhi_migration_decider *m)
{
    return m->slow;
}

lh_status lhi_migration_decider_make(const lhi_job *job,
                                     lhi_migration_decider **out, lh_error *err)
{
    lhi_migration_decider *m = calloc(1, sizeof *m);
    if (!m)
        return lhi_fail_nomem(err);
    m->job = job;
    m->path = job->exec->options.path;
    lhi_text_copy(m->name, sizeof m->name, lh_adapt_candidate(0));
    m->relays =
        calloc(job->assignment_limits.n_places + (size_t)1, sizeof *m->relays);
    lh_status status = m->relays ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK && job->adapt.moves_hosts)
        status = make_slow_hosts(m, err);
    if (status != LH_OK)
        lhi_migration_decider_free(m);
    else
        *out = m;
    return status;
}

/* Frees the migration that is proposed but not yet answered. */
static void close_proposal(lhi_migration_decider *m)
{
    lh_host_exchange_free(m->open.exchange);
    lhi_layer_migration_free(m->open.layers);
    m->open = (lhi_migration){0};
}

void lhi_migration_decider_free(lhi_migration_decider *m)
{
    if (!m)
        return;
    close_proposal(m);
    lh_schedule_free(m->schedule);
    free(m->links);
    free(m->hosts);
    free(m->layer_counts);
    free(m->relays);
    lhi_slow_hosts_free(m->slow);
    free(m->pass_ns);
    free(m->hop_ns);
    free(m);
}

lh_status lhi_migration_decider_make_pipeline(const lhi_migration_decider *m,
                                              const lh_pipeline *first,
                                              lh_pipeline **out, lh_error *err)
{
    *out = NULL;
    if (!m->layer_counts)
        return LH_OK;
    return lh_layers_pipeline(m->job->assignment_limits.layers, first,
                              m->layer_counts, out, err);
}

/* Returns the schedule that the run follows now: the last accepted one or the
 * initial one. */
static const lh_schedule *get_current_schedule(const lhi_migration_decider *m)
{
    return m->schedule ? m->schedule : m->job->exec->schedule;
}

/* Fills in the result from the migration in m->open: new hosts or layers per
 * chunk, relays and predicted times. */
static void fill_decision(lhi_migration_decider *m,
                          lhi_migration_decider_result *out)
{
    const lh_host_exchange *x = m->open.exchange;
    const lh_layer_migration *l = m->open.layers;
    for (uint32_t i = 0; x && i < x->n_hosts; i++)
        m->relays[i] = LH_NONE;
    for (uint32_t i = 0; x && i < x->n_moves; i++)
        m->relays[x->moves[i].place] = x->moves[i].relay;
    *out = (lhi_migration_decider_result){
        .proposal = {.size = sizeof out->proposal,
                     .schedule = get_current_schedule(m),
                     .name = m->name,
                     .why = x ? x->why : l->why,
                     .override_path = true,
                     .path = m->path,
                     .delegated = m->links,
                     .predicted_ns = x ? x->predicted_ns : l->predicted_ns,
                     .layers = l ? l->layer_counts : NULL,
                     .hosts = x ? x->hosts : NULL,
                     .relay_ranks = x ? m->relays : NULL,
                     .move_ns = x ? x->move_ns : l->move_ns},
        .now_ns = x ? x->current_ns : l->current_ns};
}

/* On the cpu device, copies the run's host placement model with the pass times
 * of `measured` into *out. On other devices *out is NULL: the caller then uses
 * the event timeline's model. */
static lh_status make_measured_placement(const lhi_migration_decider *m,
                                         const lh_pipeline *measured,
                                         lh_host_placement **out, lh_error *err)
{
    *out = NULL;
    if (!m->job->model || !m->job->adapt.moves_hosts)
        return LH_OK;
    return lhi_host_placement_with_times(m->job->o.event_timeline->placement,
                                         measured, out, err);
}

lh_status lhi_migration_decider_find(lhi_migration_decider *m,
                                     const lhi_migration_decider_input *seen,
                                     lhi_migration_decider_result *out,
                                     bool *moves, lh_error *err)
{
    const lh_train_adapt *a = &m->job->adapt;
    const lh_event_timeline *timeline = m->job->o.event_timeline;
    const lh_sim_options sim =
        lhi_exec_sim_options_on(m->job->exec, m->path, m->links);
    lh_host_placement *paced;
    *moves = false;
    LHI_TRY(make_measured_placement(m, seen->estimated, &paced, err));
    const lhi_migration_state now = {
        .slow = m->slow,
        .placement = paced || !m->slow ? paced : timeline->placement,
        .layers = a->moves_layers ? m->job->assignment_limits.layers : NULL,
        .may_be_slow = m->job->n_restarts > 0,
        .layer_ns = a->layer_ns,
        .hosts = m->hosts,
        .layer_counts = m->layer_counts,
        .assignment = m->spot,
        .monitor = seen->monitor,
        .n_events = seen->n_notices,
        .estimated = seen->estimated,
        .schedule = get_current_schedule(m),
        .sim = &sim,
        .decision = seen->decision,
        .noise = seen->noise};
    lh_status status = lhi_migration_find(&m->tried, &now, &m->open, err);
    lh_host_placement_free(paced);
    LHI_TRY(status);
    *moves = m->open.exchange || m->open.layers;
    if (*moves)
        fill_decision(m, out);
    return LH_OK;
}

/* Replaces the array *to, which it frees, by a copy of `n` numbers. */
static lh_status replace_numbers(const uint32_t *from, uint32_t n,
                                 uint32_t **to, lh_error *err)
{
    uint32_t *copy = calloc((size_t)n + 1, sizeof *copy);
    if (!copy)
        return lhi_fail_nomem(err);
    memcpy(copy, from, n * sizeof *copy);
    free(*to);
    *to = copy;
    return LH_OK;
}

lh_status lhi_migration_decider_record_verdict(lhi_migration_decider *m,
                                               bool followed, bool *layers,
                                               lh_error *err)
{
    lh_status status = LH_OK;
    *layers = followed && m->open.layers;
    if (followed && m->open.exchange)
        status = replace_numbers(m->open.exchange->hosts,
                                 m->open.exchange->n_hosts, &m->hosts, err);
    else if (followed)
        status =
            replace_numbers(m->open.layers->layer_counts,
                            m->open.layers->n_chunks, &m->layer_counts, err);
    if (status == LH_OK && followed && m->open.exchange)
        lhi_slow_hosts_exchange(m->slow, m->hosts);
    m->spot += followed;
    close_proposal(m);
    return status;
}

lh_status lhi_migration_decider_record_schedule(lhi_migration_decider *m,
                                                const lh_reschedule *what,
                                                lh_error *err)
{
    size_t n = m->job->pipeline->n_links;
    lh_schedule *schedule;
    bool *links = NULL;
    LHI_TRY(lhi_schedule_copy(what->schedule, &schedule, err));
    if (what->delegated && !(links = calloc(n + 1, sizeof *links))) {
        lh_schedule_free(schedule);
        return lhi_fail_nomem(err);
    }
    if (links)
        memcpy(links, what->delegated, n * sizeof *links);
    lh_schedule_free(m->schedule);
    free(m->links);
    m->schedule = schedule;
    m->links = links;
    m->path = what->path;
    lhi_text_copy(m->name, sizeof m->name, what->name);
    return LH_OK;
}
