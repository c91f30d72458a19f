/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel operations launched by passes: checks, sorting, indexing. */
#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/pipeline/schedule_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static lh_status fail_operation(const lhi_pipeline_origin *origin, uint32_t i,
                                lh_error *err, const char *format, ...)
    LHI_PRINTF(4, 5);

/* Fails with LH_EINPUT because data-parallel operation `i` is invalid, with the
 * formatted message. It begins with the operation's file position if `origin`
 * has one. */
static lh_status fail_operation(const lhi_pipeline_origin *origin, uint32_t i,
                                lh_error *err, const char *format, ...)
{
    char text[sizeof err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (origin && origin->op_nodes)
        return lhi_doc_fail(origin->doc, origin->op_nodes[i], err, LH_EINPUT,
                            "%s", text);
    return lhi_fail(err, LH_EINPUT,
                    "pipeline: data_parallel.operations[%" PRIu32 "]: %s", i,
                    text);
}

/* Checks that the pass `at`, named `what` in errors, exists and runs on the
 * device of operation `op`, which has number i. Errors have the file position.
 * */
static lh_status check_point(const lh_pipeline *p, const lh_dp_op *op,
                             const lh_dp_pass *at, const char *what,
                             const lhi_pipeline_origin *origin, uint32_t i,
                             lh_error *err)
{
    if (at->chunk >= p->n_chunks || at->microbatch >= p->n_microbatches)
        return fail_operation(origin, i, err,
                              "%s: chunk %" PRIu32 " on microbatch %" PRIu32
                              " does not exist; there are %" PRIu32
                              " chunks and %" PRIu32 " microbatches",
                              what, at->chunk, at->microbatch, p->n_chunks,
                              p->n_microbatches);
    uint32_t here = p->chunks[op->chunk].device;
    uint32_t there = p->chunks[at->chunk].device;
    if (here != there)
        return fail_operation(origin, i, err,
                              "%s: chunk %" PRIu32 " is on device %" PRIu32
                              ", chunk %" PRIu32
                              ", which communicates, is on device %" PRIu32
                              "; both must be on the same "
                              "device",
                              what, at->chunk, there, op->chunk, here);
    return LH_OK;
}

const char *const lhi_dp_kind_names[] = {"AGO", "AGF", "AGB",
                                         "RSG", "RSO", NULL};

/* Returns a data-parallel operation kind's name, as in pipeline files; static
 * storage. */
const char *lh_dp_kind_name(lh_dp_kind kind)
{
    return kind == LH_DP_ANY ? "" : lhi_dp_kind_names[kind - LH_DP_AGO];
}

/* Checks that an operation's kind agrees with its direction (all-gather or
 * reduce-scatter) and its launching pass, and that its share is above 0 and at
 * most 1. An operation without kind and share is valid. */
static lh_status check_kind(const lh_dp_op *op,
                            const lhi_pipeline_origin *origin, uint32_t i,
                            lh_error *err)
{
    bool scatters = op->kind == LH_DP_RSG || op->kind == LH_DP_RSO;
    bool backward = scatters || op->kind == LH_DP_AGB;
    if (op->kind == LH_DP_ANY && !(op->share > 0) && !(op->share < 0))
        return LH_OK;
    if ((unsigned)op->kind > LH_DP_RSO || op->kind == LH_DP_ANY)
        return fail_operation(
            origin, i, err,
            "'share' requires 'kind', one of AGO, AGF, AGB, RSG or RSO");
    if (op->is_reduce_scatter != scatters)
        return fail_operation(origin, i, err, "%s is %s, not %s",
                              lh_dp_kind_name(op->kind),
                              scatters ? "a reduce_scatter" : "an all_gather",
                              scatters ? "an all_gather" : "a reduce_scatter");
    if (op->launch.backward != backward)
        return fail_operation(
            origin, i, err, "%s is launched by a %s pass, not by a %s one",
            lh_dp_kind_name(op->kind), backward ? "backward" : "forward",
            backward ? "forward" : "backward");
    if (!(op->share > 0) || !(op->share <= 1))
        return fail_operation(
            origin, i, err,
            "the share must be above 0 and at most 1, not %.15g", op->share);
    return LH_OK;
}

/* Checks data-parallel operation i's chunk, time, bucket, kind and both passes;
 * errors have the file position. */
static lh_status check_op(const lh_pipeline *p, const lh_dp_op *op,
                          const lhi_pipeline_origin *origin, uint32_t i,
                          lh_error *err)
{
    if (op->chunk >= p->n_chunks)
        return fail_operation(origin, i, err, "unknown chunk %" PRIu32,
                              op->chunk);
    if (op->transfer_ns < 0 || op->transfer_ns > LHI_MAX_TIME_NS)
        return fail_operation(origin, i, err,
                              "a time is negative or above 2^52 ns (52 days)");
    if (op->bucket >= op->n_buckets)
        return fail_operation(origin, i, err,
                              "bucket %" PRIu32 " of %" PRIu32
                              " does not exist; buckets are numbered from 0",
                              op->bucket, op->n_buckets);
    LHI_TRY(check_point(p, op, &op->launch, "launch", origin, i, err));
    LHI_TRY(check_kind(op, origin, i, err));
    if (op->needed_by.chunk == LH_NONE)
        return LH_OK;
    LHI_TRY(check_point(p, op, &op->needed_by, "before", origin, i, err));
    if (op->needed_by.chunk == op->launch.chunk &&
        op->needed_by.microbatch == op->launch.microbatch &&
        op->needed_by.backward == op->launch.backward)
        return fail_operation(origin, i, err,
                              "the pass that launches the operation cannot "
                              "wait for it");
    return LH_OK;
}

/* Returns a pass's index among the passes at which data-parallel operations
 * launch or must be done (by chunk, microbatch and direction). */
static size_t find_pass_index(const lh_pipeline *p, const lh_dp_pass *at)
{
    return lhi_pass_index(p, at->chunk, at->microbatch, at->backward);
}

/* Copies the enqueue or dequeue group sizes (`name` in errors) from `from` to
 * *to; fails unless they sum to the microbatch count. */
static lh_status copy_groups(lh_pipeline *p, const char *name, uint32_t n,
                             const uint32_t *from, uint32_t **to, lh_error *err)
{
    uint64_t sum = 0;
    *to = LHI_NEW(p->mem, uint32_t, n);
    if (!*to)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        (*to)[i] = from[i];
        sum += from[i];
    }
    if (sum == p->n_microbatches)
        return LH_OK;
    return lhi_fail(err, LH_EINPUT,
                    "pipeline: data_parallel.groups.%s: the groups have "
                    "%" PRIu64 " microbatches, %" PRIu64 " %s than the %" PRIu32
                    " there are",
                    name, sum,
                    sum > p->n_microbatches ? sum - p->n_microbatches
                                            : p->n_microbatches - sum,
                    sum > p->n_microbatches ? "more" : "fewer",
                    p->n_microbatches);
}

