/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates an adaptive run in virtual time. Each iteration is simulated, the
 * monitor receives the measurements a real run would produce, and decisions
 * take effect some steps later. */
#include "resilience/adapt/emulation_internal.h"

#include "base/options.h"
#include "resilience/event_timeline/timeline.h"
#include "resilience/monitor/monitor.h"
#include "resilience/placement/placement.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/pipeline/schedule_internal.h"

#include <longhaul/experimental/simulate.h>

#include <stdlib.h>
#include <string.h>

/* --- one iteration -------------------------------------------------------- */

/* Returns the time in ns of one copy between device and host memory that a
 * delegated message on link `link` needs at each end. */
static int64_t compute_staging_time(const lhi_emulation_run *p, uint32_t link)
{
    const lh_delegation *d = p->adapt_options.delegation;
    return d->link_staging_ns ? d->link_staging_ns[link] : d->staging_ns;
}

/* Stores the simulated messages of timeline `t` in `m` as measurements on the
 * network: without the copies through host memory before and after. Skips
 * messages that use no link. `v`: determines which links are delegated. */
static void record_messages(const lhi_emulation_run *p,
                            const lhi_emulation_version *v,
                            const lh_timeline *t, lhi_emulated_iteration *m)
{
    uint32_t n, links = lh_pipeline_n_links(p->assignments[0].pipelines[0]);
    const lh_message *all = lh_timeline_messages(t, &n);
    m->observation.n_messages = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (all[i].link >= links) /* LH_NONE, or a link for the copies alone */
            continue;
        bool staged = v->path == LH_DATA_PATH_DELEGATED ||
                      (v->links && v->links[all[i].link]);
        int64_t copy = staged ? compute_staging_time(p, all[i].link) : 0;
        m->messages[m->observation.n_messages++] =
            (lh_observed_message){.link = all[i].link,
                                  .produced_ns = all[i].produced_ns + copy,
                                  .posted_ns = staged ? 0 : all[i].ready_ns,
                                  .entered_ns = all[i].depart_ns + copy,
                                  .arrived_ns = all[i].arrive_ns - copy};
    }
    m->observation.messages = m->messages;
}

/* Stores the simulated durations of all passes in timeline `t` in `m` as
 * measurements, except copies through host memory, which the simulator
 * represents as passes. */
static void record_passes(const lh_pipeline *pipeline, const lh_timeline *t,
                          lhi_emulated_iteration *m)
{
    m->observation.n_passes = 0;
    for (uint32_t d = 0; d < lh_timeline_n_devices(t); d++) {
        uint32_t n;
        const lh_timeline_run *runs = lh_timeline_runs(t, d, &n);
        for (uint32_t i = 0; i < n; i++) {
            const lh_pass *pass = &runs[i].pass;
            m->passes[m->observation.n_passes++] =
                (lh_observed_pass){*pass, lhi_pass_duration(pipeline, pass)};
        }
    }
    m->observation.passes = m->passes;
}

/* Stores the simulated all-gathers and reduce-scatters of whole chunks in `m`
 * as measurements. Skips collectives of buckets (parts of a chunk), whose
 * durations are not comparable. */
static void record_collectives(const lh_pipeline *pipeline,
                               const lh_timeline *t, lhi_emulated_iteration *m)
{
    uint32_t n;
    const lh_collective *all = lh_timeline_collectives(t, &n);
    m->observation.n_collectives = 0;
    for (uint32_t i = 0; i < n; i++) {
        const lh_chunk *k = &pipeline->chunks[all[i].chunk];
        int64_t ns =
            k->dp_latency_ns + (all[i].is_reduce_scatter ? k->reduce_scatter_ns
                                                         : k->all_gather_ns);
        if (all[i].op == LH_NONE)
            m->collectives[m->observation.n_collectives++] =
                (lh_observed_collective){all[i].chunk, all[i].is_reduce_scatter,
                                         ns};
    }
    m->observation.collectives = m->collectives;
}

/* Frees one iteration's measurement arrays and sets `m` to zeros. */
static void free_measurements(lhi_emulated_iteration *m)
{
    free(m->messages);
    free(m->passes);
    free(m->collectives);
    *m = (lhi_emulated_iteration){0};
}

