/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/replica_pipeline.h"

#include "report/diagnosis/replay_trace.h"

#include "base/sort.h"

#include <longhaul/experimental/schedule.h>

#include <stdlib.h>
#include <string.h>

/* --- times ---------------------------------------------------------------- */

/* Total time and pass count per kind. */
typedef struct pass_sums {
    double ns[LHI_OP_WEIGHT + 1];
    uint64_t n[LHI_OP_WEIGHT + 1];
} pass_sums;

/* Returns the mean duration in ns of `op` passes in the sums; 0 if there are
 * none. */
static double get_mean(const pass_sums *sums, lhi_op_type op)
{
    return sums->n[op] ? sums->ns[op] / (double)sums->n[op] : 0;
}

lhi_chunk_times *lhi_chunk_times_compute(const lh_recording *recording,
                                         uint32_t replica, lhi_arena *arena)
{
    uint32_t n_chunks = recording->steps[0].graph->n_chunks;
    pass_sums *sums = LHI_NEW(arena, pass_sums, n_chunks);
    lhi_chunk_times *out = LHI_NEW(arena, lhi_chunk_times, n_chunks);
    if (!sums || !out)
        return NULL;
    for (uint32_t i = 0; i < recording->n_steps; i++) {
        const lhi_op_graph *g = recording->steps[i].graph;
        for (uint32_t k = 0; k < g->n_ops; k++) {
            uint32_t chunk = g->chunk[k], worker = g->worker[k];
            if (!lhi_op_is_pass((lhi_op_type)g->op[k]) || chunk >= n_chunks ||
                (replica != LH_NONE && worker / g->n_stages != replica))
                continue;
            sums[chunk].ns[g->op[k]] +=
                (double)recording->steps[i].duration_ns[k];
            sums[chunk].n[g->op[k]]++;
            out[chunk].stage = worker % g->n_stages;
        }
    }
    for (uint32_t c = 0; c < n_chunks; c++) {
        out[c].f = get_mean(&sums[c], LHI_OP_FORWARD);
        out[c].b = get_mean(&sums[c], LHI_OP_BACKWARD);
        out[c].d = get_mean(&sums[c], LHI_OP_INPUT);
        out[c].w = get_mean(&sums[c], LHI_OP_WEIGHT);
    }
    return out;
}

/* --- pipeline ------------------------------------------------------------- */

/* Determines the form of all backward passes: *joint is true for B, false for D
 * and W apart. LH_EUNSUPPORTED: both forms occur, or steps differ in chunks or
 * microbatches. */
static lh_status find_form(const lh_recording *recording, bool *joint,
                           lh_error *err)
{
    bool has[LHI_N_OPS] = {false};
    const lhi_op_graph *first = recording->steps[0].graph;
    for (uint32_t i = 0; i < recording->n_graphs; i++) {
        const lhi_op_graph *g = recording->graphs[i];
        for (uint32_t k = 0; k < g->n_ops; k++)
            has[g->op[k]] = true;
        if (g->n_chunks != first->n_chunks ||
            g->n_microbatches != first->n_microbatches)
            return lhi_fail(
                err, LH_EUNSUPPORTED,
                "steps differ in their numbers of chunks or microbatches, so "
                "that they do not form one pipeline");
    }
    if (has[LHI_OP_BACKWARD] == (has[LHI_OP_INPUT] || has[LHI_OP_WEIGHT]))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "some backward passes are split into D and W and some "
                        "are not; a pipeline requires one form");
    *joint = has[LHI_OP_BACKWARD];
    return LH_OK;
}

/* Rounds a time of 0 or more ns to whole nanoseconds. */
static int64_t round_to_ns(double ns)
{
    return (int64_t)(ns + 0.5);
}

/* --- links ---------------------------------------------------------------- */

/* Total transfer time on a link between stages. */
typedef struct message_sum {
    uint32_t from, to; /* stages */
    double ns;
    uint64_t n;
} message_sum;

