/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/training.h"

#include "base/realtime.h"
#include "engine/layered.h"
#include "engine/resume.h"
#include "engine/shard_groups.h"
#include "engine/sharded.h"
#include "engine/sum_ranks.h"
#include "net/group.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    lhi_net_group experts; /* those with the same experts, of several */
    uint32_t *all_ranks, *group_ranks, *across_ranks, *expert_ranks;
    lhi_group *copies; /* this device's ranks of all copies; NULL: each has its
                          tensors whole */
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
    lhi_played *played;
    uint32_t n_played, n_scattered;
    lh_status status;
    lh_error err;
};

static uint64_t data_tag(uint64_t step, uint32_t chunk, bool is_scatter)
{
    return lhi_tag(LHI_TAG_DATA, step, (2 * chunk + is_scatter) * LHI_NET_TAGS);
}

/* Numbers of chunks, for tags: experts' are behind the others. */
static uint32_t number_of(const lhi_training *t, uint32_t chunk,
                          lhi_train_lot_kind lot)
{
    return chunk + lot * t->o.exec->n_chunks;
}

/* Behind all of these. */
static uint64_t sum_tag(const lhi_training *t, uint64_t step, uint32_t chunk)
{
    uint32_t each = lhi_site_sum_tags(&t->group);
    return lhi_tag(LHI_TAG_DATA, step,
                   (2 * t->o.exec->n_chunks + each * chunk) * LHI_NET_TAGS);
}

/* Where others are divided alike. The array is done with by then. */
static lh_status sum_sites(lhi_training *t, uint64_t step, uint32_t chunk,
                           float *room, int64_t *ready_ns, lh_error *err)
{
    const lhi_site_sums sites = {t->o.net, &t->group, &t->across,
                                 t->o.model->leaders};
    size_t n;
    float *sums = lhi_train_sums(t->train, chunk, &n);
    return lhi_sum_sites(&sites, sums, n, room, sum_tag(t, step, chunk),
                         ready_ns, err);
}

/* Both raise *ready_ns, when this rank was ready, to when all replicas were, as
 * far as one clock says. */
static lh_status gather_lot(lhi_training *t, uint64_t step, uint32_t chunk,
                            lhi_train_lot_kind lot, int64_t *ready_ns,
                            lh_error *err)
{
    lhi_net_group group = lot == LHI_LOT_MOST ? t->group : t->experts;
    float *values;
    size_t n;
    group.latest_ns = t->o.shared_clock ? ready_ns : NULL;
    lhi_train_parameters(t->train, chunk, lot, &values, &n);
    if (n == 0)
        return LH_OK;
    return lhi_net_all_gather(t->o.net, &group,
                              data_tag(step, number_of(t, chunk, lot), false),
                              values, n, sizeof *values, err);
}

static lh_status gather(lhi_training *t, uint64_t step, uint32_t chunk,
                        int64_t *ready_ns, lh_error *err)
{
    for (uint32_t i = 0; i < LHI_N_TRAIN_LOTS; i++)
        LHI_TRY(gather_lot(t, step, chunk, (lhi_train_lot_kind)i, ready_ns,
                           err));
    return LH_OK;
}

static lh_status scatter_lot(lhi_training *t, uint64_t step, uint32_t chunk,
                             lhi_train_lot_kind lot, const float **values,
                             int64_t *ready_ns, lh_error *err)
{
    lhi_net_group group = lot == LHI_LOT_MOST ? t->group : t->experts;
    float *out;
    size_t n;
    group.latest_ns = t->o.shared_clock ? ready_ns : NULL;
    lhi_train_gradients(t->train, chunk, lot, values, &n, &out);
    if (n == 0)
        return LH_OK;
    return lhi_net_reduce_scatter(
        t->o.net, &group, data_tag(step, number_of(t, chunk, lot), true),
        *values, n, out, err);
}

