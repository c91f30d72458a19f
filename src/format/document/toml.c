/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and keys of TOML. Whether one may be reopened depends on how it was
 * created: https://toml.io/en/v1.0.0#table. */
#include "format/document/toml_internal.h"

#include "base/escape.h"

#include <inttypes.h>
#include <string.h>

/* How a table or an array was created. */
typedef enum origin {
    IMPLICIT,    /* implicitly by a header: [it.other] */
    HEADER,      /* by its own header: [it], or an element of [[it]] */
    DOTTED,      /* by a dotted key: it.other = 1 */
    VALUE,       /* as a value: {...} or [...]; closed to additions */
    TABLE_ARRAY, /* [[it]] */
} origin;

/* A map or list that may still grow. */
typedef struct container {
    lhi_node node; /* first member: map and list nodes are containers */
    lhi_node *last;
    origin how;
} container;

/* --- the tree ------------------------------------------------------------- */

/* Returns the growable container whose first member is this map or list node of
 * the TOML tree. */
static container *get_container(const lhi_node *node)
{
    /* created below, hence writable */
    return (container *)(void *)(uintptr_t)node;
}

/* Appends a node to a map or list. */
static void append_node(container *in, lhi_node *node)
{
    node->parent = &in->node;
    node->index = in->node.n_items++;
    if (in->last)
        in->last->next = node;
    else
        in->node.first = node;
    in->last = node;
}

/* Fails with LH_EINPUT if a TOML table already has the maximum key count. */
static lh_status check_size(const lhi_toml *t, const container *in,
                            lh_error *err)
{
    return in->node.kind == LHI_MAP && in->node.n_items == LHI_DOC_MAX_KEYS
               ? lhi_toml_fail(t, err, "too many keys in one table")
               : LH_OK;
}

/* Adds a map or list to the container `in`, as an element (`key` NULL) or under
 * `key`; `how` records its TOML syntax. *out is the new container. */
static lh_status add_container(lhi_toml *t, container *in, lhi_node_kind kind,
                               origin how, const char *key, container **out,
                               lh_error *err)
{
    LHI_TRY(check_size(t, in, err));
    container *c = lhi_node_alloc_bytes(&t->memory, sizeof *c);
    if (!c)
        return lhi_toml_fail_memory(t, err);
    *c = (container){.how = how};
    c->node.kind = (uint8_t)kind;
    c->node.key = key;
    c->node.line = t->line;
    append_node(in, &c->node);
    *out = c;
    return LH_OK;
}

/* Adds a scalar to a table under `key` or, with `key` NULL, to an array.
 * `quoted`: it is a string; `line`: its line number. */
static lh_status add_scalar(lhi_toml *t, container *in, const char *key,
                            const char *text, bool quoted, uint32_t line,
                            lh_error *err)
{
    LHI_TRY(check_size(t, in, err));
    lhi_node *node = lhi_node_new(&t->memory);
    if (!node)
        return lhi_toml_fail_memory(t, err);
    node->kind = LHI_SCALAR;
    node->key = key;
    node->text = text;
    node->quoted = quoted;
    node->line = line;
    append_node(in, node);
    return LH_OK;
}

/* --- whitespace ----------------------------------------------------------- */

/* Skips blanks and tabs. */
static void skip_spaces(lhi_toml *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t'))
        t->at++;
}

/* Skips `word` if it is next; returns whether it was. */
static bool skip_word(lhi_toml *t, const char *word)
{
    const bool is = lhi_toml_is_next(t, word);
    t->at += is ? strlen(word) : 0;
    return is;
}

/* Skips a comment up to its line's end. */
static void skip_comment(lhi_toml *t)
{
    if (t->at == t->end || *t->at != '#')
        return;
    const char *end = memchr(t->at, '\n', (size_t)(t->end - t->at));
    t->at = end ? end : t->end;
}

/* Skips a line end and counts the line; returns whether there was one. */
static bool skip_end_of_line(lhi_toml *t)
{
    const bool is = skip_word(t, "\n") || skip_word(t, "\r\n");
    t->line += is;
    return is;
}

