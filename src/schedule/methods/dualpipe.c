/* SPDX-License-Identifier: Apache-2.0 */
/* Methods "dualpipe" and "dualpipev": the phases of DeepSeek's DualPipe
 * (DeepSeek-V3 technical report, arXiv 2412.19437, section 3.2.1). DualPipeV is
 * DualPipe cut in half: each device of its V runs the passes of a device of
 * DualPipe's first half, with the way back as the other direction. */
#include "schedule/methods/sched.h"

#include <inttypes.h>

/* A device's passes under construction. Leg 0 is the direction in which the
 * device is among the first half of the chunks, leg 1 the other. */
typedef struct dual_counts {
    lhi_order *order;
    uint32_t chunks[2];  /* per leg */
    uint32_t f[2], b[2]; /* per leg: forwards and backwards so far */
    uint32_t next_w;     /* position up to which every D has its W */
} dual_counts;

/* Appends the device's next F in direction `leg` (0 or 1). In direction 0 the
 * device runs a chunk in the first half of the model, in direction 1 a chunk in
 * the second half. */
static void add_f(dual_counts *v, uint32_t leg)
{
    lhi_order_add_pass(v->order, LH_F, v->chunks[leg], v->f[leg]++);
}

/* Appends the device's next backward in direction `leg` (0 or 1): with defer_w
 * only its D, otherwise B. */
static void add_backward(dual_counts *v, uint32_t leg, bool defer_w)
{
    lhi_order_add_pass(v->order, defer_w ? LH_D : LH_B, v->chunks[leg],
                       v->b[leg]++);
}

/* Appends the next F in direction `leg` (0 or 1) and the next B in the other
 * direction as an overlapped pair, which runs as one pass. */
static void add_pair(dual_counts *v, uint32_t leg)
{
    add_f(v, leg);
    add_backward(v, 1 - leg, false);
    for (uint32_t i = 1; i <= 2; i++)
        v->order->passes[v->order->count - i].overlapped = true;
}

/* Appends the W of the device's first D whose W has not been placed. */
static void add_w(dual_counts *v)
{
    const lh_pass *passes = v->order->passes;
    while (passes[v->next_w].kind != LH_D)
        v->next_w++;
    const lh_pass d = passes[v->next_w++];
    lhi_order_add_pass(v->order, LH_W, d.chunk, d.microbatch);
}

/* Writes a device's order for n microbatches per direction. `rank`, `after`:
 * number of devices before it, and between it and the middle of the pipeline
 * (DualPipe) or the bottom of the V (DualPipeV). */
static void put_device(dual_counts *v, uint32_t rank, uint32_t after,
                       uint32_t n)
{
    for (uint32_t i = 0; i < 2 * after; i++)
        add_f(v, 0);
    for (uint32_t i = 0; i <= rank; i++) {
        add_f(v, 0);
        add_f(v, 1);
    }
    for (uint32_t i = 0; i < after; i++) {
        add_backward(v, 1, true);
        add_w(v);
        add_f(v, 1);
    }
    for (uint32_t i = 0; v->f[0] < n; i++) {
        if (i == 0 && after == 0) {
            add_f(v, 0);
            add_backward(v, 1, false);
        } else {
            add_pair(v, 0);
        }
        add_pair(v, 1);
    }
    for (uint32_t i = 0; i < after; i++) {
        add_backward(v, 1, false);
        add_pair(v, 1);
    }
    /* The second half of these backwards defers its W. */
    uint32_t split = (rank + 1) / 2 * 2 + (rank % 2 == 0);
    for (uint32_t i = 0; i < 2 * (rank + 1); i++)
        add_backward(v, 1 - i % 2, i >= split);
    for (uint32_t i = 0; i < after; i++) {
        add_w(v);
        add_backward(v, 0, true);
    }
    for (uint32_t i = 0; i <= rank; i++)
        add_w(v);
}

/* Fails with LH_EUNSUPPORTED if the pipeline has fewer than `least`
 * microbatches, which DualPipe's phases need. */
static lh_status check_microbatches(const lh_pipeline *p, uint32_t least,
                                    lh_error *err)
{
    if (p->n_microbatches >= least)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "needs at least %" PRIu32 " microbatches%s for %" PRIu32
                    " devices; this pipeline has %" PRIu32,
                    least, p->bidirectional ? " per direction" : "",
                    p->n_devices, p->n_microbatches);
}

/* Method "dualpipe": the pipeline runs in both directions at once, with
 * DualPipe's phases (arXiv:2412.19437, section 3.2.1). */
lh_status lhi_dualpipe(const lh_pipeline *pipeline,
                       const lh_method_options *options, lhi_orders *out,
                       lh_error *err)
{
    (void)options;
    uint32_t devices = pipeline->n_devices;
    LHI_TRY(lhi_check_even_devices(pipeline, err));
    LHI_TRY(check_microbatches(pipeline, devices, err));
    LHI_TRY(lhi_orders_init(out, pipeline, 3, err));
    for (uint32_t d = 0; d < devices; d++) {
        uint32_t mirrored = devices - 1 - d;
        bool second = d > mirrored;
        uint32_t rank = second ? mirrored : d;
        dual_counts v = {.order = &out->devices[d],
                         .chunks = {second ? devices + mirrored : d,
                                    second ? d : devices + mirrored}};
        put_device(&v, rank, devices / 2 - 1 - rank, pipeline->n_microbatches);
    }
    return LH_OK;
}

/* Method "dualpipev": DualPipe's phases on a V of two chunks per device, down
 * the devices and back. */
lh_status lhi_dualpipev(const lh_pipeline *pipeline,
                        const lh_method_options *options, lhi_orders *out,
                        lh_error *err)
{
    (void)options;
    uint32_t devices = pipeline->n_devices;
    LHI_TRY(check_microbatches(pipeline, 2 * devices, err));
    LHI_TRY(lhi_orders_init(out, pipeline, 3, err));
    for (uint32_t d = 0; d < devices; d++) {
        dual_counts v = {.order = &out->devices[d],
                         .chunks = {d, 2 * devices - 1 - d}};
        put_device(&v, d, devices - 1 - d, pipeline->n_microbatches);
    }
    return LH_OK;
}
