/* SPDX-License-Identifier: Apache-2.0 */
/* Transfer over one rail: segments and acknowledgements, each with its MACs. */
#define _GNU_SOURCE
#include "runtime/transport/rails_internal.h"

#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/transport/sockets.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Bytes before a segment's data: header and authentication code. */
static const size_t head_bytes = LHI_RAIL_HEAD + LHI_FRAME_MAC_BYTES;

/* Returns a ring buffer's entry for segment number `number`; entries are reused
 * when the ring is full. */
static lhi_segment **get_ring_entry(lhi_segment **ring, uint64_t number)
{
    return &ring[number % LHI_RAIL_WINDOW];
}

/* ---- activation and closing ---- */

/* Records, for notices to the user, that a rail (parallel connection) to a peer
 * was lost (`error`: errno) or restored after away_ns. Only the connecting end
 * does. */
static void record_event(lhi_rails *s, uint32_t peer, uint32_t rail, int error,
                         int64_t away_ns)
{
    if (s->rank < peer)
        return;
    pthread_mutex_lock(&s->lock);
    s->events[s->n_events++ % LHI_RAIL_EVENTS] = (lhi_rail_event){
        .peer = peer, .rail = rail, .error = error, .downtime_ns = away_ns};
    if (s->n_events - s->n_reported > LHI_RAIL_EVENTS)
        s->n_reported = s->n_events - LHI_RAIL_EVENTS;
    pthread_mutex_unlock(&s->lock);
}

void lhi_rail_close(lhi_rails *s, uint32_t peer, uint32_t rail, int error)
{
    lhi_rail_peer *p = &s->peers[peer];
    lhi_rail *r = &p->rails[rail];
    if (r->state == LHI_RAIL_DOWN)
        return;
    bool was_up = r->state == LHI_RAIL_UP;
    struct linger at_once = {1, 0};
    /* Bytes in transit are useless now, so close without lingering. */
    if (error || was_up)
        setsockopt(r->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(r->fd);
    lhi_frame_mac_free(r->seals_out);
    lhi_frame_mac_free(r->seals_in);
    free(r->in);
    if (r->out) {
        r->out->being_written = false;
        if (r->out->free_after_write)
            free(r->out);
    }
    *r = (lhi_rail){.fd = -1,
                    .was_up = r->was_up,
                    .lost_ns = was_up ? lhi_now_ns() : r->lost_ns,
                    .error = error,
                    .retry_ns = lhi_now_ns() + LHI_RAIL_TIMEOUT_NS / 3};
    if (!was_up)
        return;
    if (!p->in_ended) {
        lhi_rails_add_statistic(&s->statistics.n_lost, 1);
        record_event(s, peer, rail, error, -1);
    }
    r->retry_ns = lhi_now_ns();
    for (uint64_t n = p->acknowledged; n < p->next; n++) {
        lhi_segment *g = *get_ring_entry(p->sent, n);
        if (g->waiting || g->rail != rail)
            continue;
        g->waiting = g->retransmission = true;
        p->n_waiting++;
        if (n < p->first_waiting)
            p->first_waiting = n;
    }
    p->owes_ack = true; /* its acknowledgement may have been lost */
}

lh_status lhi_rail_activate(lhi_rails *s, uint32_t peer, uint32_t rail, int fd,
                            const lhi_handshake *shake, int64_t answer_ns,
                            lh_error *err)
{
    lhi_rail_peer *p = &s->peers[peer];
    lhi_rail *r = &p->rails[rail];
    unsigned char key[LHI_FRAME_MAC_KEY_BYTES];
    bool up = s->rank < peer;
    lhi_frame_mac *out = NULL, *in = NULL;
    lhi_handshake_compute_mac(s->keys + (size_t)peer * LHI_MAC_BYTES,
                              LHI_MAC_BYTES, "rail frames", shake, NULL, 0,
                              key);
    LHI_TRY(lhi_frame_mac_make(key, up, &out, err));
    lh_status status = lhi_frame_mac_make(key, !up, &in, err);
    if (status != LH_OK) {
        lhi_frame_mac_free(out);
        return status;
    }
    /* Limits unsent bytes in the kernel, so that written segments are sent soon
     * and others can still use another rail. */
    int lowat = 2 * LHI_RAIL_SEGMENT_BYTES;
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof lowat);
    bool was_up = r->was_up;
    if (r->fd != fd)
        lhi_rail_close(s, peer, rail, 0);
    int64_t now_ns = lhi_now_ns();
    if (was_up)
        record_event(s, peer, rail, 0, now_ns - r->lost_ns);
    *r = (lhi_rail){.state = LHI_RAIL_UP,
                    .fd = fd,
                    .was_up = true,
                    .writable = true,
                    .last_input_ns = now_ns,
                    .timeout_ns = LHI_RAIL_TIMEOUT_NS,
                    .seals_out = out,
                    .seals_in = in};
    if (4 * answer_ns > r->timeout_ns)
        r->timeout_ns = answer_ns < LHI_RAIL_TIMEOUT_NS
                            ? 4 * answer_ns
                            : 4 * LHI_RAIL_TIMEOUT_NS;
    if (was_up)
        lhi_rails_add_statistic(&s->statistics.n_restored, 1);
    else
        __atomic_fetch_add(&s->n_up, 1, __ATOMIC_RELEASE);
    lhi_rail_send_ack(s, peer, rail);
    return LH_OK;
}

