/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/elastic_sharding.h"

#include "base/realtime.h"
#include "runtime/engine/part_collectives.h"
#include "runtime/engine/rank.h"
#include "runtime/engine/shard_plan.h"

#include <stdlib.h>
#include <string.h>

/* State of the elastic sharding on one rank. */
struct lhi_elastic_sharding {
    lhi_sharding_options o;
    lhi_arena *mem;     /* bookkeeping */
    lhi_arena *buffers; /* counted buffers */
    const lhi_exec_rank *program;
    lhi_shard_plan plan;
    float **values, **gradients; /* buffers */
    uint32_t n_values, n_gradients;
    lhi_part_collectives exchange;
    uint64_t turn;
    uint32_t n_turn;         /* collectives in the turn */
    uint32_t gathered_chunk; /* chunk in value buffer 0; LH_NONE */
    /* Thread state, protected by `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, stop;
    uint64_t round, step;
    uint32_t n_launched, n_done;
    int64_t *launched_ns, *arrive_ns; /* per communication */
    int64_t data_free_ns, last_ns;
    lhi_collective_record *executed;
    lh_status status;
    lh_error err;
};

/* --- collectives --- */

/* Returns the first message tag of collective `number` among a step's
 * collectives on chunk parts; lower tags belong to whole-chunk collectives. */
static uint64_t make_tag(const lhi_elastic_sharding *s, uint64_t step,
                         uint32_t number)
{
    uint32_t first = 2 * s->o.exec->n_chunks;
    return lhi_tag(LHI_TAG_DATA, step, (first + number) * LHI_PART_TAGS);
}

/* Checks whether collective `k` of the rank's data stream carries its entire
 * chunk once per iteration, rather than a bucket (part) of it. */
static bool is_whole_chunk(const lhi_elastic_sharding *s, uint32_t k)
{
    uint32_t op = s->program->data[k].op;
    lh_dp_kind kind =
        op == LH_NONE ? LH_DP_AGO : s->o.pipeline->dp_ops[op].kind;
    return kind == LH_DP_AGO || kind == LH_DP_RSO;
}

/* Returns the parameter or gradient range, within this rank's pieces of the
 * chunk's buckets, that collective `k` of the rank's data stream carries. */
static lhi_train_part find_part(const lhi_elastic_sharding *s, uint32_t k)
{
    const lhi_exec_data *d = &s->program->data[k];
    lhi_train_part part = {.chunk = d->chunk};
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++) {
        lhi_train_piece_sizes pieces = lhi_train_find_piece_sizes(
            s->o.train, d->chunk, (lhi_train_bucket_kind)i);
        part.of[i].to = pieces.all;
        if (is_whole_chunk(s, k))
            continue;
        const lh_dp_op *op = &s->o.pipeline->dp_ops[d->op];
        size_t n = d->is_scatter ? pieces.gradients : pieces.values;
        part.of[i].from = n * op->bucket / op->n_buckets;
        part.of[i].to = n * (op->bucket + 1) / op->n_buckets;
    }
    return part;
}

/* Runs collective `k` of the rank's data-parallel collectives: an all-gather
 * into its parameter buffer, or a reduce-scatter of its gradient buffer, which
 * then sums over datacenters if it carries the whole chunk. With a shared
 * clock, raises *ready_ns to the time at which all ranks were ready. */
static lh_status run_collective(lhi_elastic_sharding *s, uint32_t k,
                                uint64_t step, int64_t *ready_ns, lh_error *err)
{
    const lhi_shard_op *op = &s->plan.ops[k];
    const lhi_train_part part = find_part(s, k);
    uint64_t tag = make_tag(s, step, k);
    int64_t *ready = s->o.shared_clock ? ready_ns : NULL;
    if (!s->program->data[k].is_scatter)
        return lhi_part_all_gather(
            &s->exchange, &part,
            op->buffer == LH_NONE ? NULL : s->values[op->buffer], tag, ready,
            err);
    LHI_TRY(lhi_part_reduce_scatter(
        &s->exchange, &part,
        op->buffer == LH_NONE ? NULL : s->gradients[op->buffer],
        op->accumulates, tag, ready, err));
    if (!s->o.across || !is_whole_chunk(s, k))
        return LH_OK;
    uint32_t number =
        s->program->n_data + k * lhi_part_count_sum_tags(&s->exchange);
    return lhi_part_sum_sites(&s->exchange, &part, make_tag(s, step, number),
                              ready, err);
}

