/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes on which a pipeline stage's ranks lie in one datacenter, and those
 * of its process groups. Ranks are counted tensor first, then context, then
 * data. */
#ifndef LHI_MODEL_STAGE_NODES_H
#define LHI_MODEL_STAGE_NODES_H

#include <longhaul/experimental/cost.h>

/* A stage's ranks in one datacenter. */
typedef struct lhi_stage_nodes {
    uint32_t per_node; /* GPUs */
    uint64_t replica;  /* a replica's ranks, on consecutive GPUs */
    uint32_t n_runs;
    const lh_cost_run *runs; /* NULL: the next one */
    lh_cost_run aligned;
} lhi_stage_nodes;

/* Finds the GPUs of a layer range's stage in `datacenter`: its runs (equally
 * spaced replicas). Without a list of runs, `replicas` replicas begin at the
 * datacenter's first GPU. */
void lhi_stage_nodes_find(const lh_job *job, const lh_layout *layout,
                          const lh_cost_layer_range *slice, uint32_t datacenter,
                          uint32_t replicas, lhi_stage_nodes *out);

/* Returns the number of the stage's ranks in run number `run` (equally spaced
 * replicas). */
uint64_t lhi_stage_nodes_count_ranks(const lhi_stage_nodes *s, uint32_t run);
/* Returns the node of the stage's rank `rank` in the datacenter. */
uint64_t lhi_stage_nodes_find_node(const lhi_stage_nodes *s, uint64_t rank);

/* A group's nodes; of several groups, the worst of both. */
typedef struct lhi_node_count {
    uint64_t nodes;  /* with members; the most of all groups */
    uint64_t fewest; /* members on the node with the fewest, of all groups */
} lhi_node_count;

/* Counts the nodes of a group of `count` ranks: first, first + step, and so
 * on. Also finds the fewest members on one of these nodes. */
lhi_node_count lhi_stage_nodes_count(const lhi_stage_nodes *s, uint64_t first,
                                     uint64_t step, uint64_t count);
/* Merges node count `other` of a further group into *worst: the larger number
 * of nodes, the smaller number of members on a node. */
void lhi_node_count_add(lhi_node_count *worst, lhi_node_count other);

/* Checks whether every run of `size` ranks, counted from 0, lies on one node
 * for all stages that share these nodes. */
bool lhi_stage_nodes_are_aligned(const lhi_stage_nodes *s, uint64_t size);
/* Returns the number of ranks after which the positions on nodes of the ranks
 * in run number `run` (equally spaced replicas) repeat. */
uint64_t lhi_stage_nodes_find_period(const lhi_stage_nodes *s, uint32_t run);

/* Counts the nodes of the tensor-parallel groups (`tensor` consecutive ranks);
 * of all groups the most nodes and the fewest members on one. */
lhi_node_count lhi_stage_nodes_count_tensor(const lhi_stage_nodes *s,
                                            uint32_t tensor);
/* Counts the nodes of the context-parallel groups (ranks of a replica, `tensor`
 * apart); of all groups the most nodes and the fewest members on one. */
lhi_node_count lhi_stage_nodes_count_context(const lhi_stage_nodes *s,
                                             uint32_t tensor);
/* Counts the nodes of the data-parallel groups (all ranks of a stage `tensor`
 * apart); of all groups the most nodes and the fewest members on one. */
lhi_node_count lhi_stage_nodes_count_data(const lhi_stage_nodes *s,
                                          uint32_t tensor);

#endif
