/* SPDX-License-Identifier: Apache-2.0 */
/* Methods "1f1b" (PipeDream-flush, Narayanan et al., 2021), one warm-up forward
 * per downstream device, then alternating forward and backward, then the
 * remaining backwards; and "seq1f1b", the same over slices of sequences. */
#include "schedule/methods/sched.h"

/* Writes the 1F1B orders of all devices: warm-up forwards, alternating F and
 * B, then the remaining B. */
static lh_status put_orders(const lh_pipeline *pipeline, lhi_orders *out,
                            lh_error *err)
{
    uint32_t n = pipeline->n_microbatches;
    LHI_TRY(lhi_orders_init(out, pipeline, 2, err));
    for (uint32_t d = 0; d < pipeline->n_devices; d++) {
        lhi_order *order = &out->devices[d];
        uint32_t after = pipeline->n_devices - 1 - d, f = 0, b = 0;
        while (f < after && f < n)
            lhi_order_add_pass(order, LH_F, d, f++);
        while (f < n) {
            lhi_order_add_pass(order, LH_F, d, f++);
            lhi_order_add_pass(order, LH_B, d, b++);
        }
        while (b < n)
            lhi_order_add_pass(order, LH_B, d, b++);
    }
    return LH_OK;
}

/* Checks the memory limits with the 1F1B order of n_devices microbatches, whose
 * warm-up already reaches the peak memory. This avoids building an order with
 * thousands of passes that cannot fit. */
static lh_status check_warmup_memory(const lh_pipeline *pipeline, lh_error *err)
{
    lh_pipeline first = *pipeline;
    lhi_orders orders = {0};
    first.n_microbatches = pipeline->n_devices;
    LHI_TRY(put_orders(&first, &orders, err));
    lh_status status = lhi_orders_check_memory(&orders, &first, err);
    lhi_orders_fini(&orders);
    return status;
}

/* Method "1f1b": warm-up forwards, then one forward and one backward in
 * turn. */
lh_status lhi_1f1b(const lh_pipeline *pipeline,
                   const lh_method_options *options, lhi_orders *out,
                   lh_error *err)
{
    (void)options;
    if (pipeline->n_microbatches > 2 * (uint64_t)pipeline->n_devices)
        LHI_TRY(check_warmup_memory(pipeline, err));
    return put_orders(pipeline, out, err);
}

/* Returns the number of the slice (over all sequences) whose backward runs as
 * number `nth` on a device. Sequences run in order, and the n_slices slices of
 * each from last to first. */
static uint32_t find_backward(uint32_t nth, uint32_t n_slices)
{
    return nth - nth % n_slices + (n_slices - 1 - nth % n_slices);
}

/* Method "seq1f1b" (Sun et al., "Seq1F1B: Efficient Sequence-Level Pipeline
 * Parallelism", 2024): 1f1b whose microbatches are slices. The first backward
 * is that of a sequence's last slice, so warm-up has as many more forwards. */
lh_status lhi_seq1f1b(const lh_pipeline *pipeline,
                      const lh_method_options *options, lhi_orders *out,
                      lh_error *err)
{
    (void)options;
    uint32_t n = pipeline->n_microbatches, k = pipeline->n_slices;
    LHI_TRY(lhi_orders_init(out, pipeline, 2, err));
    for (uint32_t d = 0; d < pipeline->n_devices; d++) {
        lhi_order *order = &out->devices[d];
        uint64_t warm_up = (uint64_t)pipeline->n_devices - 1 - d + k - 1;
        uint32_t f = 0, b = 0;
        while (f < warm_up && f < n)
            lhi_order_add_pass(order, LH_F, d, f++);
        while (f < n) {
            lhi_order_add_pass(order, LH_F, d, f++);
            lhi_order_add_pass(order, LH_B, d, find_backward(b++, k));
        }
        while (b < n)
            lhi_order_add_pass(order, LH_B, d, find_backward(b++, k));
    }
    return LH_OK;
}
