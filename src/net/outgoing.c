/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "net/outgoing.h"

#include <sys/socket.h>
#include <sys/uio.h>

static const unsigned char zeros[4096];

/* Returns the payload's bytes from `at` on; zeros come in pieces, whose size
 * limits *n. */
static const unsigned char *payload_at(const lhi_outgoing *o, size_t at,
                                       size_t *n)
{
    if (o->payload)
        return o->payload + at;
    if (*n > sizeof zeros)
        *n = sizeof zeros;
    return zeros;
}

static struct iovec part(const unsigned char *bytes, size_t n)
{
    union {
        const unsigned char *in;
        void *base;
    } data = {bytes}; /* sends only read them */
    return (struct iovec){data.base, n};
}

/* Computes the header's MAC before the frame's first byte is sent. */
static void seal_header(lhi_outgoing *o, lhi_seal *seals)
{
    if (!seals || o->has_begun)
        return;
    o->has_begun = true;
    lhi_seal_begin(seals, LHI_SEAL_HEADER);
    lhi_seal_add(seals, o->header, LHI_FRAME_BYTES);
    lhi_seal_end(seals, o->header + LHI_FRAME_BYTES);
}

/* Replaces the payload's MAC by one that marks the message as void. */
static void void_seal(lhi_outgoing *o, lhi_seal *seals)
{
    if (!seals)
        return;
    lhi_seal_begin(seals, LHI_SEAL_VOID);
    lhi_seal_end(seals, o->seal);
}

/* Extends the payload's MAC up to `end`. */
static void seal_payload(lhi_outgoing *o, lhi_seal *seals, size_t end)
{
    if (!seals || o->n_sealed >= end)
        return;
    if (o->n_sealed == 0)
        lhi_seal_begin(seals, LHI_SEAL_PAYLOAD);
    if (o->payload)
        lhi_seal_add(seals, o->payload + o->n_sealed, end - o->n_sealed);
    o->n_sealed = end;
    if (end == o->payload_size && o->payload)
        lhi_seal_end(seals, o->seal);
    else if (end == o->payload_size)
        void_seal(o, seals);
}

ssize_t lhi_outgoing_write(lhi_outgoing *o, int fd, lhi_seal *seals,
                           size_t most)
{
    size_t head = lhi_head_bytes(seals), tail = lhi_tail_bytes(seals);
    struct iovec parts[3];
    size_t n = 0, done = o->sent;
    seal_header(o, seals);
    if (done < head) {
        parts[n++] = part(o->header + done, head - done);
        done = head;
    }
    size_t at = done - head;
    if (at < o->payload_size) {
        size_t some = o->payload_size - at;
        if (some > most)
            some = most;
        const unsigned char *bytes = payload_at(o, at, &some);
        seal_payload(o, seals, at + some);
        parts[n++] = part(bytes, some);
        at += some;
    }
    if (at >= o->payload_size && at < o->size - head) {
        size_t gone = at - o->payload_size;
        parts[n++] = part(o->seal + gone, tail - gone);
    }
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = n};
    return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void lhi_outgoing_withdraw(lhi_outgoing *o, lhi_seal *seals)
{
    o->op = NULL;
    if (o->sent >= lhi_head_bytes(seals) + o->payload_size)
        return;
    o->payload = NULL;
    /* A frame without payload has no payload MAC, and the MAC state may belong
     * to the frame before it. */
    if (o->payload_size > 0 && o->n_sealed == o->payload_size)
        void_seal(o, seals);
}
