/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments in a model_config.yaml, the form in which Megatron-LM's
 * functional tests give them: a map MODEL_ARGS of "--name: value". Values
 * become words as in its _run_training.sh: true is a flag, "[a b]" is several
 * words, and every other value is one word. */
#include "interop/import/megatron_internal.h"

#include <ctype.h>
#include <string.h>

static const char arguments_key[] = "MODEL_ARGS";

bool lhi_megatron_is_config(const char *text, size_t len)
{
    const char *at = text, *end = text + len;
    while (at < end && (isspace((unsigned char)*at) || *at == '#')) {
        const char *next =
            *at == '#' ? memchr(at, '\n', (size_t)(end - at)) : at + 1;
        at = next ? next : end;
    }
    const char *first = at;
    while (at < end && (isalnum((unsigned char)*at) || *at == '_'))
        at++;
    return at > first && at < end && *at == ':' &&
           (at + 1 == end || isspace((unsigned char)at[1]));
}

/* The words under construction. */
typedef struct word_list {
    lhi_arena *mem;
    lhi_command_line_word *all;
    uint32_t n;
} word_list;

/* Appends a copy of a word to the command line, with its line number and the
 * position of its first shell expansion. */
static lh_status add_word(word_list *w, const char *text, size_t len,
                          uint32_t line, lh_error *err)
{
    const char *copy = lhi_arena_strndup(w->mem, text, len);
    if (!copy)
        return lhi_fail_nomem(err);
    w->all[w->n++] = (lhi_command_line_word){
        .text = copy, .line = line, .expansion = strchr(copy, '$')};
    return LH_OK;
}

/* Splits a text at spaces and commas, and appends the parts as words, with line
 * number `line`. */
static lh_status add_split_words(word_list *w, const char *text, size_t len,
                                 uint32_t line, lh_error *err)
{
    for (const char *end = text + len; text < end;) {
        size_t n = 0;
        while (text + n < end && !strchr(" ,", text[n]))
            n++;
        if (n)
            LHI_TRY(add_word(w, text, n, line, err));
        text += n ? n : 1;
    }
    return LH_OK;
}

/* Appends the words of an argument's value: none for true, a list's entries in
 * brackets, else the value itself. */
static lh_status add_value(word_list *w, const lhi_node *node, lh_error *err)
{
    const size_t len = strlen(node->text);
    if (strcmp(node->text, "true") == 0)
        return LH_OK;
    if (len >= 2 && node->text[0] == '[' && node->text[len - 1] == ']')
        return add_split_words(w, node->text + 1, len - 2, node->line, err);
    return add_word(w, node->text, len, node->line, err);
}

/* Appends an argument's name and values as words, with its node's line.
 * LH_EINPUT: the name does not begin with --, or the value is a map. Nothing if
 * the value is empty. */
static lh_status add_argument(const lhi_doc *doc, const lhi_node *node,
                              word_list *w, lh_error *err)
{
    if (strncmp(node->key, "--", 2) != 0)
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "is not an argument of Megatron-LM; they begin "
                            "with --");
    if (node->kind == LHI_MAP)
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "must be a value or a list, not a map");
    if (node->kind == LHI_SCALAR && !node->text[0])
        return LH_OK;
    LHI_TRY(add_word(w, node->key, strlen(node->key), node->line, err));
    if (node->kind == LHI_SCALAR)
        return add_value(w, node, err);
    for (const lhi_node *n = node->first; n; n = n->next) {
        if (n->kind != LHI_SCALAR)
            return lhi_doc_fail(doc, n, err, LH_EINPUT, "must be a value");
        LHI_TRY(add_split_words(w, n->text, strlen(n->text), n->line, err));
    }
    return LH_OK;
}

/* Returns an upper limit on the number of command-line words that a map of
 * arguments becomes. */
static size_t count_most_words(const lhi_node *map)
{
    size_t n = 0;
    for (const lhi_node *node = map->first; node; node = node->next) {
        n += 2;
        if (node->kind == LHI_SCALAR)
            n += strlen(node->text) / 2;
        for (const lhi_node *item = node->first; item; item = item->next)
            n += item->kind == LHI_SCALAR ? 1 + strlen(item->text) / 2 : 0;
    }
    return n;
}

/* Records the file's keys other than MODEL_ARGS, as ignored or with a note. */
static void note_other_keys(const lhi_node *root, lhi_imported_job *in)
{
    for (const lhi_node *node = root->first; node; node = node->next) {
        if (strcmp(node->key, arguments_key) == 0)
            continue;
        if (strncmp(node->key, arguments_key, strlen(arguments_key)) == 0)
            lhi_import_note(in, "%s: is not imported, only MODEL_ARGS",
                            node->key);
        else if (strcmp(node->key, "MODE") == 0 && node->kind == LHI_SCALAR &&
                 strcmp(node->text, "pretraining") != 0)
            lhi_import_note(in, "MODE: is %s; training is modelled",
                            node->text);
        else
            lhi_import_ignore(in, node->key);
    }
}

/* Converts the map MODEL_ARGS of a model_config.yaml to a command line's
 * words. */
static lh_status read_words(const lhi_doc *doc, const char *name,
                            lhi_imported_job *in, lhi_command_line *out,
                            lh_error *err)
{
    const lhi_node *map;
    word_list w = {.mem = in->mem};
    LHI_TRY(lhi_node_require(doc, doc->root, arguments_key, &map, err));
    LHI_TRY(lhi_node_check_map(doc, map, err));
    w.all = LHI_NEW(in->mem, lhi_command_line_word, count_most_words(map));
    if (!w.all)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = map->first; node; node = node->next)
        LHI_TRY(add_argument(doc, node, &w, err));
    note_other_keys(doc->root, in);
    *out = (lhi_command_line){name, w.n, w.all};
    return LH_OK;
}

lh_status lhi_megatron_read_config(const char *text, size_t len,
                                   const char *name, lhi_imported_job *in,
                                   lhi_command_line *out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, LHI_INPUT_ARGUMENTS, &doc, err));
    lh_status status = read_words(doc, name, in, out, err);
    lhi_doc_free(doc);
    return status;
}
