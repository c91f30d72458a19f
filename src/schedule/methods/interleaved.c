/* SPDX-License-Identifier: Apache-2.0 */
/* Method "interleaved-1f1b" (Narayanan et al., 2021) in Megatron-LM's order:
 * microbatches run in groups of P, each group through the device's chunks one
 * after another.
 *
 * If P does not divide their number, groups have the next larger uniform size.
 * PyTorch uses the same groups where it accepts that number
 * (torch/distributed/pipelining/schedules.py, ScheduleInterleaved1F1B: n / P
 * rounds, rounded down, that must divide n). */
#include "schedule/methods/sched.h"

#include "base/integer_math.h"

/* The interleaved order's dimensions. */
typedef struct order_shape {
    uint32_t devices, legs, group; /* legs: chunks per device */
} order_shape;

/* Appends the pass number k (from 0) of a device's forwards (`forward`), or
 * else of its backwards, in interleaved 1F1B order, to its order. */
static void add_kth_pass(const order_shape *w, lhi_order *order,
                         uint32_t device, uint32_t k, bool forward)
{
    uint32_t group = k / (w->group * w->legs);
    uint32_t leg = k / w->group % w->legs;
    if (!forward)
        leg = w->legs - 1 - leg;
    lhi_order_add_pass(order, forward ? LH_F : LH_B, leg * w->devices + device,
                       group * w->group + k % w->group);
}

/* Method "interleaved": interleaved 1F1B on a Loop placement (chunk c on
 * device c mod P). */
lh_status lhi_interleaved_1f1b(const lh_pipeline *pipeline,
                               const lh_method_options *options,
                               lhi_orders *out, lh_error *err)
{
    (void)options;
    order_shape w = {.devices = pipeline->n_devices};
    w.legs = pipeline->n_chunks / w.devices;
    w.group = lhi_find_divisor_at_least(pipeline->n_microbatches, w.devices);
    LHI_TRY(lhi_orders_init(out, pipeline, 2, err));
    for (uint32_t d = 0; d < w.devices; d++) {
        lhi_order *order = &out->devices[d];
        uint32_t total = order->room / 2, f = 0, b = 0;
        uint64_t warmup = 2 * (uint64_t)(w.devices - 1 - d) +
                          (uint64_t)(w.legs - 1) * w.group;
        while (f < warmup && f < total)
            add_kth_pass(&w, order, d, f++, true);
        while (f < total) {
            add_kth_pass(&w, order, d, f++, true);
            add_kth_pass(&w, order, d, b++, false);
        }
        while (b < total)
            add_kth_pass(&w, order, d, b++, false);
    }
    return LH_OK;
}
