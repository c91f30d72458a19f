/* SPDX-License-Identifier: Apache-2.0 */
/* YAML (and so JSON) read into a tree that remembers where everything stood,
 * and the checks that turn its scalars into values. Every refusal names file,
 * line and key.
 *
 * Anchors, aliases and tags are refused: no file format here needs them, and
 * an input cannot expand beyond its own size. A node takes some 60 bytes, so a
 * large text of nothing but very short values would take more than 8 times its
 * bytes; such a text is refused, too: no file of ours is like it.
 *
 * In: a file's text. Out: nodes, and values checked one by one; or, by a table
 * of its keys, a whole struct (fields.h, which writes it, too).
 * doc.c: from text to nodes (node_memory.c: where these lie); toml.c,
 * toml_scalar.c: the same of TOML (toml.h). value.c: from
 * nodes to values, and the messages. number.c: numbers as people write them.
 * fields_read.c, fields_write.c: from maps to structs and back, by tables. */
#ifndef LHI_DOC_H
#define LHI_DOC_H

#include "base/arena.h"
#include "base/fail.h"
#include "base/input.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lhi_node_kind {
    LHI_SCALAR,
    LHI_LIST,
    LHI_MAP,
} lhi_node_kind;

typedef struct lhi_node lhi_node;
struct lhi_node {     /* small: there is one for each value of a large file */
    const char *key;  /* in a map; NULL otherwise */
    const char *text; /* scalar: NUL-terminated */
    const lhi_node *parent, *first, *next; /* children in file order */
    uint32_t line;                         /* from 1 */
    uint32_t index;                        /* in its parent */
    uint32_t n_items;                      /* list, map */
    uint8_t kind;                          /* lhi_node_kind */
    bool quoted; /* scalar: was in quotes, so it is a string */
};

typedef struct lhi_doc {
    lhi_arena *mem;
    const char *file; /* as messages name it */
    const lhi_node *root;
} lhi_doc;

enum {
    LHI_DOC_MAX_DEPTH = 32,
    LHI_DOC_MAX_KEYS = 4096, /* in one map */
};

/* `name` is what messages call the text. The root is a map. */
lh_status lhi_doc_parse(const char *text, size_t len, const char *name,
                        lhi_input kind, lhi_doc **out, lh_error *err);
/* One without a root yet, for what reads `len` bytes of another form. */
lh_status lhi_doc_make(size_t len, const char *name, lhi_input kind,
                       lhi_doc **out, lh_error *err);
lh_status lhi_doc_load(const char *path, lhi_input kind, lhi_doc **out,
                       lh_error *err);
void lhi_doc_free(lhi_doc *doc); /* NULL is fine */

/* "file:line: key.path: message". */
lh_status lhi_doc_fail(const lhi_doc *doc, const lhi_node *node, lh_error *err,
                       lh_status code, const char *format, ...)
    LHI_PRINTF(5, 6);

/* A text from a file as a message may show it: without control characters,
 * without half a UTF-8 sequence, cut to `size` with its end. */
void lhi_doc_show(const char *text, char *shown, size_t size);

/* The value of `key` in a map, or NULL. */
const lhi_node *lhi_find(const lhi_node *map, const char *key);
/* The same, refusing a map without it. */
lh_status lhi_need(const lhi_doc *doc, const lhi_node *map, const char *key,
                   const lhi_node **out, lh_error *err);

lh_status lhi_want_map(const lhi_doc *doc, const lhi_node *node, lh_error *err);
lh_status lhi_want_list(const lhi_doc *doc, const lhi_node *node,
                        lh_error *err);

/* Refuses keys of a map that are not in the NULL-terminated list, naming the
 * nearest one that is. */
lh_status lhi_known_keys(const lhi_doc *doc, const lhi_node *map,
                         const char *const *keys, lh_error *err);

/* "longhaul: NAME/VERSION" of the root: refuses another name or version. */
lh_status lhi_want_format(const lhi_doc *doc, const char *name, int version,
                          lh_error *err);
/* The same of a value that stands inside another file. */
lh_status lhi_want_format_of(const lhi_doc *doc, const lhi_node *map,
                             const char *name, int version, lh_error *err);

lh_status lhi_get_int(const lhi_doc *doc, const lhi_node *node, int64_t min,
                      int64_t max, int64_t *out, lh_error *err);
lh_status lhi_get_u32(const lhi_doc *doc, const lhi_node *node, uint32_t min,
                      uint32_t max, uint32_t *out, lh_error *err);
/* Finite. */
lh_status lhi_get_number(const lhi_doc *doc, const lhi_node *node, double min,
                         double max, double *out, lh_error *err);
lh_status lhi_get_bool(const lhi_doc *doc, const lhi_node *node, bool *out,
                       lh_error *err);
/* Not empty; borrowed from the document. */
lh_status lhi_get_string(const lhi_doc *doc, const lhi_node *node,
                         const char **out, lh_error *err);
/* One of the NULL-terminated names; *out is its index. */
lh_status lhi_get_choice(const lhi_doc *doc, const lhi_node *node,
                         const char *const *names, uint32_t *out,
                         lh_error *err);
/* A time of 0..2^52 ns: the number times `unit_ns`, rounded to the nearest. */
lh_status lhi_get_time(const lhi_doc *doc, const lhi_node *node,
                       int64_t unit_ns, int64_t *out_ns, lh_error *err);

/* The key `time_unit` of a map: s (where it is absent), ms, us or ns. */
lh_status lhi_get_time_unit(const lhi_doc *doc, const lhi_node *map,
                            int64_t *unit_ns, lh_error *err);

/* A time, as lhi_get_time() has it, of at most an hour. */
lh_status lhi_get_short_time(const lhi_doc *doc, const lhi_node *node,
                             int64_t unit_ns, int64_t *out_ns, lh_error *err);
/* Numbers that people write keep 15 significant digits: every decimal of that
 * length survives text -> double -> text, so that what was read is written the
 * same (lhi_json_number() of fields.h). */
double lhi_round15(double value);
lh_status lhi_get_number15(const lhi_doc *doc, const lhi_node *node, double min,
                           double max, double *out, lh_error *err);

/* True for a plain (unquoted) scalar that is JSON's and YAML's null. */
bool lhi_is_null(const lhi_node *node);

#define LHI_MAX_TIME_NS (INT64_C(1) << 52)
#define LHI_HOUR_NS INT64_C(3600000000000)

#endif
