/* SPDX-License-Identifier: Apache-2.0 */
/* Rail setup: the higher rank connects, and both authenticate with the key from
 * joining this run. As during joining (tcp_acceptor.c), unauthenticated
 * connections are pending connections. */
#define _GNU_SOURCE
#include "runtime/transport/rails_internal.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/sockets.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Timeout for connecting; the handshake has its own (LHI_HANDSHAKE_TIMEOUT_NS).
 */
#define CONNECT_TIMEOUT_NS INT64_C(1000000000)

/* Returns a handshake message of the given kind with this rank's number and
 * job; the caller adds further fields. */
static lhi_handshake_message make_message(const lhi_rails *s,
                                          lhi_handshake_kind kind)
{
    lhi_handshake_message h = {
        .kind = kind, .rank = s->rank, .n_ranks = s->n_ranks};
    memcpy(h.job, s->job, sizeof h.job);
    return h;
}

/* Sends a handshake message over socket `fd` without blocking; false: it does
 * not fit into the socket buffer. */
static bool send_message(int fd, const lhi_handshake_message *h)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES];
    lhi_handshake_write(h, bytes);
    return lhi_send_now(fd, bytes, sizeof bytes);
}

/* Computes this rank's proof (MAC over the handshake) that it knows the run's
 * secret, for `peer`; `label`: the proof's purpose. */
static void compute_proof(const lhi_rails *s, uint32_t peer, const char *label,
                          const lhi_handshake *shake,
                          unsigned char out[LHI_MAC_BYTES])
{
    lhi_handshake_compute_mac(s->keys + (size_t)peer * LHI_MAC_BYTES,
                              LHI_MAC_BYTES, label, shake, NULL, 0, out);
}

/* Returns the handshake values (ranks, rail, job) for rail `rail` (one of the
 * parallel connections) from rank `client` to rank `server`. */
static lhi_handshake make_handshake(const lhi_rails *s, uint32_t client,
                                    uint32_t server, uint32_t rail)
{
    lhi_handshake k = {.client = client,
                       .server = server,
                       .n_ranks = s->n_ranks,
                       .port = rail};
    memcpy(k.job, s->job, sizeof k.job);
    return k;
}

/* ---- connecting ---- */

/* Decodes the address of rank `rank`'s rail (parallel connection) number `rail`
 * to a socket address; `any_port`: port 0, for the local end. Returns its
 * length. */
static socklen_t decode_address(const lhi_rails *s, uint32_t rank,
                                uint32_t rail, bool any_port,
                                struct sockaddr_storage *out)
{
    size_t at = (size_t)rank * s->n_rails + rail;
    socklen_t size =
        lhi_address_read(s->addresses + at * LHI_ADDRESS_BYTES, out);
    /* sin_port has the same offset in both address families. */
    if (any_port)
        ((struct sockaddr_in *)(void *)out)->sin_port = 0;
    return size;
}

void lhi_rail_connect(lhi_rails *s, uint32_t peer, uint32_t rail)
{
    lhi_rail *r = &s->peers[peer].rails[rail];
    struct sockaddr_storage to, from;
    socklen_t to_size = decode_address(s, peer, rail, false, &to);
    socklen_t from_size = decode_address(s, s->rank, rail, true, &from);
    int64_t now_ns = lhi_now_ns();
    r->retry_ns = now_ns + LHI_RAIL_TIMEOUT_NS / 3;
    int fd =
        socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        r->error = errno;
        return;
    }
    lhi_set_tcp_options(fd);
    if (bind(fd, (const struct sockaddr *)&from, from_size) ||
        (connect(fd, (const struct sockaddr *)&to, to_size) &&
         errno != EINPROGRESS)) {
        r->error = errno;
        close(fd);
        return;
    }
    r->fd = fd;
    r->state = LHI_RAIL_CONNECTING;
    r->probes_only = peer > s->rank;
    r->until_ns = now_ns + CONNECT_TIMEOUT_NS;
}

/* Handles the end of a rail's connection attempt: sends the first handshake
 * message, or returns the attempt's errno value; 0: success. */
static int begin_handshake(const lhi_rails *s, uint32_t peer, uint32_t rail)
{
    lhi_rail *r = &s->peers[peer].rails[rail];
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(r->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error)
        return error;
    if (r->probes_only) /* the peer listens and will connect itself */
        return EAGAIN;
    lhi_handshake_message h = make_message(s, LHI_HANDSHAKE_RAIL);
    h.port = rail;
    if (!lhi_random_bytes(h.nonce, sizeof h.nonce))
        return errno;
    r->shake = make_handshake(s, s->rank, peer, rail);
    memcpy(r->shake.client_nonce, h.nonce, sizeof h.nonce);
    r->state = LHI_RAIL_AWAITING_CHALLENGE;
    r->asked_ns = lhi_now_ns();
    r->until_ns = r->asked_ns + LHI_HANDSHAKE_TIMEOUT_NS;
    return send_message(r->fd, &h) ? 0 : EIO;
}

/* Handles the peer's handshake message on a rail (parallel connection) that is
 * being connected; returns 0 or an errno value. */
