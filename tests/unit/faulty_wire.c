/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "faulty_wire.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "reordering_transport.h"
#include "runtime/transport/sockets.h"
#include "runtime/transport/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECE_BYTES = 16 << 10, SLOW_BYTES = 700, SLOW_PIECES = 200 };
static const int64_t ms_ns = 1000000;

const char *wire_fault_name(wire_fault fault)
{
    static const char *const names[] = {
#define WIRE_FAULT_NAME(name, harmless) #name,
        WIRE_FAULT_LIST(WIRE_FAULT_NAME)
#undef WIRE_FAULT_NAME
    };
    return names[fault];
}

bool wire_fault_is_harmless(wire_fault fault)
{
    static const bool are[] = {
#define WIRE_FAULT_HARMLESS(name, harmless) harmless,
        WIRE_FAULT_LIST(WIRE_FAULT_HARMLESS)
#undef WIRE_FAULT_HARMLESS
    };
    return are[fault];
}

/* One direction of a connection between two ranks. */
typedef struct message_list {
    uint32_t from, to;
    bool struck, stopped, swallows, ended, told_end;
    uint64_t n_passed;
    unsigned n_pieces;
    int64_t not_before_ns;
    size_t at, end; /* unsent part of bytes */
    size_t n_held;  /* held back behind the next bytes */
    int64_t held_ns;
    unsigned char held[PIECE_BYTES], bytes[2 * PIECE_BYTES];
} lane;

/* The proxy: all connections between ranks and the thread that forwards bytes.
 */
typedef struct wire {
    const wire_plan *plan;
    wire_log *log;
    uint32_t n;
    uint64_t state, at;
    /* Connection between ranks i and k: ends[i][k] is rank i's end, mine[i][k]
     * the proxy's end facing it; -1: none. */
    int ends[WIRE_MOST_RANKS][WIRE_MOST_RANKS];
    int mine[WIRE_MOST_RANKS][WIRE_MOST_RANKS];
    /* Rails: proxy listener where rank i dials the first rail to rank k, and
     * its address. */
    int doors[WIRE_MOST_RANKS][WIRE_MOST_RANKS];
    struct sockaddr_in door_at[WIRE_MOST_RANKS][WIRE_MOST_RANKS];
    int listeners[WIRE_MOST_RANKS][2];
    struct sockaddr_in listens_at[WIRE_MOST_RANKS][2];
    int wake;
    pthread_t thread;
    lane lanes[WIRE_MOST_RANKS * WIRE_MOST_RANKS];
} wire;

/* ---- connections ---- */

static bool tcp_pair(int out[2])
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    out[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    out[1] = -1;
    if (listener >= 0 && out[0] >= 0 &&
        bind(listener, (struct sockaddr *)&a, size) == 0 &&
        listen(listener, 1) == 0 &&
        getsockname(listener, (struct sockaddr *)&a, &size) == 0 &&
        connect(out[0], (struct sockaddr *)&a, size) == 0)
        out[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close(listener);
    for (int i = 0; i < 2 && out[1] >= 0; i++)
        setsockopt(out[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return out[1] >= 0;
}

static int listen_on_loopback(uint32_t host, struct sockaddr_in *at)
{
    socklen_t size = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *at =
        (struct sockaddr_in){.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK + host)};
    if (fd < 0 || bind(fd, (struct sockaddr *)at, size) || listen(fd, 16) ||
        getsockname(fd, (struct sockaddr *)at, &size))
        abort();
    return fd;
}

/* Opens the listeners: two rails per rank, and the proxy's for the first rail.
 */
static void open_doors(wire *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        for (uint32_t k = 0; k < 2; k++)
            w->listeners[i][k] = listen_on_loopback(k, &w->listens_at[i][k]);
        for (uint32_t k = 0; k < i; k++)
            w->doors[i][k] = listen_on_loopback(0, &w->door_at[i][k]);
    }
}

static void close_doors(wire *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        for (uint32_t k = 0; k < i; k++)
            close(w->doors[i][k]);
}

static void close_pair(wire *w, uint32_t i, uint32_t k);
static lane *lane_of(wire *w, uint32_t from, uint32_t to);

/* Accepts rank i's connection to rank k and connects onward; replaces an
 * earlier connection of this pair. */
static void let_in(wire *w, uint32_t i, uint32_t k)
{
    int fd = accept4(w->doors[i][k], NULL, NULL, SOCK_CLOEXEC), on = 1;
    if (fd < 0)
        return;
    close_pair(w, i, k);
    int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(to, (struct sockaddr *)&w->listens_at[k][0],
                sizeof w->listens_at[k][0])) {
        close(to);
        close(fd);
        return;
    }
    w->mine[i][k] = fd;
    w->mine[k][i] = to;
    for (int back = 0; back < 2; back++) {
        lane *l = back ? lane_of(w, k, i) : lane_of(w, i, k);
        *l = (lane){.from = l->from,
                    .to = l->to,
                    .n_passed = l->n_passed,
                    .n_pieces = l->n_pieces};
    }
}

