/* SPDX-License-Identifier: Apache-2.0 */
/* Rails: the transfer thread, the local streams, and loss detection. */
#define _GNU_SOURCE
#include "runtime/transport/rails_internal.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/sockets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Nanoseconds per millisecond. */
static const int64_t ms_ns = 1000000;

/* Socket buffer of a local stream in one direction, in bytes, if the host
 * permits it. Large enough that the two threads need not wake each other for
 * each segment. */
enum { STREAM_BYTES = 1 << 20 };

/* ---- local streams ---- */

/* Returns the entry for segment number `number` (numbered pieces of the stream)
 * in the window of received segments not yet delivered. */
static lhi_segment **get_received_entry(lhi_rail_peer *p, uint64_t number)
{
    return &p->received[number % LHI_RAIL_WINDOW];
}

/* Stops delivering data from a peer because the local rank no longer reads;
 * later segments are acknowledged and dropped. */
static void stop_receiving(lhi_rail_peer *p)
{
    p->stopped_receiving = true;
}

/* Writes as much of the segment as possible to the local stream, which the rank
 * reads; false: the stream is full. */
static bool deliver_segment(lhi_rail_peer *p, const lhi_segment *g)
{
    while (!p->stopped_receiving && p->n_delivered < g->size) {
        ssize_t n = send(p->fd, g->bytes + p->n_delivered,
                         g->size - p->n_delivered, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return false;
        if (n < 0)
            stop_receiving(p);
        else
            p->n_delivered += (size_t)n;
    }
    return true;
}

/* Writes a peer's received segments (numbered pieces of the stream) to the
 * local stream by number, until one is missing or the stream is full. */
static void deliver(lhi_rails *s, uint32_t peer)
{
    lhi_rail_peer *p = &s->peers[peer];
    lhi_segment *g;
    while (p->received && (g = *get_received_entry(p, p->expected))) {
        if (!deliver_segment(p, g))
            return;
        if (g->size == 0)
            p->in_ended = true;
        *get_received_entry(p, p->expected) = NULL;
        free(g);
        p->expected++;
        p->n_delivered = 0;
        p->owes_ack = true;
    }
    if (p->in_ended && !p->in_shut) {
        p->in_shut = true;
        if (p->fd >= 0)
            shutdown(p->fd, SHUT_WR);
    }
}

/* Checks whether one more segment may be queued for the rails (parallel
 * connections) to a peer. The limit keeps latency low; a restored rail still
 * finds enough segments. */
static bool can_queue_segment(const lhi_rails *s, const lhi_rail_peer *p)
{
    return p->fd >= 0 && !p->out_ended &&
           p->next - p->acknowledged < LHI_RAIL_WINDOW &&
           p->n_waiting < 2 * s->n_rails;
}

/* Queues the `size` bytes just read from the local stream as the next segment:
 * in the read buffer itself, or in a smaller copy if much of the buffer would
 * be unused. */
static lh_status add_segment(lhi_rails *s, lhi_rail_peer *p, size_t size,
                             lh_error *err)
{
    lhi_segment *g = s->read_buffer;
    if (size < LHI_RAIL_SEGMENT_BYTES / 2) {
        g = malloc(sizeof *g + size);
        if (!g)
            return lhi_fail_nomem(err);
        memcpy(g, s->read_buffer, sizeof *g + size);
    } else {
        s->read_buffer = NULL;
    }
    g->number = p->next;
    g->size = (uint32_t)size;
    g->waiting = true;
    if (p->acknowledged == p->next)
        p->last_progress_ns = lhi_now_ns();
    p->sent[p->next++ % LHI_RAIL_WINDOW] = g;
    p->n_waiting++;
    return LH_OK;
}

/* Allocates the buffer for the local stream and the ring of sent segments. */
static lh_status alloc_read_buffer(lhi_rails *s, lhi_rail_peer *p,
                                   lh_error *err)
{
    if (!p->sent)
        p->sent = calloc(LHI_RAIL_WINDOW, sizeof(lhi_segment *));
    if (!s->read_buffer)
        s->read_buffer =
            malloc(sizeof *s->read_buffer + LHI_RAIL_SEGMENT_BYTES);
    if (!p->sent || !s->read_buffer)
        return lhi_fail_nomem(err);
    *s->read_buffer = (lhi_segment){0};
    return LH_OK;
}

/* Reads the bytes that the local rank has written to its stream for a peer, and
 * divides them into segments to be sent over the rails. */
static void read_local_stream(lhi_rails *s, uint32_t peer)
{
    lhi_rail_peer *p = &s->peers[peer];
    lh_error err = {0};
    lh_status status = LH_OK;
    while (can_queue_segment(s, p) &&
           (status = alloc_read_buffer(s, p, &err)) == LH_OK) {
        ssize_t n = recv(p->fd, s->read_buffer->bytes, LHI_RAIL_SEGMENT_BYTES,
                         MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n < 0) /* closed with unread input */
            n = 0;
        if (n == 0)
            p->out_ended = true;
        if ((status = add_segment(s, p, (size_t)n, &err)) != LH_OK)
            break;
        lhi_rail_send_segments(s, peer);
    }
    if (status != LH_OK)
        lhi_rails_fail_peer(s, s->rank, err.text);
}

/* ---- loss detection ---- */

/* Counts the rails (parallel connections) to a peer that are connected. */
static uint32_t count_up_rails(const lhi_rails *s, const lhi_rail_peer *p)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n_rails; k++)
        n += p->rails[k].state == LHI_RAIL_UP;
    return n;
}

