/* SPDX-License-Identifier: Apache-2.0 */
#include "format/job/model_size.h"
#include "runtime/device/cpu_attention.h"
#include "runtime/device/cpu_mtp.h"
#include "runtime/device/cpu_node_dispatch.h"
#include "runtime/device/cpu_product.h"
#include "runtime/device/cpu_sharding.h"
#include "runtime/device/cpu_tensor_parallel.h"

#include <math.h>
#include <stdalign.h>
#include <stddef.h>

enum { LINE_FLOATS = 16 }; /* a cache line */

float *lhi_cpu_alloc_floats(lhi_arena *mem, size_t rows, size_t columns)
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

/* Sets the device's expert dimensions: numbers of experts and of ranks that
 * share them, and the capacity per expert. */
static void shape_experts(lhi_cpu *cpu, const lhi_cpu_options *o)
{
    const lh_model *m = o->model;
    cpu->experts = m->experts;
    if (!m->experts)
        return;
    cpu->topk = m->experts_per_token;
    uint32_t cuts = o->n_expert_tensor ? o->n_expert_tensor : 1;
    cpu->n_expert_ranks = o->n_expert ? o->n_expert : 1;
    cpu->expert_rank = o->expert;
    cpu->n_local_experts = m->experts / cpu->n_expert_ranks;
    cpu->shards_experts =
        cuts > 1 && cuts == cpu->n_tensor_ranks && cpu->n_expert_ranks == 1;
    cpu->n_expert_tensor_ranks = cpu->shards_experts ? 1 : cuts;
    cpu->expert_tensor_rank =
        cpu->n_expert_tensor_ranks > 1 ? o->expert_tensor : 0;
    cpu->n_source_ranks = cpu->n_expert_ranks * cpu->n_expert_tensor_ranks;
    cpu->node_topology = lhi_cpu_compute_node_topology(o);
    cpu->expert_f = m->expert_ffn / cuts;
    cpu->shared_f = m->shared_expert_ffn / cpu->n_tensor_ranks;
    cpu->gates_shared = m->shared_expert_gate;
    cpu->sigmoid = m->router == LH_ROUTER_SIGMOID;
    cpu->raw_routing_weights = m->unnormalised_scores;
    cpu->routed_scale = m->routed_scale > 0 ? (float)m->routed_scale : 1;
    cpu->expert_groups = m->expert_groups;
    cpu->topk_groups = m->groups_per_token;
    cpu->balance_weight = (float)o->balance_weight;
    double even = (double)o->sequence * m->experts_per_token / m->experts;
    double most = ceil(o->expert_capacity * even);
    if (most > 0 && most < o->sequence)
        cpu->capacity = (uint32_t)most;
}

/* Computes the upper bound on the expert choices (row, expert) that this rank's
 * experts may receive, per row; cpu->max_rows must be set. */
static void bound_choices(lhi_cpu *cpu)
{
    cpu->max_choices = cpu->topk;
    if (!cpu->experts || cpu->n_source_ranks == 1)
        return;
    cpu->max_choices =
        cpu->n_source_ranks *
        (cpu->topk < cpu->n_local_experts ? cpu->topk : cpu->n_local_experts);
    double room = (double)cpu->n_source_ranks * cpu->capacity *
                  cpu->n_local_experts * cpu->microbatch;
    if (room > 0 && room < (double)cpu->max_choices * cpu->max_rows)
        cpu->max_choices = (uint32_t)ceil(room / cpu->max_rows);
}

/* Divides n units over the tensor-parallel ranks: *first and *count are this
 * rank's. */
static void compute_rank_share(const lhi_cpu *cpu, uint32_t n, uint32_t *first,
                               uint32_t *count)
{
    *first =
        (uint32_t)lhi_slice_first(n, cpu->n_tensor_ranks, cpu->tensor_rank);
    *count = (uint32_t)lhi_slice_first(n, cpu->n_tensor_ranks,
                                       cpu->tensor_rank + 1) -
             *first;
}

