/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting that leaves equals in their order, on every machine: C leaves to each
 * library what its qsort() does with them. */
#ifndef LHI_SORT_H
#define LHI_SORT_H

#include <stddef.h>
#include <stdint.h>

/* As qsort(), but stable; in place, in time O(n log^2 n). */
void lhi_sort(void *base, size_t n, size_t size,
              int (*compare)(const void *a, const void *b));

/* Sorts `n` times; the one in the middle, or what lies between both. 0: there
 * are none. */
int64_t lhi_median_ns(int64_t *ns, size_t n);

#endif
