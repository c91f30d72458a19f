/* SPDX-License-Identifier: Apache-2.0 */
/* Integer arithmetic. */
#ifndef LHI_BASE_INTEGER_MATH_H
#define LHI_BASE_INTEGER_MATH_H

#include <stdint.h>

/* Returns the smaller number. */
static inline int64_t lhi_min_int64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the larger number. */
static inline int64_t lhi_max_int64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the share of part `part` of `n_parts` in `total`; the shares add up
 * to `total`. */
static inline int64_t lhi_split_evenly(int64_t total, uint32_t part,
                                       uint32_t n_parts)
{
    int64_t each = total / n_parts, rest = total % n_parts;
    return each + rest * (part + 1) / n_parts - rest * part / n_parts;
}

/* Returns the greatest common divisor, 0 or more. */
static inline int64_t lhi_gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

/* Returns the smallest divisor of `n` that is at least `least`; returns n if
 * `n` is smaller. */
static inline uint32_t lhi_find_divisor_at_least(uint32_t n, uint32_t least)
{
    uint32_t d = least ? least : 1;
    while (d < n && n % d)
        d++;
    return d < n ? d : n;
}

#endif
