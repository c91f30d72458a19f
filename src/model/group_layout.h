/* SPDX-License-Identifier: Apache-2.0 */
/* The process-group layout of expert parallelism: the GPUs that share a layer's
 * experts, and those that hold the same experts. They are one
 * pipeline stage's ranks, counted tensor first, then context, then data, in the
 * job's order of datacenters:
 *
 *     block   expert x expert_tensor consecutive ranks that together hold every
 *             expert once. Ranks expert_tensor apart exchange tokens; adjacent
 *             ranks share experts.
 *     copies  ranks at the same position of all blocks: they sum their
 * gradients.
 *
 * The layer range's runs place these ranks on nodes (stage_nodes.h). */
#ifndef LHI_MODEL_GROUP_LAYOUT_H
#define LHI_MODEL_GROUP_LAYOUT_H

#include "model/all_to_all.h"
#include "model/stage_nodes.h"

/* One pipeline stage's process-group layout. */
typedef struct lhi_group_layout {
    const lh_job *job;
    uint32_t expert, tensor; /* of the block */
    uint64_t block, ranks;
    uint64_t replica;        /* a replica's ranks */
    const lh_layout *layout; /* for the ranks' nodes, with the next two */
    uint32_t n_runs;         /* of the layer range */
    const lh_cost_run *runs;
    double sharing;            /* stages that use the same links */
    bool matches_dense_layers; /* experts are partitioned like all other layers:
                                * no dispatch, and the same replica groups */
    uint32_t n_sites;
    lh_cost_site sites[LH_MAX_DATACENTERS];
} lhi_group_layout;

/* Returns the node (numbered within its datacenter) of the stage's rank number
 * `rank` in that datacenter. */
uint64_t lhi_group_layout_find_node(const lhi_group_layout *groups,
                                    uint32_t datacenter, uint64_t rank);

/* Checks that the layer range's replicas add up to the layout's and that their
 * datacenters exist. */
lh_status lhi_check_replica_sites(const lh_job *job, const lh_layout *layout,
                                  const lh_cost_layer_range *slice,
                                  lh_error *err);
/* Checks that the replicas can be divided evenly over `datacenters`
 * datacenters. */
lh_status lhi_check_even_spread(const lh_job *job, const lh_layout *layout,
                                const lh_cost_layer_range *slice,
                                uint32_t datacenters, lh_error *err);

/* Computes the process-group layout of experts for one pipeline stage.
 * LH_EINVAL: replicas do not add up, or datacenters do not exist.
 * LH_EUNSUPPORTED: `data` is not divisible by the datacenter count. */
lh_status lhi_group_layout_build(const lh_job *job, const lh_layout *layout,
                                 const lh_cost_layer_range *slice,
                                 lhi_group_layout *out, lh_error *err);

/* Finds the i-th distinct group of `expert` GPUs that exchange tokens, with at
 * least one in `datacenter`, into *out. Returns false if there are no more. */
bool lhi_group_layout_find_dispatch_group(const lhi_group_layout *groups,
                                          uint32_t datacenter, uint32_t i,
                                          lhi_group_members *out);
/* Finds the groups of GPUs that exchange tokens within the i-th expert block
 * that spans several datacenters; its `tensor` groups are equal. Returns false
 * if there are no more. */
bool lhi_group_layout_find_spanning_group(const lhi_group_layout *groups,
                                          uint32_t i, lhi_group_members *out);
/* Finds the i-th distinct group of `tensor` GPUs that share the same experts,
 * with at least one in `datacenter`. Returns false if there are no more. */
bool lhi_group_layout_find_sharing_group(const lhi_group_layout *groups,
                                         uint32_t datacenter, uint32_t i,
                                         lhi_group_members *out);

/* Checks whether each group of `tensor` GPUs that hold slices of the same
 * experts is on one node of `datacenter`, wherever the replicas are placed. */
bool lhi_group_layout_sharing_is_intra_node(const lhi_group_layout *groups,
                                            uint32_t datacenter);

/* The i-th kind of group whose GPUs hold the same experts. */
typedef struct lhi_expert_replicas {
    uint64_t n;          /* equal groups; 0: none */
    uint64_t start;      /* position in a block of the first */
    lh_cost_group group; /* refers to `sites` below */
    lh_cost_site sites[LH_MAX_DATACENTERS]; /* counts members, not replicas */
} lhi_expert_replicas;

/* Finds the i-th kind of expert replica groups. A group consists of all GPUs
 * with the same experts; groups of one kind have equally many GPUs in each
 * datacenter. Returns false if there are no more kinds. `out` must not be
 * moved, because it points into itself. */
bool lhi_group_layout_find_replicas(const lhi_group_layout *groups, uint32_t i,
                                    lhi_expert_replicas *out);
/* Computes the members, in datacenter `site`, of the expert replica groups of a
 * kind: ranks that hold the same experts. *out has their number and their worst
 * spread over nodes. */
void lhi_group_layout_find_site_replicas(const lhi_group_layout *groups,
                                         const lhi_expert_replicas *kind,
                                         const lh_cost_site *site,
                                         lh_cost_group *out);

/* Finds a process group of the experts as lhi_cost_find_group() does, from
 * `groups`, the layout of these groups on ranks and nodes. */
lh_status lhi_group_layout_compute_group(const lhi_group_layout *groups,
                                         lh_cost_dimension dimension,
                                         const lh_cost_layer_range *slice,
                                         lh_cost_group *out, lh_error *err);

#endif
