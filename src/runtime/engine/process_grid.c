/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/process_grid.h"

#include "base/fail.h"
#include "runtime/transport/transport.h"

#include <inttypes.h>

/* Checks different tensor degrees: from 1 to the greatest, `tensor`, without
 * experts and mirrors. */
static lh_status check_tensors(const lhi_grid *g, lh_error *err)
{
    for (uint32_t d = 0; d < g->n_devices; d++)
        if (g->tensors[d] == 0 || g->tensors[d] > g->tensor)
            return lhi_fail(err, LH_EINVAL,
                            "device %" PRIu32 " has tensor degree %" PRIu32
                            ", which must be 1 to %" PRIu32,
                            d, g->tensors[d], g->tensor);
    if (g->expert * g->expert_tensor > 1 || g->mirrored)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "stages with different tensor degrees require a dense "
                        "model and a pipeline with one direction");
    return LH_OK;
}

/* Fails with LH_EINVAL: the grid has too many ranks. */
static lh_status fail_too_large(const lhi_grid *g, lh_error *err)
{
    return lhi_fail(err, LH_EINVAL,
                    "%" PRIu32 " devices, %" PRIu32
                    " replicas, context %" PRIu32 " and tensor %" PRIu32
                    "%s exceed %d ranks",
                    g->n_devices, g->replicas, g->context, g->tensor,
                    g->tensors ? " at most" : "", LHI_NET_MAX_RANKS);
}

lh_status lhi_grid_check(const lhi_grid *g, lh_error *err)
{
    const uint32_t degrees[] = {g->n_devices, g->replicas, g->context,
                                g->tensor,    g->expert,   g->expert_tensor};
    uint64_t n = 1;
    for (unsigned i = 0; i < sizeof degrees / sizeof *degrees; i++)
        if (degrees[i] == 0 || degrees[i] > LHI_NET_MAX_RANKS)
            return lhi_fail(err, LH_EINVAL,
                            "a parallel degree of %" PRIu32 " must be 1 to %d",
                            degrees[i], LHI_NET_MAX_RANKS);
    for (unsigned i = 0; i < 3; i++) /* so that each product fits */
        if ((n *= degrees[i]) > LHI_NET_MAX_RANKS)
            return fail_too_large(g, err);
    if (g->tensors)
        LHI_TRY(check_tensors(g, err));
    if (lhi_grid_count_ranks(g) > LHI_NET_MAX_RANKS)
        return fail_too_large(g, err);
    if (lhi_grid_count_copies(g) % (g->expert * g->expert_tensor) != 0)
        return lhi_fail(
            err, LH_EINVAL,
            "%" PRIu32
            " ranks of a device are not a multiple of expert %" PRIu32
            " times expert_tensor %" PRIu32,
            lhi_grid_count_copies(g), g->expert, g->expert_tensor);
    return LH_OK;
}

uint32_t lhi_grid_count_copies(const lhi_grid *g)
{
    return g->replicas * g->context * g->tensor;
}

uint32_t lhi_grid_count_device_ranks(const lhi_grid *g, uint32_t device)
{
    return g->replicas * g->context * lhi_grid_get_tensor(g, device);
}

uint32_t lhi_grid_count_ranks(const lhi_grid *g)
{
    uint32_t n = 0;
    for (uint32_t d = 0; d < g->n_devices; d++)
        n += lhi_grid_count_device_ranks(g, d);
    return n;
}

/* Returns how many of the first n devices are in a copy with this tensor
 * index. */
static uint32_t count_devices(const lhi_grid *g, uint32_t n, uint32_t tensor)
{
    uint32_t here = 0;
    for (uint32_t d = 0; d < n; d++)
        here += lhi_grid_get_tensor(g, d) > tensor;
    return here;
}

/* Returns the number of ranks with one replica and context index. */
static uint32_t count_context_ranks(const lhi_grid *g)
{
    return lhi_grid_count_ranks(g) / (g->replicas * g->context);
}

