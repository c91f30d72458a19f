/* SPDX-License-Identifier: Apache-2.0 */
/* Files, and texts of several kinds.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_STATUS_H
#define LONGHAUL_EXPERIMENTAL_STATUS_H

#include <longhaul/status.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Escapes JSON text for display without changing its meaning: control,
 * bidirectional and invisible characters become \u001b or \u202e. Only bytes
 * that are not valid UTF-8, which JSON excludes, are replaced by \ufffd. Line
 * ends between values are preserved. Return value and `buffer` as in
 * lh_text_escape(). */
LH_API size_t lh_json_escape(const char *text, size_t len, char *buffer,
                             size_t room);

/* Detects the file kind from its key `longhaul`: "pipeline", "job", "plan",
 * ...; "trace" for Chrome trace events; "" for anything else. Searches only for
 * the word after that key, at the beginning of a line or in a JSON map, so a
 * file's start is sufficient; the actual parser validates. Writes to `kind`,
 * which must hold LH_KIND_TEXT_SIZE bytes, and returns it. */
#define LH_KIND_TEXT_SIZE 24
/* Detects a file's kind from its beginning: the word after its key
 * `longhaul`, such as "plan", or "trace" for Chrome trace events; "" for
 * anything else. Writes it to `kind` (LH_KIND_TEXT_SIZE bytes), which it
 * returns. */
LH_API char *lh_text_detect_kind(const char *text, char *kind);

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

/* Checks whether lh_file_write() could write `path` now; returns the same
 * LH_EIO if not. Existing files are unchanged and no new ones remain. */
LH_API lh_status lh_file_writable(const char *path, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
