/* SPDX-License-Identifier: Apache-2.0 */
/* Stable sorting with the same result on every machine; C leaves the order that
 * qsort() gives equal items to the library. */
#ifndef LHI_BASE_SORT_H
#define LHI_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

/* Sorts as qsort() does, but stably; in place, in O(n log^2 n) time. */
void lhi_sort(void *base, size_t n, size_t size,
              int (*compare)(const void *a, const void *b));

/* Sorts the durations ns[0..n-1] in place and returns the median, the mean of
 * the middle two for even n. Returns 0 if n is 0. */
int64_t lhi_median_ns(int64_t *ns, size_t n);

#endif
