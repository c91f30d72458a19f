/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "reordering_transport.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/transport_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t chance(uint64_t *state)
{
    /* splitmix64: Steele, Lea, Flood, OOPSLA 2014. */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t chance_below(uint64_t *state, uint64_t n)
{
    return n ? chance(state) % n : 0;
}

/* An operation whose start is delayed. */
typedef struct held {
    struct held *next;
    lhi_net_op *op;
    int64_t due_ns;
} held;

/* An endpoint that delays operations before it starts them on `inner`. */
typedef struct endpoint {
    lhi_net net; /* must be first */
    lhi_net_ops ops;
    lhi_net *inner;
    uint64_t state;
    int64_t most_ns;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    held *first; /* sorted by due time, then by arrival */
    bool stops;
} endpoint;

static lh_status hand_over(endpoint *e, lhi_net_op *op, lh_error *err)
{
    return op->receives ? e->inner->ops->receive(e->inner, op, err)
                        : e->inner->ops->send(e->inner, op, err);
}

/* Returns the due time of the last held operation in the same order; none may
 * overtake it. */
static int64_t not_before(const endpoint *e, const lhi_net_op *op)
{
    int64_t at_ns = 0;
    for (const held *h = e->first; h; h = h->next)
        if (h->op->peer == op->peer && h->op->tag == op->tag &&
            h->op->receives == op->receives)
            at_ns = h->due_ns;
    return at_ns;
}

static lh_status begin_late(lhi_net *net, lhi_net_op *op, lh_error *err)
{
    endpoint *e = (endpoint *)net;
    op->net = e->inner;
    pthread_mutex_lock(&e->lock);
    int64_t order_ns = not_before(e, op), due_ns = 0;
    if (chance_below(&e->state, 2))
        due_ns = lhi_now_ns() +
                 (int64_t)chance_below(&e->state, (uint64_t)e->most_ns);
    if (due_ns < order_ns)
        due_ns = order_ns;
    lh_status status = LH_OK;
    held *h = due_ns ? malloc(sizeof *h) : NULL;
    if (!h) {
        status = hand_over(e, op, err);
    } else {
        held **at = &e->first;
        while (*at && (*at)->due_ns <= due_ns)
            at = &(*at)->next;
        *h = (held){*at, op, due_ns};
        *at = h;
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    return status;
}

static void withdraw_late(lhi_net *net, lhi_net_op *op)
{
    endpoint *e = (endpoint *)net;
    pthread_mutex_lock(&e->lock);
    held **at = &e->first;
    while (*at && (*at)->op != op)
        at = &(*at)->next;
    held *found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&e->lock);
    free(found);
    if (!found)
        e->inner->ops->cancel(e->inner, op);
}

static void abort_inner(lhi_net *net, const char *reason)
{
    endpoint *e = (endpoint *)net;
    e->inner->ops->abort(e->inner, reason);
}

static void *hand_over_due(void *of)
{
    endpoint *e = of;
    pthread_mutex_lock(&e->lock);
    while (!e->stops) {
        held *h = e->first;
        if (!h) {
            pthread_cond_wait(&e->changed, &e->lock);
            continue;
        }
        if (h->due_ns > lhi_now_ns()) {
            struct timespec until = {h->due_ns / 1000000000,
                                     h->due_ns % 1000000000};
            pthread_cond_timedwait(&e->changed, &e->lock, &until);
            continue;
        }
        e->first = h->next;
        lh_error err = {0};
        lh_status status = hand_over(e, h->op, &err);
        /* The caller would have received this error and failed. */
        if (status != LH_OK && !strstr(err.text, "has closed its endpoint"))
            e->inner->ops->abort(e->inner, err.text);
        if (status != LH_OK)
            lhi_op_done(h->op, status);
        free(h);
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static bool holds_sends(const endpoint *e)
{
    for (const held *h = e->first; h; h = h->next)
        if (!h->op->receives)
            return true;
    return false;
}

/* Starts the held sends; drops receives that nobody waits for. */
static void end_late(endpoint *e)
{
    pthread_mutex_lock(&e->lock);
    while (holds_sends(e) && !lhi_net_failure(e->inner))
        pthread_cond_wait(&e->changed, &e->lock);
    e->stops = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    while (e->first) {
        held *h = e->first;
        e->first = h->next;
        free(h);
    }
}

lh_status late_net_rank(lhi_net *net, void *of, char **result, size_t *size,
                        lh_error *err)
{
    const reordering_transport *how = of;
    endpoint *e = calloc(1, sizeof *e);
    if (!e)
        return lhi_fail_nomem(err);
    e->ops = (lhi_net_ops){.name = "late",
                           .send = begin_late,
                           .receive = begin_late,
                           .cancel = withdraw_late,
                           .abort = abort_inner};
    e->net = (lhi_net){.ops = &e->ops,
                       .rank = net->rank,
                       .n_ranks = net->n_ranks,
                       .links = net->links,
                       .failure = net->failure};
    e->inner = net;
    e->state = how->seed * 4096 + net->rank;
    e->most_ns = how->most_ns;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, &clock);
    pthread_condattr_destroy(&clock);
    if (pthread_create(&e->thread, NULL, hand_over_due, e)) {
        free(e);
        return lhi_fail(err, LH_EIO, "no thread");
    }
    lh_status status = how->rank_main(&e->net, how->context, result, size, err);
    end_late(e);
    if (e->net.release)
        lhi_net_set_release(net, e->net.release, e->net.release_context);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
    return status;
}