void lhi_cpu_compute_shape(lhi_cpu *cpu, const lhi_cpu_options *o)
{
    const lh_model *model = o->model;
    cpu->model = model;
    cpu->layers = model->layers;
    cpu->h = model->hidden;
    cpu->bf16 = o->bf16;
    cpu->n_threads = o->threads > 1 ? o->threads : 1;
    cpu->n_tensor_ranks = o->n_tensor ? o->n_tensor : 1;
    cpu->tensor_rank = o->tensor;
    cpu->heads = model->heads / cpu->n_tensor_ranks;
    cpu->kv_sharers = cpu->n_tensor_ranks > model->kv_heads
                          ? cpu->n_tensor_ranks / model->kv_heads
                          : 1;
    cpu->kv_heads = model->kv_heads * cpu->kv_sharers / cpu->n_tensor_ranks;
    cpu->qkv_bias = model->qkv_bias;
    cpu->first_head = cpu->heads * cpu->tensor_rank;
    cpu->head_dim = model->head_dim;
    cpu->q = cpu->heads * model->head_dim;
    cpu->kv = cpu->kv_heads * model->head_dim;
    cpu->kv_rank = model->kv_lora_rank;
    cpu->q_rank = cpu->kv_rank ? model->q_lora_rank : 0;
    cpu->rope_dim = cpu->kv_rank ? model->qk_rope_head_dim : model->head_dim;
    cpu->value_dim = cpu->kv_rank ? model->v_head_dim : model->head_dim;
    cpu->values = cpu->kv_heads * cpu->value_dim;
    cpu->qkv = cpu->q + cpu->kv + cpu->values;
    cpu->o = cpu->heads * cpu->value_dim;
    cpu->head_norms = model->qk_norm;
    cpu->inner = cpu->kv_rank      ? cpu->q_rank + cpu->kv_rank
                 : cpu->head_norms ? 2 * cpu->head_dim
                                   : 0;
    cpu->parallel = model->parallel_block;
    shape_experts(cpu, o);
    bool dense = lhi_model_moe_layers(model, 0, model->layers) < model->layers;
    cpu->f = dense ? model->ffn / cpu->n_tensor_ranks : 0;
    compute_rank_share(cpu, model->vocab, &cpu->first_token, &cpu->v);
    cpu->embeds_twice = lhi_needs_second_embedding(model);
    cpu->modules = model->mtp_layers;
    cpu->family = lhi_family_get(model);
    cpu->gated = model->gated;
    cpu->up = model->gated ? 2 * cpu->f : cpu->f;
    cpu->positions = model->positions;
    cpu->norm_vectors = model->norm == LH_NORM_LAYER ? 2 : 1;
    cpu->weights_in_first = cpu->family == LHI_FAMILY_GPT2;
    cpu->drop_threshold = (uint32_t)(o->dropout * 0x1p24);
    cpu->drop_scale = (float)(1 / (1 - o->dropout));
    cpu->seed = o->seed;
    cpu->whole_sequence = o->sequence;
    cpu->n_context_ranks = o->n_contexts ? o->n_contexts : 1;
    cpu->context_rank = o->context;
    cpu->n_slices = o->n_slices ? o->n_slices : 1;
    cpu->sequence = o->sequence / cpu->n_context_ranks / cpu->n_slices;
    cpu->key_rows = cpu->sequence * cpu->n_slices;
    cpu->piece = cpu->sequence / lhi_cpu_count_pieces(cpu);
    cpu->microbatch = o->microbatch;
    cpu->t = o->microbatch * cpu->sequence;
    cpu->replicates_rows = o->replicates_rows && cpu->n_tensor_ranks > 1;
    compute_rank_share(cpu, cpu->t, &cpu->first_row, &cpu->r);
    cpu->n_sent = cpu->r;
    cpu->max_rows =
        cpu->t / cpu->n_tensor_ranks + (cpu->t % cpu->n_tensor_ranks != 0);
    if (cpu->replicates_rows) {
        cpu->first_sent = cpu->first_row;
        cpu->first_row = 0;
        cpu->r = cpu->t;
    }
    bool parts = cpu->replicates_rows && !cpu->shards_experts;
    cpu->first_router_row = parts ? cpu->first_sent : cpu->first_row;
    cpu->router_rows = parts ? cpu->n_sent : cpu->r;
    cpu->dispatched_rows = cpu->router_rows;
    if (cpu->shards_experts) {
        cpu->max_rows = cpu->dispatched_rows = cpu->t;
        cpu->first_dispatched_row = cpu->first_row;
    }
    bound_choices(cpu);
    cpu->n_microbatches = o->n_microbatches;
    cpu->n_chunks = o->n_chunks;
    cpu->n_directions = o->bidirectional ? 2 : 1;
    cpu->block = cpu->key_rows > 1024 ? 128 : 64;
}

uint32_t lhi_cpu_count_layer_tensors(const lhi_cpu *cpu, uint32_t first,
                                     uint32_t n_layers)
{
    const lh_model *m = cpu->model;
    uint32_t n = lhi_layer_tensor_index(m, first + n_layers) -
                 lhi_layer_tensor_index(m, first);
    return n - 3 * (cpu->experts - cpu->n_local_experts) *
                   lhi_model_moe_layers(m, first, n_layers);
}

