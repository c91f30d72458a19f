/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an lh_layers.
 *
 * layers.c: a pipeline with other numbers of layers. layers_find.c: which
 * numbers. */
#ifndef LHI_LAYERS_OWN_H
#define LHI_LAYERS_OWN_H

#include "base/arena.h"
#include "base/fail.h"
#include "pipe/pipeline_own.h"

#include <longhaul/layers.h>

enum { LHI_MOST_LAYERS = 1000000 };

struct lh_layers {
    lhi_arena *mem;
    lh_pipeline *pipeline; /* with the first numbers, while nothing is slow */
    uint32_t *numbers;
    double f, d, w; /* a pass of one layer, ns */
};

/* By how much longer a chunk's passes are with so many layers than with the
 * first number; `all`: and all else of it. */
typedef struct lhi_shares {
    double f, d, w, all;
} lhi_shares;

lhi_shares lhi_layers_shares(const lh_layers *layers, uint32_t chunk,
                             uint32_t now);

/* Layers that cross each border between chunks of different devices, and the
 * most of them that one device sends, or receives. `room` is for two numbers of
 * each device. */
uint64_t lhi_layers_count(const lh_pipeline *pipeline, const uint32_t *from,
                          const uint32_t *to, int64_t *room, int64_t *busiest);

#endif
