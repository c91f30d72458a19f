/* SPDX-License-Identifier: Apache-2.0 */
/* Changes values of a parsed document. */
#include "format/document/tree.h"

#include <stdlib.h>
#include <string.h>

/* Returns the node without `const`, so that the caller can change it; the
 * document owns it. */
static lhi_node *get_mutable(const lhi_node *node)
{
    return (lhi_node *)node;
}

/* Appends an empty scalar with the key key[0..len-1] to a map; NULL on
 * allocation failure. */
static lhi_node *append_key(lhi_doc *doc, lhi_node *map, const char *key,
                            size_t len)
{
    lhi_node *node = LHI_NEW(doc->mem, lhi_node, 1);
    char *name = LHI_NEW(doc->mem, char, len + 1);
    if (!node || !name)
        return NULL;
    memcpy(name, key, len);
    *node = (lhi_node){.key = name,
                       .text = "",
                       .parent = map,
                       .line = map->line,
                       .index = map->n_items,
                       .kind = LHI_SCALAR};
    const lhi_node *last = map->first;
    while (last && last->next)
        last = last->next;
    if (last)
        get_mutable(last)->next = node;
    else
        map->first = node;
    map->n_items++;
    return node;
}

/* Returns the value of the key key[0..len-1] of a map, or NULL. */
static lhi_node *find_key(lhi_node *map, const char *key, size_t len)
{
    for (const lhi_node *n = map->first; n; n = n->next)
        if (strlen(n->key) == len && memcmp(n->key, key, len) == 0)
            return get_mutable(n);
    return NULL;
}

lh_status lhi_node_set_value(lhi_doc *doc, const lhi_node *node,
                             const char *path, const char *text, lh_error *err)
{
    lhi_node *map = get_mutable(node);
    size_t len = strcspn(path, ".");
    if (map->kind == LHI_LIST && *path >= '0' && *path <= '9' &&
        path[len] == '.') {
        const lhi_node *item = map->first;
        for (unsigned long i = strtoul(path, NULL, 10); item && i > 0; i--)
            item = item->next;
        if (!item)
            return lhi_doc_fail(doc, map, err, LH_EINPUT,
                                "has no entry number '%.60s'", path);
        return lhi_node_set_value(doc, item, path + len + 1, text, err);
    }
    if (map->kind == LHI_LIST) {
        for (const lhi_node *item = map->first; item; item = item->next)
            LHI_TRY(lhi_node_set_value(doc, item, path, text, err));
        return LH_OK;
    }
    if (map->kind == LHI_SCALAR && (lhi_node_is_null(map) || !*map->text))
        *map = (lhi_node){.key = map->key,
                          .parent = map->parent,
                          .next = map->next,
                          .line = map->line,
                          .index = map->index,
                          .kind = LHI_MAP};
    if (map->kind != LHI_MAP) {
        char shown[61];
        lhi_doc_sanitise_text(map->text, shown, sizeof shown);
        return lhi_doc_fail(doc, map, err, LH_EINPUT,
                            "has no key '%.60s', because its value is '%s'; "
                            "write a map in its place",
                            path, shown);
    }
    lhi_node *value = find_key(map, path, len);
    if (!value)
        value = append_key(doc, map, path, len);
    if (!value)
        return lhi_fail_nomem(err);
    if (path[len] == '.')
        return lhi_node_set_value(doc, value, path + len + 1, text, err);
    value->kind = LHI_SCALAR;
    value->quoted = false;
    value->first = NULL;
    value->n_items = 0;
    value->text = lhi_arena_strdup(doc->mem, text);
    return value->text ? LH_OK : lhi_fail_nomem(err);
}