static int continue_handshake(lhi_rails *s, uint32_t peer, uint32_t rail)
{
    lhi_rail *r = &s->peers[peer].rails[rail];
    lhi_handshake_message h;
    unsigned char mac[LHI_MAC_BYTES];
    bool asks = r->state == LHI_RAIL_AWAITING_CHALLENGE;
    if (lhi_handshake_read(r->greeting, &h, NULL) != LH_OK || h.rank != peer ||
        h.kind != (asks ? LHI_HANDSHAKE_CHALLENGE : LHI_HANDSHAKE_WELCOME))
        return EPROTO;
    r->n_greeting = 0;
    if (asks) {
        memcpy(r->shake.server_nonce, h.nonce, sizeof h.nonce);
        lhi_handshake_message proof = make_message(s, LHI_HANDSHAKE_PROOF);
        compute_proof(s, peer, "rail client", &r->shake, proof.mac);
        r->state = LHI_RAIL_AWAITING_WELCOME;
        return send_message(r->fd, &proof) ? 0 : EIO;
    }
    compute_proof(s, peer, "rail server", &r->shake, mac);
    if (!lhi_mac_equals(mac, h.mac))
        return EACCES;
    lhi_handshake shake = r->shake;
    int64_t answer_ns = (lhi_now_ns() - r->asked_ns) / 2;
    lh_status status =
        lhi_rail_activate(s, peer, rail, r->fd, &shake, answer_ns, NULL);
    return status == LH_OK ? 0 : ENOMEM;
}

void lhi_rail_continue_connect(lhi_rails *s, uint32_t peer, uint32_t rail)
{
    lhi_rail *r = &s->peers[peer].rails[rail];
    int error = 0;
    if (r->state == LHI_RAIL_CONNECTING) {
        error = begin_handshake(s, peer, rail);
    } else {
        ssize_t n = recv(r->fd, r->greeting + r->n_greeting,
                         sizeof r->greeting - r->n_greeting, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            error = n < 0 ? errno : ECONNRESET;
        else
            r->n_greeting += (size_t)n;
        if (r->n_greeting == sizeof r->greeting)
            error = continue_handshake(s, peer, rail);
    }
    if (error)
        lhi_rail_close(s, peer, rail, error);
}

/* ---- pending connections ---- */

/* Answers a pending connection's RAIL request with a challenge; false: close
 * the connection. Sends no refusal: a valid rail succeeds on a later attempt,
 * and no user would read the refusal. */
static bool challenge(lhi_rails *s, lhi_pending_connection *g,
                      const lhi_handshake_message *h)
{
    if (h->kind != LHI_HANDSHAKE_RAIL || h->n_ranks != s->n_ranks ||
        h->rank <= s->rank || h->port >= s->n_rails ||
        memcmp(h->job, s->job, sizeof s->job) != 0)
        return false;
    g->shake = make_handshake(s, h->rank, s->rank, h->port);
    memcpy(g->shake.client_nonce, h->nonce, sizeof h->nonce);
    lhi_handshake_message answer = make_message(s, LHI_HANDSHAKE_CHALLENGE);
    if (!lhi_random_bytes(answer.nonce, sizeof answer.nonce))
        return false;
    memcpy(g->shake.server_nonce, answer.nonce, sizeof answer.nonce);
    g->identified = true;
    return send_message(g->fd, &answer);
}

/* Checks the connecting rank's proof, and activates its rail (parallel
 * connection); false: close the connection. */
static bool admit_rail(lhi_rails *s, lhi_pending_connection *g,
                       const lhi_handshake_message *h)
{
    uint32_t peer = g->shake.client;
    unsigned char mac[LHI_MAC_BYTES];
    compute_proof(s, peer, "rail client", &g->shake, mac);
    if (h->kind != LHI_HANDSHAKE_PROOF || h->rank != peer ||
        !lhi_mac_equals(mac, h->mac))
        return false;
    lhi_handshake_message answer = make_message(s, LHI_HANDSHAKE_WELCOME);
    compute_proof(s, peer, "rail server", &g->shake, answer.mac);
    int64_t answer_ns = lhi_now_ns() + LHI_HANDSHAKE_TIMEOUT_NS - g->until_ns;
    if (s->peers[peer].given_up || !send_message(g->fd, &answer) ||
        lhi_rail_activate(s, peer, g->shake.port, g->fd, &g->shake, answer_ns,
                          NULL) != LH_OK)
        return false;
    g->fd = -1;
    return true;
}

void lhi_rail_read_pending(lhi_rails *s, lhi_pending_connection *g)
{
    ssize_t n = recv(g->fd, g->buffer + g->n_got, sizeof g->buffer - g->n_got,
                     MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    bool stays = n > 0;
    if (stays)
        g->n_got += (size_t)n;
    if (stays && g->n_got == sizeof g->buffer) {
        lhi_handshake_message h;
        g->n_got = 0;
        stays = lhi_handshake_read(g->buffer, &h, NULL) == LH_OK &&
                (g->identified ? admit_rail(s, g, &h) : challenge(s, g, &h));
    }
    if (stays)
        return;
    close(g->fd);
    g->fd = -1;
}

void lhi_rail_close_expired(lhi_rails *s, int64_t now_ns)
{
    for (uint32_t i = 0; i < s->pending.n; i++) {
        lhi_pending_connection *g = &s->pending.list[i];
        if (g->fd < 0 || now_ns <= g->until_ns)
            continue;
        close(g->fd);
        g->fd = -1;
    }
    lhi_pending_remove_closed(&s->pending);
}
