/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface between branch_and_bound.c and proven_bound.c. */
#ifndef LHI_PLANNER_SEARCH_BRANCH_AND_BOUND_INTERNAL_H
#define LHI_PLANNER_SEARCH_BRANCH_AND_BOUND_INTERNAL_H

#include "planner/search/candidate.h"
#include "planner/search/search_budget.h"

#include "base/heap.h"

enum { LHI_MAX_BATCH = 256 }; /* nodes of a batch */

/* A node of the search tree. */
typedef struct lhi_search_node {
    lhi_config config;
    lhi_lower_bound floor;
    lhi_level level;
    bool done;
    uint64_t n_layouts; /* below this node */
    int64_t bound;      /* in the objective's unit */
    bool refused;       /* nothing below works */
} lhi_search_node;

/* Work items of one batch. */
typedef struct lhi_search_batch {
    uint32_t n_taken; /* nodes */
    lhi_search_node *children;
    uint32_t n_children, room;
    uint32_t built[LHI_MAX_BATCH], n_built; /* candidates: bounds to compute */
    uint32_t quick_evaluations[LHI_MAX_BATCH], n_quick_evaluations;
} lhi_search_batch;

/* Branch and bound state. */
typedef struct lhi_branch_and_bound {
    lhi_layout_search *s;
    lhi_space space;
    double ratio;
    lhi_bound_inputs **floors; /* per thread */
    lhi_search_batch batch;
    uint64_t n_taken; /* nodes, all batches */
    lhi_heap open;    /* nodes, by bound */
    lhi_heap built;   /* candidates, by bound */
    lhi_search_node *nodes;
    uint32_t n_nodes, room;
    uint32_t *unused; /* free node list */
    uint32_t n_unused;
    lhi_search_limits limits;
    uint64_t seq, work;
    int64_t least_partition_bound; /* least bound over all partitions of built
                                    * layouts */
    /* A later search tries plans whose datacenters have different values; the
     * proven bound covers them, even if a stopped search continues as a quick
     * one. */
    bool covers_differing;
    uint64_t n_open; /* layouts below open nodes */
    /* built: in total, since the last simulation */
    uint32_t n_built, since_try;
    /* State while a node is expanded: */
    lhi_level level; /* level of its children */
    int64_t least_bound;
    int64_t least_child; /* an index of `nodes`; negative: none is useful */
} lhi_branch_and_bound;

/* Records that no plan for a pruned layout is faster than `ns`. Always lowers
 * the pruned layouts' least bound, and adds the bound to s->unexplored, if any,
 * for the values that `config` decides on `level` (depth in the search
 * tree). */
lh_status lhi_layout_search_drop(lhi_layout_search *s, lhi_level level,
                                 const lhi_config *config, int64_t ns,
                                 lh_error *err);

/* Counts the layouts below a node as pruned by its bound and records that
 * bound. `e`: the node's queue entry in the search tree; ignored if the node
 * was expanded. */
lh_status lhi_branch_and_bound_count_pruned(lhi_branch_and_bound *b,
                                            const lhi_event *e, lh_error *err);

/* Computes the proven bound: the iteration time that no layout, explored or
 * not, can beat. */
lh_status lhi_branch_and_bound_compute_proven(lhi_branch_and_bound *b,
                                              lh_error *err);

#endif
