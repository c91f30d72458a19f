/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/training_internal.h"

#include "base/realtime.h"
#include "runtime/engine/all_reduce.h"

#include <stdlib.h>
#include <string.h>

/* --- step --- */

void lhi_training_begin_step(lhi_training *t, uint64_t step)
{
    if (t->sharded)
        lhi_elastic_sharding_begin_step(t->sharded, step);
    if (t->fsdp)
        lhi_fsdp_begin_step(t->fsdp, step);
    pthread_mutex_lock(&t->lock);
    t->step = step;
    t->round++;
    t->round_gathers = !t->is_gathered;
    t->n_scattered = t->n_collectives = 0;
    if (t->hops)
        memset(t->hops, 0, t->o.n_replicas * sizeof *t->hops);
    t->begin_ns = t->data_free_ns = lhi_now_ns();
    t->last_ns = 0;
    memset(t->gathered, 0, t->o.exec->n_chunks * sizeof *t->gathered);
    memset(t->ended, 0, t->o.exec->n_chunks * sizeof *t->ended);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

void lhi_training_set_times(lhi_training *t, const lh_pipeline *pipeline)
{
    pthread_mutex_lock(&t->lock);
    memcpy(t->times, pipeline->chunks, t->o.exec->n_chunks * sizeof *t->times);
    pthread_mutex_unlock(&t->lock);
}

/* Waits until the communication thread has reduce-scattered all chunks'
 * gradients; without a thread, reduces them here. */
static lh_status await_scatters(lhi_training *t, lh_error *err)
{
    if (t->sharded)
        return lhi_elastic_sharding_end_step(t->sharded, err);
    if (t->fsdp)
        return lhi_fsdp_end_step(t->fsdp, err);
    if (!t->has_thread) {
        int64_t ready_ns = 0;
        for (uint32_t i = 0; i < t->n_mine; i++)
            LHI_TRY(lhi_training_scatter_chunk(t, t->step, t->scatters[i],
                                               &ready_ns, err));
        return LH_OK;
    }
    pthread_mutex_lock(&t->lock);
    while (t->n_scattered < t->n_mine && t->status == LH_OK)
        pthread_cond_wait(&t->changed, &t->lock);
    lh_status status = t->status;
    if (status != LH_OK && err)
        *err = t->err;
    int64_t last_ns = t->last_ns;
    pthread_mutex_unlock(&t->lock);
    return status == LH_OK
               ? lhi_sleep_emulated(t->o.net, t->o.stop, last_ns, err)
               : status;
}

/* Sums the ranks' tallies (loss, gradient norm, token counts), which `fill`
 * computes, into a new array *out, which the caller frees. `turn`: number for
 * unique message tags. */
static lh_status sum_tally(lhi_training *t, uint64_t turn,
                           lh_status (*fill)(lhi_train *, double *, lh_error *),
                           double **out, lh_error *err)
{
    size_t n = lhi_train_tally_size(t->train);
    double *tally = calloc(n + 1, sizeof *tally);
    if (!tally)
        return lhi_fail_nomem(err);
    lh_status status = fill(t->train, tally, err);
    if (status == LH_OK)
        status = lhi_all_reduce_sum(t->o.net, turn, tally, n, NULL, err);
    if (status != LH_OK) {
        free(tally);
        return status;
    }
    *out = tally;
    return LH_OK;
}

lh_status lhi_training_end_step(lhi_training *t, uint64_t turn,
                                lhi_train_report *report, lh_error *err)
{
    double *tally;
    LHI_TRY(await_scatters(t, err));
    LHI_TRY(lhi_training_exchange_tied(t, turn, err));
    LHI_TRY(sum_tally(t, turn, lhi_train_tally, &tally, err));
    lh_status status = lhi_train_update(t->train, tally, report, err);
    free(tally);
    t->is_gathered = false;
    return status;
}

lh_status lhi_training_gather_values(lhi_training *t, uint64_t turn,
                                     lh_error *err)
{
    if (t->sharded)
        return lhi_elastic_sharding_gather_values(t->sharded, turn, err);
    if (t->fsdp)
        return lhi_fsdp_gather_values(t->fsdp, turn, err);
    if (t->is_gathered)
        return LH_OK;
    /* Uses numbers above all steps for unique tags. */
    LHI_TRY(lhi_training_gather_chunks(t, (1u << 23) + turn, err));
    t->is_gathered = true;
    return LH_OK;
}

lh_status lhi_training_gather_restored(lhi_training *t, lh_error *err)
{
    t->is_gathered = false;
    return lhi_training_gather_values(t, (1u << 23) - 1, err);
}

lh_status lhi_training_end_validation(lhi_training *t, uint64_t turn,
                                      double *loss, lh_error *err)
{
    double *tally;
    LHI_TRY(sum_tally(t, turn, lhi_train_validation_tally, &tally, err));
    lh_status status = lhi_train_reduce_validation(t->train, tally, loss, err);
    free(tally);
    return status;
}

/* Writes a checkpoint: rank 0 makes the folder, all ranks write their parts,
 * rank 0 completes it. `sums`: scratch for `n` checksums of tensors; `turn`:
 * number for unique message tags. */
static lh_status save_parts(lhi_training *t, uint64_t turn, double *sums,
                            size_t n, lh_error *err)
{
    bool leads = lhi_net_rank(t->o.net) == 0;
    const lhi_net_group all = {t->o.n_ranks, lhi_net_rank(t->o.net),
                               NULL,         LHI_NET_NO_LINK,
                               NULL,         NULL};
    if (leads) {
        LHI_TRY(lhi_checkpoint_discard(t->checkpoint.folder, t->discarded,
                                       t->n_discarded, err));
        t->n_discarded = 0;
        LHI_TRY(lhi_train_save_begin(t->train, &t->checkpoint, err));
    }
    /* The folder exists on all ranks. */
    LHI_TRY(lhi_net_barrier(t->o.net, &all, lhi_tag(LHI_TAG_BARRIER, turn, 0),
                            NULL, err));
    LHI_TRY(lhi_train_save_part(t->train, &t->checkpoint, sums, err));
    LHI_TRY(lhi_all_reduce_sum(t->o.net, turn, sums, n, NULL, err));
    return leads ? lhi_train_save_end(t->train, &t->checkpoint, sums, err)
                 : LH_OK;
}

lh_status lhi_training_save(lhi_training *t, uint64_t turn, lh_error *err)
{
    LHI_TRY(lhi_training_gather_values(t, turn, err));
    size_t n = lhi_train_count_checksums(t->train);
    double *sums = calloc(n + 1, sizeof *sums);
    if (!sums)
        return lhi_fail_nomem(err);
    lh_status status = save_parts(t, turn, sums, n, err);
    if (status != LH_OK && lhi_net_rank(t->o.net) == 0)
        lhi_train_save_cancel(t->train, &t->checkpoint);
    free(sums);
    return status;
}

/* --- accessors --- */

lhi_train *lhi_training_state(lhi_training *t)
{
    return t->train;
}

/* Takes over the step number and the checkpoint folder's lock, which only one
 * training holds, from `before`, the training before a migration. */
void lhi_training_take_over(lhi_training *t, lhi_training *before)
{
    lhi_train_set_step(t->train, lhi_train_step(before->train));
    t->recipe = before->recipe;
    lhi_train_apply_recipe(t->train, &t->recipe);
    t->discarded = before->discarded;
    t->n_discarded = before->n_discarded;
    before->discarded = NULL;
    t->folder_lock = before->folder_lock;
    t->checkpoint.lock = t->folder_lock;
    before->folder_lock = NULL;
}

const lhi_rank_hooks *lhi_training_hooks(lhi_training *t)
{
    return &t->hooks;
}

/* Returns the last step's all-gathers and reduce-scatters, and their number;
 * valid until the next step. */
const lhi_collective_record *lhi_training_collectives(const lhi_training *t,
                                                      uint32_t *n)
{
    if (t->sharded)
        return lhi_elastic_sharding_collectives(t->sharded, n);
    if (t->fsdp)
        return lhi_fsdp_collectives(t->fsdp, n);
    *n = t->n_collectives;
    return t->collectives;
}

void lhi_training_read_hops(const lhi_training *t, lhi_hop_observation *hops)
{
    for (uint32_t i = 0; i < t->o.n_replicas; i++) {
        const bool is_member = i < t->group.n_ranks;
        hops[i] = (lhi_hop_observation){
            is_member ? lhi_rank_assignment_find_place(t->o.assignment,
                                                       t->group_ranks[i])
                      : t->o.place,
            is_member ? t->hops[i] : (lhi_net_hop){0}};
    }
}

const int64_t *lhi_training_wait_times(const lhi_training *t)
{
    return t->fsdp ? lhi_fsdp_wait_times(t->fsdp) : NULL;
}

void lhi_training_add_memory(const lhi_training *t,
                             int64_t bytes[LH_N_MEMORY_KINDS])
{
    lhi_train_add_memory(t->train, bytes);
    if (t->sharded)
        lhi_elastic_sharding_add_memory(t->sharded, bytes);
    if (t->fsdp)
        lhi_fsdp_add_memory(t->fsdp, bytes);
}

uint64_t lhi_training_step(const lhi_training *t)
{
    return lhi_train_step(t->train);
}
