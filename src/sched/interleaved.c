/* SPDX-License-Identifier: Apache-2.0 */
/* Interleaved 1F1B (Narayanan et al., 2021) in the order of Megatron-LM: the
 * microbatches go through in groups of P, each group through the device's
 * chunks one after the other. Where P does not divide them, groups are the next
 * larger ones of one size, which are also those of PyTorch where it takes that
 * number (torch/distributed/pipelining/schedules.py, ScheduleInterleaved1F1B:
 * n / P rounds, rounded down, that have to divide n). */
#include "sched/sched.h"

#include "base/whole.h"

typedef struct walk {
    uint32_t devices, legs, group; /* legs: chunks per device */
} walk;

/* The k-th forward or backward that `device` runs. */
static void put_kth(const walk *w, lhi_order *order, uint32_t device,
                    uint32_t k, bool forward)
{
    uint32_t group = k / (w->group * w->legs);
    uint32_t leg = k / w->group % w->legs;
    if (!forward)
        leg = w->legs - 1 - leg;
    lhi_put(order, forward ? LH_F : LH_B, leg * w->devices + device,
            group * w->group + k % w->group);
}

lh_status lhi_interleaved_1f1b(const lh_pipeline *pipeline,
                               const lh_method_options *options,
                               lhi_orders *out, lh_error *err)
{
    (void)options;
    walk w = {.devices = pipeline->n_devices};
    w.legs = pipeline->n_chunks / w.devices;
    w.group = lhi_least_divisor(pipeline->n_microbatches, w.devices);
    LHI_TRY(lhi_orders_init(out, pipeline, 2, err));
    for (uint32_t d = 0; d < w.devices; d++) {
        lhi_order *order = &out->devices[d];
        uint32_t total = order->room / 2, f = 0, b = 0;
        uint64_t warmup = 2 * (uint64_t)(w.devices - 1 - d) +
                          (uint64_t)(w.legs - 1) * w.group;
        while (f < warmup && f < total)
            put_kth(&w, order, d, f++, true);
        while (f < total) {
            put_kth(&w, order, d, f++, true);
            put_kth(&w, order, d, b++, false);
        }
        while (b < total)
            put_kth(&w, order, d, b++, false);
    }
    return LH_OK;
}
