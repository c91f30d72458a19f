/* SPDX-License-Identifier: Apache-2.0 */
/* Transport between threads of one process. A message is copied once, from the
 * sender's memory to the receiver's, by whichever call comes second. A thread
 * of the receiving endpoint copies large messages, so that neither send nor
 * receive blocks. */
#define _GNU_SOURCE
#include "runtime/transport/transport.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/futex.h"
#include "runtime/transport/matching.h"
#include "runtime/transport/transport_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Smallest message for the copy thread; a copy of this size costs about as much
 * as a thread switch. */
enum { COPY_BYTES = 128 << 10 };

typedef struct fabric fabric;

/* One rank's endpoint. */
typedef struct inproc_endpoint {
    lhi_net net; /* must be first: an endpoint is a lhi_net */
    fabric *fabric;
    pthread_mutex_t lock;
    lhi_match match;
    uint32_t left;      /* atomic: endpoint closed */
    uint32_t sends_out; /* atomic: sends not yet copied by a peer */
    uint32_t copies_in; /* atomic: receives being copied */
    /* The copy thread's queue, protected by `lock`. */
    bool copies, stop;
    pthread_t copier;
    pthread_cond_t more;
    lhi_queue jobs;
} inproc_endpoint;

/* All endpoints of a run. */
struct fabric {
    uint32_t n, n_open; /* n_open: atomic */
    lhi_failure failure;
    lhi_links *links;
    size_t links_bytes;
    inproc_endpoint ends[];
};

/* Decrements a count of pending operations; at 0 wakes the rank that waits for
 * it while it closes its endpoint. */
static void count_down(uint32_t *word)
{
    if (__atomic_sub_fetch(word, 1, __ATOMIC_ACQ_REL) == 0)
        lhi_futex_wake(word, false);
}

/* Waits until a count of pending operations is 0. */
static void wait_for_zero(uint32_t *word)
{
    uint32_t left;
    while ((left = __atomic_load_n(word, __ATOMIC_ACQUIRE)) > 0)
        lhi_futex_wait(word, left, lhi_now_ns() + LHI_NET_POLL_NS, false);
}

/* Completes a receive whose bytes are in place. Its message entered emulated
 * link `link`, in slot `slot`, at entered_ns, which determines when it arrives.
 * */
static void finish_receive(lhi_net_op *op, int64_t entered_ns, uint32_t link,
                           uint32_t slot)
{
    op->entered_ns = entered_ns;
    op->link = link;
    op->slot = slot;
    op->arrived_ns = link == LHI_NET_NO_LINK ? lhi_now_ns() : 0;
    lhi_op_done(op, LH_OK);
}

/* Copies a message's bytes from the sender's memory to the receiver's, and
 * completes both operations. */
static void copy_across(lhi_net_op *receive, lhi_net_op *send)
{
    if (send->size)
        memcpy(receive->data, send->data, send->size);
    finish_receive(receive, send->entered_ns, send->link, send->slot);
    lhi_op_done(send, LH_OK);
}

/* Main function for an endpoint's copy thread: copies queued large messages
 * into their receives until the endpoint closes. */
