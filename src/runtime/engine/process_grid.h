/* SPDX-License-Identifier: Apache-2.0 */
/* The run's process grid. A pipeline copy has one rank per device. There are
 * replicas * context * tensor copies, which follow the same schedule; a rank's
 * messages stay within its copy. Counterparts (ranks of one device, or of a
 * device and its mirror, in different copies) form the groups that compute
 * together.
 *
 * Copies are numbered tensor first, then context, then replica, as in
 * Megatron-LM; rank r is device r % n_devices in copy r / n_devices. Expert
 * groups divide the same copies again: expert tensor first, then expert, then
 * expert replica. They therefore lie inside the data-parallel ranks.
 *
 * Devices may have different tensor degrees. A copy then lacks the devices
 * whose degree is not above the copy's tensor index, and ranks are numbered
 * copy by copy over the devices that each copy has. */
#ifndef LHI_RUNTIME_ENGINE_PROCESS_GRID_H
#define LHI_RUNTIME_ENGINE_PROCESS_GRID_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

/* The parallel degrees. */
typedef struct lhi_grid {
    uint32_t n_devices; /* pipeline devices */
    uint32_t replicas, context, tensor;
    uint32_t expert, expert_tensor;
    /* Two directions (placement bd): devices d and n_devices - 1 - d have the
     * same parameters, so the data-parallel group contains both. */
    bool mirrored;
    /* Tensor degree of each device, borrowed; `tensor` is then the greatest.
     * NULL: `tensor` on every device. Requires expert and expert_tensor 1, and
     * `mirrored` false. */
    const uint32_t *tensors;
} lhi_grid;

/* A rank's coordinates in the grid. */
typedef struct lhi_grid_coords {
    uint32_t device, replica, context, tensor;
    /* In the expert grid: */
    uint32_t expert, expert_tensor, expert_replica;
} lhi_grid_coords;

/* Kinds of groups among a rank's counterparts. */
typedef enum lhi_grid_group_kind {
    LHI_GRID_TENSOR,
    LHI_GRID_CONTEXT,
    LHI_GRID_DATA,          /* sum gradients: replicas, contexts, mirrors */
    LHI_GRID_EXPERT,        /* hold different experts */
    LHI_GRID_EXPERT_TENSOR, /* hold slices of the same experts */
    LHI_GRID_EXPERT_DATA,   /* hold the same slices of the same experts */
    LHI_GRID_EXPERT_SLICES, /* hold the same experts or slices of them */
    LHI_GRID_COPIES,        /* all copies */
    LHI_N_GRID_KINDS
} lhi_grid_group_kind;

/* Checks the parallel degrees. LH_EINVAL: a degree is 0, the expert degree
 * does not divide the pipeline copy count, or there are too many ranks.
 * LH_EUNSUPPORTED: different tensor degrees with experts or mirrors. */
lh_status lhi_grid_check(const lhi_grid *grid, lh_error *err);

/* Returns the tensor degree of a device. */
static inline uint32_t lhi_grid_get_tensor(const lhi_grid *grid,
                                           uint32_t device)
{
    return grid->tensors ? grid->tensors[device] : grid->tensor;
}
/* Returns the pipeline copy count: replicas times context times the greatest
 * tensor degree. */
uint32_t lhi_grid_count_copies(const lhi_grid *grid);
/* Returns the number of copies that have the device. */
uint32_t lhi_grid_count_device_ranks(const lhi_grid *grid, uint32_t device);
/* Returns the rank count in the process grid: the ranks of all devices. */
uint32_t lhi_grid_count_ranks(const lhi_grid *grid);
/* Returns the coordinates (stage, replica, context, tensor, expert) of a
 * logical rank in the process grid. */
lhi_grid_coords lhi_grid_find_coords(const lhi_grid *grid, uint32_t rank);
/* Returns the rank at the given coordinates; the expert coordinates follow from
 * the others and are ignored. */
uint32_t lhi_grid_find_rank(const lhi_grid *grid, const lhi_grid_coords *place);

/* Returns the rank count in each group of kind `kind` on a device. With
 * LHI_GRID_CONTEXT and LHI_GRID_DATA it is equal on all devices. */
uint32_t lhi_grid_group_size(const lhi_grid *grid, lhi_grid_group_kind kind,
                             uint32_t device);
/* Lists the ranks of the group of kind `kind` that contains `rank` in ascending
 * order, ranks[0..size-1]. Returns the index of `rank` in it. */
uint32_t lhi_grid_find_group(const lhi_grid *grid, lhi_grid_group_kind kind,
                             uint32_t rank, uint32_t *ranks);
/* Moves the members on the node of ranks[*mine] to the front and updates *mine.
 * Returns their number. nodes: per stage and copy, as in lh_train_model. */
uint32_t lhi_grid_select_same_node(const lhi_grid *grid, const uint32_t *nodes,
                                   uint32_t n, uint32_t *ranks, uint32_t *mine);

#endif
