/* SPDX-License-Identifier: Apache-2.0 */
/* Joining over TCP for separately started ranks. Every rank connects to rank 0,
 * authenticates with the job's secret and receives the others' addresses. It
 * then connects to all lower ranks and authenticates with each. The secret
 * itself is never transmitted.
 *
 * A single thread joins. During every wait it also serves the pending
 * connections (pending_connections.h), so that unauthenticated connections
 * neither block a rank nor extend the timeout. A rank whose connection was
 * dropped before authentication reconnects until the timeout. */
#define _GNU_SOURCE
#include "runtime/transport/tcp_join_internal.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/sockets.h"
#include "runtime/transport/wire_format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Descriptors besides the connections (listener and the threads' wake-up
 * files), and the minimum number of pending connections. */
enum { OTHER_FILES = 8, MIN_PENDING = 2 };
/* Nanoseconds per millisecond. */
static const int64_t ms_ns = 1000000;
/* Time after which a wrong secret, another setup or a failed rank ends the
 * joining although a rank has not reacted: a missing rank can still join after
 * another process claimed its number with a wrong secret, or fetch the reason.
 * Half of the 2 s in which a mismatch ends all ranks
 * (docs/engine-transports.md). */
static const int64_t end_delay_ns = 1000000000;

/* ---- waiting ---- */

/* Waits until socket `fd` has event `what` (POLLIN or POLLOUT) and returns
 * true; false: not until until_ns. Serves pending connections meanwhile. */
static bool wait_fd(lhi_tcp_join_state *t, int fd, short what, int64_t until_ns)
{
    while (!lhi_tcp_poll(t, fd, what, until_ns, NULL))
        if (t->is_stopped || lhi_now_ns() >= until_ns)
            return false;
    return true;
}

/* Decides after a recv() or send() that returned `n` whether the caller may try
 * again: yes after success, or once the socket is ready for event `what` before
 * `until_ns`. False: `errno` has the error. */
static bool should_retry(lhi_tcp_join_state *t, int fd, ssize_t n, short what,
                         int64_t until_ns)
{
    if (n >= 0)
        return true;
    if (errno != EAGAIN && errno != EINTR)
        return false;
    if (wait_fd(t, fd, what, until_ns))
        return true;
    errno = ETIMEDOUT;
    return false;
}

/* Reads exactly `size` bytes until `until_ns`; false: timeout, error (errno),
 * or end of stream (errno 0). */
