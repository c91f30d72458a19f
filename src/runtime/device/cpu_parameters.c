/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk's weights: layout, names and initial values. */
#include "base/fail.h"
#include "runtime/device/cpu_experts.h"
#include "runtime/device/cpu_sharding.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Random initial values (splitmix64) depend on the seed and the tensor's index
 * in the model only, and not on the distribution of chunks over devices. */
static const uint64_t STEP = UINT64_C(0x9e3779b97f4a7c15);

/* Returns the generator's next 64 random bits (splitmix64). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += STEP;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Fills `values` with normal random numbers: those at positions `first` to
 * first + n - 1 of the full tensor, whose generator starts with state `base`.
 * Draws pairs by Box and Muller's method, with Llama's initial standard
 * deviation. */
static void fill_normal_run(float *values, size_t first, size_t n,
                            uint64_t base)
{
    const double deviation = 0.02, pi = 3.14159265358979323846;
    uint64_t state = base + (uint64_t)(first / 2 * 2) * STEP;
    if (n > 0 && first % 2 == 1) { /* second number in a pair */
        float pair[2];
        fill_normal_run(pair, first - 1, 2, base);
        values[0] = pair[1];
        fill_normal_run(values + 1, first + 1, n - 1, base);
        return;
    }
    for (size_t i = 0; i < n; i += 2) {
        double a = ((double)(next_random(&state) >> 11) + 1) * 0x1p-53;
        double b = (double)(next_random(&state) >> 11) * 0x1p-53;
        double r = deviation * sqrt(-2 * log(a));
        values[i] = (float)(r * cos(2 * pi * b));
        if (i + 1 < n)
            values[i + 1] = (float)(r * sin(2 * pi * b));
    }
}

/* Fills the slice of model tensor `index` with normal random numbers from
 * `seed`. Each value equals the one that the complete tensor would have at its
 * position, whatever the slicing. */
static void fill_normal(float *values, const lhi_slice *slice, uint64_t seed,
                        uint32_t index)
{
    uint64_t state = seed;
    state = next_random(&state) + index;
    state = next_random(&state);
    for (size_t i = 0; i < lhi_slice_count_runs(slice); i++) {
        lhi_slice_run run = lhi_slice_run_of(slice, i);
        fill_normal_run(values + run.slice_offset, run.tensor_offset, run.n,
                        state);
    }
}

/* State while building a chunk's tensors. */
typedef struct tensor_builder {
    const lhi_cpu *cpu;
    lhi_cpu_chunk *chunk;
    lhi_arena *mem;
    uint64_t seed;
    size_t at; /* floats assigned so far */
    bool failed;
} tensor_builder;

/* Stores the addresses of a tensor's values and gradients at its role's fields:
 * in the weight tables `w` and `d`, or in the chunk. */
static void store_tensor_addresses(lhi_cpu_chunk *chunk, lhi_cpu_weights *w,
                                   lhi_cpu_weights *d, lhi_role role,
                                   const lhi_tensor *t)
{
    float **const places[][2] = {
        [LHI_ROLE_EMBEDDING] = {&chunk->embedding, &chunk->d_embedding},
        [LHI_ROLE_POSITIONS] = {&chunk->positions, &chunk->d_positions},
        [LHI_ROLE_NORM1] = {&w->norm1, &d->norm1},
        [LHI_ROLE_QKV] = {&w->qkv, &d->qkv},
        [LHI_ROLE_QKV_BIAS] = {&w->qkv_bias, &d->qkv_bias},
        [LHI_ROLE_Q_NORM] = {&w->q_norm, &d->q_norm},
        [LHI_ROLE_K_NORM] = {&w->k_norm, &d->k_norm},
        [LHI_ROLE_Q_DOWN] = {&w->q_down, &d->q_down},
        [LHI_ROLE_Q_UP] = {&w->q_up, &d->q_up},
        [LHI_ROLE_KV_DOWN] = {&w->kv_down, &d->kv_down},
        [LHI_ROLE_KV_UP] = {&w->kv_up, &d->kv_up},
        [LHI_ROLE_OUT] = {&w->out, &d->out},
        [LHI_ROLE_OUT_BIAS] = {&w->out_bias, &d->out_bias},
        [LHI_ROLE_NORM2] = {&w->norm2, &d->norm2},
        [LHI_ROLE_GATE_UP] = {&w->gate_up, &d->gate_up},
        [LHI_ROLE_GATE_UP_BIAS] = {&w->gate_up_bias, &d->gate_up_bias},
        [LHI_ROLE_DOWN] = {&w->down, &d->down},
        [LHI_ROLE_DOWN_BIAS] = {&w->down_bias, &d->down_bias},
        [LHI_ROLE_ROUTER] = {&w->router, &d->router},
        [LHI_ROLE_ROUTER_BIAS] = {&w->router_bias, &d->router_bias},
        [LHI_ROLE_SHARED] = {&w->shared, &d->shared},
        [LHI_ROLE_SHARED_GATE] = {&w->shared_gate, &d->shared_gate},
        [LHI_ROLE_EXPERTS] = {&w->experts, &d->experts},
        [LHI_ROLE_NORM] = {&chunk->norm, &chunk->d_norm},
        [LHI_ROLE_HEAD] = {&chunk->head, &chunk->d_head},
        [LHI_ROLE_EMBEDDING_COPY] = {&chunk->embedding_copy,
                                     &chunk->d_embedding_copy},
        [LHI_ROLE_ENORM] = {&w->enorm, &d->enorm},
        [LHI_ROLE_HNORM] = {&w->hnorm, &d->hnorm},
        [LHI_ROLE_MTP_JOIN] = {&w->join, &d->join},
        [LHI_ROLE_MODULE_NORM] = {&w->module_norm, &d->module_norm},
    };
    if (role == LHI_ROLE_CONTINUED)
        return;
    *places[role][0] = t->value;
    *places[role][1] = t->gradient;
}

