/* SPDX-License-Identifier: Apache-2.0 */
/* What a file says of a struct, said once: a table with a row for each key.
 * From it follow reading with all its checks, writing, and the list of known
 * keys, which documents and messages show.
 *
 *     static const lhi_field rows[] = {
 *         {"gpus", LHI_WHOLE(lh_price, gpus), .least = 1, .most = 1000},
 *         {"usd", LHI_REAL(lh_price, usd), .high = 1e300},
 *         {"kind", LHI_NAME(lh_price, kind), .names = kinds},
 *         {"until_s", LHI_SECONDS(lh_price, until_ns), .high = 9e9,
 *          .when = LHI_OR_NULL, .absent = -1},
 *     };
 *     const lhi_table lhi_price_table = {LHI_ROWS("price", lh_price, rows)};
 *
 * Rows stand in the order in which they are written and read. A row whose
 * member has another type than its macro wants does not compile. What one row
 * cannot say is for `check` of the table (rules between keys), or for hooks:
 * LHI_OWN() reads and writes itself, LHI_ALSO() follows from other keys, so it
 * is written and `check` compares it.
 *
 * fields_read.c reads; fields_write.c writes. */
#ifndef LHI_FIELDS_H
#define LHI_FIELDS_H

#include "base/text.h"
#include "doc/doc.h"

#include <jansson.h>

typedef struct lhi_field lhi_field;
typedef struct lhi_table lhi_table;

typedef enum lhi_field_type {
    LHI_F_WHOLE,        /* uint32_t, uint64_t or int64_t, least..most */
    LHI_F_REAL,         /* double, low..high */
    LHI_F_BOOL,         /* bool */
    LHI_F_TEXT,         /* const char *; least: 1: not empty */
    LHI_F_NAME,         /* an enum or bool; `least` is the first name's value */
    LHI_F_WORD,         /* anything that has a text, see `parse` */
    LHI_F_TIME,         /* int64_t ns; in the file's unit */
    LHI_F_SECONDS,      /* int64_t ns; seconds in the file, low..high */
    LHI_F_SECONDS_REAL, /* double, whole ns; seconds in the file, low..high */
    LHI_F_GBPS,         /* double, bytes/s; Gb/s in the file, low..high */
    LHI_F_NUMBER,       /* double; number / `scale`, of 15 digits, low..high;
                           whole ones without a fraction */
    LHI_F_SPAN,         /* int64_t ns, at most an hour; the same of them */
    LHI_F_STRUCT,       /* a map of its own, by `table` */
    LHI_F_STRUCT_AT,    /* a pointer to a struct, by `table` */
    LHI_F_SPREAD,       /* a struct by `table`, its keys beside the others */
    LHI_F_LIST,         /* a pointer and a count; by `table`, or see `of` */
    LHI_F_OWN,          /* by hooks */
    LHI_F_ALSO,         /* written by a hook; read by no one but `check` */
} lhi_field_type;

/* What holds where a value is the row's `absent` one. Of texts, pointers and
 * lists that is NULL or an empty one; of seconds and rates any up to it. */
typedef enum lhi_field_when {
    LHI_NEEDED,   /* no value is; files without the key are refused */
    LHI_LEFT_OUT, /* the file lacks the key */
    LHI_OR_NULL,  /* the key is there, as null */
    LHI_KEPT,     /* always written; a file without the key leaves the member
                     as `start` made it */
} lhi_field_when;

typedef struct lhi_reading {
    const lhi_doc *doc;
    lhi_arena *mem;  /* texts, lists and structs live here */
    int64_t unit_ns; /* of LHI_TIME(); 0: 1 */
    void *context;   /* for hooks, starts and checks */
} lhi_reading;

enum { LHI_WORD_SIZE = 64 }; /* bytes of a printed LHI_WORD() at most */

