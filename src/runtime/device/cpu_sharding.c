/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded weights and gradients: those of a chunk's first items, in the number
 * closest to the requested share. They have no permanent memory here; the
 * caller that runs the passes provides buffers. */
#include "runtime/device/cpu_sharding.h"
#include "base/fail.h"

#include <math.h>
#include <string.h>

/* Returns the weight-gradient item (group of weights whose gradients are
 * computed together) of a layer's tensor with this role. Roles that begin no
 * group belong to the preceding group `before`. */
static lhi_cpu_item_kind find_item_kind(lhi_role role, lhi_cpu_item_kind before)
{
    switch (role) {
    case LHI_ROLE_NORM1:
        return LHI_ITEM_QKV;
    case LHI_ROLE_OUT:
        return LHI_ITEM_OUT;
    case LHI_ROLE_NORM2:
    case LHI_ROLE_GATE_UP: /* if attention and MLP share norm1 */
        return LHI_ITEM_GATE_UP;
    case LHI_ROLE_DOWN:
        return LHI_ITEM_DOWN;
    default:
        return before;
    }
}

/* Counts this rank's parameters of a weight-gradient item, which are
 * contiguous. */
static double count_item_values(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                                const lhi_cpu_item *item)
{
    const lh_model *m = cpu->model;
    uint32_t back = lhi_layer_tensor_index(m, m->layers);
    if (item->kind == LHI_ITEM_EMBEDDING)
        return lhi_cpu_count_values(cpu, 0, lhi_count_front_tensors(m));
    if (item->kind == LHI_ITEM_HEAD)
        return lhi_cpu_count_values(cpu, back,
                                    lhi_count_model_tensors(m) - back);
    if (item->layer >= chunk->n_layers) /* counted with the head */
        return 0;
    uint32_t layer = chunk->first_layer + item->layer;
    uint32_t first = lhi_layer_tensor_index(m, layer);
    lhi_cpu_item_kind at = LHI_ITEM_QKV;
    double sum = 0;
    for (uint32_t i = 0; i < lhi_count_layer_tensors(m, layer); i++) {
        lhi_model_tensor of;
        lhi_describe_model_tensor(m, first + i, &of);
        at = find_item_kind(of.role, at);
        sum += at == item->kind ? lhi_cpu_count_values(cpu, first + i, 1) : 0;
    }
    return sum;
}

double lhi_cpu_choose_sharded_items(const lhi_cpu *cpu,
                                    const lhi_cpu_chunk *chunk, double share,
                                    uint32_t *n_items)
{
    double all = 0, at = 0, best = 0;
    *n_items = 0;
    for (uint32_t i = 0; share > 0 && i < chunk->n_items; i++)
        all += count_item_values(cpu, chunk, &chunk->items[i]);
    for (uint32_t i = 0; share > 0 && i < chunk->n_items; i++) {
        double values = count_item_values(cpu, chunk, &chunk->items[i]);
        at += values;
        /* An expert layer's GATE_UP item contains all experts' weights, so the
         * next item has no values and joins it. */
        if (values == 0 && *n_items == i && i > 0)
            *n_items = i + 1;
        if (fabs(at - share * all) >= fabs(best - share * all))
            continue;
        best = at;
        *n_items = i + 1;
    }
    return best;
}

/* Changes the n_pointers pointers that point into the `n` values at `from` to
 * the same offsets in the values at `to`. */
static void move_pointers(float **pointers, size_t n_pointers, uintptr_t from,
                          size_t n, float *to)
{
    for (size_t i = 0; i < n_pointers; i++) {
        uintptr_t at = (uintptr_t)pointers[i];
        if (at >= from && at < from + n * sizeof(float))
            pointers[i] = to + (at - from) / sizeof(float);
    }
}

/* Changes a layer's weight pointers into the `n` values at `from` to the same
 * offsets at `to`. */
static void move_layer(lhi_cpu_weights *of, uintptr_t from, size_t n, float *to)
{
    float *pointers[sizeof *of / sizeof(float *)];
    memcpy((void *)pointers, of, sizeof pointers);
    move_pointers(pointers, sizeof pointers / sizeof *pointers, from, n, to);
    memcpy(of, (const void *)pointers, sizeof pointers);
}

/* Changes a chunk's weight pointers, or with `gradients` its gradient
 * pointers, from the `n` values at `old` to those at `to`. */
