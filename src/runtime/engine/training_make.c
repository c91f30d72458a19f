/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/job.h"
#include "runtime/engine/training_internal.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "base/text.h"
#include "runtime/engine/all_reduce.h"
#include "runtime/engine/resume.h"
#include "runtime/transport/handshake.h"
#include "schedule/pipeline/accessors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tag rounds below those of restarting ranks: see docs/formats/wire.md. */
enum {
    MARKER_TURN = (1 << 23) - 7,
    CHECKED_TURN = (1 << 23) - 8,
    WEIGHTS_TURN = (1 << 23) - 9
};

/* --- hooks --- */

/* Hook before a chunk's first F: waits for its all-gathered parameters. */
static lh_status before_first_pass(void *of, uint32_t chunk, lh_error *err)
{
    lhi_training *t = of;
    lh_status status = LH_OK;
    if (t->is_gathered)
        return LH_OK;
    if (t->has_thread) {
        pthread_mutex_lock(&t->lock);
        while (!t->gathered[chunk] && t->status == LH_OK)
            pthread_cond_wait(&t->changed, &t->lock);
        if ((status = t->status) != LH_OK && err)
            *err = t->err;
        int64_t arrive_ns = t->arrive_ns[chunk];
        pthread_mutex_unlock(&t->lock);
        if (status == LH_OK && t->o.emulates)
            status = lhi_sleep_emulated(t->o.net, t->o.stop, arrive_ns, err);
    } /* without a thread nothing is gathered */
    if (status == LH_OK)
        lhi_train_gathered(t->train, chunk);
    return status;
}

/* Hook before every pass if parameters or gradients are sharded: prepares pass
 * `i` in FSDP or elastic sharding. */
static lh_status before_pass(void *of, uint32_t i, lhi_step_kind kind,
                             lh_error *err)
{
    lhi_training *t = of;
    return t->fsdp
               ? lhi_fsdp_prepare_pass(t->fsdp, i, kind, err)
               : lhi_elastic_sharding_prepare_pass(t->sharded, i, kind, err);
}

/* Collects a tensor's slices on its slice group's first rank: sends this rank's
 * slice `mine` (n values) to it; that rank receives gets[i] values from rank i
 * into `all`. */
static lh_status exchange_slices(void *of, lhi_train_bucket_kind bucket,
                                 const float *mine, size_t n, float *all,
                                 const size_t *gets, lh_error *err)
{
    lhi_training *t = of;
    lhi_group *group = t->slice_groups[bucket];
    uint32_t copies = lhi_group_n_ranks(group);
    size_t *sizes = calloc(2 * (size_t)copies, sizeof *sizes);
    if (!sizes)
        return lhi_fail_nomem(err);
    sizes[0] = n * sizeof *mine;
    for (uint32_t i = 0; gets && i < copies; i++)
        sizes[copies + i] = gets[i] * sizeof *all;
    lh_status status =
        lhi_group_all_to_all(group, mine, sizes, all, sizes + copies, err);
    free(sizes);
    return status;
}

/* Gathers a tensor's sharded parameters before it is written to a checkpoint;
 * LH_NONE: releases them. */
static lh_status gather_for_checkpoint(void *of, uint32_t chunk,
                                       uint32_t tensor, lh_error *err)
{
    lhi_training *t = of;
    if (t->fsdp)
        return lhi_fsdp_gather_tensor(t->fsdp, chunk, tensor, err);
    return tensor == 0 || tensor == LH_NONE
               ? lhi_elastic_sharding_gather_chunk(t->sharded, chunk,
                                                   tensor == 0, err)
               : LH_OK;
}

/* Hook after a chunk's last W or B: lets the communication thread reduce the
 * chunk's gradients. */
