/* SPDX-License-Identifier: Apache-2.0 */
/* A frame being sent over a stream socket: header, payload and, on
 * authenticated connections, their MACs. */
#ifndef LHI_RUNTIME_TRANSPORT_OUTGOING_FRAME_H
#define LHI_RUNTIME_TRANSPORT_OUTGOING_FRAME_H

#include "runtime/transport/frame_mac.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/wire_format.h"

#include <sys/types.h>

/* A frame being sent. */
typedef struct lhi_outgoing_frame {
    struct lhi_outgoing_frame *next;
    unsigned char header[LHI_FRAME_BYTES + LHI_FRAME_MAC_BYTES];
    unsigned char payload_mac[LHI_FRAME_MAC_BYTES]; /* payload's MAC */
    const unsigned char *payload; /* NULL: zeros, after cancellation */
    size_t size, sent;            /* with header and MACs */
    size_t payload_size;
    size_t n_authenticated; /* payload bytes in the MAC; complete at
                               payload_size */
    bool has_header_mac;    /* header MAC computed */
    lhi_net_op *op;         /* NULL: the payload is `copy` */
    unsigned char copy[];
} lhi_outgoing_frame;

/* Returns the bytes before a payload on a connection with these MACs (NULL:
 * none). */
static inline size_t lhi_frame_head_bytes(const lhi_frame_mac *seals)
{
    return LHI_FRAME_BYTES + (seals ? LHI_FRAME_MAC_BYTES : 0);
}

/* Returns the bytes after a payload. */
static inline size_t lhi_frame_tail_bytes(const lhi_frame_mac *seals)
{
    return seals ? LHI_FRAME_MAC_BYTES : 0;
}

/* Writes a frame's next bytes to socket `fd`: at most `most` bytes of payload,
 * plus header and MACs (authentication codes) where due; returns the result of
 * sendmsg(). A connection's frames must be sent one after the other, because
 * the MACs number them. */
ssize_t lhi_outgoing_frame_write(lhi_outgoing_frame *frame, int fd,
                                 lhi_frame_mac *seals, size_t most);

/* Cancels a frame whose payload becomes invalid. The remaining bytes are sent
 * as zeros, since the frame must have the length in its header; the MAC marks
 * it as void. */
void lhi_outgoing_frame_cancel(lhi_outgoing_frame *frame, lhi_frame_mac *seals);

#endif
