/* SPDX-License-Identifier: Apache-2.0 */
/* Error reporting of all longhaul calls.
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

/* Returns the short name of a status, e.g. "infeasible". Never NULL. */
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
 * Returns the length of the complete result. Writes as many whole characters as
 * fit into `buffer` (`room` bytes), and a NUL (nothing if `room` is 0). Error
 * texts are unescaped; the caller that prints them must use this function. */
LH_API size_t lh_text_escape(const char *text, size_t len, char *buffer,
                             size_t room);
/* Escapes JSON text without changing its meaning: these characters become
 * \u001b or \u202e. Only bytes that are not valid UTF-8, which JSON excludes,
 * are replaced by \ufffd. Line ends between values are preserved. Return value
 * and `buffer` as in lh_text_escape(). */
LH_API size_t lh_json_escape(const char *text, size_t len, char *buffer,
                             size_t room);

/* Detects the file kind from its key `longhaul`: "pipeline", "job", "plan",
 * ...; "trace" for Chrome trace events; "" for anything else. Searches only for
 * the word after that key, at the beginning of a line or in a JSON map, so the
 * start of a file is sufficient; the actual parser validates. Writes to `kind`,
 * which must hold LH_KIND_TEXT_SIZE bytes, and returns it. */
#define LH_KIND_TEXT_SIZE 24
/* Detects the file kind, see above. */
LH_API char *lh_text_detect_kind(const char *text, char *kind);

/* Frees text returned by a longhaul call. NULL is a no-op. */
LH_API void lh_text_free(char *text);

/* Reads a file, pipe or FIFO of at most `max_bytes`; a NUL follows that `len`
 * does not count. Release *text with lh_text_free(). LH_EIO: it cannot be read,
 * is a directory, or is a FIFO without a writer for five seconds. LH_EINPUT: it
 * is larger. */
LH_API lh_status lh_file_read(const char *path, size_t max_bytes, char **text,
                              size_t *len, lh_error *err);

/* Writes `len` bytes to `path` atomically: a temporary file in the same folder
 * is synced, then renamed, so that readers see either the old or the complete
 * new file. "-" has no special meaning. A FIFO is written directly and rejected
 * if it has no reader for five seconds. Stale temporary files from killed
 * processes are removed.
 *
 * LH_EIO: the old file is unchanged. If the file size is limited (`ulimit -f`),
 * SIGXFSZ must be ignored for this error to be returned. */
LH_API lh_status lh_file_write(const char *path, const char *text, size_t len,
                               lh_error *err);

/* Checks whether lh_file_write() could begin now: returns the same LH_EIO if
 * not. Existing files are unchanged and no new ones remain. */
LH_API lh_status lh_file_writable(const char *path, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
