/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/stream.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/outgoing_frame.h"
#include "runtime/transport/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_BYTES = 8 << 10,   /* read ahead per connection */
    CHUNK_BYTES = 128 << 10 /* maximum transfer while the lock is held */
};
/* Minimum bytes of a started frame per silence interval; more than all PINGs in
 * that time. */
static const size_t min_frame_progress = 1024;
/* Nanoseconds per millisecond. */
static const int64_t ms_ns = 1000000;

/* One peer's connection. */
typedef struct connection {
    int fd;             /* -1: none */
    bool writes, asked; /* writable; EPOLLOUT is requested */
    bool shutdown_sent; /* its last frame is queued or sent */
    lhi_outgoing_frame *first, *last;
    lhi_outgoing_frame *spare; /* for the last frame, if memory is exhausted */
    lhi_frame_mac *seals_out, *seals_in; /* NULL: not authenticated */
    size_t head_bytes, tail_bytes;       /* frame overhead around the payload */
    /* Bytes read ahead: [at, end) in `buffer`. */
    size_t at, end;
    /* Frame being read, from its header on. */
    bool in_frame;
    lhi_frame frame;
    size_t filled, size; /* payload bytes */
    size_t n_tail;       /* bytes of the payload's MAC */
    unsigned char tail[LHI_FRAME_MAC_BYTES];
    unsigned char *into; /* NULL: dropped */
    lhi_net_op *op;
    lhi_unexpected *kept;
    int64_t last_received_ns, last_sent_ns;
    /* Start of the current interval with an incomplete frame, and the bytes
     * received in it. */
    int64_t incomplete_ns;
    size_t n_incomplete;
    int64_t lost_ns;      /* loss without orderly shutdown; 0: none */
    int64_t cancelled_ns; /* peer cancelled a message; 0: no */
    unsigned char reason[LHI_ABORT_BYTES];
    unsigned char buffer[READ_BYTES];
} connection;

/* The endpoint. */
typedef struct stream {
    lhi_proto proto; /* must be first */
    lhi_net_ops ops;
    lhi_failure own_failure;
    bool watched, stop;
    bool failure_shared;   /* sent to peers, or received from one */
    bool failure_received; /* received from a peer */
    int64_t silence_ns;
    int epoll, wakeup_fd; /* wakeup_fd: eventfd that wakes the thread */
    pthread_t thread;
    void (*closed)(void *context);
    void *context;
    connection *connections;
} stream;

/* Wakes the endpoint's communication thread. */
static void wake_thread(stream *s)
{
    uint64_t one = 1;
    ssize_t n = write(s->wakeup_fd, &one, sizeof one);
    (void)n; /* a full counter wakes the thread anyway */
}

/* Fails the run because of peer `peer`; the text `what` follows the peer's rank
 * in the message. */
static void fail_peer(stream *s, uint32_t peer, const char *what)
{
    lhi_failure_set_loss(s->proto.net.failure, peer, what);
}

/* ---- writing ---- */

/* Enables (`want`) or disables the epoll event that a peer's socket is
 * writable. */
static void request_writable(stream *s, uint32_t peer, bool want)
{
    connection *c = &s->connections[peer];
    if (c->asked == want)
        return;
    struct epoll_event e = {.events = EPOLLIN | (want ? EPOLLOUT : 0),
                            .data.u32 = peer};
    c->asked = epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd, &e) == 0 && want;
}

/* Completes the sends of all queued frames of a lost connection with LH_EIO. */
static void fail_queued(stream *s, connection *c)
{
    while (c->first) {
        lhi_outgoing_frame *o = c->first;
        c->first = o->next;
        if (o->op)
            lhi_proto_payload_sent(&s->proto, o->op, LH_EIO);
        free(o);
    }
}

/* Writes the frames queued for a peer until its socket is full or `most` bytes
 * are sent. */
