/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of messages between stages with different tensor degrees. The ranks of
 * a stage divide a microbatch's rows, each stage by its own degree, and a
 * rank's message has its rows in order. A part is the intersection of a
 * sender's and a receiver's rows. The side with the lower degree determines the
 * emulated link, since the cost model times a message between stages of the
 * lower degree. */
#include "runtime/device/tensor_slices.h"
#include "runtime/engine/rank.h"

/* A rank's rows, and those ranks of the other stage with some of them. */
typedef struct row_overlap {
    size_t first, end;           /* rows */
    uint32_t peer, end_of_peers; /* tensor indices */
} row_overlap;

/* Finds the ranks among `peers` tensor-parallel ranks of a stage whose rows
 * intersect those of rank `own` of `ranks`. */
static row_overlap find_overlap(uint32_t n_rows, uint32_t ranks, uint32_t own,
                                uint32_t peers)
{
    row_overlap o = {lhi_slice_first(n_rows, ranks, own),
                     lhi_slice_first(n_rows, ranks, own + 1), 0, 0};
    while (lhi_slice_first(n_rows, peers, o.peer + 1) <= o.first)
        o.peer++;
    o.end_of_peers = o.peer + 1;
    while (o.end_of_peers < peers &&
           lhi_slice_first(n_rows, peers, o.end_of_peers) < o.end)
        o.end_of_peers++;
    return o;
}

/* Finds the overlap of this rank's rows with those of stage `stage`. */
static row_overlap find_own_overlap(const lhi_rank *rank, uint32_t stage)
{
    const lhi_grid *g = rank->o.grid;
    return find_overlap(rank->o.n_rows, lhi_grid_get_tensor(g, rank->o.stage),
                        lhi_grid_find_coords(g, rank->o.place).tensor,
                        lhi_grid_get_tensor(g, stage));
}

uint32_t lhi_rank_count_parts(const lhi_rank *rank, uint32_t stage)
{
    if (!rank->o.grid)
        return 1;
    const row_overlap o = find_own_overlap(rank, stage);
    return o.end_of_peers - o.peer;
}

lhi_message_part lhi_rank_get_part(const lhi_rank *rank, uint32_t stage,
                                   size_t bytes, uint32_t i)
{
    const lhi_grid *g = rank->o.grid;
    if (!g)
        return (lhi_message_part){.peer = lhi_rank_of_stage(rank, stage),
                                  .copy = (rank->o.place - rank->o.stage) /
                                          rank->o.exec->n_ranks,
                                  .bytes = bytes,
                                  .n_on_link = 1};
    const uint32_t n_rows = rank->o.n_rows;
    const uint32_t own = lhi_grid_get_tensor(g, rank->o.stage),
                   other = lhi_grid_get_tensor(g, stage);
    const lhi_grid_coords me = lhi_grid_find_coords(g, rank->o.place);
    const row_overlap o = find_own_overlap(rank, stage);
    lhi_grid_coords at = me;
    at.device = stage;
    at.tensor = o.peer + i;
    size_t first = lhi_slice_first(n_rows, other, at.tensor),
           end = lhi_slice_first(n_rows, other, at.tensor + 1);
    first = first > o.first ? first : o.first;
    end = end < o.end ? end : o.end;
    const size_t row_bytes = bytes / (o.end - o.first);
    lhi_message_part part = {
        .peer = lhi_rank_assignment_find_rank(rank->o.assignment,
                                              lhi_grid_find_rank(g, &at)),
        .offset = (first - o.first) * row_bytes,
        .bytes = (end - first) * row_bytes,
        .position = i,
        .n_on_link = o.end_of_peers - o.peer};
    uint32_t narrow = me.tensor;
    if (other < own) {
        const row_overlap theirs = find_overlap(n_rows, other, at.tensor, own);
        narrow = at.tensor;
        part.position = me.tensor - theirs.peer;
        part.n_on_link = theirs.end_of_peers - theirs.peer;
    }
    part.copy = (me.replica * g->context + me.context) * g->tensor + narrow;
    return part;
}
