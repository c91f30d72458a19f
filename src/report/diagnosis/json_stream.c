/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/json_stream.h"

#include "base/input_limits.h"

#include <string.h>

/* Reads more input bytes into items->bytes if all earlier ones are consumed.
 * *n: available byte count, 0 at the input's end. */
static lh_status refill(lhi_json_stream *items, size_t *n, lh_error *err)
{
    if (items->position == items->n_bytes) {
        items->n_consumed += items->n_bytes;
        items->position = items->n_bytes = 0;
        if (items->n_consumed > lhi_input_max_bytes(LHI_INPUT_RECORDING))
            return lhi_fail_too_large(
                items->name, lhi_input_max_bytes(LHI_INPUT_RECORDING),
                lhi_input_describe(LHI_INPUT_RECORDING), err);
        LHI_TRY(lhi_gzip_stream_read(items->zip, items->bytes,
                                     sizeof items->bytes, &items->n_bytes,
                                     err));
    }
    *n = items->n_bytes - items->position;
    return LH_OK;
}

/* Checks whether a character is JSON white space. */
static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Peeks at the next character that is not white space; 0 at the input's end. */
static lh_status next_char(lhi_json_stream *items, char *c, lh_error *err)
{
    size_t n;
    for (;;) {
        LHI_TRY(refill(items, &n, err));
        *c = n ? items->bytes[items->position] : '\0';
        if (n == 0 || !is_space(*c))
            return LH_OK;
        items->position++;
    }
}

/* Scanner state for a value's end. */
typedef struct value_scan {
    uint32_t depth;
    bool quoted, escaped, done;
} value_scan;

/* Checks whether a JSON value ends at character `c` (`first`: the value's first
 * character); *with: `c` belongs to the value, else it follows. */
static bool ends_value(value_scan *s, char c, bool first, bool *with)
{
    *with = true;
    if (s->quoted) {
        if (s->escaped || c == '\\')
            s->escaped = !s->escaped;
        else if (c == '"')
            s->quoted = false;
        return !s->quoted && s->depth == 0;
    }
    if (c == '"') {
        *with = first || s->depth; /* otherwise a scalar ends before it */
        s->quoted = *with;
        return !*with;
    }
    if (c == '{' || c == '[') {
        s->depth++;
    } else if (c == '}' || c == ']') {
        *with = s->depth > 0;
        return s->depth == 0 || --s->depth == 0;
    } else if (s->depth == 0 && (c == ',' || c == ':' || is_space(c))) {
        *with = false;
        return true;
    }
    return false;
}

/* Reads one JSON value as raw text. */
static lh_status read_value(lhi_json_stream *items, lhi_text *out,
                            lh_error *err)
{
    value_scan s = {0};
    bool first = true, with = true;
    size_t n;
    out->len = 0;
    items->too_long = false;
    while (!s.done) {
        LHI_TRY(refill(items, &n, err));
        if (n == 0) {
            items->reason = "ends within a value";
            return LH_OK;
        }
        const char *from = &items->bytes[items->position];
        size_t used = 0;
        while (used < n && !s.done) {
            s.done = ends_value(&s, from[used], first, &with);
            first = false;
            used += !s.done || with;
        }
        items->position += used;
        if (out->len + used > LHI_JSON_STREAM_MAX_VALUE)
            items->too_long = true;
        else
            lhi_text_add(out, from, used);
        if (out->failed)
            return lhi_fail_nomem(err);
    }
    if (out->len == 0)
        items->reason = "damaged: a value is missing";
    return LH_OK;
}

/* --- object --------------------------------------------------------------- */

/* Consumes the character `wanted`, or sets items->reason if another follows. */
static lh_status expect_char(lhi_json_stream *items, char wanted, lh_error *err)
{
    char c;
    LHI_TRY(next_char(items, &c, err));
    if (c == wanted)
        items->position++;
    else if (!items->reason)
        items->reason = c ? "the JSON is damaged" : "truncated file";
    return LH_OK;
}

/* Reads the list's next item; sets items->in_list to false after the last. */
static lh_status next_item(lhi_json_stream *items, lh_error *err)
{
    char c;
    LHI_TRY(next_char(items, &c, err));
    if (c == ',') {
        items->position++;
        LHI_TRY(next_char(items, &c, err));
    }
    if (c == ']') {
        items->position++;
        items->in_list = false;
        return LH_OK;
    }
    if (c == '\0') {
        items->reason = "ends within the list of events";
        return LH_OK;
    }
    return read_value(items, &items->value, err);
}

/* Reads the JSON object's next key with its value into items->value. If the key
 * is items->list, reads only the opening bracket, so that the list's items
 * follow one by one. */
static lh_status next_key(lhi_json_stream *items, lh_error *err)
{
    char c;
    LHI_TRY(next_char(items, &c, err));
    if (c == ',' && items->began) {
        items->position++;
        LHI_TRY(next_char(items, &c, err));
    }
    items->began = true;
    if (c == '}') {
        items->position++;
        items->at_end = true;
        return LH_OK;
    }
    if (c != '"') {
        items->reason = c ? "the JSON is damaged" : "truncated file";
        return LH_OK;
    }
    LHI_TRY(read_value(items, &items->key, err));
    if (items->reason)
        return LH_OK;
    LHI_TRY(expect_char(items, ':', err));
    if (items->reason)
        return LH_OK;
    LHI_TRY(next_char(items, &c, err));
    if (c == '[' && items->key.len == strlen(items->list_key) + 2 &&
        memcmp(items->key.data + 1, items->list_key, items->key.len - 2) == 0) {
        items->position++;
        items->in_list = items->had_list = true;
        return LH_OK;
    }
    return read_value(items, &items->value, err);
}

lh_status lhi_json_stream_next(lhi_json_stream *items, bool *more,
                               lh_error *err)
{
    *more = false;
    if (!items->began)
        LHI_TRY(expect_char(items, '{', err));
    while (!items->reason && !items->at_end && !*more) {
        bool was_in_list = items->in_list;
        LHI_TRY(was_in_list ? next_item(items, err) : next_key(items, err));
        items->is_item = was_in_list;
        *more =
            !items->reason && !items->at_end && items->in_list == was_in_list;
    }
    /* A truncated compressed stream is the more specific reason. */
    if (items->reason && items->zip->reason)
        items->reason = items->zip->reason;
    return LH_OK;
}

void lhi_json_stream_fini(lhi_json_stream *items)
{
    lhi_text_fini(&items->key);
    lhi_text_fini(&items->value);
}
