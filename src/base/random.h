/* SPDX-License-Identifier: Apache-2.0 */
/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the same sequence on every
 * machine. */
#ifndef LHI_BASE_RANDOM_H
#define LHI_BASE_RANDOM_H

#include <math.h>
#include <stdint.h>

/* A generator's state. */
typedef struct lhi_random {
    uint64_t state; /* initialised to the seed */
} lhi_random;

/* Mixes 64 bits by a bijection in which every output bit depends on every input
 * bit. */
static inline uint64_t lhi_mix64(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Returns the next 64 random bits. */
static inline uint64_t lhi_random_next(lhi_random *r)
{
    return lhi_mix64(r->state += UINT64_C(0x9E3779B97F4A7C15));
}

/* Returns a number in 0..n-1. */
static inline uint32_t lhi_random_below(lhi_random *r, uint32_t n)
{
    return (uint32_t)((lhi_random_next(r) >> 32) * n >> 32);
}

/* Returns an exponentially distributed duration in whole nanoseconds. */
static inline int64_t lhi_random_exponential(lhi_random *r, double mean_ns)
{
    double unit = (double)(lhi_random_next(r) >> 11) * 0x1p-53;
    return (int64_t)floor(-log(1.0 - unit) * mean_ns);
}

#endif
