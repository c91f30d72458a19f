/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of elastic pipelines share. Symbols as in PipeMesh: stages i
 * and chunks c count from 1.
 *
 * Closed forms for equal chunks on equal stages. In: a case (times and sizes
 * of a chunk, stages, replicas, microbatches). Out: plans, that is groups,
 * shares and buckets, and what they take (longhaul/elastic.h).
 *
 *   elastic_plan.c    the plan of a queue, and plans that are given
 *   elastic_order.c   its order of passes on a stage
 *   elastic_launch.c  its communications, and the passes that launch them
 *   elastic_model.c   its time and memory
 *   elastic_sums.c    what recomputing each set of operations takes and saves
 *   elastic_choose.c  queue, sharding and recomputation together
 *
 * What is found by event runs instead is in plan/elastic/. */
#ifndef LHI_ELASTIC_OWN_H
#define LHI_ELASTIC_OWN_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/elastic.h>

/* Shares of parameters are products of three numbers of up to 52, 20 and 50
 * bits: exact arithmetic needs more than 64. */
__extension__ typedef __int128 lhi_wide;

#define LHI_ELASTIC_MAX_TIME (INT64_C(1) << 52)
#define LHI_ELASTIC_MAX_PARAMS (INT64_C(1) << 50)

static inline lhi_wide lhi_wide_ceil(lhi_wide a, lhi_wide b)
{
    return a <= 0 ? 0 : (a - 1) / b + 1;
}

/* Refuses what no formula is meant for. */
lh_status lhi_elastic_check_case(const lh_elastic_case *given, lh_error *err);

/* x and whether pipeline messages hide, for any sequences, also those that
 * lh_elastic_plan_make() refuses. */
void lhi_elastic_derive(const lh_elastic_case *given, lh_elastic_plan *plan);

/* What the data-parallel communication of a chunk takes, in ns: at once, and
 * where its layers communicate one after the other, as what is sharded does. */
typedef struct lhi_elastic_times {
    int64_t gather_ns, scatter_ns;
    int64_t sharded_gather_ns, sharded_scatter_ns;
} lhi_elastic_times;

/* Of a whole chunk that communicates so, as `given` has it. */
int64_t lhi_elastic_sharded(const lh_elastic_case *given);

/* Of `share` of `params` that are sharded: of these alone, and of the whole
 * chunk, whose others communicate at once. In whole ns, rounded up. */
int64_t lhi_elastic_part_ns(int64_t sharded_ns, int64_t share, int64_t params);
int64_t lhi_elastic_whole_ns(int64_t at_once_ns, int64_t sharded_ns,
                             int64_t share, int64_t params);

/* C_g or C_p: of a share alone; and of a whole chunk with it. */
int64_t lhi_elastic_partial(const lh_elastic_case *given, int64_t share);
int64_t lhi_elastic_first_last(const lh_elastic_case *given, int64_t share);

/* lh_elastic_operations() of chunks that differ; `times` of each, NULL: as
 * `given` has them. */
lh_status lhi_elastic_operations(const lh_elastic_case *given,
                                 const lh_elastic_plan *plan,
                                 const lhi_elastic_times *times, lh_dp_op **ops,
                                 uint32_t *n_ops, lh_error *err);

/* A plan for `queue` into caller's storage: room for `queue_room` numbers in
 * each of `enqueue` and `dequeue`, at least lhi_elastic_groups(). */
uint32_t lhi_elastic_groups(const lh_elastic_case *given, uint32_t queue);
lh_status lhi_elastic_fill(const lh_elastic_case *given, uint32_t queue,
                           uint32_t *enqueue, uint32_t *dequeue,
                           lh_elastic_plan *out, lh_error *err);

/* A copy that its caller owns. */
lh_status lhi_elastic_copy(const lh_elastic_plan *from, lh_elastic_plan **out,
                           lh_error *err);

/* What a chunk pass of a stage recomputes, and what it stores. */
typedef struct lhi_elastic_again {
    int64_t ns, stored;
} lhi_elastic_again;

/* lh_elastic_pipeline() with an entry per stage. */
lh_status lhi_elastic_pipeline(const lh_elastic_case *given,
                               const lh_elastic_plan *plan,
                               const lhi_elastic_again *again,
                               lh_pipeline **out, lh_error *err);

/* The different sums of bytes that subsets of operations store, rising, each
 * with the least time of the operations that are not stored. */
typedef struct lhi_elastic_sum {
    int64_t stored, recompute_ns;
} lhi_elastic_sum;

typedef struct lhi_elastic_sums {
    uint32_t n_ops;
    const lh_elastic_op *ops;
    struct lhi_elastic_row {
        lhi_elastic_sum *sums;
        size_t count;
    } * rows; /* [k]: of the first k operations; [n_ops]: of all */
} lhi_elastic_sums;

/* `front`: without the sums that store more than another and take as long
 * again, or longer. */
lh_status lhi_elastic_find_sums(const lh_elastic_case *given, uint32_t n_ops,
                                const lh_elastic_op *ops, bool front,
                                lhi_arena *mem, lhi_elastic_sums *out,
                                lh_error *err);
/* Which operations one of the sums of all stores. */
void lhi_elastic_trace_back(const lhi_elastic_sums *sums, lhi_elastic_sum at,
                            bool *recomputed);

/* D times what a device keeps of `share` parameters, of each its part: `share`,
 * but that experts are divided among more or fewer than D. Rounded up. */
lhi_wide lhi_elastic_divided(const lh_elastic_case *given, int64_t share);

/* M_o + M_g + M_p as an exact fraction of denominator D M. */
lhi_wide lhi_elastic_states(const lh_elastic_case *given,
                            const lh_elastic_plan *plan);

#endif
