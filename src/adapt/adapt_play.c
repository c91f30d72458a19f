/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates an adaptive run in virtual time. Each iteration is simulated, the
 * monitor receives the measurements a real run would produce, and decisions
 * take effect some steps later. */
#include "adapt/play_own.h"

#include "base/take_options.h"
#include "course/course.h"
#include "pipe/pipeline_own.h"
#include "pipe/schedule_own.h"

#include <stdlib.h>
#include <string.h>

/* --- one iteration -------------------------------------------------------- */

static int64_t staging_of(const lhi_playing *p, uint32_t link)
{
    const lh_delegation *d = p->adapt_options.delegation;
    return d->link_staging_ns ? d->link_staging_ns[link] : d->staging_ns;
}

/* Records the messages as observed on the network. Staging copies are outside
 * it: a message enters after the copy out and has arrived before the copy in.
 * Messages over no link are not monitored. */
static void note_messages(const lhi_playing *p, const lhi_version *v,
                          const lh_timeline *t, lhi_played_iteration *m)
{
    uint32_t n, links = lh_pipeline_n_links(p->spots[0].pipelines[0]);
    const lh_message *all = lh_timeline_messages(t, &n);
    m->seen.n_messages = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (all[i].link >= links) /* LH_NONE, or a link for the copies alone */
            continue;
        bool staged = v->path == LH_DATA_PATH_DELEGATED ||
                      (v->links && v->links[all[i].link]);
        int64_t copy = staged ? staging_of(p, all[i].link) : 0;
        m->messages[m->seen.n_messages++] =
            (lh_seen_message){.link = all[i].link,
                              .produced_ns = all[i].produced_ns + copy,
                              .posted_ns = staged ? 0 : all[i].ready_ns,
                              .entered_ns = all[i].depart_ns + copy,
                              .arrived_ns = all[i].arrive_ns - copy};
    }
    m->seen.messages = m->messages;
}

/* Records the passes without copies to and from host memory; the simulator adds
 * those. */
static void note_passes(const lh_pipeline *pipeline, const lh_timeline *t,
                        lhi_played_iteration *m)
{
    m->seen.n_passes = 0;
    for (uint32_t d = 0; d < lh_timeline_n_devices(t); d++) {
        uint32_t n;
        const lh_timeline_run *runs = lh_timeline_runs(t, d, &n);
        for (uint32_t i = 0; i < n; i++) {
            const lh_pass *pass = &runs[i].pass;
            m->passes[m->seen.n_passes++] = (lh_seen_pass){
                *pass, lhi_pass_time(&pipeline->chunks[pass->chunk], pass)};
        }
    }
    m->seen.passes = m->passes;
}

/* Records whole chunks' collectives; only those compare with each other. */
static void note_collectives(const lh_pipeline *pipeline, const lh_timeline *t,
                             lhi_played_iteration *m)
{
    uint32_t n;
    const lh_collective *all = lh_timeline_collectives(t, &n);
    m->seen.n_collectives = 0;
    for (uint32_t i = 0; i < n; i++) {
        const lh_chunk *k = &pipeline->chunks[all[i].chunk];
        int64_t ns =
            k->dp_latency_ns + (all[i].is_reduce_scatter ? k->reduce_scatter_ns
                                                         : k->all_gather_ns);
        if (all[i].op == LH_NONE)
            m->collectives[m->seen.n_collectives++] = (lh_seen_collective){
                all[i].chunk, all[i].is_reduce_scatter, ns};
    }
    m->seen.collectives = m->collectives;
}

/* Frees one iteration's measurements and resets it. */
static void forget(lhi_played_iteration *m)
{
    free(m->messages);
    free(m->passes);
    free(m->collectives);
    *m = (lhi_played_iteration){0};
}

