/* SPDX-License-Identifier: Apache-2.0 */
/* Dependencies around the passes: data-parallel communication, the optimizer
 * step, and the rank groups that run each collective together. */
#include "report/diagnosis/step_dependencies_internal.h"

#include <string.h>

/* --- collective groups ---------------------------------------------------- */

/* Puts the k-th `op` operations of the workers from, from + stride, ... below
 * `to` into one group, for k = 0, 1, ..., so that they start together in the
 * replay. Skips workers without that kind. */
static void group_kind(lhi_dependency_search *w, lhi_op_type op, uint32_t from,
                       uint32_t to, uint32_t stride)
{
    uint32_t first = 0, n = 0, row;
    for (uint32_t i = from; i < to; i += stride) {
        uint32_t more = lhi_rows_of_kind(w->ops, i, op, &row);
        if (more == 0)
            continue;
        if (n && more != n) {
            w->out->reason = "ranks have different numbers of a collective";
            return;
        }
        for (uint32_t k = 0; n && k < n; k++)
            lhi_dependency_group(w, first + k, row + k);
        if (n == 0) {
            first = row;
            n = more;
        }
    }
}

/* Checks that a stage's replicas have equal numbers of each kind of operation,
 * except messages; otherwise the recording is incomplete. */
static void compare_replicas(lhi_dependency_search *w)
{
    uint32_t row, S = w->ops->n_stages;
    for (uint32_t i = S; i < w->ops->n_workers; i++)
        for (uint32_t k = 0; k < LHI_N_OPS; k++)
            if ((k < LHI_OP_FORWARD_SEND || k > LHI_OP_BACKWARD_RECV) &&
                lhi_rows_of_kind(w->ops, i, (lhi_op_type)k, &row) !=
                    lhi_rows_of_kind(w->ops, i % S, (lhi_op_type)k, &row)) {
                w->out->reason =
                    "replicas have different numbers of operations";
                return;
            }
}

/* Groups the recorded collectives, so that all members start together: per
 * stage over replicas, embedding all-reduces per replica, gradient clipping
 * over all workers. */
static void group_collectives(lhi_dependency_search *w)
{
    static const lhi_op_type of_stage[] = {
        LHI_OP_ALL_GATHER, LHI_OP_REDUCE_SCATTER, LHI_OP_SEPARATE};
    uint32_t S = w->ops->n_stages, all = w->ops->n_workers;
    for (uint32_t s = 0; s < S; s++)
        for (uint32_t k = 0; k < 3; k++)
            group_kind(w, of_stage[k], s, all, S);
    for (uint32_t r = 0; r < w->ops->n_replicas; r++)
        group_kind(w, LHI_OP_EMBEDDING, r * S, (r + 1) * S, 1);
    group_kind(w, LHI_OP_CLIP, 0, all, 1);
}

/* --- chunks --------------------------------------------------------------- */

/* The first forward and the final pass of a worker's chunk; LH_NONE: none. */
typedef struct chunk_limits {
    uint32_t first, last;
} chunk_limits;

enum { N_CHUNK_NUMBERS = INT16_MAX + 2 }; /* chunk numbers from -1 up */

/* The current worker's chunks, indexed by chunk number + 1: by their number in
 * the model and on the stage. */
typedef struct worker_chunks {
    chunk_limits *in_model, *on_stage;
} worker_chunks;

/* Allocates the tables for one worker (a replica's stage) with each chunk's
 * first and last pass; all entries are LH_NONE. */
static lh_status alloc_chunks(lhi_arena *arena, worker_chunks *out,
                              lh_error *err)
{
    out->in_model = LHI_NEW(arena, chunk_limits, N_CHUNK_NUMBERS);
    out->on_stage = LHI_NEW(arena, chunk_limits, N_CHUNK_NUMBERS);
    if (!out->in_model || !out->on_stage)
        return lhi_fail_nomem(err);
    memset(out->in_model, 0xff, N_CHUNK_NUMBERS * sizeof *out->in_model);
    memset(out->on_stage, 0xff, N_CHUNK_NUMBERS * sizeof *out->on_stage);
    return LH_OK;
}

/* Stores the first and last pass of each chunk of `worker` in the tables; if
 * `away`, resets these entries to LH_NONE, so that the tables serve the next
 * worker. */
static void index_chunks(const lhi_dependency_search *w, uint32_t worker,
                         bool away, worker_chunks *out)
{
    for (uint32_t i = w->first_pass[worker]; i < w->first_pass[worker + 1];
         i++) {
        uint32_t pass = w->passes[i];
        const lhi_op_row *row = &w->ops->rows[pass];
        chunk_limits *both[] = {&out->in_model[row->chunk + 1],
                                &out->on_stage[row->stage_chunk + 1]};
        for (uint32_t k = 0; k < 2; k++)
            if (away)
                *both[k] = (chunk_limits){LH_NONE, LH_NONE};
            else if (row->op != LHI_OP_FORWARD)
                both[k]->last = pass;
            else if (both[k]->first == LH_NONE)
                both[k]->first = pass;
    }
}

/* Returns first and last pass of a collective's chunk, by the chunk's number
 * in the model if known. */