static void after_last_pass(void *of, uint32_t chunk)
{
    lhi_training *t = of;
    pthread_mutex_lock(&t->lock);
    t->ended[chunk] = true;
    t->ended_ns[chunk] = lhi_now_ns();
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* --- construction --- */

/* Switches to the execution plan `exec`: stores the order of the chunks'
 * gathers and scatters. Every plan has each chunk once in both lists, so their
 * size suffices. With two directions a device and its mirror use the order of
 * the one with the lower number; each has the other's copies. */
void lhi_training_set_plan(lhi_training *t, const lh_exec *exec)
{
    const uint32_t mirror = exec->n_ranks - 1 - t->o.stage;
    const bool follows = t->o.grid->mirrored && mirror < t->o.stage;
    const lhi_exec_rank *program = &exec->ranks[follows ? mirror : t->o.stage];
    const uint32_t half = follows ? exec->n_chunks / 2 : 0;
    uint32_t gathers = 0, scatters = 0;
    if (t->fsdp)
        lhi_fsdp_set_plan(t->fsdp, exec);
    if (t->sharded)
        lhi_elastic_sharding_set_plan(t->sharded, exec);
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < program->n_passes; i++) {
        const lhi_exec_pass *pass = &program->passes[i];
        const uint32_t chunk = (pass->pass.chunk + half) % exec->n_chunks;
        if (pass->is_first)
            t->gathers[gathers++] = chunk;
        if (pass->is_last)
            t->scatters[scatters++] = chunk;
    }
    pthread_mutex_unlock(&t->lock);
}

/* Returns the group of the n ranks in `ranks`, in which this rank is number
 * `mine`, without an emulated link. */
static lhi_net_group make_group(uint32_t n, uint32_t mine,
                                const uint32_t *ranks)
{
    return (lhi_net_group){
        .n_ranks = n, .mine = mine, .ranks = ranks, .link = LHI_NET_NO_LINK};
}

/* Fills in the ranks with the same experts, and their shard groups, in the
 * training. Omits them if they equal the ranks that share other tensors. */
static void list_expert_group(lhi_training *t)
{
    uint32_t all[LHI_NET_MAX_RANKS];
    if (!lhi_has_disjoint_expert_groups(t->o.model, t->o.grid))
        return;
    t->expert_member =
        lhi_grid_find_group(t->o.grid, LHI_GRID_EXPERT_DATA, t->o.place, all);
    t->n_expert_members =
        lhi_grid_group_size(t->o.grid, LHI_GRID_EXPERT_DATA, t->o.stage);
    for (uint32_t k = 0; k < t->n_expert_members; k++) {
        const lhi_shard_groups its =
            lhi_expert_shard_groups_find(t->o.model, t->o.grid, all[k]);
        t->expert_shard_of[k] = its.site > 0 ? UINT32_MAX : its.shard;
        all[k] = lhi_rank_assignment_find_rank(t->o.assignment, all[k]);
    }
    const lhi_shard_groups of =
        lhi_expert_shard_groups_find(t->o.model, t->o.grid, t->o.place);
    lhi_expert_shard_groups_list_members(t->o.model, t->o.grid, t->o.place, all,
                                         t->expert_ranks,
                                         t->expert_across_ranks);
    t->expert_shards = of;
    t->experts = make_group(of.n_shards, of.shard, t->expert_ranks);
    t->expert_across = make_group(of.n_sites, of.site, t->expert_across_ranks);
}

/* Lists the ranks that share this rank's parameters: all replicas, the shards
 * at its datacenter, and the same shard at other datacenters. */
static void list_groups(lhi_training *t)
{
    lhi_grid_find_group(t->o.grid, LHI_GRID_DATA, t->o.place, t->all_ranks);
    for (uint32_t k = 0; k < t->o.n_replicas; k++)
        t->all_ranks[k] =
            lhi_rank_assignment_find_rank(t->o.assignment, t->all_ranks[k]);
    t->shards = lhi_shard_groups_find(t->o.model, t->o.n_replicas, t->o.stage,
                                      t->o.replica);
    for (uint32_t k = 0; k < t->o.n_replicas; k++) {
        const lhi_shard_groups of =
            lhi_shard_groups_find(t->o.model, t->o.n_replicas, t->o.stage, k);
        t->shard_of[k] = of.site > 0 ? UINT32_MAX : of.shard;
    }
    lhi_shard_groups_list_members(t->o.model, t->o.n_replicas, t->o.stage,
                                  t->o.replica, t->all_ranks, t->group_ranks,
                                  t->across_ranks);
    t->group = make_group(t->shards.n_shards, t->shards.shard, t->group_ranks);
    t->group.hops = t->hops;
    t->across = make_group(t->shards.n_sites, t->shards.site, t->across_ranks);
    list_expert_group(t);
}

