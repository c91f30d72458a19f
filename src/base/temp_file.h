/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary files beside an output file, and removal of stale ones left by
 * killed writers. */
#ifndef LHI_BASE_TEMP_FILE_H
#define LHI_BASE_TEMP_FILE_H

#include <stddef.h>

/* Extra bytes for a temporary file's suffix and a NUL. */
enum { LHI_TEMP_SUFFIX_BYTES = 64 };

/* Formats the name of this process's temporary file number `attempt` beside
 * `path`: "PATH.tmp-PROCESS-PLACE-ATTEMPT". `room` is strlen(path) +
 * LHI_TEMP_SUFFIX_BYTES. */
void lhi_temp_file_format_name(const char *path, unsigned attempt, char *out,
                               size_t room);

/* Creates and opens a new file beside `path` for writing, with the default
 * mode, and stores its name in `temp`. Returns a negative value and sets errno
 * on failure. First removes stale temporary files of this user: those whose
 * process has ended or, if it is not visible from here, those that are a day
 * old. */
int lhi_temp_file_create(const char *path, char *temp, size_t room);

#endif
