/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as little-endian bytes on every machine, for files and messages
 * between ranks. */
#ifndef LHI_BASE_BYTES_H
#define LHI_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Stores the lowest `n` bytes of a value. */
static inline void lhi_store_little_endian(unsigned char *out, size_t n,
                                           uint64_t value)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

/* Loads an unsigned integer from `n` bytes. */
static inline uint64_t lhi_load_little_endian(const unsigned char *in, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

/* Returns the 64 bits of a double; preserves NaN payloads. */
static inline uint64_t lhi_double_to_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Returns the double with these 64 bits. */
static inline double lhi_double_from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
