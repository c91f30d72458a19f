/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary files beside those that are written, and what is left of them when
 * their writer was killed. */
#ifndef LHI_LEFTOVERS_H
#define LHI_LEFTOVERS_H

#include <stddef.h>

/* Room for a path, a temporary file's ending and a NUL. */
enum { LHI_TEMP_ROOM = 64 };

/* The name of temporary file `attempt` of this process beside `path`:
 * "PATH.tmp-PROCESS-PLACE-ATTEMPT"; `room` is strlen(path) + LHI_TEMP_ROOM. */
void lhi_temp_name(const char *path, unsigned attempt, char *out, size_t room);

/* Opens a new file beside `path`, to be written, with the mode that any new
 * file gets; its name is left in `temp`. Negative: errno says why not. Removes
 * those of processes that are gone, or cannot be seen from here and have left
 * them for a day: regular files of this user. */
int lhi_open_beside(const char *path, char *temp, size_t room);

#endif