static lh_status scatter(lhi_training *t, uint64_t step, uint32_t chunk,
                         int64_t *ready_ns, lh_error *err)
{
    const float *values, *unused;
    LHI_TRY(scatter_lot(t, step, chunk, LHI_LOT_EXPERTS, &unused, ready_ns,
                        err));
    LHI_TRY(
        scatter_lot(t, step, chunk, LHI_LOT_MOST, &values, ready_ns, err));
    return sum_sites(t, step, chunk, (float *)(uintptr_t)values,
                     t->o.shared_clock ? ready_ns : NULL, err);
}

/* --- times
 * ---------------------------------------------------------------------- */

/* A collective whose values are here now, and for which all replicas were ready
 * at `ready_ns`: as it was, or as it would have been over the stage's
 * data-parallel link, one after the other. Under the lock; when it arrives. */
static int64_t date_collective(lhi_training *t, uint32_t chunk, bool is_scatter,
                               int64_t ready_ns)
{
    const lh_chunk *c = &t->o.pipeline->chunks[chunk];
    int64_t takes = is_scatter ? c->reduce_scatter_ns : c->all_gather_ns;
    int64_t depart = ready_ns, sent = lhi_now_ns(), latency = 0;
    if (t->o.emulates) {
        depart = ready_ns > t->data_free_ns ? ready_ns : t->data_free_ns;
        sent = depart + takes;
        latency = takes > 0 ? c->dp_latency_ns : 0;
        t->data_free_ns = sent;
    }
    int64_t arrive = sent + latency;
    t->played[t->n_played++] = (lhi_played){
        chunk, is_scatter, LH_NONE, ready_ns, depart, sent, arrive};
    if (arrive > t->last_ns)
        t->last_ns = arrive;
    return arrive;
}

/* --- the thread --------------------------------------------------------------
 */

static lh_status run_round(lhi_training *t, uint64_t step, bool gathers)
{
    for (uint32_t i = 0; gathers && i < t->n_mine; i++) {
        uint32_t chunk = t->gathers[i];
        int64_t ready_ns = t->begin_ns;
        LHI_TRY(gather(t, step, chunk, &ready_ns, &t->err));
        pthread_mutex_lock(&t->lock);
        t->arrive_ns[chunk] = date_collective(t, chunk, false, ready_ns);
        t->gathered[chunk] = true;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
    }
    for (uint32_t i = 0; i < t->n_mine; i++) {
        uint32_t chunk = t->scatters[i];
        pthread_mutex_lock(&t->lock);
        while (!t->ended[chunk] && !t->stop)
            pthread_cond_wait(&t->changed, &t->lock);
        bool stop = t->stop;
        int64_t ready_ns = t->ended_ns[chunk];
        pthread_mutex_unlock(&t->lock);
        if (stop)
            return lhi_fail(&t->err, LH_ECANCELED, "stopped");
        LHI_TRY(scatter(t, step, chunk, &ready_ns, &t->err));
        pthread_mutex_lock(&t->lock);
        date_collective(t, chunk, true, ready_ns);
        t->n_scattered++;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
    }
    return LH_OK;
}

static void *thread_main(void *of)
{
    lhi_training *t = of;
    uint64_t round = 0;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (t->round == round) {
            pthread_cond_wait(&t->changed, &t->lock);
            continue;
        }
        round = t->round;
        uint64_t step = t->step;
        bool gathers = t->round_gathers;
        pthread_mutex_unlock(&t->lock);
        lh_status status = run_round(t, step, gathers);
        pthread_mutex_lock(&t->lock);
        if (status != LH_OK)
            t->status = status;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* --- hooks
 * ---------------------------------------------------------------------- */

static lh_status first(void *of, uint32_t chunk, lh_error *err)
{
    lhi_training *t = of;
    lh_status status = LH_OK;
    if (t->whole)
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
    } /* else it has none to wait for */
    if (status == LH_OK)
        lhi_train_gathered(t->train, chunk);
    return status;
}

