/* SPDX-License-Identifier: Apache-2.0 */
/* UCX (openucx.org) as a carrier: tag matching over any interconnect. Frames
 * are small tagged messages; a large message's bytes go directly into the
 * memory of the receive that granted them. The library is loaded when a run
 * needs it, so nothing else depends on it.
 *
 * UCX over TCP may take minutes to report a lost peer, so peers exchange
 * heartbeats here. */
#define _GNU_SOURCE
#include "runtime/transport/ucx.h"

#include "base/fail.h"

#ifndef LHI_HAVE_UCX

lh_status lhi_ucx_open(const lhi_ucx_options *options, lhi_net **out,
                       lh_error *err)
{
    (void)options, (void)out;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "this build has no ucx transport: it was built without UCX "
                    "(libucx-dev)");
}

#else

#include "base/realtime.h"
#include "runtime/transport/address_exchange.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/ucx_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Maximum number of consecutive progress calls, so that other work is not
 * delayed. */
enum { MAX_PROGRESS_CALLS = 100 };
/* Nanoseconds per millisecond. */
static const int64_t ms_ns = 1000000;
/* Time after a lost connection in which its reason may still arrive. */
#define LOSS_REASON_TIMEOUT_NS INT64_C(500000000)

/* A UCX request in progress. */
struct lhi_ucx_request {
    lhi_ucx_request *next, *before; /* in the endpoint's list */
    lhi_ucx *of;
    uint32_t peer;
    lhi_net_op *op; /* NULL: a frame, or cancelled */
    void *request;
    unsigned char bytes[]; /* frame contents */
};

/* Wakes the endpoint's communication thread. */
static void wake_thread(lhi_ucx *u)
{
    uint64_t one = 1;
    ssize_t n = write(u->wakeup_fd, &one, sizeof one);
    (void)n; /* a full counter wakes the thread anyway */
}

/* Lets UCX progress a limited number of times, so that one busy sender cannot
 * block all others. */
static void progress(const lhi_ucx *u)
{
    for (int i = 0; i < MAX_PROGRESS_CALLS; i++)
        if (!u->call.worker_progress(u->worker))
            return;
}

/* ---- requests in progress ---- */

/* Allocates a request, the record of a UCX operation in progress, for operation
 * `op` (NULL: none) with `peer` and `bytes` of memory for its frame; adds it to
 * the endpoint's list. NULL: out of memory. */
static lhi_ucx_request *request_make(lhi_ucx *u, uint32_t peer, lhi_net_op *op,
                                     size_t bytes)
{
    lhi_ucx_request *j = malloc(sizeof *j + bytes);
    if (!j)
        return NULL;
    *j =
        (lhi_ucx_request){.next = u->requests, .of = u, .peer = peer, .op = op};
    if (u->requests)
        u->requests->before = j;
    u->requests = j;
    return j;
}

/* Removes a request (a UCX operation in progress) from the endpoint's list and
 * releases it. */
static void request_release(lhi_ucx_request *j)
{
    if (j->before)
        j->before->next = j->next;
    else
        j->of->requests = j->next;
    if (j->next)
        j->next->before = j->before;
    free(j);
}

/* Records the time and cause at which the connection to a peer was lost, and
 * wakes the thread, whose timers then fail the run. */
static void note_lost(lhi_ucx *u, uint32_t peer, ucs_status_t status)
{
    lhi_ucx_peer *e = &u->ends[peer];
    if (e->lost_ns)
        return;
    e->lost = status;
    e->lost_ns = lhi_now_ns();
    wake_thread(u);
}

/* Handles a UCX send's completion: completes the operation and frees the
 * request. Called by UCX with the lock held, as all callbacks. */
static void send_done(void *request, ucs_status_t status, void *of)
{
    lhi_ucx_request *j = of;
    lhi_ucx *u = j->of;
    if (status != UCS_OK)
        note_lost(u, j->peer, status);
    if (j->op)
        lhi_proto_payload_sent(&u->proto, j->op,
                               status == UCS_OK ? LH_OK : LH_EIO);
    request_release(j);
    if (request)
        u->call.request_free(request);
}

/* Handles the completion of the UCX receive `request` of a large message:
 * completes the operation `of`. Called by UCX with the lock held. */