/* Closes this end of the local stream (socket pair with the rank's protocol)
 * for a peer, from which the rank sees that the peer is lost. */
static void close_local_stream(lhi_rail_peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    p->given_up = true;
    p->stopped_receiving = true;
}

void lhi_rails_fail_peer(lhi_rails *s, uint32_t peer, const char *why)
{
    if (peer == s->rank)
        lhi_failure_set(s->failure, peer, why);
    else
        lhi_failure_set_loss(s->failure, peer, why);
    /* The closed stream wakes this rank, which informs the others. */
    for (uint32_t i = 0; i < s->n_ranks; i++)
        if (i != s->rank && (i == peer || peer == s->rank))
            close_local_stream(&s->peers[i]);
}

/* ---- writing ---- */

/* Prepares the next frame, with header and MACs, that a rail (parallel
 * connection) writes to a peer. `g`: segment (numbered piece of the stream) to
 * carry, NULL: a keep-alive frame. */
static void prepare_frame(const lhi_rails *s, uint32_t peer, uint32_t rail,
                          lhi_segment *g)
{
    lhi_rail_peer *p = &s->peers[peer];
    lhi_rail *r = &p->rails[rail];
    lhi_rail_head h = {.kind = g ? LHI_RAIL_SEGMENT : LHI_RAIL_ALIVE,
                       .acknowledged = p->expected};
    if (g) {
        h.number = g->number;
        h.size = g->size;
        g->waiting = false;
        g->being_written = true;
        g->rail = rail;
    }
    lhi_rail_head_write(&h, r->out_head);
    lhi_frame_mac_begin(r->seals_out, LHI_FRAME_MAC_HEADER);
    lhi_frame_mac_add(r->seals_out, r->out_head, LHI_RAIL_HEAD);
    lhi_frame_mac_end(r->seals_out, r->out_head + LHI_RAIL_HEAD);
    if (h.size) {
        lhi_frame_mac_begin(r->seals_out, LHI_FRAME_MAC_PAYLOAD);
        lhi_frame_mac_add(r->seals_out, g->bytes, g->size);
        lhi_frame_mac_end(r->seals_out, r->out_tail);
    }
    r->out = g;
    r->out_sent = 0;
    r->out_size = head_bytes + h.size + (h.size ? LHI_FRAME_MAC_BYTES : 0);
    r->writing = true;
    p->owes_ack = false;
}

/* Returns an I/O vector of a buffer's remaining bytes, after the first `done`.
 */
static struct iovec get_remaining_part(unsigned char *bytes, size_t size,
                                       size_t done)
{
    if (done > size)
        done = size;
    return (struct iovec){bytes + done, size - done};
}

/* Writes as much of the prepared frame of a rail (parallel connection) as its
 * socket takes; true: completely written. */
static bool write_frame(lhi_rails *s, uint32_t peer, uint32_t rail)
{
    lhi_rail *r = &s->peers[peer].rails[rail];
    uint32_t size = r->out ? r->out->size : 0;
    while (r->out_sent < r->out_size) {
        size_t done = r->out_sent, gone = head_bytes + size;
        struct iovec parts[3] = {
            get_remaining_part(r->out_head, head_bytes, done),
            get_remaining_part(r->out ? r->out->bytes : r->out_tail, size,
                               done > head_bytes ? done - head_bytes : 0),
            get_remaining_part(r->out_tail, r->out_size - gone,
                               done > gone ? done - gone : 0)};
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = 3};
        ssize_t n = sendmsg(r->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            r->writable = false;
            /* A lost connection is detected by reading. */
            return false;
        }
        r->out_sent += (size_t)n;
        r->last_output_ns = lhi_now_ns();
    }
    lhi_segment *g = r->out;
    r->writing = false;
    r->out = NULL;
    if (!g)
        return true;
    lhi_rails_add_statistic(&s->statistics.sent[rail], g->size);
    if (g->retransmission)
        lhi_rails_add_statistic(&s->statistics.n_retransmitted, 1);
    g->being_written = false;
    if (g->free_after_write)
        free(g);
    return true;
}