uint32_t lhi_cpu_count_chunk_tensors(const lhi_cpu *cpu,
                                     const lhi_cpu_chunk *chunk)
{
    const lh_model *m = cpu->model;
    uint32_t back = m->layers;
    uint32_t n =
        lhi_cpu_count_layer_tensors(cpu, chunk->first_layer, chunk->n_layers);
    if (chunk->is_first)
        n += lhi_count_front_tensors(m);
    if (chunk->is_last)
        n += lhi_count_model_tensors(m) - lhi_layer_tensor_index(m, back) -
             3 * (cpu->experts - cpu->n_local_experts) *
                 lhi_cpu_count_moe_modules(cpu);
    return n;
}

uint32_t lhi_cpu_count_moe_modules(const lhi_cpu *cpu)
{
    return lhi_layer_is_moe(cpu->model, cpu->layers) ? cpu->modules : 0;
}

lhi_slice lhi_cpu_tensor_slice(const lhi_cpu *cpu, const lhi_model_tensor *of)
{
    if (of->expert != UINT32_MAX && !cpu->shards_experts)
        return lhi_model_slice(of, cpu->n_expert_tensor_ranks,
                               cpu->expert_tensor_rank);
    return lhi_model_slice(of, cpu->n_tensor_ranks, cpu->tensor_rank);
}

double lhi_cpu_count_values(const lhi_cpu *cpu, uint32_t first, uint32_t n)
{
    double values = 0;
    if (cpu->n_tensor_ranks == 1 && (!cpu->experts || cpu->n_source_ranks == 1))
        return lhi_count_values(cpu->model, first, n);
    for (uint32_t i = first; i < first + n; i++) {
        lhi_model_tensor of;
        lhi_describe_model_tensor(cpu->model, i, &of);
        lhi_slice slice = lhi_cpu_tensor_slice(cpu, &of);
        if (of.expert == UINT32_MAX || lhi_cpu_has_expert(cpu, of.expert))
            values += (double)lhi_slice_count_values(&slice);
    }
    return values;
}

double lhi_cpu_count_chunk_values(const lhi_cpu *cpu,
                                  const lhi_cpu_chunk *chunk)
{
    const lh_model *m = cpu->model;
    uint32_t first = lhi_layer_tensor_index(m, chunk->first_layer);
    uint32_t end =
        lhi_layer_tensor_index(m, chunk->first_layer + chunk->n_layers);
    uint32_t back = lhi_layer_tensor_index(m, m->layers);
    double values = lhi_cpu_count_values(cpu, first, end - first);
    if (chunk->is_first)
        values += lhi_cpu_count_values(cpu, 0, lhi_count_front_tensors(m));
    if (chunk->is_last)
        values +=
            lhi_cpu_count_values(cpu, back, lhi_count_model_tensors(m) - back);
    return values;
}

size_t lhi_cpu_mlp_width(const lhi_cpu *cpu, bool moe)
{
    return moe ? (size_t)cpu->topk * cpu->expert_f + cpu->shared_f : cpu->f;
}

/* Returns the floats per microbatch in gate_up or act, in a dense layer or,
 * with `moe`, in one with experts. With expert parallelism it assumes the most
 * rows that may arrive, and includes the saved received rows. */
static double mlp_floats(const lhi_cpu *cpu, bool moe, bool gate_up)
{
    double t = cpu->t, all = (double)cpu->max_choices * cpu->max_rows;
    if (!moe)
        return t * (gate_up ? cpu->up : cpu->f);
    if (!gate_up)
        return all * cpu->expert_f;
    return all *
           (2.0 * cpu->expert_f + (cpu->n_source_ranks > 1 ? 2 * cpu->h : 0));
}

/* Returns the floats per row (token) in part `part` of a layer's saved
 * activations, such as qkv or the MLP norm. */
static size_t count_part_columns(const lhi_cpu *cpu, lh_layer_part part)
{
    switch (part) {
    case LH_PART_LATENT: /* before and after the norms, one inverse each */
        return cpu->kv_rank ? 2 * ((size_t)cpu->q_rank + cpu->kv_rank) +
                                  cpu->rope_dim + 2
                            : 0;
    case LH_PART_QKV: /* with norms also their inputs and one float per head */
        return cpu->qkv + (cpu->head_norms ? (size_t)cpu->q + cpu->kv +
                                                 cpu->heads + cpu->kv_heads
                                           : 0);
    case LH_PART_ATTENTION: /* and two floats per head */
        return cpu->o + 2 * (size_t)cpu->heads;
    case LH_PART_MLP_NORM:
        return cpu->parallel ? 0 : cpu->h;
    default:
        return cpu->h;
    }
}