struct lhi_field {
    const char *key;
    lhi_field_type type;
    lhi_field_when when;
    uint32_t owner;            /* size of the struct that has the member */
    uint32_t offset, width;    /* of the member; width of a list: of an item */
    uint32_t count;            /* offset of a list's count */
    uint32_t gate, gate_width; /* see LHI_UNLESS() */
    bool same;                 /* see LHI_UNLESS_SAME() */
    union {
        int64_t least;
        double low;
    };
    union {
        int64_t most;
        double high;
    };
    /* May be NULL: the most, where another key says it; `most` is what the
     * format allows then. */
    int64_t (*most_here)(const lhi_reading *r);
    int64_t absent;
    double scale;             /* 0: 1 */
    bool quoted;              /* a text must stand in quotes */
    bool null_items;          /* of a list: `absent` ones are null */
    lhi_field_type of;        /* a list's items, if it has no table; least..high
                                 are theirs */
    uint32_t fewest, longest; /* items of a list; 0: any */
    const char *const *names; /* ending in NULL */
    const lhi_table *table;   /* an own row may name one for lhi_fields_walk */
    /* Of a word: what it must be, for messages ("a pass, as 3F0"). Of a key
     * that is always the same and checked elsewhere: its text. */
    const char *form;
    bool (*parse)(const char *text, void *member);
    const char *(*print)(const void *member, char *text);
    /* Of an own row; `owner` is the struct. Without `read` the key is known
     * and needed, but something else reads it. */
    lh_status (*read)(const lhi_reading *r, const lhi_node *node, void *owner,
                      lh_error *err);
    /* NULL: no memory. JSON's null: left out, if the row may be. Without
     * `write` and `form` it always is: the key is only read. */
    json_t *(*write)(const void *owner, const void *context);
};

struct lhi_table {
    const char *name; /* of the struct, for people */
    size_t size;      /* of the struct */
    const lhi_field *rows;
    uint32_t n_rows;
    /* May be NULL. Before the rows are read; the struct was zeroed. */
    void (*start)(const lhi_reading *r, void *it);
    /* May be NULL. After them: what they say together. */
    lh_status (*check)(const lhi_reading *r, const lhi_node *map, void *it,
                       lh_error *err);
};

#define LHI_ROWS(what, T, all_rows)                                            \
    .name = (what), .size = sizeof(T), .rows = (all_rows),                     \
    .n_rows = (uint32_t)(sizeof(all_rows) / sizeof *(all_rows))

/* Rows, of member `m` of struct `T`. `_Generic` without a default refuses
 * members of other types. */
#define LHI_OF(T, m) (((T *)0)->m)
#define LHI_FIELD(kind, T, m)                                                  \
    .type = (kind), .owner = sizeof(T), .offset = offsetof(T, m),              \
    .width = sizeof LHI_OF(T, m)
#define LHI_WHOLE(T, m)                                                        \
    LHI_FIELD(_Generic(LHI_OF(T, m), uint32_t                                  \
                       : LHI_F_WHOLE, int64_t                                  \
                       : LHI_F_WHOLE, uint64_t                                 \
                       : LHI_F_WHOLE),                                         \
              T, m)
#define LHI_REAL(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_OF(T, m), double : LHI_F_REAL), T, m)
#define LHI_BOOL(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_OF(T, m), bool : LHI_F_BOOL), T, m)
#define LHI_TEXT(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_OF(T, m), const char * : LHI_F_TEXT), T, m)
#define LHI_NAME(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_OF(T, m), uint32_t                                  \
                       : LHI_F_NAME, bool                                      \
                       : LHI_F_NAME),                                          \
              T, m)
#define LHI_WORD(T, m) LHI_FIELD(LHI_F_WORD, T, m)
#define LHI_TIME(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_OF(T, m), int64_t : LHI_F_TIME), T, m)
#define LHI_SECONDS(T, m)                                                      \
    LHI_FIELD(_Generic(LHI_OF(T, m), int64_t                                   \
                       : LHI_F_SECONDS, double                                 \
                       : LHI_F_SECONDS_REAL),                                  \
              T, m)
#define LHI_GBPS(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_OF(T, m), double : LHI_F_GBPS), T, m)
#define LHI_NUMBER(T, m)                                                       \
    LHI_FIELD(_Generic(LHI_OF(T, m), double : LHI_F_NUMBER), T, m)
#define LHI_SPAN(T, m)                                                         \
    LHI_FIELD(_Generic(LHI_OF(T, m), int64_t : LHI_F_SPAN), T, m)
