/* SPDX-License-Identifier: Apache-2.0 */
/* The delegated path (Adaptra, arXiv:2504.19232, section 5.2). Each queue in a
 * lane has a thread. In a sending lane it copies a pass's output into its own
 * buffer in host memory and sends from there; a lane sends its messages in
 * numbered order. In a receiving lane it waits for the message and copies it to
 * the buffer that the consuming pass reads. So no pass waits for a send, and no
 * link waits for a pass.
 *
 * On the timed device a copy takes its modelled duration, from the time when
 * its message was available and the queue had finished its previous copy. On
 * other devices it takes its real duration. */
#define _POSIX_C_SOURCE 200809L
#include "runtime/engine/rank.h"

#include "base/realtime.h"

#include <stdlib.h>
#include <string.h>

/* A pass output that waits to be copied. */
typedef struct ready_output {
    lhi_buffer *buffer; /* NULL: not available yet */
    int64_t ns;
} ready_output;

typedef struct queue queue;

/* Run state for a lane. */
typedef struct lane {
    const lhi_exec_lane *of;
    queue *queues;
    uint32_t n_sent; /* messages handed over in this step */
} lane;

/* One queue of a lane: its thread and buffers. */
struct queue {
    lhi_delegated_path *d;
    lane *lane;
    uint32_t first; /* index of its first message */
    pthread_t thread;
    bool started;
    pthread_cond_t news;
    int64_t free_ns; /* end of its last copy */
    lhi_pool pool;   /* sending lanes only */
};

/* Destination buffer for a slot's message. */
typedef struct arrival {
    void *data;
    const lhi_exec_post *post; /* the post it is for; NULL: none */
    bool is_copied;
    int64_t copied_ns;
} arrival;

/* State of the delegated path on one rank. */
struct lhi_delegated_path {
    lhi_rank *rank;
    uint32_t n_lanes, n_queues;
    lane *lanes;
    queue *queues;
    pthread_mutex_t lock; /* protects all below */
    pthread_cond_t changed;
    bool is_active, stop;
    uint64_t round, step; /* round: counts started steps */
    uint32_t n_busy;
    ready_output *made; /* per pass */
    arrival *arrivals;  /* per slot */
    lhi_buffer *copied; /* copied buffers of the rank's pool */
    lh_status status;   /* threads' status */
    lh_error err;
};

/* --- threads; called with the lock held unless noted --- */

/* Checks whether copies of delegated messages to and from host memory take
 * modelled durations, as on the timed device, rather than real ones. */
static bool emulates_copies(const lhi_delegated_path *d)
{
    return d->rank->o.hooks == NULL;
}

/* Waits for a copy's end to or from host memory that could start at
 * from_ns, and returns its end: now or, on the timed device, after the modelled
 * duration staging_ns. Called without the lock. */
static int64_t finish_copy(queue *q, int64_t from_ns, int64_t staging_ns)
{
    if (!emulates_copies(q->d))
        return q->free_ns = lhi_now_ns();
    if (q->free_ns > from_ns)
        from_ns = q->free_ns;
    q->free_ns = from_ns + staging_ns;
    if (q->free_ns > lhi_now_ns())
        lhi_sleep_until(q->free_ns);
    return q->free_ns;
}

/* Waits for a signal to the queue's thread; false: the delegated path is
 * stopping. Called with the lock held. */
static bool wait_for_signal(queue *q)
{
    if (q->d->stop || q->d->status != LH_OK)
        return false;
    pthread_cond_wait(&q->news, &q->d->lock);
    return true;
}

/* Signals the threads for all queues in a lane, which holds the delegated
 * messages to or from one rank. */
static void wake_lane(lane *l)
{
    for (uint32_t i = 0; i < l->of->n_queues; i++)
        pthread_cond_signal(&l->queues[i].news);
}

/* Fails with LH_ECANCELED because the run is stopping. */
static lh_status fail_stopped(lh_error *err)
{
    return lhi_fail(err, LH_ECANCELED, "stopped");
}

/* Copies message number `nth` of the queue's lane (delegated messages to one
 * rank) to host memory and sends it; records when the device buffer is free. */
