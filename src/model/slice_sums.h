/* SPDX-License-Identifier: Apache-2.0 */
/* A layer range's parts, with their times and memory, and their sums. */
#ifndef LHI_MODEL_SLICE_SUMS_H
#define LHI_MODEL_SLICE_SUMS_H

#include "model/timing.h"

/* One part of a layer range: a layer, the embedding or the head. */
typedef struct lhi_slice_part {
    lhi_pass_times times;
    lhi_resident_memory memory;
    double static_bytes; /* measured; < 0: unknown */
    bool measured, bytes_measured;
} lhi_slice_part;

/* Sums over the parts of a layer range, and the parts. */
typedef struct lhi_slice_sums {
    lhi_pass_times time;
    double part_ns[3]; /* sums of F, D, W of the parts */
    lhi_resident_memory memory;
    bool any_measured, any_estimated; /* of times */
    bool any_bytes_measured, any_bytes_estimated;
    double static_bytes;            /* measured; -1: incomplete */
    lhi_slice_part embedding, head; /* 0 if absent; the head includes MTP */
    /* By lhi_find_layer_kind(); kinds that the range does not have are unset,
     * because the array is too large to clear for every layer range. */
    lhi_slice_part layers[LHI_LAYER_KINDS];
} lhi_slice_sums;

/* Sums the pass times and resident memory over the layers, embedding and head
 * of a layer range: from the job's profile where it has measurements, otherwise
 * from the model. Errors as lh_cost_chunk(); *out is then undefined. */
lh_status lhi_slice_sums_build(const lhi_cost_context *p, lhi_slice_sums *out,
                               lh_error *err);

#endif
