/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that were started apart from each other find together over TCP: all
 * connect to rank 0, prove that they hold the job's secret, learn from it where
 * the others listen, and connect to those with lower numbers, proving it again
 * each time. The secret itself never leaves a rank. */
#define _GNU_SOURCE
#include "net/tcp.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "net/hello.h"
#include "net/stream.h"
#include "net/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_GUESTS = 256, ADDRESS_TEXT = 64 };
static const int64_t ms_ns = 1000000;
/* A greeting takes a round trip or two; who needs longer is not there. */
static const int64_t greeting_ns = 3000000000;

typedef struct tcp {
    const lhi_tcp_options *options;
    unsigned char job[32];
    int listener;
    uint32_t port;            /* of the listener */
    int *fds;                 /* connected and proved, per rank; else -1 */
    unsigned char *addresses; /* LHI_ADDRESS_BYTES per rank */
    lhi_handshake *shakes;    /* with each rank */
    int64_t until_ns;
    char refused[200]; /* who was, last, and why */
    const lhi_tcp_extra *extra;
    lhi_tcp_told *told;
    void *context;
} tcp;

/* ---- sockets ---- */

static void set_options(int fd)
{
    /* A lost peer is noticed in seconds, not in the minutes of TCP. All these
     * exist on Linux; without one the heartbeat still notices. */
    int on = 1, idle_s = 1, every_s = 1, times = 3;
    unsigned int timeout_ms = 4000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms,
               sizeof timeout_ms);
}

static void address_write(const struct sockaddr *from, unsigned char *out)
{
    memset(out, 0, LHI_ADDRESS_BYTES);
    if (from->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, from, sizeof in);
        out[10] = out[11] = 0xff; /* ::ffff:a.b.c.d */
        memcpy(out + 12, &in.sin_addr, 4);
        memcpy(out + 16, &in.sin_port, 2);
    } else {
        struct sockaddr_in6 in6;
        memcpy(&in6, from, sizeof in6);
        memcpy(out, &in6.sin6_addr, 16);
        memcpy(out + 16, &in6.sin6_port, 2);
    }
}

static socklen_t address_read(const unsigned char *in,
                              struct sockaddr_storage *out)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    memset(out, 0, sizeof *out);
    if (memcmp(in, mapped, sizeof mapped) == 0) {
        struct sockaddr_in in4 = {.sin_family = AF_INET};
        memcpy(&in4.sin_addr, in + 12, 4);
        memcpy(&in4.sin_port, in + 16, 2);
        memcpy(out, &in4, sizeof in4);
        return sizeof in4;
    }
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    memcpy(&in6.sin6_addr, in, 16);
    memcpy(&in6.sin6_port, in + 16, 2);
    memcpy(out, &in6, sizeof in6);
    return sizeof in6;
}

static void name_of(const struct sockaddr_storage *a, socklen_t size,
                    char out[ADDRESS_TEXT])
{
    char host[48] = "?", port[8] = "?";
    getnameinfo((const struct sockaddr *)a, size, host, sizeof host, port,
                sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, ADDRESS_TEXT, "%s:%s", host, port);
}

