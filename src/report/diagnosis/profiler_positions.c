/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of ranks whose passes do not name their chunk, as in PyTorch's
 * ScheduleGPipe and Schedule1F1B: such a rank has one chunk. Its stage is the
 * rank's index in the process group that is its pipeline. */
#include "report/diagnosis/profiler_internal.h"

/* Checks whether a rank has an `op` operation. */
static bool has_operation(const lhi_profiled_rank *r, uint8_t op)
{
    for (size_t i = 0; i < r->n_ops; i++)
        if (r->ops[i].op == op)
            return true;
    return false;
}

/* Checks whether a rank has passes, none of which names its chunk. */
static bool lacks_chunks(const lhi_profiled_rank *r)
{
    bool has_passes = false;
    for (size_t i = 0; i < r->n_ops; i++)
        if (lhi_range_is_pass(r->ops[i].op)) {
            has_passes = true;
            if (r->ops[i].chunk >= 0)
                return false;
        }
    return has_passes;
}

/* Returns rank `rank`'s index in a process group; LH_NONE if it is not in the
 * group. */
static uint32_t index_in_group(const lhi_rank_group *g, uint32_t rank)
{
    for (uint32_t i = 0; i < g->n; i++)
        if (g->ranks[i] == rank)
            return i;
    return LH_NONE;
}

/* Checks whether a process group is a pipeline by messages from its ranks with
 * traces: all but the first receive activations, and all but the last send
 * them. */
static bool is_chain(const lhi_profiler *p, const lhi_rank_group *g)
{
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        const lhi_profiled_rank *r = &p->ranks[i];
        uint32_t at = index_in_group(g, r->rank);
        if (at == LH_NONE)
            continue;
        if (has_operation(r, LHI_OP_FORWARD_RECV) != (at > 0) ||
            has_operation(r, LHI_OP_FORWARD_SEND) != (at + 1 < g->n))
            return false;
    }
    return true;
}

/* Returns a rank's stage: its index in the process group that is a pipeline;
 * LH_NONE if no group is. */
static uint32_t stage_of(const lhi_profiler *p, const lhi_profiled_rank *r)
{
    for (uint32_t i = 0; i < r->n_groups; i++)
        if (r->groups[i].n < INT16_MAX && is_chain(p, &r->groups[i]) &&
            index_in_group(&r->groups[i], r->rank) != LH_NONE)
            return index_in_group(&r->groups[i], r->rank);
    return LH_NONE;
}

void lhi_profiler_find_positions(lhi_profiler *p)
{
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        lhi_profiled_rank *r = &p->ranks[i];
        uint32_t stage = lacks_chunks(r) ? stage_of(p, r) : LH_NONE;
        for (size_t k = 0; k < r->n_ops && stage != LH_NONE; k++)
            if (r->ops[k].microbatch >= 0)
                r->ops[k].chunk = (int32_t)stage;
    }
}
