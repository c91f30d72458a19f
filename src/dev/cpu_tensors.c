/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk's weights: where they lie, what they are called, how they start. */
#include "base/fail.h"
#include "dev/cpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a value is drawn from: the seed and the tensor's place in the model, so
 * that it does not matter which chunks are on which device. splitmix64. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Normal with the standard deviation that Llama starts with, in pairs by Box
 * and Muller. */
static void draw(float *values, size_t n, uint64_t seed, uint32_t index)
{
    const double deviation = 0.02, pi = 3.14159265358979323846;
    uint64_t state = seed;
    state = next_random(&state) + index;
    state = next_random(&state);
    for (size_t i = 0; i < n; i += 2) {
        double a = ((double)(next_random(&state) >> 11) + 1) * 0x1p-53;
        double b = (double)(next_random(&state) >> 11) * 0x1p-53;
        double r = deviation * sqrt(-2 * log(a));
        values[i] = (float)(r * cos(2 * pi * b));
        if (i + 1 < n)
            values[i + 1] = (float)(r * sin(2 * pi * b));
    }
}

typedef struct maker {
    const lhi_cpu *cpu;
    lhi_cpu_chunk *chunk;
    lhi_arena *mem;
    uint64_t seed;
    size_t at; /* floats handed out */
    bool failed;
} maker;

/* The next tensor of the chunk; columns 0: a vector, which starts at 1. */
static lhi_tensor *make_tensor(maker *m, uint32_t index, const char *name,
                               uint32_t rows, uint32_t columns)
{
    lhi_cpu_chunk *chunk = m->chunk;
    lhi_tensor *tensor = &chunk->tensors[chunk->n_tensors++];
    const char *copy = lhi_arena_strdup(m->mem, name);
    if (!copy)
        m->failed = true;
    *tensor = (lhi_tensor){
        .name = copy,
        .value = chunk->values + m->at,
        .gradient = chunk->gradients + m->at,
        .n = (size_t)rows * (columns ? columns : 1),
        .rows = rows,
        .columns = columns,
        .decays = columns > 0,
        .tied_chunk = LH_NONE,
        .index = index,
    };
    m->at += tensor->n;
    if (columns)
        draw(tensor->value, tensor->n, m->seed, index);
    for (size_t i = 0; !columns && i < tensor->n; i++)
        tensor->value[i] = 1;
    return tensor;
}

static lhi_tensor *make_layer_tensor(maker *m, uint32_t layer, uint32_t number,
                                     const char *name, uint32_t rows,
                                     uint32_t columns)
{
    char full[96];
    uint32_t in_model = m->chunk->first_layer + layer;
    snprintf(full, sizeof full, "model.layers.%u.%s.weight", in_model, name);
    return make_tensor(m, 1 + in_model * LHI_LAYER_TENSORS + number, full, rows,
                       columns);
}

static void make_layer(maker *m, uint32_t layer)
{
    const lhi_cpu *cpu = m->cpu;
    lhi_cpu_weights *w = &m->chunk->weights[layer];
    lhi_cpu_weights *d = &m->chunk->d_weights[layer];
    const lhi_tensor *t;
    t = make_layer_tensor(m, layer, 0, "input_layernorm", cpu->h, 0);
    w->norm1 = t->value, d->norm1 = t->gradient;
    t = make_layer_tensor(m, layer, 1, "self_attn.q_proj", cpu->q, cpu->h);
    w->qkv = t->value, d->qkv = t->gradient;
    make_layer_tensor(m, layer, 2, "self_attn.k_proj", cpu->kv, cpu->h);
    make_layer_tensor(m, layer, 3, "self_attn.v_proj", cpu->kv, cpu->h);
    t = make_layer_tensor(m, layer, 4, "self_attn.o_proj", cpu->h, cpu->q);
    w->out = t->value, d->out = t->gradient;
    t = make_layer_tensor(m, layer, 5, "post_attention_layernorm", cpu->h, 0);
    w->norm2 = t->value, d->norm2 = t->gradient;
    t = make_layer_tensor(m, layer, 6, "mlp.gate_proj", cpu->f, cpu->h);
    w->gate_up = t->value, d->gate_up = t->gradient;
    make_layer_tensor(m, layer, 7, "mlp.up_proj", cpu->f, cpu->h);
    t = make_layer_tensor(m, layer, 8, "mlp.down_proj", cpu->h, cpu->f);
    w->down = t->value, d->down = t->gradient;
}

