/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel communication of a rank whose passes launch it: parameters and
 * gradients that are sharded come and go with the passes that need them. */
#ifndef LHI_SHARDED_H
#define LHI_SHARDED_H

#include "engine/exec.h"
#include "engine/messages.h"
#include "net/net.h"
#include "train/train.h"

#include <pthread.h>

typedef struct lhi_shards lhi_shards;

/* Whether replicas of a run communicate so. */
static inline bool lhi_is_staged(const lh_pipeline *pipeline,
                                 const lh_train_model *model)
{
    return lh_pipeline_n_dp_ops(pipeline) > 0 || model->sharded_gradients > 0;
}

typedef struct lhi_shards_options {
    const lh_pipeline *pipeline;
    const lh_exec *exec;
    uint32_t stage, n_mine;
    const uint32_t *mine; /* chunks; borrowed */
    bool emulates;        /* collectives take their times in the pipeline */
    const lh_chunk *times; /* as collectives of chunks take them now; borrowed */
    const lh_train_sharing *parts[LHI_N_TRAIN_LOTS]; /* borrowed */
    bool shared_clock;    /* else times of other ranks say nothing here */
    lhi_net *net;
    const lhi_net_group *group; /* those of this stage's replicas that share;
                                   borrowed */
    const lhi_net_group *experts; /* that have the same experts; NULL: those of
                                     `group` do */
    const lhi_net_group *across; /* with the same share elsewhere; NULL: none */
    const lhi_net_group *expert_across; /* likewise, of experts */
    bool leaders;                /* as in lhi_site_sums */
    const lhi_net_stop *stop;
    lhi_train *train; /* staged, settled */
    lhi_device *device;
} lhi_shards_options;

/* Starts the thread that communicates. */
lh_status lhi_shards_make(const lhi_shards_options *options, lhi_shards **out,
                          lh_error *err);
/* After a failure, once all ranks have been told: ends the thread. */
void lhi_shards_stop(lhi_shards *s);
void lhi_shards_free(lhi_shards *s); /* NULL is fine */

/* A step begins. */
void lhi_shards_begin(lhi_shards *s, uint64_t step);
/* Pass `i` of the rank is next: launches what goes with it, and waits until
 * what it needs is there. Of a step that validates: gathers that alone. */
lh_status lhi_shards_pass(lhi_shards *s, uint32_t i, lhi_step_kind kind,
                          lh_error *err);
/* After the passes: all of it is through, sums are complete. */
lh_status lhi_shards_end(lhi_shards *s, lh_error *err);
const lhi_played *lhi_shards_played(const lhi_shards *s, uint32_t *n);

/* Between steps: the next ones follow `exec`, for which there is a shard plan
 * (lhi_job_predict_memory() has looked). If there is no memory for it the next
 * step ends with that. */
void lhi_shards_reschedule(lhi_shards *s, const lh_exec *exec);

/* Between steps, on all replicas, with another `turn` each time: what is not
 * sharded is whole, before steps that validate and checkpoints; and all of a
 * chunk, until it is called with `whole` false. */
lh_status lhi_shards_gather(lhi_shards *s, uint64_t turn, lh_error *err);
lh_status lhi_shards_show(lhi_shards *s, uint32_t chunk, bool whole,
                          lh_error *err);

/* Bytes of rooms and arrays, added to bytes[]; and as predicted. */
void lhi_shards_held(const lhi_shards *s, int64_t bytes[LH_N_MEMORY_KINDS]);

/* LH_EIO: another rank has ended the run; LH_ECANCELED: `stop` ends it. */
lh_status lhi_look_for_end(lhi_net *net, const lhi_net_stop *stop,
                           lh_error *err);
/* Waits for what is emulated; ends where the run does. */
lh_status lhi_sleep_emulated(lhi_net *net, const lhi_net_stop *stop,
                             int64_t until_ns, lh_error *err);

#endif
