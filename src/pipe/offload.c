/* SPDX-License-Identifier: Apache-2.0 */
#include "pipe/offload.h"

enum { LEAST_APART = 3 }; /* minimum distance from F to backward for a copy */

/* The order of a device's passes and their positions. */
typedef struct lister {
    const lh_pipeline *p;
    const char *order;
    size_t stride;
    /* by lhi_pass_index(): positions of F and backward */
    const uint32_t *places;
} lister;

static const lh_pass *pass_at(const lister *l, uint32_t i)
{
    return (const void *)(l->order + (size_t)i * l->stride);
}

/* Checks whether the activations of this pass's chunk and microbatch are
 * offloaded. */
static bool leaves(const lister *l, const lh_pass *pass)
{
    const uint32_t *at =
        &l->places[lhi_point(l->p, pass->chunk, pass->microbatch, false)];
    return l->p->chunks[pass->chunk].offload_ns > 0 && at[0] != LH_NONE &&
           at[1] != LH_NONE && at[1] >= at[0] + LEAST_APART;
}

uint32_t lhi_offloads_list(const lh_pipeline *p, const lh_pass *order,
                           size_t stride, uint32_t count, uint32_t *scratch,
                           lhi_offload *out)
{
    const lister l = {p, (const char *)order, stride, scratch};
    uint32_t n = 0;
    for (size_t i = 0; i < lhi_offload_scratch(p); i++)
        scratch[i] = LH_NONE;
    for (uint32_t i = 0; i < count; i++) {
        const lh_pass *pass = pass_at(&l, i);
        if (pass->kind != LH_W)
            scratch[lhi_point(p, pass->chunk, pass->microbatch,
                              pass->kind != LH_F)] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        const lh_pass *pass = pass_at(&l, i);
        const lh_pass *next = i + 1 < count ? pass_at(&l, i + 1) : NULL;
        if (next && next->kind != LH_F && next->kind != LH_W &&
            leaves(&l, next))
            out[n++] =
                (lhi_offload){next->chunk, next->microbatch, true, i, i + 1};
        if (pass->kind == LH_F && leaves(&l, pass))
            out[n++] =
                (lhi_offload){pass->chunk, pass->microbatch, false, i, i + 2};
    }
    return n;
}
