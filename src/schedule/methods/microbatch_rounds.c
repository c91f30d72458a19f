/* SPDX-License-Identifier: Apache-2.0 */
/* Methods "flexible" (Meta, "The Llama 3 Herd of Models", 2024, section 3.3)
 * and "dorapp" (ScaleAcross Explorer, 2026, section 4).
 *
 * A round is a group of consecutive microbatches. A device runs all
 * microbatches of a round on one chunk before it runs them on its next chunk,
 * and starts the next round after its last chunk. Interleaved 1F1B has P
 * microbatches (the device count) in a round. Larger rounds give a chunk's
 * messages more time to arrive. DoraPP also splits input and weight gradients,
 * and defers weight gradients at the iteration's end. */
#include "schedule/methods/sched.h"

#include <inttypes.h>
#include <longhaul/experimental/simulate.h>

/* Cursor over all passes in one direction. */
typedef struct round_cursor {
    uint32_t devices, legs, n, group; /* legs: chunks per device */
    uint32_t device;
    bool forward;
    bool is_short;           /* warm-up as in 1F1B */
    uint32_t first, leg, at; /* first: of the round; at: in the round */
} round_cursor;

/* Returns the microbatch count in the round at which the cursor is: w->group,
 * or fewer in the last round. A round is a group of microbatches that a device
 * runs on one chunk before the next chunk. */
static uint32_t get_round_size(const round_cursor *w)
{
    uint32_t left = w->n - w->first;
    return left < w->group ? left : w->group;
}

/* Returns the pass of kind `kind` at the cursor, which walks a device's passes
 * round by round, and advances it. */
static lh_pass take_next_pass(round_cursor *w, lh_pass_kind kind)
{
    assert(w->first < w->n);
    uint32_t leg = w->forward ? w->leg : w->legs - 1 - w->leg;
    lh_pass pass = {.chunk = leg * w->devices + w->device,
                    .microbatch = w->first + w->at,
                    .n_parts = 1,
                    .kind = (uint8_t)kind};
    if (++w->at == get_round_size(w)) {
        w->at = 0;
        if (++w->leg == w->legs) {
            w->leg = 0;
            w->first += w->group;
        }
    }
    return pass;
}

/* Appends a pass to a device's order. */
static void put_pass(lhi_order *order, lh_pass pass)
{
    lhi_order_add_pass(order, (lh_pass_kind)pass.kind, pass.chunk,
                       pass.microbatch);
}

/* Returns how many forwards the device runs before its first F and B in turn,
 * by Megatron's rule for interleaved 1F1B. With a short warm-up it is one more
 * than on the next device, as in 1F1B, instead of two. */
static uint32_t count_warmup(const round_cursor *w)
{
    uint64_t group = w->group < w->n ? w->group : w->n;
    uint64_t wanted =
        (uint64_t)(w->legs - 1) * group +
        (w->is_short ? 1 : 2) * (uint64_t)(w->devices - 1 - w->device);
    uint64_t all = (uint64_t)w->n * w->legs;
    return (uint32_t)(wanted < all ? wanted : all);
}

/* Writes a device's order for the method "flexible": warm-up forwards,
 * alternating F and B, then the remaining B. `forward`: cursor at the device's
 * first forward. */
static void put_flexible(lhi_order *order, round_cursor forward)
{
    round_cursor backward = forward;
    uint32_t all = forward.n * forward.legs, ahead = count_warmup(&forward);
    backward.forward = false;
    for (uint32_t k = 0; k < all + ahead; k++) {
        if (k < all)
            put_pass(order, take_next_pass(&forward, LH_F));
        if (k >= ahead)
            put_pass(order, take_next_pass(&backward, LH_B));
    }
}

/* Appends the D at cursor `d` and the W at cursor `w` to a device's order, and
 * advances both. */
static void put_split(lhi_order *order, round_cursor *d, round_cursor *w)
{
    put_pass(order, take_next_pass(d, LH_D));
    put_pass(order, take_next_pass(w, LH_W));
}

/* Writes a device's order for the method "dorapp": warm-up forwards,
 * alternating F and D, then the remaining D; W runs later than its D.
 * `forward`: cursor at the device's first forward. */
static void put_dora(lhi_order *order, round_cursor forward)
{
    round_cursor d = forward, w;
    uint32_t all = forward.n * forward.legs, ahead = count_warmup(&forward);
    uint32_t waiting = 0; /* deferred weight gradients */
    d.forward = false;
    w = d;
    for (uint32_t k = 0; k < all; k++) {
        put_pass(order, take_next_pass(&forward, LH_F));
        if (k >= ahead)
            put_split(order, &d, &w);
    }
    for (uint32_t k = 0; k < ahead; k++) {
        put_pass(order, take_next_pass(&d, LH_D));
        if (++waiting > forward.device) {
            put_pass(order, take_next_pass(&w, LH_W));
            waiting--;
        }
    }
    for (; waiting; waiting--)
        put_pass(order, take_next_pass(&w, LH_W));
}

