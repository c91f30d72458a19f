/* SPDX-License-Identifier: Apache-2.0 */
/* A run that adapts, in virtual time: each iteration is simulated, a monitor
 * gets what it would have measured, and what is decided is followed later. */
#include "adapt/adapt_own.h"

#include "base/arena.h"
#include "base/take_options.h"
#include "pipe/pipeline_own.h"
#include "pipe/schedule_own.h"
#include "sim/draws.h"

#include <stdlib.h>
#include <string.h>

/* What ran from some step on. */
typedef struct version {
    const char *name;
    lh_schedule *schedule;
    lh_data_path path;
    bool *links; /* mixed; else NULL */
} version;

/* One iteration as it is measured. */
typedef struct measured {
    bool is_known;
    int64_t ns;
    lh_seen seen;
    lh_seen_message *messages;
    lh_seen_pass *passes;
    lh_seen_collective *collectives;
} measured;

struct lh_played {
    lhi_arena *mem;
    uint64_t n_steps;
    lh_played_step *steps;
    uint32_t n_versions, n_notices, room_notices;
    version *versions; /* room for one more than there are, likewise: */
    lh_played_switch *switches; /* [n_versions - 1] led to versions[...] */
    lh_played_notice *notices;
};

/* One run under way. */
typedef struct play {
    const lh_course *course;
    lh_adapt_options adapt_options;
    const lh_jitter *jitter;
    lh_adapt *adapt;
    lh_monitor *monitor;
    lh_pipeline **pipelines;  /* per state; NULL: not needed yet */
    lhi_jitter_draws **draws; /* likewise */
    measured **known;         /* per version, per state */
    uint32_t n_known;         /* versions that have room there */
    measured drawn;           /* with jitter: the last one */
    uint64_t follow_at;       /* the last version; UINT64_MAX: it is followed */
    uint32_t now;             /* the version that runs */
    lh_played *out;
} play;

/* --- one iteration -------------------------------------------------------- */

static int64_t staging_of(const play *p, uint32_t link)
{
    const lh_delegation *d = p->adapt_options.delegation;
    return d->link_staging_ns ? d->link_staging_ns[link] : d->staging_ns;
}

/* Copies are not on the network: a message enters after the one and has
 * arrived before the other. Those over no link are not watched. */
static void note_messages(const play *p, const version *v, const lh_timeline *t,
                          measured *m)
{
    uint32_t n, links = lh_pipeline_n_links(p->pipelines[0]);
    const lh_message *all = lh_timeline_messages(t, &n);
    m->seen.n_messages = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (all[i].link >= links) /* LH_NONE, or one for the copies alone */
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

/* Without copies to and from host memory, which whoever simulates adds. */
static void note_passes(const lh_pipeline *pipeline, const lh_timeline *t,
                        measured *m)
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

/* Those of a whole chunk, which alone can be compared with each other. */
static void note_collectives(const lh_timeline *t, measured *m)
{
    uint32_t n;
    const lh_collective *all = lh_timeline_collectives(t, &n);
    m->seen.n_collectives = 0;
    for (uint32_t i = 0; i < n; i++)
        if (all[i].op == LH_NONE)
            m->collectives[m->seen.n_collectives++] =
                (lh_seen_collective){all[i].chunk, all[i].is_reduce_scatter,
                                     all[i].arrive_ns - all[i].depart_ns};
    m->seen.collectives = m->collectives;
}

static void forget(measured *m)
{
    free(m->messages);
    free(m->passes);
    free(m->collectives);
    *m = (measured){0};
}

static lh_status measure(const play *p, const version *v,
                         const lh_pipeline *pipeline, const lh_timeline *t,
                         measured *m, lh_error *err)
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
    note_collectives(t, m);
    m->is_known = true;
    return LH_OK;
}

/* On the version's path. */
static lh_status simulate_one(const play *p, const version *v,
                              const lh_pipeline *pipeline, measured *m,
                              lh_error *err)
{
    const lh_sim_options *sim = p->adapt_options.sim;
    lh_timeline *t = NULL;
    lh_status status;
    if (v->path == LH_DATA_PATH_DIRECT) {
        status = lh_simulate(pipeline, v->schedule, sim, &t, err);
    } else {
        lh_delegation d = *p->adapt_options.delegation;
        lh_pipeline *staged;
        lh_sim_options how;
        d.links = v->links;
        LHI_TRY(lh_delegate(pipeline, sim, &d, &staged, &how, err));
        status = lh_simulate(staged, v->schedule, &how, &t, err);
        lh_pipeline_free(staged);
    }
    if (status == LH_OK)
        status = measure(p, v, pipeline, t, m, err);
    lh_timeline_free(t);
    return status;
}

