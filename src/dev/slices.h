/* SPDX-License-Identifier: Apache-2.0 */
/* What of a tensor a rank has where tensor parallelism cuts it (Megatron-LM,
 * arXiv:1909.08053, section 3): rows, or columns, from n * mine / ranks to
 * n * (mine + 1) / ranks. Where several matrices are one tensor, as queries,
 * keys and values of GPT-2, each of these `parts` is cut so. Where it has fewer
 * slices than there are ranks, as with few key and value heads, each is that of
 * `sharers` ranks, one after the other; where such heads are in one tensor with
 * the queries, as with Falcon, its last `common` rows are all ranks'. */
#ifndef LHI_SLICES_H
#define LHI_SLICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lhi_cut {
    LHI_CUT_NOT, /* every rank has all of it: one slice */
    LHI_CUT_ROWS,
    LHI_CUT_COLUMNS
} lhi_cut;

typedef struct lhi_slice {
    lhi_cut cut;
    uint32_t parts;         /* of the side that is cut; 1: one matrix */
    uint32_t ranks, mine;   /* slices that there are; 1, 0: nothing is cut */
    uint32_t sharers;       /* ranks that have each */
    uint32_t common;        /* rows; where rows are cut */
    uint32_t rows, columns; /* of the whole; columns 0: a vector */
} lhi_slice;

/* Values that lie one after the other, both in the slice and in the whole. */
typedef struct lhi_slice_run {
    size_t here, whole, n;
} lhi_slice_run;

/* Of n things, the first one that rank `i` of `ranks` has. */
size_t lhi_slice_first(size_t n, uint32_t ranks, uint32_t i);
/* What rank `rank` of all has of the same tensor; and whether no rank before it
 * has that. */
lhi_slice lhi_slice_at(const lhi_slice *slice, uint32_t rank);
static inline bool lhi_slice_is_first(const lhi_slice *slice, uint32_t rank)
{
    return rank % slice->sharers == 0;
}
/* Values, the slice's first ones, that no rank before `rank`, whose it is,
 * has. */
size_t lhi_slice_own(const lhi_slice *slice, uint32_t rank);
size_t lhi_slice_values(const lhi_slice *slice);
size_t lhi_slice_n_runs(const lhi_slice *slice);
lhi_slice_run lhi_slice_run_of(const lhi_slice *slice, size_t run);

/* Copies values first .. first + n - 1 of the slice out of the whole tensor, or
 * into it. */
void lhi_slice_take(const lhi_slice *slice, const float *whole, size_t first,
                    size_t n, float *out);
void lhi_slice_put(const lhi_slice *slice, const float *values, size_t first,
                   size_t n, float *whole);

#endif