static bool read_until(lhi_tcp_join_state *t, int fd, void *out, size_t size,
                       int64_t until_ns)
{
    for (size_t at = 0; at < size;) {
        ssize_t n =
            recv(fd, (unsigned char *)out + at, size - at, MSG_DONTWAIT);
        if (n == 0)
            errno = 0;
        if (n == 0 || !should_retry(t, fd, n, POLLIN, until_ns))
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Writes exactly `size` bytes until `until_ns`; false: timeout or error. */
static bool write_until(lhi_tcp_join_state *t, int fd, const void *in,
                        size_t size, int64_t until_ns)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = send(fd, (const unsigned char *)in + at, size - at,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (!should_retry(t, fd, n, POLLOUT, until_ns))
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* ---- handshake ---- */

/* Sends a handshake message and its payload of h->more bytes over socket `fd`
 * until until_ns; false: timeout or error. */
static bool send_message(lhi_tcp_join_state *t, int fd,
                         const lhi_handshake_message *h, const void *more,
                         int64_t until_ns)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES];
    lhi_handshake_write(h, bytes);
    return write_until(t, fd, bytes, sizeof bytes, until_ns) &&
           (h->more == 0 || write_until(t, fd, more, h->more, until_ns));
}

/* Reads a handshake message of the given kind from rank `from` over socket `fd`
 * until until_ns. A refusal by the peer becomes an error with its reason. */
static lh_status receive_message(lhi_tcp_join_state *t, int fd,
                                 lhi_handshake_kind kind, uint32_t from,
                                 lhi_handshake_message *h, int64_t until_ns,
                                 lh_error *err)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES], more[LHI_REFUSAL_BYTES];
    t->cut = false;
    char hint[160] = "";
    if (from == 0 && kind == LHI_HANDSHAKE_CHALLENGE)
        snprintf(hint, sizeof hint,
                 "; another program may use port %u: see rank 0's error, or "
                 "set LONGHAUL_PORT to another port for all ranks",
                 t->options->port);
    if (!read_until(t, fd, bytes, sizeof bytes, until_ns)) {
        t->cut = errno != ETIMEDOUT;
        return lhi_fail(err, LH_EIO, "rank %u: %s while rank %u joined%s", from,
                        errno == ETIMEDOUT ? "its handshake timed out"
                        : errno            ? strerror(errno)
                                           : "it closed the connection",
                        t->options->rank, hint);
    }
    lh_error why = {0};
    lh_status status = lhi_handshake_read(bytes, h, &why);
    if (status != LH_OK)
        return lhi_fail(err, status, "rank %u: %s%s", from, why.text, hint);
    if (h->kind == LHI_HANDSHAKE_REFUSE) {
        char text[LHI_REFUSAL_BYTES + 1];
        const bool is_final = h->port > 0;
        t->is_informed = t->is_informed || is_final;
        t->cut = !read_until(t, fd, more, h->more, until_ns);
        lhi_wire_sanitise_text(more, t->cut ? 0 : h->more, text, sizeof text);
        return lhi_fail(err, is_final ? LH_EINVAL : LH_EIO, "%s", text);
    }
    /* A rank with another number of ranks is refused after its proof. */
    if (h->kind != kind || h->rank != from ||
        (h->n_ranks != t->options->n_ranks && kind != LHI_HANDSHAKE_CHALLENGE))
        return lhi_fail(err, LH_EIO,
                        "rank %u: it answers as rank %u of %u, or out of order",
                        from, h->rank, h->n_ranks);
    return LH_OK;
}

/* Runs the connecting side's handshake with rank `to` over socket `fd`: both
 * prove that they know the run's secret. */
static lh_status run_handshake(lhi_tcp_join_state *t, int fd, uint32_t to,
                               int64_t until_ns, lh_error *err)
{
    const lhi_tcp_options *o = t->options;
    lhi_handshake *s = &t->shakes[to];
    *s = (lhi_handshake){.client = o->rank,
                         .server = to,
                         .n_ranks = o->n_ranks,
                         .port = t->port};
    memcpy(s->job, t->job, sizeof s->job);
    lhi_handshake_message h = lhi_tcp_make_message(t, LHI_HANDSHAKE_HELLO),
                          answer;
    h.port = t->port;
    h.n_rails = t->options->n_rails;
    if (!lhi_random_bytes(h.nonce, sizeof h.nonce))
        return lhi_fail(err, LH_EIO, "cannot generate random numbers: %s",
                        strerror(errno));
    memcpy(s->client_nonce, h.nonce, sizeof h.nonce);
    /* If the write fails, the input has the reason. */
    send_message(t, fd, &h, NULL, until_ns);
    LHI_TRY(receive_message(t, fd, LHI_HANDSHAKE_CHALLENGE, to, &answer,
                            until_ns, err));
    memcpy(s->server_nonce, answer.nonce, sizeof answer.nonce);
    h = lhi_tcp_make_message(t, LHI_HANDSHAKE_PROOF);
    if (o->setup)
        memcpy(h.setup, o->setup, sizeof h.setup);
    lhi_handshake_compute_mac(o->secret, o->secret_size, "client", s, h.setup,
                              sizeof h.setup, h.mac);
    send_message(t, fd, &h, NULL, until_ns);
    LHI_TRY(receive_message(t, fd, LHI_HANDSHAKE_WELCOME, to, &answer, until_ns,
                            err));
    unsigned char mac[LHI_MAC_BYTES];
    lhi_handshake_compute_mac(o->secret, o->secret_size, "server", s, NULL, 0,
                              mac);
    if (!lhi_mac_equals(mac, answer.mac))
        return lhi_fail(err, LH_EIO,
                        "rank %u does not have the job's secret: another "
                        "program may use its port",
                        to);
    return LH_OK;
}

/* ---- waiting for the others ---- */