static void flush(stream *s, uint32_t peer, size_t most)
{
    connection *c = &s->connections[peer];
    size_t done = 0;
    while (c->first && c->writes && done < most) {
        lhi_outgoing_frame *o = c->first;
        ssize_t n =
            lhi_outgoing_frame_write(o, c->fd, c->seals_out, CHUNK_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0) {
            /* Reading determines whether the peer shut down in order or died.
             */
            c->writes = false;
            break;
        }
        o->sent += (size_t)n;
        done += (size_t)n;
        if (o->sent < o->size)
            continue;
        c->first = o->next;
        if (o->op)
            lhi_proto_payload_sent(&s->proto, o->op, LH_OK);
        free(o);
    }
    if (done && s->silence_ns)
        c->last_sent_ns = lhi_now_ns();
    if (c->fd >= 0)
        request_writable(s, peer, c->first && c->writes);
}

/* Queues a frame with its payload for rank `to`, and writes it at once if the
 * queue is empty. `op`: the send whose memory the payload is; NULL: the payload
 * is copied (callback of the protocol). */
static lh_status stream_frame(lhi_proto *p, uint32_t to, const lhi_frame *f,
                              const void *payload, lhi_net_op *op,
                              lh_error *err)
{
    stream *s = (stream *)p;
    connection *c = &s->connections[to];
    size_t size = (size_t)lhi_frame_payload(f);
    lhi_outgoing_frame *o = malloc(sizeof *o + (op ? 0 : size));
    if (!o && (f->kind == LHI_FRAME_BYE || f->kind == LHI_FRAME_ABORT)) {
        o = c->spare;
        c->spare = NULL;
    }
    if (!o)
        return lhi_fail_nomem(err);
    *o = (lhi_outgoing_frame){.payload = op ? payload : o->copy,
                              .size = c->head_bytes + size +
                                      (size ? c->tail_bytes : 0),
                              .payload_size = size,
                              .op = op};
    lhi_frame_write(f, o->header);
    if (!op && size)
        memcpy(o->copy, payload, size);
    bool idle = c->first == NULL;
    if (idle)
        c->first = o;
    else
        c->last->next = o;
    c->last = o;
    if (idle)
        flush(s, to, CHUNK_BYTES);
    return LH_OK;
}

/* Does nothing and returns LH_OK: unlike UCX, sockets need no preparation for a
 * large receive (callback of the protocol). */
static lh_status stream_expect(lhi_proto *p, lhi_net_op *op, lh_error *err)
{
    (void)p, (void)op, (void)err;
    return LH_OK;
}

/* Detaches an operation's memory from frames being read or written: later
 * bytes are dropped, or sent as zeros; false: no frame uses it. */
static bool stream_cancel(lhi_proto *p, lhi_net_op *op)
{
    stream *s = (stream *)p;
    connection *c = &s->connections[op->peer];
    if (c->op == op) {
        c->op = NULL;
        c->into = NULL;
        return true;
    }
    for (lhi_outgoing_frame *o = c->first; o; o = o->next) {
        if (o->op != op)
            continue;
        lhi_outgoing_frame_cancel(o, c->seals_out);
        return true;
    }
    return false;
}

static const lhi_carrier stream_carrier = {
    .frame = stream_frame,
    .expect = stream_expect,
    .cancel = stream_cancel,
};

/* Sends the reason of the run's failure to all peers, once. */
static void send_failure(stream *s)
{
    const char *why = lhi_failure_text(s->proto.net.failure);
    if (!why || s->failure_shared)
        return;
    s->failure_shared = true;
    lhi_frame f = {.kind = LHI_FRAME_ABORT,
                   .size = strlen(why),
                   .tag = lhi_failure_rank(s->proto.net.failure),
                   .id = lhi_net_failure_cause(&s->proto.net)};
    if (f.size > LHI_ABORT_BYTES)
        f.size = LHI_ABORT_BYTES;
    for (uint32_t i = 0; i < s->proto.net.n_ranks; i++)
        if (s->connections[i].writes && !s->connections[i].shutdown_sent)
            stream_frame(&s->proto, i, &f, why, NULL, NULL);
}

/* ---- reading ---- */

static const char broken_seal[] =
    "a frame failed authentication: it was changed in transit, or bytes before "
    "it were lost or duplicated";

/* Handles a frame from a peer whose payload is complete: an ABORT frame becomes
 * the run's failure, any other one goes to the protocol. */
