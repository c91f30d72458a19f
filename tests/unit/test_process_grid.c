/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks, their process groups and the parts of their messages, compared with
 * enumeration. */
#include "runtime/engine/process_grid.h"
#include "runtime/engine/rank.h"
#include "test.h"

#include <string.h>

static const lhi_grid grids[] = {
    {1, 1, 1, 1, 1, 1, false, NULL},
    {4, 1, 1, 1, 1, 1, false, NULL},
    {3, 2, 1, 1, 1, 1, false, NULL},
    {2, 1, 1, 4, 1, 1, false, NULL},
    {2, 1, 3, 1, 1, 1, false, NULL},
    {2, 3, 2, 2, 1, 2, false, NULL},
    {1, 4, 1, 2, 4, 1, false, NULL},
    {3, 2, 2, 2, 4, 2, false, NULL},
    {2, 4, 2, 2, 2, 4, false, NULL},
    {4, 1, 1, 1, 1, 1, true, NULL},
    {2, 3, 2, 2, 1, 1, true, NULL},
    {3, 1, 1, 2, 1, 1, false, (const uint32_t[]){2, 1, 2}},
    {4, 2, 2, 4, 1, 1, false, (const uint32_t[]){1, 4, 2, 3}},
    {2, 3, 1, 3, 1, 1, false, (const uint32_t[]){1, 3}},
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
    const uint32_t device = lhi_grid_find_coords(g, r).device;
    CHECK_INT(ranks[mine], r);
    for (uint32_t q = 0; q < lhi_grid_count_ranks(g); q++)
        if (together(g, kind, r, q)) {
            CHECK(n < lhi_grid_group_size(g, kind, device));
            CHECK_INT(ranks[n++], q);
        }
    CHECK_INT(n, lhi_grid_group_size(g, kind, device));
}

/* Members 1, 2 and 3 out of four; three of them are on one node. */
static void those_on_a_node_come_first(void)
{
    const lhi_grid g = {2, 4, 1, 1, 4, 1, false, NULL};
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
        uint32_t n = 0;
        for (uint32_t d = 0; d < g->n_devices; d++) {
            n += lhi_grid_get_tensor(g, d) * g->replicas * g->context;
            CHECK_INT(lhi_grid_find_coords(g, d).device, d);
        }
        CHECK_INT(lhi_grid_count_ranks(g), n);
        for (uint32_t r = 0; r < lhi_grid_count_ranks(g); r++) {
            lhi_grid_coords at = lhi_grid_find_coords(g, r);
            CHECK_INT(lhi_grid_find_rank(g, &at), r);
            CHECK(g->tensors || at.device == r % g->n_devices);
            CHECK(at.tensor < lhi_grid_get_tensor(g, at.device) &&
                  at.context < g->context && at.replica < g->replicas);
            for (uint32_t k = 0; k < LHI_N_GRID_KINDS; k++)
                check_group(g, (lhi_grid_group_kind)k, r);
        }
    }
}

/* Megatron-LM's order within a device: tensor, context, then replicas; expert
 * groups are inside the data-parallel ranks. */
static void numbers_as_megatron(void)
{
    const lhi_grid g = {1, 2, 2, 2, 2, 1, false, NULL};
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
        uint32_t n = lhi_grid_group_size(&g, (lhi_grid_group_kind)k, 0);
        lhi_grid_find_group(&g, (lhi_grid_group_kind)k, 5, ranks);
        CHECK(memcmp(ranks, of_5[k], n * sizeof *ranks) == 0);
    }
}

