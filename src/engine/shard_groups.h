/* SPDX-License-Identifier: Apache-2.0 */
/* Which of those that sum a stage's gradients (LHI_GRID_DATA) share what is
 * sharded, and which others have the same share: lh_train_model.sites. With
 * ZeRO 0 each is at a site of its own. */
#ifndef LHI_SHARD_GROUPS_H
#define LHI_SHARD_GROUPS_H

#include "engine/grid.h"

#include <longhaul/engine.h>

typedef struct lhi_shard_groups {
    uint32_t n_shards, shard; /* members of its site; which of them it is */
    uint32_t n_sites, site;   /* numbered as their first members are */
} lhi_shard_groups;

/* Of one of `n` members, in the order of their group. */
lhi_shard_groups lhi_shard_groups_of(const lh_train_model *model, uint32_t n,
                                     uint32_t stage, uint32_t member);
/* Of their ranks, those at its site, n_shards, and those with its share,
 * n_sites. */
void lhi_shard_members(const lh_train_model *model, uint32_t n, uint32_t stage,
                       uint32_t member, const uint32_t *ranks,
                       uint32_t *sharers, uint32_t *across);

/* Whether each has the same share at all stages. */
bool lhi_shard_groups_alike(const lh_train_model *model, uint32_t n,
                            uint32_t n_stages);

/* Whether other ranks have the same experts (LHI_GRID_EXPERT_DATA) than have the
 * same of all else. */
bool lhi_experts_apart(const lh_train_model *model, const lhi_grid *grid);

/* As above, of those that have the same experts as `place`: its place in the
 * grid says which of them it is. */
lhi_shard_groups lhi_expert_groups_of(const lh_train_model *model,
                                      const lhi_grid *grid, uint32_t place);
void lhi_expert_members(const lh_train_model *model, const lhi_grid *grid,
                        uint32_t place, const uint32_t *ranks,
                        uint32_t *sharers, uint32_t *across);

/* LH_EUNSUPPORTED: sites that have more or fewer of a stage's replicas than
 * others, or of the ranks that have the same experts. */
lh_status lhi_shard_groups_check(const lh_train_model *model,
                                 const lhi_grid *grid, lh_error *err);

#endif
