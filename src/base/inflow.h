/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is read from its beginning to its end, whatever it is: a file, a
 * pipe, a FIFO. A FIFO that nobody writes to is refused after a while in place
 * of being waited for, for ever; one that has a writer is waited for as long
 * as that takes. */
#ifndef LHI_INFLOW_H
#define LHI_INFLOW_H

#include "base/fail.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct lhi_inflow {
    const char *path; /* the caller's */
    int fd;
    bool waits; /* for a first writer */
} lhi_inflow;

lh_status lhi_inflow_open(const char *path, lhi_inflow *out, lh_error *err);
/* *n is 0 at the end. */
lh_status lhi_inflow_read(lhi_inflow *input, char *bytes, size_t room,
                          size_t *n, lh_error *err);
void lhi_inflow_close(const lhi_inflow *input);

#endif
