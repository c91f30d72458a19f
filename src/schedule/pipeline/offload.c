/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/pipeline/offload.h"

enum {
    MIN_COPY_DISTANCE = 3
}; /* minimum distance from F to backward for a copy */

/* The order of a device's passes and their positions. */
typedef struct op_list {
    const lh_pipeline *p;
    const char *order;
    size_t stride;
    /* by lhi_pass_index(): F and backward positions */
    const uint32_t *places;
} pass_order;

/* Returns pass number i in the device's order, a strided array. */
static const lh_pass *get_pass(const pass_order *l, uint32_t i)
{
    return (const void *)(l->order + (size_t)i * l->stride);
}

/* Checks whether the activations of this pass's chunk and microbatch are
 * offloaded. */
static bool is_offloaded(const pass_order *l, const lh_pass *pass)
{
    const uint32_t *at =
        &l->places[lhi_pass_index(l->p, pass->chunk, pass->microbatch, false)];
    return l->p->chunks[pass->chunk].offload_ns > 0 && at[0] != LH_NONE &&
           at[1] != LH_NONE && at[1] >= at[0] + MIN_COPY_DISTANCE;
}

uint32_t lhi_list_offload_copies(const lh_pipeline *p, const lh_pass *order,
                                 size_t stride, uint32_t count,
                                 uint32_t *scratch, lhi_offload_copy *out)
{
    const pass_order l = {p, (const char *)order, stride, scratch};
    uint32_t n = 0;
    for (size_t i = 0; i < lhi_count_offload_scratch(p); i++)
        scratch[i] = LH_NONE;
    for (uint32_t i = 0; i < count; i++) {
        const lh_pass *pass = get_pass(&l, i);
        if (pass->kind != LH_W)
            scratch[lhi_pass_index(p, pass->chunk, pass->microbatch,
                                   pass->kind != LH_F)] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        const lh_pass *pass = get_pass(&l, i);
        const lh_pass *next = i + 1 < count ? get_pass(&l, i + 1) : NULL;
        if (next && next->kind != LH_F && next->kind != LH_W &&
            is_offloaded(&l, next))
            out[n++] = (lhi_offload_copy){next->chunk, next->microbatch, true,
                                          i, i + 1};
        if (pass->kind == LH_F && is_offloaded(&l, pass))
            out[n++] = (lhi_offload_copy){pass->chunk, pass->microbatch, false,
                                          i, i + 2};
    }
    return n;
}
