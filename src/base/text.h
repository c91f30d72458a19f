/* SPDX-License-Identifier: Apache-2.0 */
/* A growing text buffer; reading and writing whole files. */
#ifndef LHI_BASE_TEXT_H
#define LHI_BASE_TEXT_H

#include "base/fail.h"

#include <stdbool.h>
#include <stddef.h>

/* A growing text buffer; zero-initialise it. After a failed allocation,
 * `failed` remains set and further calls do nothing. lhi_text_take() reports
 * the failure, so one check at the end suffices. */
typedef struct lhi_text {
    char *data; /* NUL-terminated once non-empty */
    size_t len, capacity;
    bool failed;
} lhi_text;

/* Frees the text buffer's memory and empties it. */
void lhi_text_fini(lhi_text *text);
/* Appends `len` bytes to the text buffer; without any, `bytes` may be NULL. */
void lhi_text_add(lhi_text *text, const char *bytes, size_t len);
/* Appends a string to the text buffer. */
void lhi_text_puts(lhi_text *text, const char *string);
/* Appends text formatted as by printf() to the text buffer. */
void lhi_text_printf(lhi_text *text, const char *format, ...) LHI_PRINTF(2, 3);

/* Transfers the text to the caller (release it with lh_text_free) and empties
 * the buffer; `len` may be NULL. LH_ENOMEM: the buffer is empty and *out
 * unchanged. */
lh_status lhi_text_take(lhi_text *text, char **out, size_t *len, lh_error *err);

/* Copies as many whole UTF-8 characters of `from` into `to` as fit into `room`
 * bytes with a NUL. */
void lhi_text_copy(char *to, size_t room, const char *from);

/* Reads a whole regular file of at most `max_bytes` into *out, *len bytes and a
 * NUL; release it with lh_text_free. */
lh_status lhi_file_read(const char *path, size_t max_bytes, char **out,
                        size_t *len, lh_error *err);
/* Reads a whole text file of at most max_bytes into *out, *len bytes and a NUL.
 * `what`: its term in the message about its size. A run of NULs marks a binary
 * file and is rejected as soon as it is read, so that reading /dev/zero ends
 * early. (UTF-16, which YAML may use, contains single NULs only.) */
lh_status lhi_text_read(const char *path, size_t max_bytes, const char *what,
                        char **out, size_t *len, lh_error *err);
/* Fails with LH_EINPUT: "NAME: exceeds 16 MiB, the limit for a job". `what`:
 * the term for the kind of file; max_bytes: its limit. */
lh_status lhi_fail_too_large(const char *name, size_t max_bytes,
                             const char *what, lh_error *err);

#endif