static void receive_done(void *request, ucs_status_t status,
                         const ucp_tag_recv_info_t *info, void *of)
{
    lhi_ucx_request *j = of;
    lhi_ucx *u = j->of;
    lhi_net_op *op = j->op;
    if (op)
        op->transport_data = NULL;
    if (op && status == UCS_OK && info->length == op->size)
        lhi_proto_payload_received(&u->proto, op, NULL, NULL);
    else if (status != UCS_OK && status != UCS_ERR_CANCELED)
        note_lost(u, j->peer, status);
    else if (op && status == UCS_OK)
        lhi_failure_set_loss(u->proto.net.failure, j->peer,
                             "it sent fewer bytes than announced");
    request_release(j);
    u->call.request_free(request);
}

/* Lets UCX progress until `op` (NULL: the whole endpoint) has no request in
 * progress, for at most limit_ns; sleeps between attempts. */
static void wait_requests(lhi_ucx *u, const lhi_net_op *op, int64_t limit_ns)
{
    int64_t until_ns = lhi_now_ns() + limit_ns;
    for (;;) {
        progress(u);
        const lhi_ucx_request *j = u->requests;
        while (j && op && j->op != op)
            j = j->next;
        if (!j || lhi_now_ns() >= until_ns)
            return;
        lhi_sleep_for(ms_ns / 2);
    }
}

/* Closes the peer's UCX endpoint; its requests complete with an error. */
static void close_peer(lhi_ucx *u, uint32_t peer)
{
    lhi_ucx_peer *e = &u->ends[peer];
    if (!e->ep)
        return;
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                             .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request = u->call.ep_close_nbx(e->ep, &p);
    e->ep = NULL;
    for (int i = 0; i < 200 && UCS_PTR_IS_PTR(request); i++) {
        u->call.worker_progress(u->worker);
        if (u->call.request_check_status(request) != UCS_INPROGRESS)
            break;
        lhi_sleep_for(ms_ns);
    }
    if (UCS_PTR_IS_PTR(request))
        u->call.request_free(request);
}

/* ---- the carrier ---- */

/* Returns the UCX tag under which the bytes of the large message with number
 * `id` are sent. */
static uint64_t make_data_tag(const lhi_ucx *u, uint64_t id)
{
    return LHI_UCX_TAG_DATA | (u->data_tag ^ id);
}

/* Sends `size` bytes with the UCX tag `tag` to request `j`'s peer, this
 * operation's record. */
static void post(lhi_ucx *u, lhi_ucx_request *j, const void *bytes, size_t size,
                 uint64_t tag)
{
    lhi_ucx_peer *e = &u->ends[j->peer];
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                             UCP_OP_ATTR_FIELD_USER_DATA,
                             .cb.send = send_done,
                             .user_data = j};
    ucs_status_ptr_t r = UCS_STATUS_PTR(UCS_ERR_UNREACHABLE);
    if (e->ep)
        r = u->call.tag_send_nbx(e->ep, bytes, size, tag, &p);
    if (UCS_PTR_IS_ERR(r)) { /* kept until the reason is known */
        note_lost(u, j->peer, UCS_PTR_STATUS(r));
        return;
    }
    e->last_sent_ns = lhi_now_ns();
    if (r == NULL) {
        send_done(NULL, UCS_OK, j);
        return;
    }
    j->request = r;
    wake_thread(u); /* the communication thread must progress it */
}

/* Sends a frame to a peer. DATA frames send only the payload, from its own
 * memory; all others are copied with their header. */
static lh_status ucx_frame(lhi_proto *p, uint32_t to, const lhi_frame *f,
                           const void *payload, lhi_net_op *op, lh_error *err)
{
    lhi_ucx *u = (lhi_ucx *)p;
    if (f->kind == LHI_FRAME_DATA) {
        lhi_ucx_request *j = request_make(u, to, op, 0);
        if (!j)
            return lhi_fail_nomem(err);
        post(u, j, payload, (size_t)f->size, make_data_tag(u, f->id));
        return LH_OK;
    }
    size_t size = (size_t)lhi_frame_payload(f);
    lhi_ucx_request *j = request_make(u, to, NULL, LHI_FRAME_BYTES + size);
    if (!j)
        return lhi_fail_nomem(err);
    lhi_frame_write(f, j->bytes);
    if (size)
        memcpy(j->bytes + LHI_FRAME_BYTES, payload, size);
    post(u, j, j->bytes, LHI_FRAME_BYTES + size, u->frame_tag | p->net.rank);
    if (op) /* its bytes are copied */
        lhi_proto_payload_sent(p, op, LH_OK);
    return LH_OK;
}

