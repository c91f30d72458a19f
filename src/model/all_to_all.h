/* SPDX-License-Identifier: Apache-2.0 */
/* All-to-all among a group's members, on any placement. */
#ifndef LHI_MODEL_ALL_TO_ALL_H
#define LHI_MODEL_ALL_TO_ALL_H

#include "model/paths.h"

#include <longhaul/experimental/cost.h>

/* A group's members in one datacenter. Counts can be fractional where the GPUs
 * that share an expert straddle a boundary. */
typedef struct lhi_site_members {
    uint32_t datacenter;
    double members;
    double fewest_per_node; /* on the node with the fewest */
    double nodes;           /* nodes with members */
    double senders;         /* GPUs that use an outgoing link concurrently */
} lhi_site_members;

/* A group's members by datacenter. */
typedef struct lhi_group_members {
    double size;
    uint32_t n;
    lhi_site_members at[LH_MAX_DATACENTERS];
} lhi_group_members;

/* The data that a GPU sends to the others. */
typedef struct lhi_exchange {
    lh_dispatcher dispatcher;
    double copies;                   /* per token: experts_per_token */
    double experts;                  /* in a layer */
    double groups, groups_per_token; /* of experts; 0: any experts */
} lhi_exchange;

/* Returns the parameters of a model's token exchange: its `dispatcher`
 * (implementation of the exchange), experts and expert groups, and how many of
 * each a token uses. */
lhi_exchange lhi_exchange_make(lh_dispatcher dispatcher, const lh_model *model);

/* The time, in ns, for one byte on each GPU (all copies together) at the
 * slowest member, and the latency. */
typedef struct lhi_exchange_time {
    double ns_per_byte, latency_ns;
    double wire_ns_per_byte; /* on the GPU's interface; lower bound: 0 */
} lhi_exchange_time;

/* Computes the all-to-all time per byte and the latency of the slowest group
 * member, into *out. `options` must have its defaults filled in; `known`:
 * cached ECMP (multipath hashing) results. */
lh_status lhi_all_to_all_compute_time(const lh_job *job,
                                      const lhi_group_members *members,
                                      const lhi_exchange *exchange,
                                      const lh_cost_options *options,
                                      lhi_ecmp_cache *known,
                                      lhi_exchange_time *out, lh_error *err);

/* The time per byte that a GPU sends to members on its node (near) and
 * elsewhere (far), for the slowest member, and the latencies. 0: no such
 * members. */
typedef struct lhi_exchange_paths {
    double near_ns_per_byte, near_latency_ns;
    double far_ns_per_byte, far_latency_ns;
} lhi_exchange_paths;

/* Computes the time per byte that a GPU sends to members on its own node and to
 * those elsewhere, and both latencies, into *out. `options` must have its
 * defaults filled in; `known`: cached ECMP (multipath hashing) results. */
lh_status lhi_all_to_all_compute_path_times(const lh_job *job,
                                            const lhi_group_members *members,
                                            const lh_cost_options *options,
                                            lhi_ecmp_cache *known,
                                            lhi_exchange_paths *out,
                                            lh_error *err);

/* Returns the fraction of the token bytes that a GPU in datacenter number
 * `part` of the group (index in its list) sends to each member on other nodes.
 * */
double lhi_all_to_all_compute_share(const lhi_group_members *members,
                                    uint32_t part,
                                    const lhi_exchange *exchange);

/* Computes a lower bound on the all-to-all time of any group with `size`
 * members, some in this datacenter and the others at any place. Of `step`
 * consecutive GPUs at most one is a member.
 *
 * Fewer members per node than fit can be faster, because the networks within
 * and between nodes then work concurrently. Links between datacenters are
 * assumed no faster than a GPU's interface. */
lh_status lhi_all_to_all_compute_lower_bound(
    const lh_job *job, uint32_t datacenter, double size, uint32_t step,
    const lhi_exchange *exchange, const lh_cost_options *options,
    lhi_exchange_time *out, lh_error *err);

/* Computes an all-to-all: each GPU sends 1/size of `bytes` to every other GPU.
 * Traffic within a node uses node_link, traffic within the datacenter uses the
 * GPU's own interface, and other traffic uses its share of the inter-datacenter
 * link.
 *
 * Transfers through the interface are sequential and overlap with the node's
 * links. All messages are in flight at once, as in an NCCL group call, so the
 * longest latency counts once. (A job may select another token dispatch:
 * training.dispatcher.) */
lh_status lhi_cost_all_to_all(const lh_job *job, const lh_cost_group *group,
                              double bytes, const lh_cost_options *options,
                              double *transfer_ns, double *latency_ns,
                              lh_error *err);

#endif