/* Checks whether all rails (parallel connections) to a peer refuse connections,
 * which means that it has ended without an orderly shutdown. */
static bool has_peer_ended(const lhi_rails *s, const lhi_rail_peer *p)
{
    for (uint32_t k = 0; k < s->n_rails; k++)
        if (p->rails[k].state == LHI_RAIL_UP || !p->rails[k].was_up ||
            p->rails[k].error != ECONNREFUSED)
            return false;
    return true;
}

/* Fails the run if a peer has ended, is silent for too long or acknowledges
 * nothing for too long. */
static void check_peer_timeout(lhi_rails *s, uint32_t peer, int64_t now_ns)
{
    lhi_rail_peer *p = &s->peers[peer];
    char why[200];
    if (p->given_up || p->in_ended)
        return;
    if (p->acknowledged == p->next)
        p->last_progress_ns = now_ns;
    double gone_s = (double)(now_ns - p->last_input_ns) * 1e-9;
    double stuck_s = (double)(now_ns - p->last_progress_ns) * 1e-9;
    if (has_peer_ended(s, p))
        snprintf(
            why, sizeof why,
            "it has ended without a shutdown: it refuses the rails of rank %u",
            s->rank);
    else if (now_ns - p->last_input_ns > s->timeout_ns)
        snprintf(
            why, sizeof why,
            "rank %u has received nothing from it over %u rails for %.1f s",
            s->rank, s->n_rails, gone_s);
    else if (now_ns - p->last_progress_ns > 2 * s->timeout_ns)
        snprintf(why, sizeof why,
                 "it has acknowledged nothing that rank %u sent over %u rails "
                 "for %.1f s",
                 s->rank, s->n_rails, stuck_s);
    else
        return;
    lhi_rails_fail_peer(s, peer, why);
}

/* Checks whether sending to the peer is complete: every segment is
 * acknowledged, or the peer is lost. */
static bool is_sending_over(const lhi_rails *s, const lhi_rail_peer *p)
{
    bool sent = p->out_ended && p->acknowledged == p->next;
    return p->given_up || sent || (p->in_ended && count_up_rails(s, p) == 0);
}

