/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a pipeline with unequal microbatches. A device's replicas hold
 * activations of different sizes on GPUs with different memory. The pipeline
 * has one limit per device: that of the datacenter with the least memory for
 * its activations. Activations elsewhere are scaled to it, so that the limit
 * holds in every datacenter (docs/theory/unequal.md). */
#include "planner/layout/build_internal.h"

#include "base/integer_math.h"

#include <math.h>

/* Memory of a device in one datacenter, in bytes. */
typedef struct device_memory {
    int64_t limit;
    int64_t workspace, buffers; /* largest of all chunks */
    double room;                /* for activations */
    double activations;         /* of one microbatch in every chunk */
} device_memory;

/* Returns the cost of chunk `c` in the i-th datacenter that has replicas of its
 * stage. */
static const lh_cost *get_cost(const lhi_layout_builder *b, uint32_t c,
                               uint32_t i)
{
    return &b->site_costs[(size_t)c * b->job->n_datacenters + i];
}

/* Computes the memory of stage `d`'s device in the i-th datacenter with
 * replicas of the stage: limit, static memory, and room for activations. */
static device_memory measure_device(const lhi_layout_builder *b, uint32_t d,
                                    uint32_t i)
{
    const uint32_t dc = b->places.stages[d].sites[i].datacenter;
    device_memory out = {.limit =
                             lh_gpu_usable_bytes(&b->job->datacenters[dc].gpu)};
    double state = 0;
    for (uint32_t c = 0; c < b->n_chunks; c++) {
        const lh_cost *cost = get_cost(b, c, i);
        if (b->chunks[c].device != d)
            continue;
        state += (double)lhi_cost_state_bytes(cost);
        out.workspace = lhi_max_int64(out.workspace, cost->workspace_bytes);
        out.buffers = lhi_max_int64(out.buffers, cost->buffer_bytes);
        out.activations += (double)lhi_max_int64(cost->activation_bytes,
                                                 cost->weight_input_bytes);
    }
    out.room =
        (double)out.limit - state - (double)out.workspace - (double)out.buffers;
    return out;
}

/* Checks whether a device with memory `a` has room for the activations of fewer
 * microbatches than one with memory `b`. */
static bool is_fuller(const device_memory *a, const device_memory *b)
{
    if (a->room <= 0 || b->room <= 0)
        return a->room < b->room;
    return a->room * b->activations < b->room * a->activations;
}

/* Sets the static memory of stage `d`'s chunks, and its memory parts, to the
 * values in the i-th datacenter with replicas of the stage. */
static void set_static(lhi_layout_builder *b, uint32_t d, uint32_t i)
{
    int64_t workspace = 0, buffers = 0;
    for (uint32_t c = 0; c < b->n_chunks; c++) {
        const lh_cost *cost = get_cost(b, c, i);
        if (b->chunks[c].device != d)
            continue;
        const int64_t more = lhi_max_int64(cost->workspace_bytes, workspace) +
                             lhi_max_int64(cost->buffer_bytes, buffers);
        b->chunks[c].mem_static =
            lhi_cost_state_bytes(cost) + more - workspace - buffers;
        workspace = lhi_max_int64(cost->workspace_bytes, workspace);
        buffers = lhi_max_int64(cost->buffer_bytes, buffers);
        if (b->parts)
            lhi_memory_add_state(cost, &b->parts[d]);
    }
    if (b->parts) {
        b->parts[d].buffers_bytes = buffers;
        b->parts[d].temporary_bytes = workspace;
    }
}

/* Sets the activation bytes of stage `d`'s chunks to the largest of all its
 * datacenters, each scaled to `room`: the bytes free for activations in the
 * fullest datacenter. */
static void set_activations(lhi_layout_builder *b, uint32_t d, double room)
{
    const uint32_t n = b->places.stages[d].n_sites;
    for (uint32_t c = 0; c < b->n_chunks; c++) {
        lh_chunk *chunk = &b->chunks[c];
        double activation = 0, input = 0;
        if (chunk->device != d)
            continue;
        for (uint32_t i = 0; i < n; i++) {
            const device_memory m = measure_device(b, d, i);
            const double scale = m.room > 0 && room > 0 ? room / m.room : 1;
            const lh_cost *cost = get_cost(b, c, i);
            activation =
                fmax(activation, ceil((double)cost->activation_bytes * scale));
            input = fmax(input, ceil((double)cost->weight_input_bytes * scale));
        }
        chunk->mem_f = (int64_t)activation;
        chunk->mem_d = (int64_t)input - chunk->mem_f;
        chunk->mem_w = -(int64_t)input;
    }
}

void lhi_layout_builder_set_memory(lhi_layout_builder *b, int64_t *limits)
{
    for (uint32_t d = 0; d < b->config->layout.pipeline; d++) {
        uint32_t fullest = 0;
        device_memory least = measure_device(b, d, 0);
        for (uint32_t i = 1; i < b->places.stages[d].n_sites; i++) {
            const device_memory m = measure_device(b, d, i);
            if (is_fuller(&m, &least)) {
                least = m;
                fullest = i;
            }
        }
        limits[d] = least.limit;
        set_static(b, d, fullest);
        set_activations(b, d, least.room);
    }
}
