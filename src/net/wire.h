/* SPDX-License-Identifier: Apache-2.0 */
/* What goes over a connection between two ranks: docs/formats/wire.md.
 * Coding and checking only; nothing here does input or output. */
#ifndef LHI_WIRE_H
#define LHI_WIRE_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

enum { LHI_WIRE_VERSION = 2 };

/* X(name): the kinds of frame, from 1. */
#define LHI_FRAME_LIST(X)                                                      \
    X(SMALL) /* a whole message */                                             \
    X(OFFER) /* there is a large message */                                    \
    X(GRANT) /* a large message may come */                                    \
    X(DATA)  /* its bytes */                                                   \
    X(ABORT) /* the run has failed */                                          \
    X(BYE)   /* the sender leaves; its last frame */                           \
    X(PING)  /* the sender is alive */

typedef enum lhi_frame_kind {
    LHI_FRAME_NONE,
#define LHI_FRAME_ENUM(name) LHI_FRAME_##name,
    LHI_FRAME_LIST(LHI_FRAME_ENUM)
#undef LHI_FRAME_ENUM
} lhi_frame_kind;

enum { LHI_FRAME_BYTES = 48, LHI_ABORT_BYTES = 480 };

/* The largest message there can be. */
#define LHI_WIRE_MOST_BYTES (UINT64_C(1) << 48)

typedef struct lhi_frame {
    lhi_frame_kind kind;
    uint32_t link, slot; /* of the emulated link, or UINT32_MAX and 0 */
    uint64_t tag;
    uint64_t size; /* of the message; of ABORT: of the text */
    int64_t entered_ns;
    uint64_t id; /* of GRANT and DATA: the receiver's number for it */
} lhi_frame;

void lhi_frame_write(const lhi_frame *frame,
                     unsigned char out[LHI_FRAME_BYTES]);
/* LH_EIO: no frame; `err` says which field is wrong. */
lh_status lhi_frame_read(const unsigned char in[LHI_FRAME_BYTES],
                         lhi_frame *out, lh_error *err);
/* Bytes that follow the header. */
uint64_t lhi_frame_payload(const lhi_frame *frame);

/* What goes over a rail (rails.h) before a payload. */
typedef enum lhi_rail_kind {
    LHI_RAIL_SEGMENT = 1, /* a piece of the stream; without a payload its end */
    LHI_RAIL_ALIVE        /* the sender is there */
} lhi_rail_kind;

enum { LHI_RAIL_HEAD = 24 };

typedef struct lhi_rail_head {
    lhi_rail_kind kind;
    uint32_t size;         /* of the payload */
    uint64_t number;       /* SEGMENT: from 0 */
    uint64_t acknowledged; /* the sender has all segments before this one */
} lhi_rail_head;

void lhi_rail_head_write(const lhi_rail_head *head,
                         unsigned char out[LHI_RAIL_HEAD]);
/* LH_EIO: there is no such head; `err` says which field is wrong. */
lh_status lhi_rail_head_read(const unsigned char in[LHI_RAIL_HEAD],
                             lhi_rail_head *out, lh_error *err);

/* Text of a peer, made fit to be shown: no control bytes, NUL-terminated. */
void lhi_wire_text(const unsigned char *bytes, size_t n, char *out,
                   size_t room);

#endif