static lh_status end_frame(stream *s, uint32_t peer, lh_error *err)
{
    connection *c = &s->connections[peer];
    c->in_frame = false;
    lhi_net_op *op = c->op;
    lhi_unexpected *kept = c->kept;
    c->op = NULL;
    c->kept = NULL;
    if (c->frame.kind == LHI_FRAME_ABORT) {
        char text[LHI_ABORT_BYTES + 1];
        lhi_wire_sanitise_text(c->reason, c->size, text, sizeof text);
        lhi_failure_set_reported(s->proto.net.failure, (uint32_t)c->frame.tag,
                                 peer, (lhi_failure_cause)c->frame.id, text);
        /* The rank that failed informs all others; this rank repeats it only on
         * leaving. */
        s->failure_received = s->failure_received || !s->failure_shared;
        s->failure_shared = true;
        return LH_OK;
    }
    return lhi_proto_payload_received(&s->proto, op, kept, err);
}

/* Decodes and handles the frame header just received from a peer, and sets the
 * payload's destination. */
static lh_status begin_frame(stream *s, uint32_t peer, lh_error *err)
{
    connection *c = &s->connections[peer];
    const unsigned char *head = c->buffer + c->at;
    void *into = NULL;
    if (c->seals_in) {
        lhi_frame_mac_begin(c->seals_in, LHI_FRAME_MAC_HEADER);
        lhi_frame_mac_add(c->seals_in, head, LHI_FRAME_BYTES);
        if (!lhi_frame_mac_verify(c->seals_in, head + LHI_FRAME_BYTES))
            return lhi_fail(err, LH_EIO, "%s", broken_seal);
        lhi_frame_mac_begin(c->seals_in, LHI_FRAME_MAC_PAYLOAD);
    }
    LHI_TRY(lhi_frame_read(head, &c->frame, err));
    c->at += c->head_bytes;
    LHI_TRY(lhi_proto_frame_received(&s->proto, peer, &c->frame, &into, &c->op,
                                     &c->kept, err));
    c->in_frame = true;
    c->filled = c->n_tail = 0;
    c->size = (size_t)lhi_frame_payload(&c->frame);
    c->into = c->frame.kind == LHI_FRAME_ABORT ? c->reason : into;
    return c->size ? LH_OK : end_frame(s, peer, err);
}

/* Adds `n` received payload bytes to the frame and to its MAC. */
static void add_payload(connection *c, const unsigned char *bytes, size_t n)
{
    c->filled += n;
    if (c->seals_in)
        lhi_frame_mac_add(c->seals_in, bytes, n);
}

/* Checks the MAC (authentication code) of the complete payload received from a
 * peer. LH_EIO: it is wrong. */
static lh_status verify_payload(stream *s, uint32_t peer, lh_error *err)
{
    connection *c = &s->connections[peer];
    if (!c->seals_in || lhi_frame_mac_verify(c->seals_in, c->tail))
        return end_frame(s, peer, err);
    lhi_frame_mac_begin(c->seals_in, LHI_FRAME_MAC_VOID);
    if (!lhi_frame_mac_verify(c->seals_in, c->tail))
        return lhi_fail(err, LH_EIO, "%s", broken_seal);
    /* The peer's run has failed; the reason is expected soon. */
    c->cancelled_ns = lhi_now_ns();
    c->in_frame = false;
    c->op = NULL;
    free(c->kept);
    c->kept = NULL;
    return LH_OK;
}

/* Copies payload and MAC bytes of the current frame from the read-ahead buffer
 * to their destination. */
static lh_status consume_payload(stream *s, uint32_t peer, lh_error *err)
{
    connection *c = &s->connections[peer];
    size_t n = c->end - c->at;
    if (n > c->size - c->filled)
        n = c->size - c->filled;
    if (c->into && n)
        memcpy(c->into + c->filled, c->buffer + c->at, n);
    add_payload(c, c->buffer + c->at, n);
    c->at += n;
    if (c->filled < c->size)
        return LH_OK;
    n = c->end - c->at;
    if (n > c->tail_bytes - c->n_tail)
        n = c->tail_bytes - c->n_tail;
    memcpy(c->tail + c->n_tail, c->buffer + c->at, n);
    c->at += n;
    c->n_tail += n;
    return c->n_tail < c->tail_bytes ? LH_OK : verify_payload(s, peer, err);
}

/* Handles all bytes in a peer's read-ahead buffer: headers, payloads and MACs
 * of frames. */