/* Converts a simulated iteration into the measurements that a real run would
 * make, in new arrays of `m`; release them with free_measurements(). */
static lh_status record_measurements(const lhi_emulation_run *p,
                                     const lhi_emulation_version *v,
                                     const lh_pipeline *pipeline,
                                     const lh_timeline *t,
                                     lhi_emulated_iteration *m, lh_error *err)
{
    uint32_t n_messages, n_collectives;
    size_t n_passes = 0;
    lh_timeline_messages(t, &n_messages);
    lh_timeline_collectives(t, &n_collectives);
    for (uint32_t d = 0; d < lh_timeline_n_devices(t); d++) {
        uint32_t n;
        lh_timeline_runs(t, d, &n);
        n_passes += n;
    }
    free_measurements(m);
    m->messages = calloc(n_messages + (size_t)1, sizeof *m->messages);
    m->passes = calloc(n_passes + 1, sizeof *m->passes);
    m->collectives = calloc(n_collectives + (size_t)1, sizeof *m->collectives);
    if (!m->messages || !m->passes || !m->collectives)
        return lhi_fail_nomem(err);
    m->observation.size = sizeof m->observation;
    m->ns = lh_timeline_makespan(t);
    record_messages(p, v, t, m);
    record_passes(pipeline, t, m);
    record_collectives(pipeline, t, m);
    m->is_known = true;
    return LH_OK;
}

/* Simulates an iteration of `pipeline` with the schedule and data path of
 * version `v`; the caller frees the timeline *out. */
static lh_status simulate_path(const lhi_emulation_run *p,
                               const lhi_emulation_version *v,
                               const lh_pipeline *pipeline, lh_timeline **out,
                               lh_error *err)
{
    const lh_sim_options *sim = p->adapt_options.sim;
    if (v->path == LH_DATA_PATH_DIRECT)
        return lh_simulate(pipeline, v->schedule, sim, out, err);
    lh_delegation d = *p->adapt_options.delegation;
    lh_pipeline *staged;
    lh_sim_options how;
    d.links = v->links;
    LHI_TRY(lh_delegate(pipeline, sim, &d, &staged, &how, err));
    lh_status status = lh_simulate(staged, v->schedule, &how, out, err);
    lh_pipeline_free(staged);
    return status;
}

/* Simulates one iteration of version `v` (schedule, data path, hosts and
 * layers) and stores its times in `m` as measurements. `pipeline` has the
 * initial layers per chunk, to whose passes the measurements refer. */
static lh_status simulate_version(const lhi_emulation_run *p,
                                  const lhi_emulation_version *v,
                                  const lh_pipeline *pipeline,
                                  lhi_emulated_iteration *m, lh_error *err)
{
    lh_timeline *t = NULL;
    lh_pipeline *shared;
    LHI_TRY(
        lhi_emulation_assign_layers(p, v->assignment, pipeline, &shared, err));
    lh_status status = simulate_path(p, v, shared, &t, err);
    lh_pipeline_free(shared);
    if (status == LH_OK)
        status = record_measurements(p, v, pipeline, t, m, err);
    lh_timeline_free(t);
    return status;
}

/* Simulates step `step` and sets *out to its measurements, owned by the run.
 * Without jitter, simulates each state (active event set) with each version
 * (schedule, data path, hosts, layers) once. */
static lh_status simulate_step(lhi_emulation_run *p, uint64_t step,
                               lhi_emulated_iteration **out, lh_error *err)
{
    uint32_t state = lh_event_timeline_state(p->timeline, step);
    const lhi_emulation_version *v = &p->out->versions[p->running];
    LHI_TRY(lhi_emulation_require_pipeline(p, v->assignment, state, err));
    const lhi_emulation_assignment *spot = &p->assignments[v->assignment];
    if (p->jitter) {
        lhi_jitter_sampler *draws = spot->samples[state];
        lhi_jitter_sampler_draw(draws, (uint32_t)step);
        *out = &p->sampled;
        return simulate_version(p, v, lhi_jitter_sampler_get_pipeline(draws),
                                &p->sampled, err);
    }
    *out = &p->cached[p->running][state];
    return (*out)->is_known
               ? LH_OK
               : simulate_version(p, v, spot->pipelines[state], *out, err);
}