#define LHI_STRUCT(T, m) LHI_FIELD(LHI_F_STRUCT, T, m)
/* A map of keys whose members stand in the struct itself. */
#define LHI_PART(T) .type = LHI_F_STRUCT, .owner = sizeof(T), .width = sizeof(T)
/* Rows that stand in another table of the same struct. */
#define LHI_SPREAD_PART(T) .type = LHI_F_SPREAD, .owner = sizeof(T)
#define LHI_STRUCT_AT(T, m)                                                    \
    .type = LHI_F_STRUCT_AT, .owner = sizeof(T), .offset = offsetof(T, m),     \
    .width = sizeof *LHI_OF(T, m)
#define LHI_SPREAD(T, m) LHI_FIELD(LHI_F_SPREAD, T, m)
#define LHI_LIST(T, m, n_m)                                                    \
    .type = LHI_F_LIST, .owner = sizeof(T), .offset = offsetof(T, m),          \
    .width = sizeof *LHI_OF(T, m),                                             \
    .count = _Generic(LHI_OF(T, n_m), uint32_t                                 \
                      : offsetof(T, n_m))
#define LHI_OWN(T) .type = LHI_F_OWN, .owner = sizeof(T)
#define LHI_ALSO(T) .type = LHI_F_ALSO, .owner = sizeof(T)

/* The row is left out where another member (of 1, 4 or 8 bytes) is `value`. */
#define LHI_UNLESS(T, m, value)                                                \
    .when = LHI_LEFT_OUT, .gate = offsetof(T, m),                              \
    .gate_width = sizeof LHI_OF(T, m), .absent = (value)

/* The row is left out where its member is what another one of the same type
 * is, which stands before it. */
#define LHI_UNLESS_SAME(T, m)                                                  \
    .when = LHI_LEFT_OUT, .gate = offsetof(T, m),                              \
    .gate_width = sizeof LHI_OF(T, m), .same = true

/* Fills in *out, a zeroed struct of the table. After a failure it holds what
 * was read before. */
lh_status lhi_fields_read(const lhi_reading *r, const lhi_node *map,
                          const lhi_table *table, void *out, lh_error *err);
/* Items as a row of type LHI_F_LIST says them, for own rows; its offsets are
 * not used. */
lh_status lhi_list_read(const lhi_reading *r, const lhi_node *list,
                        const lhi_field *row, const void **out, uint32_t *n,
                        lh_error *err);

/* NULL: no memory. `context` is for hooks. */
json_t *lhi_fields_write(const lhi_table *table, const void *it,
                         const void *context);
json_t *lhi_list_write(const lhi_field *row, const void *items, uint32_t n,
                       const void *context);
/* The same without braces or spaces, for texts too long to be a tree first;
 * numbers, names and words alone. */
void lhi_fields_add_text(lhi_text *text, const lhi_table *table,
                         const void *it);
/* A value of a file as JSON, its keys in their order. NULL: no memory. */
json_t *lhi_json_of_node(const lhi_doc *doc, const lhi_node *node);
/* A number for JSON: whole ones without a fraction. */
json_t *lhi_json_number(double value);
/* Takes the reference. False: no memory, which `value` NULL counts as. */
bool lhi_json_set(json_t *map, const char *key, json_t *value);
/* `map`, if all went well, else NULL, and it is let go. */
json_t *lhi_json_done(json_t *map, bool ok);
/* The text of a JSON value, one line end after it. Takes the reference;
 * NULL counts as no memory. */
lh_status lhi_json_text(json_t *json, char **text, size_t *len, lh_error *err);
/* The same, indented by so many spaces. */
lh_status lhi_json_print(json_t *json, uint32_t indent, char **text,
                         size_t *len, lh_error *err);

/* The row of a key, those that are spread included; NULL: it is not known. */
const lhi_field *lhi_fields_find(const lhi_table *table, const char *key);
/* Calls `visit` with each row of the table and, below it, of its rows'
 * tables; `table` is the one that has the row. */
void lhi_fields_walk(const lhi_table *table,
                     void (*visit)(const lhi_table *table, const lhi_field *row,
                                   void *context),
                     void *context);

#endif
