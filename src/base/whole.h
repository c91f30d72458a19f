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

/* The least number from `least` on that divides `n`; n where it is smaller. */
static inline uint32_t lhi_least_divisor(uint32_t n, uint32_t least)
{
    uint32_t d = least ? least : 1;
    while (d < n && n % d)
        d++;
    return d < n ? d : n;
}

#endif