/* Skips spaces, comments and line ends. */
static void skip_blank(lhi_toml *t)
{
    do {
        skip_spaces(t);
        skip_comment(t);
    } while (skip_end_of_line(t));
}

/* Skips blanks, a comment and the line end. LH_EINPUT: anything else precedes
 * the line end. */
static lh_status require_end_of_line(lhi_toml *t, lh_error *err)
{
    skip_spaces(t);
    skip_comment(t);
    if (t->at < t->end && !skip_end_of_line(t))
        return lhi_toml_fail(
            t, err, "'%.*s': expected the end of the line before it",
            (int)(t->end - t->at > 20 ? 20 : t->end - t->at), t->at);
    return LH_OK;
}

/* --- keys ----------------------------------------------------------------- */

/* A dotted key. */
typedef struct path {
    const char *keys[LHI_DOC_MAX_DEPTH];
    uint32_t n;
} path;

/* Checks whether a character may be part of an unquoted TOML key. */
static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/* Reads one key, bare or quoted. */
static lh_status read_key(lhi_toml *t, const char **out, lh_error *err)
{
    if (t->at < t->end && (*t->at == '"' || *t->at == '\''))
        return lhi_toml_read_string(t, false, out, err);
    const char *first = t->at;
    while (t->at < t->end && is_bare(*t->at))
        t->at++;
    if (t->at == first)
        return lhi_toml_fail(t, err,
                             "expected a key: letters, digits, _ and -, or a "
                             "quoted string");
    *out = lhi_node_copy_text(&t->memory, first, (size_t)(t->at - first));
    return *out ? LH_OK : lhi_toml_fail_memory(t, err);
}

/* Reads a dotted key: a.b . "c d" */
static lh_status read_path(lhi_toml *t, path *p, lh_error *err)
{
    p->n = 0;
    do {
        if (p->n == LHI_DOC_MAX_DEPTH)
            return lhi_toml_fail(t, err, "nested too deeply");
        skip_spaces(t);
        LHI_TRY(read_key(t, &p->keys[p->n++], err));
        skip_spaces(t);
    } while (skip_word(t, "."));
    return LH_OK;
}

/* Fails with LH_EINPUT: the table already has the key, on the line that the
 * message names. */
static lh_status fail_duplicate(const lhi_toml *t, const lhi_node *there,
                                lh_error *err)
{
    char shown[64];
    lhi_doc_sanitise_text(there->key, shown, sizeof shown);
    return lhi_toml_fail(
        t, err, "'%s' is already defined on line %" PRIu32 "; keep one", shown,
        there->line);
}

/* Returns a container's depth in the tree of TOML tables and arrays; 1 for the
 * root. */
static uint32_t count_depth(const container *c)
{
    uint32_t n = 0;
    for (const lhi_node *node = &c->node; node; node = node->parent)
        n++;
    return n;
}

/* Replaces *in by the table under `key` in it, as one part of a header or
 * dotted key requires. Creates the table if it is missing; `how` is then
 * recorded as the syntax that defined it. LH_EINPUT: the key has another value.
 * */
static lh_status descend_into(lhi_toml *t, container **in, const char *key,
                              origin how, lh_error *err)
{
    const lhi_node *there = lhi_node_find(&(*in)->node, key);
    if (!there) {
        if (count_depth(*in) >= LHI_DOC_MAX_DEPTH)
            return lhi_toml_fail(t, err, "nested too deeply");
        return add_container(t, *in, LHI_MAP, how, key, in, err);
    }
    if (there->kind == LHI_SCALAR)
        return fail_duplicate(t, there, err);
    container *c = get_container(there);
    if (c->how == VALUE ||
        (how == DOTTED && c->how != IMPLICIT && c->how != DOTTED))
        return fail_duplicate(t, there, err);
    if (c->how == TABLE_ARRAY)
        c = get_container(&c->last[0]);
    else if (how == DOTTED)
        c->how = DOTTED;
    *in = c;
    return LH_OK;
}

/* --- values --------------------------------------------------------------- */

