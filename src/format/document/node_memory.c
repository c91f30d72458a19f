/* SPDX-License-Identifier: Apache-2.0 */
#include "format/document/node_memory.h"

#include <string.h>

enum {
    NODES_AT_ONCE = 64,
    TEXTS_AT_ONCE = 8192,
    SHORT_TEXT = 32, /* longer texts are not deduplicated */
};

void lhi_node_memory_init(lhi_node_memory *m, lhi_arena *mem, size_t len)
{
    m->mem = mem;
    m->max_bytes = 7 * len + ((size_t)8 << 20);
}

/* Allocates n x size zeroed bytes within the memory budget. NULL if allocation
 * fails or the budget is exhausted, which sets m->is_full. */
static void *alloc_within_limit(lhi_node_memory *m, size_t n, size_t size)
{
    size_t used = lhi_arena_used(m->mem);
    m->is_full = used > m->max_bytes || n * size > m->max_bytes - used;
    return m->is_full ? NULL : lhi_arena_alloc(m->mem, n, size);
}

void *lhi_node_alloc_bytes(lhi_node_memory *m, size_t size)
{
    return alloc_within_limit(m, 1, size);
}

lhi_node *lhi_node_new(lhi_node_memory *m)
{
    if (m->n_nodes == 0) {
        lhi_node *row = alloc_within_limit(m, NODES_AT_ONCE, sizeof *row);
        if (!row)
            return NULL;
        m->nodes = row;
        m->n_nodes = NODES_AT_ONCE;
    }
    m->n_nodes--;
    return m->nodes++;
}

/* Allocates `bytes` bytes for a text within the memory budget; short texts
 * share a block. NULL if allocation fails or the budget is exhausted, which
 * sets m->is_full. */
static char *alloc_text(lhi_node_memory *m, size_t bytes)
{
    if (bytes > TEXTS_AT_ONCE / 8)
        return alloc_within_limit(m, bytes, 1);
    if (bytes > m->n_texts) {
        char *row = alloc_within_limit(m, TEXTS_AT_ONCE, 1);
        if (!row)
            return NULL;
        m->texts = row;
        m->n_texts = TEXTS_AT_ONCE;
    }
    char *text = m->texts;
    m->texts += bytes;
    m->n_texts -= bytes;
    return text;
}

/* Returns a short text's slot in the hash table of the texts copied so far
 * (FNV-1a). */
static uint32_t hash_text(const char *text, size_t len)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619u;
    return (h ^ h >> 16) % LHI_KNOWN_TEXTS;
}

const char *lhi_node_copy_text(lhi_node_memory *m, const char *text, size_t len)
{
    bool is_short = len < SHORT_TEXT;
    uint32_t at = is_short ? hash_text(text, len) : 0;
    const char *known = is_short ? m->known[at] : NULL;
    if (known && strncmp(known, text, len) == 0 && known[len] == '\0')
        return known;
    char *copy = alloc_text(m, len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (is_short)
        m->known[at] = copy;
    return copy;
}
