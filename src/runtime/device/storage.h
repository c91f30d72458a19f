/* SPDX-License-Identifier: Apache-2.0 */
/* Host storage for a device's activations: a memory-mapped unnamed file, which
 * disappears with the process. A thread of its own copies to and from it, one
 * copy at a time, in the order in which copies are started. One thread at a
 * time may call these functions. */
#ifndef LHI_RUNTIME_DEVICE_STORAGE_H
#define LHI_RUNTIME_DEVICE_STORAGE_H

#include "base/fail.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lhi_storage lhi_storage;

/* A range in the file. */
typedef struct lhi_storage_block {
    struct lhi_storage_block *next; /* for the caller's use */
    unsigned char *at;
    size_t size;
} lhi_storage_block;

/* A contiguous buffer on the device. */
typedef struct lhi_storage_piece {
    void *at;
    size_t size;
} lhi_storage_piece;

/* Times of a copy, CLOCK_MONOTONIC. */
typedef struct lhi_storage_times {
    int64_t ready_ns, depart_ns, end_ns;
} lhi_storage_times;

/* Opens a storage for offloaded activations: a file in `folder` and a copy
 * thread. LH_EIO: creation failed; `err` has the cause and the remedy. */
lh_status lhi_storage_open(const char *folder, lhi_storage **out,
                           lh_error *err);
/* Stops the copy thread, drops pending copies and frees the storage. NULL is
 * allowed. */
void lhi_storage_close(lhi_storage *storage);

/* Extends the file by a block of `size` bytes for one microbatch's offloaded
 * activations, valid until the storage is closed. LH_EIO: the disk is full. */
lh_status lhi_storage_add_block(lhi_storage *storage, size_t size,
                                lhi_storage_block **out, lh_error *err);
/* Returns the file space in bytes for a block of `size` bytes, rounded up to
 * whole pages. */
size_t lhi_storage_block_bytes(size_t size);
/* Returns the storage file's current size in bytes. */
size_t lhi_storage_file_bytes(const lhi_storage *storage);

/* Starts a new step: waits for running copies and sets the step's copy
 * count to 0. */
void lhi_storage_begin_step(lhi_storage *storage);
/* Starts a copy of `n` pieces (memory buffers) to the block, contiguously, or
 * with is_back from the block. It takes at least `least_ns`, counted from the
 * previous copy's end. The list is copied; the buffers may not be touched
 * until the copy is done. */
lh_status lhi_storage_copy(lhi_storage *storage, lhi_storage_block *block,
                           const lhi_storage_piece *pieces, uint32_t n,
                           bool is_back, int64_t least_ns, lh_error *err);
/* Waits until `until_ns` (CLOCK_MONOTONIC) for the step's first `n` copies.
 * Returns whether they are done. */
bool lhi_storage_wait(lhi_storage *storage, uint32_t n, int64_t until_ns);
/* Returns when the step's copy `i` was ready, started and ended; the copy must
 * be done. */
lhi_storage_times lhi_storage_copy_times(lhi_storage *storage, uint32_t i);

#endif
