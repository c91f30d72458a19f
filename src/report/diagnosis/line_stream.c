/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/line_stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Minimum free space of the buffer before a read, in bytes. */
enum { LEAST_ROOM = 1 << 16 };

/* Moves the unread text to the buffer's start and reads more behind it. */
static lh_status fill_buffer(lhi_line_stream *l, lh_error *err)
{
    size_t more;
    l->n -= l->at;
    if (l->n)
        memmove(l->buffer, l->buffer + l->at, l->n);
    l->at = 0;
    if (l->n > LHI_LINE_STREAM_MAX_BYTES)
        return lhi_fail(err, LH_EINPUT,
                        "%s:%" PRIu64 ": a line exceeds %d bytes", l->name,
                        l->line + 1, LHI_LINE_STREAM_MAX_BYTES);
    if (l->room < l->n + LEAST_ROOM) {
        size_t room = 2 * l->n + LEAST_ROOM;
        char *grown = realloc(l->buffer, room + 1); /* a final NUL */
        if (!grown)
            return lhi_fail_nomem(err);
        l->buffer = grown;
        l->room = room;
    }
    LHI_TRY(lhi_gzip_stream_read(l->zip, l->buffer + l->n, l->room - l->n,
                                 &more, err));
    l->n += more;
    l->at_end = more == 0;
    return LH_OK;
}

lh_status lhi_line_stream_next(lhi_line_stream *lines, char **text,
                               lh_error *err)
{
    lhi_line_stream *l = lines;
    size_t searched = 0;
    char *stop = NULL;
    *text = NULL;
    for (;;) {
        if (l->n > l->at + searched)
            stop = memchr(l->buffer + l->at + searched, '\n',
                          l->n - l->at - searched);
        if (stop || l->at_end)
            break;
        searched = l->n - l->at;
        LHI_TRY(fill_buffer(l, err));
    }
    if (l->at == l->n)
        return LH_OK;
    *text = l->buffer + l->at;
    if (!stop)
        stop = l->buffer + l->n; /* a last line without an end */
    l->at = (size_t)(stop - l->buffer) +
            (l->at_end && stop == l->buffer + l->n ? 0 : 1);
    if (stop > *text && stop[-1] == '\r')
        stop--;
    *stop = '\0';
    l->line++;
    return LH_OK;
}

void lhi_line_stream_fini(lhi_line_stream *lines)
{
    free(lines->buffer);
    lines->buffer = NULL;
}
