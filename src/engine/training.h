/* SPDX-License-Identifier: Apache-2.0 */
/* Training around the passes of one rank: data-parallel communication on its
 * own thread, the optimizer, validation, checkpoints. */
#ifndef LHI_TRAINING_H
#define LHI_TRAINING_H

#include "engine/grid.h"
#include "engine/rank.h"
#include "engine/seats.h"
#include "train/train.h"

typedef struct lhi_training lhi_training;

typedef struct lhi_training_options {
    const lh_pipeline *pipeline;
    const lh_exec *exec;
    bool emulates;     /* collectives take their times in the pipeline */
    bool shared_clock; /* else times of other ranks say nothing here */
    const lh_train_model *model;
    const lhi_grid *grid; /* borrowed */
    uint32_t place, stage, n_ranks;
    /* Of those that sum gradients and share the optimizer: replicas of each
     * context. */
    uint32_t replica, n_replicas;
    uint32_t tensor; /* of the grid's, which one this rank is */
    uint64_t steps;
    lhi_net *net;
    lhi_device *device;
    lhi_remarks remarks;      /* rank 0 */
    const lhi_net_stop *stop; /* rank 0: may end lhi_training_make() */
    /* Borrowed; NULL: as the run began. */
    const lhi_seats *seats;
    /* Values come from another one of this run, by lhi_training_train(), before
     * lhi_training_take_over(): no rank waits for another when it is made. */
    bool moves;
} lhi_training_options;

/* All ranks call it: those that resume agree on a checkpoint. Rank 0 has the
 * lock of the folder for checkpoints from here to lhi_training_free(). */
lh_status lhi_training_make(const lhi_training_options *options,
                            lhi_training **out, lh_error *err);
/* After a failure, once all ranks have been told: ends the thread. */
void lhi_training_stop(lhi_training *training);
void lhi_training_free(lhi_training *training); /* NULL is fine */

/* What the rank's passes call; lives as long as `training`. */
const lhi_rank_hooks *lhi_training_hooks(lhi_training *training);
/* Its part of what is trained. */
lhi_train *lhi_training_train(lhi_training *training);
/* Goes on where `before` ended, whose part has moved to wherever it belongs;
 * that one is only to be freed. */
void lhi_training_take_over(lhi_training *training, lhi_training *before);
/* Steps done so far. */
uint64_t lhi_training_step(const lhi_training *training);

/* Bytes beside the device's, added to bytes[]. */
void lhi_training_held(const lhi_training *training,
                       int64_t bytes[LH_N_MEMORY_KINDS]);

/* Between steps: the next ones follow `exec`, of the same pipeline, by which
 * collectives are ordered. */
void lhi_training_reschedule(lhi_training *training, const lh_exec *exec);

/* Between steps: where collectives are emulated, the next ones take what they do
 * in `pipeline`, which has the same chunks. */
void lhi_training_take_times(lhi_training *training,
                             const lh_pipeline *pipeline);

/* Before the passes of a step, and after: reduces, clips, updates. */
void lhi_training_begin(lhi_training *training, uint64_t step);
lh_status lhi_training_end(lhi_training *training, uint64_t turn,
                           lhi_train_report *report, lh_error *err);
/* Of the last step: its all-gathers and reduce-scatters, one row each, times by
 * the real clock or, where they are emulated, by the link that they take. Until
 * the next one begins; none where there is one replica. */
const lhi_played *lhi_training_played(const lhi_training *training,
                                      uint32_t *n);
/* Of the last step, per pass: how long it waited inside for what it gathers and
 * scatters; NULL: passes do not. */
const int64_t *lhi_training_waited(const lhi_training *training);
/* Between steps: all values are whole, until the next update. */
lh_status lhi_training_gather(lhi_training *training, uint64_t turn,
                              lh_error *err);
/* After the passes of a validation step. */
lh_status lhi_training_validated(lhi_training *training, uint64_t turn,
                                 double *loss, lh_error *err);
lh_status lhi_training_save(lhi_training *training, uint64_t turn,
                            lh_error *err);

#endif
