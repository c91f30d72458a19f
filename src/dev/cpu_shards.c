/* SPDX-License-Identifier: Apache-2.0 */
/* Weights and gradients that are elsewhere most of the time: those of a chunk's
 * first items, as many as come nearest to the share that is sharded. Whoever
 * runs the passes gives them room. */
#include "base/fail.h"
#include "dev/cpu.h"

#include <math.h>
#include <string.h>

/* Of which item of a layer a tensor is. */
static lhi_cpu_item_kind item_of(lhi_role role, lhi_cpu_item_kind before)
{
    switch (role) {
    case LHI_ROLE_NORM1:
        return LHI_ITEM_QKV;
    case LHI_ROLE_OUT:
        return LHI_ITEM_OUT;
    case LHI_ROLE_NORM2:
    case LHI_ROLE_GATE_UP: /* where both share norm1 */
        return LHI_ITEM_GATE_UP;
    case LHI_ROLE_DOWN:
        return LHI_ITEM_DOWN;
    default:
        return before;
    }
}

/* Values of an item's weights, which lie one after the other. */
static double item_values(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                          const lhi_cpu_item *item)
{
    const lh_model *m = cpu->model;
    uint32_t back = lhi_layer_tensor_index(m, m->layers);
    if (item->kind == LHI_ITEM_EMBEDDING)
        return lhi_count_values(m, 0, lhi_n_front_tensors(m));
    if (item->kind == LHI_ITEM_HEAD)
        return lhi_count_values(m, back, lhi_n_model_tensors(m) - back);
    uint32_t layer = chunk->first_layer + item->layer;
    uint32_t first = lhi_layer_tensor_index(m, layer);
    lhi_cpu_item_kind at = LHI_ITEM_QKV;
    double sum = 0;
    for (uint32_t i = 0; i < lhi_n_layer_tensors(m, layer); i++) {
        lhi_model_tensor of;
        lhi_model_tensor_of(m, first + i, &of);
        at = item_of(of.role, at);
        sum += at == item->kind ? (double)of.n : 0;
    }
    return sum;
}

double lhi_cpu_split(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                     double share, uint32_t *n_items)
{
    double all = 0, at = 0, best = 0;
    *n_items = 0;
    for (uint32_t i = 0; share > 0 && i < chunk->n_items; i++)
        all += item_values(cpu, chunk, &chunk->items[i]);
    for (uint32_t i = 0; share > 0 && i < chunk->n_items; i++) {
        double values = item_values(cpu, chunk, &chunk->items[i]);
        at += values;
        /* Experts' weights lie together: what is cut with them has none. */
        if (values == 0 && *n_items == i && i > 0)
            *n_items = i + 1;
        if (fabs(at - share * all) >= fabs(best - share * all))
            continue;
        best = at;
        *n_items = i + 1;
    }
    return best;
}

/* Pointers from `from` on, `n` values, now point to what is at `to`. */
static void move_pointers(float **pointers, size_t n_pointers, uintptr_t from,
                          size_t n, float *to)
{
    for (size_t i = 0; i < n_pointers; i++) {
        uintptr_t at = (uintptr_t)pointers[i];
        if (at >= from && at < from + n * sizeof(float))
            pointers[i] = to + (at - from) / sizeof(float);
    }
}

/* Of a chunk's weights, or their gradients. */
static void move_weights(lhi_cpu_chunk *chunk, bool gradients, const float *old,
                         size_t n, float *to)
{
    uintptr_t from = (uintptr_t)old;
    lhi_cpu_weights *all = gradients ? chunk->d_weights : chunk->weights;
    float *ends[] = {gradients ? chunk->d_embedding : chunk->embedding,
                     gradients ? chunk->d_positions : chunk->positions,
                     gradients ? chunk->d_norm : chunk->norm,
                     gradients ? chunk->d_head : chunk->head};
    for (uint32_t i = 0; i < chunk->n_tensors; i++) {
        lhi_tensor *t = &chunk->tensors[i];
        move_pointers(gradients ? &t->gradient : &t->value, 1, from, n, to);
    }
    for (uint32_t i = 0; i < chunk->n_layers; i++) {
        float *pointers[sizeof *all / sizeof(float *)];
        memcpy((void *)pointers, &all[i], sizeof pointers);
        move_pointers(pointers, sizeof pointers / sizeof *pointers, from, n,
                      to);
        memcpy(&all[i], (const void *)pointers, sizeof pointers);
    }
    move_pointers(ends, 4, from, n, to);
    if (gradients) {
        chunk->d_embedding = ends[0];
        chunk->d_positions = ends[1];
        chunk->d_norm = ends[2];
        chunk->d_head = ends[3];
    } else {
        chunk->embedding = ends[0];
        chunk->positions = ends[1];
        chunk->norm = ends[2];
        chunk->head = ends[3];
    }
}

lh_status lhi_cpu_part_chunk(lhi_cpu *cpu, lhi_cpu_chunk *chunk, lh_error *err)
{
    size_t n_values = chunk->n_values - chunk->n_sharded_values;
    size_t n_gradients = chunk->n_values - chunk->n_sharded_gradients;
    float *values = lhi_cpu_floats(cpu->parameters, n_values, 1);
    float *gradients = lhi_cpu_floats(cpu->gradients, n_gradients, 1);
    if (!values || !gradients)
        return lhi_fail_nomem(err);
    const float *from = chunk->values + chunk->n_sharded_values;
    memcpy(values, from, n_values * sizeof *values);
    move_weights(chunk, false, from, n_values, values);
    move_weights(chunk, true, chunk->gradients + chunk->n_sharded_gradients,
                 n_gradients, gradients);
    return LH_OK;
}

void lhi_cpu_place_values(lhi_cpu_chunk *chunk, float *room)
{
    chunk->has_values = room != NULL;
    if (!room || chunk->n_sharded_values == 0)
        return;
    move_weights(chunk, false, chunk->values, chunk->n_sharded_values, room);
    chunk->values = room;
}

void lhi_cpu_place_gradients(lhi_cpu_chunk *chunk, float *room,
                             uint32_t first_microbatch)
{
    chunk->has_gradients = room != NULL;
    if (!room || chunk->n_sharded_gradients == 0)
        return;
    move_weights(chunk, true, chunk->gradients, chunk->n_sharded_gradients,
                 room);
    chunk->gradients = room;
    for (uint32_t i = 0; i < chunk->n_sharded_items; i++)
        chunk->items[i].first = first_microbatch;
}

lh_status lhi_cpu_check_places(const lhi_cpu_chunk *chunk, const lh_pass *pass,
                               lh_error *err)
{
    bool backward = pass->kind == LH_B || pass->kind == LH_W;
    if (chunk->has_values && (!backward || chunk->has_gradients))
        return LH_OK;
    return lhi_fail(err, LH_EINVAL,
                    "chunk %u, microbatch %u: %s that are sharded have no room",
                    pass->chunk, pass->microbatch,
                    chunk->has_values ? "gradients" : "parameters");
}
