/* SPDX-License-Identifier: Apache-2.0 */
/* Method "gpipe" (Huang et al., 2019): every device runs all its forwards, then
 * all its backwards. Chunk after chunk along the path, so orders with several
 * chunks per device cannot deadlock. */
#include "schedule/methods/sched.h"

/* Method "gpipe": all forwards, then all backwards. */
lh_status lhi_gpipe(const lh_pipeline *pipeline,
                    const lh_method_options *options, lhi_orders *out,
                    lh_error *err)
{
    (void)options;
    LHI_TRY(lhi_orders_init(out, pipeline, 2, err));
    for (uint32_t c = 0; c < pipeline->n_chunks; c++) {
        lhi_order *order = &out->devices[pipeline->chunks[c].device];
        for (uint32_t m = 0; m < pipeline->n_microbatches; m++)
            lhi_order_add_pass(order, LH_F, c, m);
    }
    for (uint32_t c = pipeline->n_chunks; c-- > 0;) {
        lhi_order *order = &out->devices[pipeline->chunks[c].device];
        for (uint32_t m = 0; m < pipeline->n_microbatches; m++)
            lhi_order_add_pass(order, LH_B, c, m);
    }
    return LH_OK;
}
