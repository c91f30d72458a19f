/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences for people that are made of parts. */
#ifndef LHI_PLACE_WORDS_H
#define LHI_PLACE_WORDS_H

#include "base/fail.h"

#include <stddef.h>
#include <stdint.h>

/* Adds to the text of `room` bytes; what does not fit is left out. */
void lhi_words_add(char *text, size_t room, const char *format, ...)
    LHI_PRINTF(3, 4);

enum { LHI_TIME_WORDS = 32 };
/* "404 ms"; returns `text`. */
const char *lhi_time_words(int64_t ns, char *text);
/* "10 iterations", in as much room; returns `text`. */
const char *lhi_iteration_words(double n, char *text);

#endif
