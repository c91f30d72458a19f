/* SPDX-License-Identifier: Apache-2.0 */
/* Head-of-line blocking (Adaptra, arXiv:2504.19232, section 3.2). A rank's
 * sends, in both directions together, occupy one queue's entries from issue to
 * arrival. A rank whose queue is full stops.
 *
 * A sender must not wait for its receiver's passes to learn about an arrival.
 * Each rank therefore has a thread that awaits its receives, sends an arrival
 * notice for each, and receives the notices for the rank's own sends. The n-th
 * notice from a peer means that one more message has arrived, and when; the
 * notices are interchangeable. With emulated links the time in the notice
 * counts; otherwise an entry is free when its notice arrives. */
#define _POSIX_C_SOURCE 200809L
#include "runtime/engine/rank.h"

#include "base/realtime.h"

#include <stdlib.h>
#include <string.h>

/* An arrival notice, sent or received. */
typedef struct arrival_notice {
    lhi_net_op op;
    unsigned char bytes[LHI_RECEIVE_NOTICE_BYTES];
} arrival_notice;

/* A rank that receives messages from this one. */
typedef struct receiver {
    uint32_t peer, n, n_arrived; /* messages per step; arrivals so far */
    arrival_notice next;
} receiver;

/* State of one rank's blocking sends. */
struct lhi_blocking_sends {
    lhi_rank *rank;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* protects all below */
    pthread_cond_t changed;
    bool is_active, stop; /* is_on: this step uses blocking sends */
    uint64_t step;
    lh_status status; /* thread's status */
    lh_error err;
    /* Receives: per slot the post that it is used for (NULL: none), and whether
     * its message has arrived. Notices sent: total and per rank. */
    const lhi_exec_post **posted;
    bool *has_arrived;
    arrival_notice *notices;
    uint32_t n_notices, *n_notices_to;
    /* Sends in a step: total, issued, and the ascending times at which entries
     * became free. */
    uint32_t n_receivers, n_sends, n_issued, n_freed;
    receiver *receivers;
    int64_t *freed_ns;
};

int64_t lhi_rank_arrived_ns(const lhi_rank *rank, uint32_t link,
                            const lhi_net_op *op)
{
    /* On an emulated network a message without a link arrives when it is sent.
     */
    return rank->o.emulates && link == LH_NONE ? op->entered_ns
                                               : op->arrived_ns;
}

/* --- thread; called with the lock held --- */

/* Returns the message tag for arrival notice number `nth` of the current
 * step. */
static uint64_t make_notice_tag(const lhi_blocking_sends *c, uint32_t nth)
{
    return lhi_tag(LHI_TAG_ARRIVED, 2 * c->step + LHI_STEP_TRAIN, nth);
}

/* Sends an arrival notice for the message of receive `post` to its sender,
 * whose queue entry becomes free at arrived_ns. */
static lh_status send_notice(lhi_blocking_sends *c, const lhi_exec_post *post,
                             int64_t arrived_ns, lh_error *err)
{
    const lhi_rank *rank = c->rank;
    arrival_notice *w = &c->notices[c->n_notices++];
    *w = (arrival_notice){0};
    lhi_receive_notice_write(arrived_ns, w->bytes);
    return lhi_net_send(rank->o.net, lhi_rank_of_stage(rank, post->peer),
                        make_notice_tag(c, c->n_notices_to[post->peer]++),
                        w->bytes, sizeof w->bytes, LHI_NET_NO_LINK,
                        lhi_now_ns(), LHI_NET_NO_TURN, &w->op, err);
}

/* Tests a network operation without waiting; *is_done: it is complete.
 * Otherwise lowers *look_ns to the next poll's time. */