/* Allocates the tables per chunk and replica, and fills in this rank's chunks,
 * execution plan, times and groups. */
static lh_status list_chunks(lhi_training *t, lh_error *err)
{
    const lh_exec *x = t->o.exec;
    t->mine = calloc(x->n_chunks, sizeof *t->mine);
    t->gathers = calloc(x->n_chunks, sizeof *t->gathers);
    t->scatters = calloc(x->n_chunks, sizeof *t->scatters);
    t->gathered = calloc(x->n_chunks, sizeof *t->gathered);
    t->ended = calloc(x->n_chunks, sizeof *t->ended);
    t->ended_ns = calloc(x->n_chunks, sizeof *t->ended_ns);
    t->arrive_ns = calloc(x->n_chunks, sizeof *t->arrive_ns);
    t->collectives = calloc(2 * (size_t)x->n_chunks, sizeof *t->collectives);
    t->times = calloc(x->n_chunks, sizeof *t->times);
    t->all_ranks = calloc(t->o.n_replicas, sizeof *t->all_ranks);
    t->group_ranks = calloc(t->o.n_replicas, sizeof *t->group_ranks);
    t->across_ranks = calloc(t->o.n_replicas, sizeof *t->across_ranks);
    t->shard_of = calloc(t->o.n_replicas, sizeof *t->shard_of);
    t->expert_ranks =
        calloc(lhi_grid_count_copies(t->o.grid), sizeof *t->expert_ranks);
    t->expert_shard_of =
        calloc(lhi_grid_count_copies(t->o.grid), sizeof *t->expert_shard_of);
    t->expert_across_ranks = calloc(lhi_grid_count_copies(t->o.grid),
                                    sizeof *t->expert_across_ranks);
    if (!t->mine || !t->gathers || !t->scatters || !t->gathered || !t->ended ||
        !t->times || !t->ended_ns || !t->arrive_ns || !t->collectives ||
        !t->all_ranks || !t->group_ranks || !t->across_ranks || !t->shard_of ||
        !t->expert_ranks || !t->expert_across_ranks || !t->expert_shard_of)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < x->n_chunks; c++)
        if (x->chunk_ranks[c] == t->o.stage)
            t->mine[t->n_mine++] = c;
    if (t->o.observes_hops &&
        !(t->hops = calloc(t->o.n_replicas, sizeof *t->hops)))
        return lhi_fail_nomem(err);
    lhi_training_set_plan(t, x);
    lhi_training_set_times(t, t->o.pipeline);
    list_groups(t);
    return LH_OK;
}

/* Checks whether parameters or gradients are gathered or scattered during
 * passes (FSDP or elastic sharding). */
static bool has_sharding_in_passes(const lhi_training *t)
{
    return t->o.n_replicas > 1 &&
           lhi_has_pass_collectives(t->o.pipeline, t->o.model);
}

/* Returns the optimizer's options: defaults, overridden by the model's
 * settings. */
static lhi_train_options train_options(const lhi_training *t)
{
    const lh_train_model *m = t->o.model;
    lhi_train_options with = lhi_train_defaults(t->o.steps);
    with.model = m->model;
    with.n_chunks = t->o.exec->n_chunks;
    with.n_mine = t->n_mine;
    with.mine = t->mine;
    with.replica = t->o.replica;
    with.n_replicas = t->o.n_replicas;
    with.shard = t->shards.shard;
    with.n_shards = t->shards.n_shards;
    with.is_follower = t->shards.site > 0;
    with.shard_of = t->shard_of;
    with.balance_bias = m->balance_bias;
    with.n_expert_replicas = t->n_expert_members;
    with.expert_replica = t->expert_member;
    with.n_expert_shards = t->expert_shards.n_shards;
    with.expert_shard = t->expert_shards.shard;
    with.is_expert_follower = t->expert_shards.site > 0;
    with.expert_shard_of = t->expert_shard_of;
    if (!isnan(m->rate)) {
        with.rate = m->rate;
        with.min_rate = m->rate / 10;
    }
    if (!isnan(m->min_rate))
        with.min_rate = m->min_rate;
    if (!isnan(m->weight_decay))
        with.weight_decay = m->weight_decay;
    if (!isnan(m->clip))
        with.clip = m->clip;
    if (m->warmup != UINT64_MAX)
        with.warmup = m->warmup;
    const lh_train_optimizer *how = m->optimizer;
    if (how && !isnan(how->beta1))
        with.beta1 = how->beta1;
    if (how && !isnan(how->beta2))
        with.beta2 = how->beta2;
    if (how && !isnan(how->epsilon))
        with.epsilon = how->epsilon;
    if (how && how->rate_decay != LH_N_RATE_DECAYS)
        with.rate_decay = how->rate_decay;
    if (how && how->decay_steps != UINT64_MAX)
        with.decay_steps = how->decay_steps;
    with.delayed = m->delayed_update;
    with.n_tensor = lhi_grid_get_tensor(t->o.grid, t->o.stage);
    with.most_tensor = t->o.grid->tensor;
    with.tensor = t->o.tensor;
    if (t->n_expert_members) {
        with.n_expert_tensor = t->o.grid->expert_tensor;
        with.expert_tensor =
            lhi_grid_find_coords(t->o.grid, t->o.place).expert_tensor;
    }
    with.gather_slices = exchange_slices;
    with.staged = has_sharding_in_passes(t);
    with.gather_tensor = with.staged ? gather_for_checkpoint : NULL;
    with.context = (void *)(uintptr_t)t;
    return with;
}

