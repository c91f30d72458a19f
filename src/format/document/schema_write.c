/* SPDX-License-Identifier: Apache-2.0 */
/* Writing structs by their schemas. */
#include "format/document/schema.h"

#include "base/escape.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Returns the value of a struct member of `width` bytes: an int64_t, uint32_t
 * or bool. */
static int64_t load_integer(const void *member, uint32_t width)
{
    int64_t value = 0;
    uint32_t narrow = 0;
    bool flag = false;
    assert(width == sizeof value || width == sizeof narrow ||
           width == sizeof flag);
    memcpy(width == sizeof value    ? (void *)&value
           : width == sizeof narrow ? (void *)&narrow
                                    : (void *)&flag,
           member, width);
    return width == sizeof value    ? value
           : width == sizeof narrow ? (int64_t)narrow
                                    : (int64_t)flag;
}

/* Returns the value of a struct member of type double. */
static double load_real(const void *member)
{
    double value;
    memcpy(&value, member, sizeof value);
    return value;
}

/* Returns the value of a struct member that is a pointer. */
static const void *load_pointer(const void *member)
{
    const void *value;
    memcpy(&value, member, sizeof value);
    return value;
}

/* Checks whether a field of the struct `owner` is omitted from the output. It
 * is if it is optional and has its default value, or if it repeats another
 * member from which it is derived. */
static bool is_absent(const lhi_schema_field *row, const char *owner)
{
    const char *member = owner + row->offset, *text;
    if (row->when == LHI_REQUIRED || row->when == LHI_DEFAULTED)
        return false;
    if (row->omit_if_same)
        return memcmp(member, owner + row->other_offset, row->width) == 0;
    if (row->other_width)
        return load_integer(owner + row->other_offset, row->other_width) ==
               row->absent;
    switch (row->type) {
    case LHI_FIELD_INTEGER:
    case LHI_FIELD_BOOL:
    case LHI_FIELD_ENUM:
    case LHI_FIELD_TIME:
    case LHI_FIELD_SHORT_TIME:
        return load_integer(member, row->width) == row->absent;
    case LHI_FIELD_SECONDS:
        return load_integer(member, row->width) <= row->absent;
    case LHI_FIELD_REAL:
    case LHI_FIELD_SECONDS_REAL:
    case LHI_FIELD_GBPS:
    case LHI_FIELD_NUMBER:
        return load_real(member) <= (double)row->absent;
    case LHI_FIELD_STRING:
        text = load_pointer(member);
        return !text || !text[0];
    case LHI_FIELD_STRUCT_POINTER:
        return !load_pointer(member);
    case LHI_FIELD_LIST:
        return load_integer(owner + row->count, sizeof(uint32_t)) == 0;
    default:
        return false;
    }
}

/* Returns the name of an enum member's value; "unknown" if it has none. */
static const char *find_enum_name(const lhi_schema_field *row,
                                  const char *member)
{
    int64_t nth = load_integer(member, row->width) - row->least;
    for (int64_t i = 0; nth >= 0 && row->names[i]; i++)
        if (i == nth)
            return row->names[i];
    return "unknown";
}

/* Converts a value to a JSON number in the file's unit, rounded to 15 digits.
 */
static json_t *scaled_to_json(const lhi_schema_field *row, double value)
{
    double scale = row->scale > 0 ? row->scale : 1;
    return lhi_json_number(lhi_round15(value / scale));
}

/* Converts the field `row` of the struct `owner` to JSON by its type; NULL on
 * allocation failure. `context`: passed to custom writers. */
static json_t *value_to_json(const lhi_schema_field *row, const char *owner,
                             const void *context)
{
    const char *member = owner + row->offset;
    char word[LHI_TEXT_FORM_SIZE];
    switch (row->type) {
    case LHI_FIELD_INTEGER:
    case LHI_FIELD_TIME:
        return json_integer(load_integer(member, row->width));
    case LHI_FIELD_REAL:
        return json_real(load_real(member));
    case LHI_FIELD_BOOL:
        return json_boolean(load_integer(member, row->width));
    case LHI_FIELD_STRING:
        return json_string(load_pointer(member));
    case LHI_FIELD_ENUM:
        return json_string(find_enum_name(row, member));
    case LHI_FIELD_TEXT_FORM:
        return json_string(row->print(member, word));
    case LHI_FIELD_SECONDS:
        return json_real((double)load_integer(member, row->width) / 1e9);
    case LHI_FIELD_SECONDS_REAL:
        return json_real(round(load_real(member)) / 1e9);
    case LHI_FIELD_GBPS:
        return json_real(load_real(member) * 8 / 1e9);
    case LHI_FIELD_NUMBER:
        return scaled_to_json(row, load_real(member));
    case LHI_FIELD_SHORT_TIME:
        return scaled_to_json(row, (double)load_integer(member, row->width));
    case LHI_FIELD_STRUCT:
        return lhi_schema_write(row->table, member, context);
    case LHI_FIELD_STRUCT_POINTER:
        return lhi_schema_write(row->table, load_pointer(member), context);
    case LHI_FIELD_LIST:
        return lhi_schema_write_list(
            row, load_pointer(member),
            (uint32_t)load_integer(owner + row->count, sizeof(uint32_t)),
            context);
    default:
        return row->write         ? row->write(owner, context)
               : row->description ? json_string(row->description)
                                  : json_null();
    }
}