static lh_status pass(void *of, uint32_t i, lhi_step_kind kind, lh_error *err)
{
    lhi_training *t = of;
    return t->layered ? lhi_layered_pass(t->layered, i, kind, err)
                      : lhi_shards_pass(t->sharded, i, kind, err);
}

/* To the first of the copies' ranks of this device. */
static lh_status collect(void *of, const float *mine, size_t n, float *all,
                         const size_t *gets, lh_error *err)
{
    lhi_training *t = of;
    uint32_t copies = lhi_group_n_ranks(t->copies);
    size_t *sizes = calloc(2 * (size_t)copies, sizeof *sizes);
    if (!sizes)
        return lhi_fail_nomem(err);
    sizes[0] = n * sizeof *mine;
    for (uint32_t i = 0; gets && i < copies; i++)
        sizes[copies + i] = gets[i] * sizeof *all;
    lh_status status = lhi_group_all_to_all(t->copies, mine, sizes, all,
                                            sizes + copies, err);
    free(sizes);
    return status;
}

static lh_status show(void *of, uint32_t chunk, uint32_t tensor, lh_error *err)
{
    lhi_training *t = of;
    if (t->layered)
        return lhi_layered_show(t->layered, chunk, tensor, err);
    return tensor == 0 || tensor == LH_NONE
               ? lhi_shards_show(t->sharded, chunk, tensor == 0, err)
               : LH_OK;
}

