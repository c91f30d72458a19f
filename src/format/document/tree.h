/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing YAML (and hence JSON) into a tree that records every
 * node's line, and the checks that convert its scalars to values. Every error
 * names file, line and key.
 *
 * Anchors, aliases and tags are rejected: no file format here needs them, and
 * without them an input cannot expand beyond its own size. A node takes about
 * 60 bytes, so a large text with nothing but very short values would need more
 * than 8 times its size; this is rejected too, as no longhaul file resembles
 * it.
 *
 * Input: a file's text. Output: nodes, and values checked one by one; or, by a
 * schema with its keys, a whole struct (schema.h, which also writes it).
 * - tree.c: text to nodes (node_memory.c: their allocation)
 * - toml.c, toml_scalar.c: the same for TOML (toml.h)
 * - value.c: nodes to values, and the messages
 * - set_value.c: changes of values
 * - number.c: decimal numbers
 * - schema_read.c, schema_write.c: maps to structs and back, by schemas */
#ifndef LHI_FORMAT_DOCUMENT_TREE_H
#define LHI_FORMAT_DOCUMENT_TREE_H

#include "base/arena.h"
#include "base/fail.h"
#include "base/input_limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The kinds of nodes. */
typedef enum lhi_node_kind {
    LHI_SCALAR,
    LHI_LIST,
    LHI_MAP,
} lhi_node_kind;

typedef struct lhi_node lhi_node;
struct lhi_node {     /* compact: one per value in a large file */
    const char *key;  /* in a map; otherwise NULL */
    const char *text; /* scalar: NUL-terminated */
    const lhi_node *parent, *first, *next; /* children in file order */
    uint32_t line;                         /* 1-based */
    uint32_t index;                        /* position in its parent */
    uint32_t n_items;                      /* list, map */
    uint8_t kind;                          /* lhi_node_kind */
    bool quoted;                           /* scalar: quoted, hence a string */
};

/* The input from which a value of a generated document was made. */
typedef struct lhi_doc_origin {
    const char *path;  /* "layout.expert"; NULL: the list's end */
    const char *where; /* "args.txt:5: --expert-model-parallel-size" */
} lhi_doc_origin;

/* A parsed document; owns its nodes. */
typedef struct lhi_doc {
    lhi_arena *mem;
    const char *file; /* name in messages */
    const lhi_node *root;
    bool keys_repeat; /* as arguments do; else repeated keys are rejected */
    /* Generated document: messages give the origin of a value rather than a
     * line that the user cannot see. NULL: the text is the user's. */
    const lhi_doc_origin *origins;
} lhi_doc;

enum {
    LHI_DOC_MAX_DEPTH = 32,
    LHI_DOC_MAX_KEYS = 4096, /* per map */
};

/* Parses a YAML or JSON text, whose root must be a map, into a document tree.
 * `name` identifies the text in messages. Release *out with lhi_doc_free(). */
lh_status lhi_doc_parse(const char *text, size_t len, const char *name,
                        lhi_input_kind kind, lhi_doc **out, lh_error *err);
/* Creates a document without a root, for a parser of another format with `len`
 * bytes of input. */
lh_status lhi_doc_make(size_t len, const char *name, lhi_input_kind kind,
                       lhi_doc **out, lh_error *err);
/* Parses the YAML or JSON file `path`, whose root must be a map, into a
 * document tree. Release *out with lhi_doc_free(). */
lh_status lhi_doc_load(const char *path, lhi_input_kind kind, lhi_doc **out,
                       lh_error *err);
/* Frees a document with all its nodes; accepts NULL. */
void lhi_doc_free(lhi_doc *doc);

/* Fails with `code` and "file:line: key.path: message". In a generated
 * document the message is "origin: message", or without an origin "file:
 * key.path: message". */
lh_status lhi_doc_fail(const lhi_doc *doc, const lhi_node *node, lh_error *err,
                       lh_status code, const char *format, ...)
    LHI_PRINTF(5, 6);

/* Copies file content into `shown` (`size` bytes with the NUL) in a form that
 * is safe for messages: removes control characters and incomplete UTF-8
 * sequences, and truncates. */
void lhi_doc_sanitise_text(const char *text, char *shown, size_t size);

/* Returns the value of `key` in a map, or NULL. */
const lhi_node *lhi_node_find(const lhi_node *map, const char *key);
/* Finds a required key's value; fails if the map lacks it. */
lh_status lhi_node_require(const lhi_doc *doc, const lhi_node *map,
                           const char *key, const lhi_node **out,
                           lh_error *err);

