/* SPDX-License-Identifier: Apache-2.0 */
/* The memory still available to this process, and the binding limit. */
#ifndef LHI_BASE_AVAILABLE_MEMORY_H
#define LHI_BASE_AVAILABLE_MEMORY_H

#include <stdint.h>

/* An amount of available memory with the limit that determines it. */
typedef struct lhi_available_memory {
    uint64_t bytes;    /* UINT64_MAX: unlimited */
    const char *limit; /* binding limit: "ulimit -v"; static string */
} lhi_available_memory;

/* Returns the address space that the process can still map. The limits are
 * RLIMIT_AS and RLIMIT_DATA, under which Linux counts private memory; mapped
 * memory counts as used even if it was never touched. */
lhi_available_memory lhi_find_mappable_memory(void);

/* Returns the physical memory still available. It is the minimum over two
 * limits:
 * - the control groups' memory limits (version 1 or 2), less unreclaimable
 *   usage
 * - the machine's available memory and swap
 *
 * `root` is the folder that contains proc/ and sys/, "" for the system's own.
 */
lhi_available_memory lhi_find_physical_memory(const char *root);

#endif