/* Returns the earlier of two times. */
static int64_t get_earlier(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

/* Handles the timeouts of rail `k` (parallel connection) to a peer at now_ns:
 * reconnects it, sends a keep-alive frame or closes it. Returns its next
 * timeout's time. */
static int64_t run_rail_timers(lhi_rails *s, uint32_t peer, uint32_t k,
                               int64_t now_ns)
{
    lhi_rail_peer *p = &s->peers[peer];
    lhi_rail *r = &p->rails[k];
    bool dials = s->rank > peer;
    switch (r->state) {
    case LHI_RAIL_DOWN:
        if (p->in_ended || p->given_up)
            return INT64_MAX;
        /* The accepting end does not notice a peer that died. Once it has no
         * rail to the peer, it therefore tests whether the peer still listens.
         */
        if (!dials && (!r->was_up || count_up_rails(s, p) > 0))
            return INT64_MAX;
        if (r->retry_ns <= now_ns)
            lhi_rail_connect(s, peer, k);
        return r->state == LHI_RAIL_DOWN ? r->retry_ns : r->until_ns;
    case LHI_RAIL_UP:
        if (now_ns - r->last_input_ns > r->timeout_ns) {
            lhi_rail_close(s, peer, k, 0);
            return now_ns;
        }
        if (now_ns - r->last_output_ns >= r->timeout_ns / 3)
            lhi_rail_send_ack(s, peer, k);
        /* If the rail cannot be written, only its input is checked. */
        return get_earlier(r->last_input_ns + r->timeout_ns + ms_ns,
                           r->writing ? INT64_MAX
                                      : r->last_output_ns + r->timeout_ns / 3);
    default:
        if (r->until_ns <= now_ns)
            lhi_rail_close(s, peer, k, ETIMEDOUT);
        return r->state == LHI_RAIL_DOWN ? r->retry_ns : r->until_ns;
    }
}

/* Extends all timeouts if this thread itself is late, for example because the
 * job or its machine was stopped: the peers' activity meanwhile is unknown. */
static void extend_timeouts(lhi_rails *s, int64_t late_ns, int64_t now_ns)
{
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        lhi_rail_peer *p = &s->peers[i];
        p->last_input_ns =
            lhi_advance_time_ns(p->last_input_ns, late_ns, now_ns);
        p->last_progress_ns =
            lhi_advance_time_ns(p->last_progress_ns, late_ns, now_ns);
    }
}

/* Handles all timeouts and returns the time of the next one; `due_ns`: time at
 * which this call was due, 0: none. */
static int64_t run_timers(lhi_rails *s, int64_t due_ns)
{
    int64_t now_ns = lhi_now_ns(), next_ns = now_ns + 1000 * ms_ns;
    if (due_ns && now_ns - due_ns > s->timeout_ns / 8)
        extend_timeouts(s, now_ns - due_ns, now_ns);
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        if (i == s->rank)
            continue;
        for (uint32_t k = 0; k < s->n_rails; k++)
            next_ns = get_earlier(next_ns, run_rail_timers(s, i, k, now_ns));
        check_peer_timeout(s, i, now_ns);
        lhi_rail_send_segments(s, i);
    }
    lhi_rail_close_expired(s, now_ns);
    return next_ns;
}

/* ---- the thread ---- */

/* Returns the poll() entry of a rail (parallel connection): input, and output
 * if it connects or has something to write. */
static struct pollfd make_poll(const lhi_rail_peer *p, const lhi_rail *r)
{
    struct pollfd f = {.fd = r->fd, .events = POLLIN};
    if (r->state == LHI_RAIL_CONNECTING)
        f.events = POLLOUT;
    else if (lhi_rail_has_work(p, r))
        f.events |= POLLOUT;
    return f;
}

/* Fills the poll() entries in the order in which the thread handles them:
 * wake-up, listeners, pending connections, then each peer's stream and rails.
 */