/* Returns the bit set of the optimizer's options that were given. */
static uint32_t list_given(const lh_train_optimizer *how)
{
    return (uint32_t)!isnan(how->beta1) << LHI_RECIPE_BETA1 |
           (uint32_t)!isnan(how->beta2) << LHI_RECIPE_BETA2 |
           (uint32_t)!isnan(how->epsilon) << LHI_RECIPE_EPSILON |
           (uint32_t)(how->rate_decay != LH_N_RATE_DECAYS)
               << LHI_RECIPE_RATE_DECAY |
           (uint32_t)(how->decay_steps != UINT64_MAX) << LHI_RECIPE_DECAY_STEPS;
}

/* Sets the recipe (the data and options that a resumed run must repeat) from
 * the run's options and the optimizer options `with`. */
static void set_recipe(lhi_training *t, const lhi_train_options *with)
{
    const lh_train_model *m = t->o.model;
    const uint32_t job_options = ~0u << LHI_RECIPE_DROPOUT;
    t->recipe = (lhi_recipe){
        .global_batch = lhi_job_count_sequences(m, t->o.grid->replicas) *
                        lhi_pipeline_count_sequence_groups(t->o.pipeline),
        .sequence = m->sequence,
        .seed = m->seed,
        .data = t->o.data_fingerprint.value,
        .sampled_data = t->o.data_fingerprint.sampled,
        .validation = m->validation,
        .delayed_update = m->delayed_update,
        .options = {[LHI_RECIPE_STEPS] = (double)with->steps,
                    [LHI_RECIPE_RATE] = with->rate,
                    [LHI_RECIPE_MIN_RATE] = with->min_rate,
                    [LHI_RECIPE_WARMUP] = (double)with->warmup,
                    [LHI_RECIPE_WEIGHT_DECAY] = with->weight_decay,
                    [LHI_RECIPE_CLIP] = with->clip,
                    [LHI_RECIPE_BETA1] = with->beta1,
                    [LHI_RECIPE_BETA2] = with->beta2,
                    [LHI_RECIPE_EPSILON] = with->epsilon,
                    [LHI_RECIPE_RATE_DECAY] = with->rate_decay,
                    [LHI_RECIPE_DECAY_STEPS] = (double)with->decay_steps,
                    [LHI_RECIPE_DROPOUT] = m->dropout,
                    [LHI_RECIPE_BALANCE_LOSS] = m->balance_loss,
                    [LHI_RECIPE_BALANCE_BIAS] = m->balance_bias,
                    [LHI_RECIPE_EXPERT_CAPACITY] = m->expert_capacity,
                    [LHI_RECIPE_BF16] = m->bf16},
        .given = job_options | (uint32_t)!isnan(m->rate) << LHI_RECIPE_RATE |
                 (uint32_t)!isnan(m->min_rate) << LHI_RECIPE_MIN_RATE |
                 (uint32_t)(m->warmup != UINT64_MAX) << LHI_RECIPE_WARMUP |
                 (uint32_t)!isnan(m->weight_decay) << LHI_RECIPE_WEIGHT_DECAY |
                 (uint32_t)!isnan(m->clip) << LHI_RECIPE_CLIP};
    if (m->optimizer)
        t->recipe.given |= list_given(m->optimizer);
    /* Checked before the run began. */
    lhi_recipe_parse_names(m->overrides, &t->recipe.overridden, NULL);
    lhi_text_copy(t->recipe.run.name, sizeof t->recipe.run.name,
                  m->model->name ? m->model->name : "");
    t->checkpoint = (lhi_checkpoint_options){
        .folder = m->checkpoint,
        .norm_epsilon = lh_model_norm_epsilon(m->model),
        .rope_theta = lh_model_rope_theta(m->model),
        .dropout = m->dropout,
        .balance = m->balance_loss,
        .keep = m->keep,
        .recipe = &t->recipe,
        .sequence = m->sequence,
        .tokenizer = m->tokenizer};
}

