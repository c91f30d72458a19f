/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that move away from slow devices in a run in virtual time, and back
 * once these are well again. All that is measured is of the layers that each
 * chunk had at first, so that a device is as slow as it is whatever it has. */
#include "adapt/play_own.h"

#include "places/layers_own.h"

#include <string.h>

/* Estimates are not surer than that. */
static const double LEAST_GAIN = 0.002;

/* While a device is slow, or layers are away; once for what was noticed, and
 * again when it has lasted for twice as long. */
static bool is_due(lhi_playing *p, const lh_decision *d)
{
    uint32_t n, spot = p->out->versions[p->now].spot;
    const lh_monitor_event *all = lh_monitor_going_on(p->monitor, &n);
    bool is_slow = p->spots[spot].numbers != NULL;
    for (uint32_t i = 0; i < n; i++)
        is_slow = is_slow || all[i].what == LH_MONITOR_DEVICE;
    if (!is_slow || d->lasts == 0 ||
        (p->shared_notices == p->out->n_notices && p->shared_spot == spot &&
         d->lasts < 2 * p->shared_lasts))
        return false;
    p->shared_notices = p->out->n_notices;
    p->shared_spot = spot;
    p->shared_lasts = d->lasts;
    return true;
}

/* Moving is to be better than what was decided, over the same iterations. */
static bool is_better(const lh_layer_move *m, const lh_decision *d)
{
    double lasts = (double)d->lasts;
    return m->is_move &&
           (double)m->predicted_ns <= (1 - LEAST_GAIN) * (double)m->now_ns &&
           (double)m->predicted_ns * lasts + (double)m->move_ns <
               (double)d->predicted_ns * lasts;
}

static lh_status add_move(lhi_playing *p, const lh_layer_move *m, uint64_t at,
                          lh_error *err)
{
    lh_played *o = p->out;
    const lhi_version *now = &o->versions[p->now];
    const char *why = lhi_arena_strdup(o->mem, m->why);
    uint32_t *numbers = LHI_NEW(o->mem, uint32_t, m->n_chunks);
    if (!why || !numbers)
        return lhi_fail_nomem(err);
    memcpy(numbers, m->numbers, m->n_chunks * sizeof *numbers);
    LHI_TRY(lhi_spot_add(p, p->spots[now->spot].hosts, numbers, err));
    LHI_TRY(lhi_play_add(p, now->name, now->schedule, now->path, now->links,
                         p->n_spots - 1, err));
    o->versions[o->n_versions - 1].came = LHI_CAME_LAYERS;
    o->layers[o->n_layers++] =
        (lh_played_layers){.step = at,
                           .n_chunks = m->n_chunks,
                           .numbers = numbers,
                           .n_moves = m->n_moves,
                           .before_ns = m->now_ns,
                           .predicted_ns = m->predicted_ns,
                           .move_ns = m->move_ns,
                           .why = why};
    p->follow_at = at;
    return LH_OK;
}

lh_status lhi_play_layers(lhi_playing *p, uint64_t step,
                          const lh_pipeline *estimated, const lh_decision *d,
                          bool *moves, lh_error *err)
{
    if (!is_due(p, d))
        return LH_OK;
    lh_layer_move *m;
    const lhi_version *v = &p->out->versions[p->now];
    const lh_sim_options sim = lhi_play_sim(p, v);
    const lh_layers_options o = {.size = sizeof o,
                                 .numbers = p->spots[v->spot].numbers,
                                 .sim = &sim,
                                 .layer_ns = p->layer_ns,
                                 .lasts = (double)d->lasts};
    LHI_TRY(lh_layers_find(p->layers, estimated, v->schedule, &o, &m, err));
    lh_status status = LH_OK;
    if (is_better(m, d)) {
        *moves = true;
        status = add_move(p, m, step + 1 + LH_ADAPT_GO_BY, err);
    }
    lh_layer_move_free(m);
    return status;
}