/* Removes and returns the next segment (numbered piece of the stream) that
 * waits to be sent to the peer; NULL: none. */
static lhi_segment *take_next_waiting(lhi_rail_peer *p)
{
    for (; p->n_waiting > 0 && p->first_waiting < p->next; p->first_waiting++) {
        lhi_segment *g = *get_ring_entry(p->sent, p->first_waiting);
        if (!g->waiting)
            continue;
        /* The rail that had the segment may still be writing it. */
        p->n_waiting--;
        p->first_waiting++;
        return g;
    }
    return NULL;
}

bool lhi_rail_has_work(const lhi_rail_peer *p, const lhi_rail *r)
{
    return r->state == LHI_RAIL_UP && (r->writing || p->n_waiting > 0);
}

/* Returns the idle rail (parallel connection) with the most recent input, as
 * the most reliable one for acknowledgements. */
static uint32_t find_ack_rail(const lhi_rails *s, const lhi_rail_peer *p)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t k = 0; k < s->n_rails; k++) {
        const lhi_rail *r = &p->rails[k];
        if (r->state == LHI_RAIL_UP && !r->writing &&
            (best == UINT32_MAX ||
             r->last_input_ns > p->rails[best].last_input_ns))
            best = k;
    }
    return best;
}

void lhi_rail_send_segments(lhi_rails *s, uint32_t peer)
{
    lhi_rail_peer *p = &s->peers[peer];
    bool any = true;
    for (uint32_t k = 0; k < s->n_rails; k++)
        if (p->rails[k].writing && p->rails[k].writable)
            write_frame(s, peer, k);
    while (any && p->n_waiting > 0) {
        any = false;
        for (uint32_t i = 0; i < s->n_rails && p->n_waiting > 0; i++) {
            uint32_t k = (p->next_rail + i) % s->n_rails;
            lhi_rail *r = &p->rails[k];
            if (r->state != LHI_RAIL_UP || r->writing || !r->writable)
                continue;
            lhi_segment *g = take_next_waiting(p);
            if (!g)
                break;
            prepare_frame(s, peer, k, g);
            write_frame(s, peer, k);
            p->next_rail = k + 1;
            any = true;
            break;
        }
    }
    uint32_t k = p->owes_ack ? find_ack_rail(s, p) : UINT32_MAX;
    if (k != UINT32_MAX)
        lhi_rail_send_ack(s, peer, k);
}

void lhi_rail_send_ack(lhi_rails *s, uint32_t peer, uint32_t rail)
{
    if (s->peers[peer].rails[rail].writing)
        return;
    prepare_frame(s, peer, rail, NULL);
    write_frame(s, peer, rail);
}

/* ---- reading ---- */

/* Frees the segments (numbered pieces of the stream) below number `number`,
 * which the peer has acknowledged. LH_EIO: an impossible number. */
static lh_status release_acknowledged(lhi_rails *s, lhi_rail_peer *p,
                                      uint64_t number, lh_error *err)
{
    (void)s;
    if (number > p->next)
        return lhi_fail(err, LH_EIO,
                        "it acknowledged segments that were not sent");
    if (number > p->acknowledged)
        p->last_progress_ns = lhi_now_ns();
    for (; p->acknowledged < number; p->acknowledged++) {
        lhi_segment **at = get_ring_entry(p->sent, p->acknowledged), *g = *at;
        *at = NULL;
        p->n_waiting -= g->waiting;
        g->free_after_write = true;
        if (!g->being_written)
            free(g);
    }
    if (p->first_waiting < p->acknowledged)
        p->first_waiting = p->acknowledged;
    return LH_OK;
}

/* Handles an authenticated frame header of rail `r`: frees the segments that it
 * acknowledges, and prepares to receive the segment (numbered piece of the
 * stream) that follows. */
static lh_status handle_header(lhi_rails *s, uint32_t peer, lhi_rail *r,
                               lh_error *err)
{
    lhi_rail_peer *p = &s->peers[peer];
    LHI_TRY(lhi_rail_head_read(r->in_head, &r->in_frame, err));
    const lhi_rail_head *h = &r->in_frame;
    LHI_TRY(release_acknowledged(s, p, h->acknowledged, err));
    if (h->kind != LHI_RAIL_SEGMENT)
        return LH_OK;
    if (h->number >= p->expected + LHI_RAIL_WINDOW)
        return lhi_fail(err, LH_EIO, "it sent a segment beyond the window");
    r->in = malloc(sizeof *r->in + h->size);
    if (!r->in)
        return lhi_fail_nomem(err);
    *r->in = (lhi_segment){.number = h->number, .size = h->size};
    return LH_OK;
}