static lh_status send_one(queue *q, uint32_t nth, lh_error *err)
{
    lhi_delegated_path *d = q->d;
    lhi_rank *rank = d->rank;
    uint32_t i = q->lane->of->items[nth];
    const lhi_exec_pass *pass = &rank->program->passes[i];
    while (!d->made[i].buffer)
        if (!wait_for_signal(q))
            return fail_stopped(err);
    ready_output what = d->made[i];
    d->made[i].buffer = NULL;
    pthread_mutex_unlock(&d->lock);
    lhi_buffer *host = lhi_pool_take(&q->pool);
    if (host) {
        memcpy(host->data, what.buffer->data,
               lhi_rank_input_bytes(rank, pass->output));
        what.ns = finish_copy(q, what.ns, pass->staging_ns);
    }
    pthread_mutex_lock(&d->lock);
    what.buffer->next = d->copied;
    d->copied = what.buffer;
    if (!host)
        return lhi_fail_nomem(err);
    while (q->lane->n_sent != nth)
        if (!wait_for_signal(q)) {
            lhi_pool_give(&q->pool, host);
            return fail_stopped(err);
        }
    pthread_mutex_unlock(&d->lock);
    lh_status status =
        lhi_rank_send(rank, pass, host, d->step, LHI_STEP_TRAIN, what.ns, err);
    if (status == LH_OK)
        lhi_pool_give_after_send(&q->pool, host);
    else
        lhi_pool_give(&q->pool, host);
    pthread_mutex_lock(&d->lock);
    q->lane->n_sent++;
    wake_lane(q->lane);
    return status;
}

/* Receives message number `nth` of the queue's lane (delegated messages from
 * one rank) into host memory and copies it to the device. */
static lh_status receive_one(queue *q, uint32_t nth, lh_error *err)
{
    lhi_delegated_path *d = q->d;
    lhi_rank *rank = d->rank;
    const lhi_exec_post *post = &rank->program->posts[q->lane->of->items[nth]];
    arrival *to = &d->arrivals[post->slot];
    lhi_buffer *slot = &rank->receives[post->slot];
    const lhi_exec_pass *pass = &rank->program->passes[post->consumer];
    while (to->post != post)
        if (!wait_for_signal(q))
            return fail_stopped(err);
    pthread_mutex_unlock(&d->lock);
    lh_status status = lhi_net_wait(rank->o.net, &slot->op, 0, err);
    int64_t there_ns = 0;
    if (status == LH_OK) {
        memcpy(to->data, slot->data, lhi_rank_input_bytes(rank, post->input));
        there_ns =
            finish_copy(q, lhi_rank_arrived_ns(rank, post->link, &slot->op),
                        pass->in_staging_ns);
    }
    pthread_mutex_lock(&d->lock);
    if (status != LH_OK)
        return status;
    to->is_copied = true;
    to->copied_ns = there_ns;
    pthread_cond_signal(&d->changed);
    return LH_OK;
}

/* Sends or receives all queue `q`'s messages in a step: every n-th message of
 * its lane (delegated messages to or from one rank), if the lane has n
 * queues. */
static lh_status run_step(queue *q, lh_error *err)
{
    const lhi_exec_lane *of = q->lane->of;
    for (uint32_t nth = q->first; nth < of->n; nth += of->n_queues)
        LHI_TRY(of->receives ? receive_one(q, nth, err)
                             : send_one(q, nth, err));
    return LH_OK;
}

/* Records the first failure of a delegated message (copied through host memory)
 * and aborts the run, so that no other rank waits for this one. */
static void fail(lhi_delegated_path *d, lh_status status, const lh_error *err)
{
    if (d->status != LH_OK || d->stop)
        return;
    d->status = status;
    d->err = *err;
    lhi_net_abort(d->rank->o.net, err->text);
    for (uint32_t i = 0; i < d->n_lanes; i++)
        wake_lane(&d->lanes[i]);
}

/* Main function for a queue's thread: copies and sends, or receives, the
 * queue's messages of each step. */
static void *thread_main(void *of)
{
    queue *q = of;
    lhi_delegated_path *d = q->d;
    uint64_t round = 0;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (d->round == round && !d->stop)
            pthread_cond_wait(&q->news, &d->lock);
        if (d->stop)
            break;
        lh_error err = {0};
        round = d->round;
        lh_status status = run_step(q, &err);
        if (status != LH_OK)
            fail(d, status, &err);
        d->n_busy--;
        pthread_cond_signal(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* --- construction --- */

/* Initialises the condition variables on CLOCK_MONOTONIC, the clock of
 * deadlines. These calls never fail on Linux. */
static void init_conditions(lhi_delegated_path *d)
{
    pthread_condattr_t how;
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, &how);
    for (uint32_t i = 0; i < d->n_queues; i++)
        pthread_cond_init(&d->queues[i].news, &how);
    pthread_condattr_destroy(&how);
}

/* Allocates the rank's lanes (delegated messages to or from one rank) and the
 * state of their queues, each with its own thread. */
static lh_status make_queues(lhi_delegated_path *d, lh_error *err)
{
    lhi_rank *rank = d->rank;
    const lhi_exec_rank *program = rank->program;
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->n_lanes; i++)
        n += program->lanes[i].n_queues;
    d->lanes = LHI_NEW(rank->mem, lane, program->n_lanes);
    d->queues = LHI_NEW(rank->mem, queue, n);
    if (!d->lanes || !d->queues)
        return lhi_fail_nomem(err);
    d->n_lanes = program->n_lanes;
    for (uint32_t i = 0; i < d->n_lanes; i++) {
        lane *l = &d->lanes[i];
        l->of = &program->lanes[i];
        l->queues = d->queues + d->n_queues;
        for (uint32_t k = 0; k < l->of->n_queues; k++)
            d->queues[d->n_queues++] = (queue){.d = d, .lane = l, .first = k};
    }
    return LH_OK;
}