static lh_status read_value(lhi_toml *t, container *in, const char *key,
                            lh_error *err);

/* Reads an array, which may span lines: [1, 2,] */
static lh_status read_array(lhi_toml *t, container *list, lh_error *err)
{
    const uint32_t line = t->line;
    t->at++;
    for (;;) {
        skip_blank(t);
        if (skip_word(t, "]"))
            return LH_OK;
        if (t->at < t->end)
            LHI_TRY(read_value(t, list, NULL, err));
        skip_blank(t);
        if (skip_word(t, "]"))
            return LH_OK;
        if (t->at == t->end) {
            t->line = line;
            return lhi_toml_fail(t, err, "missing ] at the end of the array");
        }
        if (!skip_word(t, ","))
            return lhi_toml_fail(t, err, "expected , or ] in an array");
    }
}

static lh_status read_pair(lhi_toml *t, container *in, lh_error *err);

/* Reads an inline table: {a = 1, b.c = 2} */
static lh_status read_inline(lhi_toml *t, container *map, lh_error *err)
{
    t->at++;
    skip_spaces(t);
    if (skip_word(t, "}"))
        return LH_OK;
    for (;;) {
        LHI_TRY(read_pair(t, map, err));
        skip_spaces(t);
        if (skip_word(t, "}"))
            return LH_OK;
        if (!skip_word(t, ","))
            return lhi_toml_fail(t, err,
                                 "expected , or } in an inline table, which "
                                 "must be on one line");
    }
}

/* Reads a value (string, number, boolean, array or inline table) into container
 * `in`: under `key`, or as the next array element if `key` is NULL. */
static lh_status read_value(lhi_toml *t, container *in, const char *key,
                            lh_error *err)
{
    const uint32_t line = t->line;
    const char *text;
    if (lhi_toml_is_next(t, "\"") || lhi_toml_is_next(t, "'")) {
        LHI_TRY(lhi_toml_read_string(t, true, &text, err));
        return add_scalar(t, in, key, text, true, line, err);
    }
    const bool list = lhi_toml_is_next(t, "[");
    if (!list && !lhi_toml_is_next(t, "{")) {
        LHI_TRY(lhi_toml_read_scalar(t, &text, err));
        return add_scalar(t, in, key, text, false, line, err);
    }
    container *c;
    if (count_depth(in) >= LHI_DOC_MAX_DEPTH)
        return lhi_toml_fail(t, err, "nested too deeply");
    LHI_TRY(add_container(t, in, list ? LHI_LIST : LHI_MAP, IMPLICIT, key, &c,
                          err));
    LHI_TRY(list ? read_array(t, c, err) : read_inline(t, c, err));
    c->how = VALUE;
    return LH_OK;
}

/* Reads one `key = value` line into the open table `in`. */
static lh_status read_pair(lhi_toml *t, container *in, lh_error *err)
{
    path p;
    LHI_TRY(read_path(t, &p, err));
    for (uint32_t i = 0; i + 1 < p.n; i++)
        LHI_TRY(descend_into(t, &in, p.keys[i], DOTTED, err));
    const lhi_node *there = lhi_node_find(&in->node, p.keys[p.n - 1]);
    if (there)
        return fail_duplicate(t, there, err);
    if (!skip_word(t, "="))
        return lhi_toml_fail(t, err, "expected = after a key");
    skip_spaces(t);
    return read_value(t, in, p.keys[p.n - 1], err);
}

/* --- headers -------------------------------------------------------------- */

/* Opens the table of a header [key] in `in`: a new table, or one that so far
 * exists only as a part of other headers. */
static lh_status open_table(lhi_toml *t, container *in, const char *key,
                            container **out, lh_error *err)
{
    const lhi_node *there = lhi_node_find(&in->node, key);
    if (!there)
        return add_container(t, in, LHI_MAP, HEADER, key, out, err);
    if (there->kind != LHI_MAP || get_container(there)->how != IMPLICIT)
        return fail_duplicate(t, there, err);
    *out = get_container(there);
    (*out)->how = HEADER;
    (*out)->node.line = t->line;
    return LH_OK;
}

