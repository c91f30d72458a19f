/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts that exchange their places in a run in virtual time. That something is
 * slow is noticed as by any run; which links between hosts are is then taken
 * from the events, as a run would have it from the times of a ring's hops. */
#include "adapt/play_own.h"

#include "course/course.h"
#include "pipe/pipeline_own.h"
#include "places/places_own.h"

#include <string.h>

/* Once for what is slow, and again when it has lasted for twice as long. */
static bool is_due(lhi_playing *p, uint32_t state, uint64_t lasts)
{
    uint32_t n, spot = p->out->versions[p->now].spot;
    lh_monitor_going_on(p->monitor, &n);
    if (n == 0 || lasts == 0)
        return false;
    if (p->was_tried && p->tried_state == state && p->tried_spot == spot &&
        lasts < 2 * p->tried_lasts)
        return false;
    p->was_tried = true;
    p->tried_state = state;
    p->tried_spot = spot;
    p->tried_lasts = lasts;
    return true;
}

/* Moving is to be better than what was decided, over the same iterations. */
static bool is_better(const lh_exchange *x, const lh_decision *d)
{
    double lasts = (double)d->lasts;
    return x->is_exchange &&
           (double)x->predicted_ns * lasts + (double)x->move_ns <
               (double)d->predicted_ns * lasts;
}

static lh_status add_exchange(lhi_playing *p, const lh_exchange *x, uint64_t at,
                              lh_error *err)
{
    lh_played *o = p->out;
    const lhi_version *now = &o->versions[p->now];
    const char *why = lhi_arena_strdup(o->mem, x->why);
    uint32_t *hosts = LHI_NEW(o->mem, uint32_t, x->n_hosts);
    if (!why || !hosts)
        return lhi_fail_nomem(err);
    memcpy(hosts, x->hosts, x->n_hosts * sizeof *hosts);
    LHI_TRY(lhi_spot_add(p, x->hosts, p->spots[now->spot].numbers, err));
    LHI_TRY(lhi_play_add(p, now->name, now->schedule, now->path, now->links,
                         p->n_spots - 1, err));
    o->versions[o->n_versions - 1].came = LHI_CAME_EXCHANGE;
    o->exchanges[o->n_exchanges++] =
        (lh_played_exchange){.step = at,
                             .n_hosts = x->n_hosts,
                             .hosts = hosts,
                             .n_moves = x->n_moves,
                             .before_ns = x->now_ns,
                             .predicted_ns = x->predicted_ns,
                             .move_ns = x->move_ns,
                             .why = why};
    p->follow_at = at;
    return LH_OK;
}

static lh_status find_exchange(const lhi_playing *p, uint32_t state,
                               uint64_t lasts, lh_exchange **out, lh_error *err)
{
    lh_hosts_now now;
    const lhi_version *v = &p->out->versions[p->now];
    const lh_sim_options sim = lhi_play_sim(p, v);
    const lh_exchange_options o = {.size = sizeof o,
                                   .hosts = p->spots[v->spot].hosts,
                                   .sim = &sim,
                                   .lasts = (double)lasts};
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_course_hosts(p->course, state, mem, &now, err);
    if (status == LH_OK)
        status = lh_places_exchange(p->course->places, &now, v->schedule, &o,
                                    out, err);
    lhi_arena_free(mem);
    return status;
}

lh_status lhi_play_hosts(lhi_playing *p, uint64_t step, const lh_decision *d,
                         bool *moves, lh_error *err)
{
    lh_exchange *x;
    uint32_t state = lh_course_state(p->course, step);
    if (!is_due(p, state, d->lasts))
        return LH_OK;
    LHI_TRY(find_exchange(p, state, d->lasts, &x, err));
    lh_status status = LH_OK;
    if (is_better(x, d)) {
        *moves = true;
        status = add_exchange(p, x, step + 1 + LH_ADAPT_GO_BY, err);
    }
    lh_exchange_free(x);
    return status;
}