typedef void put_order(lhi_order *order, round_cursor forward);

/* Fails if the orders with rounds of `group` microbatches deadlock in the
 * simulation. A round with fewer microbatches than devices can create a cyclic
 * wait: a backward is ordered behind a forward that depends on the first
 * device. Megatron-LM rejects such sizes, although some work. */
static lh_status check_deadlock(const lh_pipeline *p, const lhi_orders *orders,
                                uint32_t group, lh_error *err)
{
    uint32_t n = p->n_microbatches, rest = n % group, devices = p->n_devices;
    if (p->n_chunks == devices || group >= n ||
        (group >= devices && (rest == 0 || rest >= devices)))
        return LH_OK;
    lh_evaluator *evaluator = NULL;
    lh_schedule *schedule = NULL;
    int64_t makespan_ns;
    lh_error why = {0};
    lh_status status = lhi_orders_build_schedule(orders, &schedule, &why);
    if (status == LH_OK)
        status = lh_evaluator_make(p, NULL, &evaluator, &why);
    if (status == LH_OK)
        status = lh_evaluator_run(evaluator, schedule, &makespan_ns, &why);
    lh_evaluator_free(evaluator);
    lh_schedule_free(schedule);
    if (status == LH_EDEADLOCK)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "rounds of %" PRIu32 " of the %" PRIu32
                        " microbatches block each other; choose a size with "
                        "which every round has at least as many as there are "
                        "devices (%" PRIu32 ")",
                        group, n, devices);
    if (status != LH_OK && err)
        *err = why;
    return status;
}

/* Builds all devices' orders with `put`, which writes one device's order, in
 * rounds of `group` microbatches; fails if they deadlock. `passes`: passes per
 * chunk and microbatch, 2 with B or 3 with D and W. */
static lh_status make_orders(const lh_pipeline *p, uint32_t group,
                             bool is_short, uint32_t passes, put_order *put,
                             lhi_orders *out, lh_error *err)
{
    LHI_TRY(lhi_orders_init(out, p, passes, err));
    for (uint32_t device = 0; device < p->n_devices; device++)
        put(&out->devices[device], (round_cursor){
                                       .devices = p->n_devices,
                                       .legs = p->n_chunks / p->n_devices,
                                       .n = p->n_microbatches,
                                       .group = group,
                                       .device = device,
                                       .forward = true,
                                       .is_short = is_short,
                                   });
    lh_status status = check_deadlock(p, out, group, err);
    if (status != LH_OK)
        lhi_orders_fini(out);
    return status;
}

/* Returns the requested number of microbatches in a round, by default P. */
static uint32_t get_group(const lh_pipeline *p,
                          const lh_method_options *options)
{
    return options->round_size ? options->round_size : p->n_devices;
}

/* Method "flexible": interleaved 1F1B with options->round_size microbatches in
 * a round (0: P). A round is a group of consecutive microbatches that a device
 * runs on one chunk before it runs them on its next chunk. */
lh_status lhi_flexible(const lh_pipeline *pipeline,
                       const lh_method_options *options, lhi_orders *out,
                       lh_error *err)
{
    return make_orders(pipeline, get_group(pipeline, options), false, 2,
                       put_flexible, out, err);
}

/* Method "dorapp": the forward and backward order of "flexible", with D and W
 * as separate passes. A device runs W directly after D while forwards remain,
 * and then delays as many W passes as its number. A round is a group of
 * consecutive microbatches that a device runs on one chunk before it runs them
 * on its next chunk; options->round_size is its size (0: P). */
lh_status lhi_dorapp(const lh_pipeline *pipeline,
                     const lh_method_options *options, lhi_orders *out,
                     lh_error *err)
{
    return make_orders(pipeline, get_group(pipeline, options), false, 3,
                       put_dora, out, err);
}

lh_status lhi_make_short_rounds(const lh_pipeline *pipeline, uint32_t group,
                                lh_schedule **out, lh_error *err)
{
    lhi_orders orders = {0};
    LHI_TRY(make_orders(pipeline, group, true, pipeline->joint ? 2 : 3,
                        pipeline->joint ? put_flexible : put_dora, &orders,
                        err));
    lh_status status = lhi_orders_build_schedule(&orders, out, err);
    lhi_orders_fini(&orders);
    return status;
}
