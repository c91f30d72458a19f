/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as bytes, little-endian on every machine: what goes into files and
 * between ranks. */
#ifndef LHI_BYTES_H
#define LHI_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The lowest `n` bytes of a value. */
static inline void lhi_put_bytes(unsigned char *out, size_t n, uint64_t value)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t lhi_get_bytes(const unsigned char *in, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

/* A double as its 64 bits: a NaN stays the same NaN. */
static inline uint64_t lhi_bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double lhi_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