/* Returns the first rank from `from` on that is not connected. */
static uint32_t find_first_missing(const lhi_tcp_join_state *t, uint32_t from)
{
    uint32_t i = from;
    while (i < t->options->n_ranks && t->fds[i] >= 0)
        i++;
    return i;
}

/* Fails with LH_EIO; the message names the missing ranks and the last
 * rejection. */
static lh_status fail_missing(const lhi_tcp_join_state *t, lh_error *err)
{
    uint32_t n = 0, n_ranks = t->options->n_ranks, mine = t->options->rank;
    for (uint32_t i = mine + 1; i < n_ranks; i++)
        n += t->fds[i] < 0;
    char others[40] = "", refused[60] = "";
    if (n > 1)
        snprintf(others, sizeof others, " and %u more have", n - 1);
    if (t->n_refused > 1)
        snprintf(refused, sizeof refused, " and %" PRIu64 " more",
                 t->n_refused - 1);
    return lhi_fail(
        err, LH_EIO, "rank %u%s not joined rank %u in time%s%s%s%s",
        find_first_missing(t, mine + 1), n > 1 ? others : " has", mine,
        t->n_refused ? "; refused: " : "", t->refused_text, refused,
        t->pending.short_of_files ? "; no file descriptor is free (ulimit -n)"
                                  : "");
}

/* Checks whether a rank that failed or has another setup ends the joining: once
 * all other ranks can get the reason, or after a second. */
static bool has_ended(const lhi_tcp_join_state *t)
{
    uint32_t n = 0;
    for (uint32_t i = t->options->rank + 1; i < t->options->n_ranks; i++)
        n += t->fds[i] >= 0 || t->has_reason[i];
    return t->end_reason[0] &&
           (n >= t->options->n_ranks - t->options->rank - 1 ||
            lhi_now_ns() - t->end_ns >= end_delay_ns);
}

/* Checks whether joining fails because of wrong secrets: the number of every
 * missing rank was claimed with a wrong secret, and no rank has joined for
 * end_delay_ns. */
static bool have_wrong_secrets_ended(const lhi_tcp_join_state *t)
{
    if (t->options->outlasts_wrong_secrets)
        return false;
    for (uint32_t i = t->options->rank + 1; i < t->options->n_ranks; i++)
        if (t->fds[i] < 0 && !t->is_impersonated[i])
            return false;
    return lhi_now_ns() - t->progress_ns >= end_delay_ns;
}

/* Reads a message that connected rank `from` has sent although it has to wait:
 * why it has failed. Always fails, with its reason. */
static lh_status receive_failure(lhi_tcp_join_state *t, uint32_t from,
                                 lh_error *err)
{
    lhi_handshake_message h;
    LHI_TRY(receive_message(t, t->fds[from], LHI_HANDSHAKE_REFUSE, from, &h,
                            lhi_now_ns() + LHI_HANDSHAKE_TIMEOUT_NS, err));
    return lhi_fail(err, LH_EIO,
                    "rank %u: unexpected message during the handshake", from);
}

/* Waits until all higher ranks are connected, then stops listening. */
static lh_status accept_higher_ranks(lhi_tcp_join_state *t, lh_error *err)
{
    const lhi_tcp_options *o = t->options;
    while (t->end_reason[0] || t->n_leaving > 0 ||
           find_first_missing(t, o->rank + 1) < o->n_ranks) {
        lh_error why = {0};
        uint32_t spoke = UINT32_MAX;
        if (has_ended(t) || (t->end_reason[0] && t->is_stopped))
            return lhi_fail(err, t->end_status, "%s", t->end_reason);
        if (t->is_stopped || lhi_now_ns() >= t->until_ns ||
            have_wrong_secrets_ended(t))
            return fail_missing(t, err);
        /* The only message expected from rank 0 now is a refusal. */
        if (lhi_tcp_poll(t, o->rank ? t->fds[0] : -1, POLLIN, t->until_ns,
                         &spoke))
            return receive_failure(t, 0, err);
        if (spoke == UINT32_MAX)
            continue;
        const lh_status status = receive_failure(t, spoke, &why);
        lhi_tcp_end_joining(t, status, why.text);
        close(t->fds[spoke]);
        t->fds[spoke] = -1;
        t->has_reason[spoke] = true;
    }
    close(t->listener);
    t->listener = -1;
    lhi_pending_close_all(&t->pending);
    return LH_OK;
}

