/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for a document's nodes during parsing: nodes allocated in arrays,
 * texts packed, short texts deduplicated, all within a limit. */
#ifndef LHI_FORMAT_DOCUMENT_NODE_MEMORY_H
#define LHI_FORMAT_DOCUMENT_NODE_MEMORY_H

#include "format/document/tree.h"

/* Slots of the known-text table. */
enum { LHI_KNOWN_TEXTS = 512 };

/* Unused memory, the limit, and the known-text table. */
typedef struct lhi_node_memory {
    lhi_arena *mem;
    size_t max_bytes; /* limit for the arena */
    bool is_full;     /* the last request exceeded the limit */
    lhi_node *nodes;  /* n_nodes unused nodes */
    uint32_t n_nodes;
    char *texts; /* n_texts unused bytes */
    size_t n_texts;
    const char *known[LHI_KNOWN_TEXTS]; /* by hash; the latest of each */
} lhi_node_memory;

/* Sets the memory budget for the nodes of a text of `len` bytes; `m` must be
 * zeroed. A document may use 8 times its text plus 16 MiB, including the text
 * itself and parser and reader memory. */
void lhi_node_memory_init(lhi_node_memory *m, lhi_arena *mem, size_t len);

/* Allocates a zeroed node; returns NULL if the budget is exhausted (m->is_full)
 * or if allocation fails. */
lhi_node *lhi_node_new(lhi_node_memory *m);
/* Allocates `size` zeroed bytes for a struct that begins with a node; NULL if
 * the budget is exhausted (m->is_full) or if allocation fails. */
void *lhi_node_alloc_bytes(lhi_node_memory *m, size_t size);
/* Copies a text into the document's memory; equal short texts share a copy.
 * NULL if allocation fails or the memory budget is exhausted, which sets
 * m->is_full. */
const char *lhi_node_copy_text(lhi_node_memory *m, const char *text,
                               size_t len);

#endif
