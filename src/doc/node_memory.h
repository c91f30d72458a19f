/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a document's nodes while it is parsed: nodes in rows, texts packed,
 * short texts that were there before not stored again, all within a limit. */
#ifndef LHI_NODE_MEMORY_H
#define LHI_NODE_MEMORY_H

#include "doc/doc.h"

enum { LHI_KNOWN_TEXTS = 512 };

typedef struct lhi_node_memory {
    lhi_arena *mem;
    size_t most_bytes; /* of the arena */
    bool is_full;      /* what was asked for last would have gone beyond */
    lhi_node *nodes;   /* room for n_nodes */
    uint32_t n_nodes;
    char *texts; /* room for n_texts bytes */
    size_t n_texts;
    const char *known[LHI_KNOWN_TEXTS]; /* by a hash; the last of each */
} lhi_node_memory;

/* For a text of `len` bytes; zeroed except for what it is given. */
void lhi_node_memory_init(lhi_node_memory *m, lhi_arena *mem, size_t len);

/* Zeroed; NULL: `is_full`, or there is no memory. */
lhi_node *lhi_node_new(lhi_node_memory *m);
/* Zeroed, for what begins with a node; NULL as above. */
void *lhi_node_bytes(lhi_node_memory *m, size_t size);
/* A copy, shared with others that are the same; NULL as above. */
const char *lhi_node_text(lhi_node_memory *m, const char *text, size_t len);

#endif