/* Returns the chunk with the other copy of a tied embedding that `chunk` has:
 * the last or, with `last` false, the first chunk. With two directions it is
 * the other direction's, which is on the same device. */
static uint32_t find_end(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                         bool last)
{
    uint32_t n = cpu->n_chunks / cpu->n_directions;
    bool is_copy = cpu->n_directions > 1 && chunk->direction == 0;
    return is_copy * n + (last ? n - 1 : 0);
}

/* Adds the model's tensor `index` to the chunk if this rank has it, and
 * initialises it. Norm weights start at 1, biases at 0. `layer` is chunk-local
 * and ignored for tensors outside layers. */
static void make_tensor(tensor_builder *m, uint32_t index, uint32_t layer)
{
    lhi_cpu_chunk *chunk = m->chunk;
    lhi_model_tensor of;
    lhi_describe_model_tensor(m->cpu->model, index, &of);
    bool is_expert = of.expert != UINT32_MAX;
    if (is_expert && !lhi_cpu_has_expert(m->cpu, of.expert))
        return;
    if (is_expert && of.expert % m->cpu->n_local_experts != 0)
        of.role = LHI_ROLE_CONTINUED;
    lhi_tensor *tensor = &chunk->tensors[chunk->n_tensors++];
    lhi_slice slice = lhi_cpu_tensor_slice(m->cpu, &of);
    const char *copy = lhi_arena_strdup(m->mem, of.name);
    if (!copy)
        m->failed = true;
    *tensor = (lhi_tensor){
        .name = copy,
        .value = chunk->values + m->at,
        .gradient = chunk->gradients + m->at,
        .n = lhi_slice_count_values(&slice),
        .slice = slice,
        .rows = of.rows,
        .columns = of.columns,
        .decays = of.columns > 0,
        .balances = of.role == LHI_ROLE_ROUTER_BIAS,
        .is_expert = is_expert,
        .tied_chunk = LH_NONE,
        .index = index,
    };
    m->at += tensor->n;
    if (m->cpu->embeds_twice && of.role == LHI_ROLE_EMBEDDING) {
        tensor->tied_chunk = find_end(m->cpu, chunk, true);
    } else if (of.is_tied_copy) {
        tensor->tied_chunk = find_end(m->cpu, chunk, false);
        tensor->is_head = true;
        index = 0; /* same values as the embedding */
    }
    if (of.columns)
        fill_normal(tensor->value, &slice, m->seed, index);
    for (size_t i = 0; !of.columns && i < tensor->n; i++)
        tensor->value[i] = of.is_bias ? 0 : 1;
    store_tensor_addresses(chunk, &chunk->weights[layer],
                           &chunk->d_weights[layer], of.role, tensor);
}

/* State while building a chunk's W items. */
typedef struct item_builder {
    const lhi_cpu *cpu;
    lhi_arena *mem;
    lhi_cpu_chunk *chunk;
    lh_error *err;
} item_builder;