/* Posts the UCX receive of a large message that this rank has granted (callback
 * of the protocol). LH_EIO: UCX rejects it. */
static lh_status ucx_expect(lhi_proto *p, lhi_net_op *op, lh_error *err)
{
    lhi_ucx *u = (lhi_ucx *)p;
    lhi_ucx_request *j = request_make(u, op->peer, op, 0);
    if (!j)
        return lhi_fail_nomem(err);
    ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                               UCP_OP_ATTR_FIELD_USER_DATA |
                                               UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                               .cb.recv = receive_done,
                               .user_data = j};
    ucs_status_ptr_t r =
        u->call.tag_recv_nbx(u->worker, op->data, op->size,
                             make_data_tag(u, op->id), UINT64_MAX, &how);
    if (UCS_PTR_IS_ERR(r)) {
        request_release(j);
        return lhi_fail(err, LH_EIO, "cannot receive from rank %u: %s",
                        op->peer, u->call.status_string(UCS_PTR_STATUS(r)));
    }
    j->request = r;
    op->transport_data = j;
    return LH_OK;
}

/* Cancels an operation's UCX request; if UCX cannot cancel the transfer, closes
 * the peer's UCX endpoint. false: the operation has no request, or its send has
 * completed. */
static bool ucx_cancel(lhi_proto *p, lhi_net_op *op)
{
    lhi_ucx *u = (lhi_ucx *)p;
    lhi_ucx_request *j = u->requests;
    while (j && j->op != op)
        j = j->next;
    if (!j)
        return false;
    if (!j->request) { /* never sent */
        request_release(j);
        return true;
    }
    if (op->receives)
        u->call.request_cancel(u->worker, j->request);
    wait_requests(u, op, op->receives ? 300 * ms_ns : 0);
    for (j = u->requests; j && j->op != op; j = j->next)
        ;
    if (!j)
        return op->receives;
    /* Transfer in progress: only closing the UCX endpoint stops it. */
    close_peer(u, op->peer);
    wait_requests(u, op, 1000 * ms_ns);
    for (j = u->requests; j && j->op != op; j = j->next)
        ;
    if (j)
        j->op = NULL;
    return op->receives || j;
}

static const lhi_carrier ucx_carrier = {
    .frame = ucx_frame,
    .expect = ucx_expect,
    .cancel = ucx_cancel,
};

/* ---- the communication thread ---- */

/* Sends a frame to every peer that is connected and has not shut down. */
static void send_all(lhi_ucx *u, const lhi_frame *f, const void *payload)
{
    for (uint32_t i = 0; i < u->proto.net.n_ranks; i++)
        if (u->ends[i].ep && !u->proto.peers[i].has_shut_down)
            ucx_frame(&u->proto, i, f, payload, NULL, NULL);
}

/* Sends the reason of the run's failure to all peers, unless it was sent
 * already. */
static void send_failure(lhi_ucx *u)
{
    const char *why = lhi_failure_text(u->proto.net.failure);
    if (!why || u->failure_shared)
        return;
    u->failure_shared = true;
    lhi_frame f = {.kind = LHI_FRAME_ABORT,
                   .size = strlen(why),
                   .tag = lhi_failure_rank(u->proto.net.failure),
                   .id = lhi_net_failure_cause(&u->proto.net)};
    if (f.size > LHI_ABORT_BYTES)
        f.size = LHI_ABORT_BYTES;
    send_all(u, &f, why);
}

/* Extends all timeouts if this thread itself is late: the peers' activity
 * meanwhile is unknown. */
static void extend_timeouts(lhi_ucx *u, int64_t late_ns, int64_t now_ns)
{
    for (uint32_t i = 0; i < u->proto.net.n_ranks; i++)
        u->ends[i].last_received_ns =
            lhi_advance_time_ns(u->ends[i].last_received_ns, late_ns, now_ns);
}

/* Handles all timeouts (keep-alives, lost peers); `due_ns`: time at which this
 * call was due, 0: none. */
