/* SPDX-License-Identifier: Apache-2.0 */
/* Method "zbv-phases": zero bubble on a V with the phase counts from PyTorch's
 * ScheduleZBVZeroBubble (ScaleAcross Explorer uses this order for two chunks
 * per device). While zb-v searches for the order with the least waiting, this
 * order is a formula. It matches PyTorch's own schedule. */
#include "schedule/methods/sched.h"

/* Per-device pass counters. */
typedef struct v_counts {
    lhi_order *order;
    uint32_t n;         /* microbatch count */
    uint32_t chunks[2]; /* chunks for leg 0 and leg 1 */
    uint32_t f[2], d[2], w[2];
} v_counts;

/* Appends the next pass of one kind and leg (chunk of the V) to the order;
 * microbatches past the last are only counted. */
static void add_next_pass(v_counts *v, lh_pass_kind kind, uint32_t leg)
{
    uint32_t *counts = kind == LH_F ? v->f : kind == LH_D ? v->d : v->w;
    uint32_t m = counts[leg]++;
    if (m < v->n)
        lhi_order_add_pass(v->order, kind, v->chunks[leg], m);
}

/* Appends the next D on a leg (chunk in the V) and its W to the order. */
static void add_d_and_w(v_counts *v, uint32_t leg)
{
    add_next_pass(v, LH_D, leg);
    add_next_pass(v, LH_W, leg);
}

/* Writes one device's order for ZB-V, phase by phase, in a V of 2 x `devices`
 * chunks. */
static void put_device(v_counts *v, uint32_t device, uint32_t devices)
{
    uint32_t after = devices - device, least = 2 * devices - 1;
    uint32_t all = v->n > least ? v->n : least;
    for (uint32_t i = 0; i < 2 * after - 1; i++)
        add_next_pass(v, LH_F, 0);
    for (uint32_t i = 0; i < device; i++) {
        add_next_pass(v, LH_F, 1);
        add_next_pass(v, LH_F, 0);
    }
    for (uint32_t i = 0; i < after; i++) {
        add_next_pass(v, LH_F, 1);
        add_d_and_w(v, 1);
    }
    while (v->f[1] < v->f[0] || v->f[0] < all) {
        if (v->f[0] < all)
            add_next_pass(v, LH_F, 0);
        add_d_and_w(v, 0);
        add_next_pass(v, LH_F, 1);
        add_d_and_w(v, 1);
    }
    for (uint32_t i = 0; i < device; i++) {
        add_next_pass(v, LH_D, 0);
        add_next_pass(v, LH_D, 1);
    }
    for (uint32_t i = 0; i < after; i++)
        add_d_and_w(v, 0);
    for (uint32_t leg = 2; leg-- > 0;)
        while (v->w[leg] < v->d[leg])
            add_next_pass(v, LH_W, leg);
}

/* Method "zbv-phases": ZB-V with two chunks per device, built phase by
 * phase. */
lh_status lhi_zbv_phases(const lh_pipeline *pipeline,
                         const lh_method_options *options, lhi_orders *out,
                         lh_error *err)
{
    (void)options;
    LHI_TRY(lhi_orders_init(out, pipeline, 3, err));
    uint32_t devices = pipeline->n_devices;
    for (uint32_t device = 0; device < devices; device++) {
        v_counts v = {.order = &out->devices[device],
                      .n = pipeline->n_microbatches,
                      .chunks = {device, 2 * devices - 1 - device}};
        put_device(&v, device, devices);
    }
    return LH_OK;
}