static void *copy_thread_main(void *of)
{
    inproc_endpoint *e = of;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        lhi_net_op *op = e->jobs.first;
        if (!op && e->stop)
            break;
        if (!op) {
            pthread_cond_wait(&e->more, &e->lock);
            continue;
        }
        e->jobs.first = op->next;
        pthread_mutex_unlock(&e->lock);
        lhi_net_op *send = op->transport_data;
        inproc_endpoint *sender = (inproc_endpoint *)send->net;
        bool was_kept = op->was_unexpected;
        copy_across(op, send);
        if (was_kept)
            count_down(&sender->sends_out);
        count_down(&e->copies_in);
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* Queues the copy from send to receive for the copy thread of endpoint `e`,
 * whose lock must be held. was_kept: the message arrived before its receive.
 * False: it is too small, or there is no thread; the caller copies. */
static bool queue_copy(inproc_endpoint *e, lhi_net_op *receive,
                       lhi_net_op *send, bool was_kept)
{
    if (send->size < COPY_BYTES)
        return false;
    if (!e->copies)
        e->copies = pthread_create(&e->copier, NULL, copy_thread_main, e) == 0;
    if (!e->copies)
        return false;
    receive->transport_data = send;
    receive->was_unexpected = was_kept;
    receive->next = NULL;
    if (e->jobs.first)
        ((lhi_net_op *)e->jobs.last)->next = receive;
    else
        e->jobs.first = receive;
    e->jobs.last = receive;
    pthread_cond_signal(&e->more);
    return true;
}

/* Queues message `op` at endpoint `to`, whose lock must be held, as unexpected,
 * because no receive is posted yet. Copies a small message, so that its send is
 * complete. */
static lh_status queue_unexpected(inproc_endpoint *from, inproc_endpoint *to,
                                  lhi_net_op *op, lh_error *err)
{
    bool small = op->size <= LHI_NET_EAGER_BYTES;
    lhi_unexpected *kept = lhi_unexpected_make(small ? op->size : 0);
    if (!kept)
        return lhi_fail_nomem(err);
    kept->from = from->net.rank;
    kept->tag = op->tag;
    kept->size = op->size;
    kept->entered_ns = op->entered_ns;
    kept->link = op->link;
    kept->slot = op->slot;
    kept->received_ns = lhi_now_ns();
    kept->send = small ? NULL : op;
    if (!lhi_match_add_unexpected(&to->match, kept)) {
        free(kept);
        return lhi_fail(err, LH_EIO,
                        "rank %u buffers %d MiB of messages that it has not "
                        "received",
                        to->net.rank, LHI_NET_UNEXPECTED_BYTES >> 20);
    }
    if (!small) {
        __atomic_add_fetch(&from->sends_out, 1, __ATOMIC_ACQ_REL);
        return LH_OK;
    }
    if (op->size)
        memcpy(kept->data, op->data, op->size);
    lhi_op_done(op, LH_OK);
    return LH_OK;
}

/* Sends a message: copies it into a posted receive, or queues it as unexpected.
 * LH_EIO: the peer has closed, or the sizes differ. */
static lh_status inproc_send(lhi_net *net, lhi_net_op *op, lh_error *err)
{
    inproc_endpoint *from = (inproc_endpoint *)net,
                    *to = &from->fabric->ends[op->peer];
    pthread_mutex_lock(&to->lock);
    if (__atomic_load_n(&to->left, __ATOMIC_ACQUIRE)) {
        pthread_mutex_unlock(&to->lock);
        return lhi_fail(err, LH_EIO, "rank %u has closed its endpoint",
                        op->peer);
    }
    lhi_net_op *receive = lhi_match_take_posted(&to->match, net->rank, op->tag);
    if (!receive) {
        lh_status status = queue_unexpected(from, to, op, err);
        pthread_mutex_unlock(&to->lock);
        return status;
    }
    if (receive->size != op->size) {
        size_t size = receive->size;
        lhi_match_post(&to->match, receive);
        pthread_mutex_unlock(&to->lock);
        lhi_net_fail_size(&to->net, net->rank, op->tag, op->size, size);
        return lhi_net_fail(net, err);
    }
    __atomic_add_fetch(&to->copies_in, 1, __ATOMIC_ACQ_REL);
    bool handed_over = queue_copy(to, receive, op, false);
    pthread_mutex_unlock(&to->lock);
    if (!handed_over) {
        copy_across(receive, op);
        count_down(&to->copies_in);
    }
    return LH_OK;
}

/* Receives the unexpected message `kept`, which arrived before its receive;
 * called with the lock held, releases it. */
static lh_status receive_unexpected(inproc_endpoint *e, lhi_net_op *op,
                                    lhi_unexpected *kept, lh_error *err)
{
    if (kept->size != op->size) {
        size_t size = kept->size;
        lhi_match_add_unexpected(&e->match, kept);
        pthread_mutex_unlock(&e->lock);
        lhi_net_fail_size(&e->net, op->peer, op->tag, size, op->size);
        return lhi_net_fail(&e->net, err);
    }
    lhi_net_op *send = kept->send;
    bool handed_over = false;
    if (send) {
        __atomic_add_fetch(&e->copies_in, 1, __ATOMIC_ACQ_REL);
        handed_over = queue_copy(e, op, send, true);
    }
    pthread_mutex_unlock(&e->lock);
    if (!send) {
        if (op->size)
            memcpy(op->data, kept->data, op->size);
        finish_receive(op, kept->entered_ns, kept->link, kept->slot);
    } else if (!handed_over) {
        inproc_endpoint *sender = (inproc_endpoint *)send->net;
        copy_across(op, send);
        count_down(&sender->sends_out);
        count_down(&e->copies_in);
    }
    free(kept);
    return LH_OK;
}

/* Receives a message: takes an unexpected one, or posts the receive. LH_EIO:
 * the peer has closed. */
static lh_status inproc_receive(lhi_net *net, lhi_net_op *op, lh_error *err)
{
    inproc_endpoint *e = (inproc_endpoint *)net;
    pthread_mutex_lock(&e->lock);
    lhi_unexpected *kept =
        lhi_match_take_unexpected(&e->match, op->peer, op->tag);
    if (kept)
        return receive_unexpected(e, op, kept, err);
    /* A closing peer first sets `left` and then cancels posted receives. */
    bool left =
        __atomic_load_n(&e->fabric->ends[op->peer].left, __ATOMIC_SEQ_CST);
    if (!left)
        lhi_match_post(&e->match, op);
    pthread_mutex_unlock(&e->lock);
    if (left)
        return lhi_fail(err, LH_EIO, "rank %u has closed its endpoint",
                        op->peer);
    return LH_OK;
}

/* Cancels a send or receive; if its copy is in progress, waits for the copy's
 * end. */
static void inproc_cancel(lhi_net *net, lhi_net_op *op)
{
    inproc_endpoint *e = (inproc_endpoint *)net,
                    *at = op->receives ? e : &e->fabric->ends[op->peer];
    bool found;
    pthread_mutex_lock(&at->lock);
    if (op->receives) {
        found = lhi_match_cancel(&at->match, op);
    } else {
        lhi_unexpected *kept = lhi_match_take_send(&at->match, op, net->rank);
        found = kept != NULL;
        free(kept);
    }
    pthread_mutex_unlock(&at->lock);
    if (found && !op->receives)
        count_down(&e->sends_out);
    /* A copy is in progress and ends soon. */
    uint32_t state;
    while (!found && (state = lhi_op_state(op)) != LHI_OP_DONE) {
        uint32_t pending = LHI_OP_PENDING;
        __atomic_compare_exchange_n(&op->state, &pending, LHI_OP_WAITED, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        lhi_futex_wait(&op->state, LHI_OP_WAITED,
                       lhi_now_ns() + LHI_NET_POLL_NS, false);
    }
}

/* Fails the run with `reason` on all ranks of the process, which share one
 * failure record. */
static void inproc_abort(lhi_net *net, const char *reason)
{
    lhi_failure_set(net->failure, net->rank, reason);
}

/* Waits until peers have copied all messages that this endpoint sent; after a
 * failure, withdraws them. */
static void end_sends(inproc_endpoint *e)
{
    uint32_t left;
    while ((left = __atomic_load_n(&e->sends_out, __ATOMIC_ACQUIRE)) > 0 &&
           !lhi_failure_text(e->net.failure))
        lhi_futex_wait(&e->sends_out, left, lhi_now_ns() + LHI_NET_POLL_NS,
                       false);
    fabric *f = e->fabric;
    for (uint32_t i = 0; i < f->n && left > 0; i++) {
        pthread_mutex_lock(&f->ends[i].lock);
        lhi_unexpected *kept;
        while ((
            kept = lhi_match_take_send(&f->ends[i].match, NULL, e->net.rank))) {
            free(kept);
            count_down(&e->sends_out);
        }
        pthread_mutex_unlock(&f->ends[i].lock);
    }
    wait_for_zero(&e->sends_out);
}

/* Stops accepting messages at this endpoint, fails unreceived large ones, and
 * waits for copies in progress. */
static void end_receives(inproc_endpoint *e)
{
    pthread_mutex_lock(&e->lock);
    __atomic_store_n(&e->left, 1, __ATOMIC_SEQ_CST);
    lhi_unexpected *kept;
    while ((kept = lhi_match_take_any(&e->match))) {
        if (kept->send) {
            inproc_endpoint *sender = (inproc_endpoint *)kept->send->net;
            lhi_op_done(kept->send, LH_EIO);
            count_down(&sender->sends_out);
        }
        free(kept);
    }
    memset(e->match.posted, 0, sizeof e->match.posted);
    e->stop = true;
    pthread_cond_signal(&e->more);
    bool copies = e->copies;
    pthread_mutex_unlock(&e->lock);
    if (copies)
        pthread_join(e->copier, NULL);
    wait_for_zero(&e->copies_in);
}

/* Frees the endpoints of all ranks and their emulated links, which form the
 * fabric (the shared state of all endpoints). */
static void free_fabric(fabric *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        pthread_mutex_destroy(&f->ends[i].lock);
        pthread_cond_destroy(&f->ends[i].more);
    }
    if (f->links) {
        lhi_links_fini(f->links);
        munmap(f->links, f->links_bytes);
    }
    free(f);
}

/* Closes an endpoint: ends its sends and receives, and fails the receives that
 * peers posted for its messages. The last endpoint frees the fabric (the shared
 * state of all endpoints). */
static void inproc_close(lhi_net *net)
{
    inproc_endpoint *e = (inproc_endpoint *)net;
    fabric *f = e->fabric;
    end_sends(e);
    end_receives(e);
    for (uint32_t i = 0; i < f->n; i++) {
        pthread_mutex_lock(&f->ends[i].lock);
        lhi_net_op *op;
        while ((op = lhi_match_take_from(&f->ends[i].match, net->rank)))
            lhi_op_done(op, LH_EIO);
        pthread_mutex_unlock(&f->ends[i].lock);
    }
    if (__atomic_sub_fetch(&f->n_open, 1, __ATOMIC_ACQ_REL) == 0)
        free_fabric(f);
}

static const lhi_net_ops inproc_ops = {
    .name = "inproc",
    .send = inproc_send,
    .receive = inproc_receive,
    .cancel = inproc_cancel,
    .abort = inproc_abort,
    .close = inproc_close,
};

/* Allocates the emulated link table in the fabric (the shared state of all
 * endpoints); no table without links. */
static lh_status map_links(fabric *f, uint32_t n_links,
                           const lhi_net_link *links, lh_error *err)
{
    if (n_links == 0)
        return LH_OK;
    f->links_bytes = lhi_links_bytes(n_links);
    void *map = mmap(NULL, f->links_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return lhi_fail_nomem(err);
    lh_status status = lhi_links_init(map, n_links, links, err);
    if (status == LH_OK)
        f->links = map;
    else
        munmap(map, f->links_bytes);
    return status;
}

lh_status lhi_net_inproc(uint32_t n, uint32_t n_links,
                         const lhi_net_link *links, lhi_net **endpoints,
                         lh_error *err)
{
    if (n == 0 || n > LHI_NET_MAX_RANKS)
        return lhi_fail(err, LH_EINVAL, "%u ranks; a run has 1 to %d", n,
                        LHI_NET_MAX_RANKS);
    LHI_TRY(lhi_links_check(n_links, links, err));
    fabric *f = calloc(1, sizeof *f + n * sizeof f->ends[0]);
    if (!f)
        return lhi_fail_nomem(err);
    lh_status status = map_links(f, n_links, links, err);
    if (status != LH_OK) {
        free(f);
        return status;
    }
    f->n = f->n_open = n;
    for (uint32_t i = 0; i < n; i++) {
        inproc_endpoint *e = &f->ends[i];
        e->net = (lhi_net){.ops = &inproc_ops,
                           .rank = i,
                           .n_ranks = n,
                           .links = f->links,
                           .failure = &f->failure};
        e->fabric = f;
        /* Neither can fail with default attributes on Linux. */
        pthread_mutex_init(&e->lock, NULL);
        pthread_cond_init(&e->more, NULL);
    }
    for (uint32_t i = 0; i < n; i++)
        endpoints[i] = &f->ends[i].net;
    return LH_OK;
}
