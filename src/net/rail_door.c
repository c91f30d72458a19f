/* SPDX-License-Identifier: Apache-2.0 */
/* Rail setup: the higher rank connects, and both authenticate with the key from
 * joining this run. As during joining (tcp_join.c), unauthenticated connections
 * are pending connections. */
#define _GNU_SOURCE
#include "net/rails_own.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "net/sockets.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Timeout for connecting; the handshake has its own (LHI_HANDSHAKE_TIMEOUT_NS).
 */
#define CONNECTED_NS INT64_C(1000000000)

/* Creates a handshake message of the given kind. */
static lhi_hello greeting(const lhi_rails *s, lhi_hello_kind kind)
{
    lhi_hello h = {.kind = kind, .rank = s->rank, .n_ranks = s->n_ranks};
    memcpy(h.job, s->job, sizeof h.job);
    return h;
}

/* Sends a handshake message without blocking. */
static bool say(int fd, const lhi_hello *h)
{
    unsigned char bytes[LHI_HELLO_BYTES];
    lhi_hello_write(h, bytes);
    return lhi_send_now(fd, bytes, sizeof bytes);
}

/* Computes the proof for a handshake with a peer. */
static void prove(const lhi_rails *s, uint32_t peer, const char *label,
                  const lhi_handshake *shake, unsigned char out[LHI_MAC_BYTES])
{
    lhi_prove(s->keys + (size_t)peer * LHI_MAC_BYTES, LHI_MAC_BYTES, label,
              shake, NULL, 0, out);
}

