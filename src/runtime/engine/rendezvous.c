/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous receives. The receiver sends a notice when it posts a receive. The
 * sender has a thread per receiving rank, which waits for the next notice and
 * for the message itself. A rank posts its next receive only after the previous
 * message has arrived, so its notices' order is known. */
#include "runtime/engine/rank.h"

#include "base/realtime.h"

#include <inttypes.h>
#include <stdlib.h>

/* A pass output that waits for its notice. */
typedef struct ready_output {
    lhi_buffer *buffer;
    int64_t ns;
} ready_output;

/* A notice that a receive is posted. */
typedef struct notice {
    lhi_net_op op;
    unsigned char bytes[LHI_RECEIVE_NOTICE_BYTES];
} notice;

/* Sends the messages for one peer. */
typedef struct sender {
    lhi_rendezvous *late;
    pthread_t thread;
    uint32_t peer, n;
    uint32_t *passes; /* this rank's passes in the peer's post order */
    bool started;
    lh_status status;
    lh_error err;
} sender;

/* State of the rendezvous protocol on one rank. */
struct lhi_rendezvous {
    lhi_rank *rank;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ready_output *made; /* per pass */
    notice *notices;    /* sent, per post */
    uint32_t n_notices;
    uint32_t n_senders, n_busy;
    sender *senders;
    uint64_t round, step; /* round: counts started steps */
    lhi_step_kind kind;
    bool stop;
};

/* Checks whether pass number `pass` is skipped because this is a validation
 * step and the pass is no F. */
static bool skips_in_validation(const sender *s, uint32_t pass)
{
    return s->late->kind == LHI_STEP_VALIDATE &&
           s->late->rank->program->passes[pass].pass.kind != LH_F;
}

/* Waits for the notice that the receive of pass `pass`'s output is posted and
 * for the output itself, then sends it. */
static lh_status send_one(sender *s, uint32_t pass)
{
    lhi_rendezvous *late = s->late;
    lhi_rank *rank = late->rank;
    const lhi_exec_pass *p = &rank->program->passes[pass];
    notice heard = {0};
    int64_t posted_ns;
    LHI_TRY(lhi_net_receive(
        rank->o.net, lhi_rank_of_stage(rank, s->peer),
        lhi_tag(LHI_TAG_NOTICE, 2 * late->step + late->kind, p->output),
        heard.bytes, sizeof heard.bytes, &heard.op, &s->err));
    LHI_TRY(lhi_net_wait(rank->o.net, &heard.op, 0, &s->err));
    lh_status status = lhi_receive_notice_read(heard.bytes, sizeof heard.bytes,
                                               &posted_ns, &s->err);
    if (status != LH_OK) {
        lhi_fail_add_context(&s->err, "rank %u sends",
                             lhi_rank_of_stage(rank, s->peer));
        return status;
    }
    pthread_mutex_lock(&late->lock);
    while (!late->made[pass].buffer && !late->stop)
        pthread_cond_wait(&late->changed, &late->lock);
    ready_output what = late->made[pass];
    pthread_mutex_unlock(&late->lock);
    if (!what.buffer)
        return lhi_fail(&s->err, LH_ECANCELED, "stopped");
    int64_t entered = posted_ns > what.ns ? posted_ns : what.ns;
    return lhi_rank_send(rank, p, what.buffer, late->step, late->kind, entered,
                         &s->err);
}

/* Main function for a sender thread: sends each step's messages in the order of
 * the peer's receives. */
static void *sender_main(void *of)
{
    sender *s = of;
    lhi_rendezvous *late = s->late;
    uint64_t round = 0;
    pthread_mutex_lock(&late->lock);
    for (;;) {
        while (late->round == round && !late->stop)
            pthread_cond_wait(&late->changed, &late->lock);
        if (late->stop)
            break;
        round = late->round;
        pthread_mutex_unlock(&late->lock);
        lh_status status = LH_OK;
        for (uint32_t i = 0; i < s->n && status == LH_OK; i++)
            if (!skips_in_validation(s, s->passes[i]))
                status = send_one(s, s->passes[i]);
        pthread_mutex_lock(&late->lock);
        s->status = status;
        late->n_busy--;
        pthread_cond_broadcast(&late->changed);
    }
    pthread_mutex_unlock(&late->lock);
    return NULL;
}

/* Lists this rank's passes in the order in which rank `peer` posts the
 * receives of their outputs. `maker`: producing pass per input number. */
static lh_status fill_sender(lhi_rendezvous *late, sender *s, uint32_t peer,
                             const uint32_t *maker, lh_error *err)
{
    lhi_rank *rank = late->rank;
    const lhi_exec_rank *other = &rank->o.exec->ranks[peer];
    s->late = late;
    s->peer = peer;
    s->passes = LHI_NEW(rank->mem, uint32_t, other->n_posts);
    if (!s->passes)
        return lhi_fail_nomem(err);
    for (uint32_t k = 0; k < other->n_posts; k++)
        if (other->posts[k].peer == rank->o.stage && !other->posts[k].delegated)
            s->passes[s->n++] = maker[other->posts[k].input];
    return LH_OK;
}

/* Creates a sender thread's state for each rank that receives messages from
 * this one. */
