/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a pipeline with another layer partition. */
#include "resilience/placement/layers_internal.h"
#include "schedule/pipeline/accessors.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Estimates the times of one layer's F, D and W: for each the smallest
 * quotient, over all chunks, of the chunk's time and its layer count. */
static void estimate_layer_times(lh_layers *l)
{
    const lh_pipeline *p = l->pipeline;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *k = &p->chunks[c];
        double n = l->numbers[c];
        double f = (double)k->f_ns / n, d = (double)k->d_ns / n,
               w = (double)k->w_ns / n;
        l->f = c == 0 || f < l->f ? f : l->f;
        l->d = c == 0 || d < l->d ? d : l->d;
        l->w = c == 0 || w < l->w ? w : l->w;
    }
}

/* Checks that the pipeline's layers can migrate, copies it, and estimates the
 * times per layer; numbers[c]: layers of chunk c. */
static lh_status set_up(lh_layers *l, const lh_pipeline *pipeline,
                        const uint32_t *numbers, lh_error *err)
{
    uint32_t n = pipeline->n_chunks;
    l->numbers = LHI_NEW(l->mem, uint32_t, n);
    if (!l->numbers)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < n; c++) {
        if (numbers[c] == 0 || numbers[c] > LHI_MOST_LAYERS)
            return lhi_fail(err, LH_EINVAL,
                            "chunk %" PRIu32 " has %" PRIu32
                            " layers; it needs 1 to %d",
                            c, numbers[c], LHI_MOST_LAYERS);
        l->numbers[c] = numbers[c];
    }
    if (pipeline->n_dp_ops > 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "layers: the pipeline has data-parallel communication "
                        "in the middle of the iteration");
    if (pipeline->offloads)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "layers: the pipeline offloads activations, and their "
                        "share per layer is unknown");
    LHI_TRY(lhi_pipeline_copy(pipeline, &l->pipeline, err));
    estimate_layer_times(l);
    return LH_OK;
}

lh_status lh_layers_make(const lh_pipeline *pipeline, const uint32_t *layers,
                         lh_layers **out, lh_error *err)
{
    LHI_TRY(lhi_pipeline_require_one_direction(pipeline, "moving layers", err));
    lhi_arena *mem = lhi_arena_make(0);
    lh_layers *l = mem ? LHI_NEW(mem, lh_layers, 1) : NULL;
    if (!l) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    l->mem = mem;
    lh_status status = set_up(l, pipeline, layers, err);
    if (status != LH_OK)
        lh_layers_free(l);
    else
        *out = l;
    return status;
}

/* Frees a model of other layers per chunk; ignores NULL. */
void lh_layers_free(lh_layers *l)
{
    if (!l)
        return;
    lh_pipeline_free(l->pipeline);
    lhi_arena_free(l->mem);
}

/* --- other partitions ----------------------------------------------------- */

/* Returns the factor on a pass's time `ns` if its chunk has `now` layers
 * rather than `first`, each of which takes `layer` ns of it. */
static double compute_time_ratio(int64_t ns, double layer, uint32_t first,
                                 uint32_t now)
{
    if (ns <= 0)
        return 1;
    double more = (double)now - (double)first;
    return ((double)ns + more * layer) / (double)ns;
}

lhi_layer_ratios lhi_layers_ratios(const lh_layers *l, uint32_t c, uint32_t now)
{
    const lh_chunk *k = &l->pipeline->chunks[c];
    uint32_t n = l->numbers[c];
    return (lhi_layer_ratios){.f = compute_time_ratio(k->f_ns, l->f, n, now),
                              .d = compute_time_ratio(k->d_ns, l->d, n, now),
                              .w = compute_time_ratio(k->w_ns, l->w, n, now),
                              .all = (double)now / (double)n};
}

/* Multiplies an integer by a factor and rounds; limits the result to
 * +-INT64_MAX / 4. */
static int64_t multiply(int64_t value, double factor)
{
    double product = round((double)value * factor);
    return fabs(product) < 0x1p61 ? (int64_t)product
           : product > 0          ? INT64_MAX / 4
                                  : -(INT64_MAX / 4);
}

/* Multiplies a chunk's pass times, memory and communication times by the
 * factors `s`, which result from another number of layers. */
