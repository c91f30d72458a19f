/* SPDX-License-Identifier: Apache-2.0 */
/* One layout of a job: where its pipeline ranks are, which layers they hold,
 * and the pipeline that results. In: a job and a configuration. Out: a pipeline
 * with the cost model's times, or why there is none.
 *
 *   layout.h      configurations, from which place.c and build.c make places
 *                 and pipelines; ring.c orders rings of datacenters
 *   space.h       which layouts a job leaves open, as a tree
 *   sites.h       which placements to try: sites.c and, by sites_own.h,
 *                 sites_fit.c, sites_many.c, sites_rank.c, sites_same.c
 *   uneven.h      layers moved between chunks, by the searches of partition.h;
 *                 reuse.h keeps what such a move leaves as it was
 *   alike.h       when layouts, datacenters and links are the same
 *   choice.h      a layout under a schedule, and what schedules a job asks for
 *   relinked.h    the same job and layout with other links
 *   shares.h      what an elastic plan communicates on a layout
 *   traffic.h     what a layout sends between datacenters */
#ifndef LHI_LAYOUT_H
#define LHI_LAYOUT_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/cost.h>
#include <longhaul/job.h>
#include <longhaul/pipeline.h>
#include <longhaul/plan.h>

/* Where a pipeline rank of one data-parallel replica is. */
typedef struct lhi_rank_place {
    uint32_t datacenter;
    uint32_t first_gpu; /* of its tensor x context group, counted in the
                           datacenter */
} lhi_rank_place;

/* Where one stage is, all replicas together. */
typedef struct lhi_spread {
    uint32_t n_sites;
    const lh_cost_site *sites; /* in the order of the ring between them */
    uint32_t sharing; /* stages whose rings use the same links, itself too */
} lhi_spread;

/* Replicas in the datacenter that has fewest of them. */
uint32_t lhi_spread_least(const lhi_spread *spread);

/* Whether the slices of a stage cost in the i-th of its datacenters what they
 * do in one listed before it. */
bool lhi_spread_repeats(const lh_job *job, const lh_layout *layout,
                        const lhi_spread *spread, uint32_t i);

/* Where everything is. */
typedef struct lhi_places {
    const lh_sites *sites;
    const lhi_rank_place *ranks; /* ranks[group * pipeline + stage]: of the
                              first replica of each group */
    const lhi_spread *spreads;   /* of each stage */
} lhi_places;

/* A layout with everything decided. */
typedef struct lhi_config {
    lh_layout layout; /* complete; schedule NULL unless the job gives one */
    lh_placement placement;
    lh_recompute recompute;
    uint32_t microbatches;
    const uint32_t *layers; /* of each chunk; NULL: lhi_layer_range() */
    bool zero_given;        /* else the job's ZeRO stage */
    uint32_t zero;
    const lh_plan_elastic *elastic; /* what an elastic plan shards beyond
                                       ZeRO-1; NULL: it is none */
} lhi_config;

/* The layers of each chunk, where the job has them for layouts with so many
 * chunks; else NULL. */
const uint32_t *lhi_layers_asked(const lh_job *job, const lh_layout *layout);
/* Of the chunk that the job gives fewest; 1 where it gives none. */
uint32_t lhi_layers_least(const lh_job *job);
/* Of the chunks asked for between the first and the last, those without one. */
uint32_t lhi_layers_none(const lh_job *job);
/* Whether the model's multi-token prediction modules are with its head. */
lh_mtp_place lhi_mtp_of_head(const lh_job *job);

/* What a slice holds of state, bytes. A profile may have measured more or less
 * of it, in one piece, than the model counts: each part is its share of that,
 * and the last one what is left. */
typedef struct lhi_state_parts {
    int64_t weights, gradients, optimizer;
} lhi_state_parts;
lhi_state_parts lhi_state_parts_of(const lh_cost *cost);

/* What a configuration comes to, before any schedule. */
typedef struct lhi_built {
    lh_pipeline *pipeline;
    int64_t optimizer_ns, overhead_ns; /* after the pipeline */
    lh_cost_source source;
    /* Of one microbatch's passes on all chunks: what they send, tensor, context
     * and expert parallel; and how long they wait for ZeRO 2 and 3. */
    int64_t inside_ns, data_ns;
} lhi_built;

/* The job with the configuration's own training (recomputation, ZeRO). */
lh_job lhi_config_job(const lh_job *job, const lhi_config *config);

/* GPUs that share one pipeline rank. */
uint32_t lhi_group_size(const lh_layout *layout);

/* Whether experts are spread otherwise than the rest is. */
bool lhi_layout_is_folded(const lh_layout *layout);

/* Places all ranks: as layout->sites say, else as `outermost` does. Everything
 * that *out points to lies in `mem` (or is the layout's). LH_EUNSUPPORTED:
 * `err` says what does not divide, or where there is no room. */
lh_status lhi_layout_place(const lh_job *job, const lh_layout *layout,
                           lhi_arena *mem, lhi_places *out, lh_error *err);

/* sites[stage * data + replica]: replicas of a stage that have the same number
 * share its state where sharding is hybrid, or ZeRO 0: then each has it for
 * itself, else the one of its datacenter. As lhi_layout_place(). */
lh_status lhi_state_sites(const lh_job *job, const lh_layout *layout,
                          uint32_t zero, uint32_t *sites, lh_error *err);

/* nodes[stage * ranks + rank], of the data * context * tensor ranks of a stage in
 * their order: ranks on one node have the same number, as the cost model has it
 * that a stage begins with a node. As lhi_layout_place(). */
lh_status lhi_state_nodes(const lh_job *job, const lh_layout *layout,
                          uint32_t *nodes, lh_error *err);

/* What a layout without sites stands for: with pipeline outermost each
 * datacenter takes as many consecutive stages as it has room for, in the job's
 * order; with data outermost all have equally many whole replicas. */
lh_status lhi_sites_default(const lh_job *job, const lh_layout *layout,
                            lhi_arena *mem, const lh_sites **out,
                            lh_error *err);

/* Puts n >= 2 datacenters with replicas in a good order for a ring in which
 * `concurrent` rings of `bytes` share each link (ring.c). */
lh_status lhi_ring_order(const lh_job *job, uint32_t n, lh_cost_site *sites,
                         double concurrent, double bytes, lh_error *err);

/* The layers of chunk c of n: as even as they go, what is left over in the
 * middle, away from embedding and head. */
void lhi_layer_range(uint32_t layers, uint32_t n_chunks, uint32_t chunk,
                     uint32_t *first, uint32_t *count);

/* The same, where the configuration may say otherwise. */
void lhi_config_layers(uint32_t layers, const lhi_config *config,
                       uint32_t chunk, uint32_t *first, uint32_t *count);
/* The pipeline rank that a chunk lies on. */
uint32_t lhi_config_device(const lhi_config *config, uint32_t chunk);

/* A chunk as the cost model sees it, its first datacenter aside. */
lh_cost_slice lhi_config_slice(const lh_job *job, const lhi_config *config,
                               const lhi_spread *spread, uint32_t chunk);

/* Builds the pipeline; release built->pipeline with lh_pipeline_free(). */
lh_status lhi_layout_build(const lh_job *job, const lhi_config *config,
                           lhi_built *built, lh_error *err);

/* What the static memory of each device of that pipeline consists of: all parts
 * of lh_plan_memory but activations, which are 0. `parts` has place for every
 * pipeline rank. */
lh_status lhi_layout_memory(const lh_job *job, const lhi_config *config,
                            lh_plan_memory *parts, lh_error *err);

#endif
