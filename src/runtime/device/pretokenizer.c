/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenizers: see lhi_word_rule in tokenizer.h. An invalid UTF-8 byte
 * counts as a character that is neither letter, number nor space. */
#include "base/escape.h"
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

uint32_t lhi_character_decode(const char *text, size_t len, size_t *size)
{
    uint32_t c = UINT32_MAX;
    *size = lhi_utf8_decode(text, len, &c);
    if (*size == 0)
        *size = 1;
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
    uint32_t c = lhi_character_decode((const char *)p, n, size);
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

/* Returns the length of an English contraction's end, such as 's or 've, at the
 * text's start; 0: none. `any_case`: also in capitals, and with a long s.
 * */
static size_t find_contraction(const char *text, size_t len, bool any_case)
{
    static const char *const ends[] = {"'s", "'t",  "'re", "'ve",
                                       "'m", "'ll", "'d"};
    if (any_case && len >= 3 && memcmp(text, "'\xc5\xbf", 3) == 0)
        return 3;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t n = 0;
        while (ends[i][n] && n < len &&
               (text[n] == ends[i][n] ||
                (any_case && n > 0 && (text[n] ^ ' ') == ends[i][n])))
            n++;
        if (!ends[i][n])
            return n;
    }
    return 0;
}

/* Returns the length of the run of spaces at the start of a text that forms a
 * word: all but the last space, which belongs to the next word. */
static size_t find_spaces(const unsigned char *p, size_t len)
{
    size_t last = 0;
    const size_t end = find_run_end(p, len, 0, SPACE, &last);
    return end == len || last == 0 ? end : last;
}

/* Returns a word's length by GPT-2's rule. */
static size_t find_gpt2_word(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t size, last = 0;
    const size_t contraction = find_contraction(text, len, false);
    if (contraction)
        return contraction;
    class first = classify(p, len, &size);
    if (first != SPACE)
        return find_run_end(p, len, 0, first, &last);
    if (p[0] == ' ' && len > 1) {
        class next = classify(p + 1, len - 1, &size);
        if (next != SPACE)
            return find_run_end(p, len, 1, next, &last);
    }
    return find_spaces(p, len);
}

/* Checks whether a byte ends a line. */
static bool is_line_end(unsigned char byte)
{
    return byte == '\r' || byte == '\n';
}

/* Returns the end of the run of at most `most` digits (numeric characters) at
 * a text's start. */
static size_t find_numbers(const unsigned char *p, size_t len, int most)
{
    size_t at = 0, size;
    for (int i = 0; i < most && at < len; i++) {
        if (classify(p + at, len - at, &size) != NUMBER)
            break;
        at += size;
    }
    return at;
}

/* Returns a word's length by Llama 3's rule, with at most `digits` numbers in a
 * word. */
static size_t find_llama3_word(const char *text, size_t len, int digits)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t size, last = 0;
    const size_t contraction = find_contraction(text, len, true);
    if (contraction)
        return contraction;
    const class first = classify(p, len, &size);
    if (first == LETTER)
        return find_run_end(p, len, 0, LETTER, &last);
    if (first == NUMBER)
        return find_numbers(p, len, digits);
    size_t next_size;
    const class next =
        size < len ? classify(p + size, len - size, &next_size) : SPACE;
    if (next == LETTER && !is_line_end(p[0]))
        return find_run_end(p, len, size, LETTER, &last);
    if (first == OTHER || (p[0] == ' ' && next == OTHER)) {
        size_t end =
            find_run_end(p, len, first == OTHER ? 0 : size, OTHER, &last);
        while (end < len && is_line_end(p[end]))
            end++;
        return end;
    }
    /* Spaces: those up to the last line end, if there is one. */
    size_t end = find_run_end(p, len, 0, SPACE, &last);
    while (end > 0 && !is_line_end(p[end - 1]))
        end--;
    return end > 0 ? end : find_spaces(p, len);
}

size_t lhi_pretokenize_word(lhi_word_rule rule, const char *text, size_t len)
{
    switch (rule) {
    case LHI_WORDS_GPT2:
        return find_gpt2_word(text, len);
    case LHI_WORDS_LLAMA3:
        return find_llama3_word(text, len, 3);
    case LHI_WORDS_QWEN2:
        return find_llama3_word(text, len, 1);
    case LHI_WORDS_NONE:
        break;
    }
    return len;
}
