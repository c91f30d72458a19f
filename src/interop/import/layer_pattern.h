/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-LM's notation for sets of layers: a number, or a Python list with a
 * 0 or 1 per layer, "([0]*3+[1]*58)". */
#ifndef LHI_INTEROP_IMPORT_LAYER_PATTERN_H
#define LHI_INTEROP_IMPORT_LAYER_PATTERN_H

#include "base/arena.h"

#include <longhaul/experimental/model.h>

/* The meaning of a single number N. */
typedef enum lhi_pattern_number {
    LHI_PATTERN_MULTIPLES,        /* N: layers 0, N, 2N, ... */
    LHI_PATTERN_EXCEPT_MULTIPLES, /* N: all except layers N-1, 2N-1, ... */
    LHI_PATTERN_LAST,             /* N: layers N-1, 2N-1, ... */
} lhi_pattern_number;

/* Parses a pattern into is[0..n-1]; returns false if it is neither a number nor
 * a list with n entries. */
bool lhi_layer_pattern_read(const char *text, lhi_pattern_number number,
                            bool *is, uint32_t n);

/* Sets the model's keys for layers with experts; its other keys must be set.
 * Returns false if allocation fails. */
bool lhi_layer_pattern_set_experts(const bool *is, lhi_arena *mem,
                                   lh_model *model);
/* Sets the model's keys for layers that attend to `window` tokens only. Returns
 * false if no keys can express the pattern. */
bool lhi_layer_pattern_set_windows(const bool *is, uint32_t window,
                                   lh_model *model);
/* Sets the model's key for layers without positions. Returns false if no key
 * can express the pattern. */
bool lhi_layer_pattern_set_no_rope(const bool *is, lh_model *model);

#endif
