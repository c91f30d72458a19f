/* SPDX-License-Identifier: Apache-2.0 */
/* The accepting side of joining over TCP: challenges pending connections,
 * authenticates them with the job's secret, and admits them as higher ranks. */
#define _GNU_SOURCE
#include "runtime/transport/tcp_join_internal.h"

#include "base/realtime.h"
#include "runtime/transport/sockets.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

/* Connections accepted per poll(), before pending ones are read. */
enum { ACCEPTS_PER_POLL = 64 };
/* Nanoseconds per millisecond. */
static const int64_t ms_ns = 1000000;
/* Longest time after a requested stop in which a rank completes the handshake
 * with a lower rank. */
static const int64_t most_connecting_ns = 1000000000;

/* Stores why a pending connection was rejected (`how`, `why`), for the error
 * message, unless a more informative rejection is stored. */
static void note_refusal(lhi_tcp_join_state *t, const lhi_pending_connection *g,
                         lhi_tcp_rejection how, const char *why)
{
    struct sockaddr_storage a;
    char name[LHI_ADDRESS_TEXT];
    t->n_refused++;
    if (how < t->refused)
        return;
    t->refused = how;
    lhi_address_format(&a, lhi_address_read(g->address, &a), name);
    snprintf(t->refused_text, sizeof t->refused_text, "%s (%.100s)", name, why);
}

void lhi_tcp_refuse(const lhi_tcp_join_state *t, int fd, bool is_final,
                    const char *why)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES + LHI_REFUSAL_BYTES];
    lhi_handshake_message h = lhi_tcp_make_message(t, LHI_HANDSHAKE_REFUSE);
    h.port = is_final;
    lhi_send_now(fd, bytes, lhi_handshake_write_refusal(h, why, bytes));
}

void lhi_tcp_end_joining(lhi_tcp_join_state *t, lh_status status,
                         const char *why)
{
    if (t->end_reason[0])
        return;
    t->end_status = status;
    t->end_ns = lhi_now_ns();
    snprintf(t->end_reason, sizeof t->end_reason, "%s", why);
}

/* Checks whether the rank that sent `h` must be rejected (other job, invalid
 * number, connected already); `text` receives the reason. With another number
 * of ranks, its own may exceed those of this job. */
static bool find_rejection_reason(const lhi_tcp_join_state *t,
                                  const lhi_handshake_message *h, char *text,
                                  size_t room)
{
    const lhi_tcp_options *o = t->options;
    if (memcmp(h->job, t->job, sizeof h->job) != 0)
        snprintf(text, room, "rank %u runs another job at this port", o->rank);
    else if (h->rank <= o->rank)
        snprintf(text, room, "rank %u accepts no connection from rank %u",
                 o->rank, h->rank);
    else if (h->rank < o->n_ranks && t->fds[h->rank] >= 0)
        snprintf(text, room, "rank %u is already connected", h->rank);
    else
        return false;
    return true;
}

/* Answers a pending connection's HELLO `h` with a challenge to prove its
 * secret; false: close the connection, its rejection is recorded. */
static bool challenge(lhi_tcp_join_state *t, lhi_pending_connection *g,
                      const lhi_handshake_message *h)
{
    char text[200], why[100];
    if (h->kind != LHI_HANDSHAKE_HELLO) {
        note_refusal(t, g, LHI_TCP_REFUSED_INVALID,
                     "its first message is not a HELLO");
        return false;
    }
    if (find_rejection_reason(t, h, text, sizeof text)) {
        bool other = memcmp(h->job, t->job, sizeof h->job) != 0;
        snprintf(why, sizeof why, "rank %u of another job", h->rank);
        note_refusal(t, g, LHI_TCP_REFUSED_STRANGER, other ? why : text);
        lhi_tcp_refuse(t, g->fd, false, text);
        return false;
    }
    g->shake = (lhi_handshake){.client = h->rank,
                               .server = t->options->rank,
                               .n_ranks = h->n_ranks,
                               .port = h->port};
    memcpy(g->shake.job, t->job, sizeof t->job);
    memcpy(g->shake.client_nonce, h->nonce, sizeof h->nonce);
    g->n_rails = h->n_rails;
    unsigned char bytes[LHI_HANDSHAKE_BYTES];
    lhi_handshake_message answer =
        lhi_tcp_make_message(t, LHI_HANDSHAKE_CHALLENGE);
    if (!lhi_random_bytes(answer.nonce, sizeof answer.nonce)) {
        note_refusal(t, g, LHI_TCP_REFUSED_SECRET,
                     "random number generation failed");
        return false;
    }
    memcpy(g->shake.server_nonce, answer.nonce, sizeof answer.nonce);
    g->identified = true;
    lhi_handshake_write(&answer, bytes);
    return lhi_send_now(g->fd, bytes, sizeof bytes);
}

/* Checks whether all bytes of a rank's setup are `mark`, LHI_SETUP_FAILED or
 * LHI_SETUP_STOPPED. */