static nfds_t fill_polls(lhi_rails *s)
{
    struct pollfd *f = s->polls;
    f[0] = (struct pollfd){.fd = s->wakeup_fd, .events = POLLIN};
    nfds_t n = 1 + s->n_rails;
    struct pollfd *pending =
        f + n - 1; /* its listener entry is overwritten below */
    uint32_t n_pending =
        lhi_pending_fill_polls(&s->pending, s->listeners[0], pending);
    bool is_paused = pending[0].fd < 0;
    for (uint32_t k = 0; k < s->n_rails; k++)
        f[1 + k] = (struct pollfd){.fd = is_paused ? -1 : s->listeners[k],
                                   .events = POLLIN};
    n += n_pending - 1;
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        const lhi_rail_peer *p = &s->peers[i];
        if (i == s->rank)
            continue;
        bool full = p->received && p->received[p->expected % LHI_RAIL_WINDOW];
        bool in = can_queue_segment(s, p), out = full && !p->stopped_receiving;
        f[n++] = (struct pollfd){
            .fd = in || out ? p->fd : -1,
            .events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0))};
        for (uint32_t k = 0; k < s->n_rails; k++)
            f[n++] = make_poll(p, &p->rails[k]);
    }
    return n;
}

/* Handles poll() events on rail (parallel connection) `k` to a peer: continues
 * connecting, reads or writes. */
static void handle_rail_events(lhi_rails *s, uint32_t peer, uint32_t k,
                               short events)
{
    lhi_rail *r = &s->peers[peer].rails[k];
    if (!events || r->state == LHI_RAIL_DOWN)
        return;
    if (r->state != LHI_RAIL_UP) {
        lhi_rail_continue_connect(s, peer, k);
        return;
    }
    if (events & POLLOUT)
        r->writable = true;
    if (events & (POLLIN | POLLHUP | POLLERR))
        lhi_rail_read(s, peer, k);
}

/* Handles poll() events on a peer's local stream and on the rails (parallel
 * connections) to it. */
static void handle_peer_events(lhi_rails *s, uint32_t peer,
                               const struct pollfd *f)
{
    lhi_rail_peer *p = &s->peers[peer];
    for (uint32_t k = 0; k < s->n_rails; k++)
        if (p->rails[k].fd == f[1 + k].fd)
            handle_rail_events(s, peer, k, f[1 + k].revents);
    deliver(s, peer);
    if (f[0].fd >= 0 && f[0].revents)
        read_local_stream(s, peer);
    lhi_rail_send_segments(s, peer);
}

/* Handles poll() events on the n_pending pending connections and the
 * listeners. */
static void handle_pending_events(lhi_rails *s, uint32_t n_pending)
{
    const struct pollfd *f = s->polls + 1 + s->n_rails;
    for (uint32_t i = 0; i < n_pending && i < s->pending.n; i++)
        if (f[i].revents && s->pending.list[i].fd == f[i].fd)
            lhi_rail_read_pending(s, &s->pending.list[i]);
    lhi_pending_remove_closed(&s->pending);
    for (uint32_t k = 0; k < s->n_rails; k++)
        if (s->polls[1 + k].revents)
            lhi_pending_accept(&s->pending, s->listeners[k]);
}

/* Checks whether the rails' thread may end: at once on request, or if nothing
 * more can be sent to any peer, or if the time for that is over. */
static bool is_done(lhi_rails *s)
{
    uint32_t asks = __atomic_load_n(&s->request, __ATOMIC_ACQUIRE);
    if (asks == LHI_RAILS_STOP)
        return true;
    if (asks != LHI_RAILS_LEAVE)
        return false;
    bool all = true;
    for (uint32_t i = 0; i < s->n_ranks; i++)
        all = all && (i == s->rank || is_sending_over(s, &s->peers[i]));
    return all || lhi_now_ns() > s->close_by_ns;
}

/* Main function for the rails' thread: moves data between the rank's local
 * streams and the rails (parallel connections) until all peers are done. */
