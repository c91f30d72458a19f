/* SPDX-License-Identifier: Apache-2.0 */
/* Wire format of frames between two ranks: docs/formats/wire.md. Encoding and
 * checking only, no I/O. */
#ifndef LHI_RUNTIME_TRANSPORT_WIRE_FORMAT_H
#define LHI_RUNTIME_TRANSPORT_WIRE_FORMAT_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

/* Version of the wire format; ranks with another version are rejected. */
enum { LHI_WIRE_VERSION = 6 };

/* X(name): frame kinds, from 1. */
#define LHI_FRAME_LIST(X)                                                      \
    X(SMALL) /* complete small message */                                      \
    X(OFFER) /* rendezvous request (RTS) */                                    \
    X(GRANT) /* rendezvous reply (CTS) */                                      \
    X(DATA)  /* large message's bytes */                                       \
    X(ABORT) /* run failed */                                                  \
    X(BYE)   /* orderly shutdown; last frame */                                \
    X(PING)  /* heartbeat */

/* Frame kinds. */
typedef enum lhi_frame_kind {
    LHI_FRAME_NONE,
#define LHI_FRAME_ENUM(name) LHI_FRAME_##name,
    LHI_FRAME_LIST(LHI_FRAME_ENUM)
#undef LHI_FRAME_ENUM
} lhi_frame_kind;

/* Bytes of an encoded frame header, and maximum bytes of an abort reason. */
enum { LHI_FRAME_BYTES = 48, LHI_ABORT_BYTES = 480 };

/* Maximum message size. */
#define LHI_WIRE_MAX_BYTES (UINT64_C(1) << 48)

/* A frame header. */
typedef struct lhi_frame {
    lhi_frame_kind kind;
    uint32_t link, slot; /* emulated link, or UINT32_MAX and 0 */
    uint64_t tag;        /* ABORT: the failed rank, UINT32_MAX: unknown */
    uint64_t size;       /* message bytes; ABORT: text bytes */
    int64_t entered_ns;
    uint64_t id; /* GRANT, DATA: receiver's message number; ABORT: an
                  * lhi_failure_cause */
} lhi_frame;

/* Encodes the header of a frame (protocol message) into `out`. */
void lhi_frame_write(const lhi_frame *frame,
                     unsigned char out[LHI_FRAME_BYTES]);
/* Decodes the header of a frame (protocol message). LH_EIO: invalid; `err`
 * names the field. */
lh_status lhi_frame_read(const unsigned char in[LHI_FRAME_BYTES],
                         lhi_frame *out, lh_error *err);
/* Returns how many payload bytes follow a frame's header. */
uint64_t lhi_frame_payload(const lhi_frame *frame);

/* Kinds of rail frames (rails.h). */
typedef enum lhi_rail_kind {
    LHI_RAIL_SEGMENT = 1, /* stream segment; without payload: end of stream */
    LHI_RAIL_ALIVE        /* keep-alive */
} lhi_rail_kind;

/* Bytes of an encoded rail header. */
enum { LHI_RAIL_HEAD = 24 };

/* A rail frame's header. */
typedef struct lhi_rail_head {
    lhi_rail_kind kind;
    uint32_t size;         /* payload bytes */
    uint64_t number;       /* SEGMENT: from 0 */
    uint64_t acknowledged; /* sender has all lower segment numbers */
} lhi_rail_head;

/* Encodes a frame's header on a rail (parallel connection between two
 * ranks). */
void lhi_rail_head_write(const lhi_rail_head *head,
                         unsigned char out[LHI_RAIL_HEAD]);
/* Decodes a frame's header on a rail (parallel connection between two
 * ranks). LH_EIO: invalid; `err` names the field. */
lh_status lhi_rail_head_read(const unsigned char in[LHI_RAIL_HEAD],
                             lhi_rail_head *out, lh_error *err);

/* Copies `n` bytes of a peer's text to `out` (`room` bytes) for display:
 * without control bytes, NUL-terminated. */
void lhi_wire_sanitise_text(const unsigned char *bytes, size_t n, char *out,
                            size_t room);

#endif
