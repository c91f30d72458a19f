/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and their process groups, compared with enumeration. */
#include "runtime/engine/process_grid.h"
#include "test.h"

#include <string.h>

static const lhi_grid grids[] = {
    {1, 1, 1, 1, 1, 1, false}, {4, 1, 1, 1, 1, 1, false},
    {3, 2, 1, 1, 1, 1, false}, {2, 1, 1, 4, 1, 1, false},
    {2, 1, 3, 1, 1, 1, false}, {2, 3, 2, 2, 1, 2, false},
    {1, 4, 1, 2, 4, 1, false}, {3, 2, 2, 2, 4, 2, false},
    {2, 4, 2, 2, 2, 4, false}, {4, 1, 1, 1, 1, 1, true},
    {2, 3, 2, 2, 1, 1, true},
};
enum { N_GRIDS = sizeof grids / sizeof *grids, MOST = 64 };

/* Checks whether two ranks are in one group of that kind. */
static bool together(const lhi_grid *g, lhi_grid_group_kind kind, uint32_t r,
                     uint32_t q)
{
    lhi_grid_coords a = lhi_grid_find_coords(g, r),
                    b = lhi_grid_find_coords(g, q);
    bool tensor = a.tensor == b.tensor, context = a.context == b.context;
    bool replica = a.replica == b.replica, expert = a.expert == b.expert;
    bool part = a.expert_tensor == b.expert_tensor;
    bool again = a.expert_replica == b.expert_replica;
    const bool same[LHI_N_GRID_KINDS] = {
        [LHI_GRID_TENSOR] = replica && context,
        [LHI_GRID_CONTEXT] = replica && tensor,
        [LHI_GRID_DATA] = tensor,
        [LHI_GRID_EXPERT] = part && again,
        [LHI_GRID_EXPERT_TENSOR] = expert && again,
        [LHI_GRID_EXPERT_DATA] = part && expert,
        [LHI_GRID_EXPERT_SLICES] = expert,
        [LHI_GRID_COPIES] = true,
    };
    bool mirror = g->mirrored && kind == LHI_GRID_DATA &&
                  a.device + b.device + 1 == g->n_devices;
    return (a.device == b.device || mirror) && same[kind];
}

static void check_group(const lhi_grid *g, lhi_grid_group_kind kind, uint32_t r)
{
    uint32_t ranks[MOST], n = 0;
    uint32_t mine = lhi_grid_find_group(g, kind, r, ranks);
    CHECK_INT(ranks[mine], r);
    for (uint32_t q = 0; q < lhi_grid_count_ranks(g); q++)
        if (together(g, kind, r, q)) {
            CHECK(n < lhi_grid_group_size(g, kind));
            CHECK_INT(ranks[n++], q);
        }
    CHECK_INT(n, lhi_grid_group_size(g, kind));
}

/* Members 1, 2 and 3 out of four; three of them are on one node. */
static void those_on_a_node_come_first(void)
{
    const lhi_grid g = {2, 4, 1, 1, 4, 1, false};
    const uint32_t nodes[] = {0, 1, 0, 0, 2, 2, 2, 3};
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t ranks[] = {0, 2, 4, 6}, mine = i;
        CHECK_INT(lhi_grid_select_same_node(&g, nodes, 4, ranks, &mine),
                  i == 1 ? 1 : 3);
        CHECK_INT(ranks[mine], 2 * i);
        CHECK_INT(ranks[0], i == 1 ? 2 : 0);
        CHECK(i == 1 || (ranks[1] == 4 && ranks[2] == 6));
    }
    uint32_t ranks[] = {1, 3, 5, 7}, mine = 2;
    CHECK_INT(lhi_grid_select_same_node(&g, nodes, 4, ranks, &mine), 3);
    CHECK(mine == 2 && ranks[0] == 1 && ranks[1] == 3 && ranks[2] == 5);
}

static void groups_are_those_alike(void)
{
    for (int i = 0; i < N_GRIDS; i++) {
        const lhi_grid *g = &grids[i];
        lh_error err = {0};
        CHECK_OK(lhi_grid_check(g, &err), err);
        CHECK_INT(lhi_grid_count_ranks(g),
                  g->n_devices * g->replicas * g->context * g->tensor);
        for (uint32_t r = 0; r < lhi_grid_count_ranks(g); r++) {
            lhi_grid_coords at = lhi_grid_find_coords(g, r);
            CHECK_INT(lhi_grid_find_rank(g, &at), r);
            CHECK_INT(at.device, r % g->n_devices);
            CHECK(at.tensor < g->tensor && at.context < g->context &&
                  at.replica < g->replicas);
            for (uint32_t k = 0; k < LHI_N_GRID_KINDS; k++)
                check_group(g, (lhi_grid_group_kind)k, r);
        }
    }
}

/* Megatron-LM's order within a device: tensor, context, then replicas; expert
 * groups are inside the data-parallel ranks. */
static void numbers_as_megatron(void)
{
    const lhi_grid g = {1, 2, 2, 2, 2, 1, false};
    uint32_t ranks[MOST];
    static const uint32_t of_5[LHI_N_GRID_KINDS][8] = {
        [LHI_GRID_TENSOR] = {4, 5},
        [LHI_GRID_CONTEXT] = {5, 7},
        [LHI_GRID_DATA] = {1, 3, 5, 7},
        [LHI_GRID_EXPERT] = {4, 5},
        [LHI_GRID_EXPERT_TENSOR] = {5},
        [LHI_GRID_EXPERT_DATA] = {1, 3, 5, 7},
        [LHI_GRID_EXPERT_SLICES] = {1, 3, 5, 7},
        [LHI_GRID_COPIES] = {0, 1, 2, 3, 4, 5, 6, 7},
    };
    for (uint32_t k = 0; k < LHI_N_GRID_KINDS; k++) {
        uint32_t n = lhi_grid_group_size(&g, (lhi_grid_group_kind)k);
        lhi_grid_find_group(&g, (lhi_grid_group_kind)k, 5, ranks);
        CHECK(memcmp(ranks, of_5[k], n * sizeof *ranks) == 0);
    }
}

static void refuses(void)
{
    static const struct {
        lhi_grid grid;
        const char *why;
    } bad[] = {
        {{1, 1, 1, 0, 1, 1, false}, "a parallel degree of 0 must be"},
        {{1, 5000, 1, 1, 1, 1, false}, "a parallel degree of 5000 must be"},
        {{64, 8, 4, 4, 1, 1, false},
         "64 devices, 8 replicas, context 4 and tensor 4"},
        {{2, 2, 1, 2, 3, 1, false},
         "4 ranks of a device are not a multiple of expert 3"},
        {{2, 2, 1, 2, 2, 4, false}, "expert 2 times expert_tensor 4"},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        lh_error err = {0};
        CHECK_INT(lhi_grid_check(&bad[i].grid, &err), LH_EINVAL);
        CHECK_HAS(err.text, bad[i].why);
    }
}

int main(void)
{
    RUN(groups_are_those_alike);
    RUN(those_on_a_node_come_first);
    RUN(numbers_as_megatron);
    RUN(refuses);
    return test_summary();
}
