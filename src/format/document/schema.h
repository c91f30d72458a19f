/* SPDX-License-Identifier: Apache-2.0 */
/* Schemas: the mapping between a file's keys and a struct, defined once as a
 * table with one row per key. Reading with all checks, writing, and the list of
 * valid keys for documents and messages follow from it.
 *
 *     static const lhi_schema_field rows[] = {
 *         {"gpus", LHI_INTEGER(lh_price, gpus), .least = 1, .most = 1000},
 *         {"usd", LHI_REAL(lh_price, usd), .high = 1e300},
 *         {"kind", LHI_ENUM(lh_price, kind), .names = kinds},
 *         {"until_s", LHI_SECONDS(lh_price, until_ns), .high = 9e9,
 *          .when = LHI_NULLABLE, .absent = -1},
 *     };
 *     const lhi_schema lhi_price_schema = {LHI_ROWS("price", lh_price, rows)};
 *
 * Keys are written and read in row order. A member whose type does not match
 * its macro causes a compile error. Rules between keys belong into the schema's
 * `check`; anything else that a row cannot express, into hooks. LHI_CUSTOM()
 * rows read and write themselves. LHI_DERIVED() values follow from other keys,
 * so they are written, and `check` compares them on reading.
 *
 * schema_read.c reads; schema_write.c writes. */
#ifndef LHI_FORMAT_DOCUMENT_SCHEMA_H
#define LHI_FORMAT_DOCUMENT_SCHEMA_H

#include "base/text.h"
#include "format/document/tree.h"

#include <jansson.h>

typedef struct lhi_schema_field lhi_schema_field;
typedef struct lhi_schema lhi_schema;

/* Field types, with their C types. */
typedef enum lhi_field_type {
    LHI_FIELD_INTEGER,      /* uint32_t, uint64_t or int64_t, least..most */
    LHI_FIELD_REAL,         /* double, low..high */
    LHI_FIELD_BOOL,         /* bool */
    LHI_FIELD_STRING,       /* const char *; least = 1: must not be empty */
    LHI_FIELD_ENUM,         /* enum or bool; `least`: value of the first name */
    LHI_FIELD_TEXT_FORM,    /* any type with a text form, see `parse` */
    LHI_FIELD_TIME,         /* int64_t ns; in the file's time unit */
    LHI_FIELD_SECONDS,      /* int64_t ns; seconds in the file, low..high */
    LHI_FIELD_SECONDS_REAL, /* double, whole ns; seconds in the file, low..high
                             */
    LHI_FIELD_GBPS,         /* double, bytes/s; Gb/s in the file, low..high */
    LHI_FIELD_NUMBER,       /* double; number / `scale`, 15 digits, low..high;
                             * integers without a fraction */
    LHI_FIELD_SHORT_TIME,   /* int64_t ns, at most an hour; the file's time unit
                             */
    LHI_FIELD_STRUCT,       /* nested map, by `table` */
    LHI_FIELD_STRUCT_POINTER, /* pointer to a struct, by `table` */
    LHI_FIELD_INLINED,        /* struct by `table`, its keys inlined here */
    LHI_FIELD_LIST,           /* pointer and count; by `table`, or see `of` */
    LHI_FIELD_CUSTOM,         /* by hooks */
    LHI_FIELD_DERIVED,        /* written by a hook; read only by `check` */
} lhi_field_type;

/* The file's representation of a row's `absent` value. For strings, pointers
 * and lists `absent` is NULL or empty; for seconds and rates, any value up to
 * it. */
typedef enum lhi_field_when {
    LHI_REQUIRED,  /* never absent; the key is mandatory */
    LHI_OPTIONAL,  /* the key is omitted */
    LHI_NULLABLE,  /* the key has the value null */
    LHI_DEFAULTED, /* always written; without the key, the member keeps the
                    * value set by `start` */
} lhi_field_when;

/* One read operation's state. */
typedef struct lhi_read_context {
    const lhi_doc *doc;
    lhi_arena *mem;  /* allocates strings, lists and structs */
    int64_t unit_ns; /* for LHI_TIME(); 0 means 1 */
    void *context;   /* for hooks, `start` and `check` */
} lhi_read_context;

enum {
    LHI_TEXT_FORM_SIZE = 64
}; /* a printed LHI_TEXT_FORM()'s maximum bytes */

