/* SPDX-License-Identifier: Apache-2.0 */
/* Spectrum of fibres as bit sets: bit j of a fibre is set if slot j is
 * occupied. */
#ifndef LHI_NETWORK_OPTICAL_SPECTRUM_H
#define LHI_NETWORK_OPTICAL_SPECTRUM_H

#include "network/optical/network.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    LHI_MAX_SLOTS = 1024,
    LHI_MAX_WORDS = LHI_MAX_SLOTS / 64,
};

/* A set of slots of one fibre, or of start slots. */
typedef struct lhi_slots {
    uint64_t words[LHI_MAX_WORDS];
} lhi_slots;

/* All fibres' occupied slots. */
typedef struct lhi_spectrum {
    uint32_t n_fibres, slots, n_words;
    uint32_t guard; /* free slots above every circuit's, occupied with them */
    uint64_t *busy; /* [fibre * n_words + word]; no bit beyond `slots` */
    /* Noise of the circuits; NULL: rates do not depend on it. */
    lhi_load_gsnr *load;
} lhi_spectrum;

/* Counts set bits. */
static inline uint32_t lhi_count_bits(uint64_t word)
{
#if defined(__GNUC__)
    return (uint32_t)__builtin_popcountll(word);
#else
    uint32_t n = 0;
    for (; word; word &= word - 1)
        n++;
    return n;
#endif
}

/* Returns the index of a non-zero word's lowest set bit. */
static inline uint32_t lhi_lowest_bit(uint64_t word)
{
#if defined(__GNUC__)
    return (uint32_t)__builtin_ctzll(word);
#else
    return lhi_count_bits((word & (~word + 1)) - 1);
#endif
}

/* Returns a fibre's bit set. */
static inline uint64_t *lhi_fibre(const lhi_spectrum *s, uint32_t fibre)
{
    return s->busy + (size_t)fibre * s->n_words;
}

/* Checks whether a slot is occupied. */
static inline bool lhi_slot_is_occupied(const uint64_t *busy, uint32_t slot)
{
    return busy[slot / 64] >> (slot % 64) & 1;
}

/* Shifts a set down by `by` slots: bit j of out is bit j + by of in. */
static inline void lhi_slots_shift_down(const uint64_t *in, uint32_t by,
                                        uint32_t n_words, uint64_t *out)
{
    uint32_t skip = by / 64, shift = by % 64;
    for (uint32_t w = 0; w < n_words; w++) {
        uint64_t low = w + skip < n_words ? in[w + skip] : 0;
        uint64_t high = w + skip + 1 < n_words ? in[w + skip + 1] : 0;
        out[w] = shift ? low >> shift | high << (64 - shift) : low;
    }
}

/* Computes the slots that are free on every fibre of the path. */
static inline void lhi_free_slots(const lhi_spectrum *s, const lhi_path *path,
                                  uint64_t *out)
{
    memset(out, 0, s->n_words * sizeof *out);
    for (uint32_t h = 0; h < path->hops; h++) {
        const uint64_t *busy = lhi_fibre(s, path->fibres[h]);
        for (uint32_t w = 0; w < s->n_words; w++)
            out[w] |= busy[w];
    }
    for (uint32_t w = 0; w < s->n_words; w++)
        out[w] = ~out[w];
    if (s->slots % 64)
        out[s->n_words - 1] &= (UINT64_C(1) << s->slots % 64) - 1;
}

/* Replaces free slots by the start slots of free blocks of `n`; false if there
 * is none. Takes log n steps, each an AND of the set with itself shifted down.
 */
static inline bool lhi_block_starts(uint64_t *set, uint32_t n, uint32_t n_words)
{
    uint64_t moved[LHI_MAX_WORDS], any = 0;
    for (uint32_t have = 1; have < n;) {
        uint32_t by = have < n - have ? have : n - have;
        lhi_slots_shift_down(set, by, n_words, moved);
        for (uint32_t w = 0; w < n_words; w++)
            set[w] &= moved[w];
        have += by;
    }
    for (uint32_t w = 0; w < n_words; w++)
        any |= set[w];
    return any != 0;
}

/* Computes the start slots of free blocks of `n` on the path: B(path, n). */
static inline bool lhi_path_starts(const lhi_spectrum *s, const lhi_path *path,
                                   uint32_t n, uint64_t *out)
{
    if (n > s->slots)
        return false;
    lhi_free_slots(s, path, out);
    return lhi_block_starts(out, n, s->n_words);
}

/* Returns a non-empty set's lowest slot. */
static inline uint32_t lhi_first_slot(const uint64_t *set)
{
    uint32_t w = 0;
    while (!set[w])
        w++;
    return w * 64 + lhi_lowest_bit(set[w]);
}

/* Returns the bits of slots first..first+n-1 within word `word`. */
static inline uint64_t lhi_slot_mask(uint32_t first, uint32_t n, uint32_t word)
{
    uint32_t low = word * 64;
    uint32_t begin = first > low ? first - low : 0;
    uint32_t end = first + n < low + 64 ? first + n - low : 64;
    uint64_t below_end = end == 64 ? ~UINT64_C(0) : (UINT64_C(1) << end) - 1;
    return below_end & ~((UINT64_C(1) << begin) - 1);
}

/* Occupies, or releases, slots first..first+n-1 on every fibre of the path. */
static inline void lhi_spectrum_set(lhi_spectrum *s, const lhi_path *path,
                                    uint32_t first, uint32_t n, bool hold)
{
    uint32_t last_word = (first + n - 1) / 64;
    assert(n > 0 && first + n <= s->slots);
    (void)hold; /* used by the assertion only */
    for (uint32_t w = first / 64; w <= last_word; w++) {
        uint64_t mask = lhi_slot_mask(first, n, w);
        for (uint32_t h = 0; h < path->hops; h++) {
            uint64_t *busy = lhi_fibre(s, path->fibres[h]) + w;
            /* Slots are never occupied or released twice. */
            assert((*busy & mask) == (hold ? 0 : mask));
            *busy = hold ? *busy | mask : *busy & ~mask;
        }
    }
}

/* Makes all slots of a fibre without circuits occupied, or free again. */
static inline void lhi_spectrum_block(lhi_spectrum *s, uint32_t fibre,
                                      bool block)
{
    uint64_t *busy = lhi_fibre(s, fibre);
    for (uint32_t w = 0; w < s->n_words; w++)
        busy[w] = block ? lhi_slot_mask(0, s->slots, w) : 0;
}

/* Counts occupied slots, summed over the path's fibres. */
static inline uint32_t lhi_path_count_occupied(const lhi_spectrum *s,
                                               const lhi_path *path)
{
    uint32_t n = 0;
    for (uint32_t h = 0; h < path->hops; h++) {
        const uint64_t *busy = lhi_fibre(s, path->fibres[h]);
        for (uint32_t w = 0; w < s->n_words; w++)
            n += lhi_count_bits(busy[w]);
    }
    return n;
}

#endif