/* Locks the checkpoint folder until the end of the run and removes stale files
 * from it. */
static lh_status lock_checkpoints(lhi_training *t, lh_error *err)
{
    const char *folder = t->o.model->checkpoint;
    LHI_TRY(lhi_folder_lock_take(folder, &t->o.remarks, &t->folder_lock, err));
    t->checkpoint.lock = t->folder_lock;
    return lhi_checkpoint_remove_stale(folder, err);
}

/* Checks on every rank that it has the checkpoint folder in which rank 0 has
 * created a file, because all ranks write their parts of a checkpoint there. A
 * rank that fails ends the run before its first step. */
static lh_status check_shared_folder(const lhi_training *t, lh_error *err)
{
    const char *folder = t->o.model->checkpoint;
    const bool is_leader = lhi_net_rank(t->o.net) == 0;
    uint64_t number = 0;
    double sum = 0, none = 0;
    if (is_leader && !lhi_random_bytes(&number, sizeof number))
        return lhi_fail(err, LH_EIO, "cannot generate random numbers");
    number >>= 12; /* exact as a double */
    if (is_leader)
        LHI_TRY(lhi_folder_marker_create(folder, number, err));
    sum = (double)number;
    lh_status status =
        lhi_all_reduce_sum(t->o.net, MARKER_TURN, &sum, 1, t->o.stop, err);
    if (status == LH_OK && !is_leader)
        status = lhi_folder_marker_check(folder, (uint64_t)sum, err);
    if (status == LH_OK) /* rank 0 removes the file after all checks */
        status = lhi_all_reduce_sum(t->o.net, CHECKED_TURN, &none, 1, t->o.stop,
                                    err);
    if (is_leader)
        lhi_folder_marker_remove(folder, number);
    return status;
}

/* Loads the initial weights of this rank's chunks, and checks that the files on
 * its host are those of rank 0. */
static lh_status load_weights(lhi_training *t, lh_error *err)
{
    const char *path = t->o.model->weights;
    double check, first;
    LHI_TRY(lhi_train_load_weights(t->train, path, err));
    LHI_TRY(lhi_train_hash_weights(t->o.model->model, path, &check, err));
    first = lhi_net_rank(t->o.net) == 0 ? check : 0;
    LHI_TRY(
        lhi_all_reduce_sum(t->o.net, WEIGHTS_TURN, &first, 1, t->o.stop, err));
    return first == check
               ? LH_OK
               : lhi_fail(err, LH_EINPUT,
                          "%.300s: has other weights than on rank 0's host: "
                          "all hosts need the same files",
                          path);
}

/* Checks whether the learning rate decays to min-rate. */
static bool decays(const lhi_training *t)
{
    return t->recipe.options[LHI_RECIPE_RATE_DECAY] <= LH_RATE_DECAY_LINEAR;
}

/* Checks, when the run begins, that the learning rate does not rise while it
 * decays, and that a changed peak has an effect. LH_EINPUT: otherwise. */