/* Compares links by sending stage, then by receiving stage, for sorting. */
static int compare_links(const void *a, const void *b)
{
    const message_sum *x = a, *y = b;
    if (x->from != y->from)
        return x->from > y->from ? 1 : -1;
    return (x->to > y->to) - (x->to < y->to);
}

/* Lists the links between stages of consecutive chunks in both directions;
 * returns their number. */
static uint32_t list_links(const lhi_chunk_times *times, uint32_t n_chunks,
                           message_sum *out)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t c = 1; c < n_chunks; c++) {
        uint32_t a = times[c - 1].stage, b = times[c].stage;
        if (a == b)
            continue;
        out[n++] = (message_sum){.from = a, .to = b};
        out[n++] = (message_sum){.from = b, .to = a};
    }
    lhi_sort(out, n, sizeof *out, compare_links);
    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || compare_links(&out[kept - 1], &out[i]) != 0)
            out[kept++] = out[i];
    return kept;
}

/* Adds the transfer times of the replica's recorded messages to the sums of the
 * n links. */
static void sum_messages(const lh_recording *recording, uint32_t replica,
                         message_sum *links, uint32_t n)
{
    uint32_t S = recording->n_stages;
    for (uint32_t i = 0; i < recording->n_steps; i++) {
        const lhi_op_graph *g = recording->steps[i].graph;
        for (uint32_t group = 0; group < g->n_groups; group++)
            for (uint32_t k = g->first[group]; k < g->first[group + 1]; k++) {
                if (!lhi_op_is_receive((lhi_op_type)g->op[k]) ||
                    g->worker[k] / S != replica)
                    continue;
                message_sum key = {.from = lhi_op_graph_sender(g, group, k) % S,
                                   .to = g->worker[k] % S};
                message_sum *link =
                    bsearch(&key, links, n, sizeof *links, compare_links);
                if (!link)
                    continue;
                link->ns += (double)recording->steps[i].duration_ns[k];
                link->n++;
            }
    }
}

/* Adds the links between stages to *desc, the pipeline's description. Their
 * latency is the mean transfer time of the replica's recorded messages;
 * LH_NONE: of all replicas. */
static lh_status make_links(const lh_recording *recording, uint32_t replica,
                            const lhi_chunk_times *times,
                            lh_pipeline_desc *desc, lhi_arena *arena,
                            lh_error *err)
{
    size_t room = 2 * (size_t)desc->n_chunks;
    message_sum *sums = LHI_NEW(arena, message_sum, room);
    lh_link *links = LHI_NEW(arena, lh_link, room);
    if (!sums || !links)
        return lhi_fail_nomem(err);
    uint32_t n = list_links(times, desc->n_chunks, sums);
    sum_messages(recording, replica, sums, n);
    for (uint32_t i = 0; i < n; i++)
        if (sums[i].ns > 0)
            links[desc->n_links++] = (lh_link){
                .from = sums[i].from,
                .to = sums[i].to,
                .latency_ns = round_to_ns(sums[i].ns / (double)sums[i].n)};
    desc->links = links;
    return LH_OK;
}

/* Builds a replica's pipeline from each chunk's mean pass times, changed as
 * `how` says (split microbatches, memory limits). A unit of memory is one
 * resident microbatch. `joint`: D and W each get half of B's time. */
static lh_status make_pipeline(const lhi_chunk_times *times, bool joint,
                               const lhi_replica_changes *how,
                               lh_pipeline_desc *desc, lhi_arena *arena,
                               lh_pipeline **out, lh_error *err)
{
    lh_chunk *chunks = LHI_NEW(arena, lh_chunk, desc->n_chunks);
    double by = how->split_factor ? how->split_factor : 1;
    if (!chunks)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < desc->n_chunks; c++) {
        int64_t b = round_to_ns(times[c].b / by);
        chunks[c] =
            (lh_chunk){.device = times[c].stage,
                       .f_ns = round_to_ns(times[c].f / by),
                       .d_ns = joint ? b / 2 : round_to_ns(times[c].d / by),
                       .w_ns = joint ? b - b / 2 : round_to_ns(times[c].w / by),
                       .mem_f = 1,
                       .mem_w = -1};
    }
    desc->joint = joint;
    desc->chunks = chunks;
    desc->memory_limits = how->memory_limits;
    desc->memory_unit = "microbatches";
    return lh_pipeline_make(desc, out, err);
}