double lhi_cpu_part_floats(const lhi_cpu *cpu, lh_layer_part part, bool moe)
{
    double shared = moe ? (double)cpu->t * cpu->shared_f : 0;
    if (part == LH_PART_GATE_UP || part == LH_PART_ACTIVATION)
        return mlp_floats(cpu, moe, part == LH_PART_GATE_UP);
    if (part == LH_PART_SHARED_GATE_UP || part == LH_PART_SHARED_ACTIVATION)
        return part == LH_PART_SHARED_GATE_UP ? 2 * shared : shared;
    double rows = part == LH_PART_ATTENTION_OUTPUT ? cpu->r : cpu->t;
    return rows * (double)count_part_columns(cpu, part);
}

double lhi_cpu_float_bytes(double n)
{
    double unit = alignof(max_align_t);
    return ceil((n + LINE_FLOATS) * sizeof(float) / unit) * unit;
}

double lhi_cpu_part_bytes(const lhi_cpu *cpu, lh_layer_part part, bool moe)
{
    double n = lhi_cpu_part_floats(cpu, part, moe);
    return n > 0 ? lhi_cpu_float_bytes(n) : 0;
}

/* Returns the bytes of one microbatch's tables of the token copies that this
 * rank relays to its node's experts, as lhi_cpu_make_copies() allocates them; 0
 * without node-aware dispatch. */
static double count_kept_copies_bytes(const lhi_cpu *cpu)
{
    double all = (double)cpu->node_topology.sources *
                 (double)lhi_cpu_choice_table_size(cpu);
    if (cpu->node_topology.nodes == 0)
        return 0;
    return (all + cpu->node_topology.node_ranks + 1) * sizeof(int32_t) +
           lhi_cpu_float_bytes(all);
}

/* Returns the bytes allocated by lhi_cpu_make_routes() in cpu_router.c. */
static double count_route_bytes(const lhi_cpu *cpu)
{
    double all = (double)cpu->dispatched_rows * cpu->topk;
    double gates = cpu->gates_shared ? 2 * lhi_cpu_float_bytes(cpu->t) : 0;
    return lhi_cpu_float_bytes((double)cpu->router_rows * cpu->experts) +
           gates + lhi_cpu_float_bytes(all) + count_kept_copies_bytes(cpu) +
           (3 * all + cpu->experts + 1.0 +
            (cpu->n_source_ranks > 1
                 ? cpu->n_source_ranks * (double)cpu->n_local_experts + 1
                 : 0)) *
               sizeof(int32_t);
}

/* Returns the bytes allocated by lhi_cpu_make_modules() in cpu_mtp.c. */
static double count_module_bytes(const lhi_cpu *cpu)
{
    double t = cpu->t, r = cpu->r, h = cpu->h;
    double shared =
        lhi_cpu_has_sequence_parallel(cpu) ? lhi_cpu_float_bytes(t * h) : 0;
    return sizeof(lhi_cpu_mtp_activations) + shared +
           3 * (lhi_cpu_float_bytes(r * h) + lhi_cpu_float_bytes(r) +
                lhi_cpu_float_bytes(h)) +
           lhi_cpu_float_bytes(t * h) + lhi_cpu_float_bytes(t * cpu->v);
}

