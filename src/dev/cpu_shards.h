/* SPDX-License-Identifier: Apache-2.0 */
/* Weights and gradients of the cpu device that are sharded: a share of a chunk's,
 * or all of it layer by layer. */
#ifndef LHI_CPU_SHARDS_H
#define LHI_CPU_SHARDS_H

#include "dev/cpu.h"

/* Values of a chunk's first *n_items items, which come nearest to that
 * share. */
double lhi_cpu_split(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                     double share, uint32_t *n_items);
/* What is not sharded of a chunk that was made whole gets room for good. */
lh_status lhi_cpu_part_chunk(lhi_cpu *cpu, lhi_cpu_chunk *chunk, lh_error *err);
void lhi_cpu_place_values(lhi_cpu_chunk *chunk, float *room);
void lhi_cpu_place_gradients(lhi_cpu_chunk *chunk, float *room,
                             uint32_t first_microbatch,
                             uint32_t n_microbatches);
/* The parts of a chunk whose tensors are there. */
lh_status lhi_cpu_parts(lhi_cpu *cpu, lhi_cpu_chunk *chunk, lh_error *err);
/* Where sharding goes layer by layer: the pass comes to part `part`. */
lh_status lhi_cpu_take_values(const lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                              uint32_t part, bool backward, lh_error *err);
void lhi_cpu_show_part(lhi_cpu_chunk *chunk, uint32_t part, float *room);
/* Likewise: an item's gradients, of one microbatch, get room. */
lh_status lhi_cpu_take_gradients(const lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                                 uint32_t part, lh_error *err);
/* The part that an item belongs to; how many belong to one, and the first. */
static inline uint32_t lhi_cpu_part_of(const lhi_cpu_chunk *chunk,
                                       const lhi_cpu_item *item)
{
    if (item->kind == LHI_ITEM_EMBEDDING)
        return 0;
    return item->kind == LHI_ITEM_HEAD || item->layer >= chunk->n_layers
               ? chunk->n_parts - 1
               : chunk->is_first + item->layer;
}
uint32_t lhi_cpu_part_items(const lhi_cpu_chunk *chunk, uint32_t part,
                            uint32_t *first);
/* Whether all of these are due for the next microbatch, *m. */
static inline bool lhi_cpu_part_is_due(const lhi_cpu_chunk *chunk,
                                       uint32_t first, uint32_t n,
                                       uint32_t n_microbatches, uint32_t *m)
{
    bool due = n > 0 && chunk->items[first].done < n_microbatches;
    *m = n > 0 ? chunk->items[first].done : 0;
    for (uint32_t i = 0; due && i < n; i++)
        due = chunk->items[first + i].asked[*m];
    return due;
}
/* LH_EINVAL: what the pass needs is nowhere. */
lh_status lhi_cpu_check_places(const lhi_cpu_chunk *chunk, const lh_pass *pass,
                               lh_error *err);

#endif
