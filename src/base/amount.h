/* SPDX-License-Identifier: Apache-2.0 */
/* Formats byte counts, durations and numbers for printing. */
#ifndef LHI_AMOUNT_H
#define LHI_AMOUNT_H

#include <stdint.h>

#define LHI_AMOUNT_TEXT 32

/* Formats a byte count as "12.5 GiB". Uses the largest unit in which the value
 * is at least 0.1, so that a small amount never prints as zero. Returns
 * `buffer`. */
char *lhi_amount_text(int64_t bytes, char *buffer);

/* "12.3 ms" and the like: three digits that count, in the unit that suits. */
#define LHI_TIME_TEXT 32
/* Formats a duration as "12.3 ms", with up to four significant digits and the
 * unit that fits. Returns `buffer`. */
char *lhi_time_text(int64_t ns, char *buffer);

/* Returns 0 for a value that rounds to zero at `decimals` decimals, which
 * avoids printing "-0.0"; returns any other value unchanged. */
double lhi_shown(double value, int decimals);

#endif