/* One row: a key and its member. */
struct lhi_schema_field {
    const char *key;
    lhi_field_type type;
    lhi_field_when when;
    uint32_t owner;         /* the containing struct's size */
    uint32_t offset, width; /* member's; for a list, the item's width */
    uint32_t count;         /* offset of a list's count */
    uint32_t other_offset, other_width; /* see LHI_OMIT_IF() */
    bool omit_if_same;                  /* see LHI_OMIT_IF_SAME() */
    union {
        int64_t least;
        double low;
    };
    union {
        int64_t most;
        double high;
    };
    /* May be NULL: returns the maximum if it depends on another key; `most` is
     * then the format's limit. */
    int64_t (*find_most)(const lhi_read_context *r);
    int64_t absent;
    double scale;             /* 0 means 1 */
    bool quoted;              /* the string must be quoted */
    bool null_items;          /* list: `absent` items are null */
    lhi_field_type item_type; /* item type of a list without table; least..most
                               * apply to items */
    uint32_t min_items, max_items; /* number of list items; 0: any */
    const char *const *names;      /* NULL-terminated */
    const lhi_schema *table; /* optional for custom rows (lhi_schema_walk) */
    /* For a text form: its description in messages ("a pass, as 3F0"). For a
     * constant key that is checked elsewhere: its text. */
    const char *description;
    bool (*parse)(const char *text, void *member);
    const char *(*print)(const void *member, char *text);
    /* For custom rows; `owner` is the struct. Without `read` the key is valid
     * and mandatory, but other code reads it. */
    lh_status (*read)(const lhi_read_context *r, const lhi_node *node,
                      void *owner, lh_error *err);
    /* Returns NULL if allocation fails, JSON null to omit the key if the row
     * allows it. Without `write` and `form` the key is only read, never
     * written. */
    json_t *(*write)(const void *owner, const void *context);
};

/* A schema: the rows for one struct. */
struct lhi_schema {
    const char *name; /* struct's name in messages */
    size_t size;      /* struct's size */
    const lhi_schema_field *rows;
    uint32_t n_rows;
    /* May be NULL. Called before the rows are read, on a zeroed struct. */
    void (*start)(const lhi_read_context *r, void *it);
    /* May be NULL. Called afterwards; checks rules between keys. */
    lh_status (*check)(const lhi_read_context *r, const lhi_node *map, void *it,
                       lh_error *err);
};

#define LHI_ROWS(what, T, all_rows)                                            \
    .name = (what), .size = sizeof(T), .rows = (all_rows),                     \
    .n_rows = (uint32_t)(sizeof(all_rows) / sizeof *(all_rows))

/* Rows for member `m` of struct `T`. `_Generic` without a default rejects
 * members of other types. */
#define LHI_MEMBER(T, m) (((T *)0)->m)
#define LHI_FIELD(kind, T, m)                                                  \
    .type = (kind), .owner = sizeof(T), .offset = offsetof(T, m),              \
    .width = sizeof LHI_MEMBER(T, m)
#define LHI_INTEGER(T, m)                                                      \
    LHI_FIELD(_Generic(LHI_MEMBER(T, m), uint32_t                              \
                       : LHI_FIELD_INTEGER, int64_t                            \
                       : LHI_FIELD_INTEGER, uint64_t                           \
                       : LHI_FIELD_INTEGER),                                   \
              T, m)
#define LHI_REAL(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_MEMBER(T, m), double : LHI_FIELD_REAL), T, m)
#define LHI_BOOL(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_MEMBER(T, m), bool : LHI_FIELD_BOOL), T, m)
#define LHI_STRING(T, m)                                                       \
    LHI_FIELD(_Generic(LHI_MEMBER(T, m), const char * : LHI_FIELD_STRING), T, m)
#define LHI_ENUM(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_MEMBER(T, m), uint32_t                              \
                       : LHI_FIELD_ENUM, bool                                  \
                       : LHI_FIELD_ENUM),                                      \
              T, m)
#define LHI_TEXT_FORM(T, m) LHI_FIELD(LHI_FIELD_TEXT_FORM, T, m)
#define LHI_TIME(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_MEMBER(T, m), int64_t : LHI_FIELD_TIME), T, m)
#define LHI_SECONDS(T, m)                                                      \
    LHI_FIELD(_Generic(LHI_MEMBER(T, m), int64_t                               \
                       : LHI_FIELD_SECONDS, double                             \
                       : LHI_FIELD_SECONDS_REAL),                              \
              T, m)
#define LHI_GBPS(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_MEMBER(T, m), double : LHI_FIELD_GBPS), T, m)
#define LHI_NUMBER(T, m)                                                       \
    LHI_FIELD(_Generic(LHI_MEMBER(T, m), double : LHI_FIELD_NUMBER), T, m)
#define LHI_SHORT_TIME(T, m)                                                   \
    LHI_FIELD(_Generic(LHI_MEMBER(T, m), int64_t : LHI_FIELD_SHORT_TIME), T, m)
#define LHI_STRUCT(T, m) LHI_FIELD(LHI_FIELD_STRUCT, T, m)
/* A nested map whose keys are members of this struct. */
#define LHI_NESTED_MAP(T)                                                      \
    .type = LHI_FIELD_STRUCT, .owner = sizeof(T), .width = sizeof(T)
