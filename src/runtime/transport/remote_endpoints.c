/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoint construction for the tcp and ucx transports, whose ranks are started
 * separately; runs once all ranks have joined. */
#define _GNU_SOURCE
#include "runtime/transport/transport.h"

#include "base/fail.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/rail_setup.h"
#include "runtime/transport/shared_links.h"
#include "runtime/transport/stream.h"
#include "runtime/transport/tcp_join.h"
#include "runtime/transport/ucx.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Maps the table of emulated links that rank 0 has created in a shared file;
 * `extra` has its location (callback for joining). */
static lh_status map_shared_links(void *context, const lhi_tcp_options *o,
                                  const lhi_tcp_extra *extra, lh_error *err)
{
    lhi_shared_links **shared = context;
    lh_status status =
        lhi_shared_links_map(o->n_links, o->links, extra->bytes, shared, err);
    if (status != LH_OK)
        lhi_fail_add_context(err, "rank %u", o->rank);
    return status;
}

/* Resources below the endpoint, released after its streams. */
typedef struct endpoint_resources {
    lhi_shared_links *shared;
    lhi_rails *rails; /* NULL: none */
    lhi_failure failure;
} endpoint_resources;

/* Closes the rails and frees the shared link table of an endpoint (callback
 * when the endpoint is closed). */
static void free_resources(void *of)
{
    endpoint_resources *b = of;
    lhi_rails_close(b->rails);
    lhi_shared_links_free(b->shared);
    free(b);
}

/* Copies the next notice for the user about lost or restored rails (parallel
 * connections) to `text`; false: none. */
static bool read_rails_notice(void *of, char *text, size_t room)
{
    return lhi_rails_read_notice(of, text, room);
}

/* Creates the endpoint for messages over the connected sockets fds[], or over
 * rails (parallel connections) if the options have any. */
static lh_status start(const lhi_tcp_options *o, const int *fds,
                       const unsigned char *keys, endpoint_resources *b,
                       lhi_net **out, lh_error *err)
{
    lhi_stream_options options = {
        .name = "tcp",
        .rank = o->rank,
        .n_ranks = o->n_ranks,
        .fds = fds,
        .keys = keys,
        .links = lhi_shared_links_table(b->shared),
        .failure = &b->failure,
        .silence_ns = o->silence_ns ? o->silence_ns : LHI_SILENCE_TIMEOUT_NS,
        .closed = free_resources,
        .context = b};
    if (b->rails) { /* rails authenticate frames and detect losses themselves */
        options.keys = NULL;
        options.silence_ns = 0;
    }
    LHI_TRY(lhi_net_stream(&options, out, err));
    if (b->rails) {
        (*out)->read_notice = read_rails_notice;
        (*out)->notice_context = b->rails;
    }
    return LH_OK;
}

lh_status lhi_net_tcp(const lhi_tcp_options *o, lhi_net **out, lh_error *err)
{
    LHI_TRY(lhi_links_check(o->n_links, o->links, err));
    lhi_tcp_extra extra = {{0}};
    size_t n = o->n_ranks ? o->n_ranks : 1;
    endpoint_resources *b = calloc(1, sizeof *b);
    int *fds = malloc(n * sizeof *fds);
    unsigned char *keys = calloc(n, LHI_FRAME_MAC_KEY_BYTES);
    lh_status status = b && fds && keys ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK && o->rank == 0)
        status = lhi_shared_links_make(o->n_links, o->links, extra.bytes,
                                       &b->shared, err);
    bool joined = false;
    if (status == LH_OK) {
        status = lhi_tcp_join(o, &extra, map_shared_links, &b->shared, fds,
                              keys, err);
        joined = status == LH_OK;
    }
    if (status == LH_OK && o->n_rails)
        status = lhi_rails_setup(o, keys, &b->failure, fds, &b->rails, err);
    if (status == LH_OK)
        status = start(o, fds, keys, b, out, err);
    if (status != LH_OK) {
        for (uint32_t i = 0; joined && i < o->n_ranks; i++)
            if (fds[i] >= 0)
                close(fds[i]);
        if (b)
            free_resources(b);
    }
    free(fds);
    free(keys);
    return status;
}

/* ---- ucx, with address exchange over tcp ---- */

/* Closes the tcp control connections. They stay open during the run because
 * they detect a lost rank at once. */
static void close_control(void *of)
{
    lhi_net_close(of);
}

/* All-gathers the ranks' UCX address records, `size` bytes each in `records`,
 * over the tcp control connections (callback for the UCX transport). */
static lh_status exchange(void *context, void *records, size_t size,
                          lh_error *err)
{
    lhi_net *net = context;
    lhi_net_group all = {lhi_net_n_ranks(net),
                         lhi_net_rank(net),
                         NULL,
                         LHI_NET_NO_LINK,
                         NULL,
                         NULL};
    return lhi_net_all_gather(net, &all, 0, records, all.n_ranks, size, err);
}

/* Checks whether a host name or address is this host's loopback; NULL stands
 * for the default, 127.0.0.1. */
static bool is_loopback(const char *host)
{
    return !host || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

/* Checks that UCX may listen beyond the loopback device: only with `insecure`;
 * not needed if all ranks are on one host (one_host). UCX accepts connections
 * from anyone who reaches its addresses, and reads their messages before any
 * authentication. Else LH_EINVAL. */
lh_status lhi_ucx_may_listen(bool one_host, bool insecure, lh_error *err)
{
    const char *devices = getenv("UCX_NET_DEVICES");
    bool loopback = one_host && (!devices || strcmp(devices, "lo") == 0);
    if (loopback || insecure)
        return LH_OK;
    return lhi_fail(err, LH_EINVAL,
                    "transport ucx would listen %s%.60s, where UCX accepts "
                    "messages from any sender: use tcp, or --insecure if only "
                    "the job's hosts can reach it",
                    one_host ? "at devices " : "beyond this host",
                    one_host ? devices : "");
}

lh_status lhi_net_ucx(const lhi_tcp_options *o, lhi_net **out, lh_error *err)
{
    lhi_net *control = NULL;
    lhi_ucx_options options = {.rank = o->rank,
                               .n_ranks = o->n_ranks,
                               .loopback = is_loopback(o->host)};
    if (!lhi_handshake_can_authenticate())
        return lhi_fail(
            err, LH_EUNSUPPORTED,
            "this build has no ucx transport: it was built without OpenSSL "
            "(libssl-dev), which authenticates ranks by the job's secret");
    if (o->n_rails)
        return lhi_fail(err, LH_EINVAL,
                        "transport ucx selects its own network devices "
                        "(UCX_NET_DEVICES); rails require transport tcp");
    LHI_TRY(lhi_ucx_may_listen(options.loopback, o->insecure, err));
    LHI_TRY(lhi_net_tcp(o, &control, err));
    options.exchange = exchange;
    options.context = options.closed_context = control;
    options.links = control->links;
    options.failure = control->failure;
    options.silence_ns = o->silence_ns ? o->silence_ns : LHI_SILENCE_TIMEOUT_NS;
    options.closed = close_control;
    lh_status status = lhi_ucx_open(&options, out, err);
    if (status != LH_OK) {
        lhi_net_abort(control, err ? err->text : lh_status_name(status));
        lhi_net_close(control);
    }
    return status;
}