static const chunk_limits *find_chunk_limits(const worker_chunks *chunks,
                                             const lhi_op_row *collective)
{
    return collective->chunk >= 0
               ? &chunks->in_model[collective->chunk + 1]
               : &chunks->on_stage[collective->stage_chunk + 1];
}

/* --- before the passes ---------------------------------------------------- */

/* Makes each all-gather on a worker depend on the previous one in the replay,
 * and each chunk's first forward on its all-gather. */
static void add_gather_dependencies(lhi_dependency_search *w, uint32_t worker,
                                    const worker_chunks *chunks)
{
    uint32_t row, n = lhi_rows_of_kind(w->ops, worker, LHI_OP_ALL_GATHER, &row);
    uint32_t later = LH_NONE; /* pass that needs the following all-gather */
    for (uint32_t k = n; k-- > 0;) {
        if (k)
            lhi_dependency_add(w, row + k, row + k - 1);
        uint32_t pass =
            find_chunk_limits(chunks, &w->ops->rows[row + k])->first;
        /* An all-gather without a chunk precedes the first pass. */
        if (pass == LH_NONE)
            pass = w->passes[w->first_pass[worker]];
        if (pass != later) /* all-gathers complete in order */
            lhi_dependency_add(w, pass, row + k);
        later = pass;
    }
}

/* --- after the passes ----------------------------------------------------- */

/* Checks whether any worker ran an operation of that kind in the step. */
static bool has_kind(const lhi_step_ops *ops, lhi_op_type op)
{
    uint32_t row;
    for (uint32_t i = 0; i < ops->n_workers; i++)
        if (lhi_rows_of_kind(ops, i, op, &row))
            return true;
    return false;
}

/* Makes each reduce-scatter of a worker that overlaps with passes wait for its
 * chunk's final pass and for the previous reduce-scatter, in the replay.
 * Returns the last one; LH_NONE: there is none. */
static uint32_t overlap_scatters(lhi_dependency_search *w, uint32_t worker,
                                 const worker_chunks *chunks)
{
    uint32_t row, last = LH_NONE;
    uint32_t n = lhi_rows_of_kind(w->ops, worker, LHI_OP_REDUCE_SCATTER, &row);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t pass = find_chunk_limits(chunks, &w->ops->rows[row + k])->last;
        if (pass == LH_NONE)
            pass = w->passes[w->first_pass[worker + 1] - 1];
        lhi_dependency_add(w, row + k, pass);
        if (last != LH_NONE)
            lhi_dependency_add(w, row + k, last);
        last = row + k;
    }
    return last;
}

/* Makes each of a worker's `op` operations depend on the previous one, and the
 * first on operation `behind`; returns the last. */
static uint32_t chain_kind(lhi_dependency_search *w, uint32_t worker,
                           lhi_op_type op, uint32_t behind)
{
    uint32_t row, n = lhi_rows_of_kind(w->ops, worker, op, &row);
    for (uint32_t k = 0; k < n; k++) {
        if (behind != LH_NONE)
            lhi_dependency_add(w, row + k, behind);
        behind = row + k;
    }
    return behind;
}

/* Makes the operations after a worker's last pass, from garbage collection to
 * the optimizer, depend on each other in order. `overlaps`: reduce-scatters
 * overlap with passes and only precede gradient clipping. */
static void chain_final_operations(lhi_dependency_search *w, uint32_t worker,
                                   bool overlaps, const worker_chunks *chunks)
{
    static const lhi_op_type before[] = {LHI_OP_GC, LHI_OP_LAYERNORM,
                                         LHI_OP_EMBEDDING};
    static const lhi_op_type after[] = {LHI_OP_SEPARATE, LHI_OP_CLIP,
                                        LHI_OP_OPTIMIZER};
    uint32_t behind = w->passes[w->first_pass[worker + 1] - 1];
    uint32_t join = overlaps ? overlap_scatters(w, worker, chunks) : LH_NONE;
    for (uint32_t k = 0; k < 3; k++)
        behind = chain_kind(w, worker, before[k], behind);
    if (!overlaps)
        behind = chain_kind(w, worker, LHI_OP_REDUCE_SCATTER, behind);
    for (uint32_t k = 0; k < 3; k++) {
        uint32_t row;
        if (join != LH_NONE &&
            lhi_rows_of_kind(w->ops, worker, after[k], &row)) {
            lhi_dependency_add(w, row, join);
            join = LH_NONE;
        }
        behind = chain_kind(w, worker, after[k], behind);
    }
}

lh_status lhi_dependencies_add_collectives(lhi_dependency_search *w,
                                           lh_error *err)
{
    bool overlaps = w->ops->is_preposted || has_kind(w->ops, LHI_OP_SEPARATE);
    worker_chunks chunks;
    LHI_TRY(alloc_chunks(w->arena, &chunks, err));
    compare_replicas(w);
    group_collectives(w);
    for (uint32_t i = 0; i < w->ops->n_workers && !w->out->reason; i++) {
        index_chunks(w, i, false, &chunks);
        add_gather_dependencies(w, i, &chunks);
        chain_final_operations(w, i, overlaps, &chunks);
        index_chunks(w, i, true, &chunks);
    }
    return LH_OK;
}
