/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-LM's notation for sets of layers: a number, or a Python list with a
 * 0 or 1 per layer, "([0]*3+[1]*58)". */
#ifndef LHI_INTEROP_IMPORT_LAYER_PATTERN_H
#define LHI_INTEROP_IMPORT_LAYER_PATTERN_H

#include "base/arena.h"

#include <longhaul/experimental/model.h>

/* A single number N's meaning. */
typedef enum lhi_pattern_number {
    LHI_PATTERN_MULTIPLES,        /* N: layers 0, N, 2N, ... */
    LHI_PATTERN_EXCEPT_MULTIPLES, /* N: all except layers N-1, 2N-1, ... */
    LHI_PATTERN_LAST,             /* N: layers N-1, 2N-1, ... */
} lhi_pattern_number;

/* Reads a pattern such as "([0]*3+[1]*58)", or a number, into is[0..n-1].
 * `number` is a number's meaning.
 * Returns false if the text is neither a positive number nor a list with n
 * entries. */
bool lhi_layer_pattern_read(const char *text, lhi_pattern_number number,
                            bool *is, uint32_t n);

/* Sets the model's keys for the layers with experts to those set in `is`: an
 * interval if possible, else a list. Other keys must be set before. Returns
 * false if memory runs out. */
bool lhi_layer_pattern_set_experts(const bool *is, lhi_arena *mem,
                                   lh_model *model);
/* Sets the model's keys so that the layers set in `is` attend only to `window`
 * tokens. Returns false if the keys cannot express the pattern. */
bool lhi_layer_pattern_set_windows(const bool *is, uint32_t window,
                                   lh_model *model);
/* Sets the model's key so that the layers set in `is` have gated delta
 * networks. Returns false if the key cannot express the pattern. */
bool lhi_layer_pattern_set_linear(const bool *is, lh_model *model);
/* Sets the model's key so that the layers set in `is` have no rotary positions.
 * Returns false if the key cannot express the pattern. */
bool lhi_layer_pattern_set_no_rope(const bool *is, lh_model *model);

#endif
