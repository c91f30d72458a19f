/* SPDX-License-Identifier: Apache-2.0 */
/* Stream reader for a text's lines. */
#ifndef LHI_REPORT_DIAGNOSIS_LINE_STREAM_H
#define LHI_REPORT_DIAGNOSIS_LINE_STREAM_H

#include "report/diagnosis/gzip_stream.h"

#include <stdint.h>

enum { LHI_LINE_STREAM_MAX_BYTES = 256 << 20 }; /* per line */

/* Stream reader state; zeroed apart from `zip` and `name` before the first
 * call. */
typedef struct lhi_line_stream {
    lhi_gzip_stream *zip;
    const char *name; /* input name, for error messages */
    uint64_t line;    /* of the last text, from 1 */
    char *buffer;
    size_t at, n, room;
    bool at_end;
} lhi_line_stream;

/* Reads the next line into *text, NUL-terminated and without its line end; it
 * is valid until the next call. NULL at the end. LH_EINPUT: a line is too long.
 */
lh_status lhi_line_stream_next(lhi_line_stream *lines, char **text,
                               lh_error *err);
/* Frees the buffer. */
void lhi_line_stream_fini(lhi_line_stream *lines);

#endif
