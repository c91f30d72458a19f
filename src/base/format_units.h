/* SPDX-License-Identifier: Apache-2.0 */
/* Formats byte counts, durations and numbers for printing. */
#ifndef LHI_BASE_FORMAT_UNITS_H
#define LHI_BASE_FORMAT_UNITS_H

#include <stdint.h>

/* Capacity for lhi_format_bytes()'s buffer, in bytes. */
#define LHI_FORMAT_BYTES_SIZE 32

/* Formats a byte count as "12.5 GiB". Uses the largest unit in which the value
 * is at least 0.1, so that a small amount never prints as zero. Returns
 * `buffer`. */
char *lhi_format_bytes(int64_t bytes, char *buffer);

/* "12.3 ms" and the like: three digits that count, in the unit that suits. */
#define LHI_FORMAT_DURATION_SIZE 32
/* Formats a duration as "12.3 ms", with up to four significant digits and the
 * unit that fits. Returns `buffer`. */
char *lhi_format_duration(int64_t ns, char *buffer);

/* Returns 0 for a value that rounds to zero at `decimals` decimals, which
 * avoids printing "-0.0"; returns any other value unchanged. */
double lhi_drop_negative_zero(double value, int decimals);

#endif
