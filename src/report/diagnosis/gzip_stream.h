/* SPDX-License-Identifier: Apache-2.0 */
/* Stream reader for a file or a text, optionally gzip-compressed. Truncated or
 * damaged input ends early with a reason. */
#ifndef LHI_REPORT_DIAGNOSIS_GZIP_STREAM_H
#define LHI_REPORT_DIAGNOSIS_GZIP_STREAM_H

#include "base/fail.h"
#include "base/input_stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <zlib.h>

/* Buffer size, and number of bytes that can be inspected before reading. */
enum { LHI_GZIP_STREAM_BYTES = 1 << 16, LHI_GZIP_PEEK_BYTES = 512 };

/* Stream reader state. */
typedef struct lhi_gzip_stream {
    bool is_file, is_gzip;
    bool at_end;             /* compressed bytes have ended */
    bool is_between_members; /* between gzip members, where the file may end */
    const char *reason;      /* why it ended early; NULL: it did not */
    lhi_input_stream input;
    const char *text_left; /* remaining text */
    size_t rest_len;
    z_stream stream;
    unsigned char bytes[LHI_GZIP_STREAM_BYTES]; /* input buffer */
    char peeked[LHI_GZIP_PEEK_BYTES];           /* peeked bytes, not yet read */
    size_t ahead_at, n_ahead;
} lhi_gzip_stream;

/* Opens a plain or gzip-compressed file for reading. Call
 * lhi_gzip_stream_close() in any case, as after lhi_gzip_stream_open_text(). */
lh_status lhi_gzip_stream_open(lhi_gzip_stream *zip, const char *path,
                               lh_error *err);
/* Opens a plain or gzip-compressed text in memory, which has to outlive
 * `zip`. */
lh_status lhi_gzip_stream_open_text(lhi_gzip_stream *zip, const char *text,
                                    size_t len, lh_error *err);
/* Returns the first bytes, up to LHI_GZIP_PEEK_BYTES, without consuming them.
 * Call it before the first read. The memory belongs to `zip`. */
lh_status lhi_gzip_stream_peek(lhi_gzip_stream *zip, const char **bytes,
                               size_t *n, lh_error *err);
/* Reads up to `room` bytes. *n is 0 at the end; zip->reason is then set if the
 * input ended early. */
lh_status lhi_gzip_stream_read(lhi_gzip_stream *zip, char *bytes, size_t room,
                               size_t *n, lh_error *err);
/* Closes the stream's file and frees the decompressor. */
void lhi_gzip_stream_close(lhi_gzip_stream *zip);

#endif
