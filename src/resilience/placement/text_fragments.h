/* SPDX-License-Identifier: Apache-2.0 */
/* Text fragments for explanations. */
#ifndef LHI_RESILIENCE_PLACEMENT_TEXT_FRAGMENTS_H
#define LHI_RESILIENCE_PLACEMENT_TEXT_FRAGMENTS_H

#include "base/fail.h"

#include <stddef.h>
#include <stdint.h>

/* Appends formatted text to `text`, whose capacity is `room` bytes; truncates
 * the excess. */
void lhi_text_append_limited(char *text, size_t room, const char *format, ...)
    LHI_PRINTF(3, 4);

/* Capacity for lhi_time_format()'s buffer, in bytes. */
enum { LHI_TIME_FORMAT_SIZE = 32 };
/* Formats a time, as in "404 ms", into `text`, which it returns. */
const char *lhi_time_format(int64_t ns, char *text);
/* Formats a number of iterations, as in "10 iterations", into `text` (as large
 * as for lhi_time_format()), which it returns. */
const char *lhi_iterations_format(double n, char *text);

#endif