static void run_timers(lhi_ucx *u, int64_t due_ns)
{
    int64_t now_ns = lhi_now_ns();
    if (lhi_failure_text(u->proto.net.failure))
        return;
    if (due_ns && now_ns - due_ns > u->silence_ns / 8)
        extend_timeouts(u, now_ns - due_ns, now_ns);
    for (uint32_t i = 0; i < u->proto.net.n_ranks; i++) {
        const lhi_ucx_peer *e = &u->ends[i];
        if (!e->ep || u->proto.peers[i].has_shut_down)
            continue;
        if (e->lost_ns && now_ns - e->lost_ns > LOSS_REASON_TIMEOUT_NS) {
            char why[200];
            snprintf(why, sizeof why, "its connection to rank %u was lost: %s",
                     u->proto.net.rank, u->call.status_string(e->lost));
            lhi_failure_set_loss(u->proto.net.failure, i, why);
        } else if (now_ns - e->last_received_ns > u->silence_ns) {
            char why[100];
            snprintf(why, sizeof why,
                     "silent for %.1f s, as measured by rank %u",
                     (double)(now_ns - e->last_received_ns) * 1e-9,
                     u->proto.net.rank);
            lhi_failure_set_loss(u->proto.net.failure, i, why);
        } else if (!u->shutdown_sent &&
                   now_ns - e->last_sent_ns > u->silence_ns / 4) {
            lhi_frame ping = {.kind = LHI_FRAME_PING};
            ucx_frame(&u->proto, i, &ping, NULL, NULL, NULL);
        }
    }
}

/* Main function for the communication thread: progresses UCX, handles frames,
 * runs timers, and sleeps until the next event. */
static void *thread_main(void *of)
{
    lhi_ucx *u = of;
    struct pollfd polls[2] = {{.fd = u->efd, .events = POLLIN},
                              {.fd = u->wakeup_fd, .events = POLLIN}};
    int64_t due_ns = 0;
    for (;;) {
        pthread_mutex_lock(&u->proto.lock);
        progress(u);
        lhi_ucx_handle_frames(u);
        run_timers(u, due_ns);
        send_failure(u);
        due_ns = lhi_now_ns() + u->silence_ns / 16;
        bool stop = u->stop;
        /* An armed worker wakes poll() on the next event. */
        ucs_status_t armed = u->call.worker_arm(u->worker);
        pthread_mutex_unlock(&u->proto.lock);
        if (stop)
            return NULL;
        if (armed == UCS_ERR_BUSY)
            continue;
        if (poll(polls, 2, (int)(u->silence_ns / 16 / ms_ns) + 1) > 0 &&
            polls[1].revents) {
            uint64_t count;
            ssize_t n = read(u->wakeup_fd, &count, sizeof count);
            (void)n;
        }
    }
}

/* ---- calls from other threads ---- */

/* Fails the run; the communication thread sends the failure to the peers. */
static void ucx_abort(lhi_net *net, const char *reason)
{
    lhi_ucx *u = (lhi_ucx *)net;
    lhi_failure_set(net->failure, net->rank, reason);
    wake_thread(u);
}

/* Checks whether all peers have sent their orderly shutdown. */
static bool have_all_left(const lhi_ucx *u)
{
    for (uint32_t i = 0; i < u->proto.net.n_ranks; i++)
        if (i != u->proto.net.rank && !u->proto.peers[i].has_shut_down)
            return false;
    return true;
}

/* Sends the orderly shutdown, or the failure's reason, to all peers. Then waits
 * briefly for the others' shutdown, because closing this endpoint would lose
 * messages in transit to them. */
static void shut_down(lhi_ucx *u)
{
    pthread_mutex_lock(&u->proto.lock);
    bool failed = lhi_failure_text(u->proto.net.failure) != NULL;
    lhi_frame bye = {.kind = LHI_FRAME_BYE};
    u->shutdown_sent = !failed;
    if (!failed)
        send_all(u, &bye, NULL);
    send_failure(u);
    int64_t until_ns = lhi_now_ns() + (failed ? 300 : 2000) * ms_ns;
    while (lhi_now_ns() < until_ns &&
           (failed ? u->requests != NULL : !have_all_left(u))) {
        pthread_mutex_unlock(&u->proto.lock);
        wake_thread(u);
        lhi_sleep_for(2 * ms_ns);
        pthread_mutex_lock(&u->proto.lock);
        failed = lhi_failure_text(u->proto.net.failure) != NULL;
    }
    u->stop = true;
    pthread_mutex_unlock(&u->proto.lock);
    wake_thread(u);
}