lh_status lhi_pipeline_copy_dp_groups(lh_pipeline *p,
                                      const lh_pipeline_desc *desc,
                                      lh_error *err)
{
    if (desc->n_enqueue == 0 && desc->n_dequeue == 0)
        return LH_OK;
    LHI_TRY(copy_groups(p, "enqueue", desc->n_enqueue, desc->enqueue,
                        &p->enqueue, err));
    LHI_TRY(copy_groups(p, "dequeue", desc->n_dequeue, desc->dequeue,
                        &p->dequeue, err));
    p->n_enqueue = desc->n_enqueue;
    p->n_dequeue = desc->n_dequeue;
    return LH_OK;
}

lh_status lhi_pipeline_copy_dp_ops(lh_pipeline *p, const lh_pipeline_desc *desc,
                                   const lhi_pipeline_origin *origin,
                                   lh_error *err)
{
    uint32_t n = desc->n_dp_ops;
    if (n == 0)
        return LH_OK;
    if (n > LH_MAX_DP_OPS)
        return lhi_fail(err, LH_EINPUT,
                        "pipeline: %" PRIu32 " data-parallel operations exceed "
                        "the limit of %u",
                        n, LH_MAX_DP_OPS);
    for (uint32_t i = 0; i < n; i++)
        LHI_TRY(check_op(p, &desc->dp_ops[i], origin, i, err));
    size_t points = 2 * (size_t)p->n_chunks * p->n_microbatches;
    p->dp_ops = LHI_NEW(p->mem, lh_dp_op, n);
    p->dp_first = LHI_NEW(p->mem, uint32_t, points + 2);
    p->dp_waits = LHI_NEW(p->mem, uint32_t, points);
    if (!p->dp_ops || !p->dp_first || !p->dp_waits)
        return lhi_fail_nomem(err);
    /* Counting sort. Counts are stored with offset two, so that the prefix sums
     * yield start positions with offset one; placing an operation then advances
     * them to their final values. */
    for (uint32_t i = 0; i < n; i++) {
        const lh_dp_op *op = &desc->dp_ops[i];
        p->dp_first[find_pass_index(p, &op->launch) + 2]++;
        if (op->needed_by.chunk != LH_NONE)
            p->dp_waits[find_pass_index(p, &op->needed_by)]++;
    }
    for (size_t i = 1; i < points + 2; i++)
        p->dp_first[i] += p->dp_first[i - 1];
    for (uint32_t i = 0; i < n; i++) {
        const lh_dp_op *op = &desc->dp_ops[i];
        p->dp_ops[p->dp_first[find_pass_index(p, &op->launch) + 1]++] = *op;
    }
    p->n_dp_ops = n;
    return LH_OK;
}