/* Adds a weight-gradient item (a group of weights whose gradients are computed
 * together) to the chunk. `cost`: multiplications per row. */
static lh_status make_item(const item_builder *m, lhi_cpu_item_kind kind,
                           uint32_t layer, uint64_t cost)
{
    lhi_cpu_chunk *chunk = m->chunk;
    lhi_cpu_item *item = &chunk->items[chunk->n_items++];
    *item = (lhi_cpu_item){
        .kind = kind, .layer = layer, .cost_before = chunk->cost, .cost = cost};
    item->requested = LHI_NEW(m->mem, bool, m->cpu->n_microbatches);
    chunk->cost += cost;
    return item->requested ? LH_OK : lhi_fail_nomem(m->err);
}

/* Counts the multiplications per row from norm1 to queries, keys and values. */
static uint64_t count_qkv_cost(const lhi_cpu *cpu)
{
    uint64_t h = cpu->h;
    if (!cpu->kv_rank)
        return h * cpu->qkv;
    uint64_t q = cpu->q_rank ? cpu->q_rank * (h + cpu->q) : h * cpu->q;
    uint64_t made =
        cpu->kv + cpu->values - (uint64_t)cpu->heads * cpu->rope_dim;
    return q + h * ((uint64_t)cpu->kv_rank + cpu->rope_dim) +
           cpu->kv_rank * made;
}

/* Adds the four weight-gradient items (groups of weights) of a layer to the
 * chunk, in the order of the layer's products. */
static lh_status make_layer_items(const item_builder *m, uint32_t layer)
{
    const lhi_cpu *cpu = m->cpu;
    uint64_t h = cpu->h;
    uint64_t mlp = h * lhi_cpu_mlp_width(cpu, m->chunk->moe[layer]);
    LHI_TRY(make_item(m, LHI_ITEM_QKV, layer, count_qkv_cost(cpu)));
    LHI_TRY(make_item(m, LHI_ITEM_OUT, layer, h * cpu->o));
    LHI_TRY(make_item(m, LHI_ITEM_GATE_UP, layer, cpu->gated ? 2 * mlp : mlp));
    return make_item(m, LHI_ITEM_DOWN, layer, mlp);
}

lh_status lhi_cpu_build_items(const lhi_cpu *cpu, lhi_arena *mem,
                              lhi_cpu_chunk *chunk, lh_error *err)
{
    const item_builder m = {cpu, mem, chunk, err};
    uint64_t h = cpu->h, n = chunk->n_layers, all = lhi_cpu_count_layers(chunk);
    chunk->items = LHI_NEW(mem, lhi_cpu_item, lhi_cpu_max_items(chunk));
    if (!chunk->items)
        return lhi_fail_nomem(err);
    if (chunk->is_first)
        LHI_TRY(make_item(&m, LHI_ITEM_EMBEDDING, 0, h));
    for (uint32_t i = 0; i < n; i++)
        LHI_TRY(make_layer_items(&m, i));
    if (chunk->is_last)
        LHI_TRY(make_item(&m, LHI_ITEM_HEAD, 0,
                          h * cpu->v * (1 + chunk->n_modules)));
    for (uint64_t i = n; i < all; i++) {
        LHI_TRY(make_item(&m, LHI_ITEM_MTP_JOIN, (uint32_t)i, 2 * h * h));
        LHI_TRY(make_layer_items(&m, (uint32_t)i));
    }
    return LH_OK;
}

lh_status lhi_cpu_build_layer_flags(const lhi_cpu *cpu, lhi_arena *mem,
                                    const lhi_cpu_options *options,
                                    lhi_cpu_chunk *chunk, lh_error *err)
{
    uint32_t n = lhi_cpu_count_layers(chunk);
    chunk->recompute = LHI_NEW(mem, uint32_t, n);
    chunk->offload = LHI_NEW(mem, uint32_t, n);
    chunk->moe = LHI_NEW(mem, bool, n);
    if (!chunk->recompute || !chunk->offload || !chunk->moe)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        /* The modules' layers follow the last chunk's layers. */
        uint32_t layer = chunk->first_layer + i;
        bool leaves =
            i < chunk->n_layers && options->offload && options->offload[layer];
        chunk->recompute[i] =
            options->recompute ? options->recompute[layer] : 0;
        if (leaves)
            chunk->offload[i] = LH_PART_ALL & ~chunk->recompute[i];
        chunk->moe[i] = lhi_layer_is_moe(cpu->model, layer);
    }
    return LH_OK;
}