static lh_status consume_buffer(stream *s, uint32_t peer, lh_error *err)
{
    connection *c = &s->connections[peer];
    while (c->at < c->end) {
        if (c->in_frame)
            LHI_TRY(consume_payload(s, peer, err));
        else if (c->end - c->at < c->head_bytes)
            break;
        else
            LHI_TRY(begin_frame(s, peer, err));
    }
    if (c->at > 0) {
        memmove(c->buffer, c->buffer + c->at, c->end - c->at);
        c->end -= c->at;
        c->at = 0;
    }
    return LH_OK;
}

/* Reads once from a peer's socket: into the payload's memory if much of the
 * payload is missing, else into the read-ahead buffer. */
static ssize_t read_some(stream *s, uint32_t peer, lh_error *err)
{
    connection *c = &s->connections[peer];
    size_t left = c->in_frame ? c->size - c->filled : 0;
    bool direct = c->into && left >= READ_BYTES && c->end == 0;
    ssize_t n;
    if (direct)
        n = recv(c->fd, c->into + c->filled,
                 left < CHUNK_BYTES ? left : CHUNK_BYTES, MSG_DONTWAIT);
    else
        n = recv(c->fd, c->buffer + c->end, READ_BYTES - c->end, MSG_DONTWAIT);
    if (n <= 0)
        return n;
    c->n_incomplete += (size_t)n;
    lh_status status = LH_OK;
    if (direct) {
        add_payload(c, c->into + c->filled, (size_t)n);
        if (c->filled == c->size && !c->tail_bytes)
            status = end_frame(s, peer, err);
    } else {
        c->end += (size_t)n;
        status = consume_buffer(s, peer, err);
    }
    if (status == LH_OK)
        return n;
    errno = EPROTO;
    return -1;
}

/* Closes the connection to a peer that has ended or failed; `why`: the cause,
 * for the run's failure unless the peer had shut down in order. */
static void close_lost(stream *s, uint32_t peer, const char *why)
{
    connection *c = &s->connections[peer];
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    close(c->fd);
    c->fd = -1;
    c->writes = false;
    c->into = NULL;
    if (s->proto.peers[peer].has_shut_down) {
        fail_queued(s, c);
        return;
    }
    c->lost_ns = lhi_now_ns();
    if (!s->watched)
        fail_peer(s, peer, why);
}

/* Reads from the connection to a peer, and handles the frames, until it is
 * empty, closed or invalid. */
static void read_all(stream *s, uint32_t peer)
{
    connection *c = &s->connections[peer];
    lh_error err = {0};
    ssize_t n = 0;
    for (size_t done = 0; c->fd >= 0 && done < CHUNK_BYTES; done += (size_t)n) {
        n = read_some(s, peer, &err);
        if (n < 0 && errno == EINTR) {
            n = 0;
            continue;
        }
        if (n <= 0)
            break;
    }
    if (s->silence_ns)
        c->last_received_ns = lhi_now_ns();
    if (n > 0 || c->fd < 0 ||
        (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)))
        return;
    char why[600];
    if (n == 0)
        snprintf(why, sizeof why,
                 "its connection to rank %u was closed (its process has "
                 "probably ended)",
                 s->proto.net.rank);
    else if (err.code != LH_OK)
        snprintf(why, sizeof why, "rank %u received invalid data from it: %s",
                 s->proto.net.rank, err.text);
    else
        snprintf(why, sizeof why, "its connection to rank %u was lost: %s",
                 s->proto.net.rank, strerror(errno));
    if (n < 0 && err.code == LH_ENOMEM)
        lhi_failure_set(s->proto.net.failure, s->proto.net.rank, err.text);
    else if (n < 0 && err.code != LH_OK) /* even if a launcher detects deaths */
        fail_peer(s, peer, why);
    if (err.code != LH_OK)
        send_failure(s); /* the peer gets the reason too */
    close_lost(s, peer, why);
}

/* ---- the communication thread ---- */

/* Fails the run if bytes were lost in the middle of a peer's frame: the frame
 * has made almost no progress although keep-alives arrived, which are then
 * being read as its missing bytes. */
