/* SPDX-License-Identifier: Apache-2.0 */
/* The least value of a function of a few positive numbers. */
#ifndef SIMPLEX_H
#define SIMPLEX_H

#include <stdbool.h>
#include <stdint.h>

enum { SIMPLEX_MOST = 10 };

/* The value at `x`. false: there is none, and the search ends. */
typedef bool simplex_value(void *context, const double *x, double *value);

/* Nelder and Mead's simplex (The Computer Journal 7(4), 1965) on the logarithm
 * of each of `n` (at most SIMPLEX_MOST) numbers, so that they stay positive.
 * From `x`, which becomes the best that was seen; false as above, and `x` is
 * what it was. */
bool simplex_search(simplex_value *value, void *context, uint32_t n,
                    uint32_t iterations, double *x);

#endif