/* Creates the handshake state for a rail. */
static lhi_handshake shake_of(const lhi_rails *s, uint32_t client,
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

/* Converts a rail's LHI_ADDRESS_BYTES to a socket address; `any_port`: for the
 * local end. */
static socklen_t address_of(const lhi_rails *s, uint32_t rank, uint32_t rail,
                            bool any_port, struct sockaddr_storage *out)
{
    size_t at = (size_t)rank * s->n_rails + rail;
    socklen_t size =
        lhi_address_read(s->addresses + at * LHI_ADDRESS_BYTES, out);
    /* sin_port has the same offset in both address families. */
    if (any_port)
        ((struct sockaddr_in *)(void *)out)->sin_port = 0;
    return size;
}

void lhi_rail_dial(lhi_rails *s, uint32_t peer, uint32_t rail)
{
    lhi_rail *r = &s->peers[peer].rails[rail];
    struct sockaddr_storage to, from;
    socklen_t to_size = address_of(s, peer, rail, false, &to);
    socklen_t from_size = address_of(s, s->rank, rail, true, &from);
    int64_t now_ns = lhi_now_ns();
    r->again_ns = now_ns + LHI_RAIL_SILENT_NS / 3;
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
    r->knocks = peer > s->rank;
    r->until_ns = now_ns + CONNECTED_NS;
}

/* Handles the end of a connection attempt; starts the handshake. */
static int begin_greeting(const lhi_rails *s, uint32_t peer, uint32_t rail)
{
    lhi_rail *r = &s->peers[peer].rails[rail];
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(r->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error)
        return error;
    if (r->knocks) /* the peer listens and will connect itself */
        return EAGAIN;
    lhi_hello h = greeting(s, LHI_HELLO_RAIL);
    h.port = rail;
    if (!lhi_random_bytes(h.nonce, sizeof h.nonce))
        return errno;
    r->shake = shake_of(s, s->rank, peer, rail);
    memcpy(r->shake.client_nonce, h.nonce, sizeof h.nonce);
    r->state = LHI_RAIL_GREETING;
    r->asked_ns = lhi_now_ns();
    r->until_ns = r->asked_ns + LHI_GREETING_NS;
    return say(r->fd, &h) ? 0 : EIO;
}

/* Handles the peer's handshake message. */
static int go_on(lhi_rails *s, uint32_t peer, uint32_t rail)
{
    lhi_rail *r = &s->peers[peer].rails[rail];
    lhi_hello h;
    unsigned char mac[LHI_MAC_BYTES];
    bool asks = r->state == LHI_RAIL_GREETING;
    if (lhi_hello_read(r->greeting, &h, NULL) != LH_OK || h.rank != peer ||
        h.kind != (asks ? LHI_HELLO_CHALLENGE : LHI_HELLO_WELCOME))
        return EPROTO;
    r->n_greeting = 0;
    if (asks) {
        memcpy(r->shake.server_nonce, h.nonce, sizeof h.nonce);
        lhi_hello proof = greeting(s, LHI_HELLO_PROOF);
        prove(s, peer, "rail client", &r->shake, proof.mac);
        r->state = LHI_RAIL_PROVING;
        return say(r->fd, &proof) ? 0 : EIO;
    }
    prove(s, peer, "rail server", &r->shake, mac);
    if (!lhi_mac_is(mac, h.mac))
        return EACCES;
    lhi_handshake shake = r->shake;
    int64_t answer_ns = (lhi_now_ns() - r->asked_ns) / 2;
    lh_status status =
        lhi_rail_begin(s, peer, rail, r->fd, &shake, answer_ns, NULL);
    return status == LH_OK ? 0 : ENOMEM;
}

void lhi_rail_greet(lhi_rails *s, uint32_t peer, uint32_t rail)
{
    lhi_rail *r = &s->peers[peer].rails[rail];
    int error = 0;
    if (r->state == LHI_RAIL_CONNECTING) {
        error = begin_greeting(s, peer, rail);
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
            error = go_on(s, peer, rail);
    }
    if (error)
        lhi_rail_drop(s, peer, rail, error);
}

/* ---- pending connections ---- */

/* challenge() and admit() handle a pending connection's message; false: close
 * it. No refusal is sent: a valid rail succeeds on a later attempt, and no user
 * reads it. */
static bool challenge(lhi_rails *s, lhi_guest *g, const lhi_hello *h)
{
    if (h->kind != LHI_HELLO_RAIL || h->n_ranks != s->n_ranks ||
        h->rank <= s->rank || h->port >= s->n_rails ||
        memcmp(h->job, s->job, sizeof s->job) != 0)
        return false;
    g->shake = shake_of(s, h->rank, s->rank, h->port);
    memcpy(g->shake.client_nonce, h->nonce, sizeof h->nonce);
    lhi_hello answer = greeting(s, LHI_HELLO_CHALLENGE);
    if (!lhi_random_bytes(answer.nonce, sizeof answer.nonce))
        return false;
    memcpy(g->shake.server_nonce, answer.nonce, sizeof answer.nonce);
    g->named = true;
    return say(g->fd, &answer);
}

/* Checks the client's proof and activates the rail. */
static bool admit(lhi_rails *s, lhi_guest *g, const lhi_hello *h)
{
    uint32_t peer = g->shake.client;
    unsigned char mac[LHI_MAC_BYTES];
    prove(s, peer, "rail client", &g->shake, mac);
    if (h->kind != LHI_HELLO_PROOF || h->rank != peer ||
        !lhi_mac_is(mac, h->mac))
        return false;
    lhi_hello answer = greeting(s, LHI_HELLO_WELCOME);
    prove(s, peer, "rail server", &g->shake, answer.mac);
    int64_t answer_ns = lhi_now_ns() + LHI_GREETING_NS - g->until_ns;
    if (s->peers[peer].given_up || !say(g->fd, &answer) ||
        lhi_rail_begin(s, peer, g->shake.port, g->fd, &g->shake, answer_ns,
                       NULL) != LH_OK)
        return false;
    g->fd = -1;
    return true;
}

void lhi_rail_hear_guest(lhi_rails *s, lhi_guest *g)
{
    ssize_t n =
        recv(g->fd, g->got + g->n_got, sizeof g->got - g->n_got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    bool stays = n > 0;
    if (stays)
        g->n_got += (size_t)n;
    if (stays && g->n_got == sizeof g->got) {
        lhi_hello h;
        g->n_got = 0;
        stays = lhi_hello_read(g->got, &h, NULL) == LH_OK &&
                (g->named ? admit(s, g, &h) : challenge(s, g, &h));
    }
    if (stays)
        return;
    close(g->fd);
    g->fd = -1;
}

void lhi_rail_drop_late(lhi_rails *s, int64_t now_ns)
{
    for (uint32_t i = 0; i < s->guests.n; i++) {
        lhi_guest *g = &s->guests.list[i];
        if (g->fd < 0 || now_ns <= g->until_ns)
            continue;
        close(g->fd);
        g->fd = -1;
    }
    lhi_guests_forget(&s->guests);
}
