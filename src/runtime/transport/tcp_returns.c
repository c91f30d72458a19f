/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/tcp_returns.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/sockets.h"
#include "runtime/transport/tcp_join_internal.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

struct lhi_tcp_returns {
    lhi_tcp_join_state join;
};

lh_status lhi_tcp_returns_open(const lhi_tcp_options *options,
                               const bool *is_replaced, lhi_tcp_returns **out,
                               lh_error *err)
{
    struct sockaddr_storage a;
    socklen_t size = 0;
    lhi_tcp_returns *r = calloc(1, sizeof *r);
    if (!r)
        return lhi_fail_nomem(err);
    lhi_tcp_join_state *t = &r->join;
    *t = (lhi_tcp_join_state){
        .options = options, .listener = -1, .returned = UINT32_MAX};
    t->detects_returns = true;
    lhi_compute_job_digest(options->job ? options->job : "", t->job);
    lh_status status = lhi_tcp_allocate(t, err);
    if (status == LH_OK)
        status =
            lhi_address_resolve(options->host ? options->host : "127.0.0.1",
                                options->port, &a, &size, err);
    if (status == LH_OK)
        status = lhi_listen_at(&a, size, 0, &t->listener, &t->port, err);
    if (status != LH_OK) {
        lhi_tcp_returns_close(r);
        return status;
    }
    /* Ranks that run are connected elsewhere: any number but -1. */
    for (uint32_t i = 0; i < options->n_ranks; i++)
        t->fds[i] = is_replaced[i] ? -1 : t->listener;
    *out = r;
    return LH_OK;
}

uint32_t lhi_tcp_returns_poll(lhi_tcp_returns *r)
{
    lhi_tcp_join_state *t = &r->join;
    /* One call accepts connections or reads their messages. */
    lhi_tcp_poll(t, -1, 0, lhi_now_ns(), NULL);
    return t->returned;
}

void lhi_tcp_returns_close(lhi_tcp_returns *r)
{
    if (!r)
        return;
    if (r->join.listener >= 0)
        close(r->join.listener);
    lhi_tcp_release(&r->join);
    free(r);
}