static void move_weights(lhi_cpu_chunk *chunk, bool gradients, const float *old,
                         size_t n, float *to)
{
    uintptr_t from = (uintptr_t)old;
    lhi_cpu_weights *all = gradients ? chunk->d_weights : chunk->weights;
    float *ends[] = {gradients ? chunk->d_embedding : chunk->embedding,
                     gradients ? chunk->d_positions : chunk->positions,
                     gradients ? chunk->d_norm : chunk->norm,
                     gradients ? chunk->d_head : chunk->head,
                     gradients ? chunk->d_embedding_copy
                               : chunk->embedding_copy};
    for (uint32_t i = 0; i < chunk->n_tensors; i++) {
        lhi_tensor *t = &chunk->tensors[i];
        move_pointers(gradients ? &t->gradient : &t->value, 1, from, n, to);
    }
    for (uint32_t i = 0; i < lhi_cpu_count_layers(chunk); i++)
        move_layer(&all[i], from, n, to);
    move_pointers(ends, sizeof ends / sizeof *ends, from, n, to);
    if (gradients) {
        chunk->d_embedding = ends[0];
        chunk->d_positions = ends[1];
        chunk->d_norm = ends[2];
        chunk->d_head = ends[3];
        chunk->d_embedding_copy = ends[4];
    } else {
        chunk->embedding = ends[0];
        chunk->positions = ends[1];
        chunk->norm = ends[2];
        chunk->head = ends[3];
        chunk->embedding_copy = ends[4];
    }
}

lh_status lhi_cpu_detach_sharded_weights(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                                         lh_error *err)
{
    size_t n_values = chunk->n_values - chunk->n_sharded_values;
    size_t n_gradients = chunk->n_values - chunk->n_sharded_gradients;
    float *values = lhi_cpu_alloc_floats(cpu->parameters, n_values, 1);
    float *gradients = lhi_cpu_alloc_floats(cpu->gradients, n_gradients, 1);
    if (!values || !gradients)
        return lhi_fail_nomem(err);
    const float *from = chunk->values + chunk->n_sharded_values;
    memcpy(values, from, n_values * sizeof *values);
    move_weights(chunk, false, from, n_values, values);
    move_weights(chunk, true, chunk->gradients + chunk->n_sharded_gradients,
                 n_gradients, gradients);
    return LH_OK;
}

void lhi_cpu_set_sharded_values(lhi_cpu_chunk *chunk, float *room)
{
    chunk->has_values = room != NULL;
    if (!room || chunk->n_sharded_values == 0)
        return;
    move_weights(chunk, false, chunk->values, chunk->n_sharded_values, room);
    chunk->values = room;
}

void lhi_cpu_set_sharded_gradients(lhi_cpu_chunk *chunk, float *room,
                                   uint32_t first_microbatch,
                                   uint32_t n_microbatches)
{
    chunk->has_gradients = room != NULL;
    if (!room || chunk->n_sharded_gradients == 0)
        return;
    move_weights(chunk, true, chunk->gradients, chunk->n_sharded_gradients,
                 room);
    chunk->gradients = room;
    chunk->end_microbatch = first_microbatch + n_microbatches;
    for (uint32_t i = 0; i < chunk->n_sharded_items; i++)
        chunk->items[i].first = first_microbatch;
}

/* ---- per-layer sharding (FSDP) ---- */

/* Appends a part (a unit of per-layer sharding) that ends before tensor
 * `end_tensor` to the chunk. */
static void add_part(lhi_cpu_chunk *chunk, uint32_t end_tensor)
{
    lhi_device_part *part = &chunk->parts[chunk->n_parts++];
    if (chunk->n_parts > 1) {
        const lhi_device_part *before = part - 1;
        part->first_tensor = before->first_tensor + before->n_tensors;
        part->first_value = before->first_value + before->n_values;
    }
    for (uint32_t i = part->first_tensor; i < end_tensor; i++)
        part->n_values += chunk->tensors[i].n;
    part->n_tensors = end_tensor - part->first_tensor;
}

