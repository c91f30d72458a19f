/* SPDX-License-Identifier: Apache-2.0 */
#include "interop/import/config_keys.h"

#include <stdio.h>
#include <string.h>

/* Limits: bytes of a key; number of notes. */
enum { MOST_KEY = 200, MOST_NOTES = 40 };

/* Keys with the same note, separated by commas. */
typedef struct key_note {
    const char *why;
    lhi_text keys;
} key_note;

/* The walker's state. */
typedef struct walker {
    const lhi_doc *doc;
    const lhi_config_rule *rules;
    size_t n_rules;
    lhi_config_visit_fn *visit;
    void *context;
    lhi_imported_job *in;
    lhi_text unknown;
    const char *section; /* ignored section of the last key; may be NULL */
    key_note notes[MOST_NOTES];
    uint32_t n_notes;
} walker;

/* Returns the first rule (treatment of one key, or of all keys in a section)
 * that matches the key, or NULL. */
static const lhi_config_rule *find_rule(const walker *w, const char *key)
{
    for (size_t i = 0; i < w->n_rules; i++) {
        const char *pattern = w->rules[i].key;
        const size_t len = strlen(pattern);
        if (pattern[len - 1] == '.' ? strncmp(pattern, key, len) == 0
                                    : strcmp(pattern, key) == 0)
            return &w->rules[i];
    }
    return NULL;
}

/* Checks whether any rule is for a key in the section `key`, so that an empty
 * section is not an unknown key. */
static bool is_section(const walker *w, const char *key)
{
    const size_t len = strlen(key);
    for (size_t i = 0; i < w->n_rules; i++)
        if (strncmp(w->rules[i].key, key, len) == 0 &&
            w->rules[i].key[len] == '.')
            return true;
    return false;
}

/* Appends a key to a list of keys, after a comma unless it is the first. */
static void add_key(lhi_text *list, const char *key)
{
    lhi_text_printf(list, "%s%s", list->len ? ", " : "", key);
}

/* Adds a key to the note with the text `why`: keys with the same text share one
 * note, printed at the end. */
static void add_note(walker *w, const char *key, const char *why)
{
    uint32_t i = 0;
    while (i < w->n_notes && w->notes[i].why != why)
        i++;
    if (i == MOST_NOTES) {
        lhi_import_note(w->in, "%s: %s", key, why);
        return;
    }
    if (i == w->n_notes)
        w->notes[w->n_notes++] = (key_note){.why = why};
    add_key(&w->notes[i].keys, key);
}

/* Records the key as ignored in the imported job; if `rule` is for a whole
 * section, records the section instead, once. */
static void ignore(walker *w, const lhi_config_rule *rule, const char *key)
{
    char name[MOST_KEY];
    const size_t len = strlen(rule->key);
    if (rule->key[len - 1] != '.') {
        lhi_import_ignore(w->in, key);
        return;
    }
    if (w->section == rule->key)
        return;
    w->section = rule->key;
    snprintf(name, sizeof name, "%.*s", (int)(len - 1), rule->key);
    lhi_import_ignore(w->in, name);
}

/* Treats a key whose value is a scalar, a list or an empty map by its rule:
 * reads it, ignores it, or collects a note. Treats a null, or an empty section,
 * as absent. LH_EUNSUPPORTED: the rule rejects the key. */
static lh_status read_leaf(walker *w, const lhi_node *node, const char *key,
                           lh_error *err)
{
    const lhi_config_rule *rule = find_rule(w, key);
    bool known = true;
    if (lhi_node_is_null(node) || (node->kind == LHI_MAP && is_section(w, key)))
        return LH_OK;
    if (!rule || rule->treatment == LHI_CONFIG_READ) {
        LHI_TRY(w->visit(w->context, w->doc, node, key, &known, err));
        if (!known)
            add_key(&w->unknown, key);
        return LH_OK;
    }
    if (rule->treatment == LHI_CONFIG_IGNORED ||
        (rule->neutral && node->kind == LHI_SCALAR &&
         lhi_is_same_word(node->text, rule->neutral)))
        ignore(w, rule, key);
    else if (rule->treatment == LHI_CONFIG_NOTED)
        add_note(w, key, rule->why);
    else
        return lhi_doc_fail(w->doc, node, err, LH_EUNSUPPORTED, "%s",
                            rule->why);
    return LH_OK;
}

/* Treats each key of a map by its rule (read, ignore, note or reject),
 * recursively; `before` is the map's path, a prefix of its keys. */
static lh_status read_map(walker *w, const lhi_node *map, const char *before,
                          lh_error *err)
{
    char key[MOST_KEY];
    for (const lhi_node *n = map->first; n; n = n->next) {
        snprintf(key, sizeof key, "%s%s%s", before, *before ? "." : "", n->key);
        if (n->kind == LHI_MAP && n->first)
            LHI_TRY(read_map(w, n, key, err));
        else
            LHI_TRY(read_leaf(w, n, key, err));
    }
    return LH_OK;
}

/* Records the collected notes in the imported job, and one that lists the keys
 * unknown to longhaul, which names `program`. */
static void write_notes(walker *w, const char *program)
{
    for (uint32_t i = 0; i < w->n_notes; i++)
        if (w->notes[i].keys.failed)
            w->in->noted.failed = true;
        else
            lhi_import_note(w->in, "%s: %s", w->notes[i].keys.data,
                            w->notes[i].why);
    if (w->unknown.failed)
        w->in->noted.failed = true;
    else if (w->unknown.len)
        lhi_import_note(w->in,
                        "not among %s's keys, taken as without effect on time "
                        "and memory: %s",
                        program, w->unknown.data);
}

lh_status lhi_config_walk(const lhi_doc *doc, const lhi_config_rule *rules,
                          size_t n_rules, const char *program,
                          lhi_config_visit_fn *visit, void *context,
                          lhi_imported_job *in, lh_error *err)
{
    walker *w = LHI_NEW(in->mem, walker, 1);
    if (!w)
        return lhi_fail_nomem(err);
    *w = (walker){.doc = doc,
                  .rules = rules,
                  .n_rules = n_rules,
                  .visit = visit,
                  .context = context,
                  .in = in};
    lh_status status = read_map(w, doc->root, "", err);
    if (status == LH_OK)
        write_notes(w, program);
    for (uint32_t i = 0; i < w->n_notes; i++)
        lhi_text_fini(&w->notes[i].keys);
    lhi_text_fini(&w->unknown);
    return status;
}

const lhi_node *lhi_config_find(const lhi_node *map, const char *key)
{
    char part[MOST_KEY];
    const lhi_node *node = map;
    while (node && *key) {
        const size_t len = strcspn(key, ".");
        snprintf(part, sizeof part, "%.*s", (int)len, key);
        node = node->kind == LHI_MAP ? lhi_node_find(node, part) : NULL;
        key += len + (key[len] == '.');
    }
    return node && !lhi_node_is_null(node) ? node : NULL;
}
