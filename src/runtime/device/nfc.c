/* SPDX-License-Identifier: Apache-2.0 */
/* Unicode's normal form C (UAX #15). A text is normalised in segments, from one
 * code point that cannot combine with the ones before it to the next. */
#include "base/fail.h"
#include "runtime/device/tokenizer.h"
#include "runtime/device/unicode_nfc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(table) (sizeof(table) / sizeof *(table))

/* Hangul syllables are composed of two or three letters by rule. */
enum {
    FIRST_SYLLABLE = 0xac00,
    FIRST_LEADING = 0x1100,
    FIRST_VOWEL = 0x1161,
    BEFORE_TRAILING = 0x11a7,
    N_LEADING = 19,
    N_VOWELS = 21,
    N_TRAILING = 28, /* with none */
    N_SYLLABLES = N_LEADING * N_VOWELS * N_TRAILING,
    FIRST_DECOMPOSED = 0xc0,
    FIRST_COMBINED = 0x300, /* all before it are in the normal form */
};

/* Returns a Unicode code point's canonical combining class; 0: it does not
 * combine. */
static uint32_t find_class(uint32_t c)
{
    size_t low = 0, high = COUNT_OF(lhi_combining_classes);
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const lhi_combining *range = &lhi_combining_classes[middle];
        if (c < range->first)
            high = middle;
        else if (c > range->last)
            low = middle + 1;
        else
            return range->of;
    }
    return 0;
}

/* Returns a Unicode code point's canonical decomposition into two; NULL: none.
 * */
static const lhi_decomposition *find_decomposition(uint32_t c)
{
    size_t low = 0, high = COUNT_OF(lhi_decompositions);
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (c == lhi_decompositions[middle].to)
            return &lhi_decompositions[middle];
        if (c < lhi_decompositions[middle].to)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* Returns the Unicode code point that is the canonical composition of two; 0:
 * none. */
static uint32_t compose(uint32_t first, uint32_t second)
{
    const uint32_t leading = first - FIRST_LEADING;
    const uint32_t vowel = second - FIRST_VOWEL;
    const uint32_t syllable = first - FIRST_SYLLABLE;
    const uint32_t trailing = second - BEFORE_TRAILING;
    if (leading < N_LEADING && vowel < N_VOWELS)
        return FIRST_SYLLABLE + (leading * N_VOWELS + vowel) * N_TRAILING;
    if (syllable < N_SYLLABLES && syllable % N_TRAILING == 0 && trailing > 0 &&
        trailing < N_TRAILING)
        return first + trailing;
    size_t low = 0, high = COUNT_OF(lhi_compositions);
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const lhi_decomposition *d =
            &lhi_decompositions[lhi_compositions[middle]];
        if (first == d->first && second == d->second)
            return d->to;
        if (first < d->first || (first == d->first && second < d->second))
            high = middle;
        else
            low = middle + 1;
    }
    return 0;
}

/* Checks whether a code point of combining class 0 may be the second one of a
 * canonical composition. */
static bool is_second(uint32_t c)
{
    if (c - FIRST_VOWEL < N_VOWELS || c - BEFORE_TRAILING < N_TRAILING)
        return true;
    for (size_t i = 0; i < COUNT_OF(lhi_second_starters); i++)
        if (lhi_second_starters[i] == c)
            return true;
    return false;
}

/* Checks whether a code point begins a segment: it can neither combine with nor
 * be reordered before an earlier one, so the text before it can be normalised
 * alone. */
static bool begins_segment(uint32_t c)
{
    if (c < FIRST_COMBINED || c > 0x10ffff)
        return true;
    const lhi_decomposition *d;
    while ((d = find_decomposition(c)))
        c = d->first;
    return c < FIRST_COMBINED || (find_class(c) == 0 && !is_second(c));
}

/* Code points of a segment, and the text made so far. */
typedef struct normalizer {
    uint32_t *points;
    size_t n, capacity;
    char *out;
    size_t length, out_capacity;
} normalizer;

/* Appends a code point to the segment. false: out of memory. */
static bool add_point(normalizer *z, uint32_t c)
{
    if (z->n == z->capacity) {
        const size_t more = z->capacity ? 2 * z->capacity : 64;
        uint32_t *grown = realloc(z->points, more * sizeof *grown);
        if (!grown)
            return false;
        z->points = grown;
        z->capacity = more;
    }
    z->points[z->n++] = c;
    return true;
}

