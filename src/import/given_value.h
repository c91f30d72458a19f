/* SPDX-License-Identifier: Apache-2.0 */
/* A value as it was given to another program, and what it may be. */
#ifndef LHI_GIVEN_VALUE_H
#define LHI_GIVEN_VALUE_H

#include "import/argument_words.h"

#include <stdbool.h>
#include <stdint.h>

/* As it was given last. */
typedef struct lhi_given {
    bool is;
    uint32_t line; /* 0: by what the file names, not in it */
    uint32_t n;
    const lhi_argument_word *values;
} lhi_given;

/* It, and what messages call it. */
typedef struct lhi_given_key {
    const char *file, *name; /* "--seq-length", "training.seq_len" */
    const lhi_given *given;
} lhi_given_key;

/* "file:line: --name: message"; without a line where it was not given. */
lh_status lhi_given_fail(lhi_given_key key, lh_status code, lh_error *err,
                         const char *format, ...) LHI_PRINTF(4, 5);
/* These leave *out alone where it was not given. */
lh_status lhi_given_count(lhi_given_key key, int64_t least, int64_t most,
                          int64_t *out, lh_error *err);
lh_status lhi_given_real(lhi_given_key key, double *out, lh_error *err);
/* One of the NULL-terminated names; *out is its index. */
lh_status lhi_given_choice(lhi_given_key key, const char *const *names,
                           uint32_t *out, lh_error *err);

/* Whether two names are one letter apart; '-' and '_' are the same. */
bool lhi_given_is_near(const char *a, const char *b);

#endif