lh_status lhi_replica_pipeline_build(const lh_recording *recording,
                                     uint32_t replica,
                                     const lhi_replica_changes *how,
                                     lh_pipeline **out, lh_error *err)
{
    bool joint;
    const lhi_op_graph *g = recording->steps[0].graph;
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = g->n_stages,
                             .n_chunks = g->n_chunks,
                             .n_microbatches =
                                 g->n_microbatches *
                                 (how->split_factor ? how->split_factor : 1)};
    LHI_TRY(find_form(recording, &joint, err));
    lhi_arena *arena = lhi_arena_make(0);
    lhi_chunk_times *times =
        arena ? lhi_chunk_times_compute(recording, replica, arena) : NULL;
    lh_status status = times ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK && how->has_links)
        status = make_links(recording, replica, times, &desc, arena, err);
    if (status == LH_OK)
        status = make_pipeline(times, joint, how, &desc, arena, out, err);
    lhi_arena_free(arena);
    return status;
}

/* --- order ---------------------------------------------------------------- */

lh_status lhi_replica_schedule_build(const lh_recording *recording,
                                     uint32_t replica, lh_schedule **out,
                                     lh_error *err)
{
    const lhi_op_graph *g = recording->steps[0].graph;
    uint32_t S = g->n_stages;
    uint32_t *n = calloc(S, sizeof *n);
    lh_pass *passes = calloc((size_t)g->n_ops + 1, sizeof *passes);
    const lh_pass **orders = calloc(S, sizeof *orders);
    lh_status status = n && passes && orders ? LH_OK : lhi_fail_nomem(err);
    lh_pass *end = passes;
    for (uint32_t s = 0; status == LH_OK && s < S; s++) {
        orders[s] = end;
        for (uint32_t i = 0; i < g->n_ops; i++)
            if (g->worker[i] == replica * S + s &&
                lhi_op_is_pass((lhi_op_type)g->op[i]))
                *end++ = lhi_op_graph_pass(g, i);
        n[s] = (uint32_t)(end - orders[s]);
    }
    if (status == LH_OK)
        status = lh_schedule_make(S, orders, n, 0, NULL, out, err);
    free(n);
    free(passes);
    free(orders);
    return status;
}

/* Fails with LH_EINVAL if the recording has no replica with that index. */
static lh_status check_replica(const lh_recording *recording, uint32_t replica,
                               lh_error *err)
{
    if (replica < recording->n_replicas)
        return LH_OK;
    return lhi_fail(err, LH_EINVAL,
                    "there is no replica %u: the recording has %u of them",
                    replica, recording->n_replicas);
}

lh_status lh_recording_linked_pipeline(const lh_recording *recording,
                                       uint32_t replica, lh_pipeline **out,
                                       lh_error *err)
{
    LHI_TRY(check_replica(recording, replica, err));
    return lhi_replica_pipeline_build(recording, replica,
                                      &(lhi_replica_changes){.has_links = true},
                                      out, err);
}

lh_status lhi_recording_pipeline(const lh_recording *recording,
                                 uint32_t replica, lh_pipeline **pipeline,
                                 lh_schedule **schedule, lh_error *err)
{
    lh_pipeline *made = NULL;
    LHI_TRY(check_replica(recording, replica, err));
    LHI_TRY(lhi_replica_pipeline_build(recording, replica,
                                       &(lhi_replica_changes){0}, &made, err));
    if (schedule) {
        lh_status status =
            lhi_replica_schedule_build(recording, replica, schedule, err);
        if (status != LH_OK) {
            lh_pipeline_free(made);
            return status;
        }
    }
    *pipeline = made;
    return LH_OK;
}
