/* SPDX-License-Identifier: Apache-2.0 */
/* One layout of a job: where its pipeline ranks are, which layers they hold,
 * and the pipeline that results. */
#ifndef LHI_LAYOUT_H
#define LHI_LAYOUT_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/cost.h>
#include <longhaul/job.h>
#include <longhaul/pipeline.h>
#include <longhaul/plan.h>

/* Where the ranks of one data-parallel replica are. */
typedef struct lhi_rank {
    uint32_t datacenter;
    uint32_t first_gpu; /* of its tensor x context x expert group, counted in
                           the datacenter */
} lhi_rank;

/* A layout with everything decided. */
typedef struct lhi_config {
    lh_layout layout; /* complete; schedule NULL unless the job gives one */
    lh_placement placement;
    lh_recompute recompute;
    uint32_t microbatches;
    const uint32_t *layers; /* of each chunk; NULL: lhi_layer_range() */
    bool zero_given; /* else the job's ZeRO stage */
    uint32_t zero;
} lhi_config;

/* What a configuration comes to, before any schedule. */
typedef struct lhi_built {
    lh_pipeline *pipeline;
    int64_t optimizer_ns, overhead_ns; /* after the pipeline */
    lh_cost_source source;
} lhi_built;

/* GPUs that share one pipeline rank. */
uint32_t lhi_group_size(const lh_layout *layout);

/* Places layout.pipeline ranks; `ranks` has room for them. With data
 * outermost they are those of the first replica, and *data_datacenters is over
 * how many datacenters the replicas spread, equally many in each (else 1).
 * LH_EUNSUPPORTED: `err` says what does not divide. */
lh_status lhi_layout_place(const lh_job *job, const lh_layout *layout,
                           lhi_rank *ranks, uint32_t *data_datacenters,
                           lh_error *err);

/* The layers of chunk c of n: as even as they go, what is left over in the
 * middle, away from embedding and head. */
void lhi_layer_range(uint32_t layers, uint32_t n_chunks, uint32_t chunk,
                     uint32_t *first, uint32_t *count);

/* The same, where the configuration may say otherwise. */
void lhi_config_layers(uint32_t layers, const lhi_config *config,
                       uint32_t chunk, uint32_t *first, uint32_t *count);
/* The pipeline rank that a chunk lies on. */
uint32_t lhi_config_device(const lhi_config *config, uint32_t chunk);

/* What a choice says of its layout. */
lhi_config lhi_config_of(const lh_choice *choice);

/* Builds the pipeline; release built->pipeline with lh_pipeline_free(). */
lh_status lhi_layout_build(const lh_job *job, const lhi_config *config,
                           lhi_built *built, lh_error *err);

#endif
