/* SPDX-License-Identifier: Apache-2.0 */
/* A slice's parts, priced and held, and their sums. */
#ifndef LHI_SLICE_SUMS_H
#define LHI_SLICE_SUMS_H

#include "cost/prices.h"

/* One part of a slice: a layer, or what lies at an end. */
typedef struct lhi_slice_part {
    lhi_spent_passes used;
    lhi_held kept;
    double static_bytes; /* measured; < 0: not */
    bool measured, bytes_measured;
} lhi_slice_part;

/* Sums over the parts of a slice, and the parts: layers by whether they have
 * experts and a window. What the slice does not have is 0. */
typedef struct lhi_sums {
    lhi_spent_passes time;
    lhi_slice_part layers[2][2], embedding, head /* and MTP */;
    double part_ns[3]; /* sums of F, D, W of the parts */
    lhi_held held;
    bool any_measured, any_estimated; /* times */
    bool any_bytes_measured, any_bytes_estimated;
    double static_bytes; /* measured; -1: not all of it */
} lhi_sums;

/* From the job's profile where it has them, else from the model. Errors as
 * lh_cost_chunk(). */
lh_status lhi_sums_make(const lhi_prices *p, lhi_sums *out, lh_error *err);

#endif