json_t *lhi_schema_write_list(const lhi_schema_field *row, const void *items,
                              uint32_t n, const void *context)
{
    lhi_schema_field item = *row;
    json_t *list = json_array();
    item.type = row->table ? LHI_FIELD_STRUCT : row->item_type;
    item.when = row->null_items ? LHI_NULLABLE : LHI_REQUIRED;
    item.offset = item.other_width = 0;
    for (uint32_t i = 0; list && i < n; i++) {
        const char *at = (const char *)items + (size_t)i * row->width;
        json_t *value = is_absent(&item, at)
                            ? json_null()
                            : value_to_json(&item, at, context);
        if (json_array_append_new(list, value) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Adds the fields of the struct `owner` to a JSON map by its schema `table`.
 * `context`: passed to custom writers. Returns false if allocation fails: a
 * value is then NULL, which jansson's setters reject. */
static bool add_fields(json_t *map, const lhi_schema *table, const char *owner,
                       const void *context)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < table->n_rows; i++) {
        const lhi_schema_field *row = &table->rows[i];
        assert(row->owner == table->size);
        if (row->type == LHI_FIELD_INLINED) {
            ok = add_fields(map, row->table, owner + row->offset, context);
            continue;
        }
        json_t *value = is_absent(row, owner)
                            ? json_null()
                            : value_to_json(row, owner, context);
        if (row->when == LHI_OPTIONAL && json_is_null(value))
            json_decref(value);
        else
            ok = json_object_set_new(map, row->key, value) == 0;
    }
    return ok;
}

json_t *lhi_schema_write(const lhi_schema *table, const void *it,
                         const void *context)
{
    json_t *map = json_object();
    if (map && add_fields(map, table, it, context))
        return map;
    json_decref(map);
    return NULL;
}

/* Appends an integer to a text. Formats it directly: printf() would dominate
 * the time for a long text. */
static void add_integer(lhi_text *text, int64_t value)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0)
        *--at = '-';
    lhi_text_add(text, at, (size_t)(digits + sizeof digits - at));
}

/* Appends a word in double quotes, without escaping. */
static void add_quoted(lhi_text *text, const char *word)
{
    lhi_text_add(text, "\"", 1);
    lhi_text_puts(text, word);
    lhi_text_add(text, "\"", 1);
}

void lhi_schema_add_text(lhi_text *text, const lhi_schema *table,
                         const void *it)
{
    const char *owner = it, *sep = "\"";
    char word[LHI_TEXT_FORM_SIZE];
    for (uint32_t i = 0; i < table->n_rows; i++) {
        const lhi_schema_field *row = &table->rows[i];
        const char *member = owner + row->offset;
        assert(row->owner == table->size);
        if (is_absent(row, owner))
            continue;
        lhi_text_puts(text, sep);
        lhi_text_puts(text, row->key);
        lhi_text_add(text, "\":", 2);
        sep = ",\"";
        switch (row->type) {
        case LHI_FIELD_INTEGER:
        case LHI_FIELD_TIME:
            add_integer(text, load_integer(member, row->width));
            break;
        case LHI_FIELD_ENUM:
            add_quoted(text, find_enum_name(row, member));
            break;
        default:
            assert(row->type == LHI_FIELD_TEXT_FORM);
            add_quoted(text, row->print(member, word));
        }
    }
}

/* Appends JSON bytes with unprintable characters escaped; callback for
 * json_dump_callback(). */
static int add_to_text(const char *bytes, size_t len, void *text)
{
    lhi_text_add_escaped_json(text, bytes, len);
    return ((lhi_text *)text)->failed ? -1 : 0;
}

lh_status lhi_json_format(json_t *json, char **text, size_t *len, lh_error *err)
{
    return lhi_json_format_indented(json, 1, text, len, err);
}

lh_status lhi_json_format_indented(json_t *json, uint32_t indent, char **text,
                                   size_t *len, lh_error *err)
{
    lhi_text out = {0};
    /* 15 digits represent every time below 11 days to the nanosecond, and keep
     * 0.1 as 0.1. */
    const size_t flags = JSON_INDENT(indent) | JSON_REAL_PRECISION(15);
    if (!json || json_dump_callback(json, add_to_text, &out, flags) != 0)
        out.failed = true;
    json_decref(json);
    lhi_text_puts(&out, "\n");
    return lhi_text_take(&out, text, len, err);
}

void lhi_schema_walk(const lhi_schema *table,
                     void (*visit)(const lhi_schema *table,
                                   const lhi_schema_field *row, void *context),
                     void *context)
{
    for (uint32_t i = 0; i < table->n_rows; i++) {
        const lhi_schema_field *row = &table->rows[i];
        if (row->type != LHI_FIELD_INLINED)
            visit(table, row, context);
        if (row->table)
            lhi_schema_walk(row->table, visit, context);
    }
}