/* Finds a rank's coordinates if devices have different tensor degrees. */
static lhi_grid_coords find_unequal_coords(const lhi_grid *g, uint32_t rank)
{
    const uint32_t each = count_context_ranks(g), row = rank / each;
    uint32_t left = rank % each, tensor = 0, device = 0;
    while (left >= count_devices(g, g->n_devices, tensor))
        left -= count_devices(g, g->n_devices, tensor++);
    while (count_devices(g, device + 1, tensor) <= left)
        device++;
    return (lhi_grid_coords){
        .device = device,
        .tensor = tensor,
        .context = row % g->context,
        .replica = row / g->context,
        .expert_replica = row * lhi_grid_get_tensor(g, device) + tensor,
    };
}

lhi_grid_coords lhi_grid_find_coords(const lhi_grid *g, uint32_t rank)
{
    uint32_t copy = rank / g->n_devices;
    if (g->tensors)
        return find_unequal_coords(g, rank);
    return (lhi_grid_coords){
        .device = rank % g->n_devices,
        .tensor = copy % g->tensor,
        .context = copy / g->tensor % g->context,
        .replica = copy / (g->tensor * g->context),
        .expert_tensor = copy % g->expert_tensor,
        .expert = copy / g->expert_tensor % g->expert,
        .expert_replica = copy / (g->expert_tensor * g->expert),
    };
}

uint32_t lhi_grid_find_rank(const lhi_grid *g, const lhi_grid_coords *at)
{
    const uint32_t row = at->replica * g->context + at->context;
    if (!g->tensors)
        return (row * g->tensor + at->tensor) * g->n_devices + at->device;
    uint32_t rank = row * count_context_ranks(g);
    for (uint32_t t = 0; t < at->tensor; t++)
        rank += count_devices(g, g->n_devices, t);
    return rank + count_devices(g, at->device, at->tensor);
}

uint32_t lhi_grid_group_size(const lhi_grid *g, lhi_grid_group_kind kind,
                             uint32_t device)
{
    const uint32_t all = lhi_grid_count_device_ranks(g, device);
    switch (kind) {
    case LHI_GRID_TENSOR:
        return lhi_grid_get_tensor(g, device);
    case LHI_GRID_CONTEXT:
        return g->context;
    case LHI_GRID_DATA:
        return g->replicas * g->context * (g->mirrored ? 2 : 1);
    case LHI_GRID_EXPERT:
        return g->expert;
    case LHI_GRID_EXPERT_TENSOR:
        return g->expert_tensor;
    case LHI_GRID_EXPERT_SLICES:
        return all / g->expert;
    case LHI_GRID_COPIES:
        return all;
    default:
        return all / (g->expert * g->expert_tensor);
    }
}

/* Checks whether two ranks of one device are in the same group of the kind, if
 * devices have different tensor degrees. */
static bool are_in_one_group(lhi_grid_group_kind kind, const lhi_grid_coords *a,
                             const lhi_grid_coords *b)
{
    const bool tensor = a->tensor == b->tensor;
    const bool context = a->context == b->context;
    const bool replica = a->replica == b->replica;
    switch (kind) {
    case LHI_GRID_TENSOR:
        return replica && context;
    case LHI_GRID_CONTEXT:
        return replica && tensor;
    case LHI_GRID_DATA:
        return tensor;
    case LHI_GRID_EXPERT:
    case LHI_GRID_EXPERT_TENSOR:
        return replica && context && tensor;
    default:
        return true;
    }
}

/* Lists the group of the kind that contains `rank` if devices have different
 * tensor degrees. Returns the index of `rank`. */
static uint32_t find_unequal_group(const lhi_grid *g, lhi_grid_group_kind kind,
                                   uint32_t rank, uint32_t *ranks)
{
    const lhi_grid_coords own = find_unequal_coords(g, rank);
    const uint32_t tensor = g->tensors[own.device];
    uint32_t n = 0, mine = 0;
    for (uint32_t i = 0; i < lhi_grid_count_device_ranks(g, own.device); i++) {
        const lhi_grid_coords at = {
            .device = own.device,
            .tensor = i % tensor,
            .context = i / tensor % g->context,
            .replica = i / (tensor * g->context),
        };
        if (!are_in_one_group(kind, &own, &at))
            continue;
        ranks[n] = lhi_grid_find_rank(g, &at);
        mine = ranks[n] == rank ? n : mine;
        n++;
    }
    return mine;
}