lh_status lhi_cpu_build_parts(lhi_cpu *cpu, lhi_cpu_chunk *chunk, lh_error *err)
{
    const lh_model *m = cpu->model;
    uint32_t most = chunk->n_layers + 2, at = 0;
    chunk->parts = LHI_NEW(cpu->mem, lhi_device_part, most);
    chunk->part_values = LHI_NEW(cpu->mem, float *, most);
    chunk->part_gradients = LHI_NEW(cpu->mem, float *, most);
    if (!chunk->parts || !chunk->part_values || !chunk->part_gradients)
        return lhi_fail_nomem(err);
    if (chunk->is_first)
        add_part(chunk, at = lhi_count_front_tensors(m));
    for (uint32_t i = 0; i < chunk->n_layers; i++)
        add_part(chunk, at += lhi_cpu_count_layer_tensors(
                            cpu, chunk->first_layer + i, 1));
    if (chunk->is_last)
        add_part(chunk, chunk->n_tensors);
    for (uint32_t i = 0; i < chunk->n_parts; i++) {
        chunk->part_values[i] = chunk->values + chunk->parts[i].first_value;
        chunk->part_gradients[i] =
            chunk->gradients + chunk->parts[i].first_value;
    }
    return LH_OK;
}

/* Moves part `i`'s parameter pointers or, with `gradients`, its gradient
 * pointers to the buffer `to`, which other parts may have used before. */
static void move_part(lhi_cpu_chunk *chunk, uint32_t i, bool gradients,
                      float *to)
{
    const lhi_device_part *part = &chunk->parts[i];
    uint32_t first = chunk->is_first;
    float **at = gradients ? chunk->part_gradients : chunk->part_values;
    uintptr_t from = (uintptr_t)at[i];
    lhi_cpu_weights *all = gradients ? chunk->d_weights : chunk->weights;
    size_t offset = 0;
    if (from == (uintptr_t)to)
        return;
    for (uint32_t k = 0; k < part->n_tensors; k++) {
        lhi_tensor *t = &chunk->tensors[part->first_tensor + k];
        *(gradients ? &t->gradient : &t->value) = to + offset;
        offset += t->n;
    }
    at[i] = to;
    if (i >= first && i < first + chunk->n_layers) {
        move_layer(&all[i - first], from, part->n_values, to);
        return;
    }
    bool front = i < first;
    float **ends[] = {gradients ? &chunk->d_embedding : &chunk->embedding,
                      gradients ? &chunk->d_positions : &chunk->positions,
                      gradients ? &chunk->d_norm : &chunk->norm,
                      gradients ? &chunk->d_head : &chunk->head,
                      gradients ? &chunk->d_embedding_copy
                                : &chunk->embedding_copy};
    for (uint32_t k = front ? 0 : 2; k < (front ? 2 : 5); k++)
        move_pointers(ends[k], 1, from, part->n_values, to);
    for (uint32_t k = 0; !front && k < chunk->n_modules; k++)
        move_layer(&all[chunk->n_layers + k], from, part->n_values, to);
}

lh_status lhi_cpu_request_part_values(const lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                                      uint32_t part, bool backward,
                                      lh_error *err)
{
    uint32_t then = LH_NONE;
    float *room;
    if (!cpu->hooks || !chunk->shards_by_layer || chunk->n_sharded_values == 0)
        return LH_OK;
    if (backward && part > 0)
        then = part - 1;
    else if (!backward && part + 1 < chunk->n_parts)
        then = part + 1;
    LHI_TRY(cpu->hooks->values(cpu->hooks->context, chunk->chunk, part, then,
                               &room, err));
    move_part(chunk, part, false, room);
    return LH_OK;
}

void lhi_cpu_set_part_values(lhi_cpu_chunk *chunk, uint32_t part, float *room)
{
    move_part(chunk, part, false, room);
}

lh_status lhi_cpu_request_part_gradients(const lhi_cpu *cpu,
                                         lhi_cpu_chunk *chunk, uint32_t part,
                                         lh_error *err)
{
    float *room;
    LHI_TRY(cpu->hooks->gradients(cpu->hooks->context, chunk->chunk, part,
                                  &room, err));
    move_part(chunk, part, true, room);
    return LH_OK;
}

lh_status lhi_cpu_check_sharded_buffers(const lhi_cpu_chunk *chunk,
                                        const lh_pass *pass, lh_error *err)
{
    bool backward = pass->kind == LH_B || pass->kind == LH_W;
    if (chunk->shards_by_layer ||
        (chunk->has_values && (!backward || chunk->has_gradients)))
        return LH_OK;
    return lhi_fail(err, LH_EINVAL,
                    "chunk %u, microbatch %u: sharded %s have no buffer",
                    pass->chunk, pass->microbatch,
                    chunk->has_values ? "gradients" : "parameters");
}
