/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_BASE_EXACT_EQUALITY_H
#define LHI_BASE_EXACT_EQUALITY_H

#include <stdbool.h>

/* Compares exactly, as == does, but without the compiler warning: the exact
 * comparison is intended. */
static inline bool lhi_equals_exactly(double a, double b)
{
    return !(a < b) && !(b < a);
}

#endif
