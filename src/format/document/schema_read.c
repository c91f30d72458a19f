/* SPDX-License-Identifier: Apache-2.0 */
/* Reading maps by their schemas. */
#include "format/document/schema.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { MAX_SUGGESTED_KEYS = 64 }; /* limit for suggesting the nearest key */

const lhi_schema_field *lhi_schema_find_field(const lhi_schema *table,
                                              const char *key)
{
    for (uint32_t i = 0; i < table->n_rows; i++) {
        const lhi_schema_field *row = &table->rows[i];
        const lhi_schema_field *found =
            row->type == LHI_FIELD_INLINED
                ? lhi_schema_find_field(row->table, key)
            : strcmp(row->key, key) == 0 ? row
                                         : NULL;
        if (found)
            return found;
    }
    return NULL;
}

/* Appends a schema's keys, including those of inlined schemas, to keys[], which
 * has n entries; returns the new number of entries. Ignores keys beyond the
 * array's capacity. */
static uint32_t list_keys(const lhi_schema *table, const char **keys,
                          uint32_t n)
{
    for (uint32_t i = 0; i < table->n_rows && n < MAX_SUGGESTED_KEYS; i++) {
        if (table->rows[i].type == LHI_FIELD_INLINED)
            n = list_keys(table->rows[i].table, keys, n);
        else
            keys[n++] = table->rows[i].key;
    }
    return n;
}

/* Fails with LH_EINPUT if the map has a key that the schema lacks; suggests the
 * nearest valid key. */
static lh_status reject_unknown_keys(const lhi_read_context *r,
                                     const lhi_node *map,
                                     const lhi_schema *table, lh_error *err)
{
    const char *keys[MAX_SUGGESTED_KEYS + 1];
    bool known = map->kind == LHI_MAP;
    uint32_t i = 0; /* most files list the keys in row order */
    for (const lhi_node *n = map->first; n && known; n = n->next) {
        while (i < table->n_rows && table->rows[i].type != LHI_FIELD_INLINED &&
               strcmp(table->rows[i].key, n->key) != 0)
            i++;
        bool next =
            i < table->n_rows && table->rows[i].type != LHI_FIELD_INLINED;
        known = next || lhi_schema_find_field(table, n->key) != NULL;
        i += next;
    }
    if (known)
        return LH_OK;
    keys[list_keys(table, keys, 0)] = NULL;
    return lhi_node_check_keys(r->doc, map, keys, err);
}

/* --- members -------------------------------------------------------------- */

/* Stores an integer in a struct member of `width` bytes, an int64_t, uint32_t
 * or bool. */
static void store_integer(void *member, uint32_t width, int64_t value)
{
    uint32_t narrow = (uint32_t)value;
    bool flag = value != 0;
    assert(width == sizeof value || width == sizeof narrow ||
           width == sizeof flag);
    memcpy(member,
           width == sizeof value    ? (const void *)&value
           : width == sizeof narrow ? (const void *)&narrow
                                    : (const void *)&flag,
           width);
}

/* Stores the default of field `row` in the struct member, for a key that is
 * absent from the file. */
static void store_absent(const lhi_schema_field *row, void *member)
{
    double real = (double)row->absent;
    switch (row->type) {
    case LHI_FIELD_REAL:
    case LHI_FIELD_SECONDS_REAL:
    case LHI_FIELD_GBPS:
    case LHI_FIELD_NUMBER:
        memcpy(member, &real, sizeof real);
        break;
    case LHI_FIELD_INTEGER:
    case LHI_FIELD_BOOL:
    case LHI_FIELD_ENUM:
    case LHI_FIELD_TIME:
    case LHI_FIELD_SECONDS:
    case LHI_FIELD_SHORT_TIME:
        store_integer(member, row->width, row->absent);
        break;
    default:
        break; /* zeroed, or as set by `start` */
    }
}

/* Reads a string field into the arena and stores its pointer in the member. A
 * field with row->least above 0 must not be empty. */
static lh_status read_text(const lhi_read_context *r,
                           const lhi_schema_field *row, const lhi_node *node,
                           void *member, lh_error *err)
{
    const char *text = node->text;
    if (row->quoted && (node->kind != LHI_SCALAR || !node->quoted))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "must be a quoted string");
    if (row->least > 0)
        LHI_TRY(lhi_node_get_string(r->doc, node, &text, err));
    if (node->kind != LHI_SCALAR)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "must be a string");
    if (!(text = lhi_arena_strdup(r->mem, text)))
        return lhi_fail_nomem(err);
    memcpy(member, &text, sizeof text);
    return LH_OK;
}

