/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/methods/sched.h"

#include <longhaul/experimental/schedule.h>

#include <inttypes.h>
#include <stdlib.h>

/* Allocates each device's order for the given pass count per chunk and
 * microbatch. */
static lh_status allocate_orders(lhi_orders *orders, const lh_pipeline *p,
                                 uint32_t passes_per_microbatch, lh_error *err)
{
    orders->devices = LHI_NEW(orders->mem, lhi_order, p->n_devices);
    uint64_t *room = LHI_NEW(orders->mem, uint64_t, p->n_devices);
    if (!orders->devices || !room)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < p->n_chunks; c++)
        room[p->chunks[c].device] +=
            (uint64_t)p->n_microbatches * passes_per_microbatch;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        lhi_order *order = &orders->devices[d];
        if (room[d] > UINT32_MAX)
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "device %" PRIu32 " would run %" PRIu64
                            " passes; use fewer parts or microbatches",
                            d, room[d]);
        order->room = (uint32_t)room[d];
        order->passes = LHI_NEW(orders->mem, lh_pass, order->room);
        if (!order->passes)
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

lh_status lhi_orders_init(lhi_orders *orders, const lh_pipeline *pipeline,
                          uint32_t passes_per_microbatch, lh_error *err)
{
    *orders = (lhi_orders){.mem = lhi_arena_make(0),
                           .n_devices = pipeline->n_devices,
                           .useless_ns = orders->useless_ns};
    if (!orders->mem)
        return lhi_fail_nomem(err);
    lh_status status =
        allocate_orders(orders, pipeline, passes_per_microbatch, err);
    if (status != LH_OK)
        lhi_orders_fini(orders);
    return status;
}

void lhi_orders_fini(lhi_orders *orders)
{
    lhi_arena_free(orders->mem);
    *orders = (lhi_orders){0};
}

lh_status lhi_orders_build_schedule(const lhi_orders *orders, lh_schedule **out,
                                    lh_error *err)
{
    const lh_pass **passes =
        LHI_NEW(orders->mem, const lh_pass *, orders->n_devices);
    uint32_t *counts = LHI_NEW(orders->mem, uint32_t, orders->n_devices);
    if (!passes || !counts)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < orders->n_devices; d++) {
        passes[d] = orders->devices[d].passes;
        counts[d] = orders->devices[d].count;
    }
    return lh_schedule_make(orders->n_devices, passes, counts, 0, NULL, out,
                            err);
}

lh_status lhi_orders_check_memory(const lhi_orders *orders,
                                  const lh_pipeline *pipeline, lh_error *err)
{
    int64_t *held = calloc(pipeline->n_devices, sizeof *held);
    if (!held)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < pipeline->n_chunks; c++)
        held[pipeline->chunks[c].device] += pipeline->chunks[c].mem_static;
    lh_status status = LH_OK;
    for (uint32_t d = 0; d < orders->n_devices && status == LH_OK; d++) {
        const lhi_order *order = &orders->devices[d];
        int64_t now = held[d], peak = now;
        for (uint32_t i = 0; i < order->count; i++) {
            const lh_pass *pass = &order->passes[i];
            now += lhi_pass_memory_change(&pipeline->chunks[pass->chunk], pass);
            peak = now > peak ? now : peak;
        }
        if (peak > lh_pipeline_memory_limit(pipeline, d))
            status = lhi_fail_memory_limit(pipeline, d, peak, err);
    }
    free(held);
    return status;
}
