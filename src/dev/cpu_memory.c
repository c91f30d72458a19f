/* SPDX-License-Identifier: Apache-2.0 */
#include "dev/cpu.h"

#include <math.h>
#include <stdalign.h>
#include <stddef.h>

enum { LINE_FLOATS = 16 }; /* a cache line */

float *lhi_cpu_floats(lhi_arena *mem, size_t rows, size_t columns)
{
    size_t n;
    if (columns > 0 &&
        rows > (SIZE_MAX / sizeof(float) - LINE_FLOATS) / columns)
        return NULL;
    n = rows * columns + LINE_FLOATS;
    float *all = LHI_NEW(mem, float, n);
    if (!all)
        return NULL;
    uintptr_t over = (uintptr_t)all % (LINE_FLOATS * sizeof(float));
    return over ? all + (LINE_FLOATS - over / sizeof(float)) : all;
}

void lhi_cpu_shape(lhi_cpu *cpu, const lhi_cpu_options *o)
{
    const lh_model *model = o->model;
    cpu->layers = model->layers;
    cpu->h = model->hidden;
    cpu->heads = model->heads;
    cpu->kv_heads = model->kv_heads;
    cpu->head_dim = model->head_dim;
    cpu->q = model->heads * model->head_dim;
    cpu->kv = model->kv_heads * model->head_dim;
    cpu->f = model->ffn;
    cpu->v = model->vocab;
    cpu->tied = model->tied_embeddings;
    cpu->sequence = o->sequence;
    cpu->microbatch = o->microbatch;
    cpu->t = o->microbatch * o->sequence;
    cpu->n_microbatches = o->n_microbatches;
    cpu->n_chunks = o->n_chunks;
    cpu->block = cpu->sequence > 1024 ? 128 : 64;
}

double lhi_cpu_values(const lhi_cpu *cpu, uint32_t n_layers, bool is_first,
                      bool is_last)
{
    double h = cpu->h, ends = (double)cpu->v * h;
    double layer =
        2 * h + 2 * ((double)cpu->q + cpu->kv) * h + 3 * (double)cpu->f * h;
    return n_layers * layer + (is_first ? ends : 0) + (is_last ? ends + h : 0);
}

size_t lhi_cpu_columns(const lhi_cpu *cpu, lh_layer_part part)
{
    switch (part) {
    case LH_PART_QKV:
        return cpu->q + 2 * (size_t)cpu->kv;
    case LH_PART_ATTENTION: /* and two numbers per head */
        return cpu->q + 2 * (size_t)cpu->heads;
    case LH_PART_GATE_UP:
        return 2 * (size_t)cpu->f;
    case LH_PART_ACTIVATION:
        return cpu->f;
    default:
        return cpu->h;
    }
}

double lhi_cpu_float_bytes(double n)
{
    double unit = alignof(max_align_t);
    return ceil((n + LINE_FLOATS) * sizeof(float) / unit) * unit;
}

double lhi_cpu_slot_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk)
{
    double t = cpu->t, h = cpu->h, n = chunk->n_layers;
    double bytes = sizeof(lhi_cpu_slot) + n * sizeof(lhi_cpu_kept) +
                   (n + 1) * (sizeof(float *) + lhi_cpu_float_bytes(t * h)) +
                   2 * n * (lhi_cpu_float_bytes(t) + lhi_cpu_float_bytes(h));
    for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++) {
        double columns = (double)lhi_cpu_columns(cpu, (lh_layer_part)i);
        for (uint32_t k = 0; k < chunk->n_layers; k++)
            if (!(chunk->again[k] >> i & 1))
                bytes += lhi_cpu_float_bytes(t * columns);
    }
    if (chunk->is_first)
        bytes += t * sizeof(int32_t);
    if (chunk->is_last)
        bytes += t * sizeof(int32_t) + lhi_cpu_float_bytes(t * h) +
                 lhi_cpu_float_bytes(t) + lhi_cpu_float_bytes(t * cpu->v) +
                 lhi_cpu_float_bytes(h);
    return bytes;
}

double lhi_cpu_chunk_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk)
{
    const double name = 64;
    double n = chunk->n_layers, microbatches = cpu->n_microbatches;
    double tensors = n * LHI_LAYER_TENSORS + 3;
    double items = n * LHI_LAYER_ITEMS + chunk->is_first + chunk->is_last;
    return sizeof *chunk +
           n * (2 * sizeof(lhi_cpu_weights) + sizeof(uint32_t)) +
           tensors * (sizeof(lhi_tensor) + name) +
           items * (sizeof(lhi_cpu_item) + microbatches) +
           microbatches * (sizeof(lhi_cpu_slot *) + sizeof(bool));
}

double lhi_cpu_scratch_bytes(const lhi_cpu *cpu)
{
    double widest = cpu->f > cpu->h ? cpu->f : cpu->h;
    double s = cpu->sequence, block = cpu->block, d = cpu->head_dim;
    if (widest < cpu->q)
        widest = cpu->q;
    return sizeof *cpu + lhi_cpu_float_bytes(cpu->t * widest) +
           2 * lhi_cpu_float_bytes(block * s) +
           2 * lhi_cpu_float_bytes(s * (cpu->head_dim / 2)) +
           lhi_cpu_float_bytes(block * d) + 2 * lhi_cpu_float_bytes(s * d) +
           lhi_cpu_float_bytes(block) + (s + 1) * sizeof(int32_t) +
           cpu->n_microbatches * (sizeof(double) + sizeof(bool));
}

double lhi_cpu_parameters(const lhi_cpu_options *o, uint32_t i)
{
    lhi_cpu cpu = {.sequence = 0};
    uint32_t c = o->mine[i];
    lhi_cpu_shape(&cpu, o);
    return lhi_cpu_values(&cpu, o->first_layers[c + 1] - o->first_layers[c],
                          c == 0, c + 1 == o->n_chunks);
}
