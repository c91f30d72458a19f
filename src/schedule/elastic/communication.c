/* SPDX-License-Identifier: Apache-2.0 */
/* Assigns data-parallel communication to the passes that launch it (PipeMesh,
 * section III-C and algorithm 1, with chunks counted by blocks).
 *
 * A block is a microbatch group on one chunk. Its passes hide the gather
 * for the next block's parameters and the scatter for the previous block's
 * gradients. */
#include "schedule/elastic/elastic.h"
#include "schedule/elastic/elastic_internal.h"

#include <stdlib.h>

/* A block: microbatch group and chunk, both from 0. */
typedef struct block {
    uint32_t group, chunk;
    bool exists;
} block;

/* State for emitting operations: first run counts, second run stores. */
typedef struct launcher {
    const lh_elastic_case *g;
    const lh_elastic_plan *p;
    const lhi_elastic_times *times; /* per chunk; NULL: times from the case */
    lh_dp_op *ops;                  /* NULL: count only */
    uint64_t n;
} launcher;

/* Returns the duration in ns of one gather (C_p in the PipeMesh paper) or, with
 * is_scatter, of one scatter (C_g) of only a chunk's sharded parameters. */
static int64_t compute_partial_ns(const launcher *l, uint32_t chunk,
                                  bool is_scatter)
{
    int64_t share = is_scatter ? l->p->params_g : l->p->params_p;
    if (!l->times)
        return lhi_elastic_compute_partial_ns(l->g, share);
    const lhi_elastic_times *t = &l->times[chunk];
    return lhi_elastic_compute_part_ns(is_scatter ? t->sharded_scatter_ns
                                                  : t->sharded_gather_ns,
                                       share, l->g->params);
}

/* Returns the duration in ns of a chunk's full gather after the optimizer step
 * or, with is_scatter, of its last scatter. */
static int64_t compute_chunk_ns(const launcher *l, uint32_t chunk,
                                bool is_scatter)
{
    int64_t share = is_scatter ? l->p->params_g : l->p->params_p;
    if (!l->times)
        return lhi_elastic_compute_first_last_ns(l->g, share);
    const lhi_elastic_times *t = &l->times[chunk];
    return is_scatter
               ? lhi_elastic_compute_chunk_ns(
                     t->scatter_ns, t->sharded_scatter_ns, share, l->g->params)
               : lhi_elastic_compute_chunk_ns(
                     t->gather_ns, t->sharded_gather_ns, share, l->g->params);
}

/* Returns bucket `i`'s time when `total` ns are split into `n` integer parts
 * that add up to it. */
static int64_t compute_bucket_ns(int64_t total, uint32_t i, uint32_t n)
{
    return total / n + total % n * (i + 1) / n - total % n * i / n;
}

/* Appends a data-parallel operation to the launcher's list, or only counts it
 * while the list is not allocated; ignores operations without a transfer time.
 * */
static void add_operation(launcher *l, lh_dp_op op)
{
    if (op.transfer_ns == 0)
        return;
    if (l->ops)
        l->ops[l->n] = op;
    l->n++;
}

/* Returns the fraction of the chunk's parameters that `params` parameters are.
 * */
static double compute_share(const launcher *l, int64_t params)
{
    return (double)params / (double)l->g->params;
}

/* Returns the block (one microbatch group on one chunk) that follows block
 * (group, chunk) in forward order. */
static block next_forward(const launcher *l, uint32_t group, uint32_t chunk)
{
    if (chunk + 1 < l->g->chunks)
        return (block){group, chunk + 1, true};
    return (block){group + 1, 0, group + 1 < l->p->n_enqueue};
}

/* Returns the block (one microbatch group on one chunk) that follows block
 * (group, chunk) in backward order. */
static block next_backward(const launcher *l, uint32_t group, uint32_t chunk)
{
    if (chunk > 0)
        return (block){group, chunk - 1, true};
    return (block){group + 1, l->g->chunks - 1, group + 1 < l->p->n_dequeue};
}

/* Returns the block (one microbatch group on one chunk) that precedes block
 * (group, chunk) in backward order. */
static block get_previous_backward(const launcher *l, uint32_t group,
                                   uint32_t chunk)
{
    if (chunk + 1 < l->g->chunks)
        return (block){group, chunk + 1, true};
    return (block){group - 1, 0, group > 0};
}

/* Returns block `b`'s first forward (or `backward`) pass on a stage, before
 * which the block's gather must be done; `groups`: microbatches per group. */
static lh_dp_pass find_first_pass(const launcher *l, const uint32_t *groups,
                                  block b, uint32_t stage, bool backward)
{
    uint32_t m = 0;
    for (uint32_t j = 0; j < b.group; j++)
        m += groups[j];
    return (lh_dp_pass){b.chunk * l->g->stages + stage, m, backward};
}

/* Adds the gather bucket for block `next` that pass `n` of `count` in the
 * current block launches. The last `buckets` passes of a block launch one
 * bucket each. */
