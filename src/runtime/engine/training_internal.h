/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files behind training.h:
 *
 *     training.c       steps, and calls between steps
 *     tied_embedding.c the exchange of a tied embedding's gradients
 *     training_data.c  collectives on chunks, by the thread or inline
 *     training_make.c  hooks for passes; construction */
#ifndef LHI_RUNTIME_ENGINE_TRAINING_INTERNAL_H
#define LHI_RUNTIME_ENGINE_TRAINING_INTERNAL_H

#include "runtime/engine/elastic_sharding.h"
#include "runtime/engine/fsdp.h"
#include "runtime/engine/shard_groups.h"
#include "runtime/engine/training.h"
#include "runtime/transport/group.h"

#include <pthread.h>

/* Values of a tied embedding whose gradients this rank and a rank of the stage
 * with the other copy both own. */
typedef struct lhi_tied_part {
    uint32_t peer;   /* rank */
    size_t first, n; /* among the values that this rank owns */
} lhi_tied_part;

/* Training state with its communication thread. In a step the thread runs
 * all-gathers in the order in which passes need them, then reduce-scatters in
 * the order in which passes finish. All replicas run the same schedule and thus
 * have the same order. */
struct lhi_training {
    lhi_training_options o;
    lhi_train *train;
    lhi_rank_hooks hooks;
    uint32_t n_mine;
    uint32_t *mine, *gathers, *scatters; /* chunks, in communication order */
    lhi_shard_groups shards;
    lhi_net_group group;  /* shard group at this stage */
    lhi_net_hop *hops;    /* per member, in this step; NULL: not timed */
    lhi_net_group across; /* same shard at other sites */
    /* Same for the expert group: n_expert_members members, this rank's index is
     * expert_member; 0: equal to the groups above. */
    uint32_t n_expert_members, expert_member;
    lhi_shard_groups expert_shards;
    lhi_net_group experts, expert_across;
    uint32_t *all_ranks, *group_ranks, *across_ranks;
    uint32_t *expert_ranks, *expert_across_ranks;
    /* The shard of each replica and of each expert-group member; UINT32_MAX:
     * another one holds it. */
    uint32_t *shard_of, *expert_shard_of;
    /* Per bucket, the device's ranks in all copies that hold the same tensors
     * or slices of them; NULL: each holds entire tensors. */
    lhi_group *slice_groups[LHI_N_TRAIN_BUCKETS];
    uint32_t n_tied; /* 0: no tied embedding with its other copy elsewhere */
    lhi_tied_part *tied;
    bool is_gathered; /* all values are gathered */
    /* Sharding by passes; the thread below then does not exist. */
    lhi_elastic_sharding *sharded;
    lhi_fsdp *fsdp;
    lhi_checkpoint_options checkpoint;
    lhi_folder_lock *folder_lock; /* rank 0 */
    lhi_recipe recipe;
    uint64_t *discarded; /* rank 0: steps of other runs' checkpoints, */
    size_t n_discarded;  /* which are removed before the first save */
    /* Thread state, protected by `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, stop;
    uint64_t round, step;
    bool round_gathers;
    bool *gathered, *ended;        /* per chunk of the pipeline */
    int64_t *ended_ns, *arrive_ns; /* its last pass ended; its values arrived */
    int64_t begin_ns, data_free_ns, last_ns; /* in the step */
    lh_chunk *times; /* current collective times per chunk */
    lhi_collective_record *collectives;
    uint32_t n_collectives, n_scattered;
    lh_status status;
    lh_error err;
};

/* Lists the ranks with which this rank exchanges the gradient of a tied
 * embedding. */
lh_status lhi_training_list_tied(lhi_training *t, lh_error *err);
/* Receives the other copy's gradient of a tied embedding and sends this rank's;
 * `turn`: number for unique message tags. */
lh_status lhi_training_exchange_tied(lhi_training *t, uint64_t turn,
                                     lh_error *err);
/* All-gathers all chunks' parameters between two steps; emulated links
 * take their modelled time. `step`: for unique tags, above all steps. */
lh_status lhi_training_gather_chunks(lhi_training *t, uint64_t step,
                                     lh_error *err);
/* All-gathers a chunk's parameters. *ready_ns: in, when this replica was
 * ready; out, when all were. */
lh_status lhi_training_gather_chunk(lhi_training *t, uint64_t step,
                                    uint32_t chunk, int64_t *ready_ns,
                                    lh_error *err);
/* Reduce-scatters a chunk's gradients over replicas and sums the shards over
 * datacenters. *ready_ns: in, when this replica was ready; out, when all
 * were. */
lh_status lhi_training_scatter_chunk(lhi_training *t, uint64_t step,
                                     uint32_t chunk, int64_t *ready_ns,
                                     lh_error *err);
/* Main function for the training's communication thread; `training`: its
 * lhi_training. */
void *lhi_training_thread(void *training);

#endif
