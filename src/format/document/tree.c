/* SPDX-License-Identifier: Apache-2.0 */
#include "format/document/tree.h"

#include "base/text.h"
#include "format/document/node_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* An open container during parsing, and the place for its next child. The
 * builder keeps a stack, innermost last. */
typedef struct open_node {
    lhi_node *node;
    const lhi_node **tail;
    const char *key; /* map key that still lacks its value */
    uint32_t key_line;
} open_node;

/* The tree builder's state. */
typedef struct builder {
    lhi_doc *doc;
    lhi_node_memory memory;
    open_node open[LHI_DOC_MAX_DEPTH];
    uint32_t depth;
} builder;

/* Returns the line number, from 1, of a parser position. */
static uint32_t get_line(const yaml_mark_t *mark)
{
    return (uint32_t)(mark->line + 1);
}

/* Fails with LH_EINPUT and the message "FILE:LINE: what". */
static lh_status fail_at_line(const lhi_doc *doc, uint32_t line, lh_error *err,
                              const char *what)
{
    return lhi_fail(err, LH_EINPUT, "%s:%u: %s", doc->file, line, what);
}

/* Fails at this line: with LH_EINPUT if the memory budget is exhausted, else
 * with LH_ENOMEM. */
static lh_status fail_memory(const builder *b, uint32_t line, lh_error *err)
{
    if (!b->memory.is_full)
        return lhi_fail_nomem(err);
    return lhi_fail(err, LH_EINPUT,
                    "%s:%u: too many short values: those read so far need %zu "
                    "MiB of memory, above the limit for a text of this length",
                    b->doc->file, line, b->memory.max_bytes >> 20);
}

/* Appends a new node of this kind, from line `line`, to the innermost open
 * container, or makes it the root; *out is the node. */
static lh_status append_node(builder *b, lhi_node_kind kind, uint32_t line,
                             lhi_node **out, lh_error *err)
{
    lhi_node *node = lhi_node_new(&b->memory);
    if (!node)
        return fail_memory(b, line, err);
    node->kind = (uint8_t)kind;
    node->line = line;
    if (b->depth == 0) {
        b->doc->root = node;
    } else {
        open_node *in = &b->open[b->depth - 1];
        node->parent = in->node;
        node->index = in->node->n_items++;
        node->key = in->key;
        in->key = NULL;
        *in->tail = node;
        in->tail = &node->next;
    }
    *out = node;
    return LH_OK;
}

/* Adds a map or list that begins in line `line`, and then receives the
 * following nodes. LH_EINPUT: it is nested too deeply or is a key. */
static lh_status open_container(builder *b, lhi_node_kind kind, uint32_t line,
                                lh_error *err)
{
    if (b->depth == LHI_DOC_MAX_DEPTH)
        return fail_at_line(b->doc, line, err, "nested too deeply");
    if (b->depth && b->open[b->depth - 1].node->kind == LHI_MAP &&
        !b->open[b->depth - 1].key)
        return fail_at_line(b->doc, line, err, "a key must be a scalar");
    lhi_node *node;
    LHI_TRY(append_node(b, kind, line, &node, err));
    b->open[b->depth++] = (open_node){.node = node, .tail = &node->first};
    return LH_OK;
}

/* Maps up to this size are checked for duplicate keys on insertion. Larger maps
 * are sorted when they close, since pairwise comparison would take quadratic
 * time. */
enum { SMALL_MAP_KEYS = 32 };

/* Fails with LH_EINPUT: a map has `key` twice, the second time in line `line`.
 */
static lh_status fail_duplicate(const lhi_doc *doc, uint32_t line,
                                const char *key, lh_error *err)
{
    char shown[64];
    lhi_doc_sanitise_text(key, shown, sizeof shown);
    return lhi_fail(err, LH_EINPUT, "%s:%u: key '%s' appears twice; keep one",
                    doc->file, line, shown);
}

