/* SPDX-License-Identifier: Apache-2.0 */
/* Strings, numbers and booleans of TOML, and error messages. */
#include "format/document/toml_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- errors --------------------------------------------------------------- */

lh_status lhi_toml_fail(const lhi_toml *t, lh_error *err, const char *format,
                        ...)
{
    char raw[300], shown[300];
    va_list list;
    va_start(list, format);
    vsnprintf(raw, sizeof raw, format, list);
    va_end(list);
    lhi_doc_sanitise_text(raw, shown, sizeof shown);
    return lhi_fail(err, LH_EINPUT, "%s:%" PRIu32 ": %s", t->doc->file, t->line,
                    shown);
}

lh_status lhi_toml_fail_memory(const lhi_toml *t, lh_error *err)
{
    if (!t->memory.is_full)
        return lhi_fail_nomem(err);
    return lhi_toml_fail(t, err,
                         "too many short values: those read so far need %zu "
                         "MiB of memory, above the limit for a text of this "
                         "length",
                         t->memory.max_bytes >> 20);
}

bool lhi_toml_is_next(const lhi_toml *t, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(t->end - t->at) >= n && memcmp(t->at, word, n) == 0;
}

/* --- strings -------------------------------------------------------------- */

/* A string under construction in `scratch`; never longer than its source text.
 */
typedef struct string_builder {
    lhi_toml *t;
    size_t len;
    uint32_t line; /* first line */
    char quote;
    bool lines, basic;
} string_builder;

/* Appends bytes to the string under construction. */
static void append_bytes(string_builder *s, const char *bytes, size_t n)
{
    memcpy(s->t->scratch + s->len, bytes, n);
    s->len += n;
}

/* Appends a character as UTF-8; returns false if it is invalid. */
static bool append_character(string_builder *s, uint32_t c)
{
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return false;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        bytes[i] = (char)(0x80 | (c & 0x3f));
    bytes[0] = (char)(first[n - 1] | c);
    append_bytes(s, bytes, n);
    return true;
}

/* Returns a digit's value in base `base`; -1 for any other character. */
static int get_digit(char c, unsigned base)
{
    int value = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : 99;
    return value < (int)base ? value : -1;
}

/* Appends the character of an escape \uXXXX or \UXXXXXXXX, whose `n`
 * hexadecimal digits follow. */
static lh_status append_code_point(string_builder *s, int n, lh_error *err)
{
    lhi_toml *t = s->t;
    uint32_t c = 0;
    for (int i = 0; i < n; i++, t->at++) {
        int digit = t->at < t->end ? get_digit(*t->at, 16) : -1;
        if (digit < 0)
            return lhi_toml_fail(t, err, "\\%c requires %d hexadecimal digits",
                                 n == 4 ? 'u' : 'U', n);
        c = c << 4 | (uint32_t)digit;
    }
    return append_character(s, c)
               ? LH_OK
               : lhi_toml_fail(t, err, "\\%c%0*" PRIX32 " is not a character",
                               n == 4 ? 'u' : 'U', n, c);
}

/* Skips a backslash's line end and all white space up to the next other
 * character, as multi-line strings allow. Returns false if no line end follows
 * the backslash. */
static bool skip_line_continuation(string_builder *s)
{
    const char *at = s->t->at, *end = s->t->end;
    uint32_t lines = 0;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    if (at < end && *at == '\r')
        at++;
    if (at == end || *at != '\n' || !s->lines)
        return false;
    for (; at < end && strchr(" \t\r\n", *at); at++)
        lines += *at == '\n';
    s->t->at = at;
    s->t->line += lines;
    return true;
}