/* Makes this rank's tensors of the chunk in the model's order: those before the
 * layers, in each layer, and after them. */
static void make_tensors(tensor_builder *m)
{
    const lh_model *model = m->cpu->model;
    const lhi_cpu_chunk *chunk = m->chunk;
    uint32_t at = lhi_layer_tensor_index(model, chunk->first_layer);
    for (uint32_t i = 0; chunk->is_first && i < lhi_count_front_tensors(model);
         i++)
        make_tensor(m, i, 0);
    for (uint32_t k = 0; k < chunk->n_layers; k++) {
        uint32_t end =
            lhi_layer_tensor_index(model, chunk->first_layer + k + 1);
        for (; at < end; at++)
            make_tensor(m, at, k);
    }
    at = lhi_layer_tensor_index(model, model->layers);
    uint32_t modules = lhi_module_tensor_index(model, 0);
    for (; chunk->is_last && at < modules; at++)
        make_tensor(m, at, 0);
    for (uint32_t k = 0; k < chunk->n_modules; k++) {
        uint32_t end = lhi_module_tensor_index(model, k + 1);
        for (; at < end; at++)
            make_tensor(m, at, chunk->n_layers + k);
    }
}

lh_status lhi_cpu_build_tensors(lhi_cpu *cpu, const lhi_cpu_options *options,
                                lhi_cpu_chunk *chunk, lh_error *err)
{
    lhi_arena *mem = cpu->mem;
    uint32_t n = lhi_cpu_count_layers(chunk);
    uint32_t n_tensors = lhi_cpu_count_chunk_tensors(cpu, chunk);
    double values = lhi_cpu_count_chunk_values(cpu, chunk);
    tensor_builder m = {
        .cpu = cpu, .chunk = chunk, .mem = mem, .seed = options->seed};
    if (values > (double)(INT64_MAX / 8)) /* exceeds the address space */
        return lhi_fail_nomem(err);
    chunk->n_values = (size_t)values;
    LHI_TRY(lhi_cpu_build_layer_flags(cpu, mem, options, chunk, err));
    LHI_TRY(lhi_cpu_build_items(cpu, mem, chunk, err));
    uint32_t unused;
    chunk->n_sharded_values = (size_t)lhi_cpu_choose_sharded_items(
        cpu, chunk, options->sharded_parameters, &unused);
    chunk->n_sharded_gradients = (size_t)lhi_cpu_choose_sharded_items(
        cpu, chunk, options->sharded_gradients, &chunk->n_sharded_items);
    chunk->has_values = true;
    chunk->has_gradients = chunk->n_sharded_gradients == 0;
    bool parted = chunk->n_sharded_values > 0 || chunk->n_sharded_gradients > 0;
    lhi_arena *parameters = parted ? cpu->full_values : cpu->parameters;
    lhi_arena *gradients = parted ? cpu->full_values : cpu->gradients;
    if (!(chunk->values =
              lhi_cpu_alloc_floats(parameters, chunk->n_values, 1)) ||
        !(chunk->gradients =
              lhi_cpu_alloc_floats(gradients, chunk->n_values, 1)) ||
        !(chunk->weights = LHI_NEW(mem, lhi_cpu_weights, n + 1)) ||
        !(chunk->d_weights = LHI_NEW(mem, lhi_cpu_weights, n + 1)) ||
        !(chunk->tensors = LHI_NEW(mem, lhi_tensor, n_tensors)) ||
        !(chunk->slots =
              LHI_NEW(mem, lhi_cpu_microbatch_state *, cpu->n_microbatches)) ||
        !(chunk->forward_done = LHI_NEW(mem, bool, cpu->n_microbatches)) ||
        (cpu->n_slices > 1 &&
         !(chunk->sliced = LHI_NEW(mem, lhi_cpu_sliced_sequences,
                                   cpu->n_microbatches / cpu->n_slices))))
        return lhi_fail_nomem(err);
    make_tensors(&m);
    if (m.failed)
        return lhi_fail_nomem(err);
    if ((chunk->shards_by_layer = options->shards_by_layer))
        LHI_TRY(lhi_cpu_build_parts(cpu, chunk, err));
    return parted ? lhi_cpu_detach_sharded_weights(cpu, chunk, err) : LH_OK;
}