/* ---- joining ---- */

/* Creates a non-blocking TCP socket of address family `family`; closes pending
 * connections if descriptors are short. Returns it, or -1 with errno. */
static int make_socket(lhi_tcp_join_state *t, int family)
{
    int fd;
    do
        fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    while (fd < 0 && (errno == EMFILE || errno == ENFILE) &&
           lhi_pending_drop_oldest(&t->pending));
    return fd;
}

/* Tries once to connect socket `fd` to address `a` until until_ns; returns 0 or
 * an errno value. */
static int try_connect(lhi_tcp_join_state *t, int fd,
                       const struct sockaddr_storage *a, socklen_t size,
                       int64_t until_ns)
{
    int error = 0;
    socklen_t error_size = sizeof error;
    if (connect(fd, (const struct sockaddr *)a, size) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return errno;
    if (!wait_fd(t, fd, POLLOUT, until_ns))
        return ETIMEDOUT;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size);
    return error;
}

/* Listens on the local address of the connection `fd`, under which higher ranks
 * can reach this rank. */
static lh_status listen_on_local_address(lhi_tcp_join_state *t, int fd,
                                         lh_error *err)
{
    struct sockaddr_storage mine;
    socklen_t size = sizeof mine;
    if (getsockname(fd, (struct sockaddr *)&mine, &size))
        return lhi_fail(err, LH_EIO, "no address: %s", strerror(errno));
    /* sin_port has the same offset in both address families. */
    ((struct sockaddr_in *)(void *)&mine)->sin_port = 0;
    return lhi_listen_at(&mine, size, t->options->rank, &t->listener, &t->port,
                         err);
}

/* Connects to rank `to` and runs the handshake. Sets t->cut if a retry may
 * succeed: the rank does not listen yet, is overloaded, or dropped this
 * connection in favour of others. */
static lh_status connect_once(lhi_tcp_join_state *t,
                              const struct sockaddr_storage *a, socklen_t size,
                              uint32_t to, lh_error *err)
{
    /* With a full backlog the system retransmits only after seconds, so a new
     * attempt is faster. */
    int64_t soon_ns = lhi_now_ns() + 1000 * ms_ns;
    t->cut = false;
    int fd = make_socket(t, a->ss_family);
    if (fd < 0)
        return lhi_fail(err, LH_EIO,
                        "rank %u: cannot create a socket: %s (ulimit -n)",
                        t->options->rank, strerror(errno));
    t->connects = true;
    int error = try_connect(t, fd, a, size,
                            soon_ns < t->until_ns ? soon_ns : t->until_ns);
    lh_status status = LH_OK;
    if (error) {
        char name[LHI_ADDRESS_TEXT];
        lhi_address_format(a, size, name);
        t->cut = true;
        if (to == 0 && t->options->misses_first)
            *t->options->misses_first = true;
        status = lhi_fail(err, LH_EIO, "rank %u cannot be reached at %s: %s",
                          to, name, strerror(error));
    }
    lhi_set_tcp_options(fd);
    if (status == LH_OK && to == 0 && t->options->misses_first)
        *t->options->misses_first = false;
    if (status == LH_OK && t->listener < 0)
        status = listen_on_local_address(t, fd, err);
    if (status == LH_OK)
        status = run_handshake(t, fd, to, t->until_ns, err);
    t->connects = false;
    if (status == LH_OK)
        t->fds[to] = fd;
    else
        close(fd);
    return status;
}

/* Connects to rank `to`; retries until it succeeds, is rejected, or the
 * timeout expires. */