/* Copies a device's data-parallel link name into the pipeline, unless copied
 * already; fails if it is no valid name. */
static lh_status copy_link(lh_pipeline *p, const lh_pipeline_desc *desc,
                           uint32_t device, lh_error *err)
{
    const char *name = desc->dp_links[device];
    if (!name || (p->dp_links && p->dp_links[device]))
        return LH_OK;
    if (!lhi_is_link_name(name, strlen(name)))
        return lhi_fail(err, LH_EINPUT,
                        "pipeline: data_parallel: the name of device %" PRIu32
                        "'s link must not be empty, hold commas, quotes or "
                        "control characters, or have blanks around it",
                        device);
    if (!p->dp_links)
        p->dp_links = LHI_NEW(p->mem, const char *, p->n_devices);
    if (!p->dp_links || !(p->dp_links[device] = lhi_arena_strdup(p->mem, name)))
        return lhi_fail_nomem(err);
    return LH_OK;
}

lh_status lhi_pipeline_copy_dp_links(lh_pipeline *p,
                                     const lh_pipeline_desc *desc,
                                     lh_error *err)
{
    if (!desc->dp_links)
        return LH_OK;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        if (p->chunks[c].all_gather_ns || p->chunks[c].reduce_scatter_ns)
            LHI_TRY(copy_link(p, desc, p->chunks[c].device, err));
    for (uint32_t i = 0; i < p->n_dp_ops; i++)
        LHI_TRY(copy_link(p, desc, p->chunks[p->dp_ops[i].chunk].device, err));
    return LH_OK;
}

const char *lh_pipeline_dp_link(const lh_pipeline *pipeline, uint32_t device)
{
    return pipeline->dp_links ? pipeline->dp_links[device] : NULL;
}

uint32_t lhi_pipeline_n_initial_gathers(const lh_pipeline *pipeline)
{
    return pipeline->first_gathers;
}

lh_status lhi_pipeline_copy_prefetch(lh_pipeline *p,
                                     const lh_pipeline_desc *desc,
                                     lh_error *err)
{
    p->first_gathers = desc->n_initial_gathers;
    if (p->first_gathers == 0)
        return LH_OK;
    lhi_mark mark = lhi_arena_mark(p->mem);
    uint32_t *gathers = LHI_NEW(p->mem, uint32_t, p->n_devices);
    if (!gathers)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < p->n_chunks; c++)
        if (p->chunks[c].all_gather_ns > 0 &&
            ++gathers[p->chunks[c].device] > p->first_gathers)
            p->has_deferred_gathers = true;
    lhi_arena_rewind(p->mem, mark);
    return LH_OK;
}

uint32_t lhi_pipeline_n_dp_ops(const lh_pipeline *pipeline)
{
    return pipeline->n_dp_ops;
}

const lh_dp_op *lh_pipeline_dp_op(const lh_pipeline *pipeline, uint32_t op)
{
    return &pipeline->dp_ops[op];
}
