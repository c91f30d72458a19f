/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of elastic pipelines share. Symbols as in PipeMesh: stages i
 * and chunks c count from 1. */
#ifndef LHI_ELASTIC_H
#define LHI_ELASTIC_H

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

/* C_DP * share / psi in whole ns, rounded up. */
int64_t lhi_elastic_partial(const lh_elastic_case *given, int64_t share);

/* A plan for `queue` into caller's storage: room for `queue_room` numbers in
 * each of `enqueue` and `dequeue`, at least lhi_elastic_groups(). */
uint32_t lhi_elastic_groups(const lh_elastic_case *given, uint32_t queue);
lh_status lhi_elastic_fill(const lh_elastic_case *given, uint32_t queue,
                           uint32_t *enqueue, uint32_t *dequeue,
                           lh_elastic_plan *out, lh_error *err);

/* A copy that its caller owns. */
lh_status lhi_elastic_copy(const lh_elastic_plan *from, lh_elastic_plan **out,
                           lh_error *err);

/* M_o + M_g + M_p as an exact fraction of denominator D M. */
lhi_wide lhi_elastic_states(const lh_elastic_case *given,
                            const lh_elastic_plan *plan);

#endif
