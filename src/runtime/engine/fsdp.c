/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/fsdp.h"

#include "base/realtime.h"
#include "runtime/engine/rank.h"

#include <stdlib.h>
#include <string.h>

enum { N_BUFFERS = 2 }; /* one in use, one being filled or drained */

/* Kinds of communication that the thread runs in order. */
typedef enum communication_kind {
    GATHER_PART,
    GATHER_CHUNK, /* whole chunk, if values are not sharded */
    SCATTER_PART,
    SUM_CHUNK, /* over sites with the same sharding */
} communication_kind;

/* A queued communication. */
typedef struct queued_communication {
    communication_kind kind;
    uint32_t chunk, part;
    float *room;
    bool accumulates;
    bool is_planned; /* the pipeline has an operation for it */
    uint64_t tag;
    int64_t launched_ns;
    int64_t *arrive_ns; /* receives the arrival time; NULL */
} queued_communication;

/* A buffer for one layer's parameters or gradients. */
typedef struct room {
    float *at;
    uint32_t chunk, part; /* contained or in flight; LH_NONE */
    uint64_t done;        /* ready once this many communications are done */
    int64_t arrive_ns;    /* and at this time */
} room;

/* State of FSDP on one rank. */
struct lhi_fsdp {
    lhi_sharding_options o;
    lhi_arena *mem, *buffers; /* bookkeeping; counted buffers */
    const lhi_exec_rank *program;
    lhi_part_collectives exchange;
    lhi_device_part_hooks hooks;
    bool shards_values;
    room values[N_BUFFERS], gradients[N_BUFFERS];
    uint32_t n_buffers, next_gradients;
    uint64_t turn, step;
    bool validates;
    uint32_t number;     /* next collective in the step, for tags */
    uint32_t pass;       /* current pass */
    uint32_t *scattered; /* per chunk: parts * microbatches so far */
    uint64_t *gathered;  /* per chunk: communications until it is complete */
    int64_t *arrive_ns;  /* and its arrival time */
    int64_t *waited_ns;  /* per pass of the initial program */
    uint32_t n_waited;
    /* Thread state, protected by `lock`. `queue` is a ring. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, stop;
    queued_communication *queue;
    uint32_t queue_capacity;
    uint64_t n_queued, n_done;
    int64_t free_ns;  /* emulated: when the link is free */
    int64_t last_ns;  /* last arrival in the step */
    int64_t parts_ns; /* last arrival without a pipeline operation */
    lhi_collective_record *executed;
    uint32_t n_executed;
    lh_status status;
    lh_error err;
};

/* Returns the number of a chunk's parts, the units of FSDP: layers, embedding,
 * head. */
static uint32_t count_parts(const lhi_fsdp *l, uint32_t chunk)
{
    return l->o.device->ops->n_parts(l->o.device, chunk);
}

/* Returns the range of a part (layer, embedding or head) within this rank's
 * pieces of the chunk's parameters and gradients. */
static lhi_train_part find_part(const lhi_fsdp *l, uint32_t chunk,
                                uint32_t part)
{
    const lhi_device_part *p = l->o.device->ops->part(l->o.device, chunk, part);
    return lhi_train_find_part(l->o.train, chunk, p->first_tensor,
                               p->n_tensors);
}

/* --- thread --- */

/* All-gathers the parts of a chunk one after the other, once per step, if
 * parameters are not sharded. *ready_ns: when the collective could start. */
static lh_status gather_chunk(lhi_fsdp *l, const queued_communication *s,
                              int64_t *ready_ns, lh_error *err)
{
    for (uint32_t i = 0; i < count_parts(l, s->chunk); i++) {
        lhi_train_part part = find_part(l, s->chunk, i);
        LHI_TRY(lhi_part_all_gather(&l->exchange, &part, NULL,
                                    s->tag + (uint64_t)i * LHI_PART_TAGS,
                                    i == 0 ? ready_ns : NULL, err));
    }
    return LH_OK;
}

/* Sums a chunk's gradients over datacenters, part by part (layer, embedding or
 * head) because the buffers hold one part. *ready_ns: when all ranks were
 * ready. */
