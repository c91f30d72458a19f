/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a file or a text, which may be compressed by gzip, one after the
 * other. What is cut or damaged ends there, and says so. */
#ifndef LHI_UNZIP_H
#define LHI_UNZIP_H

#include "base/fail.h"
#include "base/inflow.h"

#include <stdbool.h>
#include <stddef.h>
#include <zlib.h>

enum { LHI_UNZIP_BYTES = 1 << 16, LHI_PEEK_BYTES = 512 };

typedef struct lhi_unzip {
    bool is_file, is_gzip;
    bool at_end;     /* of the compressed bytes */
    bool between;    /* members of a gzip file: it may end here */
    const char *why; /* it ended early; NULL: it did not */
    lhi_inflow input;
    const char *rest; /* of a text */
    size_t rest_len;
    z_stream stream;
    unsigned char bytes[LHI_UNZIP_BYTES]; /* as they come */
    char
        ahead[LHI_PEEK_BYTES]; /* what was looked at, and is still to be read */
    size_t ahead_at, n_ahead;
} lhi_unzip;

/* Both begin reading; lhi_unzip_close() in any case. */
lh_status lhi_unzip_open(lhi_unzip *zip, const char *path, lh_error *err);
lh_status lhi_unzip_text(lhi_unzip *zip, const char *text, size_t len,
                         lh_error *err);
/* The first bytes, up to LHI_PEEK_BYTES, which are still read afterwards; to be
 * called before they are. zip's own. */
lh_status lhi_unzip_peek(lhi_unzip *zip, const char **bytes, size_t *n,
                         lh_error *err);
/* *n is 0 at the end, and then zip->why says whether that came early. */
lh_status lhi_unzip_read(lhi_unzip *zip, char *bytes, size_t room, size_t *n,
                         lh_error *err);
void lhi_unzip_close(lhi_unzip *zip);

#endif