static void last(void *of, uint32_t chunk)
{
    lhi_training *t = of;
    pthread_mutex_lock(&t->lock);
    t->ended[chunk] = true;
    t->ended_ns[chunk] = lhi_now_ns();
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* --- a step
 * ----------------------------------------------------------------------- */

void lhi_training_begin(lhi_training *t, uint64_t step)
{
    if (t->sharded)
        lhi_shards_begin(t->sharded, step);
    if (t->layered)
        lhi_layered_begin(t->layered, step);
    pthread_mutex_lock(&t->lock);
    t->step = step;
    t->round++;
    t->round_gathers = !t->whole;
    t->n_scattered = t->n_played = 0;
    t->begin_ns = t->data_free_ns = lhi_now_ns();
    t->last_ns = 0;
    memset(t->gathered, 0, t->o.exec->n_chunks * sizeof *t->gathered);
    memset(t->ended, 0, t->o.exec->n_chunks * sizeof *t->ended);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static lh_status await_scatters(lhi_training *t, lh_error *err)
{
    if (t->sharded)
        return lhi_shards_end(t->sharded, err);
    if (t->layered)
        return lhi_layered_end(t->layered, err);
    if (!t->has_thread) {
        int64_t ready_ns = 0;
        for (uint32_t i = 0; i < t->n_mine; i++)
            LHI_TRY(scatter(t, t->step, t->scatters[i], &ready_ns, err));
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

static lh_status exchange(lhi_training *t, uint32_t peer, uint64_t turn,
                          const void *mine, void *theirs, size_t size,
                          lh_error *err)
{
    lhi_net_op out = {0}, in = {0};
    uint64_t tag = lhi_tag(LHI_TAG_DATA, turn, UINT32_MAX);
    LHI_TRY(lhi_net_receive(t->o.net, peer, tag, theirs, size, &in, err));
    lh_status status =
        lhi_net_send(t->o.net, peer, tag, mine, size, LHI_NET_NO_LINK,
                     lhi_now_ns(), LHI_NET_NO_TURN, &out, err);
    if (status == LH_OK)
        status = lhi_net_wait(t->o.net, &out, 0, err);
    lh_status heard = lhi_net_wait(t->o.net, &in, 0, err);
    return status == LH_OK ? heard : status;
}

static lh_status exchange_tied(lhi_training *t, uint64_t turn, lh_error *err)
{
    lhi_train_pair pair = lhi_train_tied(t->train);
    if (pair.n == 0)
        return LH_OK;
    uint32_t peer = lhi_seats_host(
        t->o.seats, t->o.place - t->o.stage +
                        t->o.exec->chunk_ranks[pair.other_chunk]);
    return exchange(t, peer, turn, pair.mine, pair.theirs,
                    pair.n * sizeof *pair.mine, err);
}

/* The sum of what all ranks say, by lhi_train_tally() or, of a step that
 * validates, lhi_train_validation_tally(). */
static lh_status take_tally(lhi_training *t, uint64_t turn,
                            lh_status (*fill)(lhi_train *, double *,
                                              lh_error *),
                            double **out, lh_error *err)
{
    size_t n = lhi_train_tally_size(t->train);
    double *tally = calloc(n + 1, sizeof *tally);
    if (!tally)
        return lhi_fail_nomem(err);
    lh_status status = fill(t->train, tally, err);
    if (status == LH_OK)
        status = lhi_sum_ranks(t->o.net, turn, tally, n, NULL, err);
    if (status != LH_OK) {
        free(tally);
        return status;
    }
    *out = tally;
    return LH_OK;
}

lh_status lhi_training_end(lhi_training *t, uint64_t turn,
                           lhi_train_report *report, lh_error *err)
{
    double *tally;
    LHI_TRY(await_scatters(t, err));
    LHI_TRY(exchange_tied(t, turn, err));
    LHI_TRY(take_tally(t, turn, lhi_train_tally, &tally, err));
    lh_status status = lhi_train_update(t->train, tally, report, err);
    free(tally);
    t->whole = false;
    return status;
}

lh_status lhi_training_gather(lhi_training *t, uint64_t turn, lh_error *err)
{
    if (t->sharded)
        return lhi_shards_gather(t->sharded, turn, err);
    if (t->layered)
        return lhi_layered_gather(t->layered, turn, err);
    if (t->whole)
        return LH_OK;
    for (uint32_t i = 0; i < t->n_mine; i++) {
        int64_t ready_ns = 0;
        /* Numbers above all steps', so that tags differ. */
        LHI_TRY(gather(t, (1u << 23) + turn, t->gathers[i], &ready_ns, err));
        lhi_train_gathered(t->train, t->gathers[i]);
    }
    t->whole = true;
    return LH_OK;
}

lh_status lhi_training_validated(lhi_training *t, uint64_t turn, double *loss,
                                 lh_error *err)
{
    double *tally;
    LHI_TRY(take_tally(t, turn, lhi_train_validation_tally, &tally, err));
    lh_status status = lhi_train_validated(t->train, tally, loss, err);
    free(tally);
    return status;
}

static lh_status save_parts(lhi_training *t, uint64_t turn, double *sums,
                            size_t n, lh_error *err)
{
    bool leads = lhi_net_rank(t->o.net) == 0;
    const lhi_net_group all = {t->o.n_ranks, lhi_net_rank(t->o.net), NULL,
                               LHI_NET_NO_LINK, NULL};
    if (leads)
        LHI_TRY(lhi_train_save_begin(t->train, &t->checkpoint, err));
    /* The folder is there. */
    LHI_TRY(lhi_net_barrier(t->o.net, &all, lhi_tag(LHI_TAG_BARRIER, turn, 0),
                            NULL, err));
    LHI_TRY(lhi_train_save_part(t->train, &t->checkpoint, sums, err));
    LHI_TRY(lhi_sum_ranks(t->o.net, turn, sums, n, NULL, err));
    return leads ? lhi_train_save_end(t->train, &t->checkpoint, sums, err)
                 : LH_OK;
}

lh_status lhi_training_save(lhi_training *t, uint64_t turn, lh_error *err)
{
    LHI_TRY(lhi_training_gather(t, turn, err));
    size_t n = lhi_train_sums_size(t->train);
    double *sums = calloc(n + 1, sizeof *sums);
    if (!sums)
        return lhi_fail_nomem(err);
    lh_status status = save_parts(t, turn, sums, n, err);
    if (status != LH_OK && lhi_net_rank(t->o.net) == 0)
        lhi_train_save_cancel(t->train, &t->checkpoint);
    free(sums);
    return status;
}

/* --- making and freeing
 * -------------------------------------------------------------- */

/* Each chunk is in both once, whatever the order: there is room. */
void lhi_training_reschedule(lhi_training *t, const lh_exec *exec)
{
    const lhi_exec_rank *program = &exec->ranks[t->o.stage];
    uint32_t gathers = 0, scatters = 0;
    if (t->layered)
        lhi_layered_reschedule(t->layered, exec);
    if (t->sharded)
        lhi_shards_reschedule(t->sharded, exec);
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < program->n_passes; i++) {
        const lhi_exec_pass *pass = &program->passes[i];
        if (pass->is_first)
            t->gathers[gathers++] = pass->pass.chunk;
        if (pass->is_last)
            t->scatters[scatters++] = pass->pass.chunk;
    }
    pthread_mutex_unlock(&t->lock);
}

static void list_groups(lhi_training *t)
{
    lhi_grid_group(t->o.grid, LHI_GRID_DATA, t->o.place, t->all_ranks);
    for (uint32_t k = 0; k < t->o.n_replicas; k++)
        t->all_ranks[k] = lhi_seats_host(t->o.seats, t->all_ranks[k]);
    t->shards = lhi_shard_groups_of(t->o.model, t->o.n_replicas, t->o.stage,
                                    t->o.replica);
    lhi_shard_members(t->o.model, t->o.n_replicas, t->o.stage, t->o.replica,
                      t->all_ranks, t->group_ranks, t->across_ranks);
    t->group = (lhi_net_group){.n_ranks = t->shards.n_shards,
                               .mine = t->shards.shard,
                               .ranks = t->group_ranks,
                               .link = LHI_NET_NO_LINK};
    t->across = (lhi_net_group){.n_ranks = t->shards.n_sites,
                                .mine = t->shards.site,
                                .ranks = t->across_ranks,
                                .link = LHI_NET_NO_LINK};
    if (t->o.grid->expert == 1)
        return;
    uint32_t mine = lhi_grid_group(t->o.grid, LHI_GRID_EXPERT_DATA, t->o.place,
                                   t->expert_ranks);
    uint32_t n = lhi_grid_size(t->o.grid, LHI_GRID_EXPERT_DATA);
    for (uint32_t k = 0; k < n; k++)
        t->expert_ranks[k] = lhi_seats_host(t->o.seats, t->expert_ranks[k]);
    t->experts = (lhi_net_group){.n_ranks = n,
                                 .mine = mine,
                                 .ranks = t->expert_ranks,
                                 .link = LHI_NET_NO_LINK};
}

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
    t->played = calloc(2 * (size_t)x->n_chunks, sizeof *t->played);
    t->all_ranks = calloc(t->o.n_replicas, sizeof *t->all_ranks);
    t->group_ranks = calloc(t->o.n_replicas, sizeof *t->group_ranks);
    t->across_ranks = calloc(t->o.n_replicas, sizeof *t->across_ranks);
    t->expert_ranks = calloc(t->o.n_replicas, sizeof *t->expert_ranks);
    if (!t->mine || !t->gathers || !t->scatters || !t->gathered || !t->ended ||
        !t->ended_ns || !t->arrive_ns || !t->played || !t->all_ranks || !t->group_ranks || !t->across_ranks ||
        !t->expert_ranks)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < x->n_chunks; c++)
        if (x->chunk_ranks[c] == t->o.stage)
            t->mine[t->n_mine++] = c;
    lhi_training_reschedule(t, x);
    list_groups(t);
    return LH_OK;
}

static bool shards(const lhi_training *t)
{
    return t->o.n_replicas > 1 && lhi_is_staged(t->o.pipeline, t->o.model);
}

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
    with.follows = t->shards.site > 0;
    with.balance_bias = m->balance_bias;
    with.n_expert = t->o.grid->expert;
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
    with.n_tensor = t->o.grid->tensor;
    with.tensor = t->o.tensor;
    with.collect = collect;
    with.staged = shards(t);
    with.show = with.staged ? show : NULL;
    with.context = (void *)(uintptr_t)t;
    return with;
}