/* Orders pointers to map entries by key, then by position, for sorting. */
static int compare_keys(const void *a, const void *b)
{
    const lhi_node *x = *(const lhi_node *const *)a;
    const lhi_node *y = *(const lhi_node *const *)b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* Finds duplicate keys of a large map by sorting. */
static lh_status check_many_keys(builder *b, const lhi_node *map, lh_error *err)
{
    lhi_mark mark = lhi_arena_mark(b->doc->mem);
    const lhi_node **sorted =
        LHI_NEW(b->doc->mem, const lhi_node *, map->n_items);
    if (!sorted)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = map->first; n; n = n->next)
        sorted[n->index] = n;
    qsort(sorted, map->n_items, sizeof(const lhi_node *), compare_keys);
    const lhi_node *twice = NULL;
    for (uint32_t i = 1; i < map->n_items && !twice; i++)
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
            twice = sorted[i];
    lhi_arena_rewind(b->doc->mem, mark);
    return twice ? fail_duplicate(b->doc, twice->line, twice->key, err) : LH_OK;
}

/* Closes the tree's innermost container. Checks a large map for duplicate keys;
 * small ones are checked at each key. */
static lh_status close_container(builder *b, lh_error *err)
{
    const lhi_node *node = b->open[--b->depth].node;
    if (!b->doc->keys_repeat && node->kind == LHI_MAP &&
        node->n_items > SMALL_MAP_KEYS)
        return check_many_keys(b, node, err);
    return LH_OK;
}

/* Adds a scalar: as a map's next key, or as a value. */
static lh_status add_scalar(builder *b, const yaml_event_t *event,
                            lh_error *err)
{
    uint32_t line = get_line(&event->start_mark);
    const char *text = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;
    if (strlen(text) != len)
        return fail_at_line(b->doc, line, err,
                            "the text contains a NUL character");
    if (len > LHI_TOKEN_BYTES)
        return lhi_fail(err, LH_EINPUT, "%s:%u: a value exceeds %d MiB",
                        b->doc->file, line, LHI_TOKEN_BYTES >> 20);
    const char *copy = lhi_node_copy_text(&b->memory, text, len);
    if (!copy)
        return fail_memory(b, line, err);
    open_node *in = b->depth ? &b->open[b->depth - 1] : NULL;
    if (in && in->node->kind == LHI_MAP && !in->key) {
        if (in->node->n_items == LHI_DOC_MAX_KEYS)
            return fail_at_line(b->doc, line, err, "too many keys in one map");
        if (!b->doc->keys_repeat && in->node->n_items <= SMALL_MAP_KEYS &&
            lhi_node_find(in->node, copy))
            return fail_duplicate(b->doc, line, copy, err);
        in->key = copy;
        in->key_line = line;
        return LH_OK;
    }
    /* An omitted value is reported at its key's line. */
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (in && in->key && len == 0 && plain)
        line = in->key_line;
    lhi_node *node;
    LHI_TRY(append_node(b, LHI_SCALAR, line, &node, err));
    node->text = copy;
    node->quoted = !plain;
    return LH_OK;
}

/* Fails with LH_EINPUT if a YAML node has an anchor or a tag. */
static lh_status reject_anchors_and_tags(const lhi_doc *doc, uint32_t line,
                                         const yaml_char_t *anchor,
                                         const yaml_char_t *tag, lh_error *err)
{
    if (anchor)
        return fail_at_line(
            doc, line, err,
            "anchors (&name) are not supported; write the value out");
    if (tag)
        return fail_at_line(
            doc, line, err,
            "tags (!name) are not supported; write the value without a tag");
    return LH_OK;
}

/* Adds one parser event to the tree. LH_EINPUT: anchors, aliases, tags or
 * several documents. */
