/* SPDX-License-Identifier: Apache-2.0 */
/* A job's layout search space, as a tree: each level decides more values;
 * undecided values are 0. */
#ifndef LHI_PLANNER_LAYOUT_SPACE_H
#define LHI_PLANNER_LAYOUT_SPACE_H

#include "planner/layout/site_search.h"

/* Larger numbers only if the job fixes micro_batch. */
#define LHI_MOST_MICROBATCHES 4096

/* Values that a configuration has decided. */
typedef enum lhi_level {
    LHI_LEVEL_NONE,
    LHI_LEVEL_GROUP,    /* tensor, context, expert, micro_batch */
    LHI_LEVEL_WORK,     /* and recomputation */
    LHI_LEVEL_DEGREES,  /* and pipeline, data, microbatches */
    LHI_LEVEL_PLACED,   /* and the placement */
    LHI_LEVEL_STATE,    /* and ZeRO stage and sharding */
    LHI_LEVEL_COMPLETE, /* and the chunks */
} lhi_level;

/* Checks whether the ZeRO stage makes a difference for a layout: weights or
 * experts have replicas, or the target framework's plans depend on the stage.
 */
bool lhi_zero_matters(const lh_job *job, const lh_layout *layout);

/* Checks whether the kind of sharding (full or hybrid) makes a difference for a
 * configuration: replicas in several datacenters share state. */
bool lhi_sharding_matters(const lh_job *job, const lhi_config *config);

/* Checks whether a placed layout depends on which parallelism is outermost.
 * With several datacenters, the outermost one crosses them. With one, it orders
 * the ranks, which matters only if pipeline ranks of several replicas share
 * nodes. */
bool lhi_outermost_matters(const lh_job *job, const lh_layout *layout);

/* Checks whether a layout on several datacenters depends on the order of the
 * ranks inside a datacenter: several stages of several replicas in one of them
 * need more than a node, and share nodes. */
bool lhi_rank_order_matters(const lh_job *job, const lh_layout *layout);

/* Checks whether the layout fits with aligned packing and is then on other GPUs
 * than with dense packing. */
bool lhi_packing_matters(const lh_job *job, const lh_layout *layout);

/* Why job->target rejects a configuration, and the level it had decided. */
typedef struct lhi_space_refusal {
    lhi_level level; /* LHI_LEVEL_NONE: none */
    lh_error why;
} lhi_space_refusal;

/* One job's search space. */
typedef struct lhi_space {
    const lh_job *job;
    uint32_t node;  /* GPUs in the smallest node */
    uint32_t *data; /* divisors of the batch, largest first */
    uint32_t n_data;
    lhi_sites_store *places;
    /* receives the first refusal of the highest level in lhi_space_children();
     * NULL: not required */
    lhi_space_refusal *refused;
} lhi_space;

/* Initialises a job's layout search space; placements are in `mem`.
 * Release with lhi_space_fini(). */
lh_status lhi_space_init(const lh_job *job, lhi_arena *mem, lhi_space *out,
                         lh_error *err);
/* Frees the search space's lists. */
void lhi_space_fini(lhi_space *space);

/* Checks whether the search tries a tensor degree that the job leaves open. The
 * degree must divide the attention heads and either a node's GPUs or, for small
 * nodes, be a multiple of them. */
bool lhi_space_tensor(const lhi_space *space, uint32_t tensor);
/* Checks whether the search tries a context degree that the job leaves open:
 * each GPU must keep enough tokens of a sequence. */
bool lhi_space_context(const lhi_space *space, uint32_t context);
/* Checks whether the search tries microbatch size `size` if the job leaves it
 * open: a power of two up to a fixed limit. */
bool lhi_space_micro_batch(uint32_t size);
/* Checks whether the search tries a number of chunks per device that the job
 * leaves open: one that the space's table of chunk placements has. */
bool lhi_space_chunks(uint32_t chunks);

/* Receives one configuration that has decided one level more; *dropped counts
 * those rejected for too many microbatches. */
typedef lh_status lhi_space_visit(void *context, const lhi_config *config,
                                  lh_error *err);
/* Visits a configuration's children in the search tree: each decides the
 * level's values after `level`. *dropped counts the children rejected for too
 * many microbatches. */
lh_status lhi_space_children(const lhi_space *space, lhi_level level,
                             const lhi_config *config, uint64_t *dropped,
                             lhi_space_visit *visit, void *context,
                             lh_error *err);

/* Counts the complete configurations below `config`, a node on `level` of the
 * search tree. While placements are open, only the default placements count. */
uint64_t lhi_space_count(const lhi_space *space, lhi_level level,
                         const lhi_config *config);

#endif
