/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/pipeline/idle_limits.h"

#include "base/integer_math.h"

/* Returns a chunk's time between its last W or B and the arrival of its
 * reduced gradients, in ns; 0 if it has no reduce-scatter. */
static int64_t get_tail(const lh_chunk *c)
{
    return c->reduce_scatter_ns > 0 ? c->reduce_scatter_ns + c->dp_latency_ns
                                    : 0;
}

void lhi_pipeline_compute_idle_limits(const lh_pipeline *pipeline,
                                      int64_t useless_ns, int64_t *limits)
{
    const lh_pipeline *p = pipeline;
    const bool unknown =
        useless_ns == INT64_MAX || p->overlap_f_b > 0 || p->n_slices > 1;
    for (uint32_t d = 0; d < p->n_devices; d++)
        limits[d] = INT64_MAX;
    if (unknown)
        return;
    /* First the least time after a device's last pass, negated. */
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        int64_t *of = &limits[p->chunks[c].device];
        const int64_t tail = get_tail(&p->chunks[c]);
        *of = *of == INT64_MAX ? -tail : lhi_max_int64(*of, -tail);
    }
    for (uint32_t d = 0; d < p->n_devices; d++)
        if (limits[d] < INT64_MAX)
            limits[d] += useless_ns;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *k = &p->chunks[c];
        limits[k->device] -= p->n_microbatches * (k->f_ns + k->d_ns + k->w_ns);
    }
}

bool lhi_pipeline_has_private_links(const lh_pipeline *pipeline,
                                    uint32_t *sender)
{
    const lh_pipeline *p = pipeline;
    for (uint32_t r = 0; r < p->n_resources; r++)
        sender[r] = LH_NONE;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lhi_route *routes[2] = {&p->forward[c], &p->backward[c]};
        for (int i = 0; i < 2; i++) {
            uint32_t r = routes[i]->resource, d = p->chunks[c].device;
            if (r == LH_NONE)
                continue;
            if (sender[r] != LH_NONE && sender[r] != d)
                return false;
            sender[r] = d;
        }
    }
    return true;
}