static lh_status make_senders(lhi_rendezvous *late, lh_error *err)
{
    lhi_rank *rank = late->rank;
    const lhi_exec_rank *program = rank->program;
    uint32_t *maker =
        LHI_NEW(rank->mem, uint32_t, 2 * (size_t)rank->o.exec->n_half);
    bool *sends = LHI_NEW(rank->mem, bool, rank->o.exec->n_ranks);
    late->senders = LHI_NEW(rank->mem, sender, rank->o.exec->n_ranks);
    late->made = LHI_NEW(rank->mem, ready_output, program->n_passes);
    late->notices = LHI_NEW(rank->mem, notice, program->n_posts);
    if (!maker || !sends || !late->senders || !late->made || !late->notices)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < program->n_passes; i++) {
        const lhi_exec_pass *pass = &program->passes[i];
        if (pass->output == LH_NONE || pass->local_output || pass->delegated)
            continue;
        maker[pass->output] = i;
        sends[pass->peer] = true;
    }
    for (uint32_t peer = 0; peer < rank->o.exec->n_ranks; peer++)
        if (sends[peer])
            LHI_TRY(fill_sender(late, &late->senders[late->n_senders++], peer,
                                maker, err));
    return LH_OK;
}

/* Starts the sender threads. Called by the thread that runs passes, so that
 * they inherit its priority and timer slack. */
static lh_status start_senders(lhi_rendezvous *late, lh_error *err)
{
    for (uint32_t i = 0; i < late->n_senders; i++) {
        sender *s = &late->senders[i];
        if (s->started)
            continue;
        if (pthread_create(&s->thread, NULL, sender_main, s) != 0)
            return lhi_fail(err, LH_EIO, "cannot start a sending thread");
        s->started = true;
    }
    return LH_OK;
}

lh_status lhi_rendezvous_make(lhi_rank *rank, lh_error *err)
{
    lhi_rendezvous *late = LHI_NEW(rank->mem, lhi_rendezvous, 1);
    if (!late)
        return lhi_fail_nomem(err);
    late->rank = rank;
    pthread_mutex_init(&late->lock, NULL);
    pthread_cond_init(&late->changed, NULL);
    rank->rendezvous = late;
    return make_senders(late, err);
}

void lhi_rendezvous_stop(lhi_rendezvous *late)
{
    pthread_mutex_lock(&late->lock);
    late->stop = true;
    pthread_cond_broadcast(&late->changed);
    pthread_mutex_unlock(&late->lock);
    for (uint32_t i = 0; i < late->n_senders; i++) {
        if (late->senders[i].started)
            pthread_join(late->senders[i].thread, NULL);
        late->senders[i].started = false;
    }
}

void lhi_rendezvous_free(lhi_rendezvous *late)
{
    if (!late)
        return;
    lhi_rendezvous_stop(late);
    for (uint32_t i = 0; late->made && i < late->rank->program->n_passes; i++)
        if (late->made[i].buffer)
            lhi_pool_give(&late->rank->pool, late->made[i].buffer);
    pthread_cond_destroy(&late->changed);
    pthread_mutex_destroy(&late->lock);
}

lh_status lhi_rendezvous_begin_step(lhi_rendezvous *late, uint64_t step,
                                    lhi_step_kind kind, lh_error *err)
{
    LHI_TRY(start_senders(late, err));
    pthread_mutex_lock(&late->lock);
    late->step = step;
    late->kind = kind;
    late->n_busy = late->n_senders;
    late->n_notices = 0;
    late->round++;
    pthread_cond_broadcast(&late->changed);
    pthread_mutex_unlock(&late->lock);
    return LH_OK;
}

lh_status lhi_rendezvous_notify_posted(lhi_rendezvous *late,
                                       const lhi_exec_post *post,
                                       int64_t posted_ns, lh_error *err)
{
    lhi_rank *rank = late->rank;
    notice *n = &late->notices[late->n_notices++];
    *n = (notice){0};
    lhi_receive_notice_write(posted_ns, n->bytes);
    return lhi_net_send(
        rank->o.net, lhi_rank_of_stage(rank, post->peer),
        lhi_tag(LHI_TAG_NOTICE, 2 * late->step + late->kind, post->input),
        n->bytes, sizeof n->bytes, LHI_NET_NO_LINK, lhi_now_ns(),
        LHI_NET_NO_TURN, &n->op, err);
}

void lhi_rendezvous_add_output(lhi_rendezvous *late, uint32_t pass,
                               lhi_buffer *buffer, int64_t made_ns)
{
    pthread_mutex_lock(&late->lock);
    late->made[pass] = (ready_output){buffer, made_ns};
    pthread_cond_broadcast(&late->changed);
    pthread_mutex_unlock(&late->lock);
}

lh_status lhi_rendezvous_end_step(lhi_rendezvous *late, lh_error *err)
{
    lhi_rank *rank = late->rank;
    pthread_mutex_lock(&late->lock);
    while (late->n_busy)
        pthread_cond_wait(&late->changed, &late->lock);
    lh_status status = LH_OK;
    for (uint32_t i = 0; i < late->n_senders && status == LH_OK; i++)
        if ((status = late->senders[i].status) != LH_OK && err)
            *err = late->senders[i].err;
    pthread_mutex_unlock(&late->lock);
    LHI_TRY(status);
    for (uint32_t i = 0; i < rank->program->n_passes; i++)
        if (late->made[i].buffer) {
            lhi_pool_give_after_send(&rank->pool, late->made[i].buffer);
            late->made[i].buffer = NULL;
        }
    for (uint32_t i = 0; i < late->n_notices; i++)
        LHI_TRY(lhi_net_wait_or_stop(rank->o.net, &late->notices[i].op,
                                     rank->o.stop, err));
    return LH_OK;
}
