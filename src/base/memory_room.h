/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this process can still have, and what says so. */
#ifndef LHI_MEMORY_ROOM_H
#define LHI_MEMORY_ROOM_H

#include <stdint.h>

typedef struct lhi_memory_room {
    uint64_t bytes;    /* UINT64_MAX: nothing limits it */
    const char *limit; /* what does: "ulimit -v"; a constant */
} lhi_memory_room;

/* What can be mapped, used or not: RLIMIT_AS, and RLIMIT_DATA, which Linux
 * counts private memory by. */
lhi_memory_room lhi_room_to_map(void);

/* What can be filled, by all processes together: the memory limits of the
 * control groups (version 1 or 2) that this process is in, less what is used
 * and cannot be dropped, and the machine's available memory and swap. `root`
 * is the folder in which proc/ and sys/ lie, "" for the system's own. */
lhi_memory_room lhi_room_to_fill(const char *root);

#endif
