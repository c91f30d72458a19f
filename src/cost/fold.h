/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs share the experts of a layer, and which hold the same ones. They
 * are the ranks of one pipeline stage, counted tensor first, then context, then
 * data, in the order in which the job lists the datacenters:
 *   block   expert x expert_tensor ranks that follow each other and hold every
 *           expert once. Those expert_tensor apart in it send tokens to each
 *           other; those next to each other share experts.
 *   copies  ranks at the same place of all blocks: they sum their gradients.
 * Blocks lie within nodes and datacenters as far as they fit; every
 * datacenter's ranks are taken to begin with a node. */
#ifndef LHI_FOLD_H
#define LHI_FOLD_H

#include "cost/all_to_all.h"

typedef struct lhi_fold {
    const lh_job *job;
    uint32_t expert, tensor; /* of the block */
    uint64_t block, ranks;
    uint64_t replica, step; /* ranks that follow each other on GPUs that do, and
                               GPUs from their first to that of the next */
    double sharing;         /* stages that use the same links */
    bool like_the_rest;     /* experts are cut as all else is: no dispatch, and
                               copies are where those of the rest are */
    uint32_t n_sites;
    lh_cost_site sites[LH_MAX_DATACENTERS];
} lhi_fold;

/* The node of its datacenter that has the stage's n-th rank there. */
uint64_t lhi_fold_node(const lhi_fold *fold, uint32_t datacenter, uint64_t rank);

/* Members on a node of `per_node` GPUs, of `count` that lie `stride` apart. */
uint64_t lhi_on_node(uint64_t count, uint64_t stride, uint32_t per_node);

/* Whether the slice's replicas are all of the layout's, in datacenters that
 * there are; and whether they can be spread evenly over so many. */
lh_status lhi_check_sites(const lh_job *job, const lh_layout *layout,
                          const lh_cost_slice *slice, lh_error *err);
lh_status lhi_check_spread(const lh_job *job, const lh_layout *layout,
                           const lh_cost_slice *slice, uint32_t datacenters,
                           lh_error *err);

/* LH_EINVAL: replicas do not add up, or datacenters do not exist.
 * LH_EUNSUPPORTED: data does not divide over as many datacenters. */
lh_status lhi_fold_of(const lh_job *job, const lh_layout *layout,
                      const lh_cost_slice *slice, lhi_fold *out, lh_error *err);

/* The i-th group, of those that may differ, of `expert` GPUs that send tokens
 * to each other and of which one at least lies in `datacenter`. False: there
 * are not as many. */
bool lhi_fold_senders(const lhi_fold *fold, uint32_t datacenter, uint32_t i,
                      lhi_members *out);
/* The groups of which the i-th block that lies in several datacenters consists:
 * `tensor` of them, alike. */
bool lhi_fold_across(const lhi_fold *fold, uint32_t i, lhi_members *out);
/* As lhi_fold_senders(), of the `tensor` GPUs that share experts. */
bool lhi_fold_sharers(const lhi_fold *fold, uint32_t datacenter, uint32_t i,
                      lhi_members *out);

/* Whether they all lie on one node, wherever the replicas are. */
bool lhi_fold_sharers_near(const lhi_fold *fold, uint32_t datacenter);

/* GPUs that hold the same experts: the i-th kind of such groups. */
typedef struct lhi_copies {
    uint64_t n;                             /* as many alike; 0: none */
    lh_cost_group group;                    /* its sites are these: */
    lh_cost_site sites[LH_MAX_DATACENTERS]; /* members in place of replicas */
} lhi_copies;

/* False: there are no more kinds. `out` must stay where it is. */
bool lhi_fold_copies(const lhi_fold *fold, uint32_t i, lhi_copies *out);
/* Members of such a group in one of its datacenters. */
void lhi_fold_copies_at(const lhi_fold *fold, const lh_cost_site *site,
                        lh_cost_group *out);

/* As lh_cost_group_of() for what has to do with experts. */
lh_status lhi_fold_group(const lhi_fold *fold, lh_cost_dimension dimension,
                         const lh_cost_slice *slice, lh_cost_group *out,
                         lh_error *err);

#endif