static lh_status check_rates(const lhi_training *t, lh_error *err)
{
    const double *o = t->recipe.options;
    const bool resumes = t->o.model->resume;
    const bool overrides = t->recipe.overridden >> LHI_RECIPE_RATE & 1;
    const bool changes =
        overrides || (t->recipe.overridden >> LHI_RECIPE_MIN_RATE & 1);
    if (t->o.is_migrated || t->o.is_restarted || !decays(t))
        return LH_OK;
    if ((!resumes || changes) && o[LHI_RECIPE_MIN_RATE] > o[LHI_RECIPE_RATE])
        return lhi_fail(err, LH_EINPUT,
                        "min-rate, the learning rate after the decay, is %.9g "
                        "and above rate, the highest, which is %.9g: %s",
                        o[LHI_RECIPE_MIN_RATE], o[LHI_RECIPE_RATE],
                        resumes ? "override both" : "give other rates");
    if (overrides && (double)lhi_train_step(t->train) >= o[LHI_RECIPE_STEPS])
        return lhi_fail(err, LH_EINPUT,
                        "--override rate has no effect: the learning-rate "
                        "schedule ended at step %.0f; override steps, too, or "
                        "min-rate in its place",
                        o[LHI_RECIPE_STEPS]);
    return LH_OK;
}

/* Claims the checkpoint folder for this run, on rank 0, and prints a remark if
 * the run is longer than its learning-rate schedule. */
static lh_status claim_folder(lhi_training *t, lh_error *err)
{
    const lh_train_model *m = t->o.model;
    const lhi_folder_claim claim = {.folder = m->checkpoint,
                                    .run = m->resume ? &t->recipe.run : NULL,
                                    .begin = lhi_train_step(t->train),
                                    .resume = m->resume,
                                    .fresh = m->fresh};
    const double end = t->recipe.options[LHI_RECIPE_STEPS];
    char text[200];
    if (m->resume && end < (double)t->o.steps && t->o.remarks.print) {
        snprintf(text, sizeof text,
                 "the learning-rate schedule ends at step %.0f; later steps "
                 "have its final rate, %g; --override steps stretches it to "
                 "--steps",
                 end,
                 t->recipe.options[decays(t) ? LHI_RECIPE_MIN_RATE
                                             : LHI_RECIPE_RATE]);
        t->o.remarks.print(t->o.remarks.context, text);
    }
    return m->checkpoint ? lhi_folder_claim_check(&claim, &t->discarded,
                                                  &t->n_discarded, err)
                         : LH_OK;
}

/* Makes the rank's sharding during passes: FSDP (per layer) or elastic sharding
 * (collectives of the schedule). */
static lh_status make_sharded(lhi_training *t, lh_error *err)
{
    const lhi_sharding_options o = {
        .pipeline = t->o.pipeline,
        .exec = t->o.exec,
        .stage = t->o.stage,
        .n_mine = t->n_mine,
        .mine = t->mine,
        .emulates = t->o.emulates,
        .times = t->times,
        .parts = {&t->o.model->layer_links, &t->o.model->expert_links},
        .shared_clock = t->o.shared_clock,
        .net = t->o.net,
        .group = &t->group,
        .experts = t->n_expert_members ? &t->experts : NULL,
        .across = t->shards.n_sites > 1 ? &t->across : NULL,
        .expert_across = t->n_expert_members ? &t->expert_across : NULL,
        .leaders = t->o.model->reduce_by_leaders,
        .stop = t->o.stop,
        .train = t->train,
        .device = t->o.device};
    LHI_TRY(lhi_train_finalise(t->train, err));
    if (t->o.model->per_layer_sharding)
        LHI_TRY(lhi_fsdp_make(&o, &t->fsdp, err));
    else
        LHI_TRY(lhi_elastic_sharding_make(&o, &t->sharded, err));
    t->hooks.pass = before_pass;
    return LH_OK;
}

/* Makes the group of ranks that collect the slices of tensors in a bucket
 * (experts or other parameters) for checkpoints. */
static lh_status make_slice_group(lhi_training *t, lhi_train_bucket_kind bucket,
                                  lhi_grid_group_kind kind, lh_error *err)
{
    uint32_t ranks[LHI_NET_MAX_RANKS];
    lhi_group_options o = {.n_ranks =
                               lhi_grid_group_size(t->o.grid, kind, t->o.stage),
                           .ranks = ranks,
                           .tag = lhi_tag(LHI_TAG_GROUP, kind, 0),
                           .stop = t->o.stop};
    o.mine =
        lhi_grid_find_group(t->o.grid, kind, lhi_net_rank(t->o.net), ranks);
    return lhi_group_make(t->o.net, &o, &t->slice_groups[bucket], err);
}