static lh_status poll_op(lhi_blocking_sends *c, lhi_net_op *op,
                         int64_t *look_ns, bool *is_done, lh_error *err)
{
    int64_t again_ns;
    lh_status status = lhi_net_test(c->rank->o.net, op, &again_ns, err);
    *is_done = status == LH_OK;
    if (status != LH_ECANCELED)
        return status;
    if (again_ns < *look_ns)
        *look_ns = again_ns;
    return LH_OK;
}

/* Polls all posted receives and sends an arrival notice for each message that
 * has arrived. Lowers *look_ns to the next poll's time. */
static lh_status poll_receives(lhi_blocking_sends *c, int64_t *look_ns,
                               lh_error *err)
{
    lhi_rank *rank = c->rank;
    for (uint32_t s = 0; s < rank->program->n_slots; s++) {
        const lhi_exec_post *post = c->posted[s];
        lhi_net_op *op = &rank->receives[s].op;
        bool is_done;
        if (!post || c->has_arrived[s])
            continue;
        LHI_TRY(poll_op(c, op, look_ns, &is_done, err));
        if (!is_done)
            continue;
        c->has_arrived[s] = true;
        LHI_TRY(send_notice(c, post, lhi_rank_arrived_ns(rank, post->link, op),
                            err));
        pthread_cond_signal(&c->changed);
    }
    return LH_OK;
}

/* Posts the receive for the next arrival notice (that a message has arrived)
 * from receiving rank `r`. */
static lh_status post_notice_receive(lhi_blocking_sends *c, receiver *r,
                                     lh_error *err)
{
    const lhi_rank *rank = c->rank;
    r->next = (arrival_notice){.op = {.signals_event = true}};
    return lhi_net_receive(rank->o.net, lhi_rank_of_stage(rank, r->peer),
                           make_notice_tag(c, r->n_arrived), r->next.bytes,
                           sizeof r->next.bytes, &r->next.op, err);
}

/* Inserts the time `ns` at which a queue entry became free into c->freed_ns,
 * which stays sorted. */
static void record_freed(lhi_blocking_sends *c, int64_t ns)
{
    uint32_t at = c->n_freed++;
    for (; at > 0 && c->freed_ns[at - 1] > ns; at--)
        c->freed_ns[at] = c->freed_ns[at - 1];
    c->freed_ns[at] = ns;
    pthread_cond_signal(&c->changed);
}

/* Processes one arrival notice from receiver `r`: frees a queue entry and
 * posts the receive for the next notice. */
static lh_status process_notice(lhi_blocking_sends *c, receiver *r,
                                lh_error *err)
{
    int64_t arrived_ns;
    lh_status status = lhi_receive_notice_read(
        r->next.bytes, sizeof r->next.bytes, &arrived_ns, err);
    if (status != LH_OK) {
        lhi_fail_add_context(err, "rank %u sends",
                             lhi_rank_of_stage(c->rank, r->peer));
        return status;
    }
    record_freed(c, c->rank->o.emulates ? arrived_ns : r->next.op.arrived_ns);
    return ++r->n_arrived < r->n ? post_notice_receive(c, r, err) : LH_OK;
}

/* Processes all arrival notices (that a message has arrived) received so far;
 * lowers *look_ns to the next poll's time. */
static lh_status poll_notices(lhi_blocking_sends *c, int64_t *look_ns,
                              lh_error *err)
{
    for (uint32_t i = 0; i < c->n_receivers; i++) {
        receiver *r = &c->receivers[i];
        bool is_done = true;
        while (is_done && r->n_arrived < r->n) {
            LHI_TRY(poll_op(c, &r->next.op, look_ns, &is_done, err));
            if (is_done)
                LHI_TRY(process_notice(c, r, err));
        }
    }
    return LH_OK;
}

/* Main function for the notice thread: polls receives and notices in steps with
 * blocking sends, and sleeps until the next event. */
