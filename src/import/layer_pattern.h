/* SPDX-License-Identifier: Apache-2.0 */
/* Which layers are of one kind, as Megatron-LM is told: a number, or a Python
 * list of a 0 or 1 for each, "([0]*3+[1]*58)". */
#ifndef LHI_LAYER_PATTERN_H
#define LHI_LAYER_PATTERN_H

#include "base/arena.h"

#include <longhaul/model.h>

typedef enum lhi_pattern_number {
    LHI_PATTERN_THESE,  /* N: layers 0, N, 2N, ... are */
    LHI_PATTERN_OTHERS, /* N: all are but layers N-1, 2N-1, ... */
} lhi_pattern_number;

/* is[0..n-1]. False: it is neither, or no list of n such numbers. */
bool lhi_layer_pattern_read(const char *text, lhi_pattern_number number,
                            bool *is, uint32_t n);

/* The model's keys for layers with experts; its other keys are there. False:
 * no memory. */
bool lhi_layer_pattern_experts(const bool *is, lhi_arena *mem, lh_model *model);
/* For layers that see `window` tokens alone. False: no keys say so. */
bool lhi_layer_pattern_windows(const bool *is, uint32_t window,
                               lh_model *model);

#endif