static lh_status connect_with_retry(lhi_tcp_join_state *t,
                                    const struct sockaddr_storage *a,
                                    socklen_t size, uint32_t to, lh_error *err)
{
    int64_t pause_ns = 20 * ms_ns;
    for (;;) {
        lh_status status = connect_once(t, a, size, to, err);
        int64_t now_ns = lhi_now_ns();
        if (status == LH_OK || !t->cut || t->is_stopped ||
            now_ns >= t->until_ns)
            return status;
        /* Random delay, so that many ranks do not retry at once. */
        unsigned char some = 0;
        lhi_random_bytes(&some, 1);
        int64_t again_ns = now_ns + pause_ns / 2 + pause_ns * some / 256;
        /* Rank `to` may have ended, and rank 0 then sends the reason. */
        if (wait_fd(t, to > 0 ? t->fds[0] : -1, POLLIN,
                    again_ns < t->until_ns ? again_ns : t->until_ns))
            return receive_failure(t, 0, err);
        if (pause_ns < 500 * ms_ns)
            pause_ns *= 2;
    }
}

/* Sends the table of all ranks' addresses, and the data in `extra`, from rank 0
 * to all other ranks. */
static lh_status send_table(lhi_tcp_join_state *t, const lhi_tcp_extra *extra,
                            lh_error *err)
{
    const lhi_tcp_options *o = t->options;
    size_t size = (size_t)o->n_ranks * LHI_ADDRESS_BYTES;
    unsigned char *bytes = calloc(1, size + sizeof extra->bytes);
    if (!bytes)
        return lhi_fail_nomem(err);
    memcpy(bytes, t->addresses, size);
    memcpy(bytes + size, extra->bytes, sizeof extra->bytes);
    size += sizeof extra->bytes;
    lh_status status = LH_OK;
    for (uint32_t i = 1; i < o->n_ranks && status == LH_OK; i++) {
        lhi_handshake_message h = lhi_tcp_make_message(t, LHI_HANDSHAKE_TABLE);
        h.more = (uint32_t)size;
        lhi_handshake_compute_mac(o->secret, o->secret_size, "table",
                                  &t->shakes[i], bytes, size, h.mac);
        if (!send_message(t, t->fds[i], &h, bytes,
                          lhi_now_ns() + LHI_HANDSHAKE_TIMEOUT_NS))
            status = lhi_fail(err, LH_EIO, "rank %u: connection lost: %s", i,
                              strerror(errno));
    }
    free(bytes);
    return status;
}

/* Receives and authenticates rank 0's table of listening addresses, with the
 * extra bytes for shared links. */
static lh_status receive_table(lhi_tcp_join_state *t, lhi_tcp_extra *extra,
                               lh_error *err)
{
    const lhi_tcp_options *o = t->options;
    size_t size = (size_t)o->n_ranks * LHI_ADDRESS_BYTES;
    lhi_handshake_message h;
    /* Rank 0 times out first and sends the reason. */
    int64_t until_ns = t->until_ns + 1000 * ms_ns;
    LHI_TRY(receive_message(t, t->fds[0], LHI_HANDSHAKE_TABLE, 0, &h, until_ns,
                            err));
    if (h.more != size + sizeof extra->bytes)
        return lhi_fail(err, LH_EIO,
                        "rank 0: an address table of the invalid size %u bytes",
                        h.more);
    unsigned char *bytes = malloc(h.more);
    if (!bytes)
        return lhi_fail_nomem(err);
    lh_status status = LH_OK;
    unsigned char mac[LHI_MAC_BYTES];
    if (!read_until(t, t->fds[0], bytes, h.more, until_ns))
        status = lhi_fail(err, LH_EIO, "rank 0: connection lost");
    lhi_handshake_compute_mac(o->secret, o->secret_size, "table", &t->shakes[0],
                              bytes, h.more, mac);
    if (status == LH_OK && !lhi_mac_equals(mac, h.mac))
        status = lhi_fail(err, LH_EIO,
                          "rank 0: the address table failed "
                          "authentication");
    if (status == LH_OK) {
        memcpy(t->addresses, bytes, size);
        memcpy(extra->bytes, bytes + size, sizeof extra->bytes);
    }
    free(bytes);
    return status;
}

/* Waits, on rank 0, until every other rank has reported that it is connected to
 * all. */
