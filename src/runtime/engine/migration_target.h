/* SPDX-License-Identifier: Apache-2.0 */
/* Migration target: a device and training for this rank's place in a new rank
 * assignment, made while the rank still works in the old one; and the training
 * state's migration. */
#ifndef LHI_RUNTIME_ENGINE_MIGRATION_TARGET_H
#define LHI_RUNTIME_ENGINE_MIGRATION_TARGET_H

#include "runtime/engine/job.h"
#include "runtime/engine/rank_assignment.h"

/* A rank's device and training under a new rank assignment. */
typedef struct lhi_migration_target {
    lhi_job job; /* adapted to the rank assignment */
    lh_train_model model;
    uint32_t *first_layers;
    lh_pipeline *pipeline; /* NULL: the run's own */
    lhi_rank_assignment assignment;
    uint32_t place;
    lhi_device *device;     /* NULL: a timed rank keeps its device */
    lhi_training *training; /* NULL: kept, like the device */
} lhi_migration_target;

/* Makes a migration target: this rank's job, device and training under a new
 * assignment. `exec`: the execution plan that runs there. LH_ENOMEM also if
 * the training state does not fit into memory twice, as it must until it has
 * migrated. */
lh_status lhi_migration_target_make(const lhi_job *job, lhi_net *net,
                                    const lh_exec *exec,
                                    const lhi_rank_assignment *assignment,
                                    const lhi_net_stop *stop,
                                    lhi_migration_target **out, lh_error *err);
/* Ends the migration target's threads. Call it before the endpoint is closed.
 * NULL is allowed. */
void lhi_migration_target_stop(lhi_migration_target *target);
/* Frees the migration target; NULL is allowed. */
void lhi_migration_target_free(lhi_migration_target *target);

/* Returns the training options of the rank whose position in the process grid
 * is `place`. */
lhi_training_options lhi_job_training_options(const lhi_job *job, lhi_net *net,
                                              lhi_device *device,
                                              uint32_t place,
                                              const lhi_net_stop *stop);

/* Converts a pipeline of the run to the layers per chunk of the rank assignment
 * `assignment`: *out, released by the caller; NULL: the layers are
 * unchanged. */
lh_status lhi_rank_assignment_make_pipeline(
    const lhi_job *job, const lh_pipeline *pipeline,
    const lhi_rank_assignment *assignment, lh_pipeline **out, lh_error *err);

/* --- rank_assignment_limits.c --- */

/* Fills in job->assignment_limits: permitted migrations, and the reasons
 * against the others. The caller releases the layers in it. */
lh_status lhi_job_set_assignment_limits(lhi_job *job, lh_error *err);
/* Checks that the migrations that the options request are permitted in this
 * run. LH_EUNSUPPORTED: one is not. */
lh_status lhi_job_check_assignment_limits(const lhi_job *job, lh_error *err);

/* --- migrate_state.c --- */

/* Messages of a migration; after a failure they may be in flight until the
 * endpoint is closed. */
typedef struct lhi_state_migration_ops {
    lhi_net_op *ops;
    size_t n;
    float *relay_buffer; /* buffer for one relayed array */
} lhi_state_migration_ops;
/* Frees the network operations and the relay buffer; a zeroed struct is
 * allowed. */
void lhi_state_migration_ops_fini(lhi_state_migration_ops *ops);

/* Options for a state migration. */
typedef struct lhi_state_migration_options {
    const lhi_job *job; /* as at the start */
    lhi_net *net;
    const lhi_rank_assignment *old_assignment, *new_assignment;
    const uint32_t *old_first_layers,
        *new_first_layers; /* first layer of each chunk */
    uint64_t turn;
} lhi_state_migration_options;

/* Migrates the parameters, which must be all-gathered, and the moments between
 * two steps, from the ranks that have them (`from`) to those of the new
 * assignment (`to`). Collective; `ops` has the network operations. */
lh_status lhi_state_migration_run(const lhi_state_migration_options *options,
                                  lhi_train *from, lhi_train *to,
                                  lhi_state_migration_ops *ops, lh_error *err);
/* Returns the bytes of training state that the migration sends between ranks;
 * relayed bytes count twice. */
uint64_t
lhi_state_migration_count_bytes(const lhi_state_migration_options *options);

#endif