static void check_stuck_frame(stream *s, uint32_t peer, int64_t now_ns)
{
    connection *c = &s->connections[peer];
    bool whole = !c->in_frame && c->end == 0;
    if (whole || c->n_incomplete >= min_frame_progress) {
        c->incomplete_ns = now_ns;
        c->n_incomplete = 0;
    } else if (now_ns - c->incomplete_ns > s->silence_ns) {
        char why[150];
        snprintf(why, sizeof why,
                 "it sent only %zu bytes of a message within %.1f s, as "
                 "measured by rank %u: some were lost",
                 c->n_incomplete, (double)(now_ns - c->incomplete_ns) * 1e-9,
                 s->proto.net.rank);
        fail_peer(s, peer, why);
    }
}

/* Extends all timeouts if this thread itself is late, for example because the
 * job or its machine was stopped: the peers' activity meanwhile is unknown. */
static void extend_timeouts(stream *s, int64_t late_ns, int64_t now_ns)
{
    for (uint32_t i = 0; i < s->proto.net.n_ranks; i++) {
        connection *c = &s->connections[i];
        c->last_received_ns =
            lhi_advance_time_ns(c->last_received_ns, late_ns, now_ns);
        c->incomplete_ns =
            lhi_advance_time_ns(c->incomplete_ns, late_ns, now_ns);
    }
}

/* Handles all timeouts (keep-alives, silent peers); returns the time of the
 * next one, or -1. `due_ns`: time at which this call was due, below 1: none. */
static int64_t run_timers(stream *s, int64_t due_ns)
{
    int64_t now_ns = lhi_now_ns(), next_ns = -1;
    if (lhi_failure_text(s->proto.net.failure))
        return -1;
    if (due_ns > 0 && now_ns - due_ns > s->silence_ns / 8)
        extend_timeouts(s, now_ns - due_ns, now_ns);
    for (uint32_t i = 0; i < s->proto.net.n_ranks; i++) {
        connection *c = &s->connections[i];
        if (c->lost_ns && !s->proto.peers[i].has_shut_down) {
            if (now_ns - c->lost_ns > 1000 * ms_ns)
                fail_peer(s, i, "its connections were closed");
            next_ns = now_ns + 200 * ms_ns;
        }
        if (c->cancelled_ns) {
            if (now_ns - c->cancelled_ns > 1000 * ms_ns)
                fail_peer(s, i, "it cancelled a message and sent no reason");
            next_ns = now_ns + 200 * ms_ns;
        }
        if (c->fd < 0 || !s->silence_ns || s->proto.peers[i].has_shut_down)
            continue;
        next_ns = now_ns + s->silence_ns / 8;
        check_stuck_frame(s, i, now_ns);
        if (now_ns - c->last_received_ns > s->silence_ns) {
            char why[100];
            snprintf(why, sizeof why,
                     "silent for %.1f s, as measured by rank %u",
                     (double)(now_ns - c->last_received_ns) * 1e-9,
                     s->proto.net.rank);
            fail_peer(s, i, why);
        } else if (c->writes && !c->first && !c->shutdown_sent &&
                   now_ns - c->last_sent_ns > s->silence_ns / 4) {
            lhi_frame ping = {.kind = LHI_FRAME_PING};
            stream_frame(&s->proto, i, &ping, NULL, NULL, NULL);
        }
    }
    return next_ns;
}

/* Main function for the communication thread: reads and writes frames, sends
 * keep-alives, and propagates failures. */