/* Closes all UCX endpoints, completes or cancels requests, and releases the
 * endpoint. */
static void ucx_free(lhi_ucx *u)
{
    lhi_ucx_request *next;
    for (lhi_ucx_request *j = u->requests; j; j = next) {
        next = j->next;
        j->op = NULL;
        if (j->request)
            u->call.request_cancel(u->worker, j->request);
        else
            request_release(j);
    }
    for (uint32_t i = 0; u->ends && i < u->proto.net.n_ranks; i++)
        close_peer(u, i);
    if (u->worker) {
        wait_requests(u, NULL, 500 * ms_ns);
        lhi_ucx_receive_frames(u, NULL); /* discards late messages */
        progress(u);
        u->call.worker_destroy(u->worker);
    }
    if (u->context)
        u->call.cleanup(u->context);
    while (u->requests)
        request_release(u->requests);
    while (u->first) {
        lhi_ucx_incoming_frame *c = u->first;
        u->first = c->next;
        free(c);
    }
    free(u->ends);
    if (u->wakeup_fd >= 0)
        close(u->wakeup_fd);
    lhi_proto_fini(&u->proto);
    free(u);
}

/* Closes the endpoint: completes pending sends, shuts down in order, and stops
 * the communication thread. */
static void ucx_close(lhi_net *net)
{
    lhi_ucx *u = (lhi_ucx *)net;
    lhi_proto_drain(&u->proto);
    shut_down(u);
    pthread_join(u->thread, NULL);
    void (*closed)(void *context) = u->closed;
    void *context = u->closed_context;
    ucx_free(u);
    if (closed)
        closed(context);
}

static const lhi_net_ops ucx_ops = {
    .name = "ucx",
    .send = lhi_proto_send,
    .receive = lhi_proto_receive,
    .cancel = lhi_proto_cancel,
    .abort = ucx_abort,
    .close = ucx_close,
};

/* ---- start ---- */

/* Fills in *mine, this rank's address record for the other ranks: UCX address
 * and random tags. */
static lh_status write_record(lhi_ucx *u, lhi_ucx_record *mine, lh_error *err)
{
    ucp_address_t *address = NULL;
    size_t size = 0;
    LHI_TRY(lhi_ucx_check_status(
        &u->call, u->call.worker_get_address(u->worker, &address, &size),
        "return its address", err));
    lh_status status = LH_OK;
    if (size > sizeof mine->address)
        status = lhi_fail(err, LH_EIO,
                          "the UCX address has %zu bytes, which is too many; "
                          "choose fewer devices with UCX_NET_DEVICES",
                          size);
    else
        memcpy(mine->address, address, size);
    mine->size = (uint32_t)size;
    u->call.worker_release_address(u->worker, address);
    if (status == LH_OK &&
        (!lhi_random_bytes(&mine->frame_tag, sizeof mine->frame_tag) ||
         !lhi_random_bytes(&mine->data_tag, sizeof mine->data_tag)))
        status = lhi_fail(err, LH_EIO, "cannot generate random numbers: %s",
                          strerror(errno));
    return status;
}

/* Error callback for a UCX endpoint: records its peer's loss. */
static void endpoint_lost(void *of, ucp_ep_h ep, ucs_status_t status)
{
    lhi_ucx *u = of;
    for (uint32_t i = 0; i < u->proto.net.n_ranks; i++)
        if (u->ends[i].ep == ep)
            note_lost(u, i, status);
}

/* All-gathers the UCX address records of all ranks into `records`. `status`:
 * result of this rank's earlier steps; after a failure it sends an empty
 * record, since the others would wait. */
