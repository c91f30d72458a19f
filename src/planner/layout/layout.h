/* SPDX-License-Identifier: Apache-2.0 */
/* One layout of a job: its pipeline ranks' sites, their layers, and the
 * resulting pipeline. Input: a job and a configuration. Output: a pipeline with
 * the cost model's times, or the reason why there is none.
 *     layout.h           configurations; placement.c and build.c make
 *                        placements and pipelines, build_chunks.c their chunks;
 *                        ring_order.c orders rings of datacenters
 *     space.h            layouts that a job leaves open, as a tree
 *     site_search.h      placements to try: site_search.c and, through
 *                        site_search_internal.h, site_fill.c,
 *                        site_heuristics.c, site_estimate.c, site_symmetry.c
 *     layer_partition.h  layers moved between chunks, by the searches of
 *                        partition_search.h; build_cache.h keeps the unchanged
 *                        parts
 *     equivalence.h      equality of layouts, datacenters and links
 *     choice.h           a layout under a schedule, and a job's schedules
 *     link_override.h    the same job and layout with other links
 *     elastic_shares.h   elastic-plan communication on a layout
 *     traffic.h          traffic between datacenters */
#ifndef LHI_PLANNER_LAYOUT_LAYOUT_H
#define LHI_PLANNER_LAYOUT_LAYOUT_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/job.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/plan.h>

/* Place of a pipeline rank of one data-parallel replica. */
typedef struct lhi_rank_location {
    uint32_t datacenter;
    uint32_t first_gpu; /* first GPU of its tensor x context group, counted in
                         * the datacenter */
    uint32_t stride;    /* GPUs from a replica of its group to the next */
} lhi_rank_location;

/* One stage's placement over all replicas. */
typedef struct lhi_stage_placement {
    uint32_t n_sites;
    const lh_cost_site *sites; /* in the ring's order between them */
    uint32_t sharing; /* stages whose rings share links, including itself */
    uint32_t n_runs;
    const lh_cost_run *runs; /* its replicas' GPUs */
} lhi_stage_placement;

/* Returns a layer range for the cost model with the datacenters and GPUs of a
 * stage's replicas; its layers and the datacenter to compute stay open. */
lh_cost_layer_range lhi_stage_range(const lhi_stage_placement *spread);

/* Returns the smallest replica count that the stage has in one of its
 * datacenters. */
uint32_t lhi_stage_placement_min_replicas(const lhi_stage_placement *spread);

/* Checks whether a stage's chunks cost as much in its i-th datacenter as in one
 * of its earlier datacenters. Hybrid sharding also requires equal replica
 * counts in both. */
bool lhi_stage_placement_repeats(const lh_job *job, const lh_layout *layout,
                                 const lhi_stage_placement *spread, uint32_t i);

/* A layout's placement. */
typedef struct lhi_layout_placement {
    const lh_sites *sites;
    const lhi_rank_location *ranks;    /* ranks[group * pipeline + stage]: first
                                        * replica of each group */
    const lhi_stage_placement *stages; /* per stage */
} lhi_layout_placement;

/* Returns a replica group's message route from one stage to another, for the
 * cost model. `senders`: replicas of all groups that use the same link at
 * once. */
lh_cost_hop lhi_layout_hop(const lhi_layout_placement *places,
                           const lh_layout *layout, uint32_t group,
                           uint32_t from, uint32_t to, uint32_t senders);

/* A complete configuration of a layout. */
typedef struct lhi_config {
    lh_layout layout; /* complete; schedule NULL unless fixed by the job */
    lh_placement placement;
    lh_recompute recompute;
    uint32_t microbatches;
    const uint32_t *layers; /* per chunk; NULL: lhi_layer_range() */
    bool reversed;          /* second direction of a placement */
    bool zero_given;        /* false: the job's ZeRO stage */
    uint32_t zero;
    /* sharding beyond ZeRO-1; NULL: not elastic */
    const lh_plan_elastic *elastic;
} lhi_config;

/* Returns the layers per chunk that the job fixes, if the layout has as many
 * chunks; else NULL. */
const uint32_t *lhi_layers_requested(const lh_job *job,
                                     const lh_layout *layout);
/* Returns the smallest chunk's layer count in the job's layer partition; 1 if
 * the job has none. */
uint32_t lhi_layers_requested_min(const lh_job *job);
/* Counts the chunks without layers between the first and the last chunk in the
 * job's layer partition. */
uint32_t lhi_layers_requested_empty_chunks(const lh_job *job);
/* Returns LH_MTP_WITH_HEAD if the model's multi-token prediction modules are in
 * the head's chunk, else LH_MTP_ELSEWHERE. */
lh_mtp_location lhi_mtp_is_with_head(const lh_job *job);

/* State of a slice, in bytes. A profile may have measured more or less state,
 * as one number, than the model counts. Each part is scaled to it, and the last
 * one gets the remainder. */
typedef struct lhi_state_parts {
    int64_t weights, gradients, optimizer;
} lhi_state_parts;
/* Splits the model state bytes in a chunk's cost into weights, gradients and
 * optimizer state. The three parts add up to the total. */
lhi_state_parts lhi_state_parts_of(const lh_cost *cost);

/* Result of building a configuration, before any schedule. */
typedef struct lhi_built_layout {
    lh_pipeline *pipeline;
    int64_t optimizer_ns, overhead_ns; /* after the pipeline */
    lh_cost_source source;
    /* Per microbatch, passes of all chunks: tensor, context and expert
     * communication; waiting for ZeRO 2 and 3. */
    int64_t communication_ns, zero_wait_ns;
} lhi_built_layout;