static void *thread_main(void *of)
{
    stream *s = of;
    struct epoll_event events[32];
    int64_t next_ns = 0;
    for (;;) {
        int wait_ms = -1;
        if (next_ns >= 0) {
            int64_t left_ns = next_ns - lhi_now_ns();
            wait_ms = left_ns <= 0 ? 0 : (int)(left_ns / ms_ns) + 1;
        }
        int n = epoll_wait(s->epoll, events, 32, wait_ms);
        pthread_mutex_lock(&s->proto.lock);
        for (int i = 0; i < n; i++) {
            uint32_t peer = events[i].data.u32;
            if (peer == UINT32_MAX) {
                uint64_t count;
                ssize_t got = read(s->wakeup_fd, &count, sizeof count);
                (void)got;
                continue;
            }
            if (s->connections[peer].fd >= 0 &&
                (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
                read_all(s, peer);
            if (s->connections[peer].fd >= 0 && (events[i].events & EPOLLOUT))
                flush(s, peer, CHUNK_BYTES);
        }
        next_ns = run_timers(s, next_ns);
        send_failure(s);
        bool stop = s->stop;
        pthread_mutex_unlock(&s->proto.lock);
        if (stop)
            return NULL;
    }
}

/* ---- calls from other threads ---- */

/* Fails the run; the communication thread sends the failure to the peers. */
static void stream_abort(lhi_net *net, const char *reason)
{
    stream *s = (stream *)net;
    lhi_failure_set(net->failure, net->rank, reason);
    wake_thread(s);
}

/* Returns the bytes that the peers' systems have not acknowledged; the lock
 * must be held. */
static uint64_t count_unacknowledged(stream *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->proto.net.n_ranks; i++) {
        const connection *c = &s->connections[i];
        int queued = 0;
        if (c->fd < 0 || !c->writes)
            continue;
        for (const lhi_outgoing_frame *o = c->first; o; o = o->next)
            n += o->size - o->sent;
        /* Local processes always read queued bytes; their launcher monitors
         * them. */
        if (!s->watched && s->silence_ns &&
            ioctl(c->fd, SIOCOUTQ, &queued) == 0 && queued > 0)
            n += (uint64_t)queued;
    }
    return n;
}

/* Sends the orderly shutdown, or the failure's reason, to all peers and waits
 * until it is transmitted. */
static void shut_down(stream *s)
{
    pthread_mutex_lock(&s->proto.lock);
    bool failed = lhi_failure_text(s->proto.net.failure) != NULL;
    /* Also forwards a failure received from another rank: peers without it
     * would take this rank, which leaves, for the cause. */
    s->failure_shared = s->failure_shared && !s->failure_received;
    send_failure(s);
    lhi_frame bye = {.kind = LHI_FRAME_BYE};
    for (uint32_t i = 0; i < s->proto.net.n_ranks && !failed; i++) {
        connection *c = &s->connections[i];
        if (c->writes &&
            stream_frame(&s->proto, i, &bye, NULL, NULL, NULL) == LH_OK)
            c->shutdown_sent = true;
    }
    /* In a failed run, a peer that accepts nothing is abandoned sooner than a
     * slow one. */
    int64_t end_ns = lhi_now_ns() + 3000 * ms_ns, moved_ns = lhi_now_ns();
    uint64_t left = 0, n;
    while ((n = count_unacknowledged(s)) > 0 && lhi_now_ns() < end_ns) {
        if (n != left)
            moved_ns = lhi_now_ns();
        else if (failed && lhi_now_ns() - moved_ns > 500 * ms_ns)
            break;
        left = n;
        pthread_mutex_unlock(&s->proto.lock);
        lhi_sleep_for(2 * ms_ns);
        pthread_mutex_lock(&s->proto.lock);
    }
    s->stop = true;
    pthread_mutex_unlock(&s->proto.lock);
    wake_thread(s);
}

/* Closes the sockets and releases the endpoint and its queued frames. */
static void stream_free(stream *s)
{
    for (uint32_t i = 0; s->connections && i < s->proto.net.n_ranks; i++) {
        connection *c = &s->connections[i];
        while (c->first) {
            lhi_outgoing_frame *o = c->first;
            c->first = o->next;
            free(o);
        }
        free(c->kept);
        free(c->spare);
        lhi_frame_mac_free(c->seals_out);
        lhi_frame_mac_free(c->seals_in);
        if (c->fd >= 0)
            close(c->fd);
    }
    free(s->connections);
    if (s->epoll >= 0)
        close(s->epoll);
    if (s->wakeup_fd >= 0)
        close(s->wakeup_fd);
    lhi_proto_fini(&s->proto);
    free(s);
}

/* Closes the endpoint: sends the queued frames, performs an orderly shutdown,
 * and stops the communication thread. */
static void stream_close(lhi_net *net)
{
    stream *s = (stream *)net;
    lhi_proto_drain(&s->proto);
    shut_down(s);
    pthread_join(s->thread, NULL);
    void (*closed)(void *context) = s->closed;
    void *context = s->context;
    stream_free(s);
    if (closed)
        closed(context);
}

/* Adds descriptor `fd` to the epoll set; its events carry `what`: a peer's
 * rank, or UINT32_MAX for the wake-up descriptor. */
static lh_status add_to_epoll(stream *s, int fd, uint32_t what, lh_error *err)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = what};
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) == 0)
        return LH_OK;
    return lhi_fail(err, LH_EIO, "cannot monitor a connection: %s",
                    strerror(errno));
}

