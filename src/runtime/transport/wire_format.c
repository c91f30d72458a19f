/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/transport/wire_format.h"

#include "base/bytes.h"
#include "base/fail.h"
#include "runtime/transport/rails.h"
#include "runtime/transport/transport.h"

#include <inttypes.h>
#include <string.h>

void lhi_frame_write(const lhi_frame *f, unsigned char out[LHI_FRAME_BYTES])
{
    memset(out, 0, LHI_FRAME_BYTES);
    out[0] = 'L';
    out[1] = 'H';
    out[2] = LHI_WIRE_VERSION;
    out[3] = (unsigned char)f->kind;
    lhi_store_little_endian(out + 4, 4, f->link);
    lhi_store_little_endian(out + 8, 8, f->tag);
    lhi_store_little_endian(out + 16, 8, f->size);
    lhi_store_little_endian(out + 24, 8, (uint64_t)f->entered_ns);
    lhi_store_little_endian(out + 32, 8, f->id);
    lhi_store_little_endian(out + 40, 4, f->slot);
}

/* Checks that a frame header's fields are consistent with its kind. */
static lh_status check_fields(const lhi_frame *f, lh_error *err)
{
    bool small = f->kind == LHI_FRAME_SMALL, offer = f->kind == LHI_FRAME_OFFER;
    bool grant = f->kind == LHI_FRAME_GRANT, data = f->kind == LHI_FRAME_DATA;
    bool large = offer || grant || data, abort = f->kind == LHI_FRAME_ABORT;
    if (small && f->size > LHI_NET_EAGER_BYTES)
        return lhi_fail(err, LH_EIO, "a small message of %" PRIu64 " bytes",
                        f->size);
    if (large &&
        (f->size <= LHI_NET_EAGER_BYTES || f->size > LHI_WIRE_MAX_BYTES))
        return lhi_fail(err, LH_EIO, "a large message of %" PRIu64 " bytes",
                        f->size);
    if (abort && f->size > LHI_ABORT_BYTES)
        return lhi_fail(err, LH_EIO, "a failure reason of %" PRIu64 " bytes",
                        f->size);
    if (f->entered_ns < 0)
        return lhi_fail(err, LH_EIO, "a message with a negative time");
    /* Fields that a kind does not use must be 0. */
    bool empty = f->kind == LHI_FRAME_BYE || f->kind == LHI_FRAME_PING;
    if ((empty && f->size) || (!small && !large && !abort && f->tag) ||
        (abort && f->tag > UINT32_MAX) ||
        (!small && !offer && (f->entered_ns || f->slot)) ||
        (!small && !offer && f->link) ||
        (!grant && !data && f->id > (abort ? LHI_CAUSE_RETURN : 0)) ||
        (data && f->tag))
        return lhi_fail(err, LH_EIO,
                        "a frame of kind %d with unexpected fields",
                        (int)f->kind);
    return LH_OK;
}

lh_status lhi_frame_read(const unsigned char in[LHI_FRAME_BYTES],
                         lhi_frame *out, lh_error *err)
{
    if (in[0] != 'L' || in[1] != 'H')
        return lhi_fail(err, LH_EIO, "bytes that are not a frame");
    if (in[2] != LHI_WIRE_VERSION)
        return lhi_fail(err, LH_EIO, "a frame of version %d, not %d", in[2],
                        LHI_WIRE_VERSION);
    if (in[3] < LHI_FRAME_SMALL || in[3] > LHI_FRAME_PING)
        return lhi_fail(err, LH_EIO, "a frame of the unknown kind %d", in[3]);
    if (lhi_load_little_endian(in + 44, 4))
        return lhi_fail(err, LH_EIO,
                        "a frame with reserved bytes that are not 0");
    /* The clock has 63 bits; a set top bit gives a negative time, which is
     * rejected. */
    uint64_t entered = lhi_load_little_endian(in + 24, 8);
    lhi_frame f = {.kind = (lhi_frame_kind)in[3],
                   .link = (uint32_t)lhi_load_little_endian(in + 4, 4),
                   .tag = lhi_load_little_endian(in + 8, 8),
                   .size = lhi_load_little_endian(in + 16, 8),
                   .entered_ns = entered > INT64_MAX ? -1 : (int64_t)entered,
                   .id = lhi_load_little_endian(in + 32, 8),
                   .slot = (uint32_t)lhi_load_little_endian(in + 40, 4)};
    LHI_TRY(check_fields(&f, err));
    *out = f;
    return LH_OK;
}

uint64_t lhi_frame_payload(const lhi_frame *f)
{
    switch (f->kind) {
    case LHI_FRAME_SMALL:
    case LHI_FRAME_DATA:
    case LHI_FRAME_ABORT:
        return f->size;
    default:
        return 0;
    }
}

void lhi_rail_head_write(const lhi_rail_head *h,
                         unsigned char out[LHI_RAIL_HEAD])
{
    out[0] = 'L';
    out[1] = 'R';
    out[2] = LHI_WIRE_VERSION;
    out[3] = (unsigned char)h->kind;
    lhi_store_little_endian(out + 4, 4, h->size);
    lhi_store_little_endian(out + 8, 8, h->number);
    lhi_store_little_endian(out + 16, 8, h->acknowledged);
}

lh_status lhi_rail_head_read(const unsigned char in[LHI_RAIL_HEAD],
                             lhi_rail_head *out, lh_error *err)
{
    if (in[0] != 'L' || in[1] != 'R' || in[2] != LHI_WIRE_VERSION)
        return lhi_fail(err, LH_EIO, "bytes that are not a segment");
    lhi_rail_head h = {.kind = (lhi_rail_kind)in[3],
                       .size = (uint32_t)lhi_load_little_endian(in + 4, 4),
                       .number = lhi_load_little_endian(in + 8, 8),
                       .acknowledged = lhi_load_little_endian(in + 16, 8)};
    bool alive = h.kind == LHI_RAIL_ALIVE;
    if ((in[3] != LHI_RAIL_SEGMENT && !alive) ||
        h.size > LHI_RAIL_SEGMENT_BYTES || (alive && (h.size || h.number)))
        return lhi_fail(err, LH_EIO, "a segment header with invalid fields");
    *out = h;
    return LH_OK;
}

void lhi_wire_sanitise_text(const unsigned char *bytes, size_t n, char *out,
                            size_t room)
{
    size_t used = 0;
    for (size_t i = 0; i < n && used + 1 < room; i++)
        out[used++] = bytes[i] >= ' ' && bytes[i] < 127 ? (char)bytes[i] : '?';
    out[used] = '\0';
}