/* What the run's numbers depend on beside what the checkpoint itself has; the
 * number of steps is not in it, so that a run can be made longer. */
static void describe(lhi_training *t, const lhi_train_options *with)
{
    const lh_train_model *m = t->o.model;
    snprintf(t->recipe, sizeof t->recipe,
             "sequence %" PRIu32 ", micro batch %" PRIu32
             ", microbatches %" PRIu32 ", seed %" PRIu64
             ", rate %.9g to %.9g, decay %.9g, clip %.9g, validation %.9g",
             m->sequence, m->micro_batch,
             t->o.exec->n_half / t->o.exec->n_chunks, m->seed, with->rate,
             with->min_rate, with->weight_decay, with->clip, m->validation);
    size_t used = strlen(t->recipe);
    if (m->dropout > 0)
        snprintf(t->recipe + used, sizeof t->recipe - used, ", dropout %.9g",
                 m->dropout);
    used = strlen(t->recipe);
    if (m->model->experts)
        used += (size_t)snprintf(t->recipe + used, sizeof t->recipe - used,
                                 ", balance %.9g", m->balance);
    if (m->model->experts && m->model->router == LH_ROUTER_SIGMOID)
        used += (size_t)snprintf(t->recipe + used, sizeof t->recipe - used,
                                 ", bias %.9g", m->balance_bias);
    if (m->model->experts && m->expert_capacity > 0)
        snprintf(t->recipe + used, sizeof t->recipe - used, ", capacity %.9g",
                 m->expert_capacity);
    t->checkpoint =
        (lhi_checkpoint_options){.folder = m->checkpoint,
                                 .rope_theta = lh_model_rope_theta(m->model),
                                 .dropout = m->dropout,
                                 .balance = m->balance,
                                 .keep = m->keep,
                                 .recipe = t->recipe,
                                 .sequence = m->sequence,
                                 .tokenizer = m->tokenizer};
}

