/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether to migrate parts of a job rather than following the schedule
 * decision: hosts exchange places, or layers move to other chunks. Real runs
 * and simulated runs share it. */
#ifndef LHI_RESILIENCE_ADAPT_MIGRATION_H
#define LHI_RESILIENCE_ADAPT_MIGRATION_H

#include "resilience/adapt/slow_hosts.h"

#include <longhaul/experimental/adapt.h>
#include <longhaul/experimental/host_placement.h>

/* Conditions of the last searches. A search repeats only if they have changed
 * or the expected remaining duration has doubled or, for layers, the noise has
 * halved. Zero-initialise. */
typedef struct lhi_migration_history {
    bool hosts_searched; /* hosts: with this version of known slowdowns */
    uint32_t version, hosts_assignment;
    uint64_t hosts_steps;
    uint32_t n_events,
        layers_assignment; /* layers: notices identify the state */
    uint64_t layers_steps;
    double layers_noise;
} lhi_migration_history;

/* Inputs of a migration search: the job's present state and decision. */
typedef struct lhi_migration_state {
    const lhi_slow_hosts *slow;         /* measured; NULL: hosts stay */
    const lh_host_placement *placement; /* with current times */
    const lh_layers *layers;            /* NULL: layers stay */
    /* A device may be slow without an event, because the monitor began after
     * the slowdown. */
    bool may_be_slow;
    int64_t layer_ns;
    /* Present host of each place and layers per chunk, and an identifier that
     * changes with each migration. NULL: the initial assignment. */
    const uint32_t *hosts, *layer_counts;
    uint32_t assignment;
    const lh_monitor *monitor;
    uint32_t n_events;            /* monitor notices so far */
    const lh_pipeline *estimated; /* with the initial layers per chunk */
    const lh_schedule *schedule;  /* the running one; `sim`: its data path */
    const lh_sim_options *sim;
    const lh_decision *decision;
    double noise; /* as in lh_adapt_input */
} lhi_migration_state;

/* At most one migration; the caller frees both. NULL: none. */
typedef struct lhi_migration {
    lh_host_exchange *exchange;
    lh_layer_migration *layers;
} lhi_migration;

/* Searches for a host or layer migration that saves time against the schedule
 * decision in `now`, after an iteration with a slowdown; `tried` records past
 * searches. On an error *out is unchanged. */
lh_status lhi_migration_find(lhi_migration_history *tried,
                             const lhi_migration_state *now, lhi_migration *out,
                             lh_error *err);

/* Returns the least relative gain of a switch or migration that exceeds the
 * noise, as in lh_adapt_input. */
double lhi_adapt_compute_least_gain(double noise);

/* Makes the next call of lh_adapt_decide() search again although no event
 * changed: a layer migration has changed the iteration time. */
void lhi_adapt_request_search(lh_adapt *adapt);

#endif