static lh_status sum_chunk(lhi_fsdp *l, const queued_communication *s,
                           int64_t *ready_ns, lh_error *err)
{
    uint64_t tags =
        (uint64_t)lhi_part_count_sum_tags(&l->exchange) * LHI_PART_TAGS;
    for (uint32_t i = 0; i < count_parts(l, s->chunk); i++) {
        lhi_train_part part = find_part(l, s->chunk, i);
        LHI_TRY(lhi_part_sum_sites(&l->exchange, &part, s->tag + i * tags,
                                   i == 0 ? ready_ns : NULL, err));
    }
    return LH_OK;
}

/* Runs a queued communication: an all-gather or reduce-scatter of a part
 * (layer, embedding or head), an all-gather of a chunk, or its sum over
 * datacenters. *ready_ns: in, when it was queued; out, when all ranks were
 * ready. */
static lh_status run_communication(lhi_fsdp *l, const queued_communication *s,
                                   int64_t *ready_ns, lh_error *err)
{
    lhi_train_part part;
    if (!l->o.shared_clock)
        ready_ns = NULL;
    if (s->kind == GATHER_CHUNK)
        return gather_chunk(l, s, ready_ns, err);
    if (s->kind == SUM_CHUNK)
        return sum_chunk(l, s, ready_ns, err);
    part = find_part(l, s->chunk, s->part);
    if (s->kind == GATHER_PART)
        return lhi_part_all_gather(&l->exchange, &part, s->room, s->tag,
                                   ready_ns, err);
    return lhi_part_reduce_scatter(&l->exchange, &part, s->room, s->accumulates,
                                   s->tag, ready_ns, err);
}

/* Returns the emulated transfer time in ns of a queued communication;
 * *latency_ns: its latency. Single layers' collectives use their groups'
 * modelled links; whole chunks' collectives the pipeline's times. */
static int64_t compute_transfer_time(const lhi_fsdp *l,
                                     const queued_communication *s,
                                     int64_t *latency_ns)
{
    const lh_chunk *chunk = &l->o.times[s->chunk];
    bool gathers = s->kind == GATHER_PART || s->kind == GATHER_CHUNK;
    *latency_ns = 0;
    if (s->is_planned || s->kind == GATHER_CHUNK || s->kind == SUM_CHUNK) {
        int64_t takes =
            gathers ? chunk->all_gather_ns : chunk->reduce_scatter_ns;
        *latency_ns = takes > 0 ? chunk->dp_latency_ns : 0;
        return takes;
    }
    lhi_train_part part = find_part(l, s->chunk, s->part);
    double ns = 0;
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++) {
        const lhi_net_group *group = l->exchange.groups[i];
        const lh_train_group_link *link =
            gathers ? &l->o.parts[i]->gathers : &l->o.parts[i]->reductions;
        size_t n = part.of[i].to - part.of[i].from;
        if (n > 0 && group && group->n_ranks > 1)
            ns += (double)link->latency_ns + (double)n * sizeof(float) *
                                                 (group->n_ranks - 1) *
                                                 link->ns_per_byte;
    }
    return (int64_t)(ns + 0.5);
}

/* Records the times of communication `s`, ready at ready_ns: measured, or
 * emulated on the stage's data-parallel link, which carries one at a time.
 * Called with the lock held. */
static void record_times(lhi_fsdp *l, const queued_communication *s,
                         int64_t ready_ns)
{
    bool scatters = s->kind == SCATTER_PART || s->kind == SUM_CHUNK;
    int64_t depart = ready_ns, sent = lhi_now_ns(), latency = 0;
    if (l->o.emulates && !l->validates) {
        depart = ready_ns > l->free_ns ? ready_ns : l->free_ns;
        l->free_ns = sent = depart + compute_transfer_time(l, s, &latency);
    }
    int64_t arrive = sent + latency;
    if (s->arrive_ns)
        *s->arrive_ns = arrive;
    if (arrive > l->last_ns)
        l->last_ns = arrive;
    if (s->is_planned)
        l->executed[l->n_executed++] = (lhi_collective_record){
            s->chunk, scatters, LH_NONE, ready_ns, depart, sent, arrive, 0};
    else if (arrive > l->parts_ns)
        l->parts_ns = arrive;
}

/* Runs the next queued communication. Called with the lock held; releases it
 * meanwhile. */
static lh_status run_next(lhi_fsdp *l)
{
    queued_communication s = l->queue[l->n_done % l->queue_capacity];
    int64_t ready_ns = s.launched_ns;
    pthread_mutex_unlock(&l->lock);
    lh_status status = run_communication(l, &s, &ready_ns, &l->err);
    pthread_mutex_lock(&l->lock);
    if (status != LH_OK)
        return status;
    record_times(l, &s, ready_ns);
    l->n_done++;
    pthread_cond_broadcast(&l->changed);
    return LH_OK;
}

