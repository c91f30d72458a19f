/* SPDX-License-Identifier: Apache-2.0 */
#include "dev/cpu.h"

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

double lhi_cpu_again_floats(const lhi_cpu *cpu, uint32_t again)
{
    double columns = 0;
    for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++)
        if (again >> i & 1)
            columns += (double)lhi_cpu_columns(cpu, (lh_layer_part)i);
    return cpu->t * columns;
}

/* What one microbatch keeps: make_slot() of cpu_forward.c, in floats. */
static double count_slot(const lhi_cpu *cpu, uint32_t n_layers, bool is_first,
                         bool is_last)
{
    double t = cpu->t, h = cpu->h;
    double layer = t * (3 * h + 2 * (double)cpu->q + 2 * (double)cpu->kv +
                        3 * (double)cpu->f + 2 + 2 * (double)cpu->heads) +
                   2 * h;
    return (n_layers + 1) * t * h + n_layers * layer + (is_first ? t : 0) +
           (is_last ? t * (h + cpu->v + 2) + h : 0);
}

/* make_scratch() and make_angles() of cpu.c, in floats. */
static double count_scratch(const lhi_cpu *cpu)
{
    double widest = cpu->f > cpu->h ? cpu->f : cpu->h;
    double s = cpu->sequence, block = cpu->block, d = cpu->head_dim;
    if (widest < cpu->q)
        widest = cpu->q;
    return cpu->t * widest + 2 * block * s + block * (d + 1) + 3 * s * d + s;
}

double lhi_cpu_parameters(const lhi_cpu_options *o, uint32_t i)
{
    lhi_cpu cpu = {.sequence = 0};
    uint32_t c = o->mine[i];
    lhi_cpu_shape(&cpu, o);
    return lhi_cpu_values(&cpu, o->first_layers[c + 1] - o->first_layers[c],
                          c == 0, c + 1 == o->n_chunks);
}

double lhi_cpu_bytes(const lhi_cpu_options *o, const uint32_t *at_once)
{
    lhi_cpu cpu = {.sequence = 0};
    lhi_cpu_shape(&cpu, o);
    double floats = count_scratch(&cpu);
    double most_again = 0; /* there is room to make one layer's at least */
    for (uint32_t i = 0; i < o->n_mine; i++) {
        uint32_t c = o->mine[i];
        uint32_t n = o->first_layers[c + 1] - o->first_layers[c];
        floats += 2 * lhi_cpu_parameters(o, i);
        floats +=
            at_once[i] * count_slot(&cpu, n, c == 0, c + 1 == o->n_chunks);
        for (uint32_t k = 0; o->again && k < n; k++) {
            double again =
                lhi_cpu_again_floats(&cpu, o->again[o->first_layers[c] + k]);
            floats -= at_once[i] * again;
            most_again = again > most_again ? again : most_again;
        }
    }
    return (floats + most_again) * sizeof(float);
}
