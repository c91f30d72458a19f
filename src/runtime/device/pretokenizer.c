/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2's pre-tokenizer: see lhi_pretokenize_word() in tokenizer.h. An invalid
 * UTF-8 byte counts as a character that is neither letter, number nor space. */
#include "runtime/device/tokenizer.h"
#include "runtime/device/unicode.h"

#include <stdbool.h>
#include <string.h>

/* Character classes of the pre-tokenizer. */
typedef enum class {
    LETTER,
    NUMBER,
    SPACE,
    OTHER,
} class;

/* Decodes and returns the first UTF-8 character in n > 0 bytes; *size receives
 * its length in bytes. */
static uint32_t decode_utf8(const unsigned char *p, size_t n, size_t *size)
{
    uint32_t c = p[0];
    size_t more = c >= 0xf0 && c < 0xf5   ? 3
                  : c >= 0xe0 && c < 0xf0 ? 2
                  : c >= 0xc2 && c < 0xe0 ? 1
                                          : 0;
    *size = 1;
    if (c < 0x80)
        return c;
    if (more == 0 || more >= n)
        return UINT32_MAX;
    c &= 0x3fu >> more;
    for (size_t i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return UINT32_MAX;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if ((more == 2 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) ||
        (more == 3 && (c < 0x10000 || c > 0x10ffff)))
        return UINT32_MAX;
    *size = more + 1;
    return c;
}

/* Checks whether a code point is in one of `n` sorted ranges. */
static bool is_in(const lhi_range *ranges, size_t n, uint32_t c)
{
    size_t low = 0;
    while (low < n) {
        size_t middle = low + (n - low) / 2;
        if (c < ranges[middle].first)
            n = middle;
        else if (c > ranges[middle].last)
            low = middle + 1;
        else
            return true;
    }
    return false;
}

/* Checks whether a code point has Unicode's White_Space property. */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Decodes the character at `p` (n bytes left) and returns its class: letter,
 * digit, space or other. *size: its length in bytes. */
static class classify(const unsigned char *p, size_t n, size_t *size)
{
    uint32_t c = decode_utf8(p, n, size);
    if (is_space(c))
        return SPACE;
    if (is_in(lhi_letters, sizeof lhi_letters / sizeof lhi_letters[0], c))
        return LETTER;
    if (is_in(lhi_numbers, sizeof lhi_numbers / sizeof lhi_numbers[0], c))
        return NUMBER;
    return OTHER;
}

/* Returns the end of the run of characters of class `of` that begins at `at`;
 * *last receives its last character's offset. */
static size_t find_run_end(const unsigned char *p, size_t len, size_t at,
                           class of, size_t *last)
{
    size_t size;
    while (at < len && classify(p + at, len - at, &size) == of) {
        *last = at;
        at += size;
    }
    return at;
}

size_t lhi_pretokenize_word(const char *text, size_t len)
{
    static const char *const ends[] = {"'s", "'t",  "'re", "'ve",
                                       "'m", "'ll", "'d"};
    const unsigned char *p = (const unsigned char *)text;
    size_t size, last = 0, end;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t n = strlen(ends[i]);
        if (n <= len && memcmp(text, ends[i], n) == 0)
            return n;
    }
    class first = classify(p, len, &size);
    if (first != SPACE)
        return find_run_end(p, len, 0, first, &last);
    if (p[0] == ' ' && len > 1) {
        class next = classify(p + 1, len - 1, &size);
        if (next != SPACE)
            return find_run_end(p, len, 1, next, &last);
    }
    /* A run of spaces, except the last one, which belongs to the next word. */
    end = find_run_end(p, len, 0, SPACE, &last);
    return end == len || last == 0 ? end : last;
}
