/* SPDX-License-Identifier: Apache-2.0 */
#include "base/escape.h"

#include <longhaul/experimental/status.h>

#include <stdio.h>
#include <string.h>

size_t lhi_utf8_decode(const char *text, size_t len, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text;
    const size_t n = p[0] < 0x80             ? 1
                     : (p[0] & 0xe0) == 0xc0 ? 2
                     : (p[0] & 0xf0) == 0xe0 ? 3
                     : (p[0] & 0xf8) == 0xf0 ? 4
                                             : 0;
    if (n == 0 || n > len)
        return 0;
    uint32_t c = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *out = c;
    return n;
}

bool lhi_is_utf8(const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        uint32_t c;
        const size_t n = lhi_utf8_decode(text, left, &c);
        if (n == 0)
            return false;
        text += n;
        left -= n;
    }
    return true;
}

/* Line separators, and the characters that Unicode 15.1 lets programs ignore if
 * they cannot display them (DerivedCoreProperties.txt,
 * Default_Ignorable_Code_Point). Among these are bidirectional controls,
 * zero-width spaces, tags and variation selectors. Also interlinear
 * annotations, and the two noncharacters below 2^16, which YAML cannot contain
 * unescaped. */
static const struct {
    uint32_t first, last;
} unprintable[] = {{0xad, 0xad},       {0x34f, 0x34f},     {0x61c, 0x61c},
                   {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},
                   {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},
                   {0x3164, 0x3164},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},
                   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},   {0xfffe, 0xffff},
                   {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};

bool lhi_is_unprintable(uint32_t c)
{
    if (c < 0x20 || (c >= 0x7f && c < 0xa0))
        return true;
    for (size_t i = 0; i < sizeof unprintable / sizeof *unprintable; i++)
        if (c >= unprintable[i].first && c <= unprintable[i].last)
            return true;
    return false;
}

/* Capacity for one escape sequence, in bytes. */
enum { ESCAPE_BYTES = LHI_ESCAPE_BYTES };

size_t lhi_json_escape(uint32_t c, char *out)
{
    if (c < 0x10000)
        return (size_t)snprintf(out, ESCAPE_BYTES, "\\u%04x", (unsigned)c);
    return (size_t)snprintf(out, ESCAPE_BYTES, "\\u%04x\\u%04x",
                            0xd800u + (unsigned)((c - 0x10000) >> 10),
                            0xdc00u + (unsigned)(c & 0x3ff));
}

/* Escapes the first character of `text` for a terminal, into `out`, if it is
 * unprintable, else copies it. Returns its length in `text`; *out_len: in
 * `out`. */
static size_t escape_character(const char *text, size_t len, char *out,
                               size_t *out_len)
{
    uint32_t c;
    const size_t n = lhi_utf8_decode(text, len, &c);
    int put;
    if (n > 0 && !lhi_is_unprintable(c)) {
        memcpy(out, text, n);
        *out_len = n;
        return n;
    }
    if (n == 0 || c < 0x80)
        put = n && c == '\n'   ? snprintf(out, ESCAPE_BYTES, "\\n")
              : n && c == '\t' ? snprintf(out, ESCAPE_BYTES, "\\t")
                               : snprintf(out, ESCAPE_BYTES, "\\x%02x",
                                          (unsigned char)*text);
    else
        put = snprintf(out, ESCAPE_BYTES, c < 0x10000 ? "\\u%04x" : "\\U%08x",
                       (unsigned)c);
    *out_len = (size_t)put;
    return n ? n : 1;
}

/* Copies the first character of a JSON document `text` to `out`, with invisible
 * and invalid characters as \u escapes. Line ends stay: JSON has them only
 * between values. Returns the bytes read; *out_len: the bytes written. */
static size_t escape_for_json(const char *text, size_t len, char *out,
                              size_t *out_len)
{
    uint32_t c;
    const size_t n = lhi_utf8_decode(text, len, &c);
    if (n == 0 || (lhi_is_unprintable(c) && c != '\n')) {
        *out_len = lhi_json_escape(n ? c : 0xfffd, out);
        return n ? n : 1;
    }
    memcpy(out, text, n);
    *out_len = n;
    return n;
}

typedef size_t (*escape_fn)(const char *text, size_t len, char *out,
                            size_t *out_len);

/* Escapes a text character by character with the function `show` into `buffer`,
 * NUL-terminated and cut to whole characters in `room` bytes. Returns the
 * complete result's length. */
static size_t escape_text(escape_fn show, const char *text, size_t len,
                          char *buffer, size_t room)
{
    size_t needed = 0, put = 0;
    for (size_t at = 0; at < len;) {
        char one[ESCAPE_BYTES];
        size_t n;
        at += show(text + at, len - at, one, &n);
        if (put == needed && needed + n < room) {
            memcpy(buffer + put, one, n);
            put += n;
        }
        needed += n;
    }
    if (room > 0)
        buffer[put] = '\0';
    return needed;
}

size_t lh_text_escape(const char *text, size_t len, char *buffer, size_t room)
{
    return escape_text(escape_character, text, len, buffer, room);
}

size_t lh_json_escape(const char *text, size_t len, char *buffer, size_t room)
{
    return escape_text(escape_for_json, text, len, buffer, room);
}

void lhi_text_add_escaped(lhi_text *out, const char *text, size_t columns)
{
    size_t left = strlen(text);
    while (left > 0 && columns > 0) {
        char one[ESCAPE_BYTES];
        size_t n, used = escape_character(text, left, one, &n);
        /* escapes are wider than their input */
        const size_t wide = n == used ? 1 : n;
        if (wide > columns)
            return;
        lhi_text_add(out, one, n);
        columns -= wide;
        text += used;
        left -= used;
    }
}

void lhi_text_add_escaped_json(lhi_text *out, const char *json, size_t len)
{
    size_t at = 0, done = 0;
    while (at < len) {
        char one[ESCAPE_BYTES];
        size_t n, used;
        if (json[at] < 0x7f && json[at] >= 0x20) {
            at++;
            continue;
        }
        used = escape_for_json(json + at, len - at, one, &n);
        if (n != used) {
            lhi_text_add(out, json + done, at - done);
            lhi_text_add(out, one, n);
            done = at + used;
        }
        at += used;
    }
    lhi_text_add(out, json + done, len - done);
}

size_t lhi_count_escaped_columns(const char *text)
{
    size_t columns = 0, left = strlen(text);
    while (left > 0) {
        char one[ESCAPE_BYTES];
        size_t n, used = escape_character(text, left, one, &n);
        columns += n == used ? 1 : n;
        text += used;
        left -= used;
    }
    return columns;
}