/* --- decisions ------------------------------------------------------------ */

/* Appends a version (schedule, data path, hosts and layers) with decision d's
 * schedule, which starts to run at step `at`. */
static lh_status add_switch(lhi_emulation_run *p, const lh_decision *d,
                            uint64_t at, lh_error *err)
{
    lh_emulation *o = p->out;
    const char *why = lhi_arena_strdup(o->mem, d->why);
    if (!why)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_emulation_add_version(p, d->name, d->schedule, d->path,
                                      d->delegated,
                                      o->versions[p->running].assignment, err));
    lhi_emulation_version *to = &o->versions[o->n_versions - 1];
    o->switches[o->n_switches++] =
        (lh_emulated_switch){.step = at,
                             .from = to[-1].name,
                             .to = to->name,
                             .path = to->path,
                             .delegated = to->links,
                             .before_ns = d->current_ns,
                             .predicted_ns = d->predicted_ns,
                             .bound_ns = d->bound_ns,
                             .why = why};
    p->pending_step = at;
    return LH_OK;
}

/* If decision `d` is a switch, appends its version (schedule, data path, hosts
 * and layers), to run later. If a host or layer migration is better, appends
 * that instead and rejects the switch. `estimated`: the pipeline measured by
 * the monitor. */
static lh_status apply_decision(lhi_emulation_run *p, uint64_t step,
                                const lh_pipeline *estimated,
                                const lh_decision *d, lh_error *err)
{
    bool moves = false;
    bool is_free = p->pending_step == UINT64_MAX;
    if (is_free)
        LHI_TRY(
            lhi_emulation_find_migration(p, step, estimated, d, &moves, err));
    if (d->is_switch && moves)
        return lh_adapt_confirm(p->adapt, step + 1, false, err);
    return d->is_switch
               ? add_switch(p, d, step + 1 + LH_ADAPT_DECISION_LATENCY, err)
               : LH_OK;
}

/* Decides after step `step`, with the pipeline that the monitor estimates, on a
 * switch or migration, and appends its version. Does nothing while an earlier
 * one has not started to run. */
static lh_status decide(lhi_emulation_run *p, uint64_t step, lh_error *err)
{
    lh_adapt_input now = {.size = sizeof now,
                          .step = step,
                          .steps_left = p->out->n_steps - step - 1};
    const lh_decision *d;
    lh_pipeline *estimated, *shared;
    uint32_t spot = p->out->versions[p->running].assignment;
    /* A migration is pending; all other decisions wait for it. */
    if (p->pending_step != UINT64_MAX &&
        p->out->versions[p->out->n_versions - 1].origin != LHI_ORIGIN_SWITCH)
        return LH_OK;
    LHI_TRY(lh_monitor_pipeline(p->monitor, &estimated, err));
    lh_status status =
        lhi_emulation_assign_layers(p, spot, estimated, &shared, err);
    if (status == LH_OK) {
        now.pipeline = shared;
        now.events = lh_monitor_active_events(p->monitor, &now.n_events);
        status = lh_adapt_decide(p->adapt, &now, &d, err);
        lh_pipeline_free(shared);
    }
    if (status == LH_OK)
        status = apply_decision(p, step, estimated, d, err);
    lh_pipeline_free(estimated);
    return status;
}

/* Starts the pending version (schedule, data path, hosts and layers) if `step`
 * is its first step. *moving_ns: time of the migration before this step if
 * hosts or layers move, else unchanged. */