static lh_status receive_ready(lhi_tcp_join_state *t, int64_t until_ns,
                               lh_error *err)
{
    uint32_t n = t->options->n_ranks, left = n - 1;
    bool *ready = calloc(n, sizeof *ready);
    lh_status status = ready ? LH_OK : lhi_fail_nomem(err);
    while (status == LH_OK && left > 0) {
        lhi_handshake_message h;
        uint32_t spoke = UINT32_MAX, late = 1;
        lhi_tcp_poll(t, -1, 0, until_ns, &spoke);
        while (late < n && ready[late])
            late++;
        if (spoke == UINT32_MAX && !t->is_stopped && lhi_now_ns() < until_ns)
            continue;
        if (spoke == UINT32_MAX) /* sets the error from its message */
            spoke = late;
        status = receive_message(t, t->fds[spoke], LHI_HANDSHAKE_READY, spoke,
                                 &h, until_ns, err);
        if (status != LH_OK)
            break;
        left -= !ready[spoke];
        ready[spoke] = true;
    }
    free(ready);
    return status;
}

/* Waits until all ranks are connected (barrier), so that no rank starts
 * earlier. */
static lh_status start_together(lhi_tcp_join_state *t, lh_error *err)
{
    const lhi_tcp_options *o = t->options;
    lhi_handshake_message h = lhi_tcp_make_message(t, o->rank
                                                          ? LHI_HANDSHAKE_READY
                                                          : LHI_HANDSHAKE_GO),
                          got;
    int64_t until_ns = t->until_ns + 2000 * ms_ns;
    if (o->rank) {
        send_message(t, t->fds[0], &h, NULL, until_ns);
        return receive_message(t, t->fds[0], LHI_HANDSHAKE_GO, 0, &got,
                               until_ns + 1000 * ms_ns, err);
    }
    LHI_TRY(receive_ready(t, until_ns, err));
    for (uint32_t i = 1; i < o->n_ranks; i++)
        if (!send_message(t, t->fds[i], &h, NULL, until_ns))
            return lhi_fail(err, LH_EIO, "rank %u: connection lost", i);
    return LH_OK;
}

/* Extends the timeout for joining once all ranks are present, for the
 * remaining steps. */
static void extend_timeout(lhi_tcp_join_state *t)
{
    int64_t until_ns = lhi_now_ns() + LHI_HANDSHAKE_TIMEOUT_NS;
    if (until_ns > t->until_ns)
        t->until_ns = until_ns;
}

/* Makes rank 0 listen at address `a`: on a copy of the caller's socket, if it
 * has one. */
static lh_status listen_first(lhi_tcp_join_state *t,
                              const struct sockaddr_storage *a, socklen_t size,
                              lh_error *err)
{
    const int given = t->options->listener;
    if (given == 0)
        return lhi_listen_at(a, size, 0, &t->listener, &t->port, err);
    t->listener = fcntl(given, F_DUPFD_CLOEXEC, 0);
    if (t->listener < 0 || fcntl(t->listener, F_SETFL, O_NONBLOCK))
        return lhi_fail(err, LH_EIO, "rank 0 cannot use its listener: %s",
                        strerror(errno));
    t->port = t->options->port;
    return LH_OK;
}

/* Connects this rank with all others: it connects to lower ranks and accepts
 * higher ranks. Rank 0 distributes the addresses. */
static lh_status join(lhi_tcp_join_state *t, lh_error *err)
{
    const lhi_tcp_options *o = t->options;
    struct sockaddr_storage a;
    socklen_t size = 0;
    LHI_TRY(lhi_address_resolve(o->host ? o->host : "127.0.0.1", o->port, &a,
                                &size, err));
    if (o->rank == 0) {
        LHI_TRY(listen_first(t, &a, size, err));
        LHI_TRY(accept_higher_ranks(t, err));
        extend_timeout(t);
        LHI_TRY(send_table(t, t->extra, err));
    } else {
        LHI_TRY(connect_with_retry(t, &a, size, 0, err));
        lhi_tcp_extra extra;
        LHI_TRY(receive_table(t, &extra, err));
        extend_timeout(t);
        LHI_TRY(t->on_extra(t->context, o, &extra, err));
        for (uint32_t i = 1; i < o->rank; i++) {
            size = lhi_address_read(t->addresses + i * LHI_ADDRESS_BYTES, &a);
            LHI_TRY(connect_with_retry(t, &a, size, i, err));
        }
        LHI_TRY(accept_higher_ranks(t, err));
    }
    return start_together(t, err);
}

