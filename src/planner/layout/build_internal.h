/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface between build.c and build_chunks.c. */
#ifndef LHI_PLANNER_LAYOUT_BUILD_INTERNAL_H
#define LHI_PLANNER_LAYOUT_BUILD_INTERNAL_H

#include "planner/layout/build_cache.h"

#include "model/paths.h"

/* State while building one pipeline. */
typedef struct lhi_layout_builder {
    const lh_job *job; /* with the configuration's recomputation */
    const lhi_config *config;
    /* The configuration's layout as the cost model sees it: with two directions
     * it has twice the replicas, since each chunk has two copies. */
    lh_layout layout;
    lhi_build_cache *known; /* NULL: no cache */
    lhi_arena *mem;
    lhi_layout_placement places;
    lh_chunk *chunks;           /* the model's, then the second direction's */
    uint32_t n_chunks, n_links; /* of the model */
    lh_link *links;
    /* per device, per link: see add_hop() in build.c */
    uint32_t *last_link, *link_before;
    uint32_t *shared; /* per datacenter pair: see share_links() in build.c */
    const char **dp_links; /* per device; NULL: sends nothing */
    lhi_ecmp_cache busiest;
    lh_cost last; /* cost of chunk `last_chunk`, if that is above 0 */
    uint32_t last_chunk;
    int64_t late_ns; /* late part of reductions, beyond the chunk latencies */
    int64_t *optimizer_ns, *workspace, *buffers; /* per device */
    lh_plan_memory *parts; /* per device; NULL: not required */
    /* with unequal microbatches the costs of chunk c in its stage's i-th
     * datacenter: [c * n_datacenters + i]; else NULL */
    lh_cost *site_costs;
    lhi_built_layout *built;
} lhi_layout_builder;

/* Adds chunk `c` with its pass times and memory to the pipeline under
 * construction. */
lh_status lhi_layout_builder_add_chunk(lhi_layout_builder *b, uint32_t c,
                                       lh_error *err);

/* Returns the model-state bytes in a cost: its static bytes without workspace
 * and buffers, which all passes of a device share. */
int64_t lhi_cost_state_bytes(const lh_cost *cost);
/* Adds the bytes of a chunk's weights, gradients and optimizer state to its
 * device's memory parts. */
void lhi_memory_add_state(const lh_cost *cost, lh_plan_memory *to);
/* Sets all chunks' memory, and limits[stage], for replicas with unequal
 * microbatches: those of the datacenter where the fewest microbatches'
 * activations fit. */
void lhi_layout_builder_set_memory(lhi_layout_builder *b, int64_t *limits);

#endif
