/* SPDX-License-Identifier: Apache-2.0 */
/* Host exchanges and layer migrations in a simulated run. All measurements
 * refer to each chunk's initial layers, so that a device's slowdown does not
 * depend on its present layers. */
#include "adapt/play_own.h"

#include <string.h>

/* Adds a pending version that differs from the running one in hosts or layers
 * per chunk. */
static lh_status add_version(lhi_playing *p, const uint32_t *hosts,
                             const uint32_t *numbers, lhi_came came,
                             lh_error *err)
{
    const lhi_version *now = &p->out->versions[p->now];
    LHI_TRY(lhi_spot_add(p, hosts, numbers, err));
    LHI_TRY(lhi_play_add(p, now->name, now->schedule, now->path, now->links,
                         p->n_spots - 1, err));
    p->out->versions[p->out->n_versions - 1].came = came;
    return LH_OK;
}

/* Copies an assignment and its reason into the run's memory. */
static lh_status keep_numbers(lhi_playing *p, const uint32_t *from, uint32_t n,
                              const char *text, uint32_t **numbers,
                              const char **why, lh_error *err)
{
    *why = lhi_arena_strdup(p->out->mem, text);
    *numbers = LHI_NEW(p->out->mem, uint32_t, n);
    if (!*why || !*numbers)
        return lhi_fail_nomem(err);
    memcpy(*numbers, from, n * sizeof **numbers);
    return LH_OK;
}

static lh_status add_exchange(lhi_playing *p, const lh_exchange *x, uint64_t at,
                              lh_error *err)
{
    lh_played *o = p->out;
    const char *why;
    uint32_t *hosts;
    const lhi_spot *spot = &p->spots[o->versions[p->now].spot];
    LHI_TRY(keep_numbers(p, x->hosts, x->n_hosts, x->why, &hosts, &why, err));
    LHI_TRY(add_version(p, x->hosts, spot->numbers, LHI_CAME_EXCHANGE, err));
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

static lh_status add_layers(lhi_playing *p, const lh_layer_move *m, uint64_t at,
                            lh_error *err)
{
    lh_played *o = p->out;
    const char *why;
    uint32_t *numbers;
    const lhi_spot *spot = &p->spots[o->versions[p->now].spot];
    LHI_TRY(
        keep_numbers(p, m->numbers, m->n_chunks, m->why, &numbers, &why, err));
    LHI_TRY(add_version(p, spot->hosts, numbers, LHI_CAME_LAYERS, err));
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

lh_status lhi_play_moves(lhi_playing *p, uint64_t step,
                         const lh_pipeline *estimated, const lh_decision *d,
                         bool *moves, lh_error *err)
{
    const lhi_version *v = &p->out->versions[p->now];
    const lh_sim_options sim = lhi_play_sim(p, v);
    const lhi_moves_now now = {.course = p->exchange ? p->course : NULL,
                               .state = lh_course_state(p->course, step),
                               .layers = p->layers,
                               .layer_ns = p->layer_ns,
                               .hosts = p->spots[v->spot].hosts,
                               .numbers = p->spots[v->spot].numbers,
                               .spot = v->spot,
                               .monitor = p->monitor,
                               .n_notices = p->out->n_notices,
                               .estimated = estimated,
                               .schedule = v->schedule,
                               .sim = &sim,
                               .decision = d};
    lhi_moves_found found;
    LHI_TRY(lhi_moves_find(&p->tried, &now, &found, err));
    uint64_t at = step + 1 + LH_ADAPT_GO_BY;
    lh_status status = LH_OK;
    if (found.exchange)
        status = add_exchange(p, found.exchange, at, err);
    else if (found.layers)
        status = add_layers(p, found.layers, at, err);
    *moves = found.exchange || found.layers;
    lh_exchange_free(found.exchange);
    lh_layer_move_free(found.layers);
    return status;
}
