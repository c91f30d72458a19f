/* SPDX-License-Identifier: Apache-2.0 */
/* Stream reader for a file or a text, optionally gzip-compressed. Truncated or
 * damaged input ends early with a reason. */
#ifndef LHI_UNZIP_H
#define LHI_UNZIP_H

#include "base/fail.h"
#include "base/inflow.h"

#include <stdbool.h>
#include <stddef.h>
#include <zlib.h>

enum { LHI_UNZIP_BYTES = 1 << 16, LHI_PEEK_BYTES = 512 };

/* Stream reader state. */
typedef struct lhi_unzip {
    bool is_file, is_gzip;
    bool at_end;     /* compressed bytes have ended */
    bool between;    /* between gzip members, where the file may end */
    const char *why; /* why it ended early; NULL: it did not */
    lhi_inflow input;
    const char *rest; /* remaining text */
    size_t rest_len;
    z_stream stream;
    unsigned char bytes[LHI_UNZIP_BYTES]; /* input buffer */
    char
        ahead[LHI_PEEK_BYTES]; /* peeked bytes, not yet read */
    size_t ahead_at, n_ahead;
} lhi_unzip;

/* Opens a file. Call lhi_unzip_close() in any case, as after lhi_unzip_text().
 */
lh_status lhi_unzip_open(lhi_unzip *zip, const char *path, lh_error *err);
/* Opens a text, which has to outlive `zip`. */
lh_status lhi_unzip_text(lhi_unzip *zip, const char *text, size_t len,
                         lh_error *err);
/* Returns the first bytes, up to LHI_PEEK_BYTES, without consuming them. Call
 * it before the first read. The memory belongs to `zip`. */
lh_status lhi_unzip_peek(lhi_unzip *zip, const char **bytes, size_t *n,
                         lh_error *err);
/* Reads up to `room` bytes. *n is 0 at the end; zip->reason is then set if the
 * input ended early. */
lh_status lhi_unzip_read(lhi_unzip *zip, char *bytes, size_t room, size_t *n,
                         lh_error *err);
/* Closes the file and frees the decompressor. */
void lhi_unzip_close(lhi_unzip *zip);

#endif