static lh_status measure(const lhi_playing *p, const lhi_version *v,
                         const lh_pipeline *pipeline, const lh_timeline *t,
                         lhi_played_iteration *m, lh_error *err)
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
    forget(m);
    m->messages = calloc(n_messages + (size_t)1, sizeof *m->messages);
    m->passes = calloc(n_passes + 1, sizeof *m->passes);
    m->collectives = calloc(n_collectives + (size_t)1, sizeof *m->collectives);
    if (!m->messages || !m->passes || !m->collectives)
        return lhi_fail_nomem(err);
    m->seen.size = sizeof m->seen;
    m->ns = lh_timeline_makespan(t);
    note_messages(p, v, t, m);
    note_passes(pipeline, t, m);
    note_collectives(pipeline, t, m);
    m->is_known = true;
    return LH_OK;
}

static lh_status simulate_path(const lhi_playing *p, const lhi_version *v,
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

/* Simulates one iteration on the version's data path with its layers per chunk.
 * Measurements refer to the initial layers per chunk, those of `pipeline`. */
static lh_status simulate_one(const lhi_playing *p, const lhi_version *v,
                              const lh_pipeline *pipeline,
                              lhi_played_iteration *m, lh_error *err)
{
    lh_timeline *t = NULL;
    lh_pipeline *shared;
    LHI_TRY(lhi_spot_share(p, v->spot, pipeline, &shared, err));
    lh_status status = simulate_path(p, v, shared, &t, err);
    lh_pipeline_free(shared);
    if (status == LH_OK)
        status = measure(p, v, pipeline, t, m, err);
    lh_timeline_free(t);
    return status;
}

/* Simulates a step. Without jitter, the result is cached per state and version.
 */
static lh_status play_step(lhi_playing *p, uint64_t step,
                           lhi_played_iteration **out, lh_error *err)
{
    uint32_t state = lh_course_state(p->course, step);
    const lhi_version *v = &p->out->versions[p->now];
    LHI_TRY(lhi_spot_need(p, v->spot, state, err));
    const lhi_spot *spot = &p->spots[v->spot];
    if (p->jitter) {
        lhi_jitter_draws *draws = spot->draws[state];
        lhi_jitter_draws_next(draws, (uint32_t)step);
        *out = &p->drawn;
        return simulate_one(p, v, lhi_jitter_draws_pipeline(draws), &p->drawn,
                            err);
    }
    *out = &p->known[p->now][state];
    return (*out)->is_known
               ? LH_OK
               : simulate_one(p, v, spot->pipelines[state], *out, err);
}

/* --- decisions ------------------------------------------------------------ */

static lh_status add_notices(lhi_playing *p, uint64_t step, lh_error *err)
{
    uint32_t n;
    lh_played *o = p->out;
    const lh_monitor_event *events = lh_monitor_events(p->monitor, &n);
    if (n > o->room_notices - o->n_notices) {
        uint32_t room = 2 * o->room_notices + n;
        lh_played_notice *more = realloc(o->notices, room * sizeof *more);
        if (!more)
            return lhi_fail_nomem(err);
        o->notices = more;
        o->room_notices = room;
    }
    for (uint32_t i = 0; i < n; i++)
        o->notices[o->n_notices++] = (lh_played_notice){step, events[i]};
    return LH_OK;
}

/* Adds a pending version for a schedule switch, active from step `at`. */
static lh_status add_switch(lhi_playing *p, const lh_decision *d, uint64_t at,
                            lh_error *err)
{
    lh_played *o = p->out;
    const char *why = lhi_arena_strdup(o->mem, d->why);
    if (!why)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_play_add(p, d->name, d->schedule, d->path, d->delegated,
                         o->versions[p->now].spot, err));
    lhi_version *to = &o->versions[o->n_versions - 1];
    o->switches[o->n_switches++] =
        (lh_played_switch){.step = at,
                           .from = to[-1].name,
                           .to = to->name,
                           .path = to->path,
                           .delegated = to->links,
                           .before_ns = d->now_ns,
                           .predicted_ns = d->predicted_ns,
                           .bound_ns = d->bound_ns,
                           .why = why};
    p->follow_at = at;
    return LH_OK;
}

/* Applies the decision; a migration of hosts or layers takes precedence and
 * refuses the switch. */