double lhi_cpu_microbatch_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk)
{
    double t = cpu->t, r = cpu->r, h = cpu->h, n = lhi_cpu_count_layers(chunk);
    double inputs = lhi_cpu_count_inputs(chunk);
    double vectors = cpu->norm_vectors; /* vectors per norm; also per norm
                                         * gradient */
    double shared =
        lhi_cpu_has_sequence_parallel(cpu) ? lhi_cpu_float_bytes(t * h) : 0;
    double bytes = sizeof(lhi_cpu_microbatch_state) +
                   n * sizeof(lhi_cpu_saved_activations) +
                   inputs * (sizeof(float *) + lhi_cpu_float_bytes(r * h)) +
                   2 * n *
                       (lhi_cpu_float_bytes(vectors * r) +
                        lhi_cpu_float_bytes(vectors * h));
    for (uint32_t k = 0; k < lhi_cpu_count_layers(chunk); k++) {
        bool moe = chunk->moe[k];
        for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++)
            if (!((chunk->recompute[k] | chunk->offload[k]) >> i & 1))
                bytes += lhi_cpu_part_bytes(cpu, (lh_layer_part)i, moe);
        bytes += (moe ? count_route_bytes(cpu) : 0) +
                 (lhi_cpu_mlp_gathers_rows(cpu, moe) ? 2 : 1) * shared;
    }
    if (cpu->inner)
        bytes += n * lhi_cpu_float_bytes(cpu->inner);
    if (chunk->is_first)
        bytes += t * sizeof(int32_t) + shared;
    if (chunk->is_last)
        bytes += (1 + chunk->n_modules) * t * sizeof(int32_t) +
                 lhi_cpu_float_bytes(t * h) + lhi_cpu_float_bytes(vectors * r) +
                 lhi_cpu_float_bytes(t * cpu->v) +
                 lhi_cpu_float_bytes(vectors * h) +
                 chunk->n_modules * count_module_bytes(cpu);
    return bytes;
}

double lhi_cpu_compute_offload_bytes(const lhi_cpu *cpu,
                                     const lhi_cpu_chunk *chunk)
{
    double bytes = 0;
    for (uint32_t k = 0; k < chunk->n_layers; k++)
        for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++)
            if (chunk->offload[k] >> i & 1)
                bytes +=
                    lhi_cpu_part_floats(cpu, (lh_layer_part)i, chunk->moe[k]) *
                    sizeof(float);
    return bytes;
}

double lhi_cpu_chunk_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk)
{
    const double name = 64;
    double n = lhi_cpu_count_layers(chunk), microbatches = cpu->n_microbatches;
    double tensors = lhi_cpu_count_chunk_tensors(cpu, chunk);
    double items =
        (double)lhi_cpu_max_items(chunk) - !chunk->is_first - !chunk->is_last;
    double part = sizeof *chunk->parts + 2 * sizeof(float *);
    return sizeof *chunk + (chunk->shards_by_layer ? (n + 2) * part : 0) +
           (n + 1) * 2 * sizeof(lhi_cpu_weights) +
           n * (2 * sizeof(uint32_t) + sizeof(bool)) +
           tensors * (sizeof(lhi_tensor) + name) +
           items * (sizeof(lhi_cpu_item) + microbatches) +
           microbatches * (sizeof(lhi_cpu_microbatch_state *) + sizeof(bool)) +
           (cpu->n_slices > 1 ? microbatches / cpu->n_slices *
                                    sizeof(lhi_cpu_sliced_sequences)
                              : 0);
}

/* Counts the partial-sum gradients of a weight-gradient item (a group of
 * weights whose gradients are computed together), final norm included.
 * describe_partial() in cpu_tensor_parallel.c lists them. */
static size_t count_item_partial(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                                 const lhi_cpu_item *item)
{
    const bool shares = lhi_cpu_has_sequence_parallel(cpu);
    size_t norm = shares ? (size_t)cpu->norm_vectors * cpu->h : 0;
    size_t n = norm + cpu->inner;
    size_t kv = (size_t)(cpu->kv + cpu->values) * (cpu->h + cpu->qkv_bias);
    size_t routes = lhi_cpu_distributes_routing(cpu)
                        ? (size_t)cpu->experts * (cpu->h + cpu->sigmoid)
                        : 0;
    routes += shares && cpu->gates_shared ? cpu->h : 0;
    switch (item->kind) {
    case LHI_ITEM_QKV:
        if (cpu->kv_rank)
            n += ((size_t)cpu->q_rank + cpu->kv_rank + cpu->rope_dim) * cpu->h;
        if (cpu->kv_sharers > 1)
            n += cpu->n_tensor_ranks / cpu->kv_sharers * kv;
        return n;
    case LHI_ITEM_GATE_UP:
        return (cpu->parallel ? 0 : norm) +
               (chunk->moe[item->layer] ? routes : 0);
    case LHI_ITEM_HEAD:
        return norm;
    case LHI_ITEM_MTP_JOIN:
        return shares ? 3 * norm + 2 * (size_t)cpu->h * cpu->h : 0;
    default:
        return 0;
    }
}

/* Returns the floats in the largest reduction of partial-sum gradients. A
 * reduction covers one part with per-layer sharding, otherwise all sharded
 * items or all others. */