/* Inlines the rows of another table for the same struct. */
#define LHI_INLINED_TABLE(T) .type = LHI_FIELD_INLINED, .owner = sizeof(T)
#define LHI_STRUCT_POINTER(T, m)                                               \
    .type = LHI_FIELD_STRUCT_POINTER, .owner = sizeof(T),                      \
    .offset = offsetof(T, m), .width = sizeof *LHI_MEMBER(T, m)
#define LHI_INLINED(T, m) LHI_FIELD(LHI_FIELD_INLINED, T, m)
#define LHI_LIST(T, m, n_m)                                                    \
    .type = LHI_FIELD_LIST, .owner = sizeof(T), .offset = offsetof(T, m),      \
    .width = sizeof *LHI_MEMBER(T, m),                                         \
    .count = _Generic(LHI_MEMBER(T, n_m), uint32_t                             \
                      : offsetof(T, n_m))
#define LHI_CUSTOM(T) .type = LHI_FIELD_CUSTOM, .owner = sizeof(T)
#define LHI_DERIVED(T) .type = LHI_FIELD_DERIVED, .owner = sizeof(T)

/* Omits the row if another member (1, 4 or 8 bytes) equals `value`. */
#define LHI_OMIT_IF(T, m, value)                                               \
    .when = LHI_OPTIONAL, .other_offset = offsetof(T, m),                      \
    .other_width = sizeof LHI_MEMBER(T, m), .absent = (value)

/* Omits the row if its member equals another one of the same type, which is
 * read before it. */
#define LHI_OMIT_IF_SAME(T, m)                                                 \
    .when = LHI_OPTIONAL, .other_offset = offsetof(T, m),                      \
    .other_width = sizeof LHI_MEMBER(T, m), .omit_if_same = true

/* Reads a map into *out, a zeroed struct of the schema. After a failure *out
 * has the values read so far. */
lh_status lhi_schema_read(const lhi_read_context *r, const lhi_node *map,
                          const lhi_schema *table, void *out, lh_error *err);
/* Reads a list's items into a new array, *out with *n items, as the
 * LHI_FIELD_LIST field `row` describes them; for fields with a custom reader.
 * Ignores the field's offsets. */
lh_status lhi_schema_read_list(const lhi_read_context *r, const lhi_node *list,
                               const lhi_schema_field *row, const void **out,
                               uint32_t *n, lh_error *err);

/* Writes a struct as a JSON map by its schema; returns NULL if allocation
 * fails. `context` is passed to the schema's write callbacks. */
json_t *lhi_schema_write(const lhi_schema *table, const void *it,
                         const void *context);
/* Writes n items as a JSON array, as the list field `row` describes them;
 * returns NULL if allocation fails. `context`: passed to custom writers. */
json_t *lhi_schema_write_list(const lhi_schema_field *row, const void *items,
                              uint32_t n, const void *context);
/* Appends the keys and values of the struct `it` as JSON text without braces or
 * spaces, for texts too long for a tree. Supports numbers, enums and text forms
 * only. */
void lhi_schema_add_text(lhi_text *text, const lhi_schema *table,
                         const void *it);
/* Converts a parsed document node to JSON, with its keys in their order;
 * returns NULL if allocation fails. */
json_t *lhi_json_from_node(const lhi_doc *doc, const lhi_node *node);
/* Returns a JSON number, without a fraction for integers. */
json_t *lhi_json_number(double value);
/* Sets a key of a JSON map; takes the reference to `value`. Returns false if
 * allocation fails, also for `value` NULL. */
bool lhi_json_set(json_t *map, const char *key, json_t *value);
/* Returns `map` if `ok`; otherwise releases it and returns NULL. */
json_t *lhi_json_finish(json_t *map, bool ok);
/* Formats a JSON value as text of *len bytes, followed by one newline. Releases
 * the caller's reference to `json`; `json` NULL: LH_ENOMEM. */
lh_status lhi_json_format(json_t *json, char **text, size_t *len,
                          lh_error *err);
/* Formats a JSON value with `indent` spaces per level as text of *len bytes,
 * followed by one newline. Releases the caller's reference to `json`; `json`
 * NULL: LH_ENOMEM. */
lh_status lhi_json_format_indented(json_t *json, uint32_t indent, char **text,
                                   size_t *len, lh_error *err);

/* Finds a schema's field by its key, including the fields of inlined schemas;
 * returns NULL if unknown. */
const lhi_schema_field *lhi_schema_find_field(const lhi_schema *table,
                                              const char *key);
/* Calls `visit` for each field of the schema and, recursively, of its fields'
 * schemas; `table` is the schema that contains the field. */
void lhi_schema_walk(const lhi_schema *table,
                     void (*visit)(const lhi_schema *table,
                                   const lhi_schema_field *row, void *context),
                     void *context);

#endif
