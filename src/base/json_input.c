/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_input.h"

#include <stdio.h>
#include <string.h>

/* Upper bounds on the bytes that jansson 2.14 allocates on a 64-bit machine:
 * - MEMBER: a map entry (pair, bucket and a number) without its key
 * - ITEM: a list item (a slot in a doubling table, and a number)
 * - LIST: an empty list
 * - MAP: an empty map
 * - TEXT: the overhead of a string beyond its bytes */
enum { MEMBER = 176, ITEM = 64, LIST = 136, MAP = 288, TEXT = 80 };

/* Returns the position after the JSON string whose opening quote is at `at`,
 * and adds the string's length in bytes to *bytes. */
static const char *skip_string(const char *at, const char *end, size_t *bytes)
{
    const char *from = ++at;
    while (at < end && *at != '"')
        at += *at == '\\' && at + 1 < end ? 2 : 1;
    *bytes += (size_t)(at - from);
    return at + (at < end);
}

/* Returns an upper bound on the memory that jansson needs to parse the text, in
 * bytes. */
static size_t count_bytes(const char *text, size_t len)
{
    const char *at = text, *end = text + len;
    size_t bytes = 0;
    while (at < end) {
        switch (*at) {
        case '"':
            bytes += TEXT;
            at = skip_string(at, end, &bytes);
            continue;
        case ',':
            bytes += ITEM;
            break;
        case ':':
            bytes += MEMBER - ITEM - TEXT; /* for its comma and its key */
            break;
        case '[':
            bytes += LIST + ITEM;
            break;
        case '{':
            bytes += MAP + ITEM;
            break;
        default:
            break;
        }
        at++;
    }
    return bytes;
}

json_t *lhi_json_load(const char *text, size_t len, size_t flags,
                      json_error_t *why)
{
    size_t bytes = count_bytes(text, len);
    if (bytes > 7 * len + ((size_t)15 << 20)) {
        memset(why, 0, sizeof *why);
        why->line = 1;
        snprintf(why->text, sizeof why->text,
                 "too many short values: they would need %zu MiB of memory, "
                 "more than 8 times the size of the text",
                 bytes >> 20);
        return NULL;
    }
    return json_loadb(text, len, flags, why);
}