/* Checks the options of a rank that joins: rank number, rails and secret. */
static lh_status check_options(const lhi_tcp_options *o, lh_error *err)
{
    if (!lhi_handshake_can_authenticate())
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "this build has no tcp transport: it was built without "
                        "OpenSSL (libssl-dev)");
    if (o->n_ranks == 0 || o->n_ranks > LHI_NET_MAX_RANKS ||
        o->rank >= o->n_ranks)
        return lhi_fail(err, LH_EINVAL, "rank %u of %u does not exist", o->rank,
                        o->n_ranks);
    if (o->n_rails > LHI_MAX_RAILS)
        return lhi_fail(err, LH_EINVAL,
                        "at most %d rails are supported, not %u", LHI_MAX_RAILS,
                        o->n_rails);
    if (o->secret_size < LHI_SECRET_MIN_BYTES)
        return lhi_fail(err, LH_EINVAL,
                        "the job's secret has %zu bytes; it needs at least %d",
                        o->secret_size, LHI_SECRET_MIN_BYTES);
    return LH_OK;
}

/* Checks whether the failure `status` of this rank ends the run even if it has
 * restarts left: a stop, or an invalid setting that no restart changes. At a
 * restart the others may continue without a rank that is not rank 0. */
static bool ends_run(const lhi_tcp_join_state *t, lh_status status)
{
    const lhi_tcp_options *o = t->options;
    return status == LH_ECANCELED ||
           (status == LH_EINVAL &&
            (o->rank == 0 || !o->outlasts_wrong_secrets));
}

/* Sets the options' needs_reason after a joining that failed with `status`; the
 * connected ranks get the reason next. */
static void find_uninformed(const lhi_tcp_join_state *t, lh_status status)
{
    const lhi_tcp_options *o = t->options;
    if (!o->needs_reason || !t->fds || !ends_run(t, status))
        return;
    if (o->rank > 0)
        o->needs_reason[0] = t->is_stopped && t->fds[0] < 0 && !t->is_informed;
    for (uint32_t i = 1; i < o->n_ranks && o->rank == 0; i++)
        o->needs_reason[i] = t->fds[i] < 0 && !t->has_reason[i];
}

void lhi_tcp_release(lhi_tcp_join_state *t)
{
    lhi_pending_fini(&t->pending);
    free(t->polls);
    free(t->fds);
    free(t->addresses);
    free(t->shakes);
    free(t->is_impersonated);
    free(t->has_reason);
}

lh_status lhi_tcp_allocate(lhi_tcp_join_state *t, lh_error *err)
{
    uint32_t n = t->options->n_ranks, above = n - t->options->rank - 1;
    uint32_t least = n - 1 + OTHER_FILES + MIN_PENDING;
    uint32_t best = n - 1 + OTHER_FILES + above + LHI_PENDING_EXTRA;
    uint32_t files = lhi_count_free_files(best);
    if (files < least)
        return lhi_fail(
            err, LH_EIO,
            "rank %u needs %u files for its connections to %u other ranks, but "
            "its limit allows %u; raise it (ulimit -n)",
            t->options->rank, least, n - 1, files);
    t->fds = malloc(n * sizeof *t->fds);
    t->addresses = calloc(n, LHI_ADDRESS_BYTES);
    t->shakes = calloc(n, sizeof *t->shakes);
    t->is_impersonated = calloc(n, sizeof *t->is_impersonated);
    t->has_reason = calloc(n, sizeof *t->has_reason);
    for (uint32_t i = 0; t->fds && i < n; i++)
        t->fds[i] = -1;
    LHI_TRY(lhi_pending_init(&t->pending, files - (n - 1) - OTHER_FILES, err));
    t->polls = calloc((size_t)t->pending.capacity + 2 + n, sizeof *t->polls);
    return t->fds && t->addresses && t->shakes && t->is_impersonated &&
                   t->has_reason && t->polls
               ? LH_OK
               : lhi_fail_nomem(err);
}