static lh_status exchange_records(lhi_ucx *u, const lhi_ucx_options *o,
                                  lhi_ucx_record *records, lh_status status,
                                  lh_error *err)
{
    lh_error ignored;
    unsigned char *bytes = calloc(o->n_ranks, LHI_UCX_RECORD_BYTES);
    if (!bytes)
        return lhi_fail_nomem(err);
    if (status == LH_OK)
        status = write_record(u, &records[o->rank], err);
    if (status != LH_OK)
        records[o->rank].size = 0;
    lhi_ucx_record_write(&records[o->rank],
                         bytes + (size_t)o->rank * LHI_UCX_RECORD_BYTES);
    lh_status exchanged = o->exchange(o->context, bytes, LHI_UCX_RECORD_BYTES,
                                      status == LH_OK ? err : &ignored);
    if (status == LH_OK)
        status = exchanged;
    for (uint32_t i = 0; i < o->n_ranks && status == LH_OK; i++) {
        status = lhi_ucx_record_read(bytes + (size_t)i * LHI_UCX_RECORD_BYTES,
                                     &records[i], err);
        if (status != LH_OK)
            lhi_fail_add_context(err, "rank %u", i);
        else if (records[i].size == 0)
            status = lhi_fail(err, LH_EIO,
                              "rank %u cannot start; it prints the reason", i);
    }
    free(bytes);
    u->frame_tag =
        records[0].frame_tag << LHI_UCX_TAG_RANK_BITS & ~LHI_UCX_TAG_DATA;
    u->data_tag = records[0].data_tag;
    return status;
}

/* Connects this rank's UCX worker to all peers' workers. */
static lh_status connect_all(lhi_ucx *u, const lhi_ucx_options *o,
                             const lhi_ucx_record *records, lh_error *err)
{
    int64_t now_ns = lhi_now_ns();
    for (uint32_t i = 0; i < o->n_ranks; i++) {
        ucp_ep_params_t p = {
            .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                          UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER,
            .address = (const ucp_address_t *)(const void *)records[i].address,
            .err_mode = UCP_ERR_HANDLING_MODE_PEER,
            .err_handler = {.cb = endpoint_lost, .arg = u}};
        u->ends[i].last_received_ns = u->ends[i].last_sent_ns = now_ns;
        if (i == o->rank)
            continue;
        lh_status status = lhi_ucx_check_status(
            &u->call, u->call.ep_create(u->worker, &p, &u->ends[i].ep),
            "connect", err);
        if (status != LH_OK) {
            lhi_fail_add_context(err, "rank %u", i);
            return status;
        }
    }
    return LH_OK;
}

/* Creates the UCX worker, exchanges addresses, connects all peers, and starts
 * the communication thread. After an error the caller still has to release
 * `u`. */
static lh_status start(lhi_ucx *u, const lhi_ucx_options *o, lh_error *err)
{
    lhi_ucx_record *records = calloc(o->n_ranks, sizeof *records);
    u->ends = calloc(o->n_ranks, sizeof *u->ends);
    u->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!records || !u->ends) {
        free(records);
        return lhi_fail_nomem(err);
    }
    lh_status status = LH_OK;
    if (u->wakeup_fd < 0)
        status = lhi_fail(err, LH_EIO, "cannot create an event file: %s",
                          strerror(errno));
    if (status == LH_OK)
        status = lhi_ucx_make_worker(&u->call, o->loopback, o->n_ranks,
                                     &u->context, &u->worker, &u->efd, err);
    status = exchange_records(u, o, records, status, err);
    if (status == LH_OK)
        status = connect_all(u, o, records, err);
    free(records);
    if (status != LH_OK)
        return status;
    int error = pthread_create(&u->thread, NULL, thread_main, u);
    if (error)
        return lhi_fail(err, LH_EIO, "cannot start a communication thread: %s",
                        strerror(error));
    return LH_OK;
}

lh_status lhi_ucx_open(const lhi_ucx_options *o, lhi_net **out, lh_error *err)
{
    lhi_ucx *u = calloc(1, sizeof *u);
    if (!u)
        return lhi_fail_nomem(err);
    u->proto.net =
        (lhi_net){.ops = &ucx_ops,
                  .rank = o->rank,
                  .n_ranks = o->n_ranks,
                  .links = o->links,
                  .failure = o->failure ? o->failure : &u->own_failure};
    u->proto.carrier = &ucx_carrier;
    u->wakeup_fd = -1;
    u->silence_ns = o->silence_ns;
    u->closed = o->closed;
    u->closed_context = o->closed_context;
    lh_status status = lhi_ucx_load(&u->call, err);
    if (status == LH_OK)
        status = lhi_proto_init(&u->proto, err);
    if (status != LH_OK) {
        free(u);
        return status;
    }
    status = start(u, o, err);
    if (status == LH_OK)
        *out = &u->proto.net;
    else
        ucx_free(u);
    return status;
}

#endif
