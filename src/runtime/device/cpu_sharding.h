/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded weights and gradients of the cpu device: a share of a chunk, or a
 * whole chunk layer by layer. */
#ifndef LHI_RUNTIME_DEVICE_CPU_SHARDING_H
#define LHI_RUNTIME_DEVICE_CPU_SHARDING_H

#include "runtime/device/cpu.h"

/* Chooses how many leading weight-gradient items (groups of weights) to shard,
 * so that their share of the chunk's parameters is nearest to `share`. Returns
 * their parameters. */
double lhi_cpu_choose_sharded_items(const lhi_cpu *cpu,
                                    const lhi_cpu_chunk *chunk, double share,
                                    uint32_t *n_items);
/* Moves the unsharded weights of a fully built chunk to permanent memory, so
 * that the initial copy of all parameters can be freed. */
lh_status lhi_cpu_detach_sharded_weights(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                                         lh_error *err);
/* Sets `room` as the buffer with the chunk's all-gathered sharded parameters;
 * NULL: none. */
void lhi_cpu_set_sharded_values(lhi_cpu_chunk *chunk, float *room);
/* Sets `room` as the buffer for the sharded gradients of n_microbatches from
 * first_microbatch on; NULL: none. */
void lhi_cpu_set_sharded_gradients(lhi_cpu_chunk *chunk, float *room,
                                   uint32_t first_microbatch,
                                   uint32_t n_microbatches);
/* Builds the list of a chunk's parts, the units of per-layer sharding; needs
 * its tensors. */
lh_status lhi_cpu_build_parts(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                              lh_error *err);
/* Requests the parameters of `part`, a unit of per-layer sharding, at its
 * computation's start, and announces the next part: with `backward`, the one
 * before it. No-op without per-layer sharding. */
lh_status lhi_cpu_request_part_values(const lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                                      uint32_t part, bool backward,
                                      lh_error *err);
/* Sets `room` as the buffer with a part's parameters between steps (per-layer
 * sharding). */
void lhi_cpu_set_part_values(lhi_cpu_chunk *chunk, uint32_t part, float *room);
/* Requests a buffer for one microbatch's gradients of `part`, a unit of
 * per-layer sharding. */
lh_status lhi_cpu_request_part_gradients(const lhi_cpu *cpu,
                                         lhi_cpu_chunk *chunk, uint32_t part,
                                         lh_error *err);
/* Returns the part to which an item belongs. */
static inline uint32_t lhi_cpu_item_part(const lhi_cpu_chunk *chunk,
                                         const lhi_cpu_item *item)
{
    if (item->kind == LHI_ITEM_EMBEDDING)
        return 0;
    return item->kind == LHI_ITEM_HEAD || item->layer >= chunk->n_layers
               ? chunk->n_parts - 1
               : chunk->is_first + item->layer;
}
/* Returns the number of weight-gradient items in a part (a unit of per-layer
 * sharding), and the first one. */
uint32_t lhi_cpu_part_items(const lhi_cpu_chunk *chunk, uint32_t part,
                            uint32_t *first);
/* Checks whether all n items from `first` on have been requested for the next
 * microbatch in the order of sums, the *nth. */
static inline bool lhi_cpu_part_is_due(const lhi_cpu *cpu,
                                       const lhi_cpu_chunk *chunk,
                                       uint32_t first, uint32_t n,
                                       uint32_t *nth)
{
    bool due = n > 0 && chunk->items[first].done < cpu->n_microbatches;
    *nth = n > 0 ? chunk->items[first].done : 0;
    for (uint32_t i = 0; due && i < n; i++)
        due = chunk->items[first + i].requested[lhi_cpu_nth_summed(cpu, *nth)];
    return due;
}
/* Checks that the caller has set buffers for all sharded parameters and
 * gradients that the pass uses; otherwise LH_EINVAL. */
lh_status lhi_cpu_check_sharded_buffers(const lhi_cpu_chunk *chunk,
                                        const lh_pass *pass, lh_error *err);

#endif