static lh_status connect_leg(wire *w, uint32_t i, uint32_t k, lh_error *err)
{
    int pair[2];
    bool done = w->plan->tcp ? tcp_pair(pair)
                             : socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC,
                                          0, pair) == 0;
    if (!done)
        return lhi_fail(err, LH_EIO, "no connection: %s", strerror(errno));
    /* With smaller buffers, TCP waits for its timers. */
    int few = w->plan->tcp ? 65536 : 4096;
    for (int e = 0; e < 2 && w->plan->slow; e++) {
        setsockopt(pair[e], SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
        setsockopt(pair[e], SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
    }
    w->ends[i][k] = pair[0];
    w->mine[i][k] = pair[1];
    return LH_OK;
}

static void close_pair(wire *w, uint32_t i, uint32_t k)
{
    for (int e = 0; e < 2; e++) {
        int *fd = e ? &w->mine[i][k] : &w->mine[k][i];
        struct linger at_once = {1, 0};
        if (*fd < 0)
            continue;
        if (w->plan->seed % 2) /* closes with a reset, on TCP */
            setsockopt(*fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(*fd);
        *fd = -1;
    }
}

/* ---- faults ---- */

static lane *lane_of(wire *w, uint32_t from, uint32_t to)
{
    return &w->lanes[from * WIRE_MOST_RANKS + to];
}

static bool is_due(const wire *w, const lane *l)
{
    const wire_plan *p = w->plan;
    return p->fault != WIRE_NOTHING && (!w->log->struck || p->every) &&
           l->from == p->from && l->to == p->to && l->n_passed >= w->at;
}

static void note_strike(wire *w)
{
    w->log->struck = true;
    w->at += w->plan->every;
    w->log->struck_ns = lhi_now_ns();
}

/* Applies faults that need no bytes. */
static void strike_lane(wire *w, lane *l)
{
    const wire_plan *p = w->plan;
    lane *back = lane_of(w, l->to, l->from);
    switch (p->fault) {
    case WIRE_PAUSED:
        l->not_before_ns =
            lhi_now_ns() + (int64_t)chance_below(&w->state, 200) * ms_ns;
        break;
    case WIRE_CUT:
        close_pair(w, l->from, l->to);
        break;
    case WIRE_HALF_CLOSED:
        shutdown(w->mine[l->to][l->from], SHUT_WR);
        l->swallows = l->told_end = true;
        break;
    case WIRE_STOPPED:
        l->stopped = true;
        back->stopped = back->stopped || p->both_ways;
        break;
    case WIRE_SWALLOWED:
        l->swallows = true;
        back->swallows = back->swallows || p->both_ways;
        break;
    default:
        return;
    }
    note_strike(w);
}

/* Applies a fault to the last n bytes in l->bytes. */
static void strike_bytes(wire *w, lane *l, size_t n)
{
    unsigned char *at = l->bytes + l->end - n;
    switch (w->plan->fault) {
    case WIRE_DOUBLED:
        memcpy(l->bytes + l->end, at, n);
        l->end += n;
        break;
    case WIRE_DROPPED:
        l->end -= n;
        break;
    case WIRE_SWAPPED:
        memcpy(l->held, at, n);
        l->n_held = n;
        l->held_ns = lhi_now_ns();
        l->end -= n;
        break;
    case WIRE_DAMAGED:
        at[chance_below(&w->state, n)] ^=
            (unsigned char)(1u << chance_below(&w->state, 8));
        break;
    default:
        return;
    }
    note_strike(w);
}

/* ---- forwarding ---- */

static size_t piece_of(wire *w, const lane *l)
{
    const wire_plan *p = w->plan;
    size_t most = PIECE_BYTES;
    if (p->slow && l->n_pieces < SLOW_PIECES)
        most = 1 + (size_t)chance_below(&w->state, SLOW_BYTES);
    if (is_due(w, l) && p->n_bytes < most)
        return p->n_bytes;
    bool ahead = p->fault != WIRE_NOTHING && (!w->log->struck || p->every) &&
                 l->from == p->from && l->to == p->to && l->n_passed < w->at;
    if (ahead && w->at - l->n_passed < most)
        most = (size_t)(w->at - l->n_passed);
    return most;
}

static void pass_held(lane *l)
{
    memcpy(l->bytes + l->end, l->held, l->n_held);
    l->end += l->n_held;
    l->n_held = 0;
}

static void read_lane(wire *w, lane *l)
{
    int fd = w->mine[l->from][l->to];
    bool due = is_due(w, l);
    l->at = l->end = 0;
    ssize_t n = recv(fd, l->bytes, piece_of(w, l), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        l->ended = true;
        pass_held(l);
        return;
    }
    l->n_passed += (uint64_t)n;
    w->log->passed[l->from][l->to] = l->n_passed;
    l->n_pieces++;
    l->end = l->swallows ? 0 : (size_t)n;
    bool held = l->n_held > 0;
    if (due && l->end)
        strike_bytes(w, l, (size_t)n);
    if (held)
        pass_held(l);
    if (w->plan->slow && l->n_pieces < SLOW_PIECES)
        l->not_before_ns =
            lhi_now_ns() + (int64_t)chance_below(&w->state, 1000) * 1000;
}

static void write_lane(wire *w, lane *l)
{
    int fd = w->mine[l->to][l->from];
    ssize_t n =
        send(fd, l->bytes + l->at, l->end - l->at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
        l->at += (size_t)n;
    else if (errno != EAGAIN && errno != EINTR)
        l->swallows = true; /* the receiver is gone */
    if (l->swallows || l->at == l->end)
        l->at = l->end = 0;
}

/* Returns the event that the lane waits for: POLLIN, POLLOUT, or 0. Lowers
 * *until_ns to the lane's next timeout. */
static short wants(wire *w, lane *l, int64_t now_ns, int64_t *until_ns)
{
    if (w->mine[l->from][l->to] >= 0 && is_due(w, l))
        strike_lane(w, l);
    int in = w->mine[l->from][l->to], out = w->mine[l->to][l->from];
    if (in < 0 || out < 0 || l->stopped)
        return 0;
    if (l->n_held && now_ns - l->held_ns > 20 * ms_ns && l->at == l->end)
        pass_held(l); /* no later bytes follow */
    if (l->not_before_ns > now_ns) {
        *until_ns = l->not_before_ns;
        return 0;
    }
    if (l->n_held)
        *until_ns = now_ns + 5 * ms_ns;
    if (l->at < l->end)
        return POLLOUT;
    if (!l->ended)
        return POLLIN;
    if (!l->told_end) {
        shutdown(out, SHUT_WR);
        l->told_end = true;
    }
    return 0;
}

/* Polls and forwards once; returns false when the ranks have ended. */
static bool pass_some(wire *w)
{
    enum { MOST = WIRE_MOST_RANKS * WIRE_MOST_RANKS };
    struct pollfd polls[2 * MOST + 1];
    uint32_t dials[2 * MOST + 1][2];
    lane *of[MOST + 1];
    nfds_t n = 1;
    int64_t now_ns = lhi_now_ns(), next_ns = now_ns + 1000 * ms_ns;
    polls[0] = (struct pollfd){.fd = w->wake, .events = POLLIN};
    for (uint32_t i = 0; i < w->n; i++) {
        for (uint32_t k = 0; k < w->n; k++) {
            lane *l = lane_of(w, i, k);
            int64_t until_ns = next_ns;
            short what = i == k ? 0 : wants(w, l, now_ns, &until_ns);
            next_ns = until_ns < next_ns ? until_ns : next_ns;
            if (!what)
                continue;
            int fd = what == POLLIN ? w->mine[i][k] : w->mine[k][i];
            polls[n] = (struct pollfd){.fd = fd, .events = what};
            of[n++] = l;
        }
    }
    nfds_t n_lanes = n;
    for (uint32_t i = 0; w->plan->rails && i < w->n; i++) {
        for (uint32_t k = 0; k < i; k++) {
            polls[n] = (struct pollfd){.fd = w->doors[i][k], .events = POLLIN};
            dials[n][0] = i;
            dials[n++][1] = k;
        }
    }
    struct timespec left = {(next_ns - now_ns) / 1000000000,
                            (next_ns - now_ns) % 1000000000};
    ppoll(polls, n, &left, NULL);
    for (nfds_t i = 1; i < n_lanes; i++) {
        if (!polls[i].revents || w->mine[of[i]->from][of[i]->to] < 0)
            continue;
        if (polls[i].events == POLLIN)
            read_lane(w, of[i]);
        else
            write_lane(w, of[i]);
    }
    for (nfds_t i = n_lanes; i < n; i++)
        if (polls[i].revents)
            let_in(w, dials[i][0], dials[i][1]);
    return !polls[0].revents;
}

static void *pass_all(void *of)
{
    while (pass_some(of))
        ;
    return NULL;
}

/* ---- ranks ---- */

/* One rank: its thread, endpoint and result. */
typedef struct wire_rank {
    pthread_t thread;
    wire *wire;
    uint32_t rank;
    lhi_links *table;
    lhi_rails *rails;
    lhi_failure failure;
    lhi_net *net;
    lhi_rank_main *rank_main;
    void *context;
    lhi_rank_result result;
    lh_status status;
    lh_error err;
} wire_rank;

static void close_rails(void *of)
{
    wire_rank *r = of;
    lhi_rails_statistics seen, *all = &r->wire->log->seen;
    lhi_rails_read_statistics(r->rails, &seen);
    __atomic_fetch_add(&all->n_lost, seen.n_lost, __ATOMIC_RELAXED);
    __atomic_fetch_add(&all->n_restored, seen.n_restored, __ATOMIC_RELAXED);
    __atomic_fetch_add(&all->n_retransmitted, seen.n_retransmitted,
                       __ATOMIC_RELAXED);
    __atomic_fetch_add(&all->n_duplicates, seen.n_duplicates, __ATOMIC_RELAXED);
    lhi_rails_close(r->rails);
}

/* Opens an endpoint over two rails; the first goes through the proxy. */
static lh_status open_rails(wire_rank *r, lh_error *err)
{
    static const unsigned char keys[WIRE_MOST_RANKS * LHI_MAC_BYTES];
    unsigned char addresses[WIRE_MOST_RANKS * 2 * LHI_ADDRESS_BYTES];
    const wire *w = r->wire;
    int fds[WIRE_MOST_RANKS];
    for (uint32_t i = 0; i < w->n; i++) {
        const struct sockaddr_in *first =
            i < r->rank ? &w->door_at[r->rank][i] : &w->listens_at[i][0];
        unsigned char *at = addresses + (size_t)2 * i * LHI_ADDRESS_BYTES;
        lhi_address_write((const struct sockaddr *)first, at);
        lhi_address_write((const struct sockaddr *)&w->listens_at[i][1],
                          at + LHI_ADDRESS_BYTES);
    }
    lhi_rails_options o = {.rank = r->rank,
                           .n_ranks = w->n,
                           .n_rails = 2,
                           .listeners = w->listeners[r->rank],
                           .addresses = addresses,
                           .keys = keys,
                           .failure = &r->failure};
    LHI_TRY(lhi_rails_open(&o, &r->rails, fds, err));
    lhi_stream_options s = {.name = "faulty",
                            .rank = r->rank,
                            .n_ranks = w->n,
                            .fds = fds,
                            .links = r->table,
                            .failure = &r->failure,
                            .closed = close_rails,
                            .context = r};
    return lhi_net_stream(&s, &r->net, err);
}

static void *live(void *of)
{
    wire_rank *r = of;
    if (r->wire->plan->rails) {
        r->status = open_rails(r, &r->err);
        if (r->status != LH_OK) { /* fatal for the test */
            fprintf(stderr, "FAILED: %s\n", r->err.text);
            abort();
        }
    }
    r->status =
        lhi_rank_run(r->net, r->rank_main, r->context, &r->result, &r->err);
    return NULL;
}

static lh_status open_ranks(wire *w, lhi_links *table, wire_rank *ranks,
                            lh_error *err)
{
    static const unsigned char keys[WIRE_MOST_RANKS * LHI_FRAME_MAC_KEY_BYTES];
    for (uint32_t i = 0; i < w->n; i++) {
        lhi_stream_options o = {.name = "faulty",
                                .rank = i,
                                .n_ranks = w->n,
                                .fds = w->ends[i],
                                .keys = keys,
                                .links = table,
                                .silence_ns = w->plan->silence_ns};
        LHI_TRY(lhi_net_stream(&o, &ranks[i].net, err));
        for (uint32_t k = 0; k < w->n; k++)
            w->ends[i][k] = -1; /* owned by the endpoint */
    }
    return LH_OK;
}

static void run_all(wire *w, wire_rank *ranks)
{
    if (pthread_create(&w->thread, NULL, pass_all, w))
        abort();
    for (uint32_t i = 0; i < w->n; i++)
        if (pthread_create(&ranks[i].thread, NULL, live, &ranks[i]))
            abort();
    for (uint32_t i = 0; i < w->n; i++)
        pthread_join(ranks[i].thread, NULL);
    w->log->ended_ns = lhi_now_ns();
    uint64_t one = 1;
    if (write(w->wake, &one, sizeof one) != sizeof one)
        abort();
    pthread_join(w->thread, NULL);
}

/* Records every rank's status. The run's status is the original failure, not
 * one that it caused on other ranks. */
static lh_status note_ends(wire *w, wire_rank *ranks, lhi_rank_result *results,
                           lh_error *err)
{
    const wire_rank *worst = NULL;
    for (uint32_t i = 0; i < w->n; i++) {
        wire_rank *r = &ranks[i];
        w->log->status[i] = r->status;
        snprintf(w->log->text[i], sizeof w->log->text[i], "%s", r->err.text);
        if (r->status != LH_OK &&
            (!worst || (worst->status == LH_EIO && r->status != LH_EIO)))
            worst = r;
        if (results)
            results[i] = r->result;
        else
            free(r->result.text);
    }
    return worst ? lhi_fail(err, worst->status, "%s", worst->err.text) : LH_OK;
}

lh_status wire_run(const wire_plan *plan, wire_log *log, uint32_t n,
                   uint32_t n_links, const lhi_net_link *links,
                   lhi_rank_main *rank_main, void *context,
                   lhi_rank_result *results, lh_error *err)
{
    wire *w = calloc(1, sizeof *w);
    if (!w || n > WIRE_MOST_RANKS)
        abort();
    *log = (wire_log){0};
    w->plan = plan;
    w->log = log;
    w->n = n;
    w->state = plan->seed;
    w->at = plan->at;
    w->wake = eventfd(0, EFD_CLOEXEC);
    memset(w->ends, -1, sizeof w->ends);
    memset(w->mine, -1, sizeof w->mine);
    wire_rank *ranks = calloc(WIRE_MOST_RANKS, sizeof *ranks);
    if (!ranks)
        abort();
    size_t table_bytes = n_links ? lhi_links_bytes(n_links) : 0;
    void *table = NULL;
    lh_status status = LH_OK;
    for (uint32_t i = 0; i < n; i++) {
        ranks[i].rank_main = rank_main;
        ranks[i].context = context;
        ranks[i].wire = w;
        ranks[i].rank = i;
        for (uint32_t k = 0; k < n; k++) {
            *lane_of(w, i, k) = (lane){.from = i, .to = k};
            if (i != k && status == LH_OK && !plan->rails)
                status = connect_leg(w, i, k, err);
        }
    }
    if (status == LH_OK && n_links) {
        table = mmap(NULL, table_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        status = table == MAP_FAILED
                     ? lhi_fail_nomem(err)
                     : lhi_links_init(table, n_links, links, err);
    }
    for (uint32_t i = 0; i < n; i++)
        ranks[i].table = table;
    if (status == LH_OK && plan->rails)
        open_doors(w);
    else if (status == LH_OK)
        status = open_ranks(w, table, ranks, err);
    if (status != LH_OK) { /* fatal for the test */
        fprintf(stderr, "FAILED: %s\n", err->text);
        abort();
    }
    run_all(w, ranks);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n; k++)
            close_pair(w, i, k);
    if (plan->rails)
        close_doors(w);
    if (table) {
        lhi_links_fini(table);
        munmap(table, table_bytes);
    }
    close(w->wake);
    status = note_ends(w, ranks, results, err);
    free(ranks);
    free(w);
    return status;
}
