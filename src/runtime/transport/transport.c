/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/transport/transport.h"

#include "base/fail.h"
#include "base/integer_math.h"
#include "base/realtime.h"
#include "runtime/transport/futex.h"
#include "runtime/transport/transport_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* Changes the failure record's state from `from` to `to` atomically; false: it
 * was in another state. */
static bool change_state(lhi_failure *failure, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(&failure->state, &from, to, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Records rank `rank`'s failure, reported by rank `from`, with the message
 * `text`; keeps only a run's first failure. */
static void set_failure(lhi_failure *failure, uint32_t rank, uint32_t from,
                        lhi_failure_cause cause, const char *text)
{
    if (!change_state(failure, LHI_FAILURE_NONE, LHI_FAILURE_WRITING))
        return;
    snprintf(failure->text, sizeof failure->text, "%s", text);
    failure->rank = rank;
    failure->reported_by = from;
    failure->cause = cause;
    change_state(failure, LHI_FAILURE_WRITING, LHI_FAILURE_SET);
}

/* Returns the failure's state once its reason is completely written. Writing
 * takes almost no time unless the writer was killed; after one second the
 * reason is marked as incomplete for good. */
static uint32_t get_final_state(lhi_failure *failure)
{
    int64_t until_ns = 0;
    uint32_t state;
    while ((state = __atomic_load_n(&failure->state, __ATOMIC_ACQUIRE)) ==
           LHI_FAILURE_WRITING) {
        int64_t now_ns = lhi_now_ns();
        if (until_ns == 0)
            until_ns = now_ns + 1000000000;
        if (now_ns > until_ns)
            change_state(failure, LHI_FAILURE_WRITING, LHI_FAILURE_INCOMPLETE);
        else
            lhi_sleep_for(20000);
    }
    return state;
}

/* Records a failure of rank `rank` that this rank has observed, with the text
 * `reason`. */
static void set_observed(lhi_failure *failure, uint32_t rank,
                         lhi_failure_cause cause, const char *reason)
{
    char text[sizeof failure->text];
    snprintf(text, sizeof text, "rank %u: %s", rank, reason);
    set_failure(failure, rank, LHI_NET_OBSERVED, cause, text);
}

void lhi_failure_set(lhi_failure *failure, uint32_t rank, const char *reason)
{
    set_observed(failure, rank, LHI_CAUSE_ERROR, reason);
}

void lhi_failure_set_loss(lhi_failure *failure, uint32_t rank,
                          const char *reason)
{
    set_observed(failure, rank, LHI_CAUSE_LOSS, reason);
}

void lhi_failure_set_reported(lhi_failure *failure, uint32_t rank,
                              uint32_t from, lhi_failure_cause cause,
                              const char *text)
{
    set_failure(failure, rank, from, cause, text);
}

void lhi_net_set_output(lhi_net *net, uint32_t first, uint32_t n)
{
    net->first_of_output = first;
    net->n_of_output = n;
}

bool lhi_net_is_first_of_output(const lhi_net *net)
{
    return net->rank > 0 && net->n_of_output > 0 &&
           net->rank == net->first_of_output;
}

bool lhi_net_is_reporter(const lhi_net *net)
{
    lhi_failure *f = net->failure;
    const uint32_t first = net->first_of_output;
    const uint32_t n = net->n_of_output ? net->n_of_output : net->n_ranks;
    if (get_final_state(f) != LHI_FAILURE_SET || f->rank == net->rank)
        return true;
    /* A lost rank that could still report its loss prints nothing. */
    if (f->rank - first < n && f->cause == LHI_CAUSE_ERROR &&
        f->reported_by == f->rank)
        return false;
    return net->rank == first + (f->rank == first);
}

uint32_t lhi_failure_rank(lhi_failure *failure)
{
    return get_final_state(failure) == LHI_FAILURE_SET ? failure->rank
                                                       : LHI_NET_NO_RANK;
}

uint32_t lhi_failure_lost_rank(lhi_failure *failure)
{
    const uint32_t rank = lhi_failure_rank(failure);
    return rank != LHI_NET_NO_RANK && failure->cause != LHI_CAUSE_ERROR
               ? rank
               : LHI_NET_NO_RANK;
}

uint32_t lhi_net_lost_rank(const lhi_net *net)
{
    return lhi_failure_lost_rank(net->failure);
}

lhi_failure_cause lhi_net_failure_cause(const lhi_net *net)
{
    return lhi_net_lost_rank(net) != LHI_NET_NO_RANK ? net->failure->cause
                                                     : LHI_CAUSE_ERROR;
}

bool lhi_net_read_notice(lhi_net *net, char *text, size_t room)
{
    return net->read_notice &&
           net->read_notice(net->notice_context, text, room);
}

const char *lhi_failure_text(lhi_failure *failure)
{
    switch (get_final_state(failure)) {
    case LHI_FAILURE_NONE:
        return NULL;
    case LHI_FAILURE_SET:
        return failure->text;
    default:
        return "a rank has failed";
    }
}

lh_status lhi_net_fail(const lhi_net *net, lh_error *err)
{
    const char *why = lhi_net_failure(net);
    return lhi_fail(err, LH_EIO, "%s", why ? why : "the run has failed");
}

void lhi_net_fail_size(lhi_net *net, uint32_t from, uint64_t tag,
                       size_t message_bytes, size_t receive_bytes)
{
    char text[200];
    snprintf(text, sizeof text,
             "the message with tag %" PRIu64 " from rank %u has %zu bytes, its "
             "receive %zu",
             tag, from, message_bytes, receive_bytes);
    lhi_net_abort(net, text);
}

void lhi_op_done(lhi_net_op *op, lh_status status)
{
    op->status = status;
    uint32_t *state = &op->state;
    lhi_net *rings = op->signals_event ? op->net : NULL;
    if (__atomic_exchange_n(state, LHI_OP_DONE, __ATOMIC_ACQ_REL) ==
        LHI_OP_WAITED)
        lhi_futex_wake(state, false);
    if (rings)
        lhi_net_signal_event(rings);
}

lh_status lhi_net_set_link(lhi_net *net, uint32_t link,
                           const lhi_net_link *rule, lh_error *err)
{
    if (!net->links)
        return lhi_fail(err, LH_EINVAL,
                        "emulated link %u does not exist; the run has none",
                        link);
    return lhi_links_set(net->links, link, rule, err);
}

lh_status lhi_net_suspend_link(lhi_net *net, uint32_t link, int64_t until_ns,
                               lh_error *err)
{
    if (!net->links)
        return lhi_fail(err, LH_EINVAL,
                        "emulated link %u does not exist; the run has none",
                        link);
    return lhi_links_suspend(net->links, link, until_ns, err);
}

lh_status lhi_net_enter_link(lhi_net *net, lhi_net_op *op, int64_t entered_ns,
                             uint64_t turn, lh_error *err)
{
    if (op->link == LHI_NET_NO_LINK)
        return LH_OK;
    if (!net->links)
        return lhi_fail(err, LH_EINVAL,
                        "emulated link %u does not exist; the run has none",
                        op->link);
    return lhi_links_enter(net->links, op->link, net->rank, op->size,
                           entered_ns, turn, &op->slot, err);
}

lh_status lhi_net_add_collective(lhi_net *net, const lhi_net_collective *what,
                                 uint32_t *slot, lh_error *err)
{
    if (!net->links)
        return lhi_fail(err, LH_EINVAL, "the run has no emulated links");
    return lhi_links_add_collective(net->links, net->rank, what, slot, err);
}

lh_status lhi_net_await_collective(lhi_net *net, uint32_t slot,
                                   lhi_net_transfer *out, lh_error *err)
{
    for (bool taken = false;;) {
        const int64_t now_ns = lhi_now_ns();
        LHI_TRY(lhi_links_take_collective(net->links, slot, now_ns, &taken, out,
                                          err));
        if (taken)
            return LH_OK;
        if (lhi_failure_text(net->failure))
            return lhi_net_fail(net, err);
        lhi_sleep_until(
            lhi_min_int64(out->arrive_ns, now_ns + LHI_NET_POLL_NS));
    }
}

/* Initialises `op`, a send or receive of `size` bytes at `data` with rank
 * `peer`. LH_EIO: the run has failed; LH_EINVAL: no such peer. */
static lh_status begin_op(lhi_net *net, uint32_t peer, uint64_t tag, void *data,
                          size_t size, lhi_net_op *op, lh_error *err)
{
    if (lhi_failure_text(net->failure))
        return lhi_net_fail(net, err);
    if (peer >= net->n_ranks || peer == net->rank)
        return lhi_fail(err, LH_EINVAL,
                        "rank %u of %u has no peer with number %u", net->rank,
                        net->n_ranks, peer);
    *op = (lhi_net_op){.net = net,
                       .peer = peer,
                       .tag = tag,
                       .data = data,
                       .size = size,
                       .link = LHI_NET_NO_LINK,
                       .signals_event = op->signals_event,
                       .state = LHI_OP_PENDING};
    return LH_OK;
}

/* Marks an operation that failed to start as idle, so that a later wait for it
 * is an error; returns `status` unchanged. */
static lh_status finish_start(lhi_net_op *op, lh_status status)
{
    if (status != LH_OK)
        __atomic_store_n(&op->state, LHI_OP_IDLE, __ATOMIC_RELEASE);
    return status;
}

lh_status lhi_net_send(lhi_net *net, uint32_t to, uint64_t tag,
                       const void *data, size_t size, uint32_t link,
                       int64_t entered_ns, uint64_t turn, lhi_net_op *op,
                       lh_error *err)
{
    union {
        const void *in;
        void *data;
    } bytes = {data}; /* sends only read them */
    LHI_TRY(begin_op(net, to, tag, bytes.data, size, op, err));
    op->link = link;
    op->entered_ns = entered_ns;
    lh_status status = lhi_net_enter_link(net, op, entered_ns, turn, err);
    if (status == LH_OK)
        status = net->ops->send(net, op, err);
    return finish_start(op, status);
}

lh_status lhi_net_receive(lhi_net *net, uint32_t from, uint64_t tag, void *data,
                          size_t size, lhi_net_op *op, lh_error *err)
{
    LHI_TRY(begin_op(net, from, tag, data, size, op, err));
    op->receives = true;
    return finish_start(op, net->ops->receive(net, op, err));
}

/* Waits until the operation's bytes are received, or are sent and the buffer
 * can be reused. */
static lh_status wait_bytes(lhi_net *net, lhi_net_op *op, int64_t until_ns,
                            lh_error *err)
{
    for (;;) {
        uint32_t state = lhi_op_state(op);
        if (state == LHI_OP_DONE)
            return LH_OK;
        if (lhi_failure_text(net->failure)) {
            net->ops->cancel(net, op);
            /* The transport has released it; later waits return the same error.
             */
            if (lhi_op_state(op) != LHI_OP_DONE)
                lhi_op_done(op, LH_EIO);
            return lhi_net_fail(net, err);
        }
        int64_t now_ns = until_ns == 1 ? 1 : lhi_now_ns();
        if (until_ns && now_ns >= until_ns)
            return lhi_fail(err, LH_ECANCELED, "not done in time");
        uint32_t pending = LHI_OP_PENDING;
        if (state == LHI_OP_PENDING &&
            !__atomic_compare_exchange_n(&op->state, &pending, LHI_OP_WAITED,
                                         false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
            continue;
        int64_t sleep_ns = now_ns + LHI_NET_POLL_NS;
        if (until_ns && until_ns < sleep_ns)
            sleep_ns = until_ns;
        lhi_futex_wait(&op->state, LHI_OP_WAITED, sleep_ns, false);
    }
}

/* Waits until receive `op`, whose bytes are present, has arrived by its
 * emulated link, in emulated time. LH_ECANCELED: not until until_ns. */
static lh_status wait_link(lhi_net *net, lhi_net_op *op, int64_t until_ns,
                           lh_error *err)
{
    for (;;) {
        bool taken = false;
        int64_t now_ns = lhi_now_ns(), arrived_ns = 0;
        LHI_TRY(lhi_links_take(net->links, op->link, op->slot, now_ns, &taken,
                               &op->began_ns, &arrived_ns, err));
        op->arrived_ns = arrived_ns;
        if (taken)
            return LH_OK;
        if (lhi_failure_text(net->failure))
            return lhi_net_fail(net, err);
        if (until_ns && now_ns >= until_ns)
            return lhi_fail(err, LH_ECANCELED, "not done in time");
        int64_t look_ns = now_ns + LHI_NET_POLL_NS;
        if (until_ns && until_ns < look_ns)
            look_ns = until_ns;
        if (arrived_ns == LHI_LINKS_UNKNOWN)
            lhi_links_wait_known(net->links, op->link, op->slot, look_ns);
        else
            lhi_sleep_until(arrived_ns < look_ns ? arrived_ns : look_ns);
    }
}

lh_status lhi_net_wait(lhi_net *net, lhi_net_op *op, int64_t until_ns,
                       lh_error *err)
{
    if (op->is_done)
        return LH_OK;
    if (lhi_op_state(op) == LHI_OP_IDLE)
        return lhi_fail(err, LH_EINVAL,
                        "a wait for an operation that was not started");
    LHI_TRY(wait_bytes(net, op, until_ns, err));
    if (op->status != LH_OK) {
        if (lhi_failure_text(net->failure))
            return lhi_net_fail(net, err);
        return lhi_fail(err, op->status,
                        "rank %u has closed its endpoint: no further message "
                        "with tag %" PRIu64 " between it and rank %u",
                        op->peer, op->tag, net->rank);
    }
    op->began_ns = op->entered_ns;
    /* A send is done when its bytes are reusable; the receiver owns the slot.
     */
    if (op->link != LHI_NET_NO_LINK && op->receives)
        LHI_TRY(wait_link(net, op, until_ns, err));
    op->is_done = true;
    return LH_OK;
}

lh_status lhi_net_test(lhi_net *net, lhi_net_op *op, int64_t *again_ns,
                       lh_error *err)
{
    enum {
        TURN_NS = 1000000
    }; /* poll interval: a determined turn signals no
        * event */
    lh_status status = lhi_net_wait(net, op, 1, err);
    if (status != LH_ECANCELED)
        return status;
    *again_ns = INT64_MAX;
    if (lhi_op_state(op) == LHI_OP_DONE)
        *again_ns = op->arrived_ns == LHI_LINKS_UNKNOWN ? lhi_now_ns() + TURN_NS
                                                        : op->arrived_ns;
    return status;
}

uint32_t lhi_net_event_count(const lhi_net *net)
{
    return __atomic_load_n(&net->event_count, __ATOMIC_ACQUIRE);
}

void lhi_net_signal_event(lhi_net *net)
{
    __atomic_add_fetch(&net->event_count, 1, __ATOMIC_ACQ_REL);
    lhi_futex_wake(&net->event_count, false);
}

void lhi_net_wait_event(lhi_net *net, uint32_t count, int64_t until_ns)
{
    int64_t look_ns = lhi_now_ns() + LHI_NET_POLL_NS;
    lhi_futex_wait(&net->event_count, count,
                   until_ns < look_ns ? until_ns : look_ns, false);
}

bool lhi_net_is_stop_requested(const lhi_net_stop *stop)
{
    return stop && stop->requested(stop->context);
}

lh_status lhi_net_wait_or_stop(lhi_net *net, lhi_net_op *op,
                               const lhi_net_stop *stop, lh_error *err)
{
    if (!stop)
        return lhi_net_wait(net, op, 0, err);
    for (;;) {
        lh_status status =
            lhi_net_wait(net, op, lhi_now_ns() + LHI_NET_POLL_NS, err);
        if (status != LH_ECANCELED)
            return status;
        if (lhi_net_is_stop_requested(stop))
            break;
    }
    lhi_net_abort(net, "interrupted");
    lhi_net_wait(net, op, 0, NULL);
    return lhi_fail(err, LH_ECANCELED, "interrupted");
}

void lhi_net_abort(lhi_net *net, const char *reason)
{
    net->ops->abort(net, reason);
}

void lhi_net_abort_loss(lhi_net *net, uint32_t rank, const char *reason)
{
    lhi_failure_set_loss(net->failure, rank, reason);
    net->ops->abort(net, reason); /* sends the first failure, this one */
}

void lhi_net_abort_return(lhi_net *net, uint32_t rank)
{
    static const char reason[] = "its host is back";
    set_observed(net->failure, rank, LHI_CAUSE_RETURN, reason);
    net->ops->abort(net, reason);
}

void lhi_net_begin_work(lhi_net *net, uint64_t what, int64_t now_ns)
{
    net->work_ns = 0;
    __atomic_store_n(&net->work, what, __ATOMIC_RELAXED);
    __atomic_store_n(&net->work_since_ns, now_ns, __ATOMIC_RELEASE);
}

/* Interrupts or ends the work at now_ns: adds the time since its begin or
 * continuation to its duration. */
static void leave_work(lhi_net *net, int64_t now_ns)
{
    net->work_ns += now_ns - net->work_since_ns;
    __atomic_store_n(&net->work_since_ns, 0, __ATOMIC_RELEASE);
}

void lhi_net_end_work(lhi_net *net, int64_t now_ns)
{
    leave_work(net, now_ns);
    net->total_work_ns += net->work_ns;
    if (net->work_ns > net->longest_work_ns)
        __atomic_store_n(&net->longest_work_ns, net->work_ns, __ATOMIC_RELAXED);
}

bool lhi_net_pause_work(lhi_net *net)
{
    const bool was_working = net->work_since_ns != 0;
    if (was_working)
        leave_work(net, lhi_now_ns());
    return was_working;
}

void lhi_net_resume_work(lhi_net *net, bool was_working)
{
    if (was_working)
        __atomic_store_n(&net->work_since_ns, lhi_now_ns(), __ATOMIC_RELEASE);
}

int64_t lhi_net_read_work(const lhi_net *net, uint64_t *what)
{
    const int64_t since_ns =
        __atomic_load_n(&net->work_since_ns, __ATOMIC_ACQUIRE);
    *what = __atomic_load_n(&net->work, __ATOMIC_RELAXED);
    return since_ns;
}

int64_t lhi_net_longest_work_ns(const lhi_net *net)
{
    return __atomic_load_n(&net->longest_work_ns, __ATOMIC_RELAXED);
}

int64_t lhi_net_total_work_ns(const lhi_net *net)
{
    return net->total_work_ns;
}

const char *lhi_net_failure(const lhi_net *net)
{
    return lhi_failure_text(net->failure);
}

uint32_t lhi_net_rank(const lhi_net *net)
{
    return net->rank;
}

uint32_t lhi_net_n_ranks(const lhi_net *net)
{
    return net->n_ranks;
}

void lhi_net_set_release(lhi_net *net, void (*release)(void *of), void *of)
{
    net->release = release;
    net->release_context = of;
}

void lhi_net_close(lhi_net *net)
{
    if (!net)
        return;
    void (*release)(void *of) = net->release;
    void *of = net->release_context;
    net->ops->close(net);
    if (release)
        release(of);
}

lh_status lhi_rank_run(lhi_net *net, lhi_rank_main *rank_main, void *context,
                       lhi_rank_result *result, lh_error *err)
{
    lh_error own = {0};
    *result = (lhi_rank_result){NULL, 0};
    lh_status status =
        rank_main(net, context, &result->text, &result->size, &own);
    if (status != LH_OK) {
        lhi_net_abort(net, own.text);
        /* Copies the reason before the endpoint is freed. */
        const char *why = lhi_net_failure(net);
        if (why)
            lhi_fail(&own, status, "%s", why);
        if (err)
            *err = own;
    }
    lhi_net_close(net);
    return status;
}
