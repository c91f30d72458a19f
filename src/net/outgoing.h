/* SPDX-License-Identifier: Apache-2.0 */
/* A frame on its way into a stream socket: its header, its payload and, where
 * the connection has them, their seals. */
#ifndef LHI_OUTGOING_H
#define LHI_OUTGOING_H

#include "net/net.h"
#include "net/seal.h"
#include "net/wire.h"

#include <sys/types.h>

typedef struct lhi_outgoing {
    struct lhi_outgoing *next;
    unsigned char header[LHI_FRAME_BYTES + LHI_SEAL_BYTES];
    unsigned char seal[LHI_SEAL_BYTES]; /* of the payload */
    const unsigned char *payload; /* NULL: zeros, of a withdrawn operation */
    size_t size, sent;            /* with header and seals */
    size_t payload_size;
    size_t n_sealed; /* of the payload; its seal is done once all are */
    bool has_begun;  /* its header has its seal */
    lhi_net_op *op;  /* NULL: the payload is `copy` */
    unsigned char copy[];
} lhi_outgoing;

/* Bytes before and after a payload of a connection with these seals (NULL:
 * none). */
static inline size_t lhi_head_bytes(const lhi_seal *seals)
{
    return LHI_FRAME_BYTES + (seals ? LHI_SEAL_BYTES : 0);
}

static inline size_t lhi_tail_bytes(const lhi_seal *seals)
{
    return seals ? LHI_SEAL_BYTES : 0;
}

/* One write of at most about `most` bytes: what sendmsg says. Frames of a
 * connection go one after the other, since their seals count them. */
ssize_t lhi_outgoing_write(lhi_outgoing *frame, int fd, lhi_seal *seals,
                           size_t most);

/* Its payload is no longer there: what is left of it goes as zeros, since the
 * frame has to end where its header says, and the seal says so. */
void lhi_outgoing_withdraw(lhi_outgoing *frame, lhi_seal *seals);

#endif