static lh_status need_state(play *p, uint32_t state, lh_error *err)
{
    if (!p->pipelines[state])
        LHI_TRY(
            lh_course_pipeline(p->course, state, &p->pipelines[state], err));
    if (p->jitter && !p->draws[state])
        return lhi_jitter_draws_make(p->pipelines[state], p->jitter,
                                     &p->draws[state], err);
    return LH_OK;
}

/* Without jitter iterations of one state and version are one. */
static lh_status play_step(play *p, uint64_t step, measured **out,
                           lh_error *err)
{
    uint32_t state = lh_course_state(p->course, step);
    const version *v = &p->out->versions[p->now];
    LHI_TRY(need_state(p, state, err));
    if (p->jitter) {
        lhi_jitter_draws_next(p->draws[state], (uint32_t)step);
        *out = &p->drawn;
        return simulate_one(p, v, lhi_jitter_draws_pipeline(p->draws[state]),
                            &p->drawn, err);
    }
    *out = &p->known[p->now][state];
    return (*out)->is_known
               ? LH_OK
               : simulate_one(p, v, p->pipelines[state], *out, err);
}

/* --- what comes of it ----------------------------------------------------- */

static lh_status add_notices(play *p, uint64_t step, lh_error *err)
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

/* Room for one more version, everywhere. */
static lh_status make_room(play *p, lh_error *err)
{
    lh_played *o = p->out;
    size_t n = (size_t)o->n_versions + 1;
    version *versions = realloc(o->versions, n * sizeof *versions);
    if (versions)
        o->versions = versions;
    lh_played_switch *switches = realloc(o->switches, n * sizeof *switches);
    if (switches)
        o->switches = switches;
    measured **known = realloc(p->known, n * sizeof *known);
    if (known)
        p->known = known;
    if (!versions || !switches || !known)
        return lhi_fail_nomem(err);
    known[n - 1] = calloc(lh_course_n_states(p->course), sizeof **known);
    if (!known[n - 1])
        return lhi_fail_nomem(err);
    p->n_known = (uint32_t)n;
    return LH_OK;
}

static lh_status add_version(play *p, const char *name,
                             const lh_schedule *schedule, lh_data_path path,
                             const bool *links, lh_error *err)
{
    lh_played *o = p->out;
    uint32_t n = lh_pipeline_n_links(p->pipelines[0]);
    version v = {.name = name, .path = path};
    LHI_TRY(make_room(p, err));
    if (links) {
        v.links = LHI_NEW(o->mem, bool, n);
        if (!v.links)
            return lhi_fail_nomem(err);
        memcpy(v.links, links, n * sizeof *links);
    }
    LHI_TRY(lhi_schedule_copy(schedule, &v.schedule, err));
    o->versions[o->n_versions++] = v;
    return LH_OK;
}

