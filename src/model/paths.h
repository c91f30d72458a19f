/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the path between two GPUs, within and between datacenters. */
#ifndef LHI_MODEL_PATHS_H
#define LHI_MODEL_PATHS_H

#include "model/shape.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/network_model.h>

/* Returns the profile's measurement of a path of this kind, or NULL: within a
 * node of datacenter `from`, between its nodes, or from datacenter `from` to
 * `to`. */
const lh_profile_link *lhi_profile_link(const lh_job *job, lh_profile_path kind,
                                        uint32_t from, uint32_t to);

/* Returns the index of the datacenter called `name`, or of its first zone;
 * LH_NONE: none. */
uint32_t lhi_find_datacenter(const lh_job *job, const char *name);
/* Checks whether `a` and `b` are zones of the same datacenter. */
bool lhi_are_zones_of_same_datacenter(const lh_job *job, uint32_t a,
                                      uint32_t b);
/* Checks whether traffic from a to b and from x to y uses the same link. All
 * zones of two datacenters share the link between them; a zone has one outgoing
 * link to its datacenter's other zones. */
bool lhi_uses_same_link(const lh_job *job, uint32_t a, uint32_t b, uint32_t x,
                        uint32_t y);

/* Computes the path within a node (`same_node`) or between nodes of a
 * datacenter; `options` must have its defaults filled in. Between nodes, a
 * group drives `interfaces` interfaces concurrently. */
lh_status lhi_compute_intra_datacenter_path(const lh_job *job,
                                            uint32_t datacenter, bool same_node,
                                            double interfaces,
                                            const lh_cost_options *options,
                                            lh_cost_path *out, lh_error *err);

/* Returns the load on the link from datacenter `from` to `to`, as one GPU uses
 * it: line rate, latencies, loss and interface rate. It is an input of
 * lhi_cost_link_setting(). The caller fills in the other senders and the
 * traffic. */
lh_link_load lhi_link_load(const lh_job *job, uint32_t from, uint32_t to,
                           const lh_cost_constants *constants);

/* A cache for lhi_ecmp_busiest_path_flows(), the most expensive computation
 * about a link, which is mostly called with the same arguments. Zero-initialise
 * it. */
enum { LHI_ECMP_CACHE_SIZE = 16 };
/* Cached results; `next` is the slot to replace. */
typedef struct lhi_ecmp_cache {
    struct {
        double flows, paths, busiest;
    } last[LHI_ECMP_CACHE_SIZE];
    uint32_t next, asked;
} lhi_ecmp_cache;

/* Computes the effect of a link setting as lhi_cost_link_setting() does, with a
 * cache `known` for ECMP (multipath hashing) results. */
lh_status lhi_compute_link_effect(const lh_link_load *use,
                                  const lh_link_setting *setting,
                                  lhi_ecmp_cache *known, lh_link_effect *out,
                                  lh_error *err);

/* Computes the path from datacenter, or zone, `from` to `to`, for one of
 * `concurrent` equal shares of the link. `known`: cached ECMP (multipath
 * hashing) results. */
lh_status lhi_compute_inter_datacenter_path(const lh_job *job, uint32_t from,
                                            uint32_t to, double concurrent,
                                            const lh_cost_options *options,
                                            lhi_ecmp_cache *known,
                                            lh_cost_path *out, lh_error *err);

/* Finds the slowest path that a group crosses as lh_cost_group_path() does,
 * with a cache `known` for ECMP (multipath hashing) results. `options`:
 * completed by lhi_complete_cost_options(). */
lh_status lhi_compute_group_path(const lh_job *job, const lh_cost_group *group,
                                 const lh_cost_options *options,
                                 lhi_ecmp_cache *known, lh_cost_path *out,
                                 lh_error *err);
/* Computes a layer range's cost as lh_cost_chunk() does, with a cache `known`
 * for ECMP (multipath hashing) results. */
lh_status lhi_chunk_cost(const lh_job *job, const lh_layout *layout,
                         const lh_cost_layer_range *slice,
                         const lh_cost_options *options, lhi_ecmp_cache *known,
                         lh_cost *out, lh_error *err);
/* Computes the cost of one of the layer ranges into which the model is split.
 * With one pipeline rank, the ranges run consecutively in every pass. With ZeRO
 * 2 and 3, each range's cost is its contribution to that pass. */
lh_status lhi_chunk_cost_in_sequence(const lh_job *job, const lh_layout *layout,
                                     const lh_cost_layer_range *slice,
                                     const lh_cost_options *options,
                                     lhi_ecmp_cache *known, lh_cost *out,
                                     lh_error *err);
/* Computes a layer range's cost as lhi_chunk_cost() does, but with a lower
 * bound on the communication between experts. The bound holds for every
 * placement of the replicas. */
lh_status lhi_chunk_cost_lower_bound(const lh_job *job, const lh_layout *layout,
                                     const lh_cost_layer_range *slice,
                                     const lh_cost_options *options,
                                     lhi_ecmp_cache *known, lh_cost *out,
                                     lh_error *err);
/* Computes the message between two stages as lhi_cost_hop_message() does, with
 * a cache `known` for ECMP (multipath hashing) results. */
lh_status lhi_compute_hop_message(const lh_job *job, const lh_layout *layout,
                                  const lh_cost_hop *hop,
                                  const lh_cost_options *options,
                                  lhi_ecmp_cache *known, lh_cost_message *out,
                                  lh_error *err);

/* Computes the message that carries one microbatch's activation, or its
 * gradient, to the next stage: micro_batch * sequence * hidden elements, each
 * GPU sending its share [Nar section 4.1]. Between datacenters, the replicas
 * send concurrently over one link. */
lh_status lhi_cost_hop_message(const lh_job *job, const lh_layout *layout,
                               const lh_cost_hop *hop,
                               const lh_cost_options *options,
                               lh_cost_message *out, lh_error *err);

/* Returns the bytes of the message between two stages for one microbatch, all
 * GPUs of the pipeline rank together. */
int64_t lhi_cost_message_bytes(const lh_job *job, const lh_layout *layout);

/* Computes the all-reduce of a tied embedding's gradient between the first and
 * the last pipeline rank, after the last W, as in Megatron-LM. `hop` leads from
 * the first rank to the last. *ns is 0 if nothing is tied or pipeline is 1. */
lh_status lhi_cost_tied_embedding(const lh_job *job, const lh_layout *layout,
                                  const lh_cost_hop *hop,
                                  const lh_cost_options *options, int64_t *ns,
                                  lh_error *err);

#endif
