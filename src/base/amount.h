/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes, times and differences for people. */
#ifndef LHI_AMOUNT_H
#define LHI_AMOUNT_H

#include <stdint.h>

#define LHI_AMOUNT_TEXT 32

/* "12.5 GiB", or in the smaller unit of which there is a tenth at least, so
 * that what is something never reads as nothing. */
char *lhi_amount_text(int64_t bytes, char *buffer);

/* "12.3 ms" and the like: three digits that count, in the unit that suits. */
#define LHI_TIME_TEXT 32
char *lhi_time_text(int64_t ns, char *buffer);

/* A number for a text that has so many of its decimals: nothing is -0.0. */
double lhi_shown(double value, int decimals);

#endif