/* Makes groups, optimizer and checkpoints, resumes, and starts the
 * communication thread or the sharding. */
static lh_status init(lhi_training *t, lh_error *err)
{
    const lh_train_model *m = t->o.model;
    LHI_TRY(list_chunks(t, err));
    if (lhi_grid_get_tensor(t->o.grid, t->o.stage) > 1)
        LHI_TRY(make_slice_group(t, LHI_BUCKET_DEFAULT, LHI_GRID_COPIES, err));
    if (t->n_expert_members && t->o.grid->expert_tensor > 1)
        LHI_TRY(make_slice_group(t, LHI_BUCKET_EXPERTS, LHI_GRID_EXPERT_SLICES,
                                 err));
    lhi_train_options with = train_options(t);
    set_recipe(t, &with);
    LHI_TRY(lhi_train_make(t->o.device, &with, &t->train, err));
    LHI_TRY(lhi_training_list_tied(t, err));
    if (m->checkpoint && lhi_net_rank(t->o.net) == 0 && !t->o.is_migrated)
        LHI_TRY(lock_checkpoints(t, err));
    if (m->checkpoint && lhi_net_n_ranks(t->o.net) > 1 && !t->o.is_migrated)
        LHI_TRY(check_shared_folder(t, err));
    const lhi_resume_options resume = {.train = t->train,
                                       .net = t->o.net,
                                       .path = m->resume,
                                       .checkpoint = &t->checkpoint,
                                       .remarks = t->o.remarks,
                                       .stop = t->o.stop};
    if (m->resume && !t->o.is_migrated)
        LHI_TRY(lhi_resume(&resume, err));
    else if (m->weights && !t->o.is_migrated)
        LHI_TRY(load_weights(t, err));
    LHI_TRY(check_rates(t, err));
    if (lhi_net_rank(t->o.net) == 0 && !t->o.is_migrated)
        LHI_TRY(claim_folder(t, err));
    t->is_gathered = true;
    if (t->o.n_replicas == 1 && t->n_expert_members <= 1)
        return LH_OK;
    if (has_sharding_in_passes(t))
        return make_sharded(t, err);
    if (pthread_create(&t->thread, NULL, lhi_training_thread, t) != 0)
        return lhi_fail(err, LH_EIO, "cannot start a communication thread");
    t->has_thread = true;
    return LH_OK;
}

lh_status lhi_training_make(const lhi_training_options *options,
                            lhi_training **out, lh_error *err)
{
    lhi_training *t = calloc(1, sizeof *t);
    if (!t)
        return lhi_fail_nomem(err);
    t->o = *options;
    t->hooks = (lhi_rank_hooks){t, before_first_pass, after_last_pass, NULL};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    lh_status status = init(t, err);
    if (status != LH_OK) {
        lhi_training_free(t);
        return status;
    }
    *out = t;
    return LH_OK;
}

void lhi_training_stop(lhi_training *t)
{
    if (t->sharded)
        lhi_elastic_sharding_stop(t->sharded);
    if (t->fsdp)
        lhi_fsdp_stop(t->fsdp);
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    if (t->has_thread)
        pthread_join(t->thread, NULL);
    t->has_thread = false;
}

void lhi_training_free(lhi_training *t)
{
    if (!t)
        return;
    lhi_training_stop(t);
    lhi_elastic_sharding_free(t->sharded);
    lhi_fsdp_free(t->fsdp);
    lhi_train_free(t->train);
    lhi_folder_lock_release(t->folder_lock);
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++)
        lhi_group_free(t->slice_groups[i]);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t->discarded);
    free(t->tied);
    free(t->mine);
    free(t->gathers);
    free(t->scatters);
    free(t->gathered);
    free(t->ended);
    free(t->ended_ns);
    free(t->arrive_ns);
    free(t->collectives);
    free(t->hops);
    free(t->times);
    free(t->all_ranks);
    free(t->group_ranks);
    free(t->across_ranks);
    free(t->shard_of);
    free(t->expert_ranks);
    free(t->expert_across_ranks);
    free(t->expert_shard_of);
    free(t);
}
