/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_SAME_H
#define LHI_SAME_H

#include <stdbool.h>

/* As ==, which compilers warn of, and on purpose: not nearly, but just. */
static inline bool lhi_same(double a, double b)
{
    return !(a < b) && !(b < a);
}

#endif