/* --- times --- */

/* Records the times of collective `k`, which all ranks were ready for at
 * ready_ns: measured, or emulated on the stage's data-parallel link, which
 * carries one collective at a time. Called with the lock held. */
static void record_times(lhi_elastic_sharding *s, uint32_t k, int64_t ready_ns)
{
    const lhi_exec_data *d = &s->program->data[k];
    const lh_chunk *c = &s->o.times[d->chunk];
    int64_t takes = d->is_scatter ? c->reduce_scatter_ns : c->all_gather_ns;
    int64_t depart = ready_ns, sent = lhi_now_ns(), latency = 0;
    if (d->op != LH_NONE)
        takes = s->o.pipeline->dp_ops[d->op].transfer_ns;
    if (s->o.emulates) {
        depart = ready_ns > s->data_free_ns ? ready_ns : s->data_free_ns;
        sent = depart + takes;
        latency = takes > 0 ? c->dp_latency_ns : 0;
        s->data_free_ns = sent;
    }
    s->arrive_ns[k] = sent + latency;
    s->executed[k] = (lhi_collective_record){
        d->chunk, d->is_scatter, d->op,           ready_ns,
        depart,   sent,          s->arrive_ns[k], 0};
    if (s->arrive_ns[k] > s->last_ns)
        s->last_ns = s->arrive_ns[k];
}

lh_status lhi_check_run_end(lhi_net *net, const lhi_net_stop *stop,
                            lh_error *err)
{
    const char *failure = lhi_net_failure(net);
    if (failure)
        return lhi_fail(err, LH_EIO, "%s", failure);
    if (lhi_net_is_stop_requested(stop))
        return lhi_fail(err, LH_ECANCELED, "interrupted");
    return LH_OK;
}

lh_status lhi_sleep_emulated(lhi_net *net, const lhi_net_stop *stop,
                             int64_t until_ns, lh_error *err)
{
    enum { POLL_NS = 50000000 };
    for (int64_t now = lhi_now_ns(); now < until_ns; now = lhi_now_ns()) {
        LHI_TRY(lhi_check_run_end(net, stop, err));
        lhi_sleep_until(until_ns - now > POLL_NS ? now + POLL_NS : until_ns);
    }
    return LH_OK;
}

/* --- thread --- */

/* Runs the next launched data-parallel collective. Called with the lock held;
 * releases it meanwhile. */
static lh_status run_next(lhi_elastic_sharding *s)
{
    uint32_t k = s->n_done;
    uint64_t step = s->step;
    int64_t ready_ns = s->launched_ns[k];
    pthread_mutex_unlock(&s->lock);
    lh_status status = run_collective(s, k, step, &ready_ns, &s->err);
    pthread_mutex_lock(&s->lock);
    if (status != LH_OK)
        return status;
    record_times(s, k, ready_ns);
    s->n_done++;
    pthread_cond_broadcast(&s->changed);
    return LH_OK;
}

/* Main function for the communication thread: runs launched collectives in
 * order. */
