/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary files beside those that are written, and what is left of them when
 * their writer was killed. */
#ifndef LHI_LEFTOVERS_H
#define LHI_LEFTOVERS_H

#include <stdbool.h>
#include <stddef.h>

/* Room for a path, a temporary file's ending and a NUL. */
enum { LHI_TEMP_ROOM = 64 };

/* The name of temporary file `attempt` of this process beside `path`:
 * "PATH.tmp-PROCESS-PLACE-ATTEMPT"; `room` is strlen(path) + LHI_TEMP_ROOM. */
void lhi_temp_name(const char *path, unsigned attempt, char *out, size_t room);

/* Whether `name` is that of a temporary file beside one called `base` (NULL:
 * any), by a process that is gone; those by processes that cannot be seen from
 * here count once they are a day old. */
bool lhi_is_leftover(int folder_fd, const char *name, const char *base);

/* Removes the leftovers beside `path`. Only regular files of this user; what
 * goes wrong does not matter. */
void lhi_remove_leftovers(const char *path);

#endif
