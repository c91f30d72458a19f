/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of ranks joined over TCP, for programs that use the library
 * (longhaul/experimental/transport.h). */
#include "base/fail.h"
#include "base/options.h"
#include "base/realtime.h"
#include "runtime/transport/transport.h"

#include <longhaul/experimental/transport.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A year: the sum with the present time fits. */
static const int64_t MOST_NS = INT64_C(31536000000000000);

struct lh_transport {
    lhi_net *net;
    int64_t wait_ns;             /* limit for a send or receive; 0: none */
    bool (*stop)(void *context); /* NULL: none */
    void *context;
};

/* Tests whether a duration is within the limits of the options. */
static bool is_duration(int64_t ns)
{
    return ns >= 0 && ns <= MOST_NS;
}

lh_status lh_transport_join(const lh_transport_options *options,
                            lh_transport **out, lh_error *err)
{
    lh_transport_options o;
    LHI_TRY(LHI_OPTIONS_COPY(lh_transport_options, &o, options, err));
    if (o.rank >= o.n_ranks || o.n_ranks > LHI_NET_MAX_RANKS)
        return lhi_fail(err, LH_EINVAL,
                        "rank %u of %u: must be below the number of ranks, "
                        "which is at most %d",
                        o.rank, o.n_ranks, LHI_NET_MAX_RANKS);
    if (!o.secret || o.secret_bytes < LHI_SECRET_MIN_BYTES)
        return lhi_fail(err, LH_EINVAL, "secret: must have at least %d bytes",
                        LHI_SECRET_MIN_BYTES);
    if (!o.job || !o.port)
        return lhi_fail(err, LH_EINVAL, "%s: missing", o.job ? "port" : "job");
    if (!is_duration(o.join_ns) || !is_duration(o.silence_ns) ||
        !is_duration(o.wait_ns))
        return lhi_fail(err, LH_EINVAL,
                        "join_ns, silence_ns, wait_ns: must be from 0 to "
                        "%" PRId64,
                        MOST_NS);
    if (o.listener < 0 || (o.listener && o.rank))
        return lhi_fail(err, LH_EINVAL,
                        "listener: only rank 0 has one, which is an open "
                        "socket; the others leave it 0");
    if (o.n_rails && !o.rails)
        return lhi_fail(err, LH_EINVAL, "rails: missing");
    if (o.n_rails > LHI_MAX_RAILS)
        return lhi_fail(err, LH_EINVAL, "rails: at most %d, here %u",
                        LHI_MAX_RAILS, o.n_rails);
    const lhi_tcp_options tcp = {
        .rank = o.rank,
        .n_ranks = o.n_ranks,
        .host = o.host,
        .port = o.port,
        .listener = o.listener,
        .job = o.job,
        .secret = o.secret,
        .secret_size = o.secret_bytes,
        .join_ns = o.join_ns,
        .outlasts_wrong_secrets = true, /* the caller gave all ranks one */
        .is_stopped = o.stop,
        .stop_context = o.context,
        .silence_ns = o.silence_ns,
        .n_rails = o.n_rails,
        .rails = o.rails,
    };
    lh_transport *t = malloc(sizeof *t);
    if (!t)
        return lhi_fail_nomem(err);
    *t = (lh_transport){
        .wait_ns = o.wait_ns, .stop = o.stop, .context = o.context};
    lh_status status = lhi_net_tcp(&tcp, &t->net, err);
    if (status != LH_OK) {
        free(t);
        return status;
    }
    *out = t;
    return LH_OK;
}

/* Checks that a message has another rank as its peer. */
static lh_status check_peer(const lh_transport *t, uint32_t peer, lh_error *err)
{
    uint32_t n = lhi_net_n_ranks(t->net), mine = lhi_net_rank(t->net);
    if (peer >= n || peer == mine)
        return lhi_fail(err, LH_EINVAL,
                        "rank %u exchanges no messages with rank %u of %u",
                        mine, peer, n);
    return LH_OK;
}

/* A wait for an operation; until_ns: 0: no limit. */
typedef struct wait_state {
    lh_transport *transport;
    const lhi_net_op *op;
    int64_t until_ns;
} wait_state;

/* Tests whether the caller stops a wait. Fails the transport, which ends the
 * wait, if the limit has passed. */
static bool is_wait_stopped(void *of)
{
    const wait_state *w = of;
    lh_transport *t = w->transport;
    if (t->stop && t->stop(t->context))
        return true;
    if (w->until_ns && lhi_now_ns() >= w->until_ns) {
        char why[120];
        snprintf(why, sizeof why,
                 "rank %u has not %s the message with tag %" PRIu64
                 " within %g s",
                 w->op->peer, w->op->receives ? "sent" : "received", w->op->tag,
                 (double)t->wait_ns * 1e-9);
        lhi_net_abort(t->net, why);
    }
    return false;
}

/* Waits until an operation is done, within the limits of the options. */
static lh_status wait_op(lh_transport *t, lhi_net_op *op, lh_error *err)
{
    wait_state w = {t, op, t->wait_ns ? lhi_now_ns() + t->wait_ns : 0};
    const lhi_net_stop stop = {is_wait_stopped, &w};
    lh_error e = {0};
    lh_status status = lhi_net_wait_or_stop(t->net, op, &stop, &e);
    return status == LH_OK ? LH_OK : lhi_fail(err, status, "%s", e.text);
}

lh_status lh_transport_send(lh_transport *t, uint32_t to, uint64_t tag,
                            const void *data, size_t n_bytes, lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(check_peer(t, to, err));
    LHI_TRY(lhi_net_send(t->net, to, tag, data, n_bytes, LHI_NET_NO_LINK,
                         lhi_now_ns(), LHI_NET_NO_TURN, &op, err));
    return wait_op(t, &op, err);
}

lh_status lh_transport_receive(lh_transport *t, uint32_t from, uint64_t tag,
                               size_t n_bytes, void *data, lh_error *err)
{
    lhi_net_op op = {0};
    LHI_TRY(check_peer(t, from, err));
    LHI_TRY(lhi_net_receive(t->net, from, tag, data, n_bytes, &op, err));
    return wait_op(t, &op, err);
}

void lh_transport_abort(lh_transport *t, const char *reason)
{
    lhi_net_abort(t->net, reason);
}

bool lh_transport_read_notice(lh_transport *t, size_t n_bytes, char *text)
{
    return lhi_net_read_notice(t->net, text, n_bytes);
}

void lh_transport_free(lh_transport *t)
{
    if (!t)
        return;
    lhi_net_close(t->net);
    free(t);
}
