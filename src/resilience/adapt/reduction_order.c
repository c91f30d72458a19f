/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction-order equivalence. Floating-point sums depend on their order: two
 * schedules train to the same bits if each chunk accumulates its microbatches'
 * gradients in the same order. */
#include "resilience/adapt/adapt_internal.h"

#include "schedule/pipeline/pipeline_internal.h"

#include <stdlib.h>
#include <string.h>

/* Lists in `sums` the order in which each chunk adds its microbatches' weight
 * gradients: after B, W, or the last part of a split W. Entry chunk *
 * n_microbatches + i is the chunk's i-th microbatch. Scratch, zeroed by the
 * caller: `parts` (per chunk and microbatch), n_of (per chunk). */
static void list_reduction_order(const lh_pipeline *p,
                                 const lh_schedule *schedule, uint32_t *sums,
                                 uint32_t *parts, uint32_t *n_of)
{
    for (uint32_t d = 0; d < p->n_devices; d++) {
        uint32_t n;
        const lh_pass *row = lh_schedule_order(schedule, d, &n);
        for (uint32_t i = 0; i < n; i++) {
            const lh_pass *one = &row[i];
            const size_t at = (size_t)one->chunk * p->n_microbatches;
            if (one->kind != LH_W && one->kind != LH_B)
                continue;
            if (++parts[at + one->microbatch] == one->n_parts)
                sums[at + n_of[one->chunk]++] = one->microbatch;
        }
    }
}

lh_status lhi_reduction_order_build(const lh_pipeline *p,
                                    const lh_schedule *schedule, uint32_t **out,
                                    lh_error *err)
{
    const size_t n = (size_t)p->n_chunks * p->n_microbatches;
    uint32_t *sums = calloc(n, sizeof *sums);
    uint32_t *parts = calloc(n + p->n_chunks, sizeof *parts);
    if (!sums || !parts) {
        free(sums);
        free(parts);
        return lhi_fail_nomem(err);
    }
    list_reduction_order(p, schedule, sums, parts, parts + n);
    free(parts);
    *out = sums;
    return LH_OK;
}

lh_status lhi_reduction_order_matches(const lh_pipeline *p,
                                      const uint32_t *sums,
                                      const lh_schedule *schedule, bool *agree,
                                      lh_error *err)
{
    uint32_t *own;
    LHI_TRY(lhi_reduction_order_build(p, schedule, &own, err));
    const size_t n = (size_t)p->n_chunks * p->n_microbatches;
    *agree = memcmp(sums, own, n * sizeof *own) == 0;
    free(own);
    return LH_OK;
}