/* Handles a complete, authenticated frame of rail `r`: stores its segment
 * (numbered piece of the stream), and writes segments that are in order to the
 * local stream. */
static lh_status handle_frame(lhi_rails *s, uint32_t peer, lhi_rail *r,
                              lh_error *err)
{
    lhi_rail_peer *p = &s->peers[peer];
    lhi_segment *g = r->in;
    r->last_input_ns = p->last_input_ns = lhi_now_ns();
    r->in = NULL;
    r->in_got = 0;
    if (!g)
        return LH_OK;
    p->owes_ack = true;
    if (!p->received)
        p->received = calloc(LHI_RAIL_WINDOW, sizeof(lhi_segment *));
    if (!p->received) {
        free(g);
        return lhi_fail_nomem(err);
    }
    lhi_segment **at = get_ring_entry(p->received, g->number);
    if (g->number < p->expected || *at) {
        lhi_rails_add_statistic(&s->statistics.n_duplicates, 1);
        free(g);
    } else {
        *at = g;
    }
    return LH_OK;
}

/* Checks the MAC `seal` over `n` bytes of a received frame's header or payload
 * (`what`); true: correct. */
static bool verify_mac(lhi_rail *r, lhi_frame_mac_part what, const void *bytes,
                       size_t n, const unsigned char *seal)
{
    lhi_frame_mac_begin(r->seals_in, what);
    lhi_frame_mac_add(r->seals_in, bytes, n);
    return lhi_frame_mac_verify(r->seals_in, seal);
}

/* Returns the buffer for the next bytes of the frame being received (header,
 * payload or MAC), and its remaining size *n. */
static unsigned char *next_destination(lhi_rail *r, size_t *n)
{
    size_t at = r->in_got, size = r->in ? r->in->size : 0;
    if (at < head_bytes) {
        *n = head_bytes - at;
        return r->in_head + at;
    }
    at -= head_bytes;
    if (at < size) {
        *n = size - at;
        return r->in->bytes + at;
    }
    at -= size;
    *n = LHI_FRAME_MAC_BYTES - at;
    return r->in_tail + at;
}

/* Handles the bytes just received on rail `r`: once a header, payload or MAC is
 * complete, checks and handles it. */
static lh_status handle_bytes(lhi_rails *s, uint32_t peer, lhi_rail *r,
                              lh_error *err)
{
    static const char broken[] = "a frame failed authentication";
    if (r->in_got < head_bytes)
        return LH_OK;
    if (r->in_got == head_bytes) {
        if (!verify_mac(r, LHI_FRAME_MAC_HEADER, r->in_head, LHI_RAIL_HEAD,
                        r->in_head + LHI_RAIL_HEAD))
            return lhi_fail(err, LH_EIO, broken);
        LHI_TRY(handle_header(s, peer, r, err));
        return r->in_frame.size ? LH_OK : handle_frame(s, peer, r, err);
    }
    /* Duplicate segments are dropped only when complete. */
    if (r->in_got < head_bytes + r->in->size + LHI_FRAME_MAC_BYTES)
        return LH_OK;
    if (!verify_mac(r, LHI_FRAME_MAC_PAYLOAD, r->in->bytes, r->in->size,
                    r->in_tail))
        return lhi_fail(err, LH_EIO, broken);
    return handle_frame(s, peer, r, err);
}

void lhi_rail_read(lhi_rails *s, uint32_t peer, uint32_t rail)
{
    lhi_rail *r = &s->peers[peer].rails[rail];
    lh_error err = {0};
    size_t done = 0;
    lh_status status = LH_OK;
    while (status == LH_OK && done < 4 * LHI_RAIL_SEGMENT_BYTES) {
        size_t most;
        unsigned char *into = next_destination(r, &most);
        ssize_t n = recv(r->fd, into, most, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n <= 0) {
            lhi_rail_close(s, peer, rail, n < 0 ? errno : ECONNRESET);
            return;
        }
        /* Unauthenticated bytes keep a rail alive only briefly, since at most
         * one segment can precede its MAC. */
        r->last_input_ns = lhi_now_ns();
        r->in_got += (size_t)n;
        done += (size_t)n;
        status = handle_bytes(s, peer, r, &err);
    }
    if (status == LH_OK)
        return;
    if (status == LH_ENOMEM)
        lhi_rails_fail_peer(s, s->rank, err.text);
    lhi_rail_close(s, peer, rail, EPROTO);
}