static lh_status activate_pending(lhi_emulation_run *p, uint64_t step,
                                  int64_t *moving_ns, lh_error *err)
{
    if (step != p->pending_step)
        return LH_OK;
    p->pending_step = UINT64_MAX;
    const lhi_emulation_version *v = &p->out->versions[++p->running];
    if (v->origin != LHI_ORIGIN_SWITCH) {
        const lh_emulation *o = p->out;
        *moving_ns = v->origin == LHI_ORIGIN_EXCHANGE
                         ? o->exchanges[o->n_exchanges - 1].move_ns
                         : o->layers[o->n_layers - 1].move_ns;
        /* After a host exchange the monitor's notices trigger the new search.
         */
        if (v->origin == LHI_ORIGIN_LAYERS)
            lhi_adapt_request_search(p->adapt);
        if (v->origin == LHI_ORIGIN_EXCHANGE)
            lhi_slow_hosts_exchange(p->slow,
                                    p->assignments[v->assignment].hosts);
        return LH_OK;
    }
    const lh_sim_options how = lhi_emulation_sim_options(p, v);
    LHI_TRY(
        lhi_monitor_set_schedule_and_path(p->monitor, v->schedule, &how, err));
    return lh_adapt_confirm(p->adapt, step, true, err);
}

/* Simulates all steps in order. In each step: starts the pending version
 * (schedule, data path, hosts and layers) if due, simulates, passes the
 * measurements to the monitor, and decides on the next switch. */
static lh_status simulate_all(lhi_emulation_run *p, lh_error *err)
{
    lh_emulation *o = p->out;
    for (uint64_t i = 0; i < o->n_steps; i++) {
        lhi_emulated_iteration *m;
        uint32_t n_events;
        int64_t moving_ns = 0;
        LHI_TRY(activate_pending(p, i, &moving_ns, err));
        LHI_TRY(simulate_step(p, i, &m, err));
        const lhi_emulation_version *v = &o->versions[p->running];
        o->steps[i] =
            (lh_emulated_step){m->ns + moving_ns, v->name, v->path, v->links};
        m->observation.step = i;
        LHI_TRY(lh_monitor_add(p->monitor, &m->observation, err));
        lhi_monitor_events(p->monitor, &n_events);
        p->n_events += n_events;
        if (p->slow)
            LHI_TRY(lhi_emulation_measure_hosts(p, i, err));
        LHI_TRY(decide(p, i, err));
    }
    return LH_OK;
}

/* --- run ------------------------------------------------------------------ */

/* Allocates the result's arrays, and creates the monitor, the decision maker,
 * and the initial version (schedule, data path, hosts and layers). */
static lh_status set_up(lhi_emulation_run *p, const lh_schedule *schedule,
                        lh_error *err)
{
    lh_emulation *o = p->out;
    o->mem = lhi_arena_make(0);
    o->steps = calloc(o->n_steps + 1, sizeof *o->steps);
    if (!o->mem || !o->steps)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_emulation_add_assignment(p, NULL, NULL, err));
    LHI_TRY(lhi_emulation_require_pipeline(p, 0, 0, err));
    const lh_pipeline *quiet = p->assignments[0].pipelines[0];
    const lh_monitor_options m = {.size = sizeof m,
                                  .sim = p->adapt_options.sim};
    LHI_TRY(lh_monitor_make(quiet, schedule, &m, &p->monitor, err));
    LHI_TRY(lh_adapt_make(quiet, schedule, &p->adapt_options, &p->adapt, err));
    return lhi_emulation_add_version(p, lh_adapt_candidate(0), schedule,
                                     LH_DATA_PATH_DIRECT, NULL, 0, err);
}

/* Creates the search for slow hosts and links, and the arrays for its
 * measurements per place and hop (traffic between two places). */
static lh_status set_up_hosts(lhi_emulation_run *p, lh_error *err)
{
    uint32_t n;
    const lh_host_placement *places = p->timeline->placement;
    LHI_TRY(lhi_slow_hosts_make(places, &p->slow, err));
    lhi_slow_hosts_hops(p->slow, &n);
    p->pass_ns = calloc(lhi_host_placement_n_hosts(places), sizeof *p->pass_ns);
    p->hop_ns = calloc(n + (size_t)1, sizeof *p->hop_ns);
    return p->pass_ns && p->hop_ns ? LH_OK : lhi_fail_nomem(err);
}

