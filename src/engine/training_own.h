/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of training.h share:
 *   training.c       a step, and what is asked between steps
 *   training_data.c  chunks gathered and scattered, by the thread or at once
 *   training_make.c  what passes call; making and freeing */
#ifndef LHI_TRAINING_OWN_H
#define LHI_TRAINING_OWN_H

#include "engine/layered.h"
#include "engine/shard_groups.h"
#include "engine/sharded.h"
#include "engine/training.h"
#include "net/group.h"

#include <pthread.h>

/* The communication thread of a step: all-gathers in the order in which the
 * passes need them, then reduce-scatters in the order in which passes end
 * them; every replica has the same order, since all run the same schedule. */
struct lhi_training {
    lhi_training_options o;
    lhi_train *train;
    lhi_rank_hooks hooks;
    uint32_t n_mine;
    uint32_t *mine, *gathers, *scatters; /* chunks; in those orders */
    lhi_shard_groups shards;
    lhi_net_group group;  /* this stage's replicas that share with this one */
    lhi_net_group across; /* and those with the same share elsewhere */
    /* The same of those with the same experts: n_same, of which this is number
     * `same`; 0: they are those above. */
    uint32_t n_same, same;
    lhi_shard_groups expert_shards;
    lhi_net_group experts, expert_across;
    uint32_t *all_ranks, *group_ranks, *across_ranks;
    uint32_t *expert_ranks, *expert_across_ranks;
    /* The shard of each replica, and of those with the same experts each;
     * UINT32_MAX: another has it, too. */
    uint32_t *shard_of, *expert_shard_of;
    /* Of each lot, those of this device's ranks in all copies that have the
     * same tensors, or parts of them; NULL: each has them whole. */
    lhi_group *copies[LHI_N_TRAIN_LOTS];
    bool whole; /* all values are in place: nothing to gather */
    /* Where passes launch, or do, what is communicated; then the thread below
     * has nothing to do, and is not there. */
    lhi_shards *sharded;
    lhi_layered *layered;
    lhi_checkpoint_options checkpoint;
    lhi_folder_lock *folder_lock; /* rank 0 */
    char recipe[400];
    /* The thread; under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, stop;
    uint64_t round, step;
    bool round_gathers;
    bool *gathered, *ended;        /* per chunk of the pipeline */
    int64_t *ended_ns, *arrive_ns; /* its last pass; its values, gathered */
    int64_t begin_ns, data_free_ns, last_ns; /* of the step */
    lh_chunk *times; /* of the pipeline, as collectives take them now */
    lhi_played *played;
    uint32_t n_played, n_scattered;
    lh_status status;
    lh_error err;
};

/* The values of a chunk from all replicas; its gradients to their sums.
 * *ready_ns: in, when this replica was ready; out, when all were. */
lh_status lhi_training_gather_chunk(lhi_training *t, uint64_t step,
                                    uint32_t chunk, int64_t *ready_ns,
                                    lh_error *err);
lh_status lhi_training_scatter_chunk(lhi_training *t, uint64_t step,
                                     uint32_t chunk, int64_t *ready_ns,
                                     lh_error *err);
/* The thread, of a training. */
void *lhi_training_thread(void *training);

#endif
