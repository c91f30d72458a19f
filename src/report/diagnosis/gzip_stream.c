/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/gzip_stream.h"

#include <string.h>

/* Reads more input bytes into zip->bytes if all earlier ones are consumed. */
static lh_status refill(lhi_gzip_stream *zip, lh_error *err)
{
    size_t n = 0;
    if (zip->stream.avail_in || zip->at_end)
        return LH_OK;
    if (zip->is_file) {
        LHI_TRY(lhi_input_stream_read(&zip->input, (char *)zip->bytes,
                                      sizeof zip->bytes, &n, err));
    } else {
        n = zip->rest_len < sizeof zip->bytes ? zip->rest_len
                                              : sizeof zip->bytes;
        if (n)
            memcpy(zip->bytes, zip->text_left, n);
        zip->text_left += n;
        zip->rest_len -= n;
    }
    zip->at_end = n == 0;
    zip->stream.next_in = zip->bytes;
    zip->stream.avail_in = (uInt)n;
    return LH_OK;
}

/* Reads the first bytes and detects whether the input is gzip-compressed. */
static lh_status detect_format(lhi_gzip_stream *zip, lh_error *err)
{
    LHI_TRY(refill(zip, err));
    if (zip->stream.avail_in < 2 || zip->bytes[0] != 0x1f ||
        zip->bytes[1] != 0x8b)
        return LH_OK;
    /* 16: gzip format only. */
    if (inflateInit2(&zip->stream, 16 + MAX_WBITS) != Z_OK)
        return lhi_fail_nomem(err);
    zip->is_gzip = true;
    return LH_OK;
}

lh_status lhi_gzip_stream_open(lhi_gzip_stream *zip, const char *path,
                               lh_error *err)
{
    memset(zip, 0, sizeof *zip);
    LHI_TRY(lhi_input_stream_open(path, &zip->input, err));
    zip->is_file = true;
    return detect_format(zip, err);
}

lh_status lhi_gzip_stream_open_text(lhi_gzip_stream *zip, const char *text,
                                    size_t len, lh_error *err)
{
    memset(zip, 0, sizeof *zip);
    zip->text_left = text;
    zip->rest_len = len;
    return detect_format(zip, err);
}

/* Copies up to `room` bytes from an uncompressed input; returns their number.
 */
static size_t read_plain(lhi_gzip_stream *zip, char *bytes, size_t room)
{
    size_t n = zip->stream.avail_in < room ? zip->stream.avail_in : room;
    memcpy(bytes, zip->stream.next_in, n);
    zip->stream.next_in += n;
    zip->stream.avail_in -= (uInt)n;
    return n;
}

/* Decompresses the next bytes into the stream's output buffer; sets zip->reason
 * if the compressed data is damaged. */
static lh_status inflate_block(lhi_gzip_stream *zip, lh_error *err)
{
    int how = inflate(&zip->stream, Z_NO_FLUSH);
    if (how == Z_MEM_ERROR)
        return lhi_fail_nomem(err);
    if (how == Z_STREAM_END) { /* another member may follow */
        zip->is_between_members = true;
        if (inflateReset(&zip->stream) != Z_OK)
            zip->reason = "the compressed data is damaged";
    } else if (how == Z_OK) {
        zip->is_between_members = false;
    } else if (how != Z_BUF_ERROR) {
        /* As gzip does, treats zeros after the last member as padding. */
        zip->at_end = true;
        if (!zip->is_between_members)
            zip->reason = "the compressed data is damaged";
    }
    return LH_OK;
}

lh_status lhi_gzip_stream_peek(lhi_gzip_stream *zip, const char **bytes,
                               size_t *n, lh_error *err)
{
    char ahead[LHI_GZIP_PEEK_BYTES];
    size_t more = 1;
    *n = 0;
    while (more && *n < sizeof ahead) {
        LHI_TRY(lhi_gzip_stream_read(zip, ahead + *n, sizeof ahead - *n, &more,
                                     err));
        *n += more;
    }
    memcpy(zip->peeked, ahead, *n);
    zip->n_ahead = *n;
    *bytes = zip->peeked;
    return LH_OK;
}

lh_status lhi_gzip_stream_read(lhi_gzip_stream *zip, char *bytes, size_t room,
                               size_t *n, lh_error *err)
{
    *n = 0;
    if (zip->ahead_at < zip->n_ahead) {
        size_t left = zip->n_ahead - zip->ahead_at;
        *n = left < room ? left : room;
        memcpy(bytes, zip->peeked + zip->ahead_at, *n);
        zip->ahead_at += *n;
        return LH_OK;
    }
    if (room > 1u << 30)
        room = 1u << 30;
    zip->stream.next_out = (unsigned char *)bytes;
    zip->stream.avail_out = (uInt)room;
    while (!zip->reason) {
        LHI_TRY(refill(zip, err));
        if (!zip->is_gzip) {
            *n = zip->at_end ? 0 : read_plain(zip, bytes, room);
            return LH_OK;
        }
        if (zip->at_end) {
            if (!zip->is_between_members)
                zip->reason = "the compressed data is truncated";
            break;
        }
        LHI_TRY(inflate_block(zip, err));
        if (zip->stream.avail_out < room || zip->at_end)
            break;
    }
    *n = room - zip->stream.avail_out;
    return LH_OK;
}

void lhi_gzip_stream_close(lhi_gzip_stream *zip)
{
    if (zip->is_gzip)
        inflateEnd(&zip->stream);
    if (zip->is_file)
        lhi_input_stream_close(&zip->input);
}