/* Reads a field whose text has its own parser, row->parse, into `member`.
 * row->description names the valid form in the error message. */
static lh_status read_text_form(const lhi_read_context *r,
                                const lhi_schema_field *row,
                                const lhi_node *node, void *member,
                                lh_error *err)
{
    if (node->kind != LHI_SCALAR || !row->parse(node->text, member))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "must be %s",
                            row->description);
    return LH_OK;
}

/* Reads an integer, boolean, enum or time field within its limits. */
static lh_status read_integer(const lhi_read_context *r,
                              const lhi_schema_field *row, const lhi_node *node,
                              void *member, lh_error *err)
{
    int64_t value;
    bool yes;
    uint32_t name;
    switch (row->type) {
    case LHI_FIELD_BOOL:
        LHI_TRY(lhi_node_get_bool(r->doc, node, &yes, err));
        value = yes;
        break;
    case LHI_FIELD_ENUM:
        LHI_TRY(lhi_node_get_choice(r->doc, node, row->names, &name, err));
        value = row->least + name;
        break;
    case LHI_FIELD_TIME:
        LHI_TRY(lhi_node_get_time(r->doc, node, r->unit_ns ? r->unit_ns : 1,
                                  &value, err));
        break;
    case LHI_FIELD_SHORT_TIME:
        LHI_TRY(lhi_node_get_short_time(
            r->doc, node, row->scale > 0 ? (int64_t)row->scale : 1, &value,
            err));
        break;
    default:
        LHI_TRY(lhi_node_get_int(r->doc, node, row->least,
                                 row->find_most ? row->find_most(r) : row->most,
                                 &value, err));
    }
    store_integer(member, row->width, value);
    return LH_OK;
}

/* Reads a number field and converts it from the file's unit to the member's. */
static lh_status read_real(const lhi_read_context *r,
                           const lhi_schema_field *row, const lhi_node *node,
                           void *member, lh_error *err)
{
    double value;
    LHI_TRY(
        lhi_node_get_number(r->doc, node, row->low, row->high, &value, err));
    if (row->type == LHI_FIELD_SECONDS) {
        store_integer(member, row->width, llround(value * 1e9));
        return LH_OK;
    }
    if (row->type == LHI_FIELD_SECONDS_REAL)
        value = round(value * 1e9);
    if (row->type == LHI_FIELD_GBPS)
        value *= 1e9 / 8;
    if (row->type == LHI_FIELD_NUMBER)
        value = lhi_round15(value) * (row->scale > 0 ? row->scale : 1);
    memcpy(member, &value, sizeof value);
    return LH_OK;
}

/* Reads a map into a new struct and stores its pointer in the member. */
static lh_status read_new_struct(const lhi_read_context *r,
                                 const lhi_schema_field *row,
                                 const lhi_node *node, void *member,
                                 lh_error *err)
{
    void *it = lhi_arena_alloc(r->mem, 1, row->table->size);
    if (!it)
        return lhi_fail_nomem(err);
    assert(row->width == row->table->size);
    LHI_TRY(lhi_schema_read(r, node, row->table, it, err));
    memcpy(member, &it, sizeof it);
    return LH_OK;
}

/* Reads a list into a new array and stores its pointer and count in the struct
 * `owner`, as defined by field `row`. */
static lh_status read_list(const lhi_read_context *r,
                           const lhi_schema_field *row, const lhi_node *node,
                           char *owner, lh_error *err)
{
    const void *items;
    uint32_t n;
    LHI_TRY(lhi_schema_read_list(r, node, row, &items, &n, err));
    memcpy(owner + row->offset, &items, sizeof items);
    memcpy(owner + row->count, &n, sizeof n);
    return LH_OK;
}

/* Reads one field's value into its member of the struct `owner`, by the field's
 * type. */