static void *thread_main(void *of)
{
    lhi_rails *s = of;
    int64_t next_ns = 0;
    while (!is_done(s)) {
        uint32_t n_pending = s->pending.n;
        nfds_t n = fill_polls(s);
        int64_t left_ns = next_ns - lhi_now_ns();
        struct timespec left = lhi_timespec(left_ns > 0 ? left_ns : 0);
        int ready = ppoll(s->polls, n, &left, NULL);
        if (ready > 0 && s->polls[0].revents) {
            uint64_t count;
            ssize_t got = read(s->wakeup_fd, &count, sizeof count);
            (void)got;
        }
        const struct pollfd *f = s->polls + 1 + s->n_rails + n_pending;
        for (uint32_t i = 0; ready > 0 && i < s->n_ranks; i++) {
            if (i == s->rank)
                continue;
            handle_peer_events(s, i, f);
            f += 1 + s->n_rails;
        }
        if (ready > 0)
            handle_pending_events(s, n_pending);
        next_ns = run_timers(s, next_ns);
    }
    return NULL;
}

/* ---- calls from other threads ---- */

/* Stores a request `what` (stop, or leave after sending everything) for the
 * rails' thread and wakes it. */
static void request_thread(lhi_rails *s, uint32_t what)
{
    uint64_t one = 1;
    __atomic_store_n(&s->request, what, __ATOMIC_RELEASE);
    ssize_t n = write(s->wakeup_fd, &one, sizeof one);
    (void)n; /* a full counter wakes the thread anyway */
}

/* Closes a peer's rails (parallel connections) and local stream, and frees its
 * segments. */
static void free_peer(const lhi_rails *s, lhi_rail_peer *p)
{
    for (uint32_t k = 0; p->rails && k < s->n_rails; k++) {
        lhi_rail *r = &p->rails[k];
        if (r->fd >= 0)
            close(r->fd);
        if (r->out && r->out->free_after_write) /* else it is in `sent` below */
            free(r->out);
        free(r->in);
        lhi_frame_mac_free(r->seals_out);
        lhi_frame_mac_free(r->seals_in);
    }
    for (uint32_t i = 0; i < LHI_RAIL_WINDOW; i++) {
        if (p->sent)
            free(p->sent[i]);
        if (p->received)
            free(p->received[i]);
    }
    if (p->fd >= 0)
        close(p->fd);
    free(p->rails);
    free(p->sent);
    free(p->received);
}

/* Frees the state of the rails (parallel connections to peers), except the
 * listening sockets. */
static void free_rails(lhi_rails *s)
{
    for (uint32_t i = 0; s->peers && i < s->n_ranks; i++)
        free_peer(s, &s->peers[i]);
    lhi_pending_fini(&s->pending);
    if (s->wakeup_fd >= 0)
        close(s->wakeup_fd);
    free(s->peers);
    free(s->read_buffer);
    free(s->polls);
    free(s->addresses);
    free(s->keys);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Allocates the tables of all peers; LH_EIO: the limit on open files is too low
 * for all rails. */
static lh_status allocate(lhi_rails *s, const lhi_rails_options *o,
                          lh_error *err)
{
    size_t n = o->n_ranks, room = n * o->n_rails * LHI_ADDRESS_BYTES;
    uint32_t others = o->n_ranks - 1;
    uint32_t files = others * (o->n_rails + 2) + 8 + o->n_rails;
    uint32_t best = files + others * o->n_rails + LHI_PENDING_EXTRA;
    uint32_t there = lhi_count_free_files(best);
    if (there < files + 2)
        return lhi_fail(
            err, LH_EIO,
            "rank %u needs %u files for %u rails to each of %u other ranks, "
            "but its limit allows %u; raise it (ulimit -n)",
            o->rank, files + 2, o->n_rails, others, there);
    s->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wakeup_fd < 0)
        return lhi_fail(err, LH_EIO, "cannot monitor rails: %s",
                        strerror(errno));
    LHI_TRY(lhi_pending_init(&s->pending, there - files, err));
    s->addresses = malloc(room);
    s->keys = malloc(n * LHI_MAC_BYTES);
    s->peers = calloc(n, sizeof *s->peers);
    s->polls =
        calloc(2 + o->n_rails + s->pending.capacity + n * (1 + o->n_rails),
               sizeof *s->polls);
    if (!s->addresses || !s->keys || !s->peers || !s->polls)
        return lhi_fail_nomem(err);
    memcpy(s->addresses, o->addresses, room);
    memcpy(s->keys, o->keys, n * LHI_MAC_BYTES);
    for (uint32_t i = 0; i < o->n_ranks; i++)
        s->peers[i].fd = -1;
    return LH_OK;
}