static void *thread_main(void *of)
{
    lhi_blocking_sends *c = of;
    lhi_net *net = c->rank->o.net;
    pthread_mutex_lock(&c->lock);
    while (!c->stop && c->status == LH_OK) {
        uint32_t count = lhi_net_event_count(net);
        int64_t look_ns = INT64_MAX;
        if (c->is_active)
            c->status = poll_receives(c, &look_ns, &c->err);
        if (c->is_active && c->status == LH_OK)
            c->status = poll_notices(c, &look_ns, &c->err);
        pthread_mutex_unlock(&c->lock);
        if (c->status == LH_OK)
            lhi_net_wait_event(net, count, look_ns);
        pthread_mutex_lock(&c->lock);
    }
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* --- called by the passes --- */

/* Counts a step's messages to each receiving rank and allocates the state per
 * receiver. */
static lh_status count_sends(lhi_blocking_sends *c, lh_error *err)
{
    const lhi_rank *rank = c->rank;
    const lhi_exec_rank *program = rank->program;
    uint32_t n_ranks = rank->o.exec->n_ranks;
    uint32_t *n = LHI_NEW(rank->mem, uint32_t, n_ranks);
    c->receivers = LHI_NEW(rank->mem, receiver, n_ranks);
    c->n_notices_to = LHI_NEW(rank->mem, uint32_t, n_ranks);
    if (!n || !c->receivers || !c->n_notices_to)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < program->n_passes; i++) {
        const lhi_exec_pass *pass = &program->passes[i];
        if (pass->output == LH_NONE || pass->local_output || pass->delegated)
            continue;
        n[pass->peer]++;
        c->n_sends++;
    }
    for (uint32_t r = 0; r < n_ranks; r++)
        if (n[r] > 0)
            c->receivers[c->n_receivers++] = (receiver){.peer = r, .n = n[r]};
    return LH_OK;
}

lh_status lhi_blocking_sends_make(lhi_rank *rank, lh_error *err)
{
    const lhi_exec_rank *program = rank->program;
    lhi_blocking_sends *c = LHI_NEW(rank->mem, lhi_blocking_sends, 1);
    pthread_condattr_t how;
    if (!c)
        return lhi_fail_nomem(err);
    c->rank = rank;
    LHI_TRY(count_sends(c, err));
    c->posted = LHI_NEW(rank->mem, const lhi_exec_post *, program->n_slots);
    c->has_arrived = LHI_NEW(rank->mem, bool, program->n_slots);
    c->notices = LHI_NEW(rank->mem, arrival_notice, program->n_posts);
    c->freed_ns = LHI_NEW(rank->mem, int64_t, c->n_sends);
    if (!c->posted || !c->has_arrived || !c->notices || !c->freed_ns)
        return lhi_fail_nomem(err);
    /* These calls never fail on Linux. */
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, &how);
    pthread_condattr_destroy(&how);
    rank->blocking_sends = c;
    return LH_OK;
}

void lhi_blocking_sends_stop(lhi_blocking_sends *c)
{
    if (!c->started)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_mutex_unlock(&c->lock);
    lhi_net_signal_event(c->rank->o.net);
    pthread_join(c->thread, NULL);
    c->started = false;
}

void lhi_blocking_sends_free(lhi_blocking_sends *c)
{
    if (!c)
        return;
    lhi_blocking_sends_stop(c);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
}

/* Sets the step's counters to 0 and posts the receive of the first arrival
 * notice from each receiving rank. */
static lh_status begin_step(lhi_blocking_sends *c, uint64_t step, lh_error *err)
{
    c->step = step;
    c->n_notices = c->n_issued = c->n_freed = 0;
    memset(c->n_notices_to, 0,
           c->rank->o.exec->n_ranks * sizeof c->n_notices_to[0]);
    for (uint32_t i = 0; i < c->n_receivers; i++) {
        c->receivers[i].n_arrived = 0;
        LHI_TRY(post_notice_receive(c, &c->receivers[i], err));
    }
    c->is_active = true;
    return LH_OK;
}

