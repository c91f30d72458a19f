/* SPDX-License-Identifier: Apache-2.0 */
/* Whole numbers. */
#ifndef LHI_WHOLE_H
#define LHI_WHOLE_H

#include <stdint.h>

static inline int64_t lhi_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t lhi_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What divides both; 0 or more. */
static inline int64_t lhi_gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

#endif
