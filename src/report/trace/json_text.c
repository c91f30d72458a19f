/* SPDX-License-Identifier: Apache-2.0 */
#include "report/trace/json_text.h"

#include <string.h>

/* Appends JSON text with unprintable characters and '<' (unsafe in HTML)
 * escaped. They occur only inside strings, so the JSON is not parsed. */
static void add_escaped(lhi_text *text, const char *json)
{
    const char *p = json, *run = p, *end = json + strlen(json);
    while (p < end) {
        uint32_t c;
        char one[LHI_ESCAPE_BYTES];
        size_t len = lhi_utf8_decode(p, (size_t)(end - p), &c);
        if (len == 0) {
            text->failed = true; /* jansson accepts UTF-8 only */
            return;
        }
        if (lhi_json_is_escaped(c)) {
            lhi_text_add(text, run, (size_t)(p - run));
            lhi_text_add(text, one, lhi_json_escape(c, one));
            run = p + len;
        }
        p += len;
    }
    lhi_text_add(text, run, (size_t)(p - run));
}

/* Appends bytes to an lhi_text; callback for json_dump_callback(). */
static int add_to_text(const char *bytes, size_t len, void *text)
{
    lhi_text_add(text, bytes, len);
    return 0;
}

/* Appends a value as compact JSON without its first `skip` characters, and
 * releases it. Does not use json_dumps(), which omits an object's key if memory
 * runs out (jansson 2.14). */
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

void lhi_json_add_members(lhi_text *text, json_t *map)
{
    add_compact(text, map, 1);
}
