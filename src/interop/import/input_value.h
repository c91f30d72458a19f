/* SPDX-License-Identifier: Apache-2.0 */
/* A value from another program's configuration, and checks on it. */
#ifndef LHI_INTEROP_IMPORT_INPUT_VALUE_H
#define LHI_INTEROP_IMPORT_INPUT_VALUE_H

#include "interop/import/command_line.h"

#include <stdbool.h>
#include <stdint.h>

/* The last value given for a key. */
typedef struct lhi_input_value {
    bool is_given;
    uint32_t line; /* 0: implied by a named config, not in the file */
    uint32_t n;
    const lhi_command_line_word *values;
} lhi_input_value;

/* A value with its key's name for messages. */
typedef struct lhi_input_key {
    const char *file, *name; /* "--seq-length", "training.seq_len" */
    const lhi_input_value *value;
} lhi_input_key;

/* Fails with `code` and "file:line: --name: message" about an input value;
 * omits the line if the file does not give the value. */
lh_status lhi_input_value_fail(lhi_input_key key, lh_status code, lh_error *err,
                               const char *format, ...) LHI_PRINTF(4, 5);
/* Reads an integer in least..most into *out, unchanged if no value is given.
 * LH_EINPUT: the value is not in this range or no integer. */
lh_status lhi_input_value_get_integer(lhi_input_key key, int64_t least,
                                      int64_t most, int64_t *out,
                                      lh_error *err);
/* Reads a finite number into *out, unchanged if no value is given. LH_EINPUT:
 * the value is not one. */
lh_status lhi_input_value_get_real(lhi_input_key key, double *out,
                                   lh_error *err);
/* Reads a name from the NULL-terminated list `names`; *out is its index,
 * unchanged if no value is given. LH_EINPUT: the value is not in the list. */
lh_status lhi_input_value_get_choice(lhi_input_key key,
                                     const char *const *names, uint32_t *out,
                                     lh_error *err);

/* Checks whether words `a` and `b` are equal, in upper or lower case. */
bool lhi_is_same_word(const char *a, const char *b);
/* Checks whether names `a` and `b` are equal or differ by one letter, for
 * suggestions in messages. Before that letter '-' equals '_'. */
bool lhi_is_similar_name(const char *a, const char *b);

#endif