size_t lhi_cpu_count_partial_gradients(const lhi_cpu *cpu,
                                       const lhi_cpu_chunk *chunk)
{
    size_t most = 0, sum = 0;
    uint32_t before = LH_NONE;
    for (uint32_t i = 0; i < chunk->n_items; i++) {
        const lhi_cpu_item *item = &chunk->items[i];
        uint32_t with = chunk->shards_by_layer ? lhi_cpu_item_part(chunk, item)
                                               : i < chunk->n_sharded_items;
        sum = count_item_partial(cpu, chunk, item) + (with == before ? sum : 0);
        most = sum > most ? sum : most;
        before = with;
    }
    return most;
}

/* Returns the bytes allocated by lhi_cpu_make_tensor_parallel() in
 * cpu_tensor_parallel.c. */
static double count_tensor_parallel_bytes(const lhi_cpu *cpu)
{
    double n = cpu->n_tensor_ranks, t = cpu->t, h = cpu->h;
    if (cpu->n_tensor_ranks == 1)
        return 0;
    return 3 * n * sizeof(size_t) + lhi_cpu_float_bytes(t * h) +
           lhi_cpu_float_bytes(3 * n * t);
}

double lhi_cpu_group_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk)
{
    uint32_t n = cpu->n_tensor_ranks, mine = cpu->tensor_rank;
    size_t choices = lhi_cpu_distributes_routing(cpu)
                         ? (size_t)cpu->microbatch * cpu->experts
                         : 0;
    size_t rows = (size_t)cpu->r * cpu->h;
    size_t dots = cpu->gates_shared ? cpu->t : 0;
    size_t shares = cpu->shards_experts ? (size_t)cpu->t * cpu->topk : 0;
    if (n == 1)
        return 0;
    double bytes = fmax(
        (double)(cpu->replicates_rows ? lhi_group_reduce_bytes(n, mine, rows)
                                      : lhi_group_scatter_bytes(n, rows)),
        (double)lhi_group_reduce_bytes(
            n, mine, lhi_cpu_count_partial_gradients(cpu, chunk)));
    bytes = fmax(bytes, (double)lhi_group_reduce_bytes(n, mine, choices));
    bytes = fmax(bytes, (double)lhi_group_reduce_bytes(n, mine, shares));
    return fmax(bytes, (double)lhi_group_reduce_bytes(n, mine, dots));
}

/* Returns the bytes allocated by lhi_cpu_make_node_dispatch() in
 * cpu_node_dispatch.c. */
static double count_node_dispatch_bytes(const lhi_cpu *cpu)
{
    const lhi_cpu_node_topology *s = &cpu->node_topology;
    double n = cpu->n_expert_ranks, width = (double)cpu->h + cpu->topk;
    double copies = (double)lhi_cpu_max_copies(cpu);
    if (s->nodes == 0)
        return 0;
    return sizeof *cpu->node_dispatch +
           (2 * n + s->node_ranks + s->sources) * sizeof(uint32_t) +
           n * sizeof(bool) +
           (double)(lhi_cpu_header_words(cpu) + lhi_cpu_copy_table_size(cpu)) *
               sizeof(int32_t) +
           lhi_cpu_float_bytes(width * cpu->max_rows * s->nodes) +
           lhi_cpu_float_bytes(width * cpu->max_rows * s->sources) +
           lhi_cpu_float_bytes(copies * (cpu->h + 1.0));
}

/* Returns the bytes allocated by lhi_cpu_make_expert_parallel() in
 * cpu_expert_parallel.c. */
static double count_expert_rank_bytes(const lhi_cpu *cpu)
{
    double all = (double)cpu->max_choices * cpu->max_rows;
    if (!cpu->experts || cpu->n_source_ranks == 1)
        return 0;
    return (1.0 + cpu->n_expert_tensor_ranks) * cpu->experts * sizeof(int32_t) +
           (double)LHI_CPU_EXCHANGE_SIZES * lhi_cpu_max_partners(cpu) *
               sizeof(size_t) +
           lhi_cpu_float_bytes(all * (cpu->h + 1.0)) +
           lhi_cpu_float_bytes(all) + count_node_dispatch_bytes(cpu);
}

size_t lhi_cpu_scratch_width(const lhi_cpu *cpu)
{
    size_t routed = (size_t)cpu->max_choices * cpu->expert_f;
    if (cpu->n_tensor_ranks > 1) /* with fewer rows */
        routed = routed * cpu->max_rows / cpu->t + 1;
    const size_t mlps[] = {cpu->f, routed, cpu->shared_f};
    size_t widest = cpu->h;
    for (size_t i = 0; i < sizeof mlps / sizeof *mlps; i++)
        widest = mlps[i] > widest ? mlps[i] : widest;
    size_t attention = cpu->q > cpu->o ? cpu->q : cpu->o;
    if (cpu->kv_rank) { /* non-rotary keys and values; or a latent */
        size_t made =
            cpu->kv + cpu->values - (size_t)cpu->heads * cpu->rope_dim;
        attention = attention > made ? attention : made;
        attention = attention > cpu->kv_rank ? attention : cpu->kv_rank;
    }
    return widest < attention ? attention : widest;
}

