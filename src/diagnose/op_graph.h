/* SPDX-License-Identifier: Apache-2.0 */
/* A step as it is played again: operations in an order in which each comes
 * after all that it waits for. Steps that are alike share one. */
#ifndef LHI_OP_GRAPH_H
#define LHI_OP_GRAPH_H

#include "diagnose/step_needs.h"

typedef struct lhi_op_graph {
    uint32_t n_ops, n_groups;
    uint32_t n_stages, n_replicas, n_chunks, n_microbatches;
    uint32_t *replicas; /* their numbers in the recording */
    /* Those of group g begin together: first[g] .. first[g + 1] - 1. */
    uint32_t *first;
    /* Operations + 1; 0: no more. */
    uint32_t (*needs)[LHI_MOST_NEEDS];
    uint32_t *worker;     /* replica * n_stages + stage */
    uint32_t *microbatch; /* of passes */
    uint16_t *chunk;
    uint8_t *op;
    uint64_t hash;
} lhi_op_graph;

/* Into *out the graph, into *ns what each operation takes by itself: its
 * duration, of one that begins together with others its end less the last of
 * their begins. Release with lhi_op_graph_free() and free().
 * *out NULL: operations wait for each other. */
lh_status lhi_op_graph_make(const lhi_step_needs *needs, lhi_arena *arena,
                            lhi_op_graph **out, int64_t **ns, lh_error *err);
/* The worker that sent what operation i of a group, a receive, receives: with
 * its send it is all of the group. */
static inline uint32_t lhi_sender(const lhi_op_graph *graph, uint32_t group,
                                  uint32_t i)
{
    uint32_t first = graph->first[group];
    return graph->worker[i == first ? first + 1 : first];
}

bool lhi_op_graph_same(const lhi_op_graph *a, const lhi_op_graph *b);
void lhi_op_graph_free(lhi_op_graph *graph); /* NULL is fine */

#endif
