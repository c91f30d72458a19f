/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/jsontext.h"

#include <stdint.h>
#include <string.h>

/* Decodes one character of valid UTF-8; 0: not valid. */
static size_t decode(const unsigned char *p, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = p[0] < 0x80             ? 1
                 : (p[0] & 0xe0) == 0xc0 ? 2
                 : (p[0] & 0xf0) == 0xe0 ? 3
                 : (p[0] & 0xf8) == 0xf0 ? 4
                                         : 0;
    if (len <= 1) {
        *out = p[0];
        return len;
    }
    uint32_t c = p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    *out = c;
    bool bad = c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000);
    return bad ? 0 : len;
}

bool lhi_utf8_ok(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        uint32_t c;
        size_t len = decode(p, &c);
        if (len == 0)
            return false;
        p += len;
    }
    return true;
}

static bool must_escape(uint32_t c)
{
    return c == '<' || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 ||
           c == 0xfeff || c == 0xfffe || c == 0xffff;
}

/* Such characters stand in strings only, so the text need not be parsed. */
static void add_escaped(lhi_text *text, const char *json)
{
    const unsigned char *p = (const unsigned char *)json, *run = p;
    while (*p) {
        uint32_t c;
        size_t len = decode(p, &c);
        if (len == 0) {
            text->failed = true; /* jansson lets only UTF-8 through */
            return;
        }
        if (must_escape(c)) {
            lhi_text_add(text, (const char *)run, (size_t)(p - run));
            lhi_text_printf(text, "\\u%04x", (unsigned)c);
            run = p + len;
        }
        p += len;
    }
    lhi_text_add(text, (const char *)run, (size_t)(p - run));
}

static int add_to_text(const char *bytes, size_t len, void *text)
{
    lhi_text_add(text, bytes, len);
    return 0;
}

/* Not json_dumps(): it goes on when there is no memory for an object's key
 * (jansson 2.14), and the key is lost. */
static void add_compact(lhi_text *text, json_t *value, size_t skip)
{
    lhi_text json = {0};
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY;
    if (value && json_dump_callback(value, add_to_text, &json, flags) == 0 &&
        !json.failed)
        add_escaped(text, json.data + skip);
    else
        text->failed = true;
    lhi_text_fini(&json);
    json_decref(value);
}

void lhi_json_add(lhi_text *text, json_t *value)
{
    add_compact(text, value, 0);
}

void lhi_json_add_rest(lhi_text *text, json_t *map)
{
    add_compact(text, map, 1);
}

void lhi_json_add_string(lhi_text *text, const char *string)
{
    add_compact(text, json_string(string), 0);
}
