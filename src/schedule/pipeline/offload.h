/* SPDX-License-Identifier: Apache-2.0 */
/* Activation offloading (lh_chunk.offload_ns).
 *
 * Input: a pipeline and one device's pass order. Output: the device's
 * copies in launch order; they run on a separate stream, one at a time.
 * - The copy to the host starts when F, at position i of the order, ends; the
 *   pass at i + 2 waits for it.
 * - The copy back starts together with the pass before the backward; the
 *   backward waits for it.
 *
 * Hence the device holds the activations of at most three passes: the running
 * one, the preceding and the following one. If the backward is one of the next
 * two passes, nothing is copied. */
#ifndef LHI_SCHEDULE_PIPELINE_OFFLOAD_H
#define LHI_SCHEDULE_PIPELINE_OFFLOAD_H

#include "schedule/pipeline/pipeline_internal.h"

/* A copy of one chunk's activations for one microbatch. */
typedef struct lhi_offload_copy {
    uint32_t chunk, microbatch;
    bool to_device; /* host to device; otherwise device to host */
    /* Positions in the order: the copy is launched when pass `at` starts (back)
     * or ends; pass `before` waits for it and all earlier copies. */
    uint32_t at, before;
} lhi_offload_copy;

/* Lists the offload copies (activations to host storage and back) of one
 * iteration on a device. Its `count` passes begin at `order`, `stride` bytes
 * apart. `out` needs capacity for two copies per F; `scratch` for
 * lhi_count_offload_scratch() numbers. Returns the copy count. */
uint32_t lhi_list_offload_copies(const lh_pipeline *p, const lh_pass *order,
                                 size_t stride, uint32_t count,
                                 uint32_t *scratch, lhi_offload_copy *out);

/* Returns the scratch size, in numbers. */
static inline size_t lhi_count_offload_scratch(const lh_pipeline *p)
{
    return 2 * (size_t)p->n_chunks * p->n_microbatches;
}

#endif