/* Frees all memory of an emulation run except its result `p->out`. */
static void tear_down(lhi_emulation_run *p)
{
    uint32_t states = lh_event_timeline_n_states(p->timeline);
    for (uint32_t s = 0; s < states; s++)
        for (uint32_t v = 0; v < p->n_cached; v++)
            free_measurements(&p->cached[v][s]);
    for (uint32_t v = 0; v < p->n_cached; v++)
        free(p->cached[v]);
    free(p->cached);
    lhi_emulation_free_assignments(p);
    free_measurements(&p->sampled);
    lh_monitor_free(p->monitor);
    lh_adapt_free(p->adapt);
    lhi_slow_hosts_free(p->slow);
    free(p->pass_ns);
    free(p->hop_ns);
}

/* Removes the versions (schedule, data path, hosts and layers) at the end of
 * the result's list that no simulated step ran. */
static void drop_pending(lhi_emulation_run *p)
{
    lh_emulation *o = p->out;
    while (o->n_versions > p->running + 1) {
        lhi_emulation_version *last = &o->versions[--o->n_versions];
        lh_schedule_free(last->schedule);
        uint32_t *n = last->origin == LHI_ORIGIN_SWITCH     ? &o->n_switches
                      : last->origin == LHI_ORIGIN_EXCHANGE ? &o->n_exchanges
                                                            : &o->n_layers;
        --*n;
    }
}

lh_status lh_adapt_emulate(const lh_event_timeline *timeline,
                           const lh_schedule *schedule,
                           const lh_adapt_emulate_options *options,
                           uint64_t n_steps, lh_emulation **out, lh_error *err)
{
    lh_adapt_emulate_options o;
    lhi_emulation_run p = {.timeline = timeline, .pending_step = UINT64_MAX};
    LHI_TRY(LHI_OPTIONS_COPY(lh_adapt_emulate_options, &o, options, err));
    LHI_TRY(LHI_OPTIONS_COPY(lh_adapt_options, &p.adapt_options, o.adapt, err));
    p.jitter = o.jitter;
    p.layers = o.layers;
    p.layer_ns = o.layer_ns;
    p.adapt_options.size = sizeof p.adapt_options;
    LHI_TRY(lhi_event_timeline_check_simulated(timeline, err));
    if (!(p.out = calloc(1, sizeof *p.out)))
        return lhi_fail_nomem(err);
    p.out->n_steps = n_steps;
    lh_status status = set_up(&p, schedule, err);
    if (status == LH_OK && o.exchange && timeline->placement)
        status = set_up_hosts(&p, err);
    if (status == LH_OK)
        status = simulate_all(&p, err);
    drop_pending(&p);
    tear_down(&p);
    if (status == LH_OK)
        *out = p.out;
    else
        lh_emulation_free(p.out);
    return status;
}

/* Frees an emulation with its steps, switches and migrations; ignores NULL. */
void lh_emulation_free(lh_emulation *emulation)
{
    if (!emulation)
        return;
    for (uint32_t v = 0; v < emulation->n_versions; v++)
        lh_schedule_free(emulation->versions[v].schedule);
    free(emulation->versions);
    free(emulation->switches);
    free(emulation->exchanges);
    free(emulation->layers);
    free(emulation->steps);
    lhi_arena_free(emulation->mem);
    free(emulation);
}

const lh_emulated_step *lh_emulation_steps(const lh_emulation *emulation,
                                           uint64_t *n_steps)
{
    *n_steps = emulation->n_steps;
    return emulation->steps;
}

/* Returns the schedule switches in order and their number; borrowed from the
 * emulation. */
const lh_emulated_switch *lh_emulation_switches(const lh_emulation *emulation,
                                                uint32_t *n_switches)
{
    *n_switches = emulation->n_switches;
    return emulation->switches;
}

const lh_emulated_exchange *
lh_emulation_exchanges(const lh_emulation *emulation, uint32_t *n_exchanges)
{
    *n_exchanges = emulation->n_exchanges;
    return emulation->exchanges;
}

const lh_emulated_migration *
lh_emulation_migrations(const lh_emulation *emulation, uint32_t *n_moves)
{
    *n_moves = emulation->n_layers;
    return emulation->layers;
}
