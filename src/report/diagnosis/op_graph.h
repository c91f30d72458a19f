/* SPDX-License-Identifier: Apache-2.0 */
/* A step's dependency graph for replay: operations in topological order.
 * Equivalent steps share one graph. */
#ifndef LHI_REPORT_DIAGNOSIS_OP_GRAPH_H
#define LHI_REPORT_DIAGNOSIS_OP_GRAPH_H

#include "report/diagnosis/step_dependencies.h"

/* A step's operations in topological order with their dependencies. */
typedef struct lhi_op_graph {
    uint32_t n_ops, n_groups;
    uint32_t n_stages, n_replicas, n_chunks, n_microbatches;
    uint32_t *replicas; /* replica numbers in the recording */
    /* Operations first[g] .. first[g + 1] - 1 form group g and start together.
     */
    uint32_t *first;
    /* Dependencies as operation + 1; 0 ends the list. */
    uint32_t (*dependencies)[LHI_MAX_DEPENDENCIES];
    uint32_t *worker;     /* replica * n_stages + stage */
    uint32_t *microbatch; /* for passes */
    uint16_t *chunk;
    uint8_t *op;
    uint64_t hash;
} lhi_op_graph;

/* Builds a step's operation graph into *out, and each operation's replay
 * duration into *ns: its recorded duration, or for an operation in a group its
 * end minus the latest start in the group. Release with lhi_op_graph_free()
 * and free().
 *
 * *out is NULL if the dependencies have a cycle. */
lh_status lhi_op_graph_make(const lhi_step_dependencies *needs,
                            lhi_arena *arena, lhi_op_graph **out, int64_t **ns,
                            lh_error *err);
/* Returns the worker that sent the message which operation `i`, a receive,
 * receives. The group consists of this receive and its send. */
static inline uint32_t lhi_op_graph_sender(const lhi_op_graph *graph,
                                           uint32_t group, uint32_t i)
{
    uint32_t first = graph->first[group];
    return graph->worker[i == first ? first + 1 : first];
}

/* Checks whether two graphs of a step's operations are equal. */
bool lhi_op_graph_equals(const lhi_op_graph *a, const lhi_op_graph *b);
/* Frees a step's operation graph; accepts NULL. */
void lhi_op_graph_free(lhi_op_graph *graph);

#endif
