/* SPDX-License-Identifier: Apache-2.0 */
/* A growing text buffer, and whole files in and out. */
#ifndef LHI_TEXT_H
#define LHI_TEXT_H

#include "base/fail.h"

#include <stdbool.h>
#include <stddef.h>

/* Zero-initialise. After a failed allocation `failed` stays set, further
 * calls do nothing, and lhi_text_take() reports it: check once, at the end. */
typedef struct lhi_text {
    char *data; /* NUL-terminated once anything was added */
    size_t len, room;
    bool failed;
} lhi_text;

void lhi_text_fini(lhi_text *text);
void lhi_text_add(lhi_text *text, const char *bytes, size_t len);
void lhi_text_puts(lhi_text *text, const char *string);
void lhi_text_printf(lhi_text *text, const char *format, ...) LHI_PRINTF(2, 3);

/* Hands the text to the caller (release with lh_text_free) and empties the
 * buffer; `len` may be NULL. LH_ENOMEM: the buffer is empty, *out untouched. */
lh_status lhi_text_take(lhi_text *text, char **out, size_t *len, lh_error *err);

/* As much of `from` as `room` bytes have room for, in whole characters of
 * UTF-8, ended by 0. */
void lhi_text_copy(char *to, size_t room, const char *from);

/* Reads a whole regular file of at most `max_bytes` (then NUL-terminated);
 * release with lh_text_free. */
lh_status lhi_file_read(const char *path, size_t max_bytes, char **out,
                        size_t *len, lh_error *err);
/* The same of a text, called `what` where it is too large: what has several
 * NULs in a row is none and is refused where they come, so that /dev/zero is
 * not read on. (UTF-16, which YAML may be, has single ones.) */
lh_status lhi_text_read(const char *path, size_t max_bytes, const char *what,
                        char **out, size_t *len, lh_error *err);
/* LH_EINPUT: "NAME: larger than 16 MiB, the most that a job may have". */
lh_status lhi_fail_large(const char *name, size_t max_bytes, const char *what,
                         lh_error *err);

#endif