static void launch_gather(launcher *l, block next, const uint32_t *groups,
                          uint32_t stage, lh_dp_pass pass, uint32_t n,
                          uint32_t count, uint32_t buckets)
{
    buckets = buckets < count ? buckets : count;
    if (!next.exists || n < count - buckets)
        return;
    uint32_t i = n - (count - buckets);
    lh_dp_pass before = {LH_NONE, 0, false};
    if (i + 1 == buckets)
        before = find_first_pass(l, groups, next, stage, pass.backward);
    uint32_t c = next.chunk * l->g->stages + stage;
    add_operation(l,
                  (lh_dp_op){.chunk = c,
                             .bucket = i,
                             .n_buckets = buckets,
                             .kind = pass.backward ? LH_DP_AGB : LH_DP_AGF,
                             .share = compute_share(l, l->p->params_p),
                             .transfer_ns = compute_bucket_ns(
                                 compute_partial_ns(l, c, false), i, buckets),
                             .launch = pass,
                             .needed_by = before});
}

/* Adds the gathers that pass `n` in forward block (group, chunk) launches; a
 * block is one microbatch group on one chunk. */
static void launch_forward(launcher *l, uint32_t stage, uint32_t group,
                           uint32_t chunk, uint32_t n, lh_dp_pass pass)
{
    block next = next_forward(l, group, chunk);
    if (group > 0 || chunk + 1 == l->g->chunks) {
        launch_gather(l, next, l->p->enqueue, stage, pass, n,
                      l->p->enqueue[group], l->p->forward_buckets);
    } else if (n == 0) { /* gather of the updated parameters */
        uint32_t c = next.chunk * l->g->stages + stage;
        add_operation(
            l, (lh_dp_op){.chunk = c,
                          .n_buckets = 1,
                          .kind = LH_DP_AGO,
                          .share = 1,
                          .transfer_ns = compute_chunk_ns(l, c, false),
                          .launch = pass,
                          .needed_by = find_first_pass(l, l->p->enqueue, next,
                                                       stage, false)});
    }
}

/* Adds the scatter and gather buckets that pass `n` in backward block (group,
 * chunk) launches; a block is one microbatch group on one chunk. */
static void launch_backward(launcher *l, uint32_t stage, uint32_t group,
                            uint32_t chunk, uint32_t n, lh_dp_pass pass)
{
    uint32_t count = l->p->dequeue[group];
    uint32_t buckets = l->p->scatter_buckets;
    block before = get_previous_backward(l, group, chunk);
    bool last = before.exists && before.group + 1 == l->p->n_dequeue;
    uint32_t c = before.chunk * l->g->stages + stage;
    buckets = last ? 1 : buckets < count ? buckets : count;
    if (before.exists && n < buckets) {
        int64_t whole_ns = last ? compute_chunk_ns(l, c, true)
                                : compute_partial_ns(l, c, true);
        add_operation(
            l,
            (lh_dp_op){.chunk = c,
                       .is_reduce_scatter = true,
                       .bucket = n,
                       .n_buckets = buckets,
                       .kind = last ? LH_DP_RSO : LH_DP_RSG,
                       .share = last ? 1 : compute_share(l, l->p->params_g),
                       .transfer_ns = compute_bucket_ns(whole_ns, n, buckets),
                       .launch = pass,
                       .needed_by = {LH_NONE, 0, false}});
    }
    launch_gather(l, next_backward(l, group, chunk), l->p->dequeue, stage, pass,
                  n, count, l->p->backward_buckets);
}

/* Adds all data-parallel operations that the forward passes of stage `stage`
 * launch or, with is_backward, its backward passes. */
static void launch_stage(launcher *l, uint32_t stage, bool is_backward)
{
    uint32_t n_groups = is_backward ? l->p->n_dequeue : l->p->n_enqueue;
    const uint32_t *groups = is_backward ? l->p->dequeue : l->p->enqueue;
    for (uint32_t c = 0; c < l->g->chunks; c++) {
        uint32_t m = 0;
        for (uint32_t j = 0; j < n_groups; j++)
            for (uint32_t n = 0; n < groups[j]; n++, m++) {
                lh_dp_pass pass = {c * l->g->stages + stage, m, is_backward};
                (is_backward ? launch_backward : launch_forward)(l, stage, j, c,
                                                                 n, pass);
            }
    }
}

/* Adds the data-parallel operations of all stages to the list: the gathers that
 * forwards launch, and the gathers and reduce-scatters that backwards
 * launch. */
static void launch_all(launcher *l)
{
    for (uint32_t stage = 0; stage < l->g->stages; stage++) {
        launch_stage(l, stage, false);
        launch_stage(l, stage, true);
    }
}

lh_status lhi_elastic_build_operations(const lh_elastic_case *given,
                                       const lh_elastic_plan *plan,
                                       const lhi_elastic_times *times,
                                       lh_dp_op **ops, uint32_t *n_ops,
                                       lh_error *err)
{
    LHI_TRY(lhi_elastic_check_case(given, err));
    launcher l = {.g = given, .p = plan, .times = times};
    launch_all(&l);
    if (l.n > LH_MAX_DP_OPS)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "more than %u data-parallel communications",
                        LH_MAX_DP_OPS);
    l.ops = calloc(l.n + 1, sizeof *l.ops);
    if (!l.ops)
        return lhi_fail_nomem(err);
    l.n = 0;
    launch_all(&l);
    *ops = l.ops;
    *n_ops = (uint32_t)l.n;
    return LH_OK;
}

lh_status lhi_elastic_operations(const lh_elastic_case *given,
                                 const lh_elastic_plan *plan, lh_dp_op **ops,
                                 uint32_t *n_ops, lh_error *err)
{
    return lhi_elastic_build_operations(given, plan, NULL, ops, n_ops, err);
}

/* Frees a data-parallel operation list; ignores NULL. */
void lhi_elastic_ops_free(lh_dp_op *ops)
{
    free(ops);
}
