/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline on which groups of microbatches travel like trains and meet: 16
 * devices, memory for 8 activations. 64 microbatches take eight round trips of
 * 1396 ms, plus 742 ms until the last microbatch has followed the first. The
 * best generator takes 12750 ms. */
#ifndef TRAINS_H
#define TRAINS_H

#include "uniform.h"

enum {
    TRAINS_LEAST_MS = 8 * 1396 + 742, /* for 64 microbatches */
    TRAINS_GOOD_MS = 12404            /* reached by insertion within a few
                                       * cycles */
};

/* Builds the pipeline. */
static inline lh_pipeline *trains_make(uint32_t n_microbatches)
{
    const uniform u = {.placement = "ud",
                       .devices = 16,
                       .microbatches = n_microbatches,
                       .f = 38,
                       .d = 48,
                       .w = 20,
                       .memory = 8};
    return uniform_make(u);
}

#endif