static lh_status act(lhi_playing *p, uint64_t step,
                     const lh_pipeline *estimated, const lh_decision *d,
                     lh_error *err)
{
    bool moves = false;
    bool is_free = p->follow_at == UINT64_MAX;
    if (is_free)
        LHI_TRY(lhi_play_moves(p, step, estimated, d, &moves, err));
    if (d->is_switch && moves)
        return lh_adapt_answer(p->adapt, step + 1, false, err);
    return d->is_switch ? add_switch(p, d, step + 1 + LH_ADAPT_GO_BY, err)
                        : LH_OK;
}

/* Makes the decision after a step. */
static lh_status decide(lhi_playing *p, uint64_t step, lh_error *err)
{
    lh_adapt_now now = {.size = sizeof now,
                        .step = step,
                        .steps_left = p->out->n_steps - step - 1};
    const lh_decision *d;
    lh_pipeline *estimated, *shared;
    uint32_t spot = p->out->versions[p->now].spot;
    /* A migration is pending; all other decisions wait for it. */
    if (p->follow_at != UINT64_MAX &&
        p->out->versions[p->out->n_versions - 1].came != LHI_CAME_SWITCH)
        return LH_OK;
    LHI_TRY(lh_monitor_pipeline(p->monitor, &estimated, err));
    lh_status status = lhi_spot_share(p, spot, estimated, &shared, err);
    if (status == LH_OK) {
        now.pipeline = shared;
        now.events = lh_monitor_going_on(p->monitor, &now.n_events);
        status = lh_adapt_decide(p->adapt, &now, &d, err);
        lh_pipeline_free(shared);
    }
    if (status == LH_OK)
        status = act(p, step, estimated, d, err);
    lh_pipeline_free(estimated);
    return status;
}

/* Activates the pending version at its step. *moving_ns: migration time before
 * the step, if hosts or layers move. */
static lh_status follow(lhi_playing *p, uint64_t step, int64_t *moving_ns,
                        lh_error *err)
{
    if (step != p->follow_at)
        return LH_OK;
    p->follow_at = UINT64_MAX;
    const lhi_version *v = &p->out->versions[++p->now];
    if (v->came != LHI_CAME_SWITCH) {
        const lh_played *o = p->out;
        *moving_ns = v->came == LHI_CAME_EXCHANGE
                         ? o->exchanges[o->n_exchanges - 1].move_ns
                         : o->layers[o->n_layers - 1].move_ns;
        /* After a host exchange the monitor's notices trigger the new search.
         */
        if (v->came == LHI_CAME_LAYERS)
            lhi_adapt_renew(p->adapt);
        return LH_OK;
    }
    const lh_sim_options how = lhi_play_sim(p, v);
    LHI_TRY(lh_monitor_follow_on(p->monitor, v->schedule, &how, err));
    return lh_adapt_answer(p->adapt, step, true, err);
}

static lh_status play_all(lhi_playing *p, lh_error *err)
{
    lh_played *o = p->out;
    for (uint64_t i = 0; i < o->n_steps; i++) {
        lhi_played_iteration *m;
        int64_t moving_ns = 0;
        LHI_TRY(follow(p, i, &moving_ns, err));
        LHI_TRY(play_step(p, i, &m, err));
        const lhi_version *v = &o->versions[p->now];
        o->steps[i] =
            (lh_played_step){m->ns + moving_ns, v->name, v->path, v->links};
        m->seen.step = i;
        LHI_TRY(lh_monitor_add(p->monitor, &m->seen, err));
        LHI_TRY(add_notices(p, i, err));
        LHI_TRY(decide(p, i, err));
    }
    return LH_OK;
}

/* --- run ------------------------------------------------------------------ */