/* Sets the value under a map's key path, such as "job.stages", to a scalar;
 * creates missing keys, and sets the key in every item of a list on the path,
 * or in the item whose number, from 0, is a key of the path ("jobs.0.stages").
 * LH_EINPUT: the path leads through a scalar. */
lh_status lhi_node_set_value(lhi_doc *doc, const lhi_node *map,
                             const char *path, const char *text, lh_error *err);

/* Checks that the node is a map; LH_EINPUT otherwise. */
lh_status lhi_node_check_map(const lhi_doc *doc, const lhi_node *node,
                             lh_error *err);
/* Checks that the node is a list; LH_EINPUT otherwise. */
lh_status lhi_node_check_list(const lhi_doc *doc, const lhi_node *node,
                              lh_error *err);

/* Rejects keys of a map that are not in the NULL-terminated list; the message
 * suggests the nearest valid key. */
lh_status lhi_node_check_keys(const lhi_doc *doc, const lhi_node *map,
                              const char *const *keys, lh_error *err);

/* Checks the root's "longhaul: NAME/VERSION"; rejects any other name or
 * version. */
lh_status lhi_doc_check_format(const lhi_doc *doc, const char *name,
                               int version, lh_error *err);
/* Checks the key `longhaul: NAME/VERSION` of a map embedded in another file. */
lh_status lhi_node_check_format(const lhi_doc *doc, const lhi_node *map,
                                const char *name, int version, lh_error *err);

/* Reads an integer in min..max into *out. LH_EINPUT: it is no integer or out of
 * range. */
lh_status lhi_node_get_int(const lhi_doc *doc, const lhi_node *node,
                           int64_t min, int64_t max, int64_t *out,
                           lh_error *err);
/* Reads an unsigned integer in min..max into *out. LH_EINPUT: it is no integer
 * or out of range. */
lh_status lhi_node_get_u32(const lhi_doc *doc, const lhi_node *node,
                           uint32_t min, uint32_t max, uint32_t *out,
                           lh_error *err);
/* Reads a finite number in min..max into *out. LH_EINPUT: it is no number or
 * out of range. */
lh_status lhi_node_get_number(const lhi_doc *doc, const lhi_node *node,
                              double min, double max, double *out,
                              lh_error *err);
/* Reads a boolean into *out. LH_EINPUT: the node is neither true nor false. */
lh_status lhi_node_get_bool(const lhi_doc *doc, const lhi_node *node, bool *out,
                            lh_error *err);
/* Reads a non-empty string into *out, borrowed from the document. LH_EINPUT:
 * the node has another kind of value. */
lh_status lhi_node_get_string(const lhi_doc *doc, const lhi_node *node,
                              const char **out, lh_error *err);
/* Reads one of the names in a NULL-terminated list; *out is its index. */
lh_status lhi_node_get_choice(const lhi_doc *doc, const lhi_node *node,
                              const char *const *names, uint32_t *out,
                              lh_error *err);
/* Reads a time of 0..2^52 ns into *out_ns: the number times `unit_ns`, rounded
 * to the nearest ns. */
lh_status lhi_node_get_time(const lhi_doc *doc, const lhi_node *node,
                            int64_t unit_ns, int64_t *out_ns, lh_error *err);

/* Reads the key `time_unit` of a map, s (default), ms, us or ns; *unit_ns is
 * its length in ns. */
lh_status lhi_node_get_time_unit(const lhi_doc *doc, const lhi_node *map,
                                 int64_t *unit_ns, lh_error *err);

/* Reads a time of at most an hour into *out_ns: the number times unit_ns,
 * rounded to ns. Otherwise like lhi_node_get_time(). */
lh_status lhi_node_get_short_time(const lhi_doc *doc, const lhi_node *node,
                                  int64_t unit_ns, int64_t *out_ns,
                                  lh_error *err);
/* Rounds to 15 significant digits. Every decimal of that length survives text
 * -> double -> text, so that numbers are written as they were read
 * (lhi_json_number() in schema.h). */
double lhi_round15(double value);
/* Reads a number from `min` to `max`, and rounds it to 15 significant digits
 * into *out, by lhi_round15(). */
lh_status lhi_node_get_rounded_number(const lhi_doc *doc, const lhi_node *node,
                                      double min, double max, double *out,
                                      lh_error *err);

/* Checks whether a node is null: an unquoted scalar that is null in JSON and
 * YAML. */
bool lhi_node_is_null(const lhi_node *node);

/* Maximum time in a document, about 52 days: exact in double. */
#define LHI_MAX_TIME_NS (INT64_C(1) << 52)
/* Nanoseconds per hour. */
#define LHI_HOUR_NS INT64_C(3600000000000)

#endif