/* Allocates host buffers: one per receive slot, and a buffer pool per sending
 * queue. */
static lh_status make_buffers(lhi_delegated_path *d, lh_error *err)
{
    lhi_rank *rank = d->rank;
    const lhi_exec_rank *program = rank->program;
    const size_t bytes = rank->pool.bytes;
    d->made = LHI_NEW(rank->mem, ready_output, program->n_passes);
    d->arrivals = LHI_NEW(rank->mem, arrival, program->n_slots);
    if (!d->made || !d->arrivals)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < program->n_slots; i++) {
        if (!(d->arrivals[i].data = malloc(bytes + 1)))
            return lhi_fail_nomem(err);
        memset(d->arrivals[i].data, 0, bytes);
    }
    for (uint32_t i = 0; i < d->n_queues; i++) {
        queue *q = &d->queues[i];
        const lhi_exec_lane *of = q->lane->of;
        if (!of->receives &&
            !lhi_pool_init(&q->pool, rank->o.net, bytes, 0,
                           program->n_in_flight / of->n_queues + 2))
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

lh_status lhi_delegated_path_make(lhi_rank *rank, lh_error *err)
{
    lhi_delegated_path *d = LHI_NEW(rank->mem, lhi_delegated_path, 1);
    if (!d)
        return lhi_fail_nomem(err);
    d->rank = rank;
    LHI_TRY(make_queues(d, err));
    init_conditions(d);
    rank->delegated = d;
    return make_buffers(d, err);
}

void lhi_delegated_path_stop(lhi_delegated_path *d)
{
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    for (uint32_t i = 0; i < d->n_lanes; i++)
        wake_lane(&d->lanes[i]);
    pthread_mutex_unlock(&d->lock);
    for (uint32_t i = 0; i < d->n_queues; i++) {
        if (d->queues[i].started)
            pthread_join(d->queues[i].thread, NULL);
        d->queues[i].started = false;
    }
}

void lhi_delegated_path_free(lhi_delegated_path *d)
{
    if (!d)
        return;
    lhi_delegated_path_stop(d);
    lhi_delegated_path_reclaim_buffers(d);
    for (uint32_t i = 0; d->made && i < d->rank->program->n_passes; i++)
        if (d->made[i].buffer)
            lhi_pool_give(&d->rank->pool, d->made[i].buffer);
    for (uint32_t i = 0; d->arrivals && i < d->rank->program->n_slots; i++)
        free(d->arrivals[i].data);
    for (uint32_t i = 0; i < d->n_queues; i++) {
        lhi_pool_fini(&d->queues[i].pool);
        pthread_cond_destroy(&d->queues[i].news);
    }
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
}

/* --- called by the passes --- */

/* Starts a helper thread for each queue of delegated messages that has none. */
static lh_status start_threads(lhi_delegated_path *d, lh_error *err)
{
    for (uint32_t i = 0; i < d->n_queues; i++) {
        queue *q = &d->queues[i];
        if (q->started)
            continue;
        if (pthread_create(&q->thread, NULL, thread_main, q) != 0)
            return lhi_fail(err, LH_EIO,
                            "cannot start a thread for delegated messages");
        q->started = true;
    }
    return LH_OK;
}

lh_status lhi_delegated_path_begin_step(lhi_delegated_path *d, uint64_t step,
                                        lhi_step_kind kind, lh_error *err)
{
    if (kind != LHI_STEP_TRAIN)
        return LH_OK;
    /* Started by the rank's thread, so that the threads inherit its priority.
     */
    LHI_TRY(start_threads(d, err));
    pthread_mutex_lock(&d->lock);
    d->step = step;
    d->is_active = true;
    d->n_busy = d->n_queues;
    d->round++;
    for (uint32_t i = 0; i < d->n_queues; i++)
        d->queues[i].free_ns = 0;
    for (uint32_t i = 0; i < d->n_lanes; i++) {
        d->lanes[i].n_sent = 0;
        wake_lane(&d->lanes[i]);
    }
    pthread_mutex_unlock(&d->lock);
    return LH_OK;
}

bool lhi_delegated_path_is_active(const lhi_delegated_path *d)
{
    return d && d->is_active;
}

/* Wakes the helper thread of queue `nth` in the lane (delegated messages from
 * or to rank `peer`) that receives or sends. */
static void wake_queue(lhi_delegated_path *d, bool receives, uint32_t peer,
                       uint32_t nth)
{
    const lane *l = d->lanes;
    while (l->of->receives != receives || l->of->peer != peer)
        l++;
    pthread_cond_signal(&l->queues[nth].news);
}

void lhi_delegated_path_add_receive(lhi_delegated_path *d, uint32_t i)
{
    const lhi_exec_post *post = &d->rank->program->posts[i];
    arrival *to = &d->arrivals[post->slot];
    pthread_mutex_lock(&d->lock);
    to->post = post;
    to->is_copied = false;
    wake_queue(d, true, post->peer, post->queue);
    pthread_mutex_unlock(&d->lock);
}

void lhi_delegated_path_add_output(lhi_delegated_path *d, uint32_t i,
                                   lhi_buffer *buffer, int64_t made_ns)
{
    const lhi_exec_pass *pass = &d->rank->program->passes[i];
    pthread_mutex_lock(&d->lock);
    d->made[i] = (ready_output){buffer, made_ns};
    wake_queue(d, false, pass->peer, pass->queue);
    pthread_mutex_unlock(&d->lock);
}

void lhi_delegated_path_reclaim_buffers(lhi_delegated_path *d)
{
    pthread_mutex_lock(&d->lock);
    lhi_buffer *all = d->copied;
    d->copied = NULL;
    pthread_mutex_unlock(&d->lock);
    while (all) {
        lhi_buffer *next = all->next;
        lhi_pool_give(&d->rank->pool, all);
        all = next;
    }
}

/* Sleeps until a queue's thread signals progress; fails if the run ends.
 * Called with the lock held. */
static lh_status await_threads(lhi_delegated_path *d, lh_error *err)
{
    enum { POLL_NS = 100000000 };
    const lhi_rank *rank = d->rank;
    if (d->status != LH_OK) {
        if (err)
            *err = d->err;
        return d->status;
    }
    if (lhi_net_is_stop_requested(rank->o.stop)) {
        lhi_net_abort(rank->o.net, "interrupted");
        return lhi_fail(err, LH_ECANCELED, "interrupted");
    }
    struct timespec until = lhi_timespec(lhi_now_ns() + POLL_NS);
    pthread_cond_timedwait(&d->changed, &d->lock, &until);
    return LH_OK;
}

lh_status lhi_delegated_path_await_input(lhi_delegated_path *d, uint32_t slot,
                                         const void **data, int64_t *there_ns,
                                         lh_error *err)
{
    arrival *a = &d->arrivals[slot];
    lh_status status = LH_OK;
    pthread_mutex_lock(&d->lock);
    while (status == LH_OK && !a->is_copied)
        status = await_threads(d, err);
    *data = a->data;
    *there_ns = a->copied_ns;
    a->post = NULL;
    pthread_mutex_unlock(&d->lock);
    return status;
}

lh_status lhi_delegated_path_end_step(lhi_delegated_path *d, lh_error *err)
{
    lh_status status = LH_OK;
    if (!lhi_delegated_path_is_active(d))
        return LH_OK;
    pthread_mutex_lock(&d->lock);
    while (status == LH_OK && d->n_busy > 0)
        status = await_threads(d, err);
    if (status == LH_OK)
        status = d->status;
    d->is_active = false;
    pthread_mutex_unlock(&d->lock);
    for (uint32_t i = 0; i < d->n_queues && status == LH_OK; i++)
        status = lhi_pool_drain(&d->queues[i].pool, d->rank->o.stop, err);
    return status;
}

size_t lhi_delegated_path_count_bytes(const lhi_delegated_path *d)
{
    size_t sum = d ? d->rank->program->n_slots * d->rank->pool.bytes : 0;
    for (uint32_t i = 0; d && i < d->n_queues; i++)
        sum += lhi_pool_total_bytes(&d->queues[i].pool);
    return sum;
}

uint32_t lhi_delegated_path_pool_growth(const lhi_delegated_path *d)
{
    uint32_t n = 0;
    for (uint32_t i = 0; d && i < d->n_queues; i++)
        n += d->queues[i].pool.growth;
    return n;
}