/* Appends a code point's full decomposition. false: out of memory. */
static bool add_decomposed(normalizer *z, uint32_t c)
{
    const uint32_t syllable = c - FIRST_SYLLABLE;
    if (syllable < N_SYLLABLES) {
        const uint32_t trailing = syllable % N_TRAILING;
        return add_point(z,
                         FIRST_LEADING + syllable / (N_VOWELS * N_TRAILING)) &&
               add_point(z, FIRST_VOWEL + syllable / N_TRAILING % N_VOWELS) &&
               (trailing == 0 || add_point(z, BEFORE_TRAILING + trailing));
    }
    uint32_t seconds[8], n = 0;
    const lhi_decomposition *d;
    while (c >= FIRST_DECOMPOSED && (d = find_decomposition(c))) {
        if (d->second)
            seconds[n++] = d->second;
        c = d->first;
    }
    if (!add_point(z, c))
        return false;
    while (n > 0)
        if (!add_point(z, seconds[--n]))
            return false;
    return true;
}

/* Sorts runs of combining code points by class, equal ones in their order. */
static void sort_combining(normalizer *z)
{
    for (size_t i = 1; i < z->n; i++) {
        const uint32_t c = z->points[i], of = find_class(c);
        size_t at = i;
        while (of > 0 && at > 0 && find_class(z->points[at - 1]) > of) {
            z->points[at] = z->points[at - 1];
            at--;
        }
        z->points[at] = c;
    }
}

/* Composes the segment's code points in place: each with the last one of
 * combining class 0, unless one between them blocks it (Unicode's canonical
 * composition). */
static void compose_all(normalizer *z)
{
    size_t kept = 0, base = SIZE_MAX;
    uint32_t last_class = 0;
    for (size_t i = 0; i < z->n; i++) {
        const uint32_t c = z->points[i], of = find_class(c);
        const bool is_next = base != SIZE_MAX && base + 1 == kept;
        if (base != SIZE_MAX && (is_next || last_class < of)) {
            const uint32_t both = compose(z->points[base], c);
            if (both) {
                z->points[base] = both;
                continue;
            }
        }
        if (of == 0)
            base = kept;
        last_class = of;
        z->points[kept++] = c;
    }
    z->n = kept;
}

/* Appends bytes to the text made so far. false: out of memory. */
static bool add_text(normalizer *z, const char *text, size_t n)
{
    if (z->length + n + 1 > z->out_capacity) {
        const size_t more = 2 * (z->length + n + 1);
        char *grown = realloc(z->out, more);
        if (!grown)
            return false;
        z->out = grown;
        z->out_capacity = more;
    }
    memcpy(z->out + z->length, text, n);
    z->length += n;
    return true;
}

/* Encodes a code point and returns its length in bytes. */
static size_t encode_utf8(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    const size_t more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    for (size_t i = more; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xff00u >> (more + 1) & 0xff) | c);
    return more + 1;
}

/* Ends a segment: sorts and composes its code points, and appends them to the
 * normalised text in UTF-8. false: out of memory. */
static bool end_segment(normalizer *z)
{
    sort_combining(z);
    compose_all(z);
    for (size_t i = 0; i < z->n; i++) {
        char bytes[4];
        if (!add_text(z, bytes, encode_utf8(z->points[i], bytes)))
            return false;
    }
    z->n = 0;
    return true;
}

/* Normalises a text into z->out. false: out of memory. */
static bool normalize(normalizer *z, const char *text, size_t len)
{
    for (size_t at = 0, size; at < len; at += size) {
        const uint32_t c = lhi_character_decode(text + at, len - at, &size);
        if (begins_segment(c) && !end_segment(z))
            return false;
        const bool done =
            c > 0x10ffff ? add_text(z, text + at, size) : add_decomposed(z, c);
        if (!done)
            return false;
    }
    return end_segment(z) && add_text(z, "", 0);
}

lh_status lhi_text_normalize(const char *text, size_t len, char **out,
                             size_t *out_len, lh_error *err)
{
    normalizer z = {0};
    const bool done = normalize(&z, text, len);
    free(z.points);
    if (!done) {
        free(z.out);
        return lhi_fail_nomem(err);
    }
    *out = z.out;
    *out_len = z.length;
    return LH_OK;
}