/* Creates the MAC (authentication code) states of the connection to a peer, one
 * per direction, from the connection's key. */
static lh_status make_macs(stream *s, uint32_t peer, const unsigned char *key,
                           lh_error *err)
{
    connection *c = &s->connections[peer];
    bool up = s->proto.net.rank < peer;
    LHI_TRY(lhi_frame_mac_make(key, up, &c->seals_out, err));
    LHI_TRY(lhi_frame_mac_make(key, !up, &c->seals_in, err));
    c->head_bytes = lhi_frame_head_bytes(c->seals_in);
    c->tail_bytes = lhi_frame_tail_bytes(c->seals_in);
    return LH_OK;
}

/* Starts the communication thread and its epoll set. On failure the caller
 * still owns the connections. */
static lh_status start(stream *s, const lhi_stream_options *o, lh_error *err)
{
    const int *fds = o->fds;
    uint32_t n = s->proto.net.n_ranks;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->epoll < 0 || s->wakeup_fd < 0)
        return lhi_fail(err, LH_EIO, "cannot monitor connections: %s",
                        strerror(errno));
    s->connections = calloc(n, sizeof *s->connections);
    if (!s->connections)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        s->connections[i].fd = -1;
    LHI_TRY(add_to_epoll(s, s->wakeup_fd, UINT32_MAX, err));
    int64_t now_ns = lhi_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        if (fds[i] < 0)
            continue;
        s->connections[i].spare =
            malloc(sizeof(lhi_outgoing_frame) + LHI_ABORT_BYTES);
        if (!s->connections[i].spare)
            return lhi_fail_nomem(err);
        LHI_TRY(add_to_epoll(s, fds[i], i, err));
        s->connections[i].head_bytes = lhi_frame_head_bytes(NULL);
        if (o->keys)
            LHI_TRY(make_macs(
                s, i, o->keys + (size_t)i * LHI_FRAME_MAC_KEY_BYTES, err));
        s->connections[i].last_received_ns = s->connections[i].last_sent_ns =
            now_ns;
        s->connections[i].incomplete_ns = now_ns;
    }
    for (uint32_t i = 0; i < n; i++) {
        s->connections[i].fd = fds[i];
        s->connections[i].writes = fds[i] >= 0;
    }
    int error = pthread_create(&s->thread, NULL, thread_main, s);
    if (error == 0)
        return LH_OK;
    for (uint32_t i = 0; i < n; i++)
        s->connections[i].fd = -1;
    return lhi_fail(err, LH_EIO, "cannot start a communication thread: %s",
                    strerror(error));
}

lh_status lhi_net_stream(const lhi_stream_options *options, lhi_net **out,
                         lh_error *err)
{
    stream *s = calloc(1, sizeof *s);
    if (!s)
        return lhi_fail_nomem(err);
    s->ops = (lhi_net_ops){.name = options->name,
                           .send = lhi_proto_send,
                           .receive = lhi_proto_receive,
                           .cancel = lhi_proto_cancel,
                           .abort = stream_abort,
                           .close = stream_close};
    s->proto.net = (lhi_net){.ops = &s->ops,
                             .rank = options->rank,
                             .n_ranks = options->n_ranks,
                             .links = options->links,
                             .failure = options->failure ? options->failure
                                                         : &s->own_failure};
    s->proto.carrier = &stream_carrier;
    s->watched = options->watched;
    s->silence_ns = options->silence_ns;
    s->epoll = s->wakeup_fd = -1;
    s->closed = options->closed;
    s->context = options->context;
    lh_status status = lhi_proto_init(&s->proto, err);
    if (status == LH_OK) {
        status = start(s, options, err);
        if (status == LH_OK) {
            *out = &s->proto.net;
            return LH_OK;
        }
    } else {
        free(s);
        return status;
    }
    stream_free(s);
    return status;
}
