/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a run. A copy of the pipeline has a rank for each of its
 * devices; there are replicas * context * tensor copies, which all follow the
 * same schedule: a rank's messages go to, and come from, ranks of its copy.
 * Ranks of the same device in different copies, its counterparts, are in groups
 * that compute together.
 *
 * Copies are numbered tensor first, then context, then replica, as Megatron-LM
 * numbers them; rank r is device r % n_devices of copy r / n_devices. Expert
 * groups are made of the same copies once more: tensor of experts first, then
 * experts, then their replicas, so that they lie inside the data-parallel
 * ranks. */
#ifndef LHI_GRID_H
#define LHI_GRID_H

#include <longhaul/status.h>

#include <stdint.h>

typedef struct lhi_grid {
    uint32_t n_devices; /* of the pipeline */
    uint32_t replicas, context, tensor;
    uint32_t expert, expert_tensor;
} lhi_grid;

typedef struct lhi_grid_place {
    uint32_t device, replica, context, tensor;
    /* Among the copies once more: */
    uint32_t expert, expert_tensor, expert_replica;
} lhi_grid_place;

/* Which counterparts of a rank are in a group. */
typedef enum lhi_grid_kind {
    LHI_GRID_TENSOR,
    LHI_GRID_CONTEXT,
    LHI_GRID_DATA,          /* that sum gradients: replicas, of each context */
    LHI_GRID_EXPERT,        /* that have different experts */
    LHI_GRID_EXPERT_TENSOR, /* that have parts of the same experts */
    LHI_GRID_EXPERT_DATA,   /* that have the same parts of the same experts */
    LHI_GRID_EXPERT_SLICES, /* that have the same experts, or parts of them */
    LHI_GRID_COPIES,        /* all of them */
    LHI_N_GRID_KINDS
} lhi_grid_kind;

/* LH_EINVAL: a degree is 0, experts do not divide the copies, or there are too
 * many ranks. */
lh_status lhi_grid_check(const lhi_grid *grid, lh_error *err);

uint32_t lhi_grid_copies(const lhi_grid *grid);
uint32_t lhi_grid_ranks(const lhi_grid *grid);
lhi_grid_place lhi_grid_place_of(const lhi_grid *grid, uint32_t rank);
/* The experts' places follow from the others. */
uint32_t lhi_grid_rank_of(const lhi_grid *grid, const lhi_grid_place *place);

/* How many are in the group of a kind. */
uint32_t lhi_grid_size(const lhi_grid *grid, lhi_grid_kind kind);
/* The group of the kind that `rank` is in: fills ranks[0..size-1], ascending;
 * returns which of them it is. */
uint32_t lhi_grid_group(const lhi_grid *grid, lhi_grid_kind kind, uint32_t rank,
                        uint32_t *ranks);
/* Of a group's ranks those on the node of ranks[*mine]: they move to the front,
 * and *mine with them; returns how many. nodes: of stages and copies, as in
 * lh_train_model. */
uint32_t lhi_grid_near(const lhi_grid *grid, const uint32_t *nodes, uint32_t n,
                       uint32_t *ranks, uint32_t *mine);

#endif
