/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/tensor_slices.h"

#include <string.h>

size_t lhi_slice_first(size_t n, uint32_t ranks, uint32_t i)
{
    /* n * i / ranks without overflow. */
    size_t per = n / ranks, rest = n % ranks;
    return per * i + rest * i / ranks;
}

lhi_slice lhi_slice_for_rank(const lhi_slice *slice, uint32_t rank)
{
    lhi_slice out = *slice;
    out.mine = rank / slice->sharers;
    return out;
}

/* Returns the tensor's column count, 1 for a vector. */
static size_t get_width(const lhi_slice *s)
{
    return s->columns ? s->columns : 1;
}

/* Computes the first index and the length, along the sliced side of length
 * `side`, of the slice in each of the matrices that the tensor stacks. */
static void find_range(const lhi_slice *s, size_t side, size_t *first,
                       size_t *n)
{
    size_t all = (side - s->n_common_rows) / s->parts;
    *first = lhi_slice_first(all, s->ranks, s->mine);
    *n = lhi_slice_first(all, s->ranks, s->mine + 1) - *first;
}

size_t lhi_slice_count_values(const lhi_slice *s)
{
    size_t first, n, width = get_width(s);
    if (s->cut == LHI_CUT_NOT || s->ranks == 1)
        return s->rows * width;
    bool by_rows = s->cut == LHI_CUT_ROWS;
    find_range(s, by_rows ? s->rows : width, &first, &n);
    return (n * s->parts + s->n_common_rows) * (by_rows ? width : s->rows);
}

size_t lhi_slice_count_own_values(const lhi_slice *s, uint32_t rank)
{
    size_t all = lhi_slice_count_values(s);
    if (!lhi_slice_is_first(s, rank))
        return 0;
    return s->ranks == 1 || s->mine == 0
               ? all
               : all - s->n_common_rows * get_width(s);
}

size_t lhi_slice_count_runs(const lhi_slice *s)
{
    if (s->cut == LHI_CUT_NOT || s->ranks == 1)
        return 1;
    return s->cut == LHI_CUT_ROWS ? s->parts + (s->n_common_rows > 0)
                                  : (size_t)s->rows * s->parts;
}

lhi_slice_run lhi_slice_run_of(const lhi_slice *s, size_t run)
{
    size_t first, n, width = get_width(s);
    if (s->cut == LHI_CUT_NOT || s->ranks == 1)
        return (lhi_slice_run){0, 0, s->rows * width};
    if (s->cut == LHI_CUT_ROWS) {
        find_range(s, s->rows, &first, &n);
        size_t cut = s->rows - s->n_common_rows, part = cut / s->parts;
        if (run == s->parts)
            return (lhi_slice_run){run * n * width, cut * width,
                                   s->n_common_rows * width};
        return (lhi_slice_run){run * n * width, (run * part + first) * width,
                               n * width};
    }
    /* Runs are ordered by row, then by matrix. */
    find_range(s, width, &first, &n);
    size_t part = width / s->parts;
    return (lhi_slice_run){run * n, run * part + first, n};
}

/* Copies the slice's values [first, first + n) between the full tensor `whole`
 * and `values`, run by run; `puts`: into the tensor. */
static void copy_runs(const lhi_slice *s, float *whole, size_t first, size_t n,
                      float *values, bool puts)
{
    if (n == 0)
        return;
    size_t each = lhi_slice_run_of(s, 0).n, last = lhi_slice_count_runs(s) - 1;
    /* The last run may be longer, since it includes the common rows. */
    for (size_t k = first / each < last ? first / each : last;
         k <= last && k * each < first + n; k++) {
        lhi_slice_run run = lhi_slice_run_of(s, k);
        size_t from = run.slice_offset > first ? run.slice_offset : first;
        size_t end = run.slice_offset + run.n;
        size_t to = end < first + n ? end : first + n;
        float *there = whole + run.tensor_offset + (from - run.slice_offset);
        float *here = values + (from - first);
        memcpy(puts ? there : here, puts ? here : there,
               (to - from) * sizeof *here);
    }
}

void lhi_slice_read(const lhi_slice *s, const float *whole, size_t first,
                    size_t n, float *out)
{
    copy_runs(s, (float *)(uintptr_t)whole, first, n, out, false);
}

void lhi_slice_write(const lhi_slice *s, const float *values, size_t first,
                     size_t n, float *whole)
{
    copy_runs(s, whole, first, n, (float *)(uintptr_t)values, true);
}