static lh_status process_event(builder *b, const yaml_event_t *event,
                               lh_error *err)
{
    uint32_t line = get_line(&event->start_mark);
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        LHI_TRY(reject_anchors_and_tags(b->doc, line, event->data.scalar.anchor,
                                        event->data.scalar.tag, err));
        return add_scalar(b, event, err);
    case YAML_SEQUENCE_START_EVENT:
        LHI_TRY(reject_anchors_and_tags(b->doc, line,
                                        event->data.sequence_start.anchor,
                                        event->data.sequence_start.tag, err));
        return open_container(b, LHI_LIST, line, err);
    case YAML_MAPPING_START_EVENT:
        LHI_TRY(reject_anchors_and_tags(b->doc, line,
                                        event->data.mapping_start.anchor,
                                        event->data.mapping_start.tag, err));
        return open_container(b, LHI_MAP, line, err);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_container(b, err);
    case YAML_ALIAS_EVENT:
        return fail_at_line(
            b->doc, line, err,
            "aliases (*name) are not supported; write the value out");
    case YAML_DOCUMENT_START_EVENT:
        if (b->doc->root)
            return fail_at_line(b->doc, line, err,
                                "a file must contain only one document");
        return LH_OK;
    default:
        return LH_OK;
    }
}

/* Fails with libyaml's error message and its position. */
static lh_status fail_in_parser(const lhi_doc *doc, const yaml_parser_t *parser,
                                lh_error *err)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return lhi_fail_nomem(err);
    if (parser->error == YAML_READER_ERROR)
        return lhi_fail(err, LH_EINPUT, "%s: not UTF-8 text (byte %zu: %s)",
                        doc->file, parser->problem_offset,
                        parser->problem ? parser->problem : "unreadable");
    return lhi_fail(err, LH_EINPUT, "%s:%u: not valid YAML or JSON: %s%s%s",
                    doc->file, get_line(&parser->problem_mark),
                    parser->problem ? parser->problem : "unreadable",
                    parser->context ? " " : "",
                    parser->context ? parser->context : "");
}

/* Builds the tree from the parser's events until the text's end. */
static lh_status build_tree(builder *b, yaml_parser_t *parser, lh_error *err)
{
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return fail_in_parser(b->doc, parser, err);
        bool last = event.type == YAML_STREAM_END_EVENT;
        lh_status status = process_event(b, &event, err);
        yaml_event_delete(&event);
        if (status != LH_OK || last)
            return status;
    }
}

/* Rejects a text with many %TAG directives. They serve tags, which are rejected
 * anyway, and libyaml searches its list of them linearly. The text may be
 * UTF-16 and have various line ends, so every "%T" counts. */
static lh_status reject_directives(const lhi_doc *doc, const char *text,
                                   size_t len, lh_error *err)
{
    enum { MOST = 100 };
    const char *at = text, *end = text + len;
    uint32_t n = 0;
    while (n <= MOST && (at = memchr(at, '%', (size_t)(end - at))) != NULL) {
        at++;
        n += (end - at > 1 && at[0] == 'T') ||
             (end - at > 2 && at[0] == '\0' && at[1] == 'T');
    }
    return n <= MOST ? LH_OK
                     : fail_at_line(doc, 1, err,
                                    "too many directives (%TAG); remove them");
}

/* The parser's input. YAML is passed unchanged. JSON surrogate pairs are
 * converted to YAML's escapes, since YAML has no surrogate pairs. */
typedef struct input_text {
    const char *at, *end;
    bool is_json;
} input_text;

/* Checks whether a text is JSON rather than YAML: its first character that is
 * not white space is a brace. */
static bool begins_as_json(const char *text, size_t len)
{
    size_t i = 0;
    while (i < len && strchr(" \t\r\n", text[i]))
        i++;
    return i < len && text[i] == '{';
}

/* Decodes one JSON escape of a UTF-16 surrogate, such as "\ud83d", at `at` to
 * its value; returns 0 for anything else. */
static uint32_t decode_surrogate(const char *at, const char *end)
{
    uint32_t c = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return 0;
    for (int i = 2; i < 6; i++) {
        static const char digits[] = "0123456789abcdefABCDEF";
        const char *digit = at[i] ? strchr(digits, at[i]) : NULL;
        if (!digit)
            return 0;
        uint32_t value = (uint32_t)(digit - digits);
        c = c << 4 | (value < 16 ? value : value - 6);
    }
    return c;
}