static void *thread_main(void *of)
{
    lhi_elastic_sharding *s = of;
    pthread_mutex_lock(&s->lock);
    while (!s->stop && s->status == LH_OK) {
        if (s->n_done < s->n_launched)
            s->status = run_next(s);
        else
            pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- step --- */

/* Returns a chunk's number of sharded parameters and gradients on this
 * device. */
static lhi_sharded_tensors get_sharded_tensors(const lhi_elastic_sharding *s,
                                               uint32_t chunk)
{
    return s->o.device->ops->sharded_tensors(s->o.device, chunk);
}

void lhi_elastic_sharding_begin_step(lhi_elastic_sharding *s, uint64_t step)
{
    for (uint32_t i = 0; i < s->o.n_mine; i++) {
        uint32_t chunk = s->o.mine[i];
        if (get_sharded_tensors(s, chunk).values > 0)
            s->o.device->ops->set_sharded_values(s->o.device, chunk, NULL);
        if (get_sharded_tensors(s, chunk).gradients > 0)
            s->o.device->ops->set_sharded_gradients(s->o.device, chunk, NULL, 0,
                                                    0);
    }
    s->gathered_chunk = LH_NONE;
    pthread_mutex_lock(&s->lock);
    s->step = step;
    s->n_launched = s->n_done = 0;
    s->data_free_ns = lhi_now_ns();
    s->last_ns = 0;
    pthread_mutex_unlock(&s->lock);
}

/* Lets the communication thread start the collectives that are launched with
 * pass i, and waits until the first `needs` collectives of the step have
 * arrived. */
static lh_status launch_and_wait(lhi_elastic_sharding *s, uint32_t i,
                                 uint32_t needs, lh_error *err)
{
    int64_t arrive_ns = 0;
    pthread_mutex_lock(&s->lock);
    while (s->n_launched < s->program->n_data &&
           s->program->data[s->n_launched].after <= i)
        s->launched_ns[s->n_launched++] = lhi_now_ns();
    pthread_cond_broadcast(&s->changed);
    while (s->n_done < needs && s->status == LH_OK)
        pthread_cond_wait(&s->changed, &s->lock);
    lh_status status = s->status;
    if (status != LH_OK && err)
        *err = s->err;
    for (uint32_t k = 0; status == LH_OK && k < needs; k++)
        if (s->arrive_ns[k] > arrive_ns)
            arrive_ns = s->arrive_ns[k];
    pthread_mutex_unlock(&s->lock);
    if (status != LH_OK || !s->o.emulates)
        return status;
    return lhi_sleep_emulated(s->o.net, s->o.stop, arrive_ns, err);
}

/* All-gathers the parameters of a pass's chunk in a validation step, unless
 * they are not sharded or this step has gathered them. */
static lh_status gather_for_pass(lhi_elastic_sharding *s, const lh_pass *pass,
                                 lh_error *err)
{
    if (s->gathered_chunk == pass->chunk ||
        get_sharded_tensors(s, pass->chunk).values == 0)
        return LH_OK;
    return lhi_elastic_sharding_gather_chunk(s, pass->chunk, true, err);
}

lh_status lhi_elastic_sharding_prepare_pass(lhi_elastic_sharding *s, uint32_t i,
                                            lhi_step_kind kind, lh_error *err)
{
    const lh_pass *pass = &s->program->passes[i].pass;
    const lhi_shard_pass *how;
    const lhi_device_ops *ops = s->o.device->ops;
    if (!s->plan.mem) { /* replanning failed */
        if (err)
            *err = s->err;
        return s->status;
    }
    if (kind == LHI_STEP_VALIDATE)
        return gather_for_pass(s, pass, err);
    how = &s->plan.passes[i];
    LHI_TRY(launch_and_wait(s, i, how->n_required, err));
    if (how->values != LH_NONE)
        ops->set_sharded_values(s->o.device, pass->chunk,
                                s->values[how->values]);
    if (how->gradients != LH_NONE)
        ops->set_sharded_gradients(s->o.device, pass->chunk,
                                   s->gradients[how->gradients],
                                   how->first_microbatch, how->n_microbatches);
    return LH_OK;
}

lh_status lhi_elastic_sharding_end_step(lhi_elastic_sharding *s, lh_error *err)
{
    uint32_t all = s->program->n_data;
    LHI_TRY(launch_and_wait(s, s->program->n_passes, all, err));
    pthread_mutex_lock(&s->lock);
    int64_t last_ns = s->last_ns;
    pthread_mutex_unlock(&s->lock);
    return lhi_sleep_emulated(s->o.net, s->o.stop, last_ns, err);
}

const lhi_collective_record *
lhi_elastic_sharding_collectives(const lhi_elastic_sharding *s, uint32_t *n)
{
    *n = s->n_done;
    return s->executed;
}

/* --- between steps --- */

/* Returns the first tag of the next collective outside training steps, made
 * from a step number above all training steps. */
static uint64_t make_next_tag(lhi_elastic_sharding *s)
{
    return make_tag(s, (1u << 23) + s->turn, s->n_turn++);
}

lh_status lhi_elastic_sharding_gather_values(lhi_elastic_sharding *s,
                                             uint64_t turn, lh_error *err)
{
    s->turn = turn;
    s->n_turn = 0;
    for (uint32_t i = 0; i < s->o.n_mine; i++) {
        lhi_train_part part = {.chunk = s->o.mine[i]};
        for (uint32_t k = 0; k < LHI_N_TRAIN_BUCKETS; k++) {
            lhi_train_piece_sizes pieces = lhi_train_find_piece_sizes(
                s->o.train, part.chunk, (lhi_train_bucket_kind)k);
            part.of[k] = (lhi_train_range){pieces.values, pieces.all};
        }
        LHI_TRY(lhi_part_all_gather(&s->exchange, &part, NULL, make_next_tag(s),
                                    NULL, err));
    }
    s->gathered_chunk = LH_NONE;
    return LH_OK;
}

lh_status lhi_elastic_sharding_gather_chunk(lhi_elastic_sharding *s,
                                            uint32_t chunk, bool whole,
                                            lh_error *err)
{
    lhi_train_part part = {.chunk = chunk};
    if (get_sharded_tensors(s, chunk).values == 0)
        return LH_OK;
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++)
        part.of[i].to = lhi_train_find_piece_sizes(s->o.train, chunk,
                                                   (lhi_train_bucket_kind)i)
                            .values;
    s->gathered_chunk = whole ? chunk : LH_NONE;
    if (whole)
        LHI_TRY(lhi_part_all_gather(&s->exchange, &part, s->values[0],
                                    make_next_tag(s), NULL, err));
    s->o.device->ops->set_sharded_values(s->o.device, chunk,
                                         whole ? s->values[0] : NULL);
    return LH_OK;
}

void lhi_elastic_sharding_add_memory(const lhi_elastic_sharding *s,
                                     int64_t bytes[LH_N_MEMORY_KINDS])
{
    bytes[LH_MEMORY_BUFFERS] += (int64_t)lhi_arena_used(s->buffers);
}

/* --- construction --- */

/* Returns the largest number of sharded parameters and gradients in one of this
 * rank's chunks. */
static lhi_sharded_tensors find_most(const lhi_elastic_sharding *s)
{
    lhi_sharded_tensors most = {0};
    for (uint32_t i = 0; i < s->o.n_mine; i++) {
        lhi_sharded_tensors t = get_sharded_tensors(s, s->o.mine[i]);
        most.values = t.values > most.values ? t.values : most.values;
        if (t.gradients > most.gradients)
            most.gradients = t.gradients;
    }
    return most;
}

/* Enlarges the list *rooms of *n buffers, `size` floats each, to `wanted`
 * entries, and keeps the existing buffers; false: out of memory. */
static bool add_buffers(const lhi_elastic_sharding *s, float ***rooms,
                        uint32_t *n, uint32_t wanted, size_t size)
{
    if (wanted <= *n)
        return true;
    float **all = LHI_NEW(s->mem, float *, wanted);
    for (uint32_t i = 0; all && i < *n; i++)
        all[i] = (*rooms)[i];
    for (uint32_t i = *n; all && i < wanted; i++)
        if (!(all[i] = LHI_NEW(s->buffers, float, size)))
            return false;
    if (!all)
        return false;
    *rooms = all;
    *n = wanted;
    return true;
}

/* Plans which buffer each collective and pass uses, and allocates buffers and
 * records. */
static lh_status make_plan(lhi_elastic_sharding *s, lh_error *err)
{
    uint32_t n = s->program->n_data, n_chunks = s->o.exec->n_chunks;
    lhi_sharded_tensors *all = LHI_NEW(s->mem, lhi_sharded_tensors, n_chunks);
    lhi_sharded_tensors most = find_most(s);
    s->launched_ns = LHI_NEW(s->mem, int64_t, n);
    s->arrive_ns = LHI_NEW(s->mem, int64_t, n);
    s->executed = LHI_NEW(s->mem, lhi_collective_record, n);
    if (!all || !s->launched_ns || !s->arrive_ns || !s->executed)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < s->o.n_mine; i++)
        all[s->o.mine[i]] = get_sharded_tensors(s, s->o.mine[i]);
    LHI_TRY(lhi_shard_plan_make(s->o.pipeline, s->o.exec, s->o.stage, all,
                                &s->plan, err));
    bool ok = add_buffers(s, &s->values, &s->n_values, s->plan.n_values,
                          most.values) &&
              add_buffers(s, &s->gradients, &s->n_gradients,
                          s->plan.n_gradients, most.gradients);
    return ok ? LH_OK : lhi_fail_nomem(err);
}

