/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/step_dependencies_internal.h"

#include <string.h>

/* Lists a worker's passes, sorted by start, into `out`; within each kind they
 * are in order already. Returns the list's end. */
static uint32_t *order_passes(const lhi_step_ops *ops, uint32_t worker,
                              uint32_t *out)
{
    uint32_t at[LHI_OP_WEIGHT + 1], end[LHI_OP_WEIGHT + 1];
    for (uint32_t k = 0; k <= LHI_OP_WEIGHT; k++)
        end[k] = lhi_rows_of_kind(ops, worker, (lhi_op_type)k, &at[k]) + at[k];
    for (;;) {
        uint32_t best = LH_NONE;
        for (uint32_t k = 0; k <= LHI_OP_WEIGHT; k++)
            if (at[k] < end[k] &&
                (best == LH_NONE ||
                 ops->rows[at[k]].start_ns < ops->rows[at[best]].start_ns))
                best = k;
        if (best == LH_NONE)
            return out;
        *out++ = at[best]++;
    }
}

/* Lists each worker's passes by start time, and makes each of them wait for the
 * previous one in the replay. */
static void find_passes(lhi_dependency_search *w)
{
    uint32_t *at = w->passes;
    for (uint32_t i = 0; i < w->ops->n_workers; i++) {
        w->first_pass[i] = (uint32_t)(at - w->passes);
        uint32_t *end = order_passes(w->ops, i, at);
        for (uint32_t *p = at; p + 1 < end; p++)
            lhi_dependency_add(w, p[1], p[0]);
        at = end;
    }
    w->first_pass[w->ops->n_workers] = (uint32_t)(at - w->passes);
}

/* Determines each chunk's stage. Sets w->out->reason if a pass lacks its chunk
 * or microbatch, or a chunk runs on several stages. */
static lh_status find_chunks(lhi_dependency_search *w, lh_error *err)
{
    const lhi_step_ops *ops = w->ops;
    uint32_t n = 0, n_passes = w->first_pass[ops->n_workers];
    for (uint32_t i = 0; i < n_passes; i++) {
        const lhi_op_row *row = &ops->rows[w->passes[i]];
        int32_t chunk = lhi_step_pass_chunk(ops, row);
        if (chunk < 0 || row->microbatch < 0) {
            w->out->reason = "a pass has no chunk or microbatch";
            return LH_OK;
        }
        n = (uint32_t)chunk >= n ? (uint32_t)chunk + 1 : n;
        if ((uint32_t)row->microbatch >= w->out->n_microbatches)
            w->out->n_microbatches = (uint32_t)row->microbatch + 1;
    }
    w->out->n_chunks = n;
    if (n > n_passes) { /* avoids a table as large as any number in a file */
        w->out->reason = "a chunk has no passes";
        return LH_OK;
    }
    w->stages = LHI_NEW(w->arena, uint32_t, n);
    if (!w->stages)
        return lhi_fail_nomem(err);
    memset(w->stages, 0xff, n * sizeof *w->stages);
    for (uint32_t i = 0; i < n_passes; i++) {
        const lhi_op_row *row = &ops->rows[w->passes[i]];
        uint32_t *stage = &w->stages[lhi_step_pass_chunk(ops, row)];
        if (*stage == LH_NONE)
            *stage = row->stage;
        else if (*stage != row->stage)
            w->out->reason = "a chunk appears on two stages";
    }
    for (uint32_t c = 0; c < n; c++)
        if (w->stages[c] == LH_NONE)
            w->out->reason = "a chunk has no passes";
    return LH_OK;
}

/* Allocates the arrays for a step's dependencies, all empty; each operation is
 * its own group. */
static lh_status alloc_needs(lhi_dependency_search *w, lh_error *err)
{
    uint32_t n = w->ops->n;
    lhi_step_dependencies *out = w->out;
    out->dependencies = lhi_arena_alloc(w->arena, n, sizeof *out->dependencies);
    out->next_in_group = LHI_NEW(w->arena, uint32_t, n);
    out->is_stray = LHI_NEW(w->arena, bool, n);
    w->passes = LHI_NEW(w->arena, uint32_t, n);
    w->first_pass = LHI_NEW(w->arena, uint32_t, w->ops->n_workers + 1);
    w->message_in = LHI_NEW(w->arena, uint32_t, n);
    w->message_out = LHI_NEW(w->arena, uint32_t, n);
    if (!out->dependencies || !out->next_in_group || !out->is_stray ||
        !w->passes || !w->first_pass || !w->message_in || !w->message_out)
        return lhi_fail_nomem(err);
    memset(out->dependencies, 0xff, n * sizeof *out->dependencies);
    memset(w->message_in, 0xff, n * sizeof *w->message_in);
    memset(w->message_out, 0xff, n * sizeof *w->message_out);
    for (uint32_t i = 0; i < n; i++)
        out->next_in_group[i] = i;
    return LH_OK;
}

lh_status lhi_step_dependencies_find(const lhi_step_ops *ops, lhi_arena *arena,
                                     lhi_step_dependencies *out, lh_error *err)
{
    lhi_dependency_search w = {.out = out, .ops = ops, .arena = arena};
    *out = (lhi_step_dependencies){.ops = ops};
    LHI_TRY(alloc_needs(&w, err));
    find_passes(&w);
    LHI_TRY(find_chunks(&w, err));
    if (!out->reason)
        LHI_TRY(lhi_dependencies_add_messages(&w, err));
    if (!out->reason)
        LHI_TRY(lhi_dependencies_add_collectives(&w, err));
    return LH_OK;
}