/* Creates one local socket pair per peer: one end for this thread, the other in
 * fds[peer]. */
static lh_status make_streams(lhi_rails *s, int *fds, lh_error *err)
{
    int64_t now_ns = lhi_now_ns();
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        lhi_rail_peer *p = &s->peers[i];
        int ends[2];
        if (i == s->rank)
            continue;
        p->rails = calloc(s->n_rails, sizeof *p->rails);
        if (!p->rails)
            return lhi_fail_nomem(err);
        for (uint32_t k = 0; k < s->n_rails; k++)
            p->rails[k].fd = -1;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
            return lhi_fail(err, LH_EIO, "cannot create a socket pair: %s",
                            strerror(errno));
        int room = STREAM_BYTES;
        for (uint32_t k = 0; k < 2; k++)
            setsockopt(ends[k], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        p->fd = ends[0];
        fds[i] = ends[1];
        p->last_input_ns = p->last_progress_ns = now_ns;
    }
    return LH_OK;
}

/* Formats the addresses of both ends of a rail (parallel connection) as `from`,
 * this rank's, and `to`, the peer's. */
static void name_ends(const lhi_rails *s, uint32_t peer, uint32_t rail,
                      char from[LHI_ADDRESS_TEXT], char to[LHI_ADDRESS_TEXT])
{
    for (int its = 0; its < 2; its++) {
        struct sockaddr_storage a;
        size_t at = (size_t)(its ? peer : s->rank) * s->n_rails + rail;
        socklen_t size =
            lhi_address_read(s->addresses + at * LHI_ADDRESS_BYTES, &a);
        lhi_address_format(&a, size, its ? to : from);
    }
}

/* Fails with LH_EIO, naming a rail that is not connected; the thread must have
 * ended. */
static lh_status fail_missing_rail(const lhi_rails *s, lh_error *err)
{
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        for (uint32_t k = 0; i != s->rank && k < s->n_rails; k++) {
            const lhi_rail *r = &s->peers[i].rails[k];
            char from[LHI_ADDRESS_TEXT], to[LHI_ADDRESS_TEXT];
            if (r->was_up)
                continue;
            name_ends(s, i, k, from, to);
            return lhi_fail(
                err, LH_EIO,
                "rail %u of rank %u (%s) does not reach rank %u (%s)%s%s", k,
                s->rank, from, i, to, r->error ? ": " : "",
                r->error ? strerror(r->error) : "");
        }
    }
    return lhi_fail(err, LH_EIO, "rank %u: its rails failed", s->rank);
}

/* Waits until all rails (parallel connections) to all peers are connected. */
static lh_status wait_for_all(lhi_rails *s, lh_error *err)
{
    uint32_t all = (s->n_ranks - 1) * s->n_rails;
    int64_t until_ns = lhi_now_ns() + LHI_RAILS_CONNECT_TIMEOUT_NS;
    while (__atomic_load_n(&s->n_up, __ATOMIC_ACQUIRE) < all) {
        if (lhi_now_ns() > until_ns || lhi_failure_text(s->failure)) {
            request_thread(s, LHI_RAILS_STOP);
            pthread_join(s->thread, NULL);
            return fail_missing_rail(s, err);
        }
        lhi_sleep_for(ms_ns);
    }
    return LH_OK;
}

