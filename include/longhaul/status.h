/* SPDX-License-Identifier: Apache-2.0 */
/* Error reporting for all longhaul calls.
 *
 * A call that can fail returns lh_status and has a last parameter `lh_error
 * *err`, which may be NULL. On LH_OK, `err` is unchanged. On failure the call's
 * outputs are unchanged, and `err` holds one sentence for the user: the
 * problem, its location (file:line and key for input files), and the remedy. */
#ifndef LONGHAUL_STATUS_H
#define LONGHAUL_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
/* Marks functions that the shared library exports. */
#define LH_API __attribute__((visibility("default")))
#else
#define LH_API
#endif

/* X(name, text): all status codes. */
#define LH_STATUS_LIST(X)                                                      \
    X(LH_OK, "ok")                                                             \
    X(LH_EINVAL, "invalid argument")                                           \
    X(LH_EINPUT, "invalid input")                                              \
    X(LH_EIO, "input/output error")                                            \
    X(LH_ENOMEM, "out of memory")                                              \
    X(LH_EINFEASIBLE, "infeasible")                                            \
    X(LH_EDEADLOCK, "deadlock")                                                \
    X(LH_EUNSUPPORTED, "unsupported")                                          \
    X(LH_ECANCELED, "canceled")

/* Status codes, see LH_STATUS_LIST. */
typedef enum lh_status {
#define LH_STATUS_ENUM(name, text) name,
    LH_STATUS_LIST(LH_STATUS_ENUM)
#undef LH_STATUS_ENUM
} lh_status;

/* An error message. */
typedef struct lh_error {
    lh_status code;
    char text[512]; /* NUL-terminated UTF-8, truncated with "..." */
} lh_error;

/* Returns a status's short name, e.g. "infeasible". Never NULL. */
LH_API const char *lh_status_name(lh_status status);

/* Returns the library's version, e.g. "0.1.0". */
LH_API const char *lh_version(void);

/* Escapes untrusted text (names in files, file names, messages that contain
 * them) for display on a terminal. The result is valid UTF-8 without control
 * effects.
 *
 * Control characters, bidirectional and invisible characters, line ends and
 * invalid UTF-8 become \n, \t, \x1b, \u202e or \U000e0041. A backslash is not
 * escaped: the output is for display and cannot be parsed back.
 *
 * Returns the complete result's length. Writes as many whole characters as
 * fit into `buffer` (`room` bytes), and a NUL (nothing if `room` is 0). Error
 * texts are unescaped; the caller that prints them must use this function. */
LH_API size_t lh_text_escape(const char *text, size_t len, char *buffer,
                             size_t room);

/* Frees text returned by a longhaul call. NULL is a no-op. */
LH_API void lh_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