static void make_ends(maker *m, bool first)
{
    const lhi_cpu *cpu = m->cpu;
    lhi_cpu_chunk *chunk = m->chunk;
    uint32_t norm = 1 + cpu->layers * LHI_LAYER_TENSORS;
    lhi_tensor *t;
    if (first && chunk->is_first) {
        t = make_tensor(m, 0, "model.embed_tokens.weight", cpu->v, cpu->h);
        if (cpu->tied)
            t->tied_chunk = cpu->n_chunks - 1;
        chunk->embedding = t->value, chunk->d_embedding = t->gradient;
    }
    if (first || !chunk->is_last)
        return;
    t = make_tensor(m, norm, "model.norm.weight", cpu->h, 0);
    chunk->norm = t->value, chunk->d_norm = t->gradient;
    t = make_tensor(m, norm + 1,
                    cpu->tied ? "model.embed_tokens.weight" : "lm_head.weight",
                    cpu->v, cpu->h);
    chunk->head = t->value, chunk->d_head = t->gradient;
    if (cpu->tied) {
        t->tied_chunk = 0;
        t->is_head = true;
        draw(t->value, t->n, m->seed, 0); /* as the embedding */
    }
}

typedef struct item_maker {
    const lhi_cpu *cpu;
    lhi_arena *mem;
    lhi_cpu_chunk *chunk;
    lh_error *err;
} item_maker;

static lh_status make_item(const item_maker *m, lhi_cpu_item_kind kind,
                           uint32_t layer, uint64_t cost)
{
    lhi_cpu_chunk *chunk = m->chunk;
    lhi_cpu_item *item = &chunk->items[chunk->n_items++];
    *item = (lhi_cpu_item){
        .kind = kind, .layer = layer, .from = chunk->cost, .cost = cost};
    item->asked = LHI_NEW(m->mem, bool, m->cpu->n_microbatches);
    chunk->cost += cost;
    return item->asked ? LH_OK : lhi_fail_nomem(m->err);
}

lh_status lhi_cpu_items(const lhi_cpu *cpu, lhi_arena *mem,
                        lhi_cpu_chunk *chunk, lh_error *err)
{
    const item_maker m = {cpu, mem, chunk, err};
    uint64_t h = cpu->h, n = chunk->n_layers;
    chunk->items = LHI_NEW(mem, lhi_cpu_item, n * LHI_LAYER_ITEMS + 2);
    if (!chunk->items)
        return lhi_fail_nomem(err);
    if (chunk->is_first)
        LHI_TRY(make_item(&m, LHI_ITEM_EMBEDDING, 0, h));
    for (uint32_t i = 0; i < n; i++) {
        LHI_TRY(make_item(&m, LHI_ITEM_QKV, i,
                          h * (cpu->q + 2 * (uint64_t)cpu->kv)));
        LHI_TRY(make_item(&m, LHI_ITEM_OUT, i, h * cpu->q));
        LHI_TRY(make_item(&m, LHI_ITEM_GATE_UP, i, 2 * h * cpu->f));
        LHI_TRY(make_item(&m, LHI_ITEM_DOWN, i, h * cpu->f));
    }
    if (chunk->is_last)
        LHI_TRY(make_item(&m, LHI_ITEM_HEAD, 0, h * cpu->v));
    return LH_OK;
}

lh_status lhi_cpu_tensors(lhi_cpu *cpu, const lhi_cpu_options *options,
                          lhi_cpu_chunk *chunk, lh_error *err)
{
    lhi_arena *mem = cpu->mem;
    uint32_t n = chunk->n_layers;
    double values = lhi_cpu_values(cpu, n, chunk->is_first, chunk->is_last);
    maker m = {.cpu = cpu, .chunk = chunk, .mem = mem, .seed = options->seed};
    if (values > (double)(INT64_MAX / 8)) /* more than an address can say */
        return lhi_fail_nomem(err);
    chunk->n_values = (size_t)values;
    if (!(chunk->values =
              lhi_cpu_floats(cpu->parameters, chunk->n_values, 1)) ||
        !(chunk->gradients =
              lhi_cpu_floats(cpu->gradients, chunk->n_values, 1)) ||
        !(chunk->weights = LHI_NEW(mem, lhi_cpu_weights, n)) ||
        !(chunk->d_weights = LHI_NEW(mem, lhi_cpu_weights, n)) ||
        !(chunk->tensors =
              LHI_NEW(mem, lhi_tensor, n * LHI_LAYER_TENSORS + 3)) ||
        !(chunk->again = LHI_NEW(mem, uint32_t, n)) ||
        !(chunk->slots = LHI_NEW(mem, lhi_cpu_slot *, cpu->n_microbatches)) ||
        !(chunk->was_here = LHI_NEW(mem, bool, cpu->n_microbatches)))
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; options->again && i < n; i++)
        chunk->again[i] = options->again[chunk->first_layer + i];
    make_ends(&m, true);
    for (uint32_t i = 0; i < n; i++)
        make_layer(&m, i);
    make_ends(&m, false);
    if (m.failed)
        return lhi_fail_nomem(err);
    return lhi_cpu_items(cpu, mem, chunk, err);
}
