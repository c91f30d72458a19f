/* SPDX-License-Identifier: Apache-2.0 */
#include "resilience/adapt/migration.h"

#include "base/fail.h"
#include "resilience/placement/layers_search.h"

#include <math.h>

/* Relative gain; estimates are not more accurate. */
static const double MIN_GAIN = 0.002;

/* --- hosts ---------------------------------------------------------------- */

/* Decides whether to search for a host exchange now, and records it in `t`. It
 * is due once per set of known slowdowns and assignment of hosts, and again
 * when the slowdown's expected remaining duration has doubled. */
static bool is_host_search_due(lhi_migration_history *t,
                               const lhi_migration_state *now)
{
    uint32_t n, version;
    uint64_t lasts = now->decision->benefit_steps;
    lh_monitor_active_events(now->monitor, &n);
    if (!now->slow || n == 0 || lasts == 0)
        return false;
    lhi_slow_hosts_known(now->slow, &version);
    if (t->hosts_searched && t->version == version &&
        t->hosts_assignment == now->assignment && lasts < 2 * t->hosts_steps)
        return false;
    t->hosts_searched = true;
    t->version = version;
    t->hosts_assignment = now->assignment;
    t->hosts_steps = lasts;
    return true;
}

/* Checks whether a migration saves time against decision `d` over the next
 * d->benefit_steps iterations: it takes move_ns once, then each iteration takes
 * predicted_ns. */
static bool is_better(int64_t predicted_ns, int64_t move_ns,
                      const lh_decision *d)
{
    double lasts = (double)d->benefit_steps;
    return (double)predicted_ns * lasts + (double)move_ns <
           (double)d->predicted_ns * lasts;
}

/* Searches for a host exchange, if a search is due, and returns it in *out if
 * it saves time against the schedule decision in `now`. *out is NULL if all
 * hosts stay; otherwise the caller frees it. */
static lh_status find_host_migration(lhi_migration_history *tried,
                                     const lhi_migration_state *now,
                                     lh_host_exchange **out, lh_error *err)
{
    lh_host_exchange *x;
    uint32_t version;
    const lh_host_exchange_options o = {
        .size = sizeof o,
        .hosts = now->hosts,
        .sim = now->sim,
        .benefit_steps = (double)now->decision->benefit_steps};
    *out = NULL;
    if (!is_host_search_due(tried, now))
        return LH_OK;
    LHI_TRY(lh_host_placement_find_exchange(
        now->placement, lhi_slow_hosts_known(now->slow, &version),
        now->schedule, &o, &x, err));
    if (x->is_exchange && is_better(x->predicted_ns, x->move_ns, now->decision))
        *out = x;
    else
        lh_host_exchange_free(x);
    return LH_OK;
}

/* --- layers --------------------------------------------------------------- */

/* Decides whether to search for a layer migration now, and records it in `t`.
 * It is due while a device is slow or layers are not in their initial chunk,
 * once per change of slowdowns or assignment, and again when the expected
 * remaining duration has doubled or the noise has halved. */
static bool is_layer_search_due(lhi_migration_history *t,
                                const lhi_migration_state *now)
{
    uint32_t n;
    uint64_t lasts = now->decision->benefit_steps;
    const lh_monitor_event *all = lh_monitor_active_events(now->monitor, &n);
    bool is_slow = now->layer_counts != NULL || now->may_be_slow;
    for (uint32_t i = 0; i < n; i++)
        is_slow = is_slow || all[i].target == LH_MONITOR_DEVICE;
    if (!now->layers || !is_slow || lasts == 0 ||
        (t->n_events == now->n_events &&
         t->layers_assignment == now->assignment &&
         lasts < 2 * t->layers_steps && now->noise >= t->layers_noise / 2))
        return false;
    t->n_events = now->n_events;
    t->layers_assignment = now->assignment;
    t->layers_steps = lasts;
    t->layers_noise = now->noise;
    return true;
}

/* Searches for a layer migration, if a search is due, and returns it in *out if
 * it saves time against the schedule decision in `now`. *out is NULL if layers
 * stay; otherwise the caller frees it. */
static lh_status find_layer_migration(lhi_migration_history *tried,
                                      const lhi_migration_state *now,
                                      lh_layer_migration **out, lh_error *err)
{
    lh_layer_migration *m;
    const lh_layers_options o = {.size = sizeof o,
                                 .layer_counts = now->layer_counts,
                                 .sim = now->sim,
                                 .layer_ns = now->layer_ns,
                                 .benefit_steps =
                                     (double)now->decision->benefit_steps};
    *out = NULL;
    if (!is_layer_search_due(tried, now))
        return LH_OK;
    LHI_TRY(lhi_layers_find_partition(now->layers, now->estimated,
                                      now->schedule, &o, &m, err));
    const double gain =
        fmax(MIN_GAIN, lhi_adapt_compute_least_gain(now->noise));
    if (m->is_move &&
        (double)m->predicted_ns <= (1 - gain) * (double)m->current_ns &&
        is_better(m->predicted_ns, m->move_ns, now->decision))
        *out = m;
    else
        lhi_layer_migration_free(m);
    return LH_OK;
}

lh_status lhi_migration_find(lhi_migration_history *tried,
                             const lhi_migration_state *now, lhi_migration *out,
                             lh_error *err)
{
    lhi_migration found = {0};
    LHI_TRY(find_host_migration(tried, now, &found.exchange, err));
    if (!found.exchange)
        LHI_TRY(find_layer_migration(tried, now, &found.layers, err));
    *out = found;
    return LH_OK;
}
