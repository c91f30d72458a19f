/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/outgoing_frame.h"

#include <sys/socket.h>
#include <sys/uio.h>

static const unsigned char zeros[4096];

/* Returns the address of the frame's payload bytes from offset `at` on. A
 * cancelled frame's bytes are zeros, of which *n are available at that address.
 * */
static const unsigned char *get_payload(const lhi_outgoing_frame *o, size_t at,
                                        size_t *n)
{
    if (o->payload)
        return o->payload + at;
    if (*n > sizeof zeros)
        *n = sizeof zeros;
    return zeros;
}

/* Returns an I/O vector for writing `n` bytes at `bytes`. */
static struct iovec make_vector(const unsigned char *bytes, size_t n)
{
    union {
        const unsigned char *in;
        void *base;
    } data = {bytes}; /* sends only read them */
    return (struct iovec){data.base, n};
}

/* Computes the MAC (authentication code) of the frame's header, before the
 * frame's first byte is sent. */
static void add_header_mac(lhi_outgoing_frame *o, lhi_frame_mac *seals)
{
    if (!seals || o->has_header_mac)
        return;
    o->has_header_mac = true;
    lhi_frame_mac_begin(seals, LHI_FRAME_MAC_HEADER);
    lhi_frame_mac_add(seals, o->header, LHI_FRAME_BYTES);
    lhi_frame_mac_end(seals, o->header + LHI_FRAME_BYTES);
}

/* Replaces the payload's MAC (authentication code) by one that marks the
 * message as void, so that the receiver drops it. */
static void add_void_mac(lhi_outgoing_frame *o, lhi_frame_mac *seals)
{
    if (!seals)
        return;
    lhi_frame_mac_begin(seals, LHI_FRAME_MAC_VOID);
    lhi_frame_mac_end(seals, o->payload_mac);
}

/* Adds the payload bytes up to offset `end` that its MAC (authentication code)
 * does not yet cover to the MAC. */
static void extend_payload_mac(lhi_outgoing_frame *o, lhi_frame_mac *seals,
                               size_t end)
{
    if (!seals || o->n_authenticated >= end)
        return;
    if (o->n_authenticated == 0)
        lhi_frame_mac_begin(seals, LHI_FRAME_MAC_PAYLOAD);
    if (o->payload)
        lhi_frame_mac_add(seals, o->payload + o->n_authenticated,
                          end - o->n_authenticated);
    o->n_authenticated = end;
    if (end == o->payload_size && o->payload)
        lhi_frame_mac_end(seals, o->payload_mac);
    else if (end == o->payload_size)
        add_void_mac(o, seals);
}

ssize_t lhi_outgoing_frame_write(lhi_outgoing_frame *o, int fd,
                                 lhi_frame_mac *seals, size_t most)
{
    size_t head = lhi_frame_head_bytes(seals),
           tail = lhi_frame_tail_bytes(seals);
    struct iovec parts[3];
    size_t n = 0, done = o->sent;
    add_header_mac(o, seals);
    if (done < head) {
        parts[n++] = make_vector(o->header + done, head - done);
        done = head;
    }
    size_t at = done - head;
    if (at < o->payload_size) {
        size_t some = o->payload_size - at;
        if (some > most)
            some = most;
        const unsigned char *bytes = get_payload(o, at, &some);
        extend_payload_mac(o, seals, at + some);
        parts[n++] = make_vector(bytes, some);
        at += some;
    }
    if (at >= o->payload_size && at < o->size - head) {
        size_t gone = at - o->payload_size;
        parts[n++] = make_vector(o->payload_mac + gone, tail - gone);
    }
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = n};
    return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void lhi_outgoing_frame_cancel(lhi_outgoing_frame *o, lhi_frame_mac *seals)
{
    o->op = NULL;
    if (o->sent >= lhi_frame_head_bytes(seals) + o->payload_size)
        return;
    o->payload = NULL;
    /* A frame without payload has no payload MAC, and the MAC state may belong
     * to the frame before it. */
    if (o->payload_size > 0 && o->n_authenticated == o->payload_size)
        add_void_mac(o, seals);
}