static lh_status add_switch(play *p, const lh_decision *d, uint64_t at,
                            lh_error *err)
{
    lh_played *o = p->out;
    const char *why = lhi_arena_strdup(o->mem, d->why);
    if (!why)
        return lhi_fail_nomem(err);
    LHI_TRY(add_version(p, d->name, d->schedule, d->path, d->delegated, err));
    version *to = &o->versions[o->n_versions - 1];
    o->switches[o->n_versions - 2] =
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

/* After a step. */
static lh_status decide(play *p, uint64_t step, lh_error *err)
{
    lh_adapt_now now = {.size = sizeof now,
                        .step = step,
                        .steps_left = p->out->n_steps - step - 1};
    const lh_decision *d;
    lh_pipeline *estimated;
    LHI_TRY(lh_monitor_pipeline(p->monitor, &estimated, err));
    now.pipeline = estimated;
    now.events = lh_monitor_going_on(p->monitor, &now.n_events);
    lh_status status = lh_adapt_decide(p->adapt, &now, &d, err);
    lh_pipeline_free(estimated);
    if (status == LH_OK && d->is_switch)
        status = add_switch(p, d, step + 1 + LH_ADAPT_GO_BY, err);
    return status;
}

static lh_status follow(play *p, uint64_t step, lh_error *err)
{
    if (step != p->follow_at)
        return LH_OK;
    p->follow_at = UINT64_MAX;
    const version *v = &p->out->versions[++p->now];
    lh_sim_options how = {.size = sizeof how};
    if (p->adapt_options.sim)
        how = *p->adapt_options.sim;
    if (v->path == LH_DATA_PATH_DELEGATED) {
        how.coupled_queue = 0;
        how.receives = LH_RECEIVES_EARLY;
        how.own_receives = true;
    }
    if (v->path != LH_DATA_PATH_DIRECT)
        how.delegated = v->links;
    LHI_TRY(lh_monitor_follow_on(p->monitor, v->schedule, &how, err));
    return lh_adapt_answer(p->adapt, step, true, err);
}

static lh_status play_all(play *p, lh_error *err)
{
    lh_played *o = p->out;
    for (uint64_t i = 0; i < o->n_steps; i++) {
        measured *m;
        LHI_TRY(follow(p, i, err));
        LHI_TRY(play_step(p, i, &m, err));
        const version *v = &o->versions[p->now];
        o->steps[i] = (lh_played_step){m->ns, v->name, v->path, v->links};
        m->seen.step = i;
        LHI_TRY(lh_monitor_add(p->monitor, &m->seen, err));
        LHI_TRY(add_notices(p, i, err));
        LHI_TRY(decide(p, i, err));
    }
    return LH_OK;
}

/* --- the whole ------------------------------------------------------------ */

static lh_status set_up(play *p, const lh_schedule *schedule, lh_error *err)
{
    lh_played *o = p->out;
    uint32_t states = lh_course_n_states(p->course);
    p->pipelines = calloc(states, sizeof *p->pipelines);
    p->draws = calloc(states, sizeof *p->draws);
    o->mem = lhi_arena_make(0);
    o->steps = calloc(o->n_steps + 1, sizeof *o->steps);
    if (!p->pipelines || !p->draws || !o->mem || !o->steps)
        return lhi_fail_nomem(err);
    LHI_TRY(lh_course_pipeline(p->course, 0, &p->pipelines[0], err));
    const lh_monitor_options m = {.size = sizeof m,
                                  .sim = p->adapt_options.sim};
    LHI_TRY(lh_monitor_make(p->pipelines[0], schedule, &m, &p->monitor, err));
    LHI_TRY(lh_adapt_make(p->pipelines[0], schedule, &p->adapt_options,
                          &p->adapt, err));
    return add_version(p, lh_adapt_candidate(0), schedule, LH_DATA_PATH_DIRECT,
                       NULL, err);
}

static void tear_down(play *p)
{
    uint32_t states = lh_course_n_states(p->course);
    for (uint32_t s = 0; s < states; s++) {
        if (p->pipelines)
            lh_pipeline_free(p->pipelines[s]);
        if (p->draws)
            lhi_jitter_draws_free(p->draws[s]);
        for (uint32_t v = 0; v < p->n_known; v++)
            forget(&p->known[v][s]);
    }
    for (uint32_t v = 0; v < p->n_known; v++)
        free(p->known[v]);
    free(p->known);
    free(p->pipelines);
    free(p->draws);
    forget(&p->drawn);
    lh_monitor_free(p->monitor);
    lh_adapt_free(p->adapt);
}

/* A switch that no step was left for was none. */
static void drop_late(play *p)
{
    lh_played *o = p->out;
    while (o->n_versions > p->now + 1)
        lh_schedule_free(o->versions[--o->n_versions].schedule);
}

lh_status lh_adapt_play(const lh_course *course, const lh_schedule *schedule,
                        const lh_adapt_play_options *options, uint64_t n_steps,
                        lh_played **out, lh_error *err)
{
    lh_adapt_play_options o;
    play p = {.course = course, .follow_at = UINT64_MAX};
    LHI_TRY(LHI_OPTIONS_TAKE(lh_adapt_play_options, &o, options, err));
    LHI_TRY(LHI_OPTIONS_TAKE(lh_adapt_options, &p.adapt_options, o.adapt, err));
    p.jitter = o.jitter;
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
    *n_switches = played->n_versions - 1;
    return played->switches;
}

const lh_played_notice *lh_played_notices(const lh_played *played,
                                          uint32_t *n_notices)
{
    *n_notices = played->n_notices;
    return played->notices;
}
