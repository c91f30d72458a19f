/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting that leaves equals in their order, on every machine: C leaves to each
 * library what its qsort() does with them. */
#ifndef LHI_SORT_H
#define LHI_SORT_H

#include <stddef.h>

/* As qsort(), and stable. Cannot fail: without memory for a copy it takes
 * time in proportion to the square of n. */
void lhi_sort(void *base, size_t n, size_t size,
              int (*compare)(const void *a, const void *b));

#endif