/* Copies one character or escape to `out`; returns the bytes written. */
static size_t copy_character(input_text *f, char *out)
{
    uint32_t high = decode_surrogate(f->at, f->end);
    uint32_t low = high ? decode_surrogate(f->at + 6, f->end) : 0;
    if (high >= 0xd800 && high < 0xdc00 && low >= 0xdc00 && low < 0xe000) {
        char text[11];
        snprintf(
            text, sizeof text, "\\U%08x",
            (unsigned)(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)));
        memcpy(out, text, 10);
        f->at += 12;
        return 10;
    }
    size_t n = *f->at == '\\' && f->end - f->at > 1 ? 2 : 1;
    memcpy(out, f->at, n);
    f->at += n;
    return n;
}

/* Copies the next *n (at most `room`) bytes of the input into libyaml's buffer;
 * the parser's read callback. JSON surrogate pairs become YAML escapes. */
static int read_input(void *of, unsigned char *buffer, size_t room, size_t *n)
{
    enum { LONGEST = 10 };
    input_text *f = of;
    size_t left = (size_t)(f->end - f->at);
    *n = 0;
    if (!f->is_json) {
        *n = left < room ? left : room;
        memcpy(buffer, f->at, *n);
        f->at += *n;
        return 1;
    }
    while (f->at < f->end && room - *n >= LONGEST)
        *n += copy_character(f, (char *)buffer + *n);
    return 1;
}

/* Parses a YAML or JSON text into doc->root, which must be a map. */
static lh_status parse_root(lhi_doc *doc, const char *text, size_t len,
                            lh_error *err)
{
    LHI_TRY(reject_directives(doc, text, len, err));
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return lhi_fail_nomem(err);
    input_text f = {text, text + len, begins_as_json(text, len)};
    yaml_parser_set_input(&parser, read_input, &f);
    builder b = {.doc = doc};
    lhi_node_memory_init(&b.memory, doc->mem, len);
    lh_status status = build_tree(&b, &parser, err);
    yaml_parser_delete(&parser);
    if (status != LH_OK)
        return status;
    if (!doc->root)
        return lhi_fail(err, LH_EINPUT, "%s:1: the file is empty", doc->file);
    if (doc->root->kind != LHI_MAP)
        return fail_at_line(doc, doc->root->line, err,
                            "must be a map of keys and values");
    return LH_OK;
}

lh_status lhi_doc_make(size_t len, const char *name, lhi_input_kind kind,
                       lhi_doc **out, lh_error *err)
{
    LHI_TRY(lhi_input_check_size(len, name, kind, err));
    lhi_arena *mem = lhi_arena_make(0);
    lhi_doc *doc = mem ? LHI_NEW(mem, lhi_doc, 1) : NULL;
    if (!doc || !(doc->file = lhi_arena_strdup(mem, name))) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    doc->mem = mem;
    doc->keys_repeat = kind == LHI_INPUT_ARGUMENTS;
    *out = doc;
    return LH_OK;
}

lh_status lhi_doc_parse(const char *text, size_t len, const char *name,
                        lhi_input_kind kind, lhi_doc **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_make(len, name, kind, &doc, err));
    lh_status status = parse_root(doc, text, len, err);
    if (status == LH_OK)
        *out = doc;
    else
        lhi_doc_free(doc);
    return status;
}

lh_status lhi_doc_load(const char *path, lhi_input_kind kind, lhi_doc **out,
                       lh_error *err)
{
    char *text;
    size_t len;
    LHI_TRY(lhi_input_read(path, kind, &text, &len, err));
    lh_status status = lhi_doc_parse(text, len, path, kind, out, err);
    lh_text_free(text);
    return status;
}

void lhi_doc_free(lhi_doc *doc)
{
    if (doc)
        lhi_arena_free(doc->mem);
}