/* Returns the greatest common divisor. */
static uint32_t gcd(uint32_t a, uint32_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* Checks the parts between all ranks of two stages with one replica: a rank's
 * parts are its message's bytes in order; each is a part of its peer's message
 * with the same link and position; a link's positions are complete. Returns the
 * number of parts. */
static uint32_t check_parts(const lhi_grid *g, uint32_t n_rows, size_t row)
{
    uint32_t n = 0, on_link[8] = {0}, in_all[8] = {0};
    for (uint32_t r = 0; r < lhi_grid_count_ranks(g); r++) {
        const lhi_grid_coords at = lhi_grid_find_coords(g, r);
        const lhi_rank from = {
            .o = {.grid = g, .place = r, .stage = at.device, .n_rows = n_rows}};
        const uint32_t degree = g->tensors[at.device];
        const size_t rows =
            n_rows * (at.tensor + 1) / degree - n_rows * at.tensor / degree;
        size_t end = 0;
        const uint32_t n_parts = lhi_rank_count_parts(&from, 1 - at.device);
        for (uint32_t i = 0; i < n_parts; i++) {
            const lhi_message_part part =
                lhi_rank_get_part(&from, 1 - at.device, rows * row, i);
            CHECK_INT(part.offset, end);
            CHECK(part.bytes > 0 && part.position < part.n_on_link);
            end += part.bytes;
            /* the same values on the other side */
            const lhi_grid_coords peer = lhi_grid_find_coords(g, part.peer);
            const lhi_rank to = {.o = {.grid = g,
                                       .place = part.peer,
                                       .stage = peer.device,
                                       .n_rows = n_rows}};
            const uint32_t other = g->tensors[peer.device];
            const size_t first = n_rows * at.tensor / degree * row,
                         theirs = n_rows * peer.tensor / other * row;
            uint32_t found = 0;
            for (uint32_t k = 0; k < lhi_rank_count_parts(&to, at.device);
                 k++) {
                const lhi_message_part back = lhi_rank_get_part(
                    &to, at.device,
                    n_rows * (peer.tensor + 1) / other * row - theirs, k);
                if (back.peer != r)
                    continue;
                found++;
                CHECK_INT(back.bytes, part.bytes);
                CHECK_INT(theirs + back.offset, first + part.offset);
                CHECK_INT(back.copy, part.copy);
                CHECK_INT(back.position, part.position);
                CHECK_INT(back.n_on_link, part.n_on_link);
            }
            CHECK_INT(found, 1);
            if (at.device != 0)
                continue;
            n++;
            on_link[part.copy] |= 1u << part.position;
            in_all[part.copy] = (1u << part.n_on_link) - 1;
        }
        CHECK_INT(end, rows * row);
    }
    for (uint32_t i = 0; i < 8; i++)
        CHECK_INT(on_link[i], in_all[i]);
    return n;
}

/* Two divisions of the same rows into a and b equal shares overlap in a + b -
 * gcd(a, b) parts, because gcd(a, b) of the a + b ends coincide. */
static void messages_have_a_part_per_overlap(void)
{
    for (uint32_t a = 1; a <= 8; a++)
        for (uint32_t b = 1; b <= 8; b++) {
            const uint32_t tensors[] = {a, b};
            const lhi_grid g = {2, 1, 1, a > b ? a : b, 1, 1, false, tensors};
            CHECK_INT(check_parts(&g, a * b * 3, 20), a + b - gcd(a, b));
            check_parts(&g, 11, 4); /* shares of unequal size */
        }
}

static void refuses(void)
{
    static const uint32_t zero[] = {2, 0}, differ[] = {2, 1}, wide[] = {4, 1};
    static const struct {
        lhi_grid grid;
        lh_status status;
        const char *why;
    } bad[] = {
        {{1, 1, 1, 0, 1, 1, false, NULL},
         LH_EINVAL,
         "a parallel degree of 0 must be"},
        {{1, 5000, 1, 1, 1, 1, false, NULL},
         LH_EINVAL,
         "a parallel degree of 5000 must be"},
        {{64, 8, 4, 4, 1, 1, false, NULL},
         LH_EINVAL,
         "64 devices, 8 replicas, context 4 and tensor 4"},
        {{2, 1024, 1, 4, 1, 1, false, wide},
         LH_EINVAL,
         "context 1 and tensor 4 at most exceed 4096 ranks"},
        {{2, 2, 1, 2, 3, 1, false, NULL},
         LH_EINVAL,
         "4 ranks of a device are not a multiple of expert 3"},
        {{2, 2, 1, 2, 2, 4, false, NULL},
         LH_EINVAL,
         "expert 2 times expert_tensor 4"},
        {{2, 1, 1, 2, 1, 1, false, zero},
         LH_EINVAL,
         "device 1 has tensor degree 0, which must be 1 to 2"},
        {{2, 2, 1, 2, 2, 1, false, differ},
         LH_EUNSUPPORTED,
         "require a dense model"},
        {{2, 1, 1, 2, 1, 1, true, differ},
         LH_EUNSUPPORTED,
         "a pipeline with one direction"},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        lh_error err = {0};
        CHECK_INT(lhi_grid_check(&bad[i].grid, &err), bad[i].status);
        CHECK_HAS(err.text, bad[i].why);
    }
    /* as many ranks as are allowed, in copies that lack devices */
    const lhi_grid most = {2, 1024, 1, 3, 1, 1, false, (uint32_t[]){3, 1}};
    CHECK_INT(lhi_grid_check(&most, NULL), LH_OK);
}

int main(void)
{
    RUN(groups_are_those_alike);
    RUN(those_on_a_node_come_first);
    RUN(numbers_as_megatron);
    RUN(messages_have_a_part_per_overlap);
    RUN(refuses);
    return test_summary();
}
