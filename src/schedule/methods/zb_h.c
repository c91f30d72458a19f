/* SPDX-License-Identifier: Apache-2.0 */
/* Methods "zb-h1" and "zb-h2" (Qi et al., 2024), handcrafted: D follows 1F1B's
 * backwards, and each W lags its D by enough microbatches that the last device
 * never waits. */
#include "schedule/methods/sched.h"

/* Writes device d's order for n microbatches: `warmup` forwards, then in turn
 * a D, the W that is `lag` microbatches behind it, and the next F. */
static void put_passes(lhi_order *order, uint32_t d, uint32_t n,
                       uint32_t warmup, uint32_t lag)
{
    uint32_t f = 0, w = 0;
    while (f < warmup && f < n)
        lhi_order_add_pass(order, LH_F, d, f++);
    for (uint32_t i = 0; i < n; i++) {
        lhi_order_add_pass(order, LH_D, d, i);
        if (i >= lag)
            lhi_order_add_pass(order, LH_W, d, w++);
        if (f < n)
            lhi_order_add_pass(order, LH_F, d, f++);
    }
    while (w < n)
        lhi_order_add_pass(order, LH_W, d, w++);
}

/* Method "zb-h1": zero-bubble schedule with 1F1B's memory. */
lh_status lhi_zb_h1(const lh_pipeline *pipeline,
                    const lh_method_options *options, lhi_orders *out,
                    lh_error *err)
{
    (void)options;
    LHI_TRY(lhi_orders_init(out, pipeline, 3, err));
    for (uint32_t d = 0; d < pipeline->n_devices; d++)
        put_passes(&out->devices[d], d, pipeline->n_microbatches,
                   pipeline->n_devices - d, d);
    return LH_OK;
}

/* Method "zb-h2": zero-bubble schedule with about twice 1F1B's memory. */
lh_status lhi_zb_h2(const lh_pipeline *pipeline,
                    const lh_method_options *options, lhi_orders *out,
                    lh_error *err)
{
    (void)options;
    LHI_TRY(lhi_orders_init(out, pipeline, 3, err));
    for (uint32_t d = 0; d < pipeline->n_devices; d++)
        put_passes(&out->devices[d], d, pipeline->n_microbatches,
                   2 * (pipeline->n_devices - d) - 1, 2 * d);
    return LH_OK;
}
