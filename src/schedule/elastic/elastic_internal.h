/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface for elastic pipelines. Symbols as in PipeMesh: stages i
 * and chunks c count from 1.
 *
 * Closed forms for equal chunks on equal stages. Input: a case (chunk times and
 * sizes, stages, replicas, microbatches). Output: plans (groups, shares,
 * buckets) with their time and memory (longhaul/experimental/elastic.h).
 *
 *     queue_plan.c        plan for a queue size; plans from input
 *     pass_order.c        pass order per stage
 *     communication.c     data-parallel operations and their launching passes
 *     model.c             time and memory
 *     recompute_table.c   bytes and time per recomputed set of operations
 *     choose.c            queue, sharding and recomputation together
 *
 * Searches that run the event simulator are in planner/elastic/. */
#ifndef LHI_SCHEDULE_ELASTIC_ELASTIC_INTERNAL_H
#define LHI_SCHEDULE_ELASTIC_ELASTIC_INTERNAL_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/experimental/elastic.h>

/* 128-bit integers: parameter shares are products of numbers up to 52, 20 and
 * 50 bits, so exact arithmetic needs more than 64 bits. */
__extension__ typedef __int128 lhi_int128;

/* Limits of inputs, so that products with counts fit into 64 bits: ns, and
 * parameters. */
#define LHI_ELASTIC_MAX_TIME (INT64_C(1) << 52)
#define LHI_ELASTIC_MAX_PARAMS (INT64_C(1) << 50)
/* Activation bytes of a pass beyond its operations': the sum over the resident
 * passes must not overflow. */
#define LHI_ELASTIC_MAX_BASE_BYTES (INT64_C(1) << 40)

/* Returns a / b rounded up; 0 for negative a. */
static inline lhi_int128 lhi_int128_divide_ceil(lhi_int128 a, lhi_int128 b)
{
    return a <= 0 ? 0 : (a - 1) / b + 1;
}

/* Fails with LH_EINVAL if a value of the elastic case (sizes and times of the
 * pipeline) is outside the formulas' range. */
lh_status lhi_elastic_check_case(const lh_elastic_case *given, lh_error *err);

/* Computes the plan's extra warm-up and whether pipeline messages are hidden.
 * Accepts any group sizes, including those that lhi_elastic_plan_make()
 * rejects. */
void lhi_elastic_derive_plan(const lh_elastic_case *given,
                             lh_elastic_plan *plan);

/* A chunk's data-parallel communication times in ns: for the whole chunk in one
 * collective, and layer by layer as sharded parameters require. */
typedef struct lhi_elastic_times {
    int64_t gather_ns, scatter_ns;
    int64_t sharded_gather_ns, sharded_scatter_ns;
} lhi_elastic_times;

/* Returns the communication time in ns of a whole chunk that communicates
 * layer by layer. */
int64_t lhi_elastic_get_sharded_ns(const lh_elastic_case *given);

/* Returns the communication time of the sharded part alone, `share` out of
 * `params` parameters, in ns rounded up. */
int64_t lhi_elastic_compute_part_ns(int64_t sharded_ns, int64_t share,
                                    int64_t params);
/* Returns the communication time in ns of a whole chunk of which `share`
 * parameters are sharded; the others communicate in one collective. */
int64_t lhi_elastic_compute_chunk_ns(int64_t at_once_ns, int64_t sharded_ns,
                                     int64_t share, int64_t params);

/* Returns the communication time in ns of `share` sharded parameters alone: C_g
 * or C_p in the PipeMesh paper. */
int64_t lhi_elastic_compute_partial_ns(const lh_elastic_case *given,
                                       int64_t share);
/* Returns the time in ns of the first gather or last scatter of a whole chunk
 * with `share` sharded parameters. */
int64_t lhi_elastic_compute_first_last_ns(const lh_elastic_case *given,
                                          int64_t share);

