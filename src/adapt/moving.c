/* SPDX-License-Identifier: Apache-2.0 */
#include "adapt/moving.h"

#include "base/arena.h"
#include "base/fail.h"
#include "course/course.h"

/* Relative gain; estimates are not more accurate. */
static const double LEAST_GAIN = 0.002;

/* --- hosts -----------------------------------------------------------------
 */

/* Checks whether to search for a host exchange: once per state and assignment,
 * and again when the expected remaining duration has doubled. */
static bool hosts_are_due(lhi_moves_tried *t, const lhi_moves_now *now)
{
    uint32_t n;
    uint64_t lasts = now->decision->lasts;
    lh_monitor_going_on(now->monitor, &n);
    if (!now->course || n == 0 || lasts == 0)
        return false;
    if (t->was_tried && t->state == now->state && t->spot == now->spot &&
        lasts < 2 * t->lasts)
        return false;
    t->was_tried = true;
    t->state = now->state;
    t->spot = now->spot;
    t->lasts = lasts;
    return true;
}

/* Checks whether a migration, its cost included, beats the decision over the
 * same number of iterations. */
static bool is_better(int64_t predicted_ns, int64_t move_ns,
                      const lh_decision *d)
{
    double lasts = (double)d->lasts;
    return (double)predicted_ns * lasts + (double)move_ns <
           (double)d->predicted_ns * lasts;
}

static lh_status find_exchange(const lhi_moves_now *now, lh_exchange **out,
                               lh_error *err)
{
    lh_hosts_now slow;
    const lh_exchange_options o = {.size = sizeof o,
                                   .hosts = now->hosts,
                                   .sim = now->sim,
                                   .lasts = (double)now->decision->lasts};
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status =
        lhi_course_hosts(now->course, now->state, mem, &slow, err);
    if (status == LH_OK)
        status = lh_places_exchange(
            now->places ? now->places : now->course->places, &slow,
            now->schedule, &o, out, err);
    lhi_arena_free(mem);
    return status;
}

/* Searches for a host exchange. *out is NULL if hosts stay. */
static lh_status move_hosts(lhi_moves_tried *tried, const lhi_moves_now *now,
                            lh_exchange **out, lh_error *err)
{
    lh_exchange *x;
    *out = NULL;
    if (!hosts_are_due(tried, now))
        return LH_OK;
    LHI_TRY(find_exchange(now, &x, err));
    if (x->is_exchange && is_better(x->predicted_ns, x->move_ns, now->decision))
        *out = x;
    else
        lh_exchange_free(x);
    return LH_OK;
}

/* --- layers ----------------------------------------------------------------
 */

/* Checks whether to search for a layer migration: while a device is slow or
 * layers are away from their first chunk. Once per notice and assignment, and
 * again when the expected remaining duration has doubled. */
static bool layers_are_due(lhi_moves_tried *t, const lhi_moves_now *now)
{
    uint32_t n;
    uint64_t lasts = now->decision->lasts;
    const lh_monitor_event *all = lh_monitor_going_on(now->monitor, &n);
    bool is_slow = now->numbers != NULL;
    for (uint32_t i = 0; i < n; i++)
        is_slow = is_slow || all[i].what == LH_MONITOR_DEVICE;
    if (!now->layers || !is_slow || lasts == 0 ||
        (t->notices == now->n_notices && t->layers_spot == now->spot &&
         lasts < 2 * t->layers_lasts))
        return false;
    t->notices = now->n_notices;
    t->layers_spot = now->spot;
    t->layers_lasts = lasts;
    return true;
}

static lh_status move_layers(lhi_moves_tried *tried, const lhi_moves_now *now,
                             lh_layer_move **out, lh_error *err)
{
    lh_layer_move *m;
    const lh_layers_options o = {.size = sizeof o,
                                 .numbers = now->numbers,
                                 .sim = now->sim,
                                 .layer_ns = now->layer_ns,
                                 .lasts = (double)now->decision->lasts};
    *out = NULL;
    if (!layers_are_due(tried, now))
        return LH_OK;
    LHI_TRY(lh_layers_find(now->layers, now->estimated, now->schedule, &o, &m,
                           err));
    if (m->is_move &&
        (double)m->predicted_ns <= (1 - LEAST_GAIN) * (double)m->now_ns &&
        is_better(m->predicted_ns, m->move_ns, now->decision))
        *out = m;
    else
        lh_layer_move_free(m);
    return LH_OK;
}

lh_status lhi_moves_find(lhi_moves_tried *tried, const lhi_moves_now *now,
                         lhi_moves_found *out, lh_error *err)
{
    lhi_moves_found found = {0};
    LHI_TRY(move_hosts(tried, now, &found.exchange, err));
    if (!found.exchange)
        LHI_TRY(move_layers(tried, now, &found.layers, err));
    *out = found;
    return LH_OK;
}