/* Converts an escape sequence that begins at the backslash. */
static lh_status append_escape(string_builder *s, lh_error *err)
{
    static const char letters[] = "btnfr\"\\", stands[] = "\b\t\n\f\r\"\\";
    lhi_toml *t = s->t;
    const char letter = ++t->at < t->end ? *t->at : '\0';
    const char *known = letter ? strchr(letters, letter) : NULL;
    if (known) {
        append_bytes(s, &stands[known - letters], 1);
        t->at++;
        return LH_OK;
    }
    if (letter == 'u' || letter == 'U') {
        t->at++;
        return append_code_point(s, letter == 'u' ? 4 : 8, err);
    }
    if (skip_line_continuation(s))
        return LH_OK;
    return lhi_toml_fail(t, err,
                         "invalid escape in \"...\"; expected one of b t n f r "
                         "\" \\ u U after the backslash; write \\\\, or use "
                         "'...'");
}

/* Fails with LH_EINPUT at the opening quote's line. */
static lh_status fail_unterminated(string_builder *s, lh_error *err)
{
    s->t->line = s->line;
    return lhi_toml_fail(s->t, err, "missing closing %c", s->quote);
}

/* Skips the closing quotes and returns whether they were next. A multi-line
 * string may end with up to two quotes of its own before them, which are
 * appended. */
static bool skip_closing_quotes(string_builder *s)
{
    lhi_toml *t = s->t;
    size_t n = 0;
    while (t->at + n < t->end && n < 5 && t->at[n] == s->quote)
        n++;
    if (n < (s->lines ? 3u : 1u))
        return false;
    if (s->lines)
        append_bytes(s, t->at, n - 3);
    t->at += s->lines ? n : 1;
    return true;
}

/* Appends the next character or escape sequence of a string. */
static lh_status append_next(string_builder *s, lh_error *err)
{
    lhi_toml *t = s->t;
    if (*t->at == '\\' && s->basic)
        return append_escape(s, err);
    if (*t->at == '\r') /* a line end follows (checked before) */
        t->at++;
    if (*t->at == '\n' && !s->lines)
        return fail_unterminated(s, err);
    t->line += *t->at == '\n';
    append_bytes(s, t->at++, 1);
    return LH_OK;
}

/* Checks for a multi-line string's opening quotes. */
static bool begins_multiline(const lhi_toml *t, char quote)
{
    return t->end - t->at >= 3 && t->at[1] == quote && t->at[2] == quote;
}

lh_status lhi_toml_read_string(lhi_toml *t, bool lines, const char **out,
                               lh_error *err)
{
    string_builder s = {.t = t,
                        .line = t->line,
                        .quote = *t->at,
                        .lines = lines && begins_multiline(t, *t->at),
                        .basic = *t->at == '"'};
    t->at += s.lines ? 3 : 1;
    if (s.lines && (lhi_toml_is_next(t, "\n") || lhi_toml_is_next(t, "\r\n"))) {
        t->at += *t->at == '\r' ? 2 : 1;
        t->line++;
    }
    for (;;) {
        if (t->at == t->end)
            return fail_unterminated(&s, err);
        if (*t->at == s.quote && skip_closing_quotes(&s))
            break;
        LHI_TRY(append_next(&s, err));
    }
    *out = lhi_node_copy_text(&t->memory, t->scratch, s.len);
    return *out ? LH_OK : lhi_toml_fail_memory(t, err);
}

/* --- numbers -------------------------------------------------------------- */

/* Copies the digits in base `base` from `at` to `end` to *to, which advances,
 * without their underscores (single ones, between two digits). Returns the
 * first other character; NULL if there are no digits. */
static const char *copy_digits(const char *at, const char *end, unsigned base,
                               char **to)
{
    bool behind_digit = false;
    for (; at < end; at++) {
        if (*at == '_' && behind_digit && at + 1 < end &&
            get_digit(at[1], base) >= 0) {
            behind_digit = false;
            continue;
        }
        if (get_digit(*at, base) < 0)
            break;
        behind_digit = true;
        *(*to)++ = *at;
    }
    return behind_digit ? at : NULL;
}

/* Converts 0x1F, 0o17, 0b11 between `at` and `end` to decimal at *to, which
 * advances. Returns false if the number is invalid or too large. */
