/* SPDX-License-Identifier: Apache-2.0 */
/* Sequential reading from a regular file, pipe or FIFO. A FIFO without a writer
 * is rejected after a timeout rather than blocking forever. Once a writer is
 * connected, reads wait as long as necessary. */
#ifndef LHI_BASE_INPUT_STREAM_H
#define LHI_BASE_INPUT_STREAM_H

#include "base/fail.h"

#include <stdbool.h>
#include <stddef.h>

/* An open input stream. */
typedef struct lhi_input_stream {
    const char *path; /* borrowed from the caller */
    int fd;
    bool waits; /* still waiting for a first writer */
} lhi_input_stream;

/* Opens `path` for reading. LH_EIO on failure. */
lh_status lhi_input_stream_open(const char *path, lhi_input_stream *out,
                                lh_error *err);
/* Reads up to `room` bytes from the stream; *n is 0 at end of file. */
lh_status lhi_input_stream_read(lhi_input_stream *input, char *bytes,
                                size_t room, size_t *n, lh_error *err);
/* Closes the input stream. */
void lhi_input_stream_close(const lhi_input_stream *input);

#endif
