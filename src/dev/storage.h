/* SPDX-License-Identifier: Apache-2.0 */
/* A device's storage of the host: a file, mapped into memory, that has no name,
 * so that it is gone with the process. A thread of its own copies to it and
 * from it, one copy at a time, in the order in which they are begun. All calls
 * are made by one thread at a time. */
#ifndef LHI_STORAGE_H
#define LHI_STORAGE_H

#include "base/fail.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lhi_storage lhi_storage;

/* Room in it. */
typedef struct lhi_storage_block {
    struct lhi_storage_block *next; /* the caller's */
    unsigned char *at;
    size_t size;
} lhi_storage_block;

/* What lies in one piece on the device. */
typedef struct lhi_storage_piece {
    void *at;
    size_t size;
} lhi_storage_piece;

/* CLOCK_MONOTONIC. */
typedef struct lhi_copied {
    int64_t ready_ns, depart_ns, end_ns;
} lhi_copied;

/* The file lies in `folder`. LH_EIO: it cannot be made there; `err` says why,
 * and what to do. */
lh_status lhi_storage_open(const char *folder, lhi_storage **out,
                           lh_error *err);
/* Ends the thread; what is not copied yet is left out. NULL is fine. */
void lhi_storage_close(lhi_storage *storage);

/* A block of so many bytes, for which the file grows; it lives as long as the
 * storage. LH_EIO: the disk has no room for it. */
lh_status lhi_storage_grow(lhi_storage *storage, size_t size,
                           lhi_storage_block **out, lh_error *err);
/* What the file takes for a block of so many bytes: whole pages. */
size_t lhi_storage_room(size_t size);
size_t lhi_storage_held(const lhi_storage *storage); /* of the file */

/* Waits for what is being copied; then none has been begun. */
void lhi_storage_begin(lhi_storage *storage);
/* Copies `n` pieces to the block, one behind the other, or back from there. The
 * copy lasts `least_ns` at least, from when the one before it has ended. Pieces
 * are copied here, what they are of may not be touched until it is done. */
lh_status lhi_storage_copy(lhi_storage *storage, lhi_storage_block *block,
                           const lhi_storage_piece *pieces, uint32_t n,
                           bool is_back, int64_t least_ns, lh_error *err);
/* Waits for the first `n` copies that were begun, not beyond `until_ns` of
 * CLOCK_MONOTONIC. Returns whether they are done. */
bool lhi_storage_await(lhi_storage *storage, uint32_t n, int64_t until_ns);
/* Copy i, which is done. */
lhi_copied lhi_storage_copied(lhi_storage *storage, uint32_t i);

#endif