static bool convert_to_decimal(const char *at, const char *end, char **to)
{
    const unsigned base = at[1] == 'x' ? 16 : at[1] == 'o' ? 8 : 2;
    char *digits = *to;
    uint64_t value = 0;
    if (copy_digits(at + 2, end, base, to) != end)
        return false;
    for (const char *d = digits; d < *to; d++) {
        if (value > (uint64_t)INT64_MAX / base)
            return false;
        value = value * base + (uint64_t)get_digit(*d, base);
    }
    if (value > INT64_MAX)
        return false;
    char text[24];
    *to = digits + snprintf(text, sizeof text, "%" PRIu64, value);
    memcpy(digits, text, (size_t)(*to - digits));
    return true;
}

/* Checks whether a decimal number of `n` digits, `negative` or not, fits into a
 * signed 64-bit integer. */
static bool fits_64_bits(const char *digits, size_t n, bool negative)
{
    const char *most = negative ? "9223372036854775808" : "9223372036854775807";
    return n < 19 || (n == 19 && memcmp(digits, most, 19) <= 0);
}

/* Copies a decimal number, -1_000, 3.14 or 5e+22, from `at` to *to, which
 * advances, without underscores. Returns false if it is invalid or too large.
 * The output is never longer than the input. */
static bool copy_decimal(const char *at, const char *end, char **to)
{
    const bool negative = *at == '-';
    if (*at == '+' || *at == '-') {
        if (negative)
            *(*to)++ = '-';
        at++;
    }
    const char *digits = *to;
    if (end - at == 3 &&
        (memcmp(at, "inf", 3) == 0 || memcmp(at, "nan", 3) == 0)) {
        memcpy(*to, at, 3);
        *to += 3;
        return true;
    }
    if (!(at = copy_digits(at, end, 10, to)) ||
        (*digits == '0' && *to - digits > 1))
        return false;
    if (at == end)
        return fits_64_bits(digits, (size_t)(*to - digits), negative);
    if (*at == '.') {
        *(*to)++ = *at++;
        if (!(at = copy_digits(at, end, 10, to)))
            return false;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        *(*to)++ = *at++;
        if (at < end && (*at == '+' || *at == '-'))
            *(*to)++ = *at++;
        at = copy_digits(at, end, 10, to);
    }
    return at == end;
}

/* Checks whether the word at `at` is a date or time: it begins with two or four
 * digits, then '-' or ':'. */
static bool is_date(const char *at, size_t len)
{
    size_t n = 0;
    while (n < len && get_digit(at[n], 10) >= 0)
        n++;
    return (n == 4 && len > 4 && at[4] == '-') ||
           (n == 2 && len > 2 && at[2] == ':');
}

/* Checks whether a word is true or false. */
static bool is_boolean(const char *at, size_t len)
{
    return (len == 4 && memcmp(at, "true", 4) == 0) ||
           (len == 5 && memcmp(at, "false", 5) == 0);
}

lh_status lhi_toml_read_scalar(lhi_toml *t, const char **out, lh_error *err)
{
    const char *first = t->at;
    size_t len = 0;
    while (first + len < t->end && !strchr(" \t\r\n#,[]{}=\"'", first[len]))
        len++;
    const int shown = len > 40 ? 40 : (int)len;
    char *to = t->scratch;
    bool ok = true;
    if (len == 0)
        return lhi_toml_fail(t, err, "expected a value");
    if (is_date(first, len))
        return lhi_toml_fail(t, err,
                             "'%.*s': dates and times are not supported; write "
                             "a string",
                             shown, first);
    if (is_boolean(first, len)) {
        memcpy(to, first, len);
        to += len;
    } else if (len > 2 && *first == '0' && strchr("xob", first[1])) {
        ok = convert_to_decimal(first, first + len, &to);
    } else {
        ok = copy_decimal(first, first + len, &to);
    }
    if (!ok)
        return lhi_toml_fail(
            t, err,
            "'%.*s' is not a valid TOML number or boolean, or "
            "is an integer beyond 64 bits; strings need quotes",
            shown, first);
    t->at += len;
    *out =
        lhi_node_copy_text(&t->memory, t->scratch, (size_t)(to - t->scratch));
    return *out ? LH_OK : lhi_toml_fail_memory(t, err);
}