/* Returns how many consecutive pipeline copies (replica, context and tensor
 * ranks) a group of this kind contains before it skips some: above 1 only for
 * the groups of experts' slices. */
static uint32_t get_run_length(const lhi_grid *g, lhi_grid_group_kind kind)
{
    return kind == LHI_GRID_EXPERT_SLICES ? g->expert_tensor : 1;
}

/* Returns the distance, in pipeline copies, between the members of a group of
 * the kind, or between its runs of consecutive members. */
static uint32_t get_stride(const lhi_grid *g, lhi_grid_group_kind kind)
{
    switch (kind) {
    case LHI_GRID_CONTEXT:
    case LHI_GRID_DATA:
        return g->tensor;
    case LHI_GRID_EXPERT:
        return g->expert_tensor;
    case LHI_GRID_EXPERT_DATA:
    case LHI_GRID_EXPERT_SLICES:
        return g->expert_tensor * g->expert;
    default:
        return 1;
    }
}

/* Lists the data-parallel group of a grid whose devices have mirrors: in each
 * copy, the device with the lower number first. Returns the index of `rank`. */
static uint32_t find_mirrored_group(const lhi_grid *g, uint32_t rank,
                                    uint32_t *ranks)
{
    lhi_grid plain = *g;
    uint32_t device = rank % g->n_devices, mirror = g->n_devices - 1 - device;
    uint32_t low = device < mirror ? device : mirror;
    plain.mirrored = false;
    uint32_t n = lhi_grid_group_size(&plain, LHI_GRID_DATA, device);
    uint32_t mine = lhi_grid_find_group(&plain, LHI_GRID_DATA, rank, ranks);
    for (uint32_t i = n; i-- > 0;) {
        uint32_t first = ranks[i] - device;
        ranks[2 * i] = first + low;
        ranks[2 * i + 1] = first + g->n_devices - 1 - low;
    }
    return 2 * mine + (device != low);
}

uint32_t lhi_grid_find_group(const lhi_grid *g, lhi_grid_group_kind kind,
                             uint32_t rank, uint32_t *ranks)
{
    if (g->mirrored && kind == LHI_GRID_DATA)
        return find_mirrored_group(g, rank, ranks);
    if (g->tensors)
        return find_unequal_group(g, kind, rank, ranks);
    uint32_t n = lhi_grid_group_size(g, kind, 0), stride = get_stride(g, kind);
    uint32_t run = get_run_length(g, kind), copy = rank / g->n_devices;
    uint32_t mine = copy / stride % (n / run), at = copy % run;
    uint32_t first = copy - mine * stride - at;
    for (uint32_t i = 0; i < n; i++)
        ranks[i] = (first + i / run * stride + i % run) * g->n_devices +
                   rank % g->n_devices;
    return mine * run + at;
}

/* Returns a rank's node; `nodes`: per stage and pipeline copy. */
static uint32_t get_node(const lhi_grid *g, const uint32_t *nodes,
                         uint32_t rank)
{
    return nodes[(size_t)(rank % g->n_devices) * lhi_grid_count_copies(g) +
                 rank / g->n_devices];
}

uint32_t lhi_grid_select_same_node(const lhi_grid *g, const uint32_t *nodes,
                                   uint32_t n, uint32_t *ranks, uint32_t *mine)
{
    const uint32_t me = ranks[*mine], node = get_node(g, nodes, me);
    uint32_t near = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (get_node(g, nodes, ranks[i]) != node)
            continue;
        if (ranks[i] == me)
            *mine = near;
        ranks[near++] = ranks[i];
    }
    return near;
}