size_t lhi_cpu_second_scratch_width(const lhi_cpu *cpu)
{
    size_t most = cpu->kv_rank || cpu->parallel ? cpu->h : 0;
    most = most > cpu->q_rank ? most : cpu->q_rank;
    most = most > cpu->kv_rank ? most : cpu->kv_rank;
    return cpu->kv_rank && cpu->rope_dim > most ? cpu->rope_dim : most;
}

/* Returns the bytes allocated by lhi_cpu_make_context_parallel() in
 * cpu_context_parallel.c. */
static double count_context_bytes(const lhi_cpu *cpu)
{
    double t = cpu->t, block = cpu->block;
    if (cpu->n_context_ranks == 1)
        return 0;
    return 4 * lhi_cpu_float_bytes(t * (double)lhi_cpu_ring_width(cpu)) +
           lhi_cpu_float_bytes(t * cpu->q) +
           lhi_cpu_float_bytes(block * cpu->value_dim) +
           2 * lhi_cpu_float_bytes(block);
}

/* Returns the number of ranks whose expert choices lhi_cpu_make_choices() in
 * cpu_router.c stores. */
static uint32_t count_choice_ranks(const lhi_cpu *cpu)
{
    return cpu->n_tensor_ranks > cpu->n_context_ranks ? cpu->n_tensor_ranks
                                                      : cpu->n_context_ranks;
}

size_t lhi_cpu_choice_bytes(const lhi_cpu *cpu)
{
    size_t all = (size_t)cpu->n_context_ranks * cpu->t * cpu->topk;
    if ((!cpu->capacity && !cpu->shards_experts) ||
        count_choice_ranks(cpu) == 1)
        return 0;
    return (cpu->capacity ? all * sizeof(int32_t) : 0) +
           count_choice_ranks(cpu) * sizeof(size_t);
}

double lhi_cpu_scratch_bytes(const lhi_cpu *cpu)
{
    double s = cpu->sequence, block = cpu->block, d = cpu->head_dim;
    double t = cpu->t;
    double all = (double)cpu->max_choices * cpu->max_rows;
    double routed =
        cpu->experts
            ? lhi_cpu_float_bytes((double)lhi_cpu_dispatch_floats(cpu)) +
                  lhi_cpu_float_bytes(all) +
                  lhi_cpu_float_bytes((1.0 + cpu->microbatch) * cpu->experts)
            : 0;
    double dropped =
        cpu->drop_threshold ? lhi_cpu_float_bytes((double)cpu->r * cpu->h) : 0;
    double beside = (double)lhi_cpu_second_scratch_width(cpu);
    double losses = (double)cpu->n_microbatches * cpu->n_directions;
    if (cpu->bf16)
        dropped += lhi_cpu_float_bytes((double)lhi_cpu_count_bf16_floats(cpu));
    if (beside > 0)
        dropped += lhi_cpu_float_bytes(t * beside);
    return sizeof *cpu + count_tensor_parallel_bytes(cpu) +
           count_expert_rank_bytes(cpu) + dropped + routed +
           count_context_bytes(cpu) + (double)lhi_cpu_choice_bytes(cpu) +
           lhi_cpu_float_bytes(t * (double)lhi_cpu_scratch_width(cpu)) +
           2 * lhi_cpu_float_bytes(block * cpu->key_rows) +
           2 * lhi_cpu_float_bytes(cpu->key_rows * (cpu->rope_dim / 2.0)) +
           lhi_cpu_float_bytes(block * d) + lhi_cpu_float_bytes(s * d) +
           lhi_cpu_float_bytes(s * cpu->value_dim) +
           lhi_cpu_float_bytes(block) +
           (cpu->whole_sequence + 1.0 + cpu->modules) * sizeof(int32_t) +
           losses * (sizeof(double) + sizeof(bool)) +
           (cpu->modules ? lhi_cpu_float_bytes((double)cpu->r * cpu->h) +
                               losses * sizeof(double)
                         : 0);
}