lh_status lhi_tcp_join(const lhi_tcp_options *o, const lhi_tcp_extra *extra,
                       lhi_tcp_extra_callback *on_extra, void *context,
                       int *fds, unsigned char *keys, lh_error *err)
{
    lhi_tcp_join_state t = {.options = o,
                            .listener = -1,
                            .extra = extra,
                            .on_extra = on_extra,
                            .context = context};
    LHI_TRY(check_options(o, err));
    t.until_ns = lhi_now_ns() + (o->join_ns ? o->join_ns : LHI_JOIN_TIMEOUT_NS);
    lhi_compute_job_digest(o->job ? o->job : "", t.job);
    lh_error e = {0};
    lh_status status = lhi_tcp_allocate(&t, &e);
    if (status == LH_OK)
        status = join(&t, &e);
    if (status != LH_OK && t.is_stopped)
        status = lhi_fail(&e, LH_ECANCELED,
                          "rank %u was stopped before all ranks had joined",
                          o->rank);
    if (status != LH_OK)
        find_uninformed(&t, status);
    for (uint32_t i = 0; t.fds && i < o->n_ranks; i++) {
        if (status == LH_OK) {
            fds[i] = t.fds[i];
            lhi_handshake_compute_mac(o->secret, o->secret_size, "frames",
                                      &t.shakes[i], NULL, 0,
                                      keys + (size_t)i * LHI_MAC_BYTES);
        } else if (t.fds[i] >= 0) { /* waiting ranks receive the reason */
            lhi_tcp_refuse(&t, t.fds[i], ends_run(&t, status), e.text);
            close(t.fds[i]);
        }
    }
    if (t.listener >= 0)
        close(t.listener);
    lhi_tcp_release(&t);
    return status == LH_OK ? LH_OK : lhi_fail(err, status, "%s", e.text);
}

/* Sends the reason `text` as lhi_tcp_send_reason() does. `mark`:
 * LHI_SETUP_FAILED or LHI_SETUP_STOPPED. */
static void send_reason(const lhi_tcp_options *options, unsigned char mark,
                        const char *text)
{
    lh_error ignored;
    unsigned char setup[LHI_SETUP_BYTES];
    lhi_tcp_options with = *options;
    const lhi_tcp_options *const o = &with;
    lhi_tcp_join_state t = {.options = o, .listener = -1};
    struct sockaddr_storage a;
    socklen_t size = 0;
    memset(setup, mark, sizeof setup);
    with.setup = o->rank > 0 ? setup : NULL; /* rank 0 answers all setups */
    t.until_ns = lhi_now_ns() + o->join_ns;
    lhi_compute_job_digest(o->job, t.job);
    if (!lhi_handshake_can_authenticate() ||
        lhi_tcp_allocate(&t, &ignored) != LH_OK ||
        lhi_address_resolve(o->host, o->port, &a, &size, &ignored) != LH_OK) {
        lhi_tcp_release(&t);
        return;
    }
    if (o->rank > 0) {
        if (connect_with_retry(&t, &a, size, 0, &ignored) == LH_OK)
            lhi_tcp_refuse(&t, t.fds[0], true, text);
    } else if (lhi_listen_at(&a, size, 0, &t.listener, &t.port, &ignored) ==
               LH_OK) {
        lhi_tcp_end_joining(&t, LH_EINVAL, text);
        t.end_ns = t.until_ns; /* until all ranks have got the reason */
        for (uint32_t i = 1; i < o->n_ranks; i++)
            t.has_reason[i] = o->needs_reason && !o->needs_reason[i];
        accept_higher_ranks(&t, &ignored);
    }
    for (uint32_t i = 0; i < o->n_ranks; i++)
        if (t.fds[i] >= 0)
            close(t.fds[i]);
    if (t.listener >= 0)
        close(t.listener);
    lhi_tcp_release(&t);
}

void lhi_tcp_send_reason(const lhi_tcp_options *o, const char *text)
{
    send_reason(o, LHI_SETUP_STOPPED, text);
}

void lhi_tcp_send_failure(const lhi_tcp_options *o, const char *why)
{
    char text[LHI_REFUSAL_BYTES];
    snprintf(text, sizeof text, "rank %u failed before it joined: %s", o->rank,
             why);
    send_reason(o, LHI_SETUP_FAILED, text);
}