lh_status lhi_blocking_sends_begin_step(lhi_blocking_sends *c, uint64_t step,
                                        lhi_step_kind kind, lh_error *err)
{
    if (kind != LHI_STEP_TRAIN)
        return LH_OK;
    pthread_mutex_lock(&c->lock);
    lh_status status = begin_step(c, step, err);
    pthread_mutex_unlock(&c->lock);
    LHI_TRY(status);
    /* Created by the rank's thread, so that it inherits its priority. */
    if (!c->started) {
        if (pthread_create(&c->thread, NULL, thread_main, c) != 0)
            return lhi_fail(err, LH_EIO, "cannot start a thread for arrivals");
        c->started = true;
    }
    lhi_net_signal_event(c->rank->o.net);
    return LH_OK;
}

bool lhi_blocking_sends_is_active(const lhi_blocking_sends *c)
{
    return c && c->is_active;
}

void lhi_blocking_sends_add_receive(lhi_blocking_sends *c,
                                    const lhi_exec_post *post)
{
    pthread_mutex_lock(&c->lock);
    c->posted[post->slot] = post;
    c->has_arrived[post->slot] = false;
    pthread_mutex_unlock(&c->lock);
    lhi_net_signal_event(c->rank->o.net);
}

/* Sleeps until the notice thread signals progress, 0.1 s at most; fails if the
 * run ends. Called with the lock held. */
static lh_status wait_for_progress(lhi_blocking_sends *c, lh_error *err)
{
    enum { POLL_NS = 100000000 };
    lhi_rank *rank = c->rank;
    if (c->status != LH_OK) {
        if (err)
            *err = c->err;
        return c->status;
    }
    if (lhi_net_is_stop_requested(rank->o.stop)) {
        lhi_net_abort(rank->o.net, "interrupted");
        return lhi_fail(err, LH_ECANCELED, "interrupted");
    }
    struct timespec until = lhi_timespec(lhi_now_ns() + POLL_NS);
    pthread_cond_timedwait(&c->changed, &c->lock, &until);
    return LH_OK;
}

lh_status lhi_blocking_sends_await_receive(lhi_blocking_sends *c, uint32_t slot,
                                           lh_error *err)
{
    lh_status status = LH_OK;
    pthread_mutex_lock(&c->lock);
    while (status == LH_OK && !c->has_arrived[slot])
        status = wait_for_progress(c, err);
    c->posted[slot] = NULL;
    pthread_mutex_unlock(&c->lock);
    return status;
}

lh_status lhi_blocking_sends_acquire_entry(lhi_blocking_sends *c,
                                           int64_t *at_ns, lh_error *err)
{
    uint32_t queue = c->rank->o.exec->options.coupled_queue;
    lh_status status = LH_OK;
    if (!lhi_blocking_sends_is_active(c))
        return LH_OK;
    pthread_mutex_lock(&c->lock);
    while (status == LH_OK && c->n_issued - c->n_freed >= queue)
        status = wait_for_progress(c, err);
    if (status == LH_OK && c->n_issued >= queue &&
        c->freed_ns[c->n_issued - queue] > *at_ns)
        *at_ns = c->freed_ns[c->n_issued - queue];
    c->n_issued++;
    pthread_mutex_unlock(&c->lock);
    return status;
}

lh_status lhi_blocking_sends_end_step(lhi_blocking_sends *c, lh_error *err)
{
    lhi_rank *rank = c->rank;
    lh_status status = LH_OK;
    if (!lhi_blocking_sends_is_active(c))
        return LH_OK;
    pthread_mutex_lock(&c->lock);
    while (status == LH_OK && c->n_freed < c->n_sends)
        status = wait_for_progress(c, err);
    c->is_active = false;
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < c->n_notices && status == LH_OK; i++)
        status = lhi_net_wait_or_stop(rank->o.net, &c->notices[i].op,
                                      rank->o.stop, err);
    return status;
}