static lh_status set_up(lhi_playing *p, const lh_schedule *schedule,
                        lh_error *err)
{
    lh_played *o = p->out;
    o->mem = lhi_arena_make(0);
    o->steps = calloc(o->n_steps + 1, sizeof *o->steps);
    if (!o->mem || !o->steps)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_spot_add(p, NULL, NULL, err));
    LHI_TRY(lhi_spot_need(p, 0, 0, err));
    const lh_pipeline *quiet = p->spots[0].pipelines[0];
    const lh_monitor_options m = {.size = sizeof m,
                                  .sim = p->adapt_options.sim};
    LHI_TRY(lh_monitor_make(quiet, schedule, &m, &p->monitor, err));
    LHI_TRY(lh_adapt_make(quiet, schedule, &p->adapt_options, &p->adapt, err));
    return lhi_play_add(p, lh_adapt_candidate(0), schedule, LH_DATA_PATH_DIRECT,
                        NULL, 0, err);
}

static void tear_down(lhi_playing *p)
{
    uint32_t states = lh_course_n_states(p->course);
    for (uint32_t s = 0; s < states; s++)
        for (uint32_t v = 0; v < p->n_known; v++)
            forget(&p->known[v][s]);
    for (uint32_t v = 0; v < p->n_known; v++)
        free(p->known[v]);
    free(p->known);
    lhi_spots_free(p);
    forget(&p->drawn);
    lh_monitor_free(p->monitor);
    lh_adapt_free(p->adapt);
}

/* Removes pending versions that no step reached. */
static void drop_late(lhi_playing *p)
{
    lh_played *o = p->out;
    while (o->n_versions > p->now + 1) {
        lhi_version *last = &o->versions[--o->n_versions];
        lh_schedule_free(last->schedule);
        uint32_t *n = last->came == LHI_CAME_SWITCH     ? &o->n_switches
                      : last->came == LHI_CAME_EXCHANGE ? &o->n_exchanges
                                                        : &o->n_layers;
        --*n;
    }
}

lh_status lh_adapt_play(const lh_course *course, const lh_schedule *schedule,
                        const lh_adapt_play_options *options, uint64_t n_steps,
                        lh_played **out, lh_error *err)
{
    lh_adapt_play_options o;
    lhi_playing p = {.course = course, .follow_at = UINT64_MAX};
    LHI_TRY(LHI_OPTIONS_TAKE(lh_adapt_play_options, &o, options, err));
    LHI_TRY(LHI_OPTIONS_TAKE(lh_adapt_options, &p.adapt_options, o.adapt, err));
    p.jitter = o.jitter;
    p.exchange = o.exchange && course->places;
    p.layers = o.layers;
    p.layer_ns = o.layer_ns;
    p.adapt_options.size = sizeof p.adapt_options;
    if (!(p.out = calloc(1, sizeof *p.out)))
        return lhi_fail_nomem(err);
    p.out->n_steps = n_steps;
    lh_status status = set_up(&p, schedule, err);
    if (status == LH_OK)
        status = play_all(&p, err);
    drop_late(&p);
    tear_down(&p);
    if (status == LH_OK)
        *out = p.out;
    else
        lh_played_free(p.out);
    return status;
}

void lh_played_free(lh_played *played)
{
    if (!played)
        return;
    for (uint32_t v = 0; v < played->n_versions; v++)
        lh_schedule_free(played->versions[v].schedule);
    free(played->versions);
    free(played->switches);
    free(played->exchanges);
    free(played->layers);
    free(played->notices);
    free(played->steps);
    lhi_arena_free(played->mem);
    free(played);
}

const lh_played_step *lh_played_steps(const lh_played *played,
                                      uint64_t *n_steps)
{
    *n_steps = played->n_steps;
    return played->steps;
}

const lh_played_switch *lh_played_switches(const lh_played *played,
                                           uint32_t *n_switches)
{
    *n_switches = played->n_switches;
    return played->switches;
}

const lh_played_exchange *lh_played_exchanges(const lh_played *played,
                                              uint32_t *n_exchanges)
{
    *n_exchanges = played->n_exchanges;
    return played->exchanges;
}

const lh_played_layers *lh_played_layer_moves(const lh_played *played,
                                              uint32_t *n_moves)
{
    *n_moves = played->n_layers;
    return played->layers;
}

const lh_played_notice *lh_played_notices(const lh_played *played,
                                          uint32_t *n_notices)
{
    *n_notices = played->n_notices;
    return played->notices;
}
