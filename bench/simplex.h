/* SPDX-License-Identifier: Apache-2.0 */
/* Minimises a function over a few positive numbers. */
#ifndef SIMPLEX_H
#define SIMPLEX_H

#include <stdbool.h>
#include <stdint.h>

enum { SIMPLEX_MOST = 10 };

/* Returns the value at `x`. false aborts the search. */
typedef bool simplex_value(void *context, const double *x, double *value);

/* Runs Nelder and Mead's simplex (The Computer Journal 7(4), 1965) on the
 * logarithms of `n` numbers (at most SIMPLEX_MOST), which keeps them positive.
 * Starts at `x` and stores the best point there. Returns false if a value
 * failed; `x` is then unchanged. */
bool simplex_search(simplex_value *value, void *context, uint32_t n,
                    uint32_t iterations, double *x);

#endif
