/* SPDX-License-Identifier: Apache-2.0 */
/* Shard groups among the ranks that sum a stage's gradients (LHI_GRID_DATA):
 * the ranks that shard one copy of the state, and other sites' ranks with
 * the same shard (lh_train_model.sites). With ZeRO 0 each rank is its own site.
 */
#ifndef LHI_RUNTIME_ENGINE_SHARD_GROUPS_H
#define LHI_RUNTIME_ENGINE_SHARD_GROUPS_H

#include "runtime/engine/process_grid.h"

#include <longhaul/experimental/engine.h>

/* A member's place in the shard groups. */
typedef struct lhi_shard_groups {
    uint32_t n_shards, shard; /* members at its site; its index */
    uint32_t n_sites, site;   /* numbered by their first members */
} lhi_shard_groups;

/* Returns the shard groups for member `member` of the `n` data-parallel ranks
 * at a stage, in group order. */
lhi_shard_groups lhi_shard_groups_find(const lh_train_model *model, uint32_t n,
                                       uint32_t stage, uint32_t member);
/* Lists, for member `member` of the n data-parallel ranks of a stage, the ranks
 * at its datacenter in `sharers` (n_shards) and the ranks with its shard at
 * each datacenter in `across` (n_sites). ranks[i]: rank of member i. */
void lhi_shard_groups_list_members(const lh_train_model *model, uint32_t n,
                                   uint32_t stage, uint32_t member,
                                   const uint32_t *ranks, uint32_t *sharers,
                                   uint32_t *across);

/* Checks whether each of the n data-parallel members has the same shard at all
 * n_stages stages. */
bool lhi_shard_groups_equal_at_stages(const lh_train_model *model, uint32_t n,
                                      uint32_t n_stages);

/* Checks whether the ranks with the same experts (LHI_GRID_EXPERT_DATA) differ
 * from the ranks that share all other tensors. */
bool lhi_has_disjoint_expert_groups(const lh_train_model *model,
                                    const lhi_grid *grid);

/* Returns the shard groups of logical rank `place` among the ranks with the
 * same experts: its shard, its datacenter and their numbers. */
lhi_shard_groups lhi_expert_shard_groups_find(const lh_train_model *model,
                                              const lhi_grid *grid,
                                              uint32_t place);
/* Lists, for logical rank `place`, the ranks with the same experts at its
 * datacenter in `sharers`, and those with its shard at each datacenter in
 * `across`. ranks[i]: rank of member i. */
void lhi_expert_shard_groups_list_members(const lh_train_model *model,
                                          const lhi_grid *grid, uint32_t place,
                                          const uint32_t *ranks,
                                          uint32_t *sharers, uint32_t *across);

/* Checks that all datacenters have equal numbers of a stage's replicas, and of
 * ranks with the same experts; otherwise LH_EUNSUPPORTED. */
lh_status lhi_shard_groups_check(const lh_train_model *model,
                                 const lhi_grid *grid, lh_error *err);

#endif
