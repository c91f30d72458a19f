/* SPDX-License-Identifier: Apache-2.0 */
/* Method "chimera": two directions, each with 1F1B in units of P / 2
 * microbatches, merged so that no two passes coincide if F and B take one step
 * each (Li and Hoefler, "Chimera: Efficiently Training Large-Scale Neural
 * Networks with Bidirectional Pipelines", SC 2021, section 3.1 and figure 3;
 * units follow each other by direct concatenation, section 3.5). */
#include "schedule/methods/sched.h"

#include <inttypes.h>

lh_status lhi_check_even_devices(const lh_pipeline *p, lh_error *err)
{
    if (p->n_devices % 2 == 0)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "needs an even number of devices; this pipeline has "
                    "%" PRIu32,
                    p->n_devices);
}

/* Returns the step in which stage `stage` of P runs the F, or with `backward`
 * the B, of microbatch m of its direction. Steps are a schedule's time units in
 * which F and B take one each. */
static uint64_t compute_step(uint64_t P, uint64_t stage, uint64_t m,
                             bool backward)
{
    uint64_t start = m / (P / 2) * 2 * P + m % (P / 2) * 2;
    return start + (backward ? 2 * P - 1 - stage : stage);
}

/* Writes one device's pass order: merges F and B of both directions, n
 * microbatches each, by the steps of compute_step(). */
static void put_device(lhi_order *order, uint32_t device, uint32_t P,
                       uint32_t n)
{
    const uint32_t stages[2] = {device, P - 1 - device};
    uint32_t next[4] = {0}; /* F and B of direction 0, then of direction 1 */
    for (uint32_t i = 0; i < 4 * n; i++) {
        uint32_t best = 0;
        uint64_t least = UINT64_MAX;
        for (uint32_t k = 0; k < 4; k++) {
            if (next[k] == n)
                continue;
            uint64_t step = compute_step(P, stages[k / 2], next[k], k % 2);
            if (step < least) {
                least = step;
                best = k;
            }
        }
        lhi_order_add_pass(order, best % 2 ? LH_B : LH_F,
                           best / 2 * P + stages[best / 2], next[best]++);
    }
}

/* Method "chimera": the pipeline runs in both directions at once, and each
 * device merges the 1F1B orders of its two chunks. */
lh_status lhi_chimera(const lh_pipeline *pipeline,
                      const lh_method_options *options, lhi_orders *out,
                      lh_error *err)
{
    (void)options;
    LHI_TRY(lhi_check_even_devices(pipeline, err));
    LHI_TRY(lhi_orders_init(out, pipeline, 2, err));
    for (uint32_t d = 0; d < pipeline->n_devices; d++)
        put_device(&out->devices[d], d, pipeline->n_devices,
                   pipeline->n_microbatches);
    return LH_OK;
}
