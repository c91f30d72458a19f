/* SPDX-License-Identifier: Apache-2.0 */
/* Training around one rank's passes: data-parallel communication on its own
 * thread, optimizer, validation, checkpoints. */
#ifndef LHI_RUNTIME_ENGINE_TRAINING_H
#define LHI_RUNTIME_ENGINE_TRAINING_H

#include "runtime/device/data.h"
#include "runtime/engine/control_messages.h"
#include "runtime/engine/process_grid.h"
#include "runtime/engine/rank.h"
#include "runtime/engine/rank_assignment.h"
#include "runtime/training/train.h"

typedef struct lhi_training lhi_training;

/* Options for training. */
typedef struct lhi_training_options {
    const lh_pipeline *pipeline;
    const lh_exec *exec;
    bool emulates;     /* collectives take the pipeline's times */
    bool shared_clock; /* else other ranks' times are unusable */
    const lh_train_model *model;
    const lhi_grid *grid; /* borrowed */
    uint32_t place, stage, n_ranks;
    /* Index and number of the ranks that sum gradients and share the optimizer:
     * replicas of each context. */
    uint32_t replica, n_replicas;
    uint32_t tensor; /* tensor-parallel index of this rank */
    uint64_t steps;
    lhi_data_fingerprint data_fingerprint;
    lhi_net *net;
    lhi_device *device;
    lhi_remarks remarks;      /* rank 0 */
    const lhi_net_stop *stop; /* rank 0: may end lhi_training_make() */
    /* Borrowed; NULL: as at the start. */
    const lhi_rank_assignment *assignment;
    /* Values are migrated from another training through lhi_training_state(),
     * before lhi_training_take_over(): construction waits for no other rank. */
    bool is_migrated;
    bool is_restarted;  /* it resumes from the run's own checkpoint */
    bool observes_hops; /* replicas' messages are timed */
} lhi_training_options;

/* Creates a rank's training. Collective: resuming ranks agree on a checkpoint.
 * Rank 0 holds the checkpoint folder's lock until lhi_training_free(). */
lh_status lhi_training_make(const lhi_training_options *options,
                            lhi_training **out, lh_error *err);
/* Ends the training's communication thread; after a failure, call it once all
 * ranks are notified. */
void lhi_training_stop(lhi_training *training);
/* Frees the training; NULL is allowed. */
void lhi_training_free(lhi_training *training);

/* Returns the hooks for the rank's passes; valid as long as `training`. */
const lhi_rank_hooks *lhi_training_hooks(lhi_training *training);
/* Returns this rank's part of the training state. */
lhi_train *lhi_training_state(lhi_training *training);
/* Continues where `before` ended, whose state has been migrated; `before` must
 * only be freed afterwards. */
void lhi_training_take_over(lhi_training *training, lhi_training *before);
/* Returns the completed step count. */
uint64_t lhi_training_step(const lhi_training *training);

/* Adds the bytes of the training state and buffers, without the device's, to
 * bytes[]. */
void lhi_training_add_memory(const lhi_training *training,
                             int64_t bytes[LH_N_MEMORY_KINDS]);

/* Switches between steps to `exec`, for the same pipeline, which orders the
 * collectives. */
void lhi_training_set_plan(lhi_training *training, const lh_exec *exec);

/* Sets the durations of emulated collectives to those in `pipeline`, which has
 * the same chunks. Call it between steps. */
void lhi_training_set_times(lhi_training *training,
                            const lh_pipeline *pipeline);

/* Starts a training step, before its passes: lets the communication thread
 * gather parameters. */
void lhi_training_begin_step(lhi_training *training, uint64_t step);
/* Ends a training step after its passes: reduces the gradients, clips them and
 * updates the parameters. *report: loss and norm. `turn`: number for unique
 * message tags, equal on all ranks. */
lh_status lhi_training_end_step(lhi_training *training, uint64_t turn,
                                lhi_train_report *report, lh_error *err);
/* Returns the last step's all-gathers and reduce-scatters, one record each, on
 * the real clock or as emulated. Valid until the next step; none with one
 * replica. */
const lhi_collective_record *
lhi_training_collectives(const lhi_training *training, uint32_t *n);
/* Writes the messages from each replica's place in the last step's collectives
 * to hops[]; `observes_hops` must be set. */
void lhi_training_read_hops(const lhi_training *training,
                            lhi_hop_observation *hops);
/* Returns the wait time inside each pass of the last step for FSDP's
 * all-gathers and reduce-scatters, in ns; NULL: passes do not wait. */
const int64_t *lhi_training_wait_times(const lhi_training *training);
/* All-gathers all parameters between steps; they are valid until the next
 * update. `turn`: number for unique message tags, equal on all ranks. */
lh_status lhi_training_gather_values(lhi_training *training, uint64_t turn,
                                     lh_error *err);
/* All-gathers all parameters after this rank's part of them was restored,
 * before the first step. */
lh_status lhi_training_gather_restored(lhi_training *training, lh_error *err);
/* Ends a validation step after its passes; *loss: mean over all ranks. `turn`:
 * number for unique message tags, equal on all ranks. */
lh_status lhi_training_end_validation(lhi_training *training, uint64_t turn,
                                      double *loss, lh_error *err);
/* Saves a checkpoint of the current step into the job's folder. All ranks call
 * it, with the same `turn`, a number for unique message tags. */
lh_status lhi_training_save(lhi_training *training, uint64_t turn,
                            lh_error *err);

#endif
