/* SPDX-License-Identifier: Apache-2.0 */
/* Decides in an adapting run whether to migrate job parts rather than follow
 * the adaptation's decision (resilience/adapt/migration.h). Tracks where the
 * parts are and the current schedule. */
#ifndef LHI_RUNTIME_ENGINE_MIGRATION_DECIDER_H
#define LHI_RUNTIME_ENGINE_MIGRATION_DECIDER_H

#include "resilience/adapt/migration.h"
#include "runtime/engine/calibration.h"

typedef struct lhi_migration_decider lhi_migration_decider;

/* Checks whether the run adapts to slowdowns and its options permit migrations
 * of hosts or layers. */
bool lhi_job_can_migrate(const lhi_job *job);
/* Checks that the run supports the requested host and layer migrations;
 * otherwise LH_EINVAL or LH_EUNSUPPORTED. */
lh_status lhi_job_check_migration(const lhi_job *job, lh_error *err);

/* Creates a run's migration decider, which searches for migrations of hosts or
 * layers. */
lh_status lhi_migration_decider_make(const lhi_job *job,
                                     lhi_migration_decider **out,
                                     lh_error *err);
/* Frees the migration decider; NULL is allowed. */
void lhi_migration_decider_free(lhi_migration_decider *mind);

/* Converts `first`, a pipeline with the initial layers per chunk, to one with
 * the current layers: *out, released by the caller; NULL: the layers are still
 * the initial ones. */
lh_status lhi_migration_decider_make_pipeline(const lhi_migration_decider *mind,
                                              const lh_pipeline *first,
                                              lh_pipeline **out, lh_error *err);

/* Adds one iteration's times of hosts and hops to the search for slow hosts:
 * those measured in `whole`, or with emulated links those that the event
 * timeline implies for `step`. */
lh_status lhi_migration_decider_observe(lhi_migration_decider *mind,
                                        uint64_t step,
                                        const lhi_measured_iteration *whole,
                                        lh_error *err);
/* Returns the localiser of slow hosts; NULL: hosts stay. */
const lhi_slow_hosts *
lhi_migration_decider_slow_hosts(const lhi_migration_decider *mind);

/* Input after an iteration, with the adaptation's decision. */
typedef struct lhi_migration_decider_input {
    uint64_t step;
    const lh_monitor *monitor;
    uint32_t n_notices;
    const lh_pipeline *estimated; /* with the initial layer counts */
    const lh_decision *decision;
    double noise; /* as in lh_adapt_input */
} lhi_migration_decider_input;

/* A migration to propose. */
typedef struct lhi_migration_decider_result {
    lh_reschedule proposal;
    int64_t now_ns; /* current duration of an iteration */
} lhi_migration_decider_result;

/* Searches for a host or layer migration that saves time in the conditions
 * `seen`. *moves: one was found, and *out describes it, borrowed until the
 * ranks' answer is recorded. */
lh_status lhi_migration_decider_find(lhi_migration_decider *mind,
                                     const lhi_migration_decider_input *seen,
                                     lhi_migration_decider_result *out,
                                     bool *moves, lh_error *err);
/* Records the ranks' answer to the proposed migration: it is in effect
 * (`followed`) or was refused. *layers: whether layers have moved, so that
 * passes have other durations. */
lh_status lhi_migration_decider_record_verdict(lhi_migration_decider *mind,
                                               bool followed, bool *layers,
                                               lh_error *err);
/* Records that the run switched to the schedule of `what`, so that later
 * searches for migrations use it. */
lh_status lhi_migration_decider_record_schedule(lhi_migration_decider *mind,
                                                const lh_reschedule *what,
                                                lh_error *err);

#endif