/* Main function for the communication thread: runs queued communications in
 * order. */
static void *thread_main(void *of)
{
    lhi_fsdp *l = of;
    pthread_mutex_lock(&l->lock);
    while (!l->stop && l->status == LH_OK) {
        if (l->n_done < l->n_queued)
            l->status = run_next(l);
        else
            pthread_cond_wait(&l->changed, &l->lock);
    }
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Waits until the first `done` queued communications are complete. If the run
 * emulates links, also sleeps until *arrive_ns. Called with the lock held;
 * releases it while waiting. */
static lh_status await_communications(lhi_fsdp *l, uint64_t done,
                                      const int64_t *arrive_ns, lh_error *err)
{
    while (l->n_done < done && l->status == LH_OK)
        pthread_cond_wait(&l->changed, &l->lock);
    if (l->status != LH_OK && err)
        *err = l->err;
    if (l->status != LH_OK || !l->o.emulates)
        return l->status;
    int64_t until_ns = *arrive_ns;
    pthread_mutex_unlock(&l->lock);
    lh_status status = lhi_sleep_emulated(l->o.net, l->o.stop, until_ns, err);
    pthread_mutex_lock(&l->lock);
    return status;
}

/* Waits until the first `done` queued communications are complete, as
 * await_communications() does, and adds the time to the current pass's wait
 * time. */
static lh_status await_in_pass(lhi_fsdp *l, uint64_t done,
                               const int64_t *arrive_ns, lh_error *err)
{
    int64_t from = lhi_now_ns();
    const bool was_working = lhi_net_pause_work(l->o.net);
    lh_status status = await_communications(l, done, arrive_ns, err);
    lhi_net_resume_work(l->o.net, was_working);
    if (l->pass < l->n_waited)
        l->waited_ns[l->pass] += lhi_now_ns() - from;
    return status;
}

/* Reserves the message tags for n collectives and returns the first. Validation
 * steps use step numbers above all training steps. */
static uint64_t reserve_tags(lhi_fsdp *l, uint32_t n)
{
    uint64_t step = l->validates ? (1u << 23) + l->turn : l->step;
    uint32_t at = l->number;
    l->number += n;
    return lhi_tag(LHI_TAG_DATA, step, at * LHI_PART_TAGS);
}

/* Appends a communication to the communication thread's queue, with
 * n_tags tags; called with the lock held. Returns the completion count to wait
 * for. */
static uint64_t enqueue(lhi_fsdp *l, queued_communication s, uint32_t n_tags)
{
    s.tag = reserve_tags(l, n_tags);
    s.launched_ns = lhi_now_ns();
    l->queue[l->n_queued++ % l->queue_capacity] = s;
    pthread_cond_broadcast(&l->changed);
    return l->n_queued;
}

/* --- device hooks --- */

/* Queues the all-gather of a part (layer, embedding or head) into buffer
 * `into`. `is_planned`: the pipeline model contains this collective. */
static void gather_into(lhi_fsdp *l, uint32_t chunk, uint32_t part, room *into,
                        bool is_planned)
{
    into->chunk = chunk;
    into->part = part;
    into->done = enqueue(l,
                         (queued_communication){.kind = GATHER_PART,
                                                .chunk = chunk,
                                                .part = part,
                                                .room = into->at,
                                                .is_planned = is_planned,
                                                .arrive_ns = &into->arrive_ns},
                         1);
}

/* Device hook: waits for the all-gathered parameters of `part` (a layer, the
 * embedding or the head) and sets *out to them; starts to prefetch part
 * `then`. */
static lh_status provide_values(void *of, uint32_t chunk, uint32_t part,
                                uint32_t then, float **out, lh_error *err)
{
    lhi_fsdp *l = of;
    uint32_t r = 0;
    pthread_mutex_lock(&l->lock);
    while (r < l->n_buffers &&
           (l->values[r].chunk != chunk || l->values[r].part != part))
        r++;
    if (r == l->n_buffers)
        gather_into(l, chunk, part, &l->values[r = 0], false);
    if (then != LH_NONE)
        gather_into(l, chunk, then, &l->values[1 - r], false);
    room *mine = &l->values[r];
    lh_status status = await_in_pass(l, mine->done, &mine->arrive_ns, err);
    mine->chunk = LH_NONE; /* the next pass gathers it again */
    *out = mine->at;
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* Device hook: sets *out to a free gradient buffer for one microbatch of a
 * part (layer, embedding or head). */
static lh_status provide_gradients(void *of, uint32_t chunk, uint32_t part,
                                   float **out, lh_error *err)
{
    lhi_fsdp *l = of;
    room *mine = &l->gradients[l->next_gradients];
    (void)chunk;
    (void)part;
    pthread_mutex_lock(&l->lock);
    lh_status status = await_in_pass(l, mine->done, &mine->arrive_ns, err);
    pthread_mutex_unlock(&l->lock);
    *out = mine->at;
    return status;
}

/* Checks whether the pipeline model has a reduce-scatter of the chunk at an
 * iteration's end, so that the chunk's last one counts as that one. */
static bool is_planned_last(const lhi_fsdp *l, uint32_t chunk)
{
    return l->o.pipeline->chunks[chunk].reduce_scatter_ns > 0;
}

/* Device hook: queues the reduce-scatter of a part's gradients for its `nth`
 * microbatch and, after the chunk's last one, their sum over datacenters. */
static void queue_scatter(void *of, uint32_t chunk, uint32_t part, uint32_t nth)
{
    lhi_fsdp *l = of;
    room *mine = &l->gradients[l->next_gradients];
    uint32_t all = count_parts(l, chunk) * l->o.pipeline->n_microbatches;
    bool is_last = ++l->scattered[chunk] == all;
    l->next_gradients = (l->next_gradients + 1) % l->n_buffers;
    pthread_mutex_lock(&l->lock);
    mine->done =
        enqueue(l,
                (queued_communication){.kind = SCATTER_PART,
                                       .chunk = chunk,
                                       .part = part,
                                       .room = mine->at,
                                       .accumulates = nth > 0,
                                       .is_planned = is_last && !l->o.across &&
                                                     is_planned_last(l, chunk),
                                       .arrive_ns = &mine->arrive_ns},
                1);
    if (is_last && l->o.across)
        enqueue(l,
                (queued_communication){.kind = SUM_CHUNK,
                                       .chunk = chunk,
                                       .is_planned = is_planned_last(l, chunk)},
                count_parts(l, chunk) * lhi_part_count_sum_tags(&l->exchange));
    pthread_mutex_unlock(&l->lock);
}

/* Device hook at a pass's end: waits for the pass's collectives, except
 * the last reduce-scatter if the pipeline models it separately. */
static lh_status end_pass(void *of, const lh_pass *pass, lh_error *err)
{
    lhi_fsdp *l = of;
    bool last = l->program->passes[l->pass].is_last && !l->validates;
    pthread_mutex_lock(&l->lock);
    uint64_t all = l->n_queued;
    if (last && is_planned_last(l, pass->chunk) && all > 0)
        all--;
    lh_status status = await_in_pass(l, all, &l->parts_ns, err);
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* --- step --- */

void lhi_fsdp_begin_step(lhi_fsdp *l, uint64_t step)
{
    const lhi_exec_rank *program = l->program;
    pthread_mutex_lock(&l->lock);
    l->step = step;
    l->validates = false;
    l->number = 0;
    l->n_executed = 0;
    l->free_ns = lhi_now_ns();
    l->last_ns = l->parts_ns = 0;
    memset(l->scattered, 0, l->o.exec->n_chunks * sizeof *l->scattered);
    memset(l->waited_ns, 0, l->n_waited * sizeof *l->waited_ns);
    for (uint32_t r = 0; r < l->n_buffers; r++)
        l->values[r].chunk = LH_NONE;
    for (uint32_t i = 0; !l->shards_values && i < program->n_passes; i++) {
        uint32_t chunk = program->passes[i].pass.chunk;
        if (program->passes[i].is_first)
            l->gathered[chunk] =
                enqueue(l,
                        (queued_communication){
                            .kind = GATHER_CHUNK,
                            .chunk = chunk,
                            .is_planned =
                                l->o.pipeline->chunks[chunk].all_gather_ns > 0,
                            .arrive_ns = &l->arrive_ns[chunk]},
                        count_parts(l, chunk));
    }
    /* The first pass waits for it; later passes overlap theirs. */
    if (l->shards_values && program->n_passes > 0) {
        uint32_t chunk = program->passes[0].pass.chunk;
        gather_into(l, chunk, 0, &l->values[0],
                    l->o.pipeline->chunks[chunk].all_gather_ns > 0);
    }
    pthread_mutex_unlock(&l->lock);
}

lh_status lhi_fsdp_prepare_pass(lhi_fsdp *l, uint32_t i, lhi_step_kind kind,
                                lh_error *err)
{
    uint32_t chunk = l->program->passes[i].pass.chunk;
    l->pass = i;
    if (l->shards_values || kind == LHI_STEP_VALIDATE ||
        !l->program->passes[i].is_first)
        return LH_OK;
    pthread_mutex_lock(&l->lock);
    lh_status status =
        await_communications(l, l->gathered[chunk], &l->arrive_ns[chunk], err);
    pthread_mutex_unlock(&l->lock);
    return status;
}

lh_status lhi_fsdp_end_step(lhi_fsdp *l, lh_error *err)
{
    pthread_mutex_lock(&l->lock);
    lh_status status = await_communications(l, l->n_queued, &l->last_ns, err);
    pthread_mutex_unlock(&l->lock);
    return status;
}

const lhi_collective_record *lhi_fsdp_collectives(const lhi_fsdp *l,
                                                  uint32_t *n)
{
    *n = l->n_executed;
    return l->executed;
}

const int64_t *lhi_fsdp_wait_times(const lhi_fsdp *l)
{
    return l->waited_ns;
}

void lhi_fsdp_set_plan(lhi_fsdp *l, const lh_exec *exec)
{
    pthread_mutex_lock(&l->lock);
    l->program = &exec->ranks[l->o.stage];
    pthread_mutex_unlock(&l->lock);
}

/* --- between steps --- */

lh_status lhi_fsdp_gather_values(lhi_fsdp *l, uint64_t turn, lh_error *err)
{
    pthread_mutex_lock(&l->lock);
    l->validates = true;
    l->turn = turn;
    l->number = 0;
    pthread_mutex_unlock(&l->lock);
    for (uint32_t i = 0; !l->shards_values && i < l->o.n_mine; i++) {
        queued_communication s = {.kind = GATHER_CHUNK, .chunk = l->o.mine[i]};
        s.tag = reserve_tags(l, count_parts(l, s.chunk));
        LHI_TRY(gather_chunk(l, &s, NULL, err));
    }
    return LH_OK;
}

/* All-gathers the part (layer, embedding or head) that contains the tensor;
 * the next tensors are mostly in the same part. LH_NONE: releases the
 * buffer. */
lh_status lhi_fsdp_gather_tensor(lhi_fsdp *l, uint32_t chunk, uint32_t tensor,
                                 lh_error *err)
{
    room *into = &l->values[0];
    uint32_t i = 0;
    const lhi_device_part *p = NULL;
    if (!l->shards_values)
        return LH_OK;
    if (tensor == LH_NONE) {
        into->chunk = LH_NONE;
        return LH_OK;
    }
    for (; i < count_parts(l, chunk); i++) {
        p = l->o.device->ops->part(l->o.device, chunk, i);
        if (tensor < p->first_tensor + p->n_tensors)
            break;
    }
    if (into->chunk == chunk && into->part == i)
        return LH_OK;
    lhi_train_part part = find_part(l, chunk, i);
    LHI_TRY(lhi_part_all_gather(&l->exchange, &part, into->at,
                                reserve_tags(l, 1), NULL, err));
    into->chunk = chunk;
    into->part = i;
    l->o.device->ops->set_part_values(l->o.device, chunk, i, into->at);
    return LH_OK;
}

/* --- construction --- */

void lhi_fsdp_add_memory(const lhi_fsdp *l, int64_t bytes[LH_N_MEMORY_KINDS])
{
    bytes[LH_MEMORY_BUFFERS] += (int64_t)lhi_arena_used(l->buffers);
}

double lhi_fsdp_predict_bytes(double largest_part, uint32_t n_parts,
                              bool shards_values)
{
    double rooms = n_parts < N_BUFFERS ? n_parts : N_BUFFERS;
    double kinds = shards_values ? 2 : 1;
    return sizeof(float) * largest_part * kinds * rooms;
}

/* Allocates FSDP's parameter and gradient buffers, the exchange arrays and the
 * communication queue. */
static lh_status make_buffers(lhi_fsdp *l, lh_error *err)
{
    size_t values = 0;
    uint32_t most_parts = 0;
    lhi_part_buffer_sizes exchanged = {0};
    for (uint32_t i = 0; i < l->o.n_mine; i++) {
        uint32_t chunk = l->o.mine[i], n = count_parts(l, chunk);
        most_parts = n > most_parts ? n : most_parts;
        for (uint32_t k = 0; k < n; k++) {
            const lhi_device_part *p =
                l->o.device->ops->part(l->o.device, chunk, k);
            lhi_train_part part = find_part(l, chunk, k);
            values = p->n_values > values ? p->n_values : values;
            lhi_part_fit_buffers(&l->exchange, &part, &exchanged);
        }
    }
    l->n_buffers = most_parts < N_BUFFERS ? most_parts : N_BUFFERS;
    bool ok = lhi_part_make_buffers(&l->exchange, &exchanged, l->buffers);
    for (uint32_t i = 0; ok && i < l->n_buffers; i++) {
        l->values[i].chunk = LH_NONE;
        ok = (l->gradients[i].at = LHI_NEW(l->buffers, float, values)) &&
             (!l->shards_values ||
              (l->values[i].at = LHI_NEW(l->buffers, float, values)));
    }
    /* Whole chunks, sums, and one entry per buffer. */
    l->queue_capacity = 2 * l->o.n_mine + 2 * N_BUFFERS + 1;
    l->queue = LHI_NEW(l->mem, queued_communication, l->queue_capacity);
    return ok && l->queue ? LH_OK : lhi_fail_nomem(err);
}

/* Allocates the arrays and buffers, starts the communication thread and
 * installs the device's hooks. */
static lh_status init(lhi_fsdp *l, lh_error *err)
{
    uint32_t n_chunks = l->o.exec->n_chunks;
    l->scattered = LHI_NEW(l->mem, uint32_t, n_chunks);
    l->gathered = LHI_NEW(l->mem, uint64_t, n_chunks);
    l->arrive_ns = LHI_NEW(l->mem, int64_t, n_chunks);
    l->n_waited = l->program->n_passes;
    l->waited_ns = LHI_NEW(l->mem, int64_t, l->n_waited);
    l->executed =
        LHI_NEW(l->mem, lhi_collective_record, 2 * (size_t)l->o.n_mine + 1);
    if (!l->waited_ns || !l->scattered || !l->gathered || !l->arrive_ns ||
        !l->executed)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < l->o.n_mine; i++)
        if (l->o.device->ops->sharded_tensors(l->o.device, l->o.mine[i])
                .values > 0)
            l->shards_values = true;
    l->exchange =
        (lhi_part_collectives){.net = l->o.net,
                               .train = l->o.train,
                               .groups = {l->o.group, l->o.experts},
                               .across = {l->o.across, l->o.expert_across},
                               .by_leaders = l->o.leaders};
    l->hooks = (lhi_device_part_hooks){l, provide_values, provide_gradients,
                                       queue_scatter, end_pass};
    LHI_TRY(make_buffers(l, err));
    if (pthread_create(&l->thread, NULL, thread_main, l) != 0)
        return lhi_fail(err, LH_EIO, "cannot start a communication thread");
    l->has_thread = true;
    l->o.device->ops->set_part_hooks(l->o.device, &l->hooks);
    return LH_OK;
}

lh_status lhi_fsdp_make(const lhi_sharding_options *options, lhi_fsdp **out,
                        lh_error *err)
{
    lhi_fsdp *l = calloc(1, sizeof *l);
    if (!l)
        return lhi_fail_nomem(err);
    l->o = *options;
    l->program = &options->exec->ranks[options->stage];
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    l->mem = lhi_arena_make(0);
    l->buffers = lhi_arena_make(0);
    lh_status status =
        l->mem && l->buffers ? init(l, err) : lhi_fail_nomem(err);
    if (status != LH_OK) {
        lhi_fsdp_free(l);
        return status;
    }
    *out = l;
    return LH_OK;
}

void lhi_fsdp_stop(lhi_fsdp *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (l->has_thread)
        pthread_join(l->thread, NULL);
    l->has_thread = false;
}

void lhi_fsdp_free(lhi_fsdp *l)
{
    if (!l)
        return;
    lhi_fsdp_stop(l);
    lhi_arena_free(l->mem);
    lhi_arena_free(l->buffers);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