/* Returns a copy of the job with the recomputation and ZeRO stage of the
 * configuration; ZeRO-1 for elastic plans, which shard by their own
 * operations. */
lh_job lhi_config_job(const lh_job *job, const lhi_config *config);

/* Returns the GPU count of one pipeline rank: tensor x context. */
uint32_t lhi_group_size(const lh_layout *layout);

/* Returns the layout as the ranks in one datacenter see it: with their
 * micro_batch and tensor degree. */
lh_layout lhi_layout_in_datacenter(const lh_layout *layout,
                                   uint32_t datacenter);
/* Returns the layout for messages from one datacenter to another: with the
 * sender's micro_batch and the smaller tensor degree of both, because the GPUs
 * of the side with fewer GPUs limit a message. */
lh_layout lhi_layout_on_hop(const lh_layout *layout, uint32_t from,
                            uint32_t to);

/* Places all ranks by layout->sites, or else by `outermost`. Data in *out is in
 * `mem` (or belongs to the layout). LH_EUNSUPPORTED: the numbers do not divide,
 * or datacenters have too few GPUs; `err` has the details. */
lh_status lhi_layout_place(const lh_job *job, const lh_layout *layout,
                           lhi_arena *mem, lhi_layout_placement *out,
                           lh_error *err);

/* Computes sites[stage * data + replica], the group within which a replica
 * shares (shards) a stage's state: its datacenter or, with `zero` (the ZeRO
 * stage) 0, its own group. Errors as for lhi_layout_place(). */
lh_status lhi_state_sites(const lh_job *job, const lh_layout *layout,
                          uint32_t zero, uint32_t *sites, lh_error *err);

/* Computes nodes[stage * ranks + rank] for the data * context * tensor ranks of
 * a stage in their order: ranks on one node have the same number. Errors as
 * lhi_layout_place(). */
lh_status lhi_state_nodes(const lh_job *job, const lh_layout *layout,
                          uint32_t *nodes, lh_error *err);

/* Checks whether every `size` consecutive ranks of a stage, counted from its
 * first one, are on one node. Errors as lhi_layout_place(). */
lh_status lhi_layout_check_runs(const lh_job *job, const lh_layout *layout,
                                uint32_t size, bool *whole, lh_error *err);

/* Returns the default placement of a layout without sites. Pipeline outermost:
 * each datacenter takes as many consecutive stages as fit, in the job's order.
 * Data outermost: all datacenters have equally many whole replicas. */
lh_status lhi_sites_default(const lh_job *job, const lh_layout *layout,
                            lhi_arena *mem, const lh_sites **out,
                            lh_error *err);

/* Orders the n >= 2 datacenters of a ring so that its slowest link is fast
 * (exact for few datacenters). `concurrent` rings of `bytes` share each link.
 */
lh_status lhi_ring_order(const lh_job *job, uint32_t n, lh_cost_site *sites,
                         double concurrent, double bytes, lh_error *err);

/* Computes the layers of chunk `chunk` out of n_chunks, as even as possible:
 * *first and their number *count. The remainder is in the middle chunks, away
 * from embedding and head. */
void lhi_layer_range(uint32_t layers, uint32_t n_chunks, uint32_t chunk,
                     uint32_t *first, uint32_t *count);

/* Computes a chunk's layers, *first and their number *count: by the
 * configuration's partition, or as even as possible. `layers`: the model's. */
void lhi_config_layers(uint32_t layers, const lhi_config *config,
                       uint32_t chunk, uint32_t *first, uint32_t *count);
/* Returns the pipeline rank (device) of a chunk. With two directions the
 * model's chunks are followed by their copies. */
uint32_t lhi_config_device(const lhi_config *config, uint32_t chunk);

/* Returns a chunk's layer range for the cost model, with embedding, head and
 * multi-token prediction; its `datacenter` stays open. */
lh_cost_layer_range lhi_config_slice(const lh_job *job,
                                     const lhi_config *config,
                                     const lhi_stage_placement *spread,
                                     uint32_t chunk);

/* Checks that plans support two directions (placement BD) with the job and a
 * configuration; LH_EUNSUPPORTED otherwise. */
lh_status lhi_two_directions_check(const lh_job *job, const lhi_config *config,
                                   lh_error *err);

/* Merges, for the costs of a layout with two directions, the placements of
 * stages s and P - 1 - s, of P, which have the same two chunks: both then have
 * the replicas of both, and layout->data doubles. Data in *places is in `mem`.
 * LH_EUNSUPPORTED: the GPUs of both stages differ, or expert groups could span
 * datacenters. */
lh_status lhi_two_directions_merge_stages(const lh_job *job, lhi_arena *mem,
                                          lh_layout *layout,
                                          lhi_layout_placement *places,
                                          lh_error *err);

/* Builds a configuration's pipeline; release built->pipeline with
 * lh_pipeline_free(). */
lh_status lhi_layout_build(const lh_job *job, const lhi_config *config,
                           lhi_built_layout *built, lh_error *err);

/* Computes the static memory parts of each device in bytes: all parts of
 * lh_plan_memory except activations, which are 0. `parts` has one entry per
 * pipeline rank. */
lh_status lhi_layout_memory(const lh_job *job, const lhi_config *config,
                            lh_plan_memory *parts, lh_error *err);

#endif