/* Lists the plan's n_ops data-parallel operations as lhi_elastic_operations()
 * does, for unequal chunks. `times`: one entry per chunk; NULL: times from
 * `given`. */
lh_status lhi_elastic_build_operations(const lh_elastic_case *given,
                                       const lh_elastic_plan *plan,
                                       const lhi_elastic_times *times,
                                       lh_dp_op **ops, uint32_t *n_ops,
                                       lh_error *err);

/* Returns the number of groups into which queue size `queue` divides the
 * microbatches. */
uint32_t lhi_elastic_count_groups(const lh_elastic_case *given, uint32_t queue);
/* Fills in a plan for queue size `queue` in the caller's storage: `enqueue`
 * and `dequeue` need lhi_elastic_count_groups() entries each. LH_EINFEASIBLE:
 * a group has fewer microbatches than there are stages. */
lh_status lhi_elastic_fill_plan(const lh_elastic_case *given, uint32_t queue,
                                uint32_t *enqueue, uint32_t *dequeue,
                                lh_elastic_plan *out, lh_error *err);

/* Copies the elastic plan `from`; release *out with lh_elastic_plan_free(). */
lh_status lhi_elastic_copy_plan(const lh_elastic_plan *from,
                                lh_elastic_plan **out, lh_error *err);

/* Recompute time (ns) and stored bytes per chunk pass on one stage. */
typedef struct lhi_elastic_recompute {
    int64_t ns, stored;
} lhi_elastic_recompute;

/* Builds an elastic plan's pipeline as lhi_elastic_pipeline() does, but with
 * one recomputation entry in `again` per stage. */
lh_status lhi_elastic_build_pipeline(const lh_elastic_case *given,
                                     const lh_elastic_plan *plan,
                                     const lhi_elastic_recompute *again,
                                     lh_pipeline **out, lh_error *err);

/* A total of stored bytes over a subset of the operations, with the minimum
 * recompute time for the other operations. */
typedef struct lhi_elastic_recompute_point {
    int64_t stored, recompute_ns;
} lhi_elastic_recompute_point;

/* Recompute table: per prefix of the operations, all points by rising bytes. */
typedef struct lhi_elastic_recompute_table {
    uint32_t n_ops;
    const lh_elastic_op *ops;
    struct lhi_elastic_recompute_row {
        lhi_elastic_recompute_point *sums;
        size_t count;
    } * rows; /* [k]: first k operations; [n_ops]: all */
} lhi_elastic_recompute_table;

/* Builds the table of (stored bytes, recompute time) points by dynamic
 * programming over the operations. `front`: drops dominated points (more
 * bytes, no less recompute time). LH_EUNSUPPORTED: more than 2^23 points. */
lh_status lhi_elastic_build_recompute_table(const lh_elastic_case *given,
                                            uint32_t n_ops,
                                            const lh_elastic_op *ops,
                                            bool front, lhi_arena *mem,
                                            lhi_elastic_recompute_table *out,
                                            lh_error *err);
/* Determines which operations point `at` (stored bytes and recompute time) in
 * the recompute table `sums` recomputes; sets recomputed[i] for operation i.
 * The point must belong to the table's last row. */
void lhi_elastic_recover_operations(const lhi_elastic_recompute_table *sums,
                                    lhi_elastic_recompute_point at,
                                    bool *recomputed);

/* Returns the parameters out of `share` that each device has, times the replica
 * count D, rounded up. This equals `share` unless experts have more or fewer
 * replicas than D. */
lhi_int128 lhi_elastic_compute_resident_params(const lh_elastic_case *given,
                                               int64_t share);

/* Returns the bytes of optimizer state, gradients and parameters per device
 * (M_o + M_g + M_p in the PipeMesh paper) as an exact numerator over D M
 * (replicas x chunks). */
lhi_int128 lhi_elastic_compute_states(const lh_elastic_case *given,
                                      const lh_elastic_plan *plan);

#endif