static lh_status listen_at(tcp *t, const struct sockaddr_storage *a,
                           socklen_t size, lh_error *err)
{
    char name[ADDRESS_TEXT];
    name_of(a, size, name);
    int on = 1;
    t->listener =
        socket(a->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->listener >= 0)
        setsockopt(t->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (t->listener < 0 ||
        bind(t->listener, (const struct sockaddr *)a, size) ||
        listen(t->listener, MOST_GUESTS)) {
        if (errno == EADDRINUSE)
            return lhi_fail(err, LH_EIO,
                            "rank %u cannot listen at %s: another program, or "
                            "another job, does; give this job another port",
                            t->options->rank, name);
        return lhi_fail(err, LH_EIO, "rank %u cannot listen at %s: %s",
                        t->options->rank, name, strerror(errno));
    }
    struct sockaddr_storage got;
    socklen_t got_size = sizeof got;
    if (getsockname(t->listener, (struct sockaddr *)&got, &got_size))
        return lhi_fail(err, LH_EIO, "cannot listen: %s", strerror(errno));
    unsigned char bytes[LHI_ADDRESS_BYTES];
    address_write((struct sockaddr *)&got, bytes);
    t->port = (uint32_t)bytes[16] << 8 | bytes[17];
    return LH_OK;
}

/* Where rank 0 is. */
static lh_status resolve(const tcp *t, struct sockaddr_storage *out,
                         socklen_t *size, lh_error *err)
{
    const char *host = t->options->host ? t->options->host : "127.0.0.1";
    char port[8];
    snprintf(port, sizeof port, "%u", t->options->port);
    struct addrinfo want = {.ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(host, port, &want, &found);
    if (error)
        return lhi_fail(err, LH_EIO, "no address of rank 0's host %s: %s", host,
                        gai_strerror(error));
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *size = found->ai_addrlen;
    freeaddrinfo(found);
    return LH_OK;
}

/* Waits until the socket has something (or room), or `until_ns`. */
static bool wait_fd(int fd, short what, int64_t until_ns)
{
    for (;;) {
        int64_t left_ns = until_ns - lhi_now_ns();
        struct pollfd p = {.fd = fd, .events = what};
        int n = poll(&p, 1, left_ns <= 0 ? 0 : (int)(left_ns / ms_ns) + 1);
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

/* After a recv or send that gave `n`: whether to call it again, once it can do
 * something. False: `errno` says why not. */
static bool goes_on(int fd, ssize_t n, short what, int64_t until_ns)
{
    if (n >= 0)
        return true;
    if (errno != EAGAIN && errno != EINTR)
        return false;
    if (wait_fd(fd, what, until_ns))
        return true;
    errno = ETIMEDOUT;
    return false;
}

static bool read_until(int fd, void *out, size_t size, int64_t until_ns)
{
    for (size_t at = 0; at < size;) {
        ssize_t n =
            recv(fd, (unsigned char *)out + at, size - at, MSG_DONTWAIT);
        if (n == 0 || !goes_on(fd, n, POLLIN, until_ns))
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool write_until(int fd, const void *in, size_t size, int64_t until_ns)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = send(fd, (const unsigned char *)in + at, size - at,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (!goes_on(fd, n, POLLOUT, until_ns))
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* ---- greetings ---- */

static lhi_hello greeting(const tcp *t, lhi_hello_kind kind)
{
    lhi_hello h = {
        .kind = kind, .rank = t->options->rank, .n_ranks = t->options->n_ranks};
    memcpy(h.job, t->job, sizeof h.job);
    return h;
}

static bool say(int fd, const lhi_hello *h, const void *more, int64_t until_ns)
{
    unsigned char bytes[LHI_HELLO_BYTES];
    lhi_hello_write(h, bytes);
    return write_until(fd, bytes, sizeof bytes, until_ns) &&
           (h->more == 0 || write_until(fd, more, h->more, until_ns));
}

static void refuse(const tcp *t, int fd, const char *why)
{
    lhi_hello h = greeting(t, LHI_HELLO_REFUSE);
    h.more = (uint32_t)strnlen(why, LHI_REFUSAL_BYTES);
    say(fd, &h, why, lhi_now_ns());
}

/* Reads a greeting of the kind; a refusal is an error with its reason. */
static lh_status hear(const tcp *t, int fd, lhi_hello_kind kind, uint32_t from,
                      lhi_hello *h, int64_t until_ns, lh_error *err)
{
    unsigned char bytes[LHI_HELLO_BYTES], more[LHI_REFUSAL_BYTES];
    errno = 0;
    if (!read_until(fd, bytes, sizeof bytes, until_ns))
        return lhi_fail(err, LH_EIO, "rank %u: %s while rank %u joined", from,
                        errno == ETIMEDOUT ? "it said nothing more"
                        : errno            ? strerror(errno)
                                           : "it closed the connection",
                        t->options->rank);
    lh_status status = lhi_hello_read(bytes, h, err);
    if (status != LH_OK) {
        lhi_wrap(err, "rank %u", from);
        return status;
    }
    if (h->kind == LHI_HELLO_REFUSE &&
        read_until(fd, more, h->more, until_ns)) {
        char text[LHI_REFUSAL_BYTES + 1];
        lhi_wire_text(more, h->more, text, sizeof text);
        return lhi_fail(err, LH_EIO, "%s", text);
    }
    if (h->kind != kind || h->rank != from || h->n_ranks != t->options->n_ranks)
        return lhi_fail(err, LH_EIO,
                        "rank %u: it answers as rank %u of %u, out of order",
                        from, h->rank, h->n_ranks);
    return LH_OK;
}

/* The connecting side: proves to rank `to` that it belongs to the job, and has
 * it prove the same. */
static lh_status greet(tcp *t, int fd, uint32_t to, int64_t until_ns,
                       lh_error *err)
{
    const lhi_tcp_options *o = t->options;
    lhi_handshake *s = &t->shakes[to];
    *s = (lhi_handshake){.client = o->rank,
                         .server = to,
                         .n_ranks = o->n_ranks,
                         .port = t->port};
    memcpy(s->job, t->job, sizeof s->job);
    lhi_hello h = greeting(t, LHI_HELLO_HELLO), answer;
    h.port = t->port;
    if (!lhi_random_bytes(h.nonce, sizeof h.nonce))
        return lhi_fail(err, LH_EIO, "no random numbers: %s", strerror(errno));
    memcpy(s->client_nonce, h.nonce, sizeof h.nonce);
    /* Where a write fails, what there is to read says why. */
    say(fd, &h, NULL, until_ns);
    LHI_TRY(hear(t, fd, LHI_HELLO_CHALLENGE, to, &answer, until_ns, err));
    memcpy(s->server_nonce, answer.nonce, sizeof answer.nonce);
    h = greeting(t, LHI_HELLO_PROOF);
    lhi_prove(o->secret, o->secret_size, "client", s, NULL, 0, h.mac);
    say(fd, &h, NULL, until_ns);
    LHI_TRY(hear(t, fd, LHI_HELLO_WELCOME, to, &answer, until_ns, err));
    unsigned char mac[LHI_MAC_BYTES];
    lhi_prove(o->secret, o->secret_size, "server", s, NULL, 0, mac);
    if (!lhi_mac_is(mac, answer.mac))
        return lhi_fail(err, LH_EIO,
                        "rank %u does not hold the job's secret: another "
                        "program may have taken its port",
                        to);
    return LH_OK;
}

/* ---- the accepting side ---- */

typedef struct guest {
    int fd;
    size_t n_got;
    bool challenged;
    int64_t until_ns;
    lhi_handshake shake;
    char name[ADDRESS_TEXT];
    unsigned char address[LHI_ADDRESS_BYTES];
    unsigned char got[LHI_HELLO_BYTES];
} guest;

typedef struct guests {
    guest *list;
    uint32_t n;
} guests;

static void remember_refusal(tcp *t, const guest *g, const char *why)
{
    snprintf(t->refused, sizeof t->refused, "%s (%.100s)", g->name, why);
}

/* Says why there is nothing against the newcomer, or NULL. */
static const char *objection(const tcp *t, const lhi_hello *h, char *text,
                             size_t room)
{
    const lhi_tcp_options *o = t->options;
    if (memcmp(h->job, t->job, sizeof h->job) != 0)
        snprintf(text, room, "rank %u runs another job at this port", o->rank);
    else if (h->n_ranks != o->n_ranks)
        snprintf(text, room, "rank %u has %u ranks in its job, rank %u has %u",
                 o->rank, o->n_ranks, h->rank, h->n_ranks);
    else if (h->rank <= o->rank)
        snprintf(text, room, "rank %u expects no rank %u", o->rank, h->rank);
    else if (t->fds[h->rank] >= 0)
        snprintf(text, room, "there is a rank %u already", h->rank);
    else
        return NULL;
    return text;
}

static lh_status challenge(tcp *t, guest *g, const lhi_hello *h, lh_error *err)
{
    char text[200];
    if (h->kind != LHI_HELLO_HELLO)
        return lhi_fail(err, LH_EIO, "it does not begin with its name");
    const char *why = objection(t, h, text, sizeof text);
    if (why) {
        refuse(t, g->fd, why);
        return lhi_fail(err, LH_EINVAL, "%s", why);
    }
    g->shake = (lhi_handshake){.client = h->rank,
                               .server = t->options->rank,
                               .n_ranks = h->n_ranks,
                               .port = h->port};
    memcpy(g->shake.job, t->job, sizeof t->job);
    memcpy(g->shake.client_nonce, h->nonce, sizeof h->nonce);
    lhi_hello answer = greeting(t, LHI_HELLO_CHALLENGE);
    if (!lhi_random_bytes(answer.nonce, sizeof answer.nonce))
        return lhi_fail(err, LH_EIO, "no random numbers");
    memcpy(g->shake.server_nonce, answer.nonce, sizeof answer.nonce);
    g->challenged = true;
    if (!say(g->fd, &answer, NULL, lhi_now_ns()))
        return lhi_fail(err, LH_EIO, "it takes no answer");
    return LH_OK;
}

/* On LH_OK the connection is the rank's. */
static lh_status admit(tcp *t, guest *g, const lhi_hello *h, lh_error *err)
{
    const lhi_tcp_options *o = t->options;
    unsigned char mac[LHI_MAC_BYTES];
    uint32_t rank = g->shake.client;
    lhi_prove(o->secret, o->secret_size, "client", &g->shake, NULL, 0, mac);
    if (h->kind != LHI_HELLO_PROOF || h->rank != rank ||
        !lhi_mac_is(mac, h->mac)) {
        char why[200];
        snprintf(why, sizeof why,
                 "rank %u: wrong secret: it is not the one that rank %u has",
                 rank, o->rank);
        refuse(t, g->fd, why);
        /* A rank of this job cannot join: no use in waiting long. */
        int64_t soon_ns = lhi_now_ns() + greeting_ns;
        if (soon_ns < t->until_ns)
            t->until_ns = soon_ns;
        return lhi_fail(err, LH_EIO, "%s", why);
    }
    if (t->fds[rank] >= 0)
        return lhi_fail(err, LH_EIO, "there is a rank %u already", rank);
    lhi_hello answer = greeting(t, LHI_HELLO_WELCOME);
    lhi_prove(o->secret, o->secret_size, "server", &g->shake, NULL, 0,
              answer.mac);
    if (!say(g->fd, &answer, NULL, lhi_now_ns()))
        return lhi_fail(err, LH_EIO, "it takes no answer");
    t->fds[rank] = g->fd;
    t->shakes[rank] = g->shake;
    memcpy(t->addresses + rank * LHI_ADDRESS_BYTES, g->address,
           LHI_ADDRESS_BYTES);
    unsigned char *port = t->addresses + rank * LHI_ADDRESS_BYTES + 16;
    port[0] = (unsigned char)(g->shake.port >> 8);
    port[1] = (unsigned char)(g->shake.port & 255);
    g->fd = -1;
    return LH_OK;
}

/* Something can be read. The guest's fd is -1 once it is none any more. */
static void hear_guest(tcp *t, guest *g)
{
    lh_error err = {0};
    ssize_t n =
        recv(g->fd, g->got + g->n_got, sizeof g->got - g->n_got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    lh_status status = LH_OK;
    if (n <= 0) {
        status = lhi_fail(&err, LH_EIO, "it closed the connection");
    } else if ((g->n_got += (size_t)n) == sizeof g->got) {
        lhi_hello h;
        g->n_got = 0;
        status = lhi_hello_read(g->got, &h, &err);
        if (status == LH_OK && g->challenged)
            status = admit(t, g, &h, &err);
        else if (status == LH_OK)
            status = challenge(t, g, &h, &err);
    }
    if (status == LH_OK)
        return;
    remember_refusal(t, g, err.text);
    if (g->fd >= 0)
        close(g->fd);
    g->fd = -1;
}

static void take_guest(tcp *t, guests *all)
{
    struct sockaddr_storage a;
    socklen_t size = sizeof a;
    int fd = accept4(t->listener, (struct sockaddr *)&a, &size, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (all->n == MOST_GUESTS) {
        close(fd);
        return;
    }
    set_options(fd);
    guest *g = &all->list[all->n++];
    *g = (guest){.fd = fd, .until_ns = lhi_now_ns() + greeting_ns};
    name_of(&a, size, g->name);
    address_write((struct sockaddr *)&a, g->address);
}

static void forget_gone(tcp *t, guests *all)
{
    uint32_t kept = 0;
    int64_t now_ns = lhi_now_ns();
    for (uint32_t i = 0; i < all->n; i++) {
        guest *g = &all->list[i];
        if (g->fd >= 0 && now_ns > g->until_ns) {
            remember_refusal(t, g, "it said nothing in time");
            close(g->fd);
            g->fd = -1;
        }
        if (g->fd >= 0)
            all->list[kept++] = *g;
    }
    all->n = kept;
}

static uint32_t first_missing(const tcp *t, uint32_t from)
{
    uint32_t i = from;
    while (i < t->options->n_ranks && t->fds[i] >= 0)
        i++;
    return i;
}

static lh_status missing(const tcp *t, lh_error *err)
{
    uint32_t n = 0, n_ranks = t->options->n_ranks, mine = t->options->rank;
    for (uint32_t i = mine + 1; i < n_ranks; i++)
        n += t->fds[i] < 0;
    char others[40] = "";
    if (n > 1)
        snprintf(others, sizeof others, " and %u more have", n - 1);
    return lhi_fail(err, LH_EIO, "rank %u%s not joined rank %u in time%s%s",
                    first_missing(t, mine + 1), n > 1 ? others : " has", mine,
                    t->refused[0] ? "; refused: " : "", t->refused);
}

/* Ranks that are waiting for the others go away while they wait. */
static lh_status look_for_lost(tcp *t, lh_error *err)
{
    for (uint32_t i = t->options->rank + 1; i < t->options->n_ranks; i++) {
        unsigned char byte;
        if (t->fds[i] < 0)
            continue;
        ssize_t n = recv(t->fds[i], &byte, 1, MSG_DONTWAIT | MSG_PEEK);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return lhi_fail(err, LH_EIO,
                            "rank %u: it was gone before all had joined", i);
    }
    return LH_OK;
}

/* Until all ranks above this one are connected. */
static lh_status receive_guests(tcp *t, lh_error *err)
{
    guests all = {.list = calloc(MOST_GUESTS, sizeof *all.list)};
    struct pollfd *polls = calloc(MOST_GUESTS + 1, sizeof *polls);
    lh_status status = all.list && polls ? LH_OK : lhi_fail_nomem(err);
    uint32_t above = t->options->rank + 1;
    while (status == LH_OK && first_missing(t, above) < t->options->n_ranks) {
        if (lhi_now_ns() >= t->until_ns) {
            status = missing(t, err);
            break;
        }
        polls[0] = (struct pollfd){.fd = t->listener, .events = POLLIN};
        for (uint32_t i = 0; i < all.n; i++)
            polls[i + 1] =
                (struct pollfd){.fd = all.list[i].fd, .events = POLLIN};
        uint32_t n = all.n;
        poll(polls, n + 1, 100);
        for (uint32_t i = 0; i < n; i++)
            if (polls[i + 1].revents)
                hear_guest(t, &all.list[i]);
        if (polls[0].revents)
            take_guest(t, &all);
        forget_gone(t, &all);
        status = look_for_lost(t, err);
    }
    for (uint32_t i = 0; i < all.n; i++)
        if (all.list[i].fd >= 0)
            close(all.list[i].fd);
    free(all.list);
    free(polls);
    return status;
}

/* ---- joining ---- */

static lh_status connect_to(const struct sockaddr_storage *a, socklen_t size,
                            uint32_t to, int64_t until_ns, int *out,
                            lh_error *err)
{
    char name[ADDRESS_TEXT];
    name_of(a, size, name);
    for (;;) {
        int fd =
            socket(a->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            return lhi_fail(err, LH_EIO, "no socket: %s", strerror(errno));
        int error = 0;
        socklen_t error_size = sizeof error;
        if (connect(fd, (const struct sockaddr *)a, size) && errno != EINTR)
            error = errno;
        if (error == EINPROGRESS) {
            error = ETIMEDOUT;
            if (wait_fd(fd, POLLOUT, until_ns))
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size);
        }
        if (error == 0) {
            set_options(fd);
            *out = fd;
            return LH_OK;
        }
        close(fd);
        if (lhi_now_ns() >= until_ns)
            return lhi_fail(err, LH_EIO, "rank %u is not to be had at %s: %s",
                            to, name, strerror(error));
        /* It may not be listening yet. */
        lhi_sleep_for(30 * ms_ns);
    }
}

static lh_status connect_and_greet(tcp *t, const struct sockaddr_storage *a,
                                   socklen_t size, uint32_t to, lh_error *err)
{
    int fd = -1;
    LHI_TRY(connect_to(a, size, to, t->until_ns, &fd, err));
    if (t->listener < 0) { /* where this rank can be reached from here */
        struct sockaddr_storage mine;
        socklen_t mine_size = sizeof mine;
        lh_status status = LH_OK;
        if (getsockname(fd, (struct sockaddr *)&mine, &mine_size))
            status = lhi_fail(err, LH_EIO, "no address: %s", strerror(errno));
        /* Both families have their port at the same place. */
        ((struct sockaddr_in *)(void *)&mine)->sin_port = 0;
        if (status == LH_OK)
            status = listen_at(t, &mine, mine_size, err);
        if (status != LH_OK) {
            close(fd);
            return status;
        }
    }
    int64_t until_ns = lhi_now_ns() + greeting_ns;
    if (until_ns > t->until_ns && t->until_ns > lhi_now_ns())
        until_ns = t->until_ns;
    lh_status status = greet(t, fd, to, until_ns, err);
    if (status == LH_OK)
        t->fds[to] = fd;
    else
        close(fd);
    return status;
}

/* Rank 0 tells everyone where the others are; `extra` goes with it. */
static lh_status send_table(tcp *t, const lhi_tcp_extra *extra, lh_error *err)
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
        lhi_hello h = greeting(t, LHI_HELLO_TABLE);
        h.more = (uint32_t)size;
        lhi_prove(o->secret, o->secret_size, "table", &t->shakes[i], bytes,
                  size, h.mac);
        if (!say(t->fds[i], &h, bytes, lhi_now_ns() + greeting_ns))
            status = lhi_fail(err, LH_EIO, "rank %u: connection lost: %s", i,
                              strerror(errno));
    }
    free(bytes);
    return status;
}

static lh_status receive_table(tcp *t, lhi_tcp_extra *extra, lh_error *err)
{
    const lhi_tcp_options *o = t->options;
    size_t size = (size_t)o->n_ranks * LHI_ADDRESS_BYTES;
    lhi_hello h;
    /* Rank 0 gives up first, and says why. */
    int64_t until_ns = t->until_ns + 1000 * ms_ns;
    LHI_TRY(hear(t, t->fds[0], LHI_HELLO_TABLE, 0, &h, until_ns, err));
    if (h.more != size + sizeof extra->bytes)
        return lhi_fail(err, LH_EIO, "rank 0: a table of %u bytes", h.more);
    unsigned char *bytes = malloc(h.more);
    if (!bytes)
        return lhi_fail_nomem(err);
    lh_status status = LH_OK;
    unsigned char mac[LHI_MAC_BYTES];
    if (!read_until(t->fds[0], bytes, h.more, until_ns))
        status = lhi_fail(err, LH_EIO, "rank 0: connection lost");
    lhi_prove(o->secret, o->secret_size, "table", &t->shakes[0], bytes, h.more,
              mac);
    if (status == LH_OK && !lhi_mac_is(mac, h.mac))
        status = lhi_fail(err, LH_EIO, "rank 0: its table was changed");
    if (status == LH_OK) {
        memcpy(t->addresses, bytes, size);
        memcpy(extra->bytes, bytes + size, sizeof extra->bytes);
    }
    free(bytes);
    return status;
}

/* No rank begins before all are connected. */
static lh_status start_together(tcp *t, lh_error *err)
{
    const lhi_tcp_options *o = t->options;
    lhi_hello h = greeting(t, o->rank ? LHI_HELLO_READY : LHI_HELLO_GO), got;
    int64_t until_ns = t->until_ns + 2000 * ms_ns;
    if (o->rank) {
        say(t->fds[0], &h, NULL, until_ns);
        return hear(t, t->fds[0], LHI_HELLO_GO, 0, &got,
                    until_ns + 1000 * ms_ns, err);
    }
    for (uint32_t i = 1; i < o->n_ranks; i++)
        LHI_TRY(hear(t, t->fds[i], LHI_HELLO_READY, i, &got, until_ns, err));
    for (uint32_t i = 1; i < o->n_ranks; i++)
        if (!say(t->fds[i], &h, NULL, until_ns))
            return lhi_fail(err, LH_EIO, "rank %u: connection lost", i);
    return LH_OK;
}

static lh_status join(tcp *t, lh_error *err)
{
    const lhi_tcp_options *o = t->options;
    struct sockaddr_storage a;
    socklen_t size = 0;
    LHI_TRY(resolve(t, &a, &size, err));
    if (o->rank == 0) {
        LHI_TRY(listen_at(t, &a, size, err));
        LHI_TRY(receive_guests(t, err));
        LHI_TRY(send_table(t, t->extra, err));
    } else {
        LHI_TRY(connect_and_greet(t, &a, size, 0, err));
        lhi_tcp_extra extra;
        LHI_TRY(receive_table(t, &extra, err));
        LHI_TRY(t->told(t->context, o, &extra, err));
        for (uint32_t i = 1; i < o->rank; i++) {
            size = address_read(t->addresses + i * LHI_ADDRESS_BYTES, &a);
            LHI_TRY(connect_and_greet(t, &a, size, i, err));
        }
        LHI_TRY(receive_guests(t, err));
    }
    return start_together(t, err);
}

static lh_status check_options(const lhi_tcp_options *o, lh_error *err)
{
    if (!lhi_hello_can_prove())
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "this build has no tcp transport: it was made without "
                        "OpenSSL (libssl-dev)");
    if (o->n_ranks == 0 || o->n_ranks > LHI_NET_MOST_RANKS ||
        o->rank >= o->n_ranks)
        return lhi_fail(err, LH_EINVAL, "there is no rank %u of %u", o->rank,
                        o->n_ranks);
    if (o->secret_size < LHI_SECRET_LEAST)
        return lhi_fail(err, LH_EINVAL,
                        "the job's secret has %zu bytes; it needs at least %d",
                        o->secret_size, LHI_SECRET_LEAST);
    return LH_OK;
}

static lh_status allocate(tcp *t, lh_error *err)
{
    uint32_t n = t->options->n_ranks;
    t->fds = malloc(n * sizeof *t->fds);
    t->addresses = calloc(n, LHI_ADDRESS_BYTES);
    t->shakes = calloc(n, sizeof *t->shakes);
    if (!t->fds || !t->addresses || !t->shakes) {
        free(t->fds);
        t->fds = NULL;
        return lhi_fail_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++)
        t->fds[i] = -1;
    return LH_OK;
}

lh_status lhi_tcp_join(const lhi_tcp_options *o, const lhi_tcp_extra *extra,
                       lhi_tcp_told *told, void *context, int *fds,
                       lh_error *err)
{
    tcp t = {.options = o,
             .listener = -1,
             .extra = extra,
             .told = told,
             .context = context};
    LHI_TRY(check_options(o, err));
    t.until_ns = lhi_now_ns() + (o->join_ns ? o->join_ns : LHI_JOIN_NS);
    lhi_job_digest(o->job ? o->job : "", t.job);
    lh_error e = {0};
    lh_status status = allocate(&t, &e);
    if (status == LH_OK)
        status = join(&t, &e);
    for (uint32_t i = 0; t.fds && i < o->n_ranks; i++) {
        if (status == LH_OK) {
            fds[i] = t.fds[i];
        } else if (t.fds[i] >= 0) { /* whoever waits for it learns why */
            refuse(&t, t.fds[i], e.text);
            close(t.fds[i]);
        }
    }
    if (t.listener >= 0)
        close(t.listener);
    free(t.fds);
    free(t.addresses);
    free(t.shakes);
    return status == LH_OK ? LH_OK : lhi_fail(err, status, "%s", e.text);
}
