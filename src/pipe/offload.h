/* SPDX-License-Identifier: Apache-2.0 */
/* Activations that leave their device (lh_chunk.offload_ns).
 *
 * In: a pipeline and the order of one of its devices. Out: the copies that the
 * device makes, on a stream of its own that carries one at a time, in the order
 * in which they are launched. What F at place i of the order leaves goes as F
 * has ended, and the pass at i + 2 waits until it is gone; it comes back as the
 * pass before its backward starts, and the backward waits for it. So no more
 * than what three passes leave is on the device: of the one that runs, the one
 * before and the one behind. Where the backward is one of the next two passes
 * nothing is copied. */
#ifndef LHI_OFFLOAD_H
#define LHI_OFFLOAD_H

#include "pipe/pipeline_own.h"

typedef struct lhi_offload {
    uint32_t chunk, microbatch;
    bool is_back; /* to the device; else from it */
    /* Places in the order: it is launched as pass `at` starts (back) or has
     * ended; pass `before` waits for it and for all before it. */
    uint32_t at, before;
} lhi_offload;

/* Copies of one iteration of the device whose `count` passes begin at `order`,
 * `stride` bytes apart. `out` has room for two of each F; `scratch` for
 * lhi_offload_scratch() numbers. Returns how many. */
uint32_t lhi_offloads_list(const lh_pipeline *p, const lh_pass *order,
                           size_t stride, uint32_t count, uint32_t *scratch,
                           lhi_offload *out);

static inline size_t lhi_offload_scratch(const lh_pipeline *p)
{
    return 2 * (size_t)p->n_chunks * p->n_microbatches;
}

#endif
