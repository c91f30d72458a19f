/* SPDX-License-Identifier: Apache-2.0 */
/* 1F1B (PipeDream-flush, Narayanan et al., 2021): as many forwards as devices
 * follow, then a forward and a backward in turn, then the other backwards. */
#include "sched/sched.h"

lh_status lhi_1f1b(const lh_pipeline *pipeline,
                   const lh_method_options *options, lhi_orders *out,
                   lh_error *err)
{
    (void)options;
    uint32_t n = pipeline->n_microbatches;
    LHI_TRY(lhi_orders_init(out, pipeline, 2, err));
    for (uint32_t d = 0; d < pipeline->n_devices; d++) {
        lhi_order *order = &out->devices[d];
        uint32_t after = pipeline->n_devices - 1 - d, f = 0, b = 0;
        while (f < after && f < n)
            lhi_put(order, LH_F, d, f++);
        while (f < n) {
            lhi_put(order, LH_F, d, f++);
            lhi_put(order, LH_B, d, b++);
        }
        while (b < n)
            lhi_put(order, LH_B, d, b++);
    }
    return LH_OK;
}
