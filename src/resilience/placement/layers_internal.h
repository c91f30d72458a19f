/* SPDX-License-Identifier: Apache-2.0 */
/* lh_layers internals.
 *
 * - layers.c: a pipeline with another layer partition
 * - layers_search.c: the search for a partition */
#ifndef LHI_RESILIENCE_PLACEMENT_LAYERS_INTERNAL_H
#define LHI_RESILIENCE_PLACEMENT_LAYERS_INTERNAL_H

#include "base/arena.h"
#include "base/fail.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/layers.h>

/* Maximum layer count of a partition. */
enum { LHI_MOST_LAYERS = 1000000 };

/* The initial layer partition with estimated times per layer. */
struct lh_layers {
    lhi_arena *mem;
    lh_pipeline *pipeline; /* initial partition, without slowdowns */
    uint32_t *numbers;
    double f, d, w; /* one layer's pass, ns */
};

/* Ratio between a chunk's pass times with a number of layers and with the
 * initial number; `all`: ratio for its other amounts. */
typedef struct lhi_layer_ratios {
    double f, d, w, all;
} lhi_layer_ratios;

/* Returns the factors by which times and memory of chunk `c` change if it has
 * `now` layers rather than its initial number. */
lhi_layer_ratios lhi_layers_ratios(const lh_layers *layers, uint32_t chunk,
                                   uint32_t now);

/* Counts the layers that change their device if the layers per chunk change
 * from `from` to `to`. *busiest: the most layers that one device sends or
 * receives. `room`: scratch, two numbers per device. */
uint64_t lhi_layers_count_transfers(const lh_pipeline *pipeline,
                                    const uint32_t *from, const uint32_t *to,
                                    int64_t *room, int64_t *busiest);

#endif