lhi_cpu_chunk lhi_cpu_init_chunk(const lhi_cpu_options *o, uint32_t i)
{
    uint32_t n = lhi_cpu_count_model_chunks(o), c = o->mine[i] % n;
    uint32_t first = o->first_layers[c];
    bool is_last = c + 1 == n;
    return (lhi_cpu_chunk){.chunk = o->mine[i],
                           .direction = o->mine[i] / n,
                           .first_layer = first,
                           .n_layers = o->first_layers[c + 1] - first,
                           .n_modules = is_last ? o->model->mtp_layers : 0,
                           .is_first = c == 0,
                           .is_last = is_last};
}

double lhi_cpu_count_parameters(const lhi_cpu_options *o, uint32_t i)
{
    lhi_cpu cpu = {0};
    const lhi_cpu_chunk chunk = lhi_cpu_init_chunk(o, i);
    lhi_cpu_compute_shape(&cpu, o);
    return lhi_cpu_count_chunk_values(&cpu, &chunk);
}

uint32_t lhi_cpu_count_tensors(const lhi_cpu_options *o, uint32_t i)
{
    lhi_cpu cpu = {0};
    const lhi_cpu_chunk chunk = lhi_cpu_init_chunk(o, i);
    lhi_cpu_compute_shape(&cpu, o);
    return lhi_cpu_count_chunk_tensors(&cpu, &chunk);
}

double lhi_cpu_count_expert_values(const lhi_cpu *cpu)
{
    return 3.0 * (double)cpu->expert_f * (double)cpu->h * cpu->n_local_experts;
}

double lhi_cpu_count_expert_parameters(const lhi_cpu_options *o, uint32_t i)
{
    lhi_cpu cpu = {0};
    const lhi_cpu_chunk chunk = lhi_cpu_init_chunk(o, i);
    uint32_t layers =
        lhi_model_moe_layers(o->model, chunk.first_layer, chunk.n_layers);
    lhi_cpu_compute_shape(&cpu, o);
    if (chunk.is_last)
        layers += lhi_cpu_count_moe_modules(&cpu);
    return lhi_cpu_count_expert_values(&cpu) * layers;
}

double lhi_cpu_count_embedding_parameters(const lhi_cpu_options *o)
{
    lhi_cpu cpu = {0};
    lhi_cpu_compute_shape(&cpu, o);
    return (double)cpu.v * cpu.h;
}

size_t lhi_cpu_message_bytes(const lhi_cpu_options *o)
{
    lhi_cpu cpu = {0};
    lhi_cpu_compute_shape(&cpu, o);
    return (size_t)cpu.n_sent * cpu.h * sizeof(float);
}

/* Counts this rank's parameters of a chunk with n_layers layers from `first`
 * on; `is_first`, `is_last`: with embedding, with head. */
static double count_model_chunk_values(const lhi_cpu *cpu, uint32_t first,
                                       uint32_t n_layers, bool is_first,
                                       bool is_last)
{
    const lhi_cpu_chunk chunk = {.first_layer = first,
                                 .n_layers = n_layers,
                                 .is_first = is_first,
                                 .is_last = is_last};
    return lhi_cpu_count_chunk_values(cpu, &chunk);
}

lhi_cpu_part_sizes lhi_cpu_compute_part_sizes(const lhi_cpu_options *o,
                                              uint32_t i)
{
    lhi_cpu cpu = {0};
    const lhi_cpu_chunk chunk = lhi_cpu_init_chunk(o, i);
    uint32_t first = chunk.first_layer, n = chunk.n_layers;
    bool is_first = chunk.is_first, is_last = chunk.is_last;
    lhi_cpu_compute_shape(&cpu, o);
    double front =
        is_first ? count_model_chunk_values(&cpu, 0, 0, true, false) : 0;
    double back =
        is_last ? count_model_chunk_values(&cpu, 0, 0, false, true) : 0;
    double theirs = is_last ? lhi_cpu_count_moe_modules(&cpu) *
                                  lhi_cpu_count_expert_values(&cpu)
                            : 0;
    lhi_cpu_part_sizes out = {n + is_first + is_last, fmax(front, back),
                              fmax(front, back - theirs), theirs};
    for (uint32_t k = 0; k < n; k++) {
        double one = count_model_chunk_values(&cpu, first + k, 1, false, false);
        double experts = lh_model_layer_is_moe(o->model, first + k)
                             ? lhi_cpu_count_expert_values(&cpu)
                             : 0;
        out.largest = fmax(out.largest, one);
        out.largest_without_experts =
            fmax(out.largest_without_experts, one - experts);
        out.experts = fmax(out.experts, experts);
    }
    return out;
}