static bool has_mark(const unsigned char setup[LHI_SETUP_BYTES],
                     unsigned char mark)
{
    unsigned char marked[LHI_SETUP_BYTES];
    memset(marked, mark, sizeof marked);
    return memcmp(setup, marked, sizeof marked) == 0;
}

/* Checks whether a rank connects only to send why it does not join. */
static bool is_leaving(const unsigned char setup[LHI_SETUP_BYTES])
{
    return has_mark(setup, LHI_SETUP_FAILED) ||
           has_mark(setup, LHI_SETUP_STOPPED);
}

/* Checks whether an authenticated rank has another number of ranks or rails, or
 * another setup, than this rank; `text` receives the difference and a remedy.
 * One that does not join sends only its number of ranks. */
static bool find_difference(const lhi_tcp_options *o,
                            const lhi_pending_connection *g,
                            const unsigned char setup[LHI_SETUP_BYTES],
                            char *text, size_t room)
{
    const uint32_t rank = g->shake.client, n_ranks = g->shake.n_ranks;
    if (n_ranks != o->n_ranks) {
        snprintf(text, room,
                 "rank %u has %u ranks in its job, rank %u has %u: start all "
                 "with the same number of ranks",
                 o->rank, o->n_ranks, rank, n_ranks);
        return true;
    }
    if (o->setup && is_leaving(setup))
        return false;
    if (g->n_rails != o->n_rails) {
        snprintf(text, room,
                 "rank %u has %u rails, rank %u has %u: give all ranks the "
                 "same number of rails",
                 o->rank, o->n_rails, rank, g->n_rails);
        return true;
    }
    const char *what =
        o->setup ? lhi_setup_find_difference(setup, o->setup) : NULL;
    if (what)
        snprintf(text, room,
                 "rank %u has %s than rank %u: give all ranks the same plan, "
                 "options and data",
                 rank, what, o->rank);
    return what != NULL;
}

/* Checks whether an authenticated rank has this rank's setup, or sends why the
 * joining must end; otherwise refuses it. A rank that was stopped ends each
 * joining, a rank that has failed only the first one. If a rank has another
 * setup, the joining ends with the same reason; a run that has begun
 * continues. */
static bool has_same_setup(lhi_tcp_join_state *t, lhi_pending_connection *g,
                           const unsigned char setup[LHI_SETUP_BYTES])
{
    const lhi_tcp_options *o = t->options;
    char text[200];
    const bool differs = find_difference(o, g, setup, text, sizeof text);
    if (!differs && o->setup && is_leaving(setup) &&
        (t->detects_returns ||
         (o->outlasts_wrong_secrets && !has_mark(setup, LHI_SETUP_STOPPED)))) {
        lhi_tcp_refuse(t, g->fd, false, "the run continues without it");
        return false;
    }
    if (differs && t->detects_returns) {
        lhi_tcp_refuse(t, g->fd, true, text);
        return false;
    }
    if (differs) {
        lhi_tcp_end_joining(t, LH_EINVAL, text);
        note_refusal(t, g, LHI_TCP_REFUSED_SECRET, t->end_reason);
    }
    if (!t->end_reason[0])
        return true;
    if (g->shake.client < o->n_ranks)
        t->has_reason[g->shake.client] = true;
    lhi_tcp_refuse(t, g->fd, t->end_status != LH_EIO, t->end_reason);
    return false;
}

/* Checks the connecting rank's proof (MAC). True: the connection is
 * authenticated and belongs to its rank. False: close it, its rejection is
 * recorded. */
static bool admit_rank(lhi_tcp_join_state *t, lhi_pending_connection *g,
                       const lhi_handshake_message *h)
{
    const lhi_tcp_options *o = t->options;
    unsigned char mac[LHI_MAC_BYTES], bytes[LHI_HANDSHAKE_BYTES];
    uint32_t rank = g->shake.client;
    char why[100];
    lhi_handshake_compute_mac(o->secret, o->secret_size, "client", &g->shake,
                              h->setup, sizeof h->setup, mac);
    if (h->kind != LHI_HANDSHAKE_PROOF || h->rank != rank ||
        !lhi_mac_equals(mac, h->mac)) {
        snprintf(why, sizeof why,
                 "rank %u: wrong secret: it differs from that of rank %u", rank,
                 o->rank);
        note_refusal(t, g, LHI_TCP_REFUSED_SECRET, why);
        lhi_tcp_refuse(t, g->fd, false, why);
        if (rank < o->n_ranks && !t->is_impersonated[rank]) {
            t->progress_ns = lhi_now_ns();
            t->is_impersonated[rank] = true;
        }
        return false;
    }
    if (!has_same_setup(t, g, h->setup)) /* also of an invalid number */
        return false;
    if (t->fds[rank] >= 0) { /* two concurrent connections */
        snprintf(why, sizeof why, "rank %u is already connected", rank);
        note_refusal(t, g, LHI_TCP_REFUSED_STRANGER, why);
        lhi_tcp_refuse(t, g->fd, false, why);
        return false;
    }
    if (t->detects_returns) {
        t->returned = rank;
        return false;
    }
    lhi_handshake_message answer =
        lhi_tcp_make_message(t, LHI_HANDSHAKE_WELCOME);
    lhi_handshake_compute_mac(o->secret, o->secret_size, "server", &g->shake,
                              NULL, 0, answer.mac);
    lhi_handshake_write(&answer, bytes);
    if (!lhi_send_now(g->fd, bytes, sizeof bytes))
        return false;
    t->n_leaving += o->setup && is_leaving(h->setup);
    t->progress_ns = lhi_now_ns();
    t->fds[rank] = g->fd;
    t->shakes[rank] = g->shake;
    memcpy(t->addresses + rank * LHI_ADDRESS_BYTES, g->address,
           LHI_ADDRESS_BYTES);
    unsigned char *port = t->addresses + rank * LHI_ADDRESS_BYTES + 16;
    port[0] = (unsigned char)(g->shake.port >> 8);
    port[1] = (unsigned char)(g->shake.port & 255);
    g->fd = -1;
    return true;
}