static lh_status read_value(const lhi_read_context *r,
                            const lhi_schema_field *row, const lhi_node *node,
                            char *owner, lh_error *err)
{
    void *member = owner + row->offset;
    switch (row->type) {
    case LHI_FIELD_INTEGER:
    case LHI_FIELD_BOOL:
    case LHI_FIELD_ENUM:
    case LHI_FIELD_TIME:
    case LHI_FIELD_SHORT_TIME:
        return read_integer(r, row, node, member, err);
    case LHI_FIELD_REAL:
    case LHI_FIELD_SECONDS:
    case LHI_FIELD_SECONDS_REAL:
    case LHI_FIELD_GBPS:
    case LHI_FIELD_NUMBER:
        return read_real(r, row, node, member, err);
    case LHI_FIELD_STRING:
        return read_text(r, row, node, member, err);
    case LHI_FIELD_TEXT_FORM:
        return read_text_form(r, row, node, member, err);
    case LHI_FIELD_STRUCT:
        assert(row->width == row->table->size);
        return lhi_schema_read(r, node, row->table, member, err);
    case LHI_FIELD_STRUCT_POINTER:
        return read_new_struct(r, row, node, member, err);
    case LHI_FIELD_LIST:
        return read_list(r, row, node, owner, err);
    case LHI_FIELD_CUSTOM:
        return row->read ? row->read(r, node, owner, err) : LH_OK;
    default: /* checked once everything is read */
        return LH_OK;
    }
}

/* --- lists and maps ------------------------------------------------------- */

/* Fails with LH_EINPUT if a list has fewer or more entries than its field
 * allows. */
static lh_status check_length(const lhi_read_context *r,
                              const lhi_schema_field *row, const lhi_node *list,
                              lh_error *err)
{
    LHI_TRY(lhi_node_check_list(r->doc, list, err));
    if (list->n_items < row->min_items)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "has %u entries; at least %u are required",
                            list->n_items, row->min_items);
    if (row->max_items && list->n_items > row->max_items)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "has %u entries; at most %u are allowed",
                            list->n_items, row->max_items);
    return LH_OK;
}

lh_status lhi_schema_read_list(const lhi_read_context *r, const lhi_node *list,
                               const lhi_schema_field *row, const void **out,
                               uint32_t *n, lh_error *err)
{
    lhi_schema_field item = *row;
    LHI_TRY(check_length(r, row, list, err));
    char *items = lhi_arena_alloc(r->mem, list->n_items, row->width);
    if (!items)
        return lhi_fail_nomem(err);
    item.type = row->table ? LHI_FIELD_STRUCT : row->item_type;
    item.offset = 0;
    for (const lhi_node *node = list->first; node; node = node->next) {
        char *at = items + (size_t)node->index * row->width;
        if (row->null_items && lhi_node_is_null(node))
            store_absent(&item, at);
        else
            LHI_TRY(read_value(r, &item, node, at, err));
    }
    *out = items;
    *n = list->n_items;
    return LH_OK;
}

/* Reads one field of a map into the struct `owner`, or stores its default if
 * the key is absent. */
static lh_status read_field(const lhi_read_context *r, const lhi_node *map,
                            const lhi_schema_field *row, char *owner,
                            lh_error *err)
{
    const lhi_node *node = lhi_node_find(map, row->key);
    bool needed = row->when == LHI_REQUIRED || row->when == LHI_NULLABLE;
    if (!node && needed && row->type != LHI_FIELD_DERIVED)
        LHI_TRY(lhi_node_require(r->doc, map, row->key, &node, err));
    if (node && !(row->when == LHI_NULLABLE && lhi_node_is_null(node)))
        return read_value(r, row, node, owner, err);
    assert(!row->omit_if_same || row->width == row->other_width);
    if (row->omit_if_same)
        memcpy(owner + row->offset, owner + row->other_offset, row->width);
    else if (row->when != LHI_DEFAULTED && !row->other_width)
        store_absent(row, owner + row->offset);
    return LH_OK;
}

/* Reads all fields of a schema, including inlined schemas, into the struct
 * `owner`, then runs the schema's check. */
static lh_status read_fields(const lhi_read_context *r, const lhi_node *map,
                             const lhi_schema *table, char *owner,
                             lh_error *err)
{
    if (table->start)
        table->start(r, owner);
    for (uint32_t i = 0; i < table->n_rows; i++) {
        const lhi_schema_field *row = &table->rows[i];
        assert(row->owner == table->size);
        if (row->type == LHI_FIELD_INLINED)
            LHI_TRY(read_fields(r, map, row->table, owner + row->offset, err));
        else
            LHI_TRY(read_field(r, map, row, owner, err));
    }
    return table->check ? table->check(r, map, owner, err) : LH_OK;
}

lh_status lhi_schema_read(const lhi_read_context *r, const lhi_node *map,
                          const lhi_schema *table, void *out, lh_error *err)
{
    LHI_TRY(reject_unknown_keys(r, map, table, err));
    return read_fields(r, map, table, out, err);
}