static void reshape_chunk(lh_chunk *k, lhi_layer_ratios s)
{
    bool is_whole = k->mem_f + k->mem_d + k->mem_w == 0;
    k->f_ns = multiply(k->f_ns, s.f);
    k->d_ns = multiply(k->d_ns, s.d);
    k->w_ns = multiply(k->w_ns, s.w);
    k->mem_f = multiply(k->mem_f, s.all);
    k->mem_d = multiply(k->mem_d, s.all);
    /* Keeps a microbatch's memory balance at exactly 0 bytes. */
    k->mem_w = is_whole ? -k->mem_f - k->mem_d : multiply(k->mem_w, s.all);
    k->mem_static = multiply(k->mem_static, s.all);
    k->all_gather_ns = multiply(k->all_gather_ns, s.all);
    k->reduce_scatter_ns = multiply(k->reduce_scatter_ns, s.all);
}

/* Fails with LH_EINVAL unless numbers[c], chunk c's layers, are at least 1
 * and have the initial total. */
static lh_status check_numbers(const lh_layers *l, const uint32_t *numbers,
                               lh_error *err)
{
    uint64_t first = 0, now = 0;
    for (uint32_t c = 0; c < l->pipeline->n_chunks; c++) {
        if (numbers[c] == 0)
            return lhi_fail(err, LH_EINVAL,
                            "layers: chunk %" PRIu32 " would have none", c);
        first += l->numbers[c];
        now += numbers[c];
    }
    if (first == now)
        return LH_OK;
    return lhi_fail(err, LH_EINVAL,
                    "layers: %" PRIu64 " in total, but %" PRIu64 " initially",
                    now, first);
}

lh_status lh_layers_pipeline(const lh_layers *l, const lh_pipeline *pipeline,
                             const uint32_t *numbers, lh_pipeline **out,
                             lh_error *err)
{
    lh_pipeline_desc d = {.size = sizeof d};
    const lh_pipeline *p = l->pipeline;
    if (pipeline->n_chunks != p->n_chunks ||
        pipeline->n_devices != p->n_devices || pipeline->n_dp_ops > 0)
        return lhi_fail(
            err, LH_EINVAL,
            "layers: the pipeline differs from the first one in shape");
    LHI_TRY(check_numbers(l, numbers, err));
    LHI_TRY(lh_pipeline_describe(pipeline, &d, err));
    lh_chunk *chunks = calloc(d.n_chunks, sizeof *chunks);
    if (!chunks)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < d.n_chunks; c++) {
        chunks[c] = d.chunks[c];
        if (numbers[c] != l->numbers[c])
            reshape_chunk(&chunks[c], lhi_layers_ratios(l, c, numbers[c]));
    }
    d.chunks = chunks;
    lh_status status = lhi_pipeline_rebuild(pipeline, &d, out, err);
    free(chunks);
    return status;
}

/* --- migration ------------------------------------------------------------ */

uint64_t lhi_layers_count_transfers(const lh_pipeline *p, const uint32_t *from,
                                    const uint32_t *to, int64_t *room,
                                    int64_t *busiest)
{
    int64_t *sent = room, *received = room + p->n_devices, before = 0;
    uint64_t n_moves = 0;
    *busiest = 0;
    for (uint32_t d = 0; d < p->n_devices; d++)
        sent[d] = received[d] = 0;
    for (uint32_t c = 0; c + 1 < p->n_chunks; c++) {
        before += (int64_t)to[c] - (int64_t)from[c];
        uint32_t a = p->chunks[c].device, b = p->chunks[c + 1].device;
        int64_t n = before < 0 ? -before : before;
        if (a == b || n == 0)
            continue;
        sent[before < 0 ? a : b] += n;
        received[before < 0 ? b : a] += n;
        n_moves += (uint64_t)n;
    }
    for (uint32_t d = 0; d < p->n_devices; d++) {
        *busiest = sent[d] > *busiest ? sent[d] : *busiest;
        *busiest = received[d] > *busiest ? received[d] : *busiest;
    }
    return n_moves;
}

lh_status lh_layers_migration_ns(const lh_layers *l, const uint32_t *from,
                                 const uint32_t *to, int64_t layer_ns,
                                 int64_t *out_ns, lh_error *err)
{
    int64_t busiest;
    const lh_pipeline *p = l->pipeline;
    LHI_TRY(check_numbers(l, from, err));
    LHI_TRY(check_numbers(l, to, err));
    int64_t *room = calloc(2 * (size_t)p->n_devices, sizeof *room);
    if (!room)
        return lhi_fail_nomem(err);
    lhi_layers_count_transfers(p, from, to, room, &busiest);
    free(room);
    double all = (double)busiest * (double)layer_ns;
    if (layer_ns < 0 || all > 0x1p61)
        return lhi_fail(
            err, LH_EINVAL,
            "the migration of a layer takes %" PRId64
            " ns, which is negative, or beyond 73 years for all layers",
            layer_ns);
    *out_ns = (int64_t)all;
    return LH_OK;
}