/* Adds an element to the array of tables of a header [[key]] in `in`, which is
 * created if necessary; *out is the new table. */
static lh_status add_table(lhi_toml *t, container *in, const char *key,
                           container **out, lh_error *err)
{
    const lhi_node *there = lhi_node_find(&in->node, key);
    container *list;
    if (!there)
        LHI_TRY(add_container(t, in, LHI_LIST, TABLE_ARRAY, key, &list, err));
    else if (there->kind != LHI_LIST ||
             get_container(there)->how != TABLE_ARRAY)
        return fail_duplicate(t, there, err);
    else
        list = get_container(there);
    return add_container(t, list, LHI_MAP, HEADER, NULL, out, err);
}

/* Reads a header, [a.b] or [[a.b]]; *out is the table that it opens. */
static lh_status read_header(lhi_toml *t, container *root, container **out,
                             lh_error *err)
{
    const bool tables = lhi_toml_is_next(t, "[[");
    container *in = root;
    path p;
    t->at += tables ? 2 : 1;
    LHI_TRY(read_path(t, &p, err));
    if (!skip_word(t, tables ? "]]" : "]"))
        return lhi_toml_fail(t, err, "expected %s after a table name",
                             tables ? "]]" : "]");
    for (uint32_t i = 0; i + 1 < p.n; i++)
        LHI_TRY(descend_into(t, &in, p.keys[i], IMPLICIT, err));
    if (count_depth(in) + tables >= LHI_DOC_MAX_DEPTH)
        return lhi_toml_fail(t, err, "nested too deeply");
    const char *key = p.keys[p.n - 1];
    return tables ? add_table(t, in, key, out, err)
                  : open_table(t, in, key, out, err);
}

/* --- document ------------------------------------------------------------- */

/* Rejects characters that are invalid anywhere in TOML: control characters,
 * incomplete UTF-8, a CR that does not end a line. */
static lh_status check_characters(lhi_toml *t, lh_error *err)
{
    uint32_t c;
    for (const char *at = t->at; at < t->end;) {
        const size_t n = lhi_utf8_decode(at, (size_t)(t->end - at), &c);
        const bool line = n && c == '\r' && t->end - at > 1 && at[1] == '\n';
        if (n == 0)
            return lhi_toml_fail(t, err, "not UTF-8 text");
        if ((c < 0x20 && c != '\t' && c != '\n' && !line) || c == 0x7f)
            return lhi_toml_fail(
                t, err, "contains a control character, number %" PRIu32, c);
        t->line += c == '\n';
        at += n;
    }
    t->line = 1;
    return LH_OK;
}

/* Reads the whole document: headers and key-value pairs. */
static lh_status read_document(lhi_toml *t, lh_error *err)
{
    container *root = lhi_node_alloc_bytes(&t->memory, sizeof *root),
              *in = root;
    t->scratch = lhi_node_alloc_bytes(&t->memory, (size_t)(t->end - t->at) + 1);
    if (!root || !t->scratch)
        return lhi_toml_fail_memory(t, err);
    *root = (container){.how = HEADER};
    root->node.kind = LHI_MAP;
    root->node.line = 1;
    t->doc->root = &root->node;
    LHI_TRY(check_characters(t, err));
    for (skip_blank(t); t->at < t->end; skip_blank(t)) {
        if (*t->at == '[')
            LHI_TRY(read_header(t, root, &in, err));
        else
            LHI_TRY(read_pair(t, in, err));
        LHI_TRY(require_end_of_line(t, err));
    }
    return LH_OK;
}

lh_status lhi_toml_parse(const char *text, size_t len, const char *name,
                         lhi_input_kind kind, lhi_doc **out, lh_error *err)
{
    lhi_toml t = {.at = text, .end = text + len, .line = 1};
    LHI_TRY(lhi_doc_make(len, name, kind, &t.doc, err));
    lhi_node_memory_init(&t.memory, t.doc->mem, len);
    lh_status status = read_document(&t, err);
    if (status == LH_OK)
        *out = t.doc;
    else
        lhi_doc_free(t.doc);
    return status;
}
