/* SPDX-License-Identifier: Apache-2.0 */
/* How every longhaul call reports success or failure.
 *
 * A call that can fail returns lh_status and takes a last parameter
 * `lh_error *err`, which may be NULL. On LH_OK `err` is untouched. On anything
 * else the call's outputs are untouched and `err` holds one sentence for a
 * person: what is wrong, where (file:line and key for input files), and what
 * to do about it. */
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

/* X(name, text): every status there is. */
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

typedef enum lh_status {
#define LH_STATUS_ENUM(name, text) name,
    LH_STATUS_LIST(LH_STATUS_ENUM)
#undef LH_STATUS_ENUM
} lh_status;

typedef struct lh_error {
    lh_status code;
    char text[512]; /* NUL-terminated UTF-8, cut with "..." if too long */
} lh_error;

/* The short name of a status, e.g. "infeasible". Never NULL. */
LH_API const char *lh_status_name(lh_status status);

/* The library's version, e.g. "0.1.0". */
LH_API const char *lh_version(void);

/* Text that somebody else wrote (names in files, names of files, messages with
 * such in them) as it may go to a terminal: valid UTF-8 without characters that
 * act there in place of being seen. Control characters, those that turn the
 * direction of writing or are not seen at all, ends of lines and bytes that are
 * no UTF-8 become \n, \t, \x1b, \u202e and \U000e0041; a backslash stays one,
 * since this is for the eye and not to be read back. Returns how long all of it
 * is; into `buffer`, of `room` bytes, goes as much as fits in whole characters,
 * and a NUL (nothing if `room` is 0). Error texts are as the library made them:
 * whoever prints one passes it through here. */
LH_API size_t lh_text_show(const char *text, size_t len, char *buffer,
                           size_t room);
/* The same for a text that is JSON, whose meaning stays: such characters become
 * \u001b or \u202e, and only bytes that are no UTF-8, of which JSON has none,
 * change into \ufffd. Ends of lines between values stay. */
LH_API size_t lh_json_show(const char *text, size_t len, char *buffer,
                           size_t room);

/* What a file's text says it is in its key `longhaul`: "pipeline", "job",
 * "plan", ...; "trace" for Chrome trace events; "" for anything else. Only the
 * word after that key, at the beginning of a line or in a JSON map, is looked
 * for, so that the head of a file is enough; the reader proper checks. Written
 * to `kind` of at least LH_KIND_TEXT bytes, and returned. */
#define LH_KIND_TEXT 24
LH_API char *lh_text_kind(const char *text, char *kind);

/* Releases text that a longhaul call handed out. NULL is fine. */
LH_API void lh_text_free(char *text);

/* Reads a whole text, a file, pipe or FIFO, of at most `max_bytes`; a NUL that
 * `len` does not count follows. Release *text with lh_text_free(). LH_EIO: it
 * cannot be read, is a directory, or a FIFO that nobody has begun to write
 * within five seconds; LH_EINPUT: it is larger. */
LH_API lh_status lh_file_read(const char *path, size_t max_bytes, char **text,
                              size_t *len, lh_error *err);

/* Writes `len` bytes to `path` so that a reader sees the old file or the whole
 * new one: a temporary file in the same folder, synced, then renamed. "-" is
 * not special. A FIFO is written as it is, and refused if nobody reads it
 * within five seconds. LH_EIO: the old file is untouched. Temporary files
 * beside it whose process was killed are removed. Where the size of files is
 * limited
 * (`ulimit -f`), SIGXFSZ has to be ignored for that to be an LH_EIO. */
LH_API lh_status lh_file_write(const char *path, const char *text, size_t len,
                               lh_error *err);

/* Whether lh_file_write() could begin now: the same LH_EIO if not. Nothing is
 * left behind, and what is there stays. */
LH_API lh_status lh_file_writable(const char *path, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
