/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's slice of a tensor under tensor parallelism (Megatron-LM,
 * arXiv:1909.08053, section 3): rows, or columns, from n * mine / ranks to n *
 * (mine + 1) / ranks.
 *
 * - A tensor may consist of several matrices (`parts`), such as GPT-2's fused
 *   queries, keys and values. Each is cut separately.
 * - There may be fewer slices than ranks, as with few key and value heads. Then
 *   `sharers` consecutive ranks have the same slice.
 * - If such heads are fused with the queries, as in Falcon, the last `common`
 *   rows are on all ranks. */
#ifndef LHI_RUNTIME_DEVICE_TENSOR_SLICES_H
#define LHI_RUNTIME_DEVICE_TENSOR_SLICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Side along which a tensor is cut. */
typedef enum lhi_cut {
    LHI_CUT_NOT, /* complete on every rank: one slice */
    LHI_CUT_ROWS,
    LHI_CUT_COLUMNS
} lhi_cut;

/* A tensor slice. */
typedef struct lhi_slice {
    lhi_cut cut;
    uint32_t parts;         /* matrices along the cut side; 1: one matrix */
    uint32_t ranks, mine;   /* number of slices, own index; 1, 0: not cut */
    uint32_t sharers;       /* ranks per slice */
    uint32_t n_common_rows; /* uncut rows, if rows are cut */
    uint32_t rows, columns; /* full tensor; columns 0: a vector */
} lhi_slice;

/* A run of values contiguous both in the slice and in the full tensor. */
typedef struct lhi_slice_run {
    size_t slice_offset, tensor_offset, n;
} lhi_slice_run;

/* Returns the index of the first unit of rank `i` if n units (rows or columns)
 * are divided over `ranks` ranks in order, as evenly as possible. */
size_t lhi_slice_first(size_t n, uint32_t ranks, uint32_t i);
/* Returns the slice that rank `rank` has of the tensor of which `slice` is
 * another rank's slice. */
lhi_slice lhi_slice_for_rank(const lhi_slice *slice, uint32_t rank);
/* Checks whether no lower rank has the same slice. */
static inline bool lhi_slice_is_first(const lhi_slice *slice, uint32_t rank)
{
    return rank % slice->sharers == 0;
}
/* Counts the values in rank `rank`'s slice that no lower rank also has; the
 * others are shared by several ranks. */
size_t lhi_slice_count_own_values(const lhi_slice *slice, uint32_t rank);
/* Counts the values (floats) in a slice. */
size_t lhi_slice_count_values(const lhi_slice *slice);
/* Counts the contiguous runs of values that a slice occupies in the full
 * tensor. */
size_t lhi_slice_count_runs(const lhi_slice *slice);
/* Returns offset and length of a slice's contiguous run number `run`. */
lhi_slice_run lhi_slice_run_of(const lhi_slice *slice, size_t run);

/* Copies the slice's values first .. first + n - 1 out of the full tensor. */
void lhi_slice_read(const lhi_slice *slice, const float *whole, size_t first,
                    size_t n, float *out);
/* Copies `values` to positions first .. first + n - 1 of the slice, at their
 * places in the full tensor `whole`. */
void lhi_slice_write(const lhi_slice *slice, const float *values, size_t first,
                     size_t n, float *whole);

#endif