lh_status lhi_rails_open(const lhi_rails_options *o, lhi_rails **out, int *fds,
                         lh_error *err)
{
    lhi_rails *s = calloc(1, sizeof *s);
    if (!s)
        return lhi_fail_nomem(err);
    s->rank = o->rank;
    s->n_ranks = o->n_ranks;
    s->n_rails = o->n_rails;
    s->timeout_ns = o->timeout_ns ? o->timeout_ns : LHI_RAILS_TIMEOUT_NS;
    s->failure = o->failure;
    s->wakeup_fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    memcpy(s->job, o->job, sizeof s->job);
    memcpy(s->listeners, o->listeners, o->n_rails * sizeof *s->listeners);
    for (uint32_t i = 0; i < o->n_ranks; i++)
        fds[i] = -1;
    lh_status status = allocate(s, o, err);
    if (status == LH_OK)
        status = make_streams(s, fds, err);
    if (status == LH_OK)
        status = lhi_start_normal_thread(&s->thread, thread_main, s, err);
    if (status == LH_OK)
        status = wait_for_all(s, err);
    if (status == LH_OK) {
        *out = s;
        return LH_OK;
    }
    for (uint32_t i = 0; i < o->n_ranks; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free_rails(s);
    return status;
}

void lhi_rails_close(lhi_rails *s)
{
    if (!s)
        return;
    bool failed = lhi_failure_text(s->failure) != NULL;
    s->close_by_ns = lhi_now_ns() + (failed ? 500 : 3000) * ms_ns;
    request_thread(s, LHI_RAILS_LEAVE);
    pthread_join(s->thread, NULL);
    for (uint32_t k = 0; k < s->n_rails; k++)
        close(s->listeners[k]);
    free_rails(s);
}

bool lhi_rails_read_notice(lhi_rails *s, char *text, size_t room)
{
    lhi_rail_event n;
    pthread_mutex_lock(&s->lock);
    bool is_there = s->n_reported < s->n_events;
    if (is_there)
        n = s->events[s->n_reported++ % LHI_RAIL_EVENTS];
    pthread_mutex_unlock(&s->lock);
    if (!is_there)
        return false;
    char from[LHI_ADDRESS_TEXT], to[LHI_ADDRESS_TEXT];
    name_ends(s, n.peer, n.rail, from, to);
    int used = snprintf(text, room, "rail %u of ranks %u and %u (%s to %s) ",
                        n.rail, s->rank, n.peer, from, to);
    if (used < 0 || (size_t)used >= room)
        return true;
    if (n.downtime_ns < 0)
        snprintf(
            text + used, room - (size_t)used,
            "is lost: %s; messages use the other rails until it is reconnected",
            n.error ? strerror(n.error) : "no data received");
    else
        snprintf(text + used, room - (size_t)used,
                 "is reconnected after %.1f s", (double)n.downtime_ns * 1e-9);
    return true;
}

void lhi_rails_read_statistics(const lhi_rails *s, lhi_rails_statistics *out)
{
    const lhi_rails_statistics *seen = &s->statistics;
    out->n_lost = __atomic_load_n(&seen->n_lost, __ATOMIC_RELAXED);
    out->n_restored = __atomic_load_n(&seen->n_restored, __ATOMIC_RELAXED);
    out->n_retransmitted =
        __atomic_load_n(&seen->n_retransmitted, __ATOMIC_RELAXED);
    out->n_duplicates = __atomic_load_n(&seen->n_duplicates, __ATOMIC_RELAXED);
    for (uint32_t k = 0; k < LHI_MAX_RAILS; k++)
        out->sent[k] = __atomic_load_n(&seen->sent[k], __ATOMIC_RELAXED);
}