/* Makes the buffer plan (which collective and pass uses which buffer) and the
 * exchange buffers, and starts the communication thread. */
static lh_status init(lhi_elastic_sharding *s, lh_error *err)
{
    lhi_part_buffer_sizes room = {0};
    LHI_TRY(make_plan(s, err));
    s->exchange =
        (lhi_part_collectives){.net = s->o.net,
                               .train = s->o.train,
                               .groups = {s->o.group, s->o.experts},
                               .across = {s->o.across, s->o.expert_across},
                               .by_leaders = s->o.leaders};
    for (uint32_t i = 0; i < s->o.n_mine; i++) {
        uint32_t chunk = s->o.mine[i];
        const lhi_train_part whole = lhi_train_find_part(
            s->o.train, chunk, 0,
            s->o.device->ops->n_tensors(s->o.device, chunk));
        lhi_part_fit_buffers(&s->exchange, &whole, &room);
    }
    if (!lhi_part_make_buffers(&s->exchange, &room, s->buffers))
        return lhi_fail_nomem(err);
    if (pthread_create(&s->thread, NULL, thread_main, s) != 0)
        return lhi_fail(err, LH_EIO, "cannot start a communication thread");
    s->has_thread = true;
    return LH_OK;
}

void lhi_elastic_sharding_set_plan(lhi_elastic_sharding *s, const lh_exec *exec)
{
    pthread_mutex_lock(&s->lock);
    lhi_shard_plan_fini(&s->plan);
    s->o.exec = exec;
    s->program = &exec->ranks[s->o.stage];
    s->n_launched = s->n_done = 0;
    lh_status status = make_plan(s, &s->err);
    if (s->status == LH_OK)
        s->status = status;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

lh_status lhi_elastic_sharding_make(const lhi_sharding_options *options,
                                    lhi_elastic_sharding **out, lh_error *err)
{
    lhi_elastic_sharding *s = calloc(1, sizeof *s);
    if (!s)
        return lhi_fail_nomem(err);
    s->o = *options;
    s->program = &options->exec->ranks[options->stage];
    s->gathered_chunk = LH_NONE;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->mem = lhi_arena_make(0);
    s->buffers = lhi_arena_make(0);
    lh_status status =
        s->mem && s->buffers ? init(s, err) : lhi_fail_nomem(err);
    if (status != LH_OK) {
        lhi_elastic_sharding_free(s);
        return status;
    }
    *out = s;
    return LH_OK;
}

void lhi_elastic_sharding_stop(lhi_elastic_sharding *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    s->has_thread = false;
}

void lhi_elastic_sharding_free(lhi_elastic_sharding *s)
{
    if (!s)
        return;
    lhi_elastic_sharding_stop(s);
    lhi_shard_plan_fini(&s->plan);
    lhi_arena_free(s->mem);
    lhi_arena_free(s->buffers);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