/* Reads handshake bytes from a pending connection (accepted, not yet
 * authenticated); its fd is -1 once it is closed or admitted. */
static void read_pending(lhi_tcp_join_state *t, lhi_pending_connection *g)
{
    ssize_t n = recv(g->fd, g->buffer + g->n_got, sizeof g->buffer - g->n_got,
                     MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    bool stays = n > 0;
    if (!stays)
        note_refusal(t, g, LHI_TCP_REFUSED_SILENT, "it closed the connection");
    else
        g->n_got += (size_t)n;
    if (stays && g->n_got == sizeof g->buffer) {
        lhi_handshake_message h;
        lh_error err = {0};
        g->n_got = 0;
        stays = lhi_handshake_read(g->buffer, &h, &err) == LH_OK;
        if (!stays)
            note_refusal(t, g, LHI_TCP_REFUSED_INVALID, err.text);
        else
            stays = g->identified ? admit_rank(t, g, &h) : challenge(t, g, &h);
    }
    if (stays)
        return;
    close(g->fd);
    g->fd = -1;
}

/* Closes the pending connections (accepted, not yet authenticated) whose time
 * to authenticate has ended. */
static void close_expired(lhi_tcp_join_state *t)
{
    int64_t now_ns = lhi_now_ns();
    for (uint32_t i = 0; i < t->pending.n; i++) {
        lhi_pending_connection *g = &t->pending.list[i];
        if (g->fd < 0 || now_ns <= g->until_ns)
            continue;
        note_refusal(t, g, LHI_TCP_REFUSED_SILENT,
                     "it sent no message in time");
        close(g->fd);
        g->fd = -1;
    }
    lhi_pending_remove_closed(&t->pending);
}

bool lhi_tcp_poll(lhi_tcp_join_state *t, int fd, short what, int64_t until_ns,
                  uint32_t *spoke)
{
    const lhi_tcp_options *o = t->options;
    const int64_t now_ns = lhi_now_ns();
    if (!t->asked_ns && o->is_stopped && o->is_stopped(o->stop_context))
        t->asked_ns = now_ns;
    if (t->asked_ns &&
        (!t->connects || now_ns - t->asked_ns >= most_connecting_ns))
        t->is_stopped = true;
    int64_t left_ns = t->is_stopped ? 0 : until_ns - now_ns;
    int ms = left_ns <= 0 ? 0 : left_ns > 100 * ms_ns ? 100 : -1;
    t->polls[0] = (struct pollfd){.fd = fd, .events = what};
    struct pollfd *pending = t->polls + 1;
    uint32_t n_pending =
        lhi_pending_fill_polls(&t->pending, t->listener, pending) - 1;
    struct pollfd *ranks = pending + n_pending + 1;
    for (uint32_t i = 0; i < o->n_ranks && spoke; i++)
        ranks[i] = (struct pollfd){.fd = i > o->rank ? t->fds[i] : -1,
                                   .events = POLLIN};
    nfds_t n = n_pending + 2 + (spoke ? o->n_ranks : 0);
    if (poll(t->polls, n, ms < 0 ? (int)(left_ns / ms_ns) + 1 : ms) < 0)
        return false;
    bool listens = pending[0].revents != 0, has = t->polls[0].revents != 0;
    for (uint32_t i = 0; i < o->n_ranks && spoke; i++)
        if (ranks[i].revents)
            *spoke = i;
    for (uint32_t i = 0; i < n_pending; i++)
        if (pending[i + 1].revents)
            read_pending(t, &t->pending.list[i]);
    close_expired(t);
    for (int i = 0; listens && i < ACCEPTS_PER_POLL; i++) {
        lhi_pending_connection *g =
            lhi_pending_accept(&t->pending, t->listener);
        if (!g)
            break;
        read_pending(t, g); /* its message may have arrived already */
        lhi_pending_remove_closed(&t->pending);
    }
    return has;
}