/* No other run writes there until this one has ended. */
static lh_status lock_checkpoints(lhi_training *t, lh_error *err)
{
    const char *folder = t->o.model->checkpoint;
    LHI_TRY(lhi_folder_lock_take(folder, &t->o.remarks, &t->folder_lock, err));
    t->checkpoint.lock = t->folder_lock;
    return lhi_tidy_folder(folder, err);
}

static lh_status make_sharded(lhi_training *t, lh_error *err)
{
    const lhi_shards_options o = {.pipeline = t->o.pipeline,
                                  .exec = t->o.exec,
                                  .stage = t->o.stage,
                                  .n_mine = t->n_mine,
                                  .mine = t->mine,
                                  .emulates = t->o.emulates,
                                  .shared_clock = t->o.shared_clock,
                                  .net = t->o.net,
                                  .group = &t->group,
                                  .across = t->shards.n_sites > 1 ? &t->across
                                                                  : NULL,
                                  .leaders = t->o.model->leaders,
                                  .stop = t->o.stop,
                                  .train = t->train,
                                  .device = t->o.device};
    LHI_TRY(lhi_train_settle(t->train, err));
    if (t->o.model->by_layer)
        LHI_TRY(lhi_layered_make(&o, &t->layered, err));
    else
        LHI_TRY(lhi_shards_make(&o, &t->sharded, err));
    t->hooks.pass = pass;
    return LH_OK;
}

static lh_status meet_copies(lhi_training *t, lh_error *err)
{
    uint32_t ranks[LHI_NET_MOST_RANKS];
    lhi_group_options o = {.n_ranks = lhi_grid_copies(t->o.grid),
                           .ranks = ranks,
                           .tag = lhi_tag(LHI_TAG_GROUP, LHI_GRID_COPIES, 0),
                           .stop = t->o.stop};
    o.mine = lhi_grid_group(t->o.grid, LHI_GRID_COPIES, lhi_net_rank(t->o.net),
                            ranks);
    return lhi_group_make(t->o.net, &o, &t->copies, err);
}

static lh_status set_up(lhi_training *t, lh_error *err)
{
    const lh_train_model *m = t->o.model;
    LHI_TRY(list_chunks(t, err));
    if (t->o.grid->tensor > 1)
        LHI_TRY(meet_copies(t, err));
    lhi_train_options with = train_options(t);
    describe(t, &with);
    LHI_TRY(lhi_train_make(t->o.device, &with, &t->train, err));
    if (m->checkpoint && lhi_net_rank(t->o.net) == 0 && !t->o.moves)
        LHI_TRY(lock_checkpoints(t, err));
    const lhi_resume_options resume = {.train = t->train,
                                       .net = t->o.net,
                                       .path = m->resume,
                                       .checkpoint = &t->checkpoint,
                                       .remarks = t->o.remarks,
                                       .stop = t->o.stop};
    if (m->resume && !t->o.moves)
        LHI_TRY(lhi_resume(&resume, err));
    else if (m->weights && !t->o.moves)
        LHI_TRY(lhi_train_load_weights(t->train, m->weights, err));
    t->whole = true;
    if (t->o.n_replicas == 1)
        return LH_OK;
    if (shards(t))
        return make_sharded(t, err);
    if (pthread_create(&t->thread, NULL, thread_main, t) != 0)
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
    t->hooks = (lhi_rank_hooks){t, first, last, NULL};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    lh_status status = set_up(t, err);
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
        lhi_shards_stop(t->sharded);
    if (t->layered)
        lhi_layered_stop(t->layered);
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
    lhi_shards_free(t->sharded);
    lhi_layered_free(t->layered);
    lhi_train_free(t->train);
    lhi_folder_lock_release(t->folder_lock);
    lhi_group_free(t->copies);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t->mine);
    free(t->gathers);
    free(t->scatters);
    free(t->gathered);
    free(t->ended);
    free(t->ended_ns);
    free(t->arrive_ns);
    free(t->played);
    free(t->all_ranks);
    free(t->group_ranks);
    free(t->across_ranks);
    free(t->expert_ranks);
    free(t);
}

lhi_train *lhi_training_train(lhi_training *t)
{
    return t->train;
}

/* Only one of them has the lock of the folder. */
void lhi_training_take_over(lhi_training *t, lhi_training *before)
{
    lhi_train_go_on(t->train, lhi_train_step(before->train));
    t->folder_lock = before->folder_lock;
    t->checkpoint.lock = t->folder_lock;
    before->folder_lock = NULL;
}

const lhi_rank_hooks *lhi_training_hooks(lhi_training *t)
{
    return &t->hooks;
}

const lhi_played *lhi_training_played(const lhi_training *t, uint32_t *n)
{
    if (t->sharded)
        return lhi_shards_played(t->sharded, n);
    if (t->layered)
        return lhi_layered_played(t->layered, n);
    *n = t->n_played;
    return t->played;
}

const int64_t *lhi_training_waited(const lhi_training *t)
{
    return t->layered ? lhi_layered_waited(t->layered) : NULL;
}

void lhi_training_held(const lhi_training *t, int64_t bytes[LH_N_MEMORY_KINDS])
{
    lhi_train_held(t->train, bytes);
    if (t->sharded)
        lhi_shards_held(t->sharded, bytes);
    if (t->layered)
        lhi_layered_held(t->layered, bytes);
}

uint64_t lhi_training_step(const lhi_training *t)
{
    return lhi_train_step(t->train);
}
